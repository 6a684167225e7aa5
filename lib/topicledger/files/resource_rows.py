"""Errors in rows that files declare beside topics: what a run would refuse by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from topicledger.config.scope import ScopeSettings, matches_ignored
from topicledger.manifests.file_rows import broken
from topicledger.manifests.files import FileError, ResourceRow
from topicledger.manifests.files.results import texts_of
from topicledger.manifests.files.values import placeholder_hint
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.text import show

_REASON_CHARACTERS = 2_000


def errors(
    declared: Mapping[str, Sequence[ResourceRow]], scope: ScopeSettings, *, beside: Mapping[str, Sequence[ResourceRow]]
) -> list[FileError]:
    """Return an error for each row that is refused, or that differs from an earlier row.

    In: the declared resources beside topics, by table; `beside`: these and others, which aren't checked by themselves.
    """
    found = []
    for kind, row, line, why in refused(declared, scope):
        message = f"{kind.resource_type}: {show(why, _REASON_CHARACTERS)}"
        message += placeholder_hint(texts_of(row), message)
        found.append(FileError(file=row.file, line=line, message=message))
    for kind in KINDS:
        rows = beside.get(kind.table.name, ())
        found += _repeated(kind.table.key, kind.words.declared, rows, declared.get(kind.table.name, ()))
    # The rows of a shorthand, and those that inherit a default, often have the same error.
    return list(dict.fromkeys(found))


def refused(
    declared: Mapping[str, Sequence[ResourceRow]], scope: ScopeSettings
) -> Iterator[tuple[ResourceKind, ResourceRow, int, str]]:
    """Yield each row that a run would refuse by itself, or that the settings leave to others: its line, the reasons."""
    for kind in KINDS:
        rows = declared.get(kind.table.name, ())
        for row, line, why in broken(rows, kind.table, kind.rows.rules):
            yield kind, row, line, why
        for name, column in kind.names.ignores.items():
            ignored = scope.ignored(name, [_text(row.values.get(column)) for row in rows])
            for row, matched in zip(rows, ignored, strict=True):
                if matched:
                    yield kind, row, row.line, matches_ignored(column, name)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _repeated(
    key: Sequence[str], what: str, rows: Sequence[ResourceRow], own: Sequence[ResourceRow]
) -> list[FileError]:
    """Return an error for each row that differs from an earlier row of the same resource, as those of topics (C2).

    At least one of the two rows is among `own`.
    """
    first: dict[tuple[object, ...], ResourceRow] = {}
    theirs = set(map(id, rows)) - set(map(id, own))
    found = []
    for row in rows:
        named = (row.cluster, *(row.values[name] for name in key if name in row.values))
        earlier = first.setdefault(named, row)
        if id(row) in theirs and id(earlier) in theirs:
            continue
        if row.state != earlier.state:
            says = f"is {earlier.state} at {earlier.file}:{earlier.line}, and {row.state} here"
        elif (row.values, row.owner, row.labels) != (earlier.values, earlier.owner, earlier.labels):
            says = f"is declared differently at {earlier.file}:{earlier.line}"
        else:
            continue
        found.append(FileError(file=row.file, line=row.line, message=f"this {what} {says}; keep one"))
    return found
