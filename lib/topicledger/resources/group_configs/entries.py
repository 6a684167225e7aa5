"""Read entries of `groups` into rows of `group_configs`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.resource_entries import NOTHING, SHARED, Read, read_row
from topicledger.manifests.files.values import Object

_OWN: Mapping[str, Read] = {"group": Reader.text, "configs": Reader.texts}
FIELDS = (*_OWN, *SHARED)
"""The fields of an entry, with the table's names."""


def is_group(item: Object) -> bool:
    """Whether an entry is about a group's configs."""
    names = {key.text for key, _, _ in item.pairs}
    return "group" in names and "topic" not in names


def read_group(
    item: Object, line: int, reader: Reader, cluster: str | None = None, defaults: Mapping[str, object] = NOTHING
) -> None:
    """Report the row of one entry, which begins at `line`."""
    read_row("group_configs", _OWN, item, line, reader, cluster, defaults)
