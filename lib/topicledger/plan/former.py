"""Former rows of `manifests`: the owners of topics that no row declares any more, and the topics that rows replaced."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.maintain import VACUUM_HOURS
from topicledger.ledger.outcomes import is_acknowledged
from topicledger.ledger.run import Run
from topicledger.manifests.rows import with_reasons, yours
from topicledger.model import TOPIC, Action
from topicledger.model.renames import REPLACED_BY, REPLACES
from topicledger.schemas import AUDIT, MANIFESTS, PLANS

log = logging.getLogger(__name__)

UNDECLARED = "undeclared"
"""Key in `plans.before` of the delete of a topic whose row was removed: the run that created the topic."""

_KEY = ("cluster", "topic")
_ROW = (*_KEY, "owner", REPLACES, "_removed", "_at")
"""Columns of a former row; `_removed`: whether it left the table; `_at`: when it was the last time as it is here."""


@dataclass(frozen=True, kw_only=True)
class Former:
    """Facts from rows that are gone."""

    owners: DataFrame
    """cluster, topic, `_owner_then`: the owner in the last row of a topic that had one; no row if it is unknown."""
    replaced: DataFrame
    """cluster, topic, `_replaced_by`: the last topic that replaced it."""


def former(run: Run) -> Former:
    """Return what former rows said: by the changes of `manifests`, the files of the plan, and earlier plans."""
    rows = _changes(run)
    if (files := run.unloaded.get(MANIFESTS.name)) is not None:
        now, there = F.current_timestamp(), run.ledger.read(MANIFESTS, run.manifest_version)
        gone = there.limit(0) if files.removed is None else files.removed
        for some, removed in ((gone, True), (there.where(F.col(REPLACES).isNotNull()), False)):
            rows = rows.unionByName(some.withColumns({"_removed": F.lit(removed), "_at": now}).select(*_ROW))
    plans = run.ledger.read_if_exists(PLANS).where(F.col("resource_type") == TOPIC)
    plans = plans.select("run_id", *_KEY, "owner", "before", F.col("planned_at").alias("_at"))
    before, done = F.col("before"), is_acknowledged() & (F.col("action") == Action.CREATE.value)
    created = run.ledger.read_if_exists(AUDIT).where(done).select("run_id", *_KEY)
    # Earlier deletes have the owner of the last row, which may be known from there only.
    deletes = plans.where(
        (before[UNDECLARED].isNotNull() | before[REPLACED_BY].isNotNull()) & F.col("owner").isNotNull()
    )
    owners = rows.where("_removed").select(*_KEY, "owner", "_at").unionByName(deletes.select(*_KEY, "owner", "_at"))
    by = F.col("topic").alias("_by")
    replaced = (
        rows.select("cluster", F.col(REPLACES).alias("topic"), by, "_at")
        .unionByName(
            plans.join(created, ["run_id", *_KEY], "left_semi").select(
                "cluster", before[REPLACES].alias("topic"), by, "_at"
            )
        )
        .unionByName(plans.select(*_KEY, before[REPLACED_BY].alias("_by"), "_at"))
        .where("topic IS NOT NULL AND _by IS NOT NULL")
    )
    return Former(
        owners=owners.groupBy(*_KEY).agg(F.max(F.struct("_at", "owner"))["owner"].alias("_owner_then")),
        replaced=replaced.groupBy(*_KEY).agg(F.max(F.struct("_at", "_by"))["_by"].alias("_replaced_by")),
    )


def _changes(run: Run) -> DataFrame:
    """Return rows that recent commits removed or changed, as they were, without those of owners that may not.

    Columns: `_ROW`. Files of older changes may be vacuumed.
    """
    since = run.ledger.oldest_changes(MANIFESTS, datetime.now(UTC) - timedelta(hours=VACUUM_HOURS))
    kind = F.col("_change_type")
    if since is not None:
        try:
            changes = run.ledger.changes(MANIFESTS, since).where(kind.isin("delete", "update_preimage"))
            allowed = changes.transform(with_reasons(yours(run.settings.owners))).where("error is null")
            removed, at = (kind == "delete").alias("_removed"), F.col("_commit_timestamp").alias("_at")
            return allowed.select(*_KEY, "owner", REPLACES, removed, at).transform(materialised)
        except PySparkException as error:
            log.warning("changes of table manifests can't be read, so owners of removed rows are unknown: %s", error)
    none = run.ledger.rows(MANIFESTS, [])
    return none.withColumns({"_removed": F.lit(True), "_at": F.current_timestamp()}).select(*_ROW)
