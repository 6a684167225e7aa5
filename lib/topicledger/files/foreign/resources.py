"""Resources as Kubernetes has them (apiVersion, kind, metadata, spec), alone or in lists: two tools write topics so."""

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
    """The group and versions whose resources are a tool's own."""

    group: str
    versions: tuple[str, ...]

    def reason(self, api_version: str) -> str | None:
        """What is wrong with an apiVersion, None where it is the tool's."""
        group, _, version = api_version.partition("/")
        if group != self.group:
            return f"is {show(api_version)}, another tool's; this format's is {self.group}/{self.versions[-1]}"
        if version not in self.versions:
            return f"is {show(api_version)}; known: {', '.join(f'{group}/{each}' for each in self.versions)}"
        return None


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource, its metadata and the rest not read yet."""

    kind: str
    fields: Fields
    metadata: Fields
    line: int
    reader: Reader


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Finds resources in documents: opens lists (kubectl's, or of topics), and counts what is of other kinds."""

    api: Api
    """Of topics; a topic of another one is an error."""
    handle: Callable[[Resource], None]
    """Called with each topic, and each resource of the kinds `others`."""
    others: Mapping[str, Api] = field(default_factory=dict)
    unnamed: Mapping[str, str] = field(default_factory=dict)
    """Of `others`, kinds whose metadata may be left out, by the kind of a list of them."""

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
        if spec is not None:  # where older versions of jikkou have them
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
    """Which of the annotations ``known``, booleans all of them, are there; the others are listed as unsupported."""
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
