"""Read entries of quotas into rows of `quotas`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.resource_entries import NOTHING, SHARED, given_in, shared
from topicledger.manifests.files.values import Object, named
from topicledger.resources.quotas.entity import ENTITY, LIMITS
from topicledger.text import nearest

COLUMNS = (*ENTITY, *LIMITS, *SHARED)
"""The fields of an entry, with the table's names."""


def is_quota(item: Object) -> bool:
    """Whether an entry is a quota rather than a topic or an ACL."""
    names = {key.text for key, _, _ in item.pairs}
    return "topic" not in names and not names.isdisjoint((*ENTITY, *LIMITS))


def read_quota(
    item: Object, line: int, reader: Reader, cluster: str | None = None, defaults: Mapping[str, object] = NOTHING
) -> None:
    """Report the row of one entry, which begins at `line`."""
    item.line = line
    given = given_in(item)
    entry = shared(given, item, reader, cluster, defaults)
    values: dict[str, object] = dict.fromkeys((*ENTITY, *LIMITS))
    for name, (each, at) in given.items():
        if name not in COLUMNS:
            reader.report.error(at, f"unknown field `{named(name)}`; {nearest(name, COLUMNS)}")
            entry.right = False
        elif name in values and each is not None:
            values[name] = reader.text(name, each, at) if name in ENTITY else reader.number(name, each, at)
            entry.right &= values[name] is not None
    if entry.right:
        reader.report.resource("quotas", entry.row(values, reader, line))
