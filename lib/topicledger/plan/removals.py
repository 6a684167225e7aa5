"""Rows that a plan's files remove, on clusters that can't be decided on: they leave the run open like declared ones."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from topicledger.frames import materialised
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import TOPIC, Outcome, Phase, Refusal
from topicledger.observe.topics import Observation
from topicledger.phases import EVALUATED, in_order
from topicledger.plan.decided import Decided
from topicledger.resources.registry import KINDS
from topicledger.schemas import MANIFESTS, PLANS, Table

_KEY = ("cluster", "resource_type", "resource")
_PLANNED = StructType([*EVALUATED, PLANS.schema["resource_type"], PLANS.schema["resource"]])


def with_removed(run: Run, table: Table, validate: Transform, lost: Collection[str]) -> Transform:
    """Add removed rows to validated ones, for clusters that can't be decided on: they end with the reason.

    `lost`: those where removed rows cause actions. In and out: as `validate` returns.
    """
    files = run.unloaded.get(table.name)
    if not lost or files is None or files.removed is None:
        return lambda validated: validated
    removed = files.removed.where(F.col("cluster").isin(*lost)).transform(validate).where("phase IS NULL")
    return lambda validated: validated.unionByName(removed)


def reached_again(run: Run, decided: Decided, seen: Observation) -> Decided:
    """Return a later row for what an earlier start couldn't reach and nothing was decided on now.

    It is skipped if no row declares it any more. Rows of the tables came from a file that is not as planned; the
    row is refused, since this plan doesn't know how it should be.
    """
    unreached = F.col("error").eqNullSafe(F.lit(Refusal.CLUSTER_UNREACHABLE.value)) & F.col("resource").isNotNull()
    left = run.plans().where(unreached & F.col("cluster").isin(*seen.known)).dropDuplicates([*_KEY])
    if decided.rows is not None:
        left = left.join(decided.rows.select(*_KEY), on=[*_KEY], how="left_anti")
    same = ("cluster", "cluster_id", "resource_type", "resource", "topic", "owner")
    declared = F.col("_declared").isNotNull()
    values = {
        **{name: F.col(name) for name in same},
        "phase": F.lit(Phase.POLICY.value),
        "outcome": F.when(declared, F.lit(Outcome.REFUSED.value)).otherwise(F.lit(Outcome.SKIPPED.value)),
        "error": F.when(declared, F.lit(Refusal.CHANGED_SINCE_PLAN.value)),
        "error_message": F.when(declared, F.lit(_CHANGED)).otherwise(F.lit(_NOTHING_TO_DO)),
        "waits": F.lit(False),
    }
    rows = (
        left.join(_declared_now(run), on=[*_KEY], how="left")
        .select(*in_order(_PLANNED, values))
        .transform(materialised)
    )
    return Decided(rows=rows, size=rows.count(), ended=True)


_NOTHING_TO_DO = "nothing to do, now that the cluster was reached: no row declares it any more"
_CHANGED = (
    "no given file declares it as it was when planned, but a row of the tables declares it: plan it in another run"
)


def _declared_now(run: Run) -> DataFrame:
    """Return the resources that the latest tables declare: `_KEY`, and `_declared` (true)."""
    topics = run.ledger.read(MANIFESTS).select("cluster", F.lit(TOPIC), "topic")
    clusters = list(run.settings.clusters)
    for kind in KINDS:
        rows = run.ledger.read_if_exists(kind.table).transform(kind.rows.validate(clusters, None))
        topics = topics.union(rows.select("cluster", F.lit(kind.resource_type), "resource"))
    return topics.toDF(*_KEY).where("resource IS NOT NULL").distinct().withColumn("_declared", F.lit(True))
