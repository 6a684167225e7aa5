"""Moves to fewer replicas than min.insync.replicas needs: producers with acks=all could no longer write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicledger import kafka
from topicledger.actions.alter_configs import SETTLES_WITHIN
from topicledger.actions.checking import unreadable
from topicledger.actions.context import ClusterContext
from topicledger.model import Refusal, Target, TopicConfigs

MIN_INSYNC = "min.insync.replicas"


def below_min_insync(context: ClusterContext, targets: Sequence[Target]) -> Mapping[str, tuple[Refusal, str]]:
    """Return topic -> why it can't have fewer replicas: its min.insync.replicas may have been raised since the plan.

    Waits for an alter of this run, which becomes visible late (K6).
    """
    fewest = {each.topic: fewer for each in targets if (fewer := _fewer_replicas(each)) is not None}
    if not fewest:
        return {}
    found: dict[str, tuple[Refusal, str]] = {}
    for _ in context.looks(SETTLES_WITHIN):
        described = context.describe_configs(list(fewest), dict.fromkeys(fewest, (MIN_INSYNC,)))
        needed = {topic: int(str(each.value)) for topic, of in described.items() for each in of.configs or ()}
        found = {topic: _min_insync_unknown(described.get(topic)) for topic in fewest if topic not in needed}
        below = {topic: each for topic, each in needed.items() if fewest[topic] < each}
        if not below:
            break
        found |= {topic: _too_few(fewest[topic], each) for topic, each in below.items()}
    return found


def _too_few(replicas: int, needed: int) -> tuple[Refusal, str]:
    message = (
        f"replication factor {replicas} is below the topic's {MIN_INSYNC}, which is {needed} now: declare a factor "
        f"of {needed} or more, or lower {MIN_INSYNC} in an earlier run"
    )
    return Refusal.BELOW_MIN_INSYNC, message


def _min_insync_unknown(configs: TopicConfigs | None) -> tuple[Refusal, str]:
    if configs is None or configs.error_code == kafka.NONE:
        configs = TopicConfigs(topic="", error_code=kafka.TOPIC_AUTHORIZATION_FAILED)
    refusal, why = unreadable(configs)
    return refusal, f"the replication factor would be lowered, but the topic's {MIN_INSYNC} is unknown: {why}"


def _fewer_replicas(target: Target) -> int | None:
    """Return the fewest replicas of a partition that has fewer after the move than before; None if none has."""
    before, after = target.replicas_before, target.replicas_after
    lowered = (len(brokers) for partition, brokers in after.items() if len(brokers) < len(before.get(partition, ())))
    return min(lowered, default=None)
