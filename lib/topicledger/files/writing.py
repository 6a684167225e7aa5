"""Write manifest rows to a file that `load-manifests` reads back exactly; every text is quoted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from topicledger import atomic
from topicledger.model.config_texts import with_unit
from topicledger.resources.registry import KINDS
from topicledger.schemas import DECLARING, MANIFESTS
from topicledger.text import number_text, show

_Rows: TypeAlias = Mapping[str, Iterable[Mapping[str, Any]]]
"""Rows by table."""
_SECTIONS = {MANIFESTS.name: "topics", **{kind.table.name: kind.entries.section for kind in KINDS}}
_FIELDS = {table.name: [name for name in table.schema.names if name != "cluster"] for table in DECLARING}
_LONGEST_KEY = 1_000
SUFFIXES = (".yaml", ".yml", ".json")


def write_manifests(
    path: Path, cluster: str, rows: _Rows, notes: Sequence[str], *, units: bool = False
) -> Mapping[str, int]:
    """Write the rows of one cluster, in order, as JSON or YAML by the file's suffix; return their number by table.

    `rows`: by table, with its fields; nulls are left out. `notes` become comments at the top, and a row's `note` a
    comment beside it; JSON has no comments. An incomplete file never appears under its name. `units`: topics' configs
    have units (`7d`) in place of Kafka's plain numbers. Raises OSError if it can't be written.
    """
    lines: Callable[..., Iterator[str]] = _json if path.suffix.lower() == ".json" else _yaml
    counts = dict.fromkeys(rows, 0)

    def counted(table: str) -> Iterator[Mapping[str, Any]]:
        for row in rows[table]:
            counts[table] += 1
            yield _with_units(row) if units and table == MANIFESTS.name else row

    atomic.write(path, lines(cluster, {table: counted(table) for table in rows}, notes))
    return counts


def _with_units(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row whose configs have the largest unit that gives a whole number."""
    configs = row["configs"]
    if configs is None:
        return row
    return {**row, "configs": {name: with_unit(name, value) or value for name, value in configs.items()}}


def as_yaml(rows: Mapping[str, Sequence[Mapping[str, Any]]], notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield rows by table as YAML that `load-manifests` reads back: one document for each cluster.

    `notes` become comments at the top. Each entry has its `note`, or else the place of its file, as a comment.
    """
    for number, cluster in enumerate(sorted({str(row["cluster"]) for those in rows.values() for row in those})):
        its = {
            table: [
                {**row, "note": row.get("note") or f"{row['file']}:{row['line']}"}
                for row in those
                if row["cluster"] == cluster
            ]
            for table, those in rows.items()
        }
        yield "---\n" if number else ""
        found = {table: those for table, those in its.items() if those}
        yield from _yaml(cluster, {MANIFESTS.name: (), **found}, () if number else notes)


def _json(cluster: str, rows: _Rows, notes: Sequence[str]) -> Iterator[str]:
    before = "[\n"
    for table, those in rows.items():
        for row in those:
            given = {"cluster": cluster, **_given(table, row)}
            fields = ", ".join(f"{json.dumps(name)}: {_json_value(value)}" for name, value in given.items())
            yield f"{before}{{{fields}}}"
            before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _yaml(cluster: str, rows: _Rows, notes: Sequence[str]) -> Iterator[str]:
    for note in notes:
        yield f"# {show(note, 2_000)}\n"
    yield f"cluster: {quoted(cluster)}\n"
    for table, those in rows.items():
        section, entry = _SECTIONS[table], _on_lines if table == MANIFESTS.name else _on_one_line
        before = f"{section}:\n"
        for row in those:
            note = f"  # {show(row['note'], 2_000)}" if row.get("note") else ""
            yield before + entry([f"{name}: {_value(value)}" for name, value in _given(table, row).items()], note)
            before = ""
        if before:
            yield f"{section}: []\n"


def _on_lines(fields: Sequence[str], note: str) -> str:
    first, *rest = fields
    return f"  - {first}{note}\n" + "".join(f"    {each}\n" for each in rest)


def _on_one_line(fields: Sequence[str], note: str) -> str:
    return f"  - {{{', '.join(fields)}}}{note}\n"


def _given(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's fields without its cluster, in the table's order.

    The default state `present` is left out, and labels whose value is null: other writers may leave such in the table,
    but files can't have them.
    """
    fields = {name: row[name] for name in _FIELDS[table] if row.get(name) is not None}
    if "labels" in fields:
        fields["labels"] = {name: value for name, value in fields["labels"].items() if value is not None}
    if fields.get("state") == "present":
        del fields["state"]
    return fields


def _json_value(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else json.dumps(value)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_value(each)}" for key, each in sorted(value.items())) + "}"
    if isinstance(value, str):
        return quoted(value)
    return str(list(value)) if isinstance(value, Sequence) else str(value)


def _key(key: Any) -> str:
    text = _value(key)
    # YAML finds the colon of a key without a mark within 1,024 characters only.
    return text if len(text) <= _LONGEST_KEY else f"? {text} "


@functools.lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """Return a double-quoted YAML scalar on one line, with characters escaped as needed."""
    if text.isascii() and text.isprintable():
        return json.dumps(text)
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
