"""Write manifest rows to a file that `load-manifests` reads back exactly; every text is quoted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from topicledger import atomic
from topicledger.manifests.files.results import FIELDS
from topicledger.model.config_texts import with_unit
from topicledger.resources.registry import KINDS
from topicledger.schemas import MANIFESTS
from topicledger.text import number_text, show

_SECTIONS = {kind.table.name: kind.entries.section for kind in KINDS}
_NO_FIELDS = ("cluster", "note", "file", "line")
SUFFIXES = (".yaml", ".yml", ".json")


def write_manifests(
    path: Path,
    cluster: str,
    rows: Iterable[Mapping[str, Any]],
    notes: Sequence[str],
    resources: Mapping[str, Iterable[Mapping[str, Any]]] = MappingProxyType({}),
    *,
    units: bool = False,
) -> Mapping[str, int]:
    """Write the rows of one cluster, in order, as JSON or YAML by the file's suffix; return their number by table.

    `rows` have the fields of `manifests`, `resources` those of their tables; nulls are left out.
    `notes` become comments at the top, and a topic's `note` a comment beside it; JSON has no comments. An incomplete
    file never appears under its name. `units`: topics' configs have units (`7d`) in place of Kafka's plain numbers.
    Raises OSError if it can't be written.
    """
    lines: Callable[..., Iterator[str]] = _json if path.suffix.lower() == ".json" else _yaml
    counts = dict.fromkeys(("manifests", *resources), 0)

    def counted(table: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for row in rows:
            counts[table] += 1
            yield row

    others = {table: counted(table, entries) for table, entries in resources.items()}
    topics = map(_with_units, rows) if units else rows
    atomic.write(path, lines(cluster, counted("manifests", topics), others, notes))
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
        resources = {table: iter(those) for table, those in its.items() if table != MANIFESTS.name and those}
        yield from _yaml(cluster, its.get(MANIFESTS.name, ()), resources, () if number else notes)


_Resources: TypeAlias = Mapping[str, Iterator[Mapping[str, Any]]]


def _json(
    cluster: str, rows: Iterable[Mapping[str, Any]], resources: _Resources, notes: Sequence[str]
) -> Iterator[str]:
    before = "[\n"
    for given in chain(map(_given, rows), map(_given_of_resource, chain.from_iterable(resources.values()))):
        row = {"cluster": cluster, **given}
        fields = ", ".join(f"{json.dumps(name)}: {_json_value(value)}" for name, value in row.items())
        yield f"{before}{{{fields}}}"
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _yaml(
    cluster: str, rows: Iterable[Mapping[str, Any]], resources: _Resources, notes: Sequence[str]
) -> Iterator[str]:
    for note in notes:
        yield f"# {show(note, 2_000)}\n"
    yield f"cluster: {quoted(cluster)}\n"
    before = "topics:\n"
    for row in rows:
        note = f"  # {show(row['note'], 2_000)}" if row.get("note") else ""
        yield before + "".join(
            f"  {'-' if name == 'topic' else ' '} {name}: {_value(value)}{note if name == 'topic' else ''}\n"
            for name, value in _given(row).items()
        )
        before = ""
    if before:
        yield "topics: []\n"
    for table, entries in resources.items():
        section = _SECTIONS[table]
        before = f"{section}:\n"
        for entry in entries:
            note = f"  # {show(entry['note'], 2_000)}" if entry.get("note") else ""
            fields = ", ".join(f"{name}: {_value(value)}" for name, value in _given_of_resource(entry).items())
            yield f"{before}  - {{{fields}}}{note}\n"
            before = ""
        if before:
            yield f"{section}: []\n"


def _given(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's fields without its cluster, the topic first; the default state `present` is left out."""
    return _given_of_resource({name: row[name] for name in FIELDS})


def _given_of_resource(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row of any table, like `_given`."""
    fields = {name: value for name, value in row.items() if name not in _NO_FIELDS and value is not None}
    if fields.get("state") == "present":
        del fields["state"]
    return fields


def _json_value(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else json.dumps(value)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(key)}: {_value(each)}" for key, each in sorted(value.items())) + "}"
    if isinstance(value, str):
        return quoted(value)
    return str(list(value)) if isinstance(value, Sequence) else str(value)


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
