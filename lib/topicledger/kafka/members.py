"""Topics that a group's members use, computed from Kafka's answers; sends no requests."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription


@dataclass(frozen=True, kw_only=True)
class Members:
    """The live members of a group."""

    count: int = 0
    state: str = "Empty"
    """The group's state, with Kafka's name."""
    assigned: Counter[str] = field(default_factory=Counter)
    """Topic -> members that have partitions of it, or will get some."""
    subscribed: Counter[str] = field(default_factory=Counter)
    """Topic -> members that subscribe to it by name."""
    unknown: str | None = None
    """Why the topics that the members use are unknown."""


def classic(group: Any) -> Members:
    """Read a DescribeGroupsResponse; members' topics are known only while the group is stable."""
    count, state = len(group.members), group.group_state
    if group.protocol_type not in ("consumer", ""):
        # Such a group, e.g. of Kafka Connect's workers, serves another purpose than reading topics.
        return Members(count=count, state=state)
    if count and state != "Stable":
        return Members(count=count, state=state, unknown="it is rebalancing")
    assigned: Counter[str] = Counter()
    subscribed: Counter[str] = Counter()
    try:
        for member in group.members:
            subscribed.update(set(ConsumerProtocolSubscription.decode(member.member_metadata).topics))
            if member.member_assignment:
                partitions = ConsumerProtocolAssignment.decode(member.member_assignment).assigned_partitions
                assigned.update({each.topic for each in partitions if each.partitions})
    except (struct.error, ValueError):
        return Members(
            count=count, state=state, unknown="its members' subscriptions are not in the consumer protocol's format"
        )
    return Members(count=count, state=state, assigned=assigned, subscribed=subscribed)


def consumer(group: Any) -> Members:
    """Read a ConsumerGroupDescribeResponse (KIP-848)."""
    assigned: Counter[str] = Counter()
    subscribed: Counter[str] = Counter()
    for member in group.members:
        both = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
        assigned.update({each.topic_name for each in both})
        subscribed.update(set(member.subscribed_topic_names))
    return Members(count=len(group.members), state=group.group_state, assigned=assigned, subscribed=subscribed)


def share(group: Any) -> Members:
    """Read a ShareGroupDescribeResponse (KIP-932)."""
    assigned: Counter[str] = Counter()
    subscribed: Counter[str] = Counter()
    for member in group.members:
        assigned.update({each.topic_name for each in member.assignment.topic_partitions})
        subscribed.update(set(member.subscribed_topic_names))
    return Members(count=len(group.members), state=group.group_state, assigned=assigned, subscribed=subscribed)


def streams(group: Any) -> Members:
    """Read a StreamsGroupDescribeResponse (KIP-1071): topics that tasks read and write, internal topics included."""
    count, state = len(group.members), group.group_state
    if not count:
        return Members()
    if group.topology is None or group.topology.subtopologies is None:
        return Members(count=count, state=state, unknown="its topology is not initialised")
    parts = {each.subtopology_id: _topics_of(each) for each in group.topology.subtopologies}
    assigned: Counter[str] = Counter()
    for member in group.members:
        tasks = [
            task
            for one in (member.assignment, member.target_assignment)
            for task in (*one.active_tasks, *one.standby_tasks, *one.warmup_tasks)
        ]
        assigned.update({topic for task in tasks for topic in parts.get(task.subtopology_id, ())})
    subscribed = Counter(dict.fromkeys({topic for topics in parts.values() for topic in topics}, count))
    return Members(count=count, state=state, assigned=assigned, subscribed=subscribed)


def _topics_of(subtopology: Any) -> set[str]:
    internal = (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
    return {*subtopology.source_topics, *subtopology.repartition_sink_topics, *(each.name for each in internal)}
