"""Find the rules that rows of files break, before Spark starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from topicledger.kafka.config_values import is_odd
from topicledger.manifests.files import FileRow
from topicledger.manifests.row_rules import ILLEGAL_NAMES, LEGAL_CONFIG, OF_FIELDS, PLAIN_VALUES, Rule
from topicledger.manifests.terms import field
from topicledger.model.config_texts import refused_together
from topicledger.schemas import Table
from topicledger.text import show

_Row = TypeVar("_Row", bound=FileRow)
_IS_LEGAL_CONFIG = field("name").matches(LEGAL_CONFIG)


def name_reason(name: str) -> str | None:
    """Return why no config can have this name, if so."""
    if not name.strip(" "):
        return "a name is empty"
    return None if _IS_LEGAL_CONFIG.in_python({"name": name}) else f'{ILLEGAL_NAMES}"{show(name)}"'


def value_reason(text: str) -> str | None:
    """Return why no config should have this value, if so."""
    return f'is "{show(text)}", which brokers return in another form{PLAIN_VALUES}' if is_odd(text) else None


def field_reason(column: str, value: object) -> str | None:
    """Return why no row can have this value in a field, whatever its other fields are, if so."""
    if column == "configs":
        return refused_together(value) if isinstance(value, Mapping) else None
    rule = OF_FIELDS.get(column)
    return None if rule is None else rule.broken_by({column: value})


def broken(rows: Sequence[_Row], table: Table, rules: Sequence[Rule]) -> Iterator[tuple[_Row, int, str]]:
    """Yield the rows that break a rule, each with the lines that do, and all reasons of a line as one text.

    `table`: that of the rows; `rules`: its rules.
    """
    for row in rows:
        fields = {name: row.value(name) for name in table.schema.names}
        reasons = [reason for rule in rules if (reason := rule.broken_by(fields)) is not None]
        for line, why in _by_line(row, reasons):
            yield row, line, why


def line_of(row: FileRow, reason: str) -> int:
    """Return the line to correct for a reason why no row can have a value: that of the value, or of the entry."""
    return (row.lines or {}).get(reason, row.line)


def _by_line(row: FileRow, found: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines to correct, each with the reasons found there as one text."""
    at: dict[int, list[str]] = {}
    for reason in found:
        at.setdefault(line_of(row, reason), []).append(reason)
    for line, several in at.items():
        yield line, "; ".join(several)
