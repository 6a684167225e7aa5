"""Moves that need a low min.insync.replicas: with fewer replicas, producers with acks=all could no longer write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicledger.actions.checking import unreadable
from topicledger.actions.context import ClusterContext
from topicledger.model import Refusal, Target, TopicConfigs
from topicledger.resources.topics.actions.alter_configs import SETTLES_WITHIN

MIN_INSYNC = "min.insync.replicas"
NEEDED_MIN_INSYNC = "min_insync_replicas"
"""Name in `after` of a move: the value that an alter of the same plan sets, if policies refuse the move without it."""


def below_min_insync(context: ClusterContext, targets: Sequence[Target]) -> Mapping[str, tuple[Refusal, str]]:
    """Return topic -> why its move can't be sent: its min.insync.replicas is too high, or unknown.

    It may have been raised since the plan, or not lowered by the plan's own alter. Waits for an alter of this run,
    which becomes visible late (K6).
    """
    fewest = {each.topic: fewer for each in targets if (fewer := _fewer_replicas(each)) is not None}
    planned = {each.topic: int(each.after[NEEDED_MIN_INSYNC]) for each in targets if NEEDED_MIN_INSYNC in each.after}
    asked = [each.topic for each in targets if each.topic in fewest or each.topic in planned]
    if not asked:
        return {}

    def too_high(topic: str, now: int) -> tuple[Refusal, str] | None:
        if fewest.get(topic, now) < now:
            return _too_few(fewest[topic], now)
        return _not_lowered(planned[topic], now) if planned.get(topic, now) < now else None

    found: dict[str, tuple[Refusal, str]] = {}
    for _ in context.looks(SETTLES_WITHIN):
        described = context.describe_configs(asked, dict.fromkeys(asked, (MIN_INSYNC,)))
        live = {topic: int(str(each.value)) for topic, of in described.items() for each in of.configs or ()}
        found = {topic: _min_insync_unknown(described.get(topic)) for topic in asked if topic not in live}
        high = {topic: why for topic, now in live.items() if (why := too_high(topic, now)) is not None}
        if not high:
            break
        found |= high
    return found


def _too_few(replicas: int, needed: int) -> tuple[Refusal, str]:
    message = (
        f"replication factor {replicas} is below the topic's {MIN_INSYNC}, which is {needed} now: declare a factor "
        f"of {needed} or more, or lower {MIN_INSYNC} in an earlier run"
    )
    return Refusal.BELOW_MIN_INSYNC, message


def _not_lowered(planned: int, now: int) -> tuple[Refusal, str]:
    message = (
        f"policies allow this move only with {MIN_INSYNC} {planned}, which alter_configs of the same plan sets, and it "
        f"is {now} now: find out why it wasn't altered"
    )
    return Refusal.CHANGED_SINCE_PLAN, message


def _min_insync_unknown(configs: TopicConfigs | None) -> tuple[Refusal, str]:
    refusal, why = unreadable(configs)
    return refusal, f"the move depends on the topic's {MIN_INSYNC}, which is unknown: {why}"


def _fewer_replicas(target: Target) -> int | None:
    """Return the fewest replicas of a partition that has fewer after the move than before; None if none has."""
    before, after = target.replicas_before, target.replicas_after
    lowered = (len(brokers) for partition, brokers in after.items() if len(brokers) < len(before.get(partition, ())))
    return min(lowered, default=None)
