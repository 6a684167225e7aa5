"""Documents of manifest files: lists of topics and other resources, which inherit clusters, defaults and overrides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.overriding import (
    CLUSTERS,
    FIXED,
    OVERRIDES,
    Outer,
    clusters_in,
    counts_of,
    on_clusters,
    overlaid,
    overrides_in,
    require_listed,
)
from topicledger.manifests.files.report import ELSEWHERE, Entry, weight
from topicledger.manifests.files.resource_entries import SHARED, entries
from topicledger.manifests.files.results import FIELDS
from topicledger.manifests.files.values import Lines, Object, Value, describe, named, type_of
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.text import any_of, nearest

SECTIONS: Mapping[str, ResourceKind] = {kind.entries.section: kind for kind in KINDS}
"""The kind of each list of entries beside `topics`."""
TOP_KEYS = ("cluster", CLUSTERS, "defaults", OVERRIDES, "topics", *SECTIONS)
ENTRY_FIELDS = (*FIELDS, CLUSTERS, OVERRIDES)
"""The fields of a topic's entry."""
OVERRIDABLE = tuple(name for name in FIELDS if name not in FIXED)
DEFAULT_FIELDS = ("cluster", *(name for name in OVERRIDABLE if name not in ("replaces", "description")))
"""Values about a single topic can't be defaults."""


def read_document(value: Value, line: int, reader: Reader) -> None:
    """Report the rows and errors of a document, which begins at `line`."""
    if value is None:
        return
    if not isinstance(value, Object):
        keys = any_of(["`topics`", *(f"`{name}`" for name in SECTIONS)])
        message = f"must be a mapping with {keys}, and perhaps `cluster` and `defaults`, not {type_of(value)}"
        reader.report.error(line, message)
        return
    reader.duplicates(value, value.line)
    top = {key.text: (item, at) for key, item, at in value.pairs}
    for name, (_, at) in top.items():
        if name not in TOP_KEYS:
            reader.report.error(at, f"unknown key `{named(name)}`; {nearest(name, TOP_KEYS)}")
    document = _Document(top, reader)
    for name, kind in SECTIONS.items():
        for each, at in entries(name, *top[name], reader) if name in top else ():
            document.read_resource(kind, each, at)
    if "topics" in top:
        document.read_topics(*top["topics"])
    elif top.keys().isdisjoint(SECTIONS):
        reader.report.error(value.line, "`topics` is missing")
    document.end()


class _Document:
    """Clusters, defaults and overrides that the entries of a document inherit."""

    def __init__(self, top: Mapping[str, tuple[Value, int]], reader: Reader) -> None:
        self._reader, self._outer = reader, Outer()
        given, self._line = top.get("defaults", (None, 0))
        if given is not None and not isinstance(given, Object):
            reader.report.error(self._line, f"`defaults` must be a mapping, not {describe(given)}")
        self._given = given if isinstance(given, Object) else Object()
        self._by_cluster: dict[str | None, Entry] = {}
        self._clusters(top)
        self._overrides(top)

    def _clusters(self, top: Mapping[str, tuple[Value, int]]) -> None:
        """Read the clusters; if their value is wrong, entries without a cluster have no further error."""
        reader, outer = self._reader, self._outer
        self.failed = False
        cluster, line = top.get("cluster", (None, 0))
        in_defaults = {key.text: (value, at or self._line) for key, value, at in self._given.pairs}.get("cluster")
        if cluster is not None and in_defaults is not None and in_defaults[0] is not None:
            reader.report.error(line, "`cluster` is given here and in `defaults`; give it once")
        elif cluster is None and in_defaults is not None:
            cluster, line = in_defaults
        if CLUSTERS in top:
            if cluster is not None:
                reader.report.error(top[CLUSTERS][1], f"`cluster` and `{CLUSTERS}` exclude each other; give one")
            line = top[CLUSTERS][1]
            outer.clusters = clusters_in(top[CLUSTERS][0], line, reader)
            self.failed = not outer.clusters
        elif cluster is not None:
            name = reader.text("cluster", cluster, line)
            outer.clusters = () if name is None else (name,)
            self.failed = name is None
        reader.report.of_document(outer.clusters, line)

    def _overrides(self, top: Mapping[str, tuple[Value, int]]) -> None:
        reader, outer = self._reader, self._outer
        outer.overrides = overrides_in(*top.get(OVERRIDES, (None, 0)), reader)
        for fields in outer.overrides.values():
            # Reports errors once, and those in fields that no entry of the document takes.
            reader.entry(_without_fixed(fields), fields.line, OVERRIDABLE)
        own = {key.text: (value, at or self._line) for key, value, at in self._given.pairs}
        outer.of_defaults = overrides_in(*own.get(OVERRIDES, (None, 0)), reader)

    def _defaults(self, cluster: str | None) -> Entry:
        """Return the defaults of a cluster's entries."""
        of_cluster = self._outer.of_defaults.get(cluster or "")
        key = None if of_cluster is None else cluster
        if key not in self._by_cluster:
            pairs = [pair for pair in self._given.pairs if pair[0].text not in ("cluster", OVERRIDES)]
            base = Object(pairs=pairs, duplicates=self._given.duplicates, line=self._given.line)
            fields = base if of_cluster is None else overlaid(base, of_cluster)
            found = self._reader.entry(fields, self._line, DEFAULT_FIELDS)
            self._reader.require_removed(found, self._line)
            self._by_cluster[key] = found
        return self._by_cluster[key]

    def read_resource(self, kind: ResourceKind, item: Object, line: int) -> None:
        for cluster, each in on_clusters(item, line, self._outer, self._reader, SHARED, named_by=kind.table.key[1:]):
            defaults = self._defaults(cluster)
            shared = {name: getattr(defaults, name) for name in ("state", "owner", "labels", "lines")}
            kind.entries.read(each, item.line or line, self._reader, cluster, shared)

    def read_topics(self, topics: Value, line: int) -> None:
        reader = self._reader
        if topics is not None and not isinstance(topics, list):
            reader.report.error(line, f"`topics` must be a list, not {describe(topics)}")
            return
        lines = topics.lines if isinstance(topics, Lines) else []
        for item, at in zip(topics or [], lines, strict=True):
            reader.visit(1)
            if not isinstance(item, Object):
                reader.report.error(at, f"each of `topics` must be a mapping with a `topic`, not {describe(item)}")
                continue
            read = partial(reader.entry, line=item.line or at, known=ENTRY_FIELDS)
            for cluster, each in on_clusters(item, item.line or at, self._outer, reader, read=read, named_by=()):
                entry = read(each)
                if entry.cluster is None and "cluster" not in entry.failed:
                    entry.cluster = cluster
                    entry.failed |= {"cluster"} if cluster is None and self.failed else set()
                _inherit(entry, self._defaults(entry.cluster), reader, item.line or at)
                reader.row(entry, item.line or at)

    def end(self) -> None:
        """Report errors in defaults that nothing inherits, and overrides of clusters that nothing is on."""
        for name in (None, *self._outer.of_defaults):
            self._defaults(name)
        clusters = {*self._outer.clusters, *self._outer.used}
        for each in (self._outer.overrides, self._outer.of_defaults):
            require_listed(each, sorted(clusters), "this document", self._reader)


