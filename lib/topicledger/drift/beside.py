"""Common code for drift of resources other than topics: rows of findings, and resources that can't be listed."""

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
"""Columns of a finding, all strings."""

Find: TypeAlias = Callable[[Estate, Listed, DataFrame, Settings], Transform]


@dataclass(frozen=True, kw_only=True)
class ResourceDrift:
    """How declared and live resources of one kind are compared."""

    kind: ResourceKind
    find: Find
    """The DataFrame is the result of `manifests.judge`. In: the result of the kind's `judge`, materialised; refused
    rows are not compared. Out: `find.COLUMNS`, one row per difference; ignored kinds are left out."""


def as_found(estate: Estate, settings: Settings, found: Sequence[DataFrame]) -> DataFrame:
    """Convert findings (`WHAT`) on audited clusters to `find.COLUMNS`, without ignored kinds."""
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
    """One finding per cluster where this principal may not list the resources called `what`."""
    failed = [
        (name, str(status.message)) for name, status in sorted(listed.statuses.items()) if status.error is not None
    ]
    rows = judged.sparkSession.createDataFrame(failed, "cluster string, message string")
    values = {"topic": None, "kind": DriftKind.NOT_PERMITTED.value, "what": what, "declared": None, "live": None}
    named = {name: F.lit(value).cast("string") for name, value in values.items()}
    return rows.withColumns(named).select(*WHAT)
