"""The table of what topics hold and who uses them."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topicledger.schemas.definition import Table, skipping_by
from topicledger.schemas.definition import column as _column

_STRING, _INT, _BIGINT, _TIMESTAMP, _BOOLEAN = StringType(), IntegerType(), LongType(), TimestampType(), BooleanType()

GROUPS = ArrayType(
    StructType(
        [
            StructField("group", _STRING),
            StructField("state", _STRING),
            StructField("members", _INT),
            StructField("lag", _BIGINT),
        ]
    )
)
"""The groups that use a topic.

`state` is Kafka's, such as Stable or Empty. `members`: live members that use the topic. `lag`: records between the
group's committed offsets and the end of the same partitions; null if the group has committed none, or beyond the end,
and for share groups.
"""

USAGE = Table(
    name="usage",
    comment="Size and use of live topics, append-only: one row per topic and audit with usage",
    schema=StructType(
        [
            _column("run_id", _STRING, "the audit that read it"),
            _column("cluster", _STRING, "a name from the run settings"),
            _column("cluster_id", _STRING, "the Kafka cluster's own id"),
            _column("topic", _STRING, "the topic's name"),
            _column("topic_id", _STRING, "the topic's id; null if brokers have none (before 2.8)"),
            _column("internal", _BOOLEAN, "whether the topic is internal to Kafka, like __consumer_offsets"),
            _column("observed_at", _TIMESTAMP, "when the audit read the usage of the cluster's topics"),
            _column("partitions", _INT, "number of partitions"),
            _column("replication_factor", _INT, "largest number of replicas of a partition"),
            _column("bytes", _BIGINT, "size of all replicas on the brokers' disks"),
            _column("bytes_one_copy", _BIGINT, "size of one replica of each partition: the leader's"),
            _column("start_offset", _BIGINT, "sum of the partitions' first offsets"),
            _column("end_offset", _BIGINT, "sum of the partitions' end offsets: 0 if no record was ever written"),
            _column(
                "since",
                _TIMESTAMP,
                "observed_at of the previous row with an end offset and the same cluster and topic_id",
            ),
            _column("records_since", _BIGINT, "growth of end_offset after `since`: records that were written"),
            _column("bytes_since", _BIGINT, "change of bytes after `since`; negative if more was deleted than written"),
            _column("last_record_at", _TIMESTAMP, "largest timestamp of the retained records; producers may set it"),
            _column(
                "groups",
                GROUPS,
                "groups with live members or committed offsets on the topic, with their state, the members that use "
                "the topic, and the lag; empty: no group uses it",
            ),
            _column("producers", _INT, "number of idempotent producers that partitions remember (a day by default)"),
            _column("under_replicated", _INT, "partitions with fewer in-sync replicas than replicas"),
            _column("offline", _INT, "partitions without a leader"),
            _column("at_min_isr", _INT, "partitions with no more in-sync replicas than min.insync.replicas"),
            _column("reasons", MapType(_STRING, _STRING), "column -> why it is null; null never means zero or none"),
        ]
    ),
    properties={"delta.appendOnly": "true", **skipping_by("run_id", "cluster", "topic", "topic_id", "observed_at")},
)
