"""Former rows of `manifests`: the owners of topics that no row declares any more, and the topics that rows replaced."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.maintain import VACUUM_HOURS
from topicledger.ledger.outcomes import is_acknowledged
from topicledger.ledger.rows import is_replaced, is_undeclared
from topicledger.ledger.run import Run
from topicledger.manifests.rows import with_reasons, yours
from topicledger.model import TOPIC, Action, Phase
from topicledger.model.renames import REPLACED_BY, REPLACES
from topicledger.schemas import AUDIT, MANIFESTS, PLANS

log = logging.getLogger(__name__)

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
    known: DataFrame
    """cluster, topic, `_known` (true): topics without a row of which it is known whether any row replaced them."""


@dataclass(frozen=True, kw_only=True)
class _Feed:
    """Changes of `manifests`."""

    rows: DataFrame
    """Rows that commits removed or changed, as they were, without those of owners that may not. Columns: `_ROW`."""
    named: DataFrame
    """cluster, topic of all rows that commits removed or changed."""
    since: int | None
    """The first version whose changes are here, as are all later ones; None if none can be read."""


def former(run: Run) -> Former:
    """Return what former rows said: by the changes of `manifests`, the files of the plan, and earlier plans.

    Whether a topic was replaced is known from the version on at which a row or an earlier plan had it, if the changes
    since then can be read: no row replaces a topic that is declared.
    """
    feed = _changes(run)
    rows, named = feed.rows, feed.named
    if (files := run.unloaded.get(MANIFESTS.name)) is not None:
        now, there = F.current_timestamp(), run.ledger.read(MANIFESTS, run.manifest_version)
        gone = there.limit(0) if files.removed is None else files.removed
        for some, removed in ((gone, True), (there.where(F.col(REPLACES).isNotNull()), False)):
            rows = rows.unionByName(some.withColumns({"_removed": F.lit(removed), "_at": now}).select(*_ROW))
        named = named.unionByName(gone.select(*_KEY))
    plans = run.ledger.read_if_exists(PLANS).where(F.col("resource_type") == TOPIC)
    plans = plans.select(
        "run_id", *_KEY, "owner", "before", "phase", "manifest_version", F.col("planned_at").alias("_at")
    )
    before, done = F.col("before"), is_acknowledged() & (F.col("action") == Action.CREATE.value)
    created = run.ledger.read_if_exists(AUDIT).where(done).select("run_id", *_KEY)
    # Earlier deletes have the owner of the last row, which may be known from there only.
    deletes = plans.where((is_undeclared() | is_replaced()) & F.col("owner").isNotNull())
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
    if feed.since is not None:
        # An earlier plan knew it, unless it kept the topic because it didn't.
        knew = is_undeclared() & ~F.col("phase").eqNullSafe(F.lit(Phase.OBSERVE.value))
        named = named.unionByName(plans.where(knew & (F.col("manifest_version") >= feed.since - 1)).select(*_KEY))
    known = named.unionByName(replaced.select(*_KEY)).distinct()
    return Former(
        owners=owners.groupBy(*_KEY).agg(F.max(F.struct("_at", "owner"))["owner"].alias("_owner_then")),
        replaced=replaced.groupBy(*_KEY).agg(F.max(F.struct("_at", "_by"))["_by"].alias("_replaced_by")),
        known=known.withColumn("_known", F.lit(True)),
    )


def _changes(run: Run) -> _Feed:
    """Return the recent changes of `manifests`: files of older ones may be vacuumed."""
    since = run.ledger.oldest_changes(MANIFESTS, datetime.now(UTC) - timedelta(hours=VACUUM_HOURS))
    none = run.ledger.rows(MANIFESTS, []).withColumns({"_removed": F.lit(True), "_at": F.current_timestamp()})
    empty = _Feed(rows=none.select(*_ROW), named=none.select(*_KEY), since=None)
    if since is None:
        # Either nothing has changed for so long, or the table's writer records no changes.
        kept = run.ledger.oldest_changes(MANIFESTS) is not None
        return replace(empty, since=run.manifest_version + 1) if kept else empty
    kind = F.col("_change_type")
    try:
        changes = run.ledger.changes(MANIFESTS, since).where(kind.isin("delete", "update_preimage"))
        removed, at = (kind == "delete").alias("_removed"), F.col("_commit_timestamp").alias("_at")
        rows = changes.select(*_KEY, "owner", REPLACES, removed, at).transform(materialised)
    except PySparkException as error:
        log.warning(
            "changes of table manifests can't be read, so owners of removed rows are unknown, and whether other topics "
            "replaced theirs: %s",
            error,
        )
        return empty
    allowed = rows.transform(with_reasons(yours(run.settings.owners))).where("error is null")
    return _Feed(rows=allowed.select(*_ROW), named=rows.select(*_KEY), since=since)
