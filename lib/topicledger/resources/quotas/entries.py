"""Read entries of quotas into rows of `quotas`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.manifests.files import variables
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.resource_entries import SHARED, Read, row_reader
from topicledger.manifests.files.values import Object
from topicledger.resources.quotas.entity import ENTITY, LEAST, LIMITS, WHOLE_LIMITS

_OWN: Mapping[str, Read] = {**dict.fromkeys(ENTITY, Reader.text), **dict.fromkeys(LIMITS, Reader.number)}
FIELDS = (*_OWN, *SHARED)
"""The fields of an entry, with the table's names."""


def is_quota(item: Object) -> bool:
    """Whether an entry is a quota rather than another resource."""
    names = item.names
    return "topic" not in names and not names.isdisjoint((*ENTITY, *LIMITS))


def schemas() -> Mapping[str, Mapping[str, object]]:
    """Return the JSON Schemas of limits."""
    types = {name: "integer" if name in WHOLE_LIMITS else "number" for name in LIMITS}
    other = [variables.SCHEMA, {"type": "null"}]
    return {name: {"anyOf": [{"type": each, "minimum": LEAST}, *other]} for name, each in types.items()}


read_quota = row_reader("quotas", _OWN)
