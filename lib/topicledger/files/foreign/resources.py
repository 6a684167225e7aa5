"""Kubernetes resources (apiVersion, kind, metadata, spec), single or in lists; two tools use them for topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from topicledger.files.foreign.fields import Fields, document_fields
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, Value, describe
from topicledger.text import show

TOPIC, TOPIC_LIST = "KafkaTopic", "KafkaTopicList"


@dataclass(frozen=True, kw_only=True)
class Api:
    """The group and versions of a tool's own resources."""

    group: str
    versions: tuple[str, ...]

    def reason(self, api_version: str) -> str | None:
        """Return why an apiVersion isn't the tool's own; None if it is."""
        group, _, version = api_version.partition("/")
        if group != self.group:
            return f"is {show(api_version)}, of another tool; this format has {self.group}/{self.versions[-1]}"
        if version not in self.versions:
            return f"is {show(api_version)}; known: {', '.join(f'{group}/{each}' for each in self.versions)}"
        return None


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource, with its metadata and other fields not yet read."""

    kind: str
    fields: Fields
    metadata: Fields
    line: int
    reader: Reader


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Finds resources in documents, also within lists (kubectl's lists and lists of topics); counts other kinds."""

    api: Api
    """The API of topics; a topic of any other API is an error."""
    handle: Callable[[Resource], None]
    """Called with each topic, and with each resource of the kinds `others`."""
    others: Mapping[str, Api] = field(default_factory=dict)
    unnamed: Mapping[str, str] = field(default_factory=dict)
    """Kinds among `others` whose metadata may be left out, by the kind of their lists."""

    def document(self, value: Value, line: int, reader: Reader) -> None:
        """Read one document, or one item of kubectl's list."""
        fields = document_fields(value, line, reader, "a resource with `apiVersion` and `kind`")
        if fields is None:
            return
        kind = fields.text("kind", required=True)
        if kind is None:
            return
        if kind in (TOPIC_LIST, "List"):
            self._list(fields, kind, reader)
        elif not self._is_wanted(self.unnamed.get(kind, kind), fields, reader):
            return
        elif kind in self.unnamed:
            self._list(fields, kind, reader)
        else:
            self._resource(kind, fields, fields.line, reader)

    def _list(self, fields: Fields, kind: str, reader: Reader) -> None:
        if kind == TOPIC_LIST and not _is_ours(fields, self.api):
            return
        fields.take("apiVersion")
        items = fields.items("items")
        spec = fields.mapping("spec") if kind == TOPIC_LIST else None
        if spec is not None:  # the place of topics in older versions of jikkou
            items += spec.items("topics")
            spec.rest()
        fields.leave_out(("metadata",), "a list's own metadata")
        fields.rest()
        for item, line in items:
            if not isinstance(item, Object):
                reader.report.error(line, f"each of `items` must be a mapping, not {describe(item)}")
            elif kind != "List":
                self._resource(self.unnamed.get(kind, TOPIC), Fields(item, "", reader, line), item.line, reader)
            else:
                self.document(item, item.line, reader)

    def _is_wanted(self, kind: str, fields: Fields, reader: Reader) -> bool:
        if kind == TOPIC:
            return _is_ours(fields, self.api)
        version = fields.scalar("apiVersion") or ""
        if kind in self.others and self.others[kind].reason(version) is None:
            return True
        reader.report.skip(kind)
        return False

    def _resource(self, kind: str, fields: Fields, line: int, reader: Reader) -> None:
        for key in ("kind", "apiVersion"):
            fields.take(key)
        unnamed = kind in self.unnamed.values()
        metadata = fields.mapping("metadata", required=not unnamed)
        if metadata is None and unnamed:
            metadata = Fields(Object(line=line), "metadata", reader, line)
        if metadata is not None:
            self.handle(Resource(kind=kind, fields=fields, metadata=metadata, line=line, reader=reader))


def _is_ours(fields: Fields, api: Api) -> bool:
    line = fields.line
    version = fields.text("apiVersion", required=True)
    reason = None if version is None else api.reason(version)
    if reason is not None:
        fields.error("apiVersion", line, reason)
    return version is not None and reason is None


def annotations_of(metadata: Fields, known: Iterable[str]) -> dict[str, bool]:
    """Return the values of the boolean annotations ``known``; list all other annotations as unsupported."""
    annotations = metadata.mapping("annotations")
    if annotations is None:
        return {}
    found: dict[str, bool] = {}
    for key in known:
        line = annotations.line
        text = annotations.scalar(key)
        if text in ("true", "false"):
            found[key] = text == "true"
        elif text is not None:
            annotations.error(key, line, f'must be true or false, not "{show(text)}"')
    annotations.leave_out([key for key, _ in annotations.others()], "an annotation")
    return found
