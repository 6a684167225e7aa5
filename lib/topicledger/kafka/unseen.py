"""How many topics of a cluster this principal doesn't see (M3).

A listing leaves out, without a word, what the principal may not describe. But brokers list what is in their log
directories to whoever has Describe on the cluster, whatever the rights on topics (*measured*, 4.3.1).
"""

from __future__ import annotations

from topicledger.kafka import log_dirs
from topicledger.kafka.connection import TOPIC_AUTHORIZATION_FAILED, Connection

_TOPICS_BATCH = 10_000


def unseen_topics(connection: Connection, on: int | None = None) -> int:
    """Topics that brokers which are up have replicas of, and that this principal may not describe.

    `on`: only those of this broker, if it is up. A topic whose every replica is on brokers that are down isn't counted.
    Raises ClusterError, with what to grant, where the brokers don't say.
    """
    up = [int(broker.node_id) for broker in connection.metadata([]).brokers]
    asked = [on] if on in up else up
    names = sorted({topic for broker in asked for topic in _topics_of_broker(connection, broker)})
    # By name: one that was deleted meanwhile is unknown, and one that was created meanwhile isn't hidden.
    return sum(
        topic.error_code == TOPIC_AUTHORIZATION_FAILED
        for start in range(0, len(names), _TOPICS_BATCH)
        for topic in connection.metadata(names[start : start + _TOPICS_BATCH]).topics
    )


def _topics_of_broker(connection: Connection, broker_id: int) -> set[str]:
    what = "which topics there are"
    answer = log_dirs.describe(connection, broker_id, f"{what} can't be read", gone=what)
    return {topic.name for each in answer.results for topic in each.topics}
