"""Moves that policies only allow because an alter of the same plan lowers the topic's min.insync.replicas.

The alter may fail, or a guard may stop it. So the plan notes the value, and right before a move is sent, `actions`
compares it with the topic's.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.kafka.config_values import plain_number, values_by_name
from topicledger.manifests.rows import Transform
from topicledger.model import ReplicaAction
from topicledger.policies import Policy
from topicledger.policies.contract import is_move
from topicledger.policies.evaluating import refused_by_row_rules
from topicledger.resources.topics.actions.min_insync import MIN_INSYNC, NEEDED_MIN_INSYNC


def with_needed_min_insync(rules: Sequence[Policy]) -> Transform:
    """Note `NEEDED_MIN_INSYNC` in `after` of moves that policies would refuse by the topic's configs of now.

    In and out: `phases.DECIDED` with moves, after their policies: those refuse moves by the configs after the alter.
    """
    refused = refused_by_row_rules([rule for rule in rules if rule.action is ReplicaAction.REASSIGN])
    needed = plain_number(F.col("_altered")[MIN_INSYNC]).try_cast("int").cast("string")
    note = F.map_concat("after", F.create_map(F.lit(NEEDED_MIN_INSYNC), F.col("_needed")))

    def transform(decisions: DataFrame) -> DataFrame:
        now = F.when(is_move(), values_by_name("live_configs")).otherwise(F.col("resolved_configs"))
        return (
            decisions.withColumns({"_altered": F.col("resolved_configs"), "resolved_configs": now})
            .withColumn("_needed", F.when(refused, needed))
            .withColumns(
                {
                    "after": F.when(F.col("_needed").isNotNull(), note).otherwise(F.col("after")),
                    "resolved_configs": F.col("_altered"),
                }
            )
            .select(*decisions.columns)
        )

    return transform
