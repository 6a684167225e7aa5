"""Placement of replicas: a pure planner, without Kafka and without Spark.

It takes one cluster's brokers, replicas and wishes for topics, and returns the replicas of each partition that changes.
Replicas stay if they may; only those that have to move are placed, evenly.
"""

from topicledger.resources.topics.plan.replicas.fill import fill
from topicledger.resources.topics.plan.replicas.planner import create, plan
from topicledger.resources.topics.plan.replicas.values import (
    Change,
    LiveCluster,
    TopicReplicas,
    Wish,
    bytes_moved,
    flows,
)

__all__ = ["Change", "LiveCluster", "TopicReplicas", "Wish", "bytes_moved", "create", "fill", "flows", "plan"]
