"""Moves of partitions as planned, and whether brokers show that they are done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from topicledger.actions.context import ClusterContext
from topicledger.kafka.reassignments import Partition, PartitionState, Replicas
from topicledger.kafka.sending import Answer
from topicledger.model import Target, TopicResult
from topicledger.model.moves import Move
from topicledger.resources.topics.actions.min_insync import NEEDED_MIN_INSYNC

log = logging.getLogger(__name__)


def is_in_place(move: Move, live: PartitionState | None, listed: Mapping[Partition, Replicas]) -> bool:
    """Return whether a partition is moved as planned: replicas in sync, with a leader, and no longer listed (R4)."""
    return (
        (move.topic, move.partition) not in listed
        and live is not None
        and live.replicas == move.after
        and live.isr >= set(move.after)
        and live.leader >= 0
    )


def is_between(move: Move, live: PartitionState) -> bool:
    """Return whether metadata shows a move under way or just done (R4): new replicas, and old ones not yet removed."""
    new, rest = live.replicas[: len(move.after)], live.replicas[len(move.after) :]
    return new == move.after and bool(rest) and set(rest) == set(move.before) - set(move.after)


def is_cancelled(move: Move, live: PartitionState) -> bool:
    """Return whether replicas are where a cancelled move leaves them: on the same brokers, in another order (R3).

    In the planned order, they look as if the move had never begun.
    """
    same = set(live.replicas) == set(move.before) != set(move.after)
    return same and len(live.replicas) == len(move.before) and live.replicas != move.before


def where_cancelled(move: Move, replicas: Replicas) -> str:
    """Return where a cancelled move left a partition."""
    words = f"partition {move.partition} is on {list(replicas)}, and was on {list(move.before)}"
    if set(replicas) == set(move.before):
        words += ": Kafka restores brokers, not their order, so that a different one is the preferred leader"
    return words


def ours(message: str) -> TopicResult:
    return TopicResult(error_code=-1, error_message=message)


def moves_of(target: Target, sizes: Mapping[Partition, int] | None = None) -> Sequence[Move]:
    """Return the moves of a planned reassignment; a partition without a size gets its share of the planned bytes."""
    before, after = target.replicas_before, target.replicas_after
    moves = [
        Move(topic=target.topic, partition=each, before=before.get(each, ()), after=brokers)
        for each, brokers in sorted(after.items())
    ]
    # The plan has the bytes of the topic's moves together.
    share = int(target.after.get("bytes", 0)) // max(1, sum(len(move.adding) for move in moves))
    return [replace(move, size=(sizes or {}).get((move.topic, move.partition), share)) for move in moves]


def measured(
    context: ClusterContext, targets: Mapping[str, Target]
) -> tuple[dict[str, Sequence[Move]], frozenset[str]]:
    """Return the moves of topics with sizes from brokers, and the topics for whose partitions brokers reported sizes.

    Without a report, a partition has its share of the planned bytes.
    """
    sizes = context.partition_sizes({topic: sorted(target.replicas_after) for topic, target in targets.items()})
    moves = {topic: moves_of(target, sizes) for topic, target in targets.items()}
    told = (topic for topic, each in moves.items() if all((topic, move.partition) in sizes for move in each))
    return moves, frozenset(told)


def requested(target: Target) -> Mapping[str, str]:
    """Return the values that a reassignment sets, as planned."""
    return {name: value for name, value in target.after.items() if name != NEEDED_MIN_INSYNC}


def answer_of(target: Target, moves: Sequence[Move], began: datetime, *, measured: bool) -> Answer:
    """Make the answer for a topic whose moves are done: partitions and, if brokers told all sizes, bytes; the times."""
    after = {**requested(target), "partitions": str(len(moves))}
    if measured:
        after["bytes"] = str(sum(move.total for move in moves))
    result = TopicResult(replication_factor=len(moves[0].after), before=target.before, after=after)
    return Answer(result, 1, began, datetime.now(UTC))


def progress(moves: Sequence[Move], done: Sequence[Move], under_way: int, seconds: float) -> str:
    """Return for the log how much is moved, how fast, and about how long the rest takes."""
    total, copied = (sum(move.total for move in some) for some in (moves, done))
    rate = copied / seconds
    left = timedelta(seconds=round((total - copied) / rate)) if rate else "unknown"
    return (
        f"{len(done)} of {len(moves)} partitions moved, {under_way} under way; "
        f"{copied} of {total} bytes, {rate:.0f} bytes/s, about {left} left"
    )


def outwaited(context: ClusterContext, words: str) -> bool:
    """Wait until no request of a killed driver can be carried out any more; return whether one could.

    `words`: for the log, with a place for the seconds.
    """
    late = context.limits.moving.late_until - context.clock()
    if late <= 0:
        return False
    log.warning(f"cluster %s: {words}", context.cluster, late)
    context.wait(late)
    return True
