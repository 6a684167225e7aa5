"""Offsets and last records of topics, from brokers' answers."""

from __future__ import annotations

import pytest

from topicledger.kafka.offsets import _Answer, _topic_offsets

OF_T = [("t", 0), ("t", 1)]


@pytest.mark.parametrize(
    ("ends", "times", "known", "unknown"),
    [
        ((5, 5), (1_000, 2_000), True, set()),
        ((5, 0), (1_000, -1), True, set()),
        ((0, 0), (-1, -1), False, set()),
        ((5, 5), (1_000, -1), False, {"last_record_at"}),
        ((5, 0), (-1, -1), False, {"last_record_at"}),
    ],
    ids=["both", "one is empty", "empty", "one without timestamps", "without timestamps"],
)
def test_the_last_record_is_unknown_if_kept_records_have_no_timestamps(
    ends: tuple[int, int], times: tuple[int, int], known: bool, unknown: set[str]
) -> None:
    """Brokers answer -1, as for an empty topic: somebody may have written a second ago."""
    earliest = {each: _Answer(offset=0) for each in OF_T}
    latest = {each: _Answer(offset=end) for each, end in zip(OF_T, ends, strict=True)}
    newest = {each: _Answer(timestamp=at) for each, at in zip(OF_T, times, strict=True)}
    found = _topic_offsets(OF_T, earliest, latest, newest)
    assert (found.last_record_at is not None, set(found.unknown)) == (known, unknown)
    assert (found.end_offset, found.moving) == (sum(ends), False)
