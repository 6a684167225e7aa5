"""Phase verify of actions whose outcome is visible in the description of their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from topicledger import kafka
from topicledger.actions.context import ClusterContext
from topicledger.kafka.sending import Answer
from topicledger.model import OURS, Note, Outcome, Phase, PhaseResult, Refusal, Target, TopicInfo, TopicResult

Verdict: TypeAlias = tuple[Outcome, int, Note | Refusal | None, str | None]
"""Outcome, error code, our note, message."""


def verify_topics(
    context: ClusterContext,
    applied: Sequence[tuple[Target, TopicResult]],
    verdict: Callable[[Target, TopicResult, TopicInfo | None], Verdict],
    *,
    shown: bool = True,
) -> Iterator[PhaseResult]:
    """Describe topics once, and decide on each by `verdict`: from the target, its result, and the topic or None.

    A topic that isn't listed is None; one that brokers don't describe is skipped. `shown`: the rows include the
    state of a listed topic.
    """
    requested_at = datetime.now(UTC)
    live = context.describe([target.topic for target, _ in applied])
    for target, result in applied:
        info = live.get(target.topic)
        outcome, error_code, note, message = (
            verdict(target, result, info) if info is None or info.permitted else not_described(info)
        )
        seen = info if info is not None and info.permitted and shown else None
        found = TopicResult(
            error_code=error_code,
            error_message=message,
            topic_id=seen.topic_id if seen else None,
            num_partitions=seen.num_partitions if seen else None,
            replication_factor=seen.replication_factor if seen else None,
        )
        yield context.result(
            target, Phase.VERIFY, outcome, Answer(found, 1, requested_at, datetime.now(UTC)), note=note
        )


def recreated(info: TopicInfo) -> Verdict:
    """The verdict for a topic that was recreated under its name."""
    message = f"another client deleted and recreated it, with id {info.topic_id}"
    return Outcome.FAILED, OURS, Refusal.RECREATED, message


def not_described(info: TopicInfo) -> Verdict:
    """The verdict for a topic that brokers don't describe."""
    if info.unknown is None:
        return not_permitted("Describe")
    return Outcome.SKIPPED, OURS, Refusal.NO_ANSWER, f"brokers answer {info.unknown} about the topic: not verified"


def not_permitted(right: str) -> Verdict:
    """The verdict for a topic that this principal may not describe."""
    message = f"this principal may not describe the topic; grant it {right} to have it verified"
    return Outcome.SKIPPED, kafka.TOPIC_AUTHORIZATION_FAILED, None, message
