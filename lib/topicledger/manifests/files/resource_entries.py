"""The parts that entries beside topics have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from topicledger.manifests.file_rows import field_reason
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.report import weight
from topicledger.manifests.files.results import ResourceRow
from topicledger.manifests.files.values import Lines, Object, Value, describe, named, unset_in
from topicledger.text import nearest

SHARED = ("cluster", "state", "owner", "labels")
"""Fields of every entry."""
NOTHING: Mapping[str, object] = {}
"""The defaults of a document without defaults."""
Read = Callable[[Reader, str, Value, int], object]
"""Reads a field from its name, value and line; reports an error and returns None if the value is wrong."""
Given = Mapping[str, tuple[Value, int]]
"""The fields of an entry: value and line by name."""


@dataclass(slots=True)
class Shared:
    """The shared fields of an entry."""

    cluster: str | None
    state: str | None
    owner: str | None
    labels: dict[str, str] | None
    right: bool = True
    """Whether no error was reported."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The lines of values that no row can have, by reason."""

    def row(self, values: Mapping[str, object], reader: Reader, line: int, shorthand: str | None = None) -> ResourceRow:
        """Return the row of an entry without errors."""
        return ResourceRow(
            cluster=self.cluster or "",
            values=values,
            state="present" if self.state is None else self.state,
            owner=self.owner,
            labels=self.labels,
            shorthand=shorthand,
            file=reader.report.file,
            line=line,
            lines=self.lines or None,
        )


def entries(key: str, value: Value, line: int, reader: Reader) -> Iterator[tuple[Object, int]]:
    """Yield the mappings in the list of a document's `key`, with their lines; report everything else."""
    if value is None:
        return
    if not isinstance(value, list):
        reader.report.error(line, f"`{key}` must be a list, not {describe(value)}")
        return
    lines = value.lines if isinstance(value, Lines) else [line] * len(value)
    for item, at in zip(value, lines, strict=True):
        reader.visit(1)
        if isinstance(item, Object):
            reader.visit(len(item.pairs))
            yield item, at
        else:
            reader.report.error(at, f"each of `{key}` must be a mapping, not {describe(item)}")


def given_in(item: Object) -> Given:
    """Return the fields of an entry."""
    return {key.text: (value, at or item.line) for key, value, at in item.pairs}


def shared(given: Given, item: Object, reader: Reader, cluster: str | None, defaults: Mapping[str, object]) -> Shared:
    """Read the fields `SHARED` of an entry.

    `defaults`: the document's default `state`, `owner` and `labels`, and the `lines` of those that no row can have.
    """
    right = not reader.duplicates(item, item.line)
    found: dict[str, Any] = {"cluster": cluster, **defaults}
    lines: dict[str, int] = dict(found.pop("lines", {}))
    for name in SHARED:
        value, at = given.get(name, (None, 0))
        if value is None:
            if name in given and name == "owner":
                # As for topics: null removes the default.
                found[name] = None
            continue
        found[name] = reader.texts(name, value, at) if name == "labels" else reader.text(name, value, at)
        if found[name] is None:
            right = False
        elif (reason := field_reason(name, found[name])) is not None:
            lines[reason] = at
    if found["cluster"] is None and right:
        reader.report.error(item.line, "`cluster` is missing")
        right = False
    of_defaults, labels = defaults.get("labels"), found.get("labels")
    if isinstance(of_defaults, Mapping) and isinstance(labels, Mapping) and labels is not of_defaults:
        reader.visit(weight(of_defaults))
        unset = unset_in(given["labels"][0])
        joined = {**{name: text for name, text in of_defaults.items() if name not in unset}, **labels}
        found["labels"] = joined or None
    values = {name: found.get(name) for name in SHARED}
    return Shared(**values, right=right, lines=lines)


def row_reader(table: str, columns: Mapping[str, Read]) -> Callable[..., None]:
    """Return the `ReadEntry` of a kind whose entries have a row of `table` each.

    `columns`: the table's own columns, and how each is read; a field that is left out is null.
    """
    known = (*columns, *SHARED)

    def read_row(
        item: Object, line: int, reader: Reader, cluster: str | None = None, defaults: Mapping[str, object] = NOTHING
    ) -> None:
        item.line = line
        given = given_in(item)
        entry = shared(given, item, reader, cluster, defaults)
        values: dict[str, object] = dict.fromkeys(columns)
        for name, (value, at) in given.items():
            if name not in known:
                reader.report.error(at, f"unknown field `{named(name)}`; {nearest(name, known)}")
                entry.right = False
            elif name in values and value is not None:
                values[name] = columns[name](reader, name, value, at)
                entry.right &= values[name] is not None
        if entry.right:
            reader.report.resource(table, entry.row(values, reader, line))

    return read_row
