"""Track move progress and detect stalls; moves have no time limit.

Only people can tell a large partition from a replica that never catches up. So a run waits, and warns.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from topicledger.actions.context import ClusterContext
from topicledger.kafka.reassignments import Partition
from topicledger.model.moves import LEADER_ADVICE, Move
from topicledger.resources.topics.actions.moved import progress
from topicledger.text import iso_time, listed

log = logging.getLogger(__name__)

_SAY_EVERY = 30.0
_STILL_FOR = 600.0
"""Seconds without any progress before a warning, and between two warnings."""
_SHOWN = 5
_ADVICE = (
    "see the log of the brokers that get replicas, and whether replicas.throttle is below what is written to them; "
    "the run waits, and --deadline ends this start: stop it, or use `runs abandon`, with --cancel to move them back"
)


class Watching:
    """Moves of one cluster, and when they last came closer to their end."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._began = self._said = self._closer_at = self._warned = context.clock()
        self._closer = datetime.now(UTC)
        self._known: frozenset[Partition] = frozenset()
        """Partitions under way at the last look."""
        self._joined = 0
        """New replicas in sync, the most of all looks at these partitions."""
        self._missing: int | None = None
        """Bytes that new replicas lack, the fewest of all looks at these partitions; None if unknown."""

    def say(self, moves: Sequence[Move], done: Collection[Move], under_way: Mapping[Partition, Move]) -> None:
        """Log the progress every 30 s; warn if there has been none for 10 min."""
        now = self._context.clock()
        if now - self._said < _SAY_EVERY:
            return
        self._said = now
        words = progress(moves, list(done), len(under_way), now - self._began)
        log.info("cluster %s: %s", self._context.cluster, words)
        waiting = self._waiting(under_way)
        if not under_way or now - max(self._closer_at, self._warned) < _STILL_FOR:
            return
        self._warned = now
        late = [f"{topic}-{number} {why}" for (topic, number), why in waiting.items()]
        log.warning(
            "cluster %s: no move has come closer to its end since %s (%.0f min): %s; %s",
            self._context.cluster,
            iso_time(self._closer),
            (now - self._closer_at) / 60,
            listed(late, most=_SHOWN, between="; ") or f"{len(under_way)} partitions are listed as moving",
            _ADVICE,
        )

    def _waiting(self, under_way: Mapping[Partition, Move]) -> Mapping[Partition, str]:
        """Return partition -> what it waits for, in words; note whether any move has come closer."""
        states = self._context.topic_states(sorted({topic for topic, _ in under_way}))
        waiting: dict[Partition, set[int]] = {}
        words: dict[Partition, str] = {}
        for (topic, number), move in under_way.items():
            live = states[topic].partitions.get(number) if topic in states else None
            late = set(move.after) - (live.isr if live is not None else frozenset())
            if late:
                waiting[topic, number] = late
                words[topic, number] = f"waits for broker {', '.join(map(str, sorted(late)))}"
            if live is not None and live.leader < 0:
                words[topic, number] = f"has no leader to copy from: {LEADER_ADVICE}"
        joined = sum(len(move.after) for move in under_way.values()) - sum(map(len, waiting.values()))
        missing = self._bytes_missing(waiting, under_way)
        new = frozenset(under_way)
        fewer = missing is not None and (self._missing is None or missing < self._missing)
        if new != self._known:
            # A move has begun or ended.
            self._known, self._joined, self._missing = new, joined, missing
            self._is_closer()
        elif joined > self._joined or fewer:
            self._joined, self._missing = max(joined, self._joined), missing if fewer else self._missing
            self._is_closer()
        return words

    def _is_closer(self) -> None:
        self._closer_at, self._closer = self._context.clock(), datetime.now(UTC)

    def _bytes_missing(
        self, waiting: Mapping[Partition, Collection[int]], under_way: Mapping[Partition, Move]
    ) -> int | None:
        topics: dict[str, list[int]] = {}
        for topic, number in waiting:
            topics.setdefault(topic, []).append(number)
        sizes = self._context.replica_sizes(topics) if topics else {}
        if not sizes:
            return None
        whole = {key: max((size for (*of, _), size in sizes.items() if tuple(of) == key), default=0) for key in waiting}
        return sum(
            max(0, whole[key] - sizes.get((*key, broker), 0)) for key, brokers in waiting.items() for broker in brokers
        )
