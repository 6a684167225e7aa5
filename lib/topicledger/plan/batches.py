"""Phase plan: the actions in order and in batches, as rows of `plans`."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.ledger.rows import written_violations
from topicledger.manifests.rows import Transform
from topicledger.model import TOPIC, Action
from topicledger.phases import PLANNED, returned
from topicledger.resources import registry

NEEDS_SOMETHING = "action IS NOT NULL OR phase IS NOT NULL"
"""Condition for decisions that a plan has: each action and each refusal."""


def records() -> Column:
    """Return the metadata records that the controller writes for an action (bigint): see `Cost.planned`."""
    kinds = registry.in_order()
    return F.coalesce(*(F.when(F.col("action") == kind.name, kind.cost.planned()) for kind in kinds), F.lit(0))


_GUARDED_FROM = 1_000_000
"""Distance between the batch numbers of actions that different guards stopped."""


def batched(most: int, *, guarded: bool = False) -> Transform:
    """Add `batch`, 0, 1, 2... per cluster and action, so that no batch has more than `most` records (C15).

    In: `cluster`, `action`, `resource`, `num_partitions`, `assignments`, `configs`, `before`, `after`, `moves`,
    `phase`, `waits`, `guards`; `batch` is null for rows that ended. Resources are ordered by name; those that wait for
    room which deletes make come last. A resource with more than `most`/2 records has its own batch. The others are cut
    into batches every `most`/2 records. A batch exceeds that by at most its last resource, which has at most `most`/2.

    With `guarded`, actions that guards stopped have batches, too. An approval lets actions with the same `guards`
    through together, so they share no batch with others.
    """
    half = max(1, most // 2)

    def transform(rows: DataFrame) -> DataFrame:
        alike = Window.partitionBy("cluster", "action", "_open", "_guards")
        together = Window.partitionBy("cluster", "action", "_open", "_guards", "waits")
        in_order = together.orderBy("resource")
        so_far = in_order.rowsBetween(Window.unboundedPreceding, -1)
        alone = F.col("_records") > half
        light = F.when(alone, F.lit(0)).otherwise(F.col("_records"))
        heavy = F.when(alone, F.lit(1)).otherwise(F.lit(0))
        shared = F.floor(F.coalesce(F.sum("_light").over(so_far), F.lit(0)) / half)
        of_light = F.when(F.col("_heavy") == 0, F.col("_shared"))
        last_shared = F.coalesce(F.max(of_light).over(together), F.lit(-1))
        own = last_shared + F.coalesce(F.sum("_heavy").over(so_far), F.lit(0)) + 1
        # The first batch number of the resources that wait.
        others = F.coalesce(F.max(F.when(~F.col("waits"), F.col("batch"))).over(alike) + 1, F.lit(0))
        by_guards = guards_text() if guarded else F.lit("")
        opens = F.col("phase").isNull() | F.col("guards").isNotNull() if guarded else F.col("phase").isNull()
        numbered = (
            rows.withColumns(
                {"_records": records(), "_open": opens & F.col("action").isNotNull(), "_guards": by_guards}
            )
            .withColumns({"_light": light, "_heavy": heavy})
            .withColumn("_shared", shared)
            .withColumn("batch", F.when(F.col("_open"), F.when(alone, own).otherwise(F.col("_shared")).cast("int")))
            .withColumn("batch", F.when(F.col("waits"), F.col("batch") + others).otherwise(F.col("batch")))
        )
        if guarded:
            before = F.collect_set("_guards").over(Window.partitionBy("cluster", "action").orderBy("_guards"))
            numbered = numbered.withColumn("batch", F.col("batch") + (F.size(before) - 1) * _GUARDED_FROM)
        return numbered.drop("_records", "_open", "_guards", "_light", "_heavy", "_shared")

    return transform


def guards_text() -> Column:
    """Return `guards` as text (string), such as `deletes=2,losses=5`; empty if there are none."""
    entries = F.array_sort(F.map_entries("guards"))
    return F.coalesce(
        F.array_join(F.transform(entries, lambda each: F.concat_ws("=", each["key"], each["value"])), ","), F.lit("")
    )


def of_topics(decisions: DataFrame) -> DataFrame:
    """Add `resource_type` and `resource` to decisions on topics."""
    return decisions.withColumns({"resource_type": F.lit(TOPIC), "resource": F.col("topic")})


def planned(
    run_id: str,
    manifest_version: int | None,
    planned_at: datetime,
    max_batch_records: int,
    *,
    guarded: bool = False,
) -> Transform:
    """Turn decisions into rows of `plans`. `guarded`: whether guards stopped some actions.

    In: `phases.EVALUATED`, `resource_type` and `resource`, only rows that meet `NEEDS_SOMETHING`. Out:
    `phases.PLANNED`. A create has no live id yet.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        rows = (
            decisions.transform(batched(max_batch_records, guarded=guarded))
            .withColumns(
                {
                    "run_id": F.lit(run_id),
                    "topic_id": F.when(F.col("action") != Action.CREATE.value, F.col("topic_id")),
                    "manifest_version": F.lit(manifest_version).cast("bigint"),
                    "planned_at": F.lit(planned_at),
                    "violations": written_violations(F.col("violations")),
                }
            )
            .select(*PLANNED.names)
        )
        return returned("plan", rows, PLANNED)

    return transform
