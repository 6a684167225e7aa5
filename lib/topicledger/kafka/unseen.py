"""Count the topics of a cluster that this principal doesn't see (M3).

A listing silently omits topics that the principal may not describe. But with Describe on the cluster, a principal can
list brokers' log directories, whatever it may do to topics (*measured*, 4.3.1).
"""

from __future__ import annotations

from topicledger.errors import ClusterError
from topicledger.kafka import log_dirs
from topicledger.kafka.connection import TOPIC_AUTHORIZATION_FAILED, Connection, unknown_topic

_TOPICS_BATCH = 10_000


def unseen_topics(connection: Connection, on: int | None = None) -> int:
    """Count topics with replicas on live brokers that this principal may not describe.

    `on`: read only this broker, if it is up. Topics with replicas only on brokers that are down aren't counted. Raises
    ClusterError, naming the permission to grant, if the brokers don't answer.
    """
    up = [int(broker.node_id) for broker in connection.metadata([]).brokers]
    asked = [on] if on in up else up
    names = sorted({topic for broker in asked for topic in _topics_of_broker(connection, broker)})
    # Topics are described by name: one deleted in the meantime doesn't exist, and one created since isn't hidden.
    found = [
        topic
        for start in range(0, len(names), _TOPICS_BATCH)
        for topic in connection.metadata(names[start : start + _TOPICS_BATCH]).topics
    ]
    for topic in found:
        unknown = unknown_topic(topic)
        if unknown is not None:
            raise ClusterError(
                f"cluster {connection.name}: brokers answer {unknown} about topic {topic.name}, which may or may not "
                "exist: look for it in their logs"
            )
    return sum(topic.error_code == TOPIC_AUTHORIZATION_FAILED for topic in found)


def _topics_of_broker(connection: Connection, broker_id: int) -> set[str]:
    what = "which topics there are"
    answer = log_dirs.describe(connection, broker_id, f"{what} can't be read", gone=what)
    return {topic.name for each in answer.results for topic in each.topics}
