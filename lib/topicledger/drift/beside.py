"""What drift of each kind of resource beside topics has in common: rows of findings, and what can't be listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.config.severities import DriftKind
from topicledger.drift.find import COLUMNS, Estate, lookup
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.resources.kind import ResourceKind

WHAT = ("cluster", "topic", "kind", "what", "declared", "live", "message")
"""Of a finding, strings all of them."""

Find: TypeAlias = Callable[[Estate, Listed, DataFrame, Settings], Transform]


@dataclass(frozen=True, kw_only=True)
class ResourceDrift:
    """How what is declared and what lives of one kind are compared."""

    kind: ResourceKind
    find: Find
    """The DataFrame is what `manifests.judge` returns. In: what the kind's `judge` returns, materialised; refused rows
    are not compared. Out: `find.COLUMNS`, a row for each difference; kinds that are ignored are left out."""


def as_found(estate: Estate, settings: Settings, found: Sequence[DataFrame]) -> DataFrame:
    """Findings (`WHAT`) of audited clusters as `find.COLUMNS`, but for those of kinds that are ignored."""
    return (
        reduce(DataFrame.unionByName, found)
        .where(F.col("cluster").isin(*estate.cluster_ids))
        .withColumns(
            {
                "cluster_id": lookup(estate.cluster_ids, F.col("cluster")),
                "topic_id": F.lit(None).cast("string"),
                "severity": lookup(settings.audit.severity, F.col("kind")),
            }
        )
        .where("severity is not null")
        .select(*COLUMNS)
    )


def unknown(listed: Listed, judged: DataFrame, what: str) -> DataFrame:
    """A finding per cluster whose resources, called `what`, may not be listed."""
    failed = [
        (name, str(status.message)) for name, status in sorted(listed.statuses.items()) if status.error is not None
    ]
    rows = judged.sparkSession.createDataFrame(failed, "cluster string, message string")
    values = {"topic": None, "kind": DriftKind.NOT_PERMITTED.value, "what": what, "declared": None, "live": None}
    named = {name: F.lit(value).cast("string") for name, value in values.items()}
    return rows.withColumns(named).select(*WHAT)
