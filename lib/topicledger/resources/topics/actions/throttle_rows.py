"""Rows of throttles: a config of a broker or topic, its value before, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from topicledger.model.moves import Throttle

ThrottleKey: TypeAlias = tuple[str, str, str]
"""Resource type, resource, config."""


def key_of(throttle: Throttle) -> ThrottleKey:
    """Return the key of a row."""
    return throttle.resource_type, throttle.resource, throttle.config


def throttle_of(key: ThrottleKey, *, before: str | None, value: str) -> Throttle:
    """Make the row of a config that is changed from `before` to `value`."""
    resource_type, resource, config = key
    return Throttle(resource_type=resource_type, resource=resource, config=config, before=before, value=value)


def by_key(written: Sequence[Throttle]) -> Mapping[ThrottleKey, Sequence[Throttle]]:
    """Return config -> its rows, the latest last: a later run may extend a list or change a rate of an earlier one."""
    found: dict[ThrottleKey, list[Throttle]] = {}
    for each in written:
        found.setdefault(key_of(each), []).append(each)
    return found


def entries(replicas: str | None) -> set[str]:
    """Return the entries of a topic's list, such as `0:1`."""
    return set(filter(None, (replicas or "").split(",")))


def added(throttle: Throttle) -> set[str]:
    """Return the entries of a topic's list that a run added."""
    return entries(throttle.value) - entries(throttle.before)


def partitions_of(rows: Sequence[Throttle]) -> set[int]:
    """Return the partitions that a topic's list protects."""
    return {int(entry.partition(":")[0]) for each in rows for entry in added(each)}