def _without_fixed(value: Object) -> Object:
    """Leave out fields whose error is reported already."""
    return Object([pair for pair in value.pairs if pair[0].text not in FIXED], value.duplicates, value.line)


def _inherit(entry: Entry, defaults: Entry, reader: Reader, line: int) -> None:
    """Fill missing fields of the entry from the defaults.

    An explicit null removes a default count or owner. Configs and labels are merged key by key. Counts or a placement
    exclude assignments (C1), so a topic's own value of either kind removes the default of the other; the counts of
    removed assignments stay.
    """
    counts = ("num_partitions", "replication_factor", "placement")
    own_counts = any(getattr(entry, name) is not None for name in counts)
    left = counts_of(defaults.assignments or {}) if own_counts else {}
    if entry.state is None:
        entry.given.discard("state")  # null is no state
    for name in ("state", "owner", *counts, "assignments"):
        excluded = (name in counts and entry.assignments is not None) or (name == "assignments" and own_counts)
        if name not in entry.given and not excluded:
            setattr(entry, name, left.get(name, getattr(defaults, name)))
            if name == "owner":
                reader.visit(weight(defaults.owner))
            if name == "assignments":
                reader.visit(sum(1 + len(brokers) for brokers in (defaults.assignments or {}).values()))
    entry.lines = {**defaults.lines, **entry.lines}
    # An error in a default is reported at the default, not at each topic.
    if defaults.wrong:
        entry.failed.add(ELSEWHERE)
    removed = entry.unset.get("configs", {})
    kept = [name for name in defaults.configs or () if name not in removed]
    if entry.configs and kept:
        names = dict.fromkeys((*kept, *entry.configs))
        if reader.two_spellings("configs", [(name, line) for name in names], line):
            entry.failed.add("configs")
    removed.update((name, None) for name in defaults.configs or () if name in removed)
    entry.configs = _joined(defaults.configs, entry.configs, reader, removed)
    entry.labels = _joined(defaults.labels, entry.labels, reader, entry.unset.get("labels"))


def _joined(
    defaults: dict[str, str] | None, own: dict[str, str] | None, reader: Reader, unset: Collection[str] | None
) -> dict[str, str] | None:
    if defaults and unset:
        defaults = {name: text for name, text in defaults.items() if name not in unset}
    if unset:
        return {**(defaults or {}), **(own or {})} or None
    if not defaults:
        return defaults if own is None else own
    # Counted for each topic, since each row has all of them.
    reader.visit(weight(defaults))
    return {**defaults, **own} if own else defaults
