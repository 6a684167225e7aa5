"""CSV manifests: one topic or other resource per record, under a header of field names; maps are cells of JSON text.

A record's line is the line on which it begins, since a quoted cell can span several lines.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator

from topicledger.files.json_files import JSON, json_reason, most_values
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.report import ELSEWHERE, Report, TooMuchError, require_few
from topicledger.manifests.files.results import FIELDS, meant
from topicledger.manifests.files.values import (
    TEMPLATE_HINT,
    Filled,
    Key,
    Object,
    Value,
    is_template,
    named,
    plain_number,
    text_key,
)
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.text import counted, show

_MAX_CELL = 64 * 1024 * 1024
_NUMBERS = ("num_partitions", "replication_factor", *(name for kind in KINDS for name in kind.entries.numbers))

_EXCELS_LINE = re.compile(r'"?sep=(.)"?[ \r,;]*(?:\n|$)', re.IGNORECASE)


def read_csv(text: str, report: Report) -> None:
    """Report the rows and errors of a CSV manifest."""
    limit = csv.field_size_limit(_MAX_CELL)  # a map of many assignments exceeds csv's own limit
    try:
        # A record is read as a whole, and so is a map in a cell.
        require_few(most_values(text))
        _read_csv_records(text, report)
    except TooMuchError as error:
        report.error(None, str(error))
    finally:
        csv.field_size_limit(limit)


def _read_csv_records(text: str, report: Report) -> None:
    if (separator := _EXCELS_LINE.match(text)) is not None:
        commas = "" if separator[1] == "," else ", and separate cells by commas"
        report.error(1, f"`sep={show(separator[1])}` is a line for Excel, not a header; remove it{commas}")
        return
    reader = Reader(report)
    columns: list[str] | None = None
    kind: ResourceKind | None = None
    for line, cells in _csv_records(text, report):
        if not "".join(cells[:1]).strip() and len(cells) < 2:  # an empty line, perhaps with blanks
            continue
        if columns is None:
            columns = [cell.strip() for cell in cells]
            kind = _kind_of(columns)
            if not _check_header(columns, kind, line, report):
                return
        elif len(cells) != len(columns):
            found = f"has {counted(len(cells), 'cell')}, but the header has {len(columns)}"
            template = any(map(is_template, cells))
            report.error(line, TEMPLATE_HINT if template else f"{found}{_other_separator(cells, columns)}")
        else:
            value, wrong = _csv_object(columns, cells, line, report)
            if kind is not None:
                if not wrong:
                    kind.entries.read(value, line, reader)
                continue
            entry = reader.entry(value, line)
            if wrong:
                entry.failed.add(ELSEWHERE)
            reader.row(entry, line)


def _csv_records(text: str, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the line on which it begins."""
    records = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in records:
            yield line, cells
            line = records.line_num + 1
    except csv.Error as error:
        first = text.partition("\n")[0] if line == 1 else ""
        hint = _other_separator([first.replace('"', "")]) if "," not in first else ""
        report.error(line, f"not valid CSV: {error}{hint}")


_EVERY = {*FIELDS, *(name for kind in KINDS for name in kind.entries.fields)}


def _kind_of(columns: list[str]) -> ResourceKind | None:
    """The kind of the records of a file; None for topics."""
    if "topic" in columns:
        return None
    return next((kind for kind in KINDS if kind.entries.columns_are(columns)), None)


def _check_header(columns: list[str], kind: ResourceKind | None, line: int, report: Report) -> bool:
    known = FIELDS if kind is None else kind.entries.fields
    needed = ("cluster", "topic") if kind is None else kind.entries.columns_needed
    before = report.errors
    if any(map(is_template, columns)):
        report.error(line, TEMPLATE_HINT)
        return False
    # A file without any of our columns may be anything, even a secret, so its header is not shown.
    unknown = [name for name in columns if name not in known]
    if len(unknown) == len(columns):
        lower = not {name.lower() for name in columns}.isdisjoint(known)
        hint = ": write names in lower case" if lower else _other_separator(columns)
        report.error(line, f"has no column of a manifest, such as {', '.join(needed)}{hint}")
        return False
    if "" in unknown:
        report.error(line, "a column has no name; remove commas at the end of lines")
    for name in filter(None, unknown):
        hint = _other_separator([name]) or f"; {meant(name, known)}"
        report.error(line, f"unknown column `{named(name)}`{hint}")
    for name in known:
        if columns.count(name) > 1:
            report.error(line, f"column `{name}` appears twice")
    for name in needed:
        if name not in columns:
            report.error(line, f"column `{name}` is missing")
    return report.errors == before


def _other_separator(cells: list[str], columns: list[str] | None = None) -> str:
    """Return a hint if cells are separated by something other than commas.

    A header has a field's name if it is split; a record, under its `columns`, as many cells as these.
    """
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        parts = [part.strip().lower() for each in cells if separator in each for part in each.split(separator)]
        whole = sum(separator not in each for each in cells)
        if _EVERY.isdisjoint(parts) if columns is None else not parts or len(parts) + whole != len(columns):
            continue
        return f": cells are separated by {name}; separate them by commas"
    return ""


def _csv_object(columns: list[str], cells: list[str], line: int, report: Report) -> tuple[Object, bool]:
    """Return a record as a mapping, and whether it has errors; an empty cell is null."""
    pairs: list[tuple[Key, Value, int]] = []
    wrong = False
    for name, cell in zip(columns, cells, strict=True):
        value: Value = cell
        if not cell:
            value = None
        elif name in _NUMBERS:
            value = plain_number(cell.strip()) or Filled(cell)
        elif name in ("assignments", "configs", "labels"):
            try:
                value = JSON.decode(cell)
            except (json.JSONDecodeError, RecursionError) as error:
                report.error(line, f"`{name}` must be JSON text: {json_reason(error)}")
                value, wrong = None, True
        pairs.append((text_key(name), value, line))
    return Object(pairs=pairs, line=line), wrong
