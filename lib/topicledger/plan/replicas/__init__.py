"""Where replicas are to be: a pure planner, without Kafka and without Spark.

It takes one cluster's brokers and replicas and what is wanted of each topic, and returns the replicas of each partition
that changes. Everything that may stay stays; only what has to move is placed, and placed evenly.
"""

from topicledger.plan.replicas.fill import fill
from topicledger.plan.replicas.planner import create, plan
from topicledger.plan.replicas.values import Change, LiveCluster, TopicReplicas, Wish, bytes_moved, flows

__all__ = ["Change", "LiveCluster", "TopicReplicas", "Wish", "bytes_moved", "create", "fill", "flows", "plan"]
