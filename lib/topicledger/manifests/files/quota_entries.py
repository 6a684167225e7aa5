"""Entries of `quotas:` -> rows of `quotas`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.resource_entries import SHARED, entries, given_in, shared
from topicledger.manifests.files.values import Number, Surprise, Value, kind_of
from topicledger.model.quotas import ENTITY, LIMITS
from topicledger.text import nearest, show

_KNOWN = (*ENTITY, *LIMITS, *SHARED)


def read_quotas(value: Value, line: int, reader: Reader, cluster: str | None, defaults: Mapping[str, object]) -> None:
    """Report the rows of a document's `quotas`. `defaults`: its `state`, `owner` and `labels`, where it has them."""
    for item in entries("quotas", value, line, reader):
        given = given_in(item)
        entry = shared(given, item, reader, cluster, defaults)
        values: dict[str, object] = dict.fromkeys((*ENTITY, *LIMITS))
        for name, (each, at) in given.items():
            if name not in _KNOWN:
                reader.report.error(at, f"unknown field `{show(name)}`; {nearest(name, _KNOWN)}")
                entry.right = False
            elif name in values and each is not None:
                values[name] = reader.text(name, each, at) if name in ENTITY else _limit(name, each, at, reader)
                entry.right &= values[name] is not None
        if entry.right:
            reader.report.quota(entry.row(values, reader, item.line))


def _limit(name: str, value: Value, line: int, reader: Reader) -> float | None:
    if isinstance(value, Surprise):
        reader.report.error(line, f"{name}: {value.reason}")
    elif not isinstance(value, Number):
        reader.report.error(line, f"{name} must be a number, not {kind_of(value)}")
    else:
        return float(value.text)
    return None
