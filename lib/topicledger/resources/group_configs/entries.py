"""Read entries of `groups` into rows of `group_configs`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.manifests.files.entries import Configs, Reader
from topicledger.manifests.files.resource_entries import SHARED, Read, row_reader
from topicledger.manifests.files.values import Object, Value, unset_in
from topicledger.model.config_texts import without_unit
from topicledger.resources.group_configs.names import CONFIGS

_OF_GROUPS = Configs(stored=without_unit, known=CONFIGS)


def _configs(reader: Reader, name: str, value: Value, line: int) -> dict[str, str] | None:
    found = reader.texts(name, value, line, _OF_GROUPS)
    return None if reader.removes_nothing(unset_in(value), found or (), line) else found


_OWN: Mapping[str, Read] = {"group": Reader.text, "configs": _configs}
FIELDS = (*_OWN, *SHARED)
"""The fields of an entry, with the table's names."""


def is_group(item: Object) -> bool:
    """Whether an entry is about a group's configs."""
    names = item.names
    return "group" in names and "topic" not in names


read_group = row_reader("group_configs", _OWN)
