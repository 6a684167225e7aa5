"""The rules of `rows.row_rules` in Python, for rows of files, which are validated before Spark starts (C1, C3).

Tables may have a million rows that were never read before; Spark validates those. Both must return exactly the same
messages: tests/properties/test_row_rules.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from topicledger.kafka.config_values import is_odd
from topicledger.manifests.files import FileRow, ManifestRow
from topicledger.manifests.rows import (
    ABSENT,
    ABSENT_REPLACES,
    COLLIDES,
    ILLEGAL_NAMES,
    INTERNAL,
    MAX_REPLICATION_FACTOR,
    MAX_TOPIC_LENGTH,
    ODD_VALUES,
    PLACEMENT_AND_ASSIGNMENTS,
    PLACEMENTS,
    PLAIN_VALUES,
    PRESENT,
    REPLACES_ITSELF,
    REPLACES_NO_TOPIC,
    WITH_INTERNAL,
)
from topicledger.model import INTERNAL_TOPICS
from topicledger.model.config_texts import refused_together
from topicledger.model.placement import is_legal
from topicledger.text import show

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LEGAL_CONFIG = re.compile(r"[!-~]+")


def reasons(row: ManifestRow) -> list[str]:
    """Return the messages of all rules that the row breaks by itself, as a run would report them."""
    return [
        reason
        for reason in (
            _topic(row.topic, row.state),
            state_reason(row.state),
            _partitions(row.num_partitions),
            _replicas(row.replication_factor),
            _one_way_to_count(row),
            _assignments(row.assignments),
            _placement(row),
            _replaces(row),
            configs_reason(row.configs),
        )
        if reason is not None
    ]


def _topic(topic: str, state: str) -> str | None:
    if (reason := _no_legal_name(topic)) is not None:
        return reason
    internal = topic.replace(".", "_")
    collides = internal in INTERNAL_TOPICS and state != ABSENT
    return f"{topic}{COLLIDES}{internal}{WITH_INTERNAL}" if collides else None


def _no_legal_name(topic: str) -> str | None:
    if topic == "":
        return "topic is empty"
    if topic in (".", ".."):
        return f"topic can't be {topic}"
    if len(topic) > MAX_TOPIC_LENGTH:
        return f"topic has {len(topic)} characters; Kafka accepts at most {MAX_TOPIC_LENGTH}"
    if not _LEGAL.fullmatch(topic):
        return "topic has a character other than ASCII letters, digits, '.', '_' and '-'"
    return f"{topic}{INTERNAL}" if topic in INTERNAL_TOPICS else None


def visible(text: str) -> str:
    """`rows.visible` for a text."""
    return text if text == text.strip(" ") else f'"{text}"'


def state_reason(state: str) -> str | None:
    return None if state in (PRESENT, ABSENT) else f"state is {visible(state)}; write {PRESENT} or {ABSENT}"


def _count(column: str, count: int | None, most: int | None = None) -> str | None:
    if count is not None and count < 1:
        return f"{column} is {count}; it must be at least 1, or null for the broker's default"
    if count is not None and most is not None and count > most:
        return f"{column} is {count}; Kafka accepts at most {most}"
    return None


def _partitions(count: int | None) -> str | None:
    return _count("num_partitions", count)


def _replicas(count: int | None) -> str | None:
    return _count("replication_factor", count, MAX_REPLICATION_FACTOR)


def _one_way_to_count(row: ManifestRow) -> str | None:
    if row.assignments is None or (row.num_partitions is None and row.replication_factor is None):
        return None
    return "assignments exclude num_partitions and replication_factor, which they imply; give one or the other"


def _assignments(assignments: Mapping[int, Sequence[int]] | None) -> str | None:
    if assignments is None:
        return None
    replicas = assignments.values()
    holding = {
        "assignments are empty": not assignments,
        "assignments must number the partitions 0 to n-1 without gaps": set(assignments) != {*range(len(assignments))},
        "assignments leave a partition without brokers": not all(replicas),
        "assignments contain a null or negative broker id": any(
            broker < 0 for brokers in replicas for broker in brokers
        ),
        "assignments name a broker twice for one partition": any(len({*each}) != len(each) for each in replicas),
        "assignments give partitions different numbers of replicas": len({len(each) for each in replicas}) > 1,
    }
    return next((reason for reason, holds in holding.items() if holds), None)


def _placement(row: ManifestRow) -> str | None:
    if row.placement is None:
        return None
    if (reason := _legal_placement(row.placement)) is not None:
        return reason
    return None if row.assignments is None else PLACEMENT_AND_ASSIGNMENTS


def _legal_placement(placement: str) -> str | None:
    return None if is_legal(placement) else f"placement is {visible(placement)}{PLACEMENTS}"


def _replaces(row: ManifestRow) -> str | None:
    if row.replaces is None:
        return None
    if row.replaces == row.topic:
        return REPLACES_ITSELF
    if _no_legal_name(row.replaces) is not None:
        return REPLACES_NO_TOPIC
    return ABSENT_REPLACES if row.state == ABSENT else None


def configs_reason(configs: Mapping[str, str] | None) -> str | None:
    """`rows.legal_configs` for the configs of a file's row."""
    if configs is None:
        return None
    if any(not name.strip(" ") for name in configs):
        return "configs have an empty name"
    if illegal := [name for name in configs if not _LEGAL_CONFIG.fullmatch(name)]:
        return f"{ILLEGAL_NAMES}{_quoted(illegal)}"
    if odd := [name for name, value in configs.items() if is_odd(value)]:
        return f"{ODD_VALUES}{_quoted(odd)}{PLAIN_VALUES}"
    return None


def name_reason(name: str) -> str | None:
    """Return why no config can have this name, if so."""
    if not name.strip(" "):
        return "a name is empty"
    return None if _LEGAL_CONFIG.fullmatch(name) else f'{ILLEGAL_NAMES}"{show(name)}"'


def value_reason(text: str) -> str | None:
    """Return why no config should have this value, if so."""
    return f'is "{show(text)}", which brokers return in another form{PLAIN_VALUES}' if is_odd(text) else None


_OF_FIELDS: Mapping[str, Callable[[Any], str | None]] = {
    "state": state_reason,
    "num_partitions": _partitions,
    "replication_factor": _replicas,
    "assignments": _assignments,
    "placement": _legal_placement,
    "configs": refused_together,
}


def field_reason(field: str, value: object) -> str | None:
    """Return why no row can have this value in a field, whatever its other fields are, if so."""
    return _OF_FIELDS[field](value) if field in _OF_FIELDS else None


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


def broken(rows: Sequence[ManifestRow]) -> Iterator[tuple[ManifestRow, int, str]]:
    """Yield the rows that break a rule, each with the lines that do, and all reasons of a line as one text."""
    for row in rows:
        for line, why in by_line(row, reasons(row)):
            yield row, line, why


def line_of(row: FileRow, reason: str) -> int:
    """Return the line to correct for a reason why no row can have a value: that of the value, or of the entry."""
    return (row.lines or {}).get(reason, row.line)


def by_line(row: FileRow, found: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines to correct, each with the reasons found there as one text."""
    at: dict[int, list[str]] = {}
    for reason in found:
        at.setdefault(line_of(row, reason), []).append(reason)
    for line, several in at.items():
        yield line, "; ".join(several)
