"""Read entries of `groups` into rows of `group_configs`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.resource_entries import NOTHING, SHARED, given_in, shared
from topicledger.manifests.files.values import Object, named
from topicledger.text import nearest

COLUMNS = ("group", "configs", *SHARED)
"""The fields of an entry, with the table's names."""


def is_group(item: Object) -> bool:
    """Whether an entry is about a group's configs."""
    names = {key.text for key, _, _ in item.pairs}
    return "group" in names and "topic" not in names


def read_group(
    item: Object, line: int, reader: Reader, cluster: str | None = None, defaults: Mapping[str, object] = NOTHING
) -> None:
    """Report the row of one entry, which begins at `line`."""
    item.line = line
    given = given_in(item)
    entry = shared(given, item, reader, cluster, defaults)
    values: dict[str, object] = {"group": None, "configs": None}
    for name, (value, at) in given.items():
        if name not in COLUMNS:
            reader.report.error(at, f"unknown field `{named(name)}`; {nearest(name, COLUMNS)}")
            entry.right = False
        elif name in values and value is not None:
            values[name] = reader.text(name, value, at) if name == "group" else reader.texts(name, value, at)
            entry.right &= values[name] is not None
    if entry.right:
        reader.report.resource("group_configs", entry.row(values, reader, line))
