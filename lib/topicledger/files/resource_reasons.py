"""Errors in rows that files declare beside topics: what a run would refuse by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicledger.config.scope import ScopeSettings, matches_ignored
from topicledger.manifests.files import FileError, ResourceRow
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.text import show

_REASON_CHARACTERS = 2_000


def errors(declared: Mapping[str, Sequence[ResourceRow]]) -> list[FileError]:
    """Return an error for each row that a run would refuse by itself, or that differs from an earlier row.

    In: the declared resources beside topics, by table.
    """
    found = []
    for kind in KINDS:
        rows = declared.get(kind.table.name, ())
        for row in rows:
            why = reasons(kind, row)
            if why is not None:
                message = f"{kind.resource_type}: {show(why, _REASON_CHARACTERS)}"
                found.append(FileError(file=row.file, line=row.line, message=message))
        found += _repeated(kind.table.key, kind.words.declared, rows)
    # The rows of a shorthand often have the same error.
    return list(dict.fromkeys(found))


def ignored(declared: Mapping[str, Sequence[ResourceRow]], scope: ScopeSettings) -> list[FileError]:
    """Return an error for each row of a resource that the settings leave to others."""
    found = []
    for kind in KINDS:
        rows = declared.get(kind.table.name, ())
        for name, column in kind.names.ignores.items():
            why = f"{kind.resource_type}: {matches_ignored(column, name)}"
            for row, matched in zip(
                rows, scope.ignored(name, [_text(row.values.get(column)) for row in rows]), strict=True
            ):
                if matched:
                    found.append(FileError(file=row.file, line=row.line, message=why))
    # The rows of a shorthand have the same principal.
    return list(dict.fromkeys(found))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def reasons(kind: ResourceKind, row: ResourceRow) -> str | None:
    """Return the messages of all rules that a row breaks by itself, as a run would report them; else None."""
    return "; ".join(each for each in kind.rows.reasons(row) if each is not None) or None


def _repeated(key: Sequence[str], what: str, rows: Sequence[ResourceRow]) -> list[FileError]:
    """Return an error for each row that differs from an earlier row of the same resource in state or values."""
    first: dict[tuple[object, ...], ResourceRow] = {}
    found = []
    for row in rows:
        named = (row.cluster, *(row.values[name] for name in key if name in row.values))
        earlier = first.setdefault(named, row)
        if row.state != earlier.state:
            says = f"is {earlier.state} at {earlier.file}:{earlier.line}, and {row.state} here"
        elif row.values != earlier.values:
            says = f"is declared differently at {earlier.file}:{earlier.line}"
        else:
            continue
        found.append(FileError(file=row.file, line=row.line, message=f"this {what} {says}; keep one"))
    return found
