"""Entries for several clusters: `clusters` in place of `cluster`, and `overrides` by cluster at every level.

An entry becomes one entry for each of its clusters. From the weakest to the strongest, its fields are those of the
defaults, their overrides, the entry, the file's overrides, and the entry's overrides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import REMOVED, UNSET, Key, Number, Object, Value, describe, text_key
from topicledger.text import nearest, show

CLUSTERS, OVERRIDES = "clusters", "overrides"
_SPREADING = ("cluster", CLUSTERS, OVERRIDES)
FIXED = ("topic", *_SPREADING)
"""Fields that no override can change."""
_COUNTS = ("num_partitions", "replication_factor", "placement")
_WHOLE = "assignments"
"""The mapping that an override replaces as a whole."""
_TEXTS = ("configs", "labels")

Overrides: TypeAlias = Mapping[str, Object]
"""The fields to change, by cluster."""


@dataclass(slots=True)
class Outer:
    """The clusters and overrides of a document."""

    clusters: tuple[str, ...] = ()
    """Empty if the document names none."""
    overrides: Overrides = field(default_factory=dict)
    of_defaults: Overrides = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Clusters of its entries so far."""

    @property
    def spreads(self) -> bool:
        """Whether entries differ by cluster, or are for several."""
        return len(self.clusters) > 1 or bool(self.overrides) or bool(self.of_defaults)


def clusters_in(value: Value, line: int, reader: Reader) -> tuple[str, ...]:
    """Return the names in `clusters`; report errors, and return those that have none."""
    if not isinstance(value, list):
        reader.report.error(line, f"`{CLUSTERS}` must be a list of names, not {describe(value)}")
        return ()
    if not value:
        reader.report.error(line, f"`{CLUSTERS}` is empty; name a cluster, or leave it out")
    reader.visit(len(value))
    names = [name for each in value if (name := reader.text(CLUSTERS, each, line)) is not None]
    for name in sorted(name for name, count in Counter(names).items() if count > 1):
        reader.report.error(line, f"`{CLUSTERS}` names `{show(name)}` twice")
    return tuple(dict.fromkeys(names))


def overrides_in(value: Value, line: int, reader: Reader) -> Overrides:
    """Return the fields in `overrides` by cluster; report errors, and return those that have none."""
    if value is None:
        return {}
    if not isinstance(value, Object):
        reader.report.error(line, f"`{OVERRIDES}` must map clusters to fields, not {describe(value)}")
        return {}
    reader.duplicates(value, line)
    reader.visit(len(value.pairs))
    found: dict[str, Object] = {}
    for key, item, at in value.pairs:
        name = f"`{OVERRIDES}`: cluster `{show(key.text)}`"
        if key.problem is not None:
            reader.report.error(at or line, f"`{OVERRIDES}`: {key.problem}")
        elif item is not None and not isinstance(item, Object):
            reader.report.error(at or line, f"{name} must be a mapping of fields, not {describe(item)}")
        else:
            fields = Object(line=at or line) if item is None else item
            found[key.text] = _unsetting(_with_lines(fields, at or line))
            for inner, _, inner_at in found[key.text].pairs:
                if inner.text in FIXED:
                    reader.report.error(inner_at, f"{name} can't override `{inner.text}`")
    return found


def _unsetting(fields: Object) -> Object:
    """Return an override's fields, whose nulls in configs and labels are `UNSET`."""
    pairs = [
        (key, _with_nulls_unset(item) if key.text in _TEXTS and isinstance(item, Object) else item, line)
        for key, item, line in fields.pairs
    ]
    return Object(pairs, fields.duplicates, fields.line)


def _with_nulls_unset(texts: Object) -> Object:
    pairs: list[tuple[Key, Value, int]] = [
        (key, UNSET if value is None else value, line) for key, value, line in texts.pairs
    ]
    return Object(pairs, texts.duplicates, texts.line)


def _with_lines(value: Object, line: int) -> Object:
    """Give fields without a line the line of the mapping."""
    pairs = [(key, item, at or line) for key, item, at in value.pairs]
    return Object(pairs=pairs, duplicates=[(key, at or line) for key, at in value.duplicates], line=value.line or line)


def require_listed(overrides: Overrides, clusters: Collection[str], of: str, reader: Reader) -> None:
    """Report overrides for clusters that aren't among those of their entry, or of the document's entries (`of`)."""
    for name, fields in overrides.items():
        if name not in clusters:
            hint = nearest(name, clusters) if clusters else "it names none"
            reader.report.error(fields.line, f"`{OVERRIDES}`: `{show(name)}` isn't a cluster of {of}; {hint}")


def _require_named(cluster: str, over: Object, named_by: Collection[str], reader: Reader) -> None:
    """Report nulls of an override for fields that say which resource an entry is, also in a shorthand."""
    for key, value, line in over.pairs:
        if isinstance(value, Object):
            _require_named(cluster, _with_lines(value, line), named_by, reader)
        elif value is None and key.text in named_by:
            reader.report.error(
                line, f"`{OVERRIDES}`: cluster `{show(cluster)}` can't remove `{key.text}`; write its value"
            )


