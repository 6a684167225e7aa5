"""Policies for moves of replicas; see `create_together`."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from topicledger.kafka.config_values import trimmed
from topicledger.model import Refusal, ReplicaAction
from topicledger.policies.built_in import always_on, built_in
from topicledger.policies.contract import Facts, RowRule, SetRule, config, fewer_replicas, is_move, text


@always_on(ReplicaAction.REASSIGN, Refusal.BELOW_MIN_INSYNC)
def enough_replicas() -> RowRule:
    """A move leaves no partition with fewer replicas than its topic's min.insync.replicas."""
    name = "min.insync.replicas"
    value, lowered = config(name), F.size(fewer_replicas()) > 0
    # Another partition that moves may have too few replicas already.
    least = F.array_min(F.transform(fewer_replicas(), lambda each: each["after"]))
    needed = trimmed(value).try_cast("int")
    return RowRule(
        reason=F.when(
            lowered & (least < needed),
            text(
                "replication factor ", least, f" is below the topic's {name}, ", value,
                f": declare a factor of {name} or more, or lower {name} in an earlier run",
            ),
        ),
        unjudgeable=F.when(
            lowered & needed.isNull(),
            F.lit(f"the replication factor is lowered, and {name} of the topic is unknown: declare {name}, or grant "
            "this principal DescribeConfigs"),
        ),
        inputs=text("replicas ", least, f"; {name} ", value),
    )  # fmt: skip


@built_in(ReplicaAction.REASSIGN)
def max_bytes_moved(*, max_bytes: int) -> SetRule:
    """The moves of a run copy at most `max_bytes` on a cluster; the first over it and all later ones are refused."""
    if not 0 <= max_bytes < 2**62:
        raise ValueError("max_bytes must be 0 or more")

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        size = F.when(is_move(), F.col("after")["bytes"].try_cast("bigint"))
        in_order = Window.partitionBy("cluster").orderBy("topic").rowsBetween(Window.unboundedPreceding, 0)
        rows = topics.withColumn("_so_far", F.sum(F.when(F.col("open"), size)).over(in_order))
        so_far = F.col("_so_far")
        return rows.withColumns(
            {
                "reason": F.when(
                    (so_far > max_bytes) & size.isNotNull(),
                    text(
                        "copies ", size, " bytes, and with it the moves on the cluster copy ", so_far,
                        f"; at most {max_bytes} are allowed in a run",
                    ),
                ),
                "unjudgeable": F.when(
                    size.isNull(),
                    "it isn't known how large its replicas are: grant this principal Describe on the cluster",
                ),
                "inputs": text("bytes ", size),
            }
        )  # fmt: skip

    return rule
