"""YAML manifests: documents of `topics` and other resources, which inherit a `cluster` and `defaults`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from topicledger.manifests.files.entries import ELSEWHERE, Entry, Reader, Report, TooMuchError, weight
from topicledger.manifests.files.resource_entries import entries
from topicledger.manifests.files.results import FIELDS
from topicledger.manifests.files.values import Object, Value, describe, named, type_of
from topicledger.manifests.files.yaml_values import Lines, YamlDocuments, parse_yaml
from topicledger.resources.registry import KINDS
from topicledger.text import any_of, nearest

_MAX_ALIASED = 5_000_000
"""Number of values that aliases, merge keys, defaults and shorthands may add to those written in a YAML file."""
_RESOURCES = {kind.entries.section: kind for kind in KINDS}
_TOP_KEYS = ("cluster", "defaults", "topics", *_RESOURCES)
_DEFAULT_FIELDS = tuple(name for name in FIELDS if name != "topic")


def read_yaml(text: str, report: Report) -> None:
    """Report the rows and errors of all documents of a YAML manifest."""
    with measured(report):
        documents, reader = open_yaml(text, report)
        for value, line in documents:
            _yaml_document(value, line, reader)


def open_yaml(text: str, report: Report) -> tuple[list[tuple[Value, int]], Reader]:
    """Return the documents of a file with their lines, and a reader of their values; raises TooMuchError."""
    source = YamlDocuments(text, max_aliased=_MAX_ALIASED)
    documents: list[tuple[Value, int]] = []
    parse_yaml(source, documents, report)
    # Four times, since a million topics may have a dozen default configs each.
    report.visits = 4 * source.written + _MAX_ALIASED
    return documents, Reader(report)


@contextmanager
def measured(report: Report) -> Iterator[None]:
    """Report a file that expands to too many values, instead of raising TooMuchError."""
    try:
        yield
    except TooMuchError:
        report.error(
            None, f"its aliases, merge keys, defaults and shorthands expand to more than {_MAX_ALIASED:,} values"
        )


def _yaml_document(value: Value, line: int, reader: Reader) -> None:
    if value is None:
        return
    if not isinstance(value, Object):
        keys = any_of(["`topics`", *(f"`{name}`" for name in _RESOURCES)])
        message = f"must be a mapping with {keys}, and perhaps `cluster` and `defaults`, not {type_of(value)}"
        reader.report.error(line, message)
        return
    reader.duplicates(value, value.line)
    top = {key.text: (item, at) for key, item, at in value.pairs}
    for name, (_, at) in top.items():
        if name not in _TOP_KEYS:
            reader.report.error(at, f"unknown key `{named(name)}`; {nearest(name, _TOP_KEYS)}")
    defaults = _yaml_defaults(top, reader)
    shared = {name: getattr(defaults, name) for name in ("state", "owner", "labels")}
    for name, kind in _RESOURCES.items():
        for each in entries(name, *top[name], reader) if name in top else ():
            kind.entries.read(each, each.line, reader, defaults.cluster, shared)
    if "topics" not in top:
        if not top.keys().isdisjoint(_RESOURCES):
            return
        reader.report.error(value.line, "`topics` is missing")
        return
    topics, at = top["topics"]
    if topics is not None and not isinstance(topics, list):
        reader.report.error(at, f"`topics` must be a list, not {describe(topics)}")
        return
    lines = topics.lines if isinstance(topics, Lines) else []
    for item, at in zip(topics or [], lines, strict=True):
        reader.visit(1)
        if isinstance(item, Object):
            entry = reader.entry(item, item.line)
            _inherit(entry, defaults, reader)
            reader.row(entry, item.line)
        else:
            reader.report.error(at, f"each of `topics` must be a mapping with a `topic`, not {describe(item)}")


def _yaml_defaults(top: Mapping[str, tuple[Value, int]], reader: Reader) -> Entry:
    """Return `defaults` and the document's `cluster` as one entry."""
    defaults = Entry()
    value, line = top.get("defaults", (None, 0))
    if isinstance(value, Object):
        defaults = reader.entry(value, line, _DEFAULT_FIELDS)
    elif value is not None:
        reader.report.error(line, f"`defaults` must be a mapping, not {describe(value)}")
    cluster, line = top.get("cluster", (None, 0))
    if cluster is not None:
        if "cluster" in defaults.given:
            reader.report.error(line, "`cluster` is given here and in `defaults`; give it once")
        defaults.given.add("cluster")
        defaults.cluster = reader.text("cluster", cluster, line)
        if defaults.cluster is None:
            defaults.failed.add("cluster")
    return defaults


def _inherit(entry: Entry, defaults: Entry, reader: Reader) -> None:
    """Fill missing fields of the entry from the defaults.

    An explicit null removes a default count or owner. Configs and labels are merged key by key. Counts or a placement
    exclude assignments (C1), so a topic's own value of either kind removes the default of the other.
    """
    counts = ("num_partitions", "replication_factor", "placement")
    own_counts = any(getattr(entry, name) is not None for name in counts)
    for name in ("state", "owner", *counts, "assignments"):
        excluded = (name in counts and entry.assignments is not None) or (name == "assignments" and own_counts)
        if name not in entry.given and not excluded:
            setattr(entry, name, getattr(defaults, name))
            if name == "owner":
                reader.visit(weight(defaults.owner))
            if name == "assignments":
                reader.visit(sum(1 + len(brokers) for brokers in (defaults.assignments or {}).values()))
    if entry.cluster is None and "cluster" not in entry.failed:
        entry.cluster = defaults.cluster
        entry.failed |= defaults.failed & {"cluster"}
    # An error in a default is reported at the default, not at each topic.
    if defaults.wrong:
        entry.failed.add(ELSEWHERE)
    entry.configs = _joined(defaults.configs, entry.configs, reader)
    entry.labels = _joined(defaults.labels, entry.labels, reader)


def _joined(defaults: dict[str, str] | None, own: dict[str, str] | None, reader: Reader) -> dict[str, str] | None:
    if not defaults:
        return defaults if own is None else own
    # Counted for each topic, since each row has all of them.
    reader.visit(weight(defaults))
    return {**defaults, **own} if own else defaults