def on_clusters(
    item: Object,
    line: int,
    outer: Outer,
    reader: Reader,
    fields: Collection[str] | None = None,
    read: Callable[[Object], object] | None = None,
    *,
    named_by: Collection[str],
) -> Iterator[tuple[str | None, Object]]:
    """Yield an entry for each of its clusters, with its cluster; None if neither it nor its document names one.

    `fields`: those that the document's overrides have for such entries; None for all. `read`: reports errors of an
    entry, here of values that every cluster may override. `named_by`: fields that say which resource it is; no override
    can remove them, since without them it would be another resource.
    """
    if not outer.spreads and not any(key.text in (CLUSTERS, OVERRIDES) for key, _, _ in item.pairs):
        yield outer.clusters[0] if outer.clusters else None, item
        return
    own = {key.text: (value, at or line) for key, value, at in item.pairs if key.text in _SPREADING}
    names = outer.clusters
    cluster = own.get("cluster", (None, 0))[0]
    if CLUSTERS in own:
        if cluster is not None:
            reader.report.error(own[CLUSTERS][1], f"`cluster` and `{CLUSTERS}` exclude each other; give one")
        names = clusters_in(*own[CLUSTERS], reader)
    elif cluster is not None:
        name = reader.text("cluster", *own["cluster"])
        names = () if name is None else (name,)
    overrides = overrides_in(*own[OVERRIDES], reader) if OVERRIDES in own else {}
    outer.used.update(names)
    if not names:
        if CLUSTERS not in own and cluster is None:
            reader.report.error(line, f"`cluster` or `{CLUSTERS}` is missing")
        return
    require_listed(overrides, names, "this entry", reader)
    for name, over in overrides.items():
        _require_named(name, over, named_by, reader)
    rest = Object(
        pairs=[pair for pair in item.pairs if pair[0].text not in _SPREADING],
        duplicates=item.duplicates,
        line=item.line or line,
    )
    if read is not None and all(name in overrides or name in outer.overrides for name in names):
        read(rest)
    for name in names:
        entry = rest
        if name in outer.overrides:
            entry = overlaid(entry, outer.overrides[name], fields)
        if name in overrides:
            entry = overlaid(entry, overrides[name])
        yield name, entry


def overlaid(base: Object, over: Object, fields: Collection[str] | None = None) -> Object:
    """Return `base` with the fields of `over`, without `FIXED` ones; mappings are joined key by key.

    Counts or a placement exclude assignments (C1), so that an override of either kind removes the other; the counts
    of removed assignments stay. `fields`: the only ones to take; None for all.
    """
    taken = {
        key.text: (key, value, line)
        for key, value, line in over.pairs
        if key.text not in FIXED and (fields is None or key.text in fields)
    }
    given = {name for name, (_, value, _) in taken.items() if value is not None}
    gone = {_WHOLE} if given.intersection(_COUNTS) else set(_COUNTS) if _WHOLE in given else set()
    pairs = [pair for pair in base.pairs if pair[0].text not in gone]
    if _WHOLE in gone:
        for key, value, line in base.pairs:
            if key.text == _WHOLE and isinstance(value, Object):
                lists = {name.text: each for name, each, _ in value.pairs if isinstance(each, list)}
                counts = counts_of(lists).items()
                pairs += [
                    (text_key(name), Number(str(count), integer=True), line)
                    for name, count in counts
                    if name not in base.names
                ]
    kept = Object(pairs=pairs, line=base.line or over.line)
    return _replaced(kept, taken, [*base.duplicates, *over.duplicates], joined=True)


def counts_of(assignments: Mapping[Any, Sequence[object]]) -> dict[str, int]:
    """Return the counts that assignments imply; no replication factor if partitions differ in it."""
    sizes = {len(brokers) for brokers in assignments.values()}
    partitions = {"num_partitions": len(assignments)} if assignments else {}
    return {**partitions, "replication_factor": sizes.pop()} if len(sizes) == 1 else partitions


def _replaced(
    base: Object, taken: Mapping[str, tuple[Key, Value, int]], duplicates: list[tuple[str, int]], *, joined: bool
) -> Object:
    """Return `base` with other values for the keys `taken`; mappings among them are joined, if `joined`.

    A null changes neither a mapping that would be joined nor a state.
    """
    left = dict(taken)
    pairs: list[tuple[Key, Value, int]] = []
    for key, value, line in base.pairs:
        if key.text not in left:
            pairs.append((key, value, line))
            continue
        _, new, at = left.pop(key.text)
        if new is UNSET and value is not UNSET:
            new = REMOVED
        joins = joined and key.text != _WHOLE and (isinstance(value, Object) or key.text == "state")
        if joins and new is None:
            new, at = value, line  # a mapping without keys, as `configs:` in an entry
        elif joins and isinstance(value, Object) and isinstance(new, Object):
            # Joined mappings have the lines of both, so that errors in either are reported where they are written.
            old, new = _with_lines(value, line), _with_lines(new, at)
            inner = {key.text: (key, each, at) for key, each, at in new.pairs}
            new = _replaced(old, inner, [*old.duplicates, *new.duplicates], joined=False)
        pairs.append((key, new, at))
    return Object(pairs=[*pairs, *left.values()], duplicates=duplicates, line=base.line)
