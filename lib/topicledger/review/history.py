"""The history of a topic from the tables: who declared, planned, approved and changed it, and how it drifted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from topicledger.ledger.run import shard_of
from topicledger.ledger.tables import Ledger
from topicledger.model import TOPIC, Outcome, Phase
from topicledger.plan.allowing import in_words
from topicledger.plan.lines import PlannedAction, planned_action
from topicledger.resources.registry import ACTIONS
from topicledger.schemas import APPROVALS, AUDIT, DRIFT, MANIFESTS, PLANS, RUNS
from topicledger.text import iso_time

DECLARED, PLANNED, APPROVED, DRIFTED = "declared", "planned", "approved", "drift"
"""Kinds of events, besides what actions did (`ActionKind.shown`) and outcomes that aren't ok."""
_LOAD = "load_manifests"
_CLOCKS = timedelta(seconds=10)
"""Allowed difference between the clocks of a driver and its storage."""
_SHOWN = (
    "state",
    "num_partitions",
    "replication_factor",
    "placement",
    "assignments",
    "configs",
    "owner",
    "labels",
    "replaces",
    "description",
)


@dataclass(frozen=True, kw_only=True)
class TopicEvent:
    """One event in the history of a topic."""

    at: datetime
    """UTC; for drift, when it was first found."""
    what: str
    """declared, planned, approved, drift, what an action did (such as created), or an outcome that isn't ok."""
    run_id: str | None
    """The run; for a declaration, the load, or None if something else wrote it or several loads may have."""
    details: str | None
    requested_by: str | None
    """The person or job that requested the run; for an approval, the approver."""


@dataclass(frozen=True, kw_only=True)
class TopicHistory:
    """All events of a topic, oldest first."""

    cluster: str
    topic: str
    events: Sequence[TopicEvent]
    notes: Sequence[str] = ()
    """Gaps in the history, and their reasons."""


def of_topic(ledger: Ledger, cluster: str, topic: str) -> TopicHistory:
    """Read the history of a topic from the tables that exist; files without the topic are skipped."""
    (found,) = of_topics(ledger, [(cluster, topic)])
    return found


def of_topics(ledger: Ledger, topics: Sequence[tuple[str, str]]) -> Sequence[TopicHistory]:
    """Read the histories of several topics (cluster, topic) with as many queries as for one."""
    # Lets Delta skip files by their statistics of `topic`.
    named = F.col("topic").isin(*{topic for _, topic in topics})
    of = named & reduce(or_, ((F.col("cluster") == cluster) & (F.col("topic") == topic) for cluster, topic in topics))
    notes: list[str] = []
    planned: list[Row] = []
    if ledger.exists(PLANS):
        planned = ledger.read(PLANS).where(of & _of_topics()).collect()
    audited = ledger.read(AUDIT).where(of & _of_topics()).collect() if ledger.exists(AUDIT) else []
    drift = _drift(ledger, of) if ledger.exists(DRIFT) else []
    declared = _declared(ledger, of, notes) if ledger.exists(MANIFESTS) else []
    run_ids = {row["run_id"] for rows in (planned, audited) for row in rows} | {row["last_run"] for row in drift}
    known = _runs(ledger, run_ids) if ledger.exists(RUNS) else {}
    asked = {run_id: row["requested_by"] for run_id, row in known.items()}
    loads = _loads(ledger, declared) if declared and ledger.exists(RUNS) else []
    approved = _approvals(ledger, {row["run_id"] for row in planned})
    by_topic = [_by_topic(rows) for rows in (planned, audited, drift, declared)]
    found = []
    for key in topics:
        own = [rows.get(key, ()) for rows in by_topic]
        events = _events(*own, approved=approved, loads=loads, asked=asked)
        found.append(TopicHistory(cluster=key[0], topic=key[1], events=events, notes=notes))
    return found


def _by_topic(rows: Iterable[Row]) -> Mapping[tuple[str, str], Sequence[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["cluster"], row["topic"]), []).append(row)
    return found


def _events(
    planned: Sequence[Row],
    audited: Sequence[Row],
    drift: Sequence[Row],
    declared: Sequence[Row],
    *,
    approved: Sequence[Row],
    loads: Sequence[Row],
    asked: Mapping[str, str | None],
) -> Sequence[TopicEvent]:
    """Events of one topic, oldest first; `approved`, `loads` and `asked` may include those of other topics."""
    runs = {row["run_id"] for row in planned}
    events = [
        *_of_manifests(declared, loads),
        *_of_plans(planned, {row["run_id"] for row in audited}, asked),
        *_of_audit(audited, planned, asked),
        *_of_approvals(row for row in approved if row["run_id"] in runs),
        *_of_drift(drift, asked),
    ]
    order = [DECLARED, PLANNED, APPROVED]
    return sorted(
        events, key=lambda each: (each.at, order.index(each.what) if each.what in order else len(order), each.what)
    )


def _of_topics() -> Column:
    return F.col("resource_type") == TOPIC


def _utc(moment: datetime) -> datetime:
    # PySpark returns naive timestamps in this process's own time zone.
    return moment.astimezone(UTC)


def _runs(ledger: Ledger, run_ids: Collection[str]) -> Mapping[str, Row]:
    """Rows of `runs` by their ids; other partitions are not read."""
    if not run_ids:
        return {}
    shards = F.col("shard").isin(*{shard_of(each) for each in run_ids}) | F.col("shard").isNull()
    rows = ledger.read(RUNS).where(shards & F.col("run_id").isin(*run_ids)).select("run_id", "requested_by")
    return {row["run_id"]: row for row in rows.collect()}


def _declared(ledger: Ledger, of: Column, notes: list[str]) -> Sequence[Row]:
    """Changes of the topics' rows in `manifests`, from the table's change data feed, as far back as it goes."""
    first = ledger.oldest_changes(MANIFESTS)
    if first is None:
        notes.append("table manifests keeps no changes: who declared the topic is unknown")
        return []
    if first > 0:
        notes.append(f"changes of table manifests before version {first} are no longer kept: who made them is unknown")
    kept = F.col("_change_type") != "update_preimage"
    try:
        return ledger.changes(MANIFESTS, first).where(of & kept).collect()
    except PySparkException:
        notes.append("changes of table manifests can no longer be read: who declared the topic is unknown")
        return []


def _loads(ledger: Ledger, declared: Sequence[Row]) -> Sequence[Row]:
    """Loads that may have made these changes."""
    moments = [row["_commit_timestamp"] for row in declared]
    ended = F.coalesce("finished_at", F.lit(max(moments)))
    return (
        ledger.read(RUNS)
        .where((F.col("arguments")["command"] == _LOAD) & (F.col("exit_code") == 0))
        .where((F.col("started_at") <= F.lit(max(moments))) & (ended >= F.lit(min(moments) - _CLOCKS)))
        .select("run_id", "requested_by", "started_at", "finished_at", "manifest_version")
        .collect()
    )


def _of_manifests(declared: Iterable[Row], loads: Sequence[Row]) -> Iterator[TopicEvent]:
    for row in declared:
        at = row["_commit_timestamp"]
        # A load's row has the table version at its end; another writer may have committed in between.
        by = [
            each
            for each in loads
            if each["manifest_version"] >= row["_commit_version"]
            and each["started_at"] - _CLOCKS <= at
            and (each["finished_at"] is None or at <= each["finished_at"] + _CLOCKS)
        ]
        own = [each for each in by if each["manifest_version"] == row["_commit_version"]] or by
        load = own[0] if len(own) == 1 else None
        removed = row["_change_type"] == "delete"
        yield TopicEvent(
            at=_utc(at),
            what="no longer declared" if removed else DECLARED,
            run_id=None if load is None else load["run_id"],
            details=f"manifests at version {row['_commit_version']}" + ("" if removed else f": {_declaration(row)}"),
            requested_by=None if load is None else load["requested_by"],
        )


def _declaration(row: Row) -> str:
    given = row.asDict(recursive=True)
    return ", ".join(f"{name} {_as_text(given[name])}" for name in _SHOWN if given.get(name) not in (None, {}))


def _as_text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={each}" for name, each in sorted(value.items()))
    return str(value)


def _of_plans(
    planned: Iterable[Row], audited: Collection[str], asked: Mapping[str, str | None]
) -> Iterator[TopicEvent]:
    """Events from `plans`, without rows that had ended by then if `audit` has rows of the run: it has these, too."""
    for row in planned:
        if row["phase"] is None and row["action"] is not None:
            yield _event(row, "planned_at", PLANNED, str(planned_action(row)), asked)
        elif row["run_id"] not in audited:
            yield _event(row, "planned_at", row["outcome"], _why(row), asked)


def _of_audit(audited: Iterable[Row], planned: Iterable[Row], asked: Mapping[str, str | None]) -> Iterator[TopicEvent]:
    actions = {(row["run_id"], row["action"]): planned_action(row) for row in planned if row["action"] is not None}
    for row in audited:
        if row["outcome"] != Outcome.OK:
            yield _event(row, "completed_at", row["outcome"], _why(row), asked)
        elif row["phase"] == Phase.APPLY:
            kind, action = ACTIONS.get(row["action"]), actions.get((row["run_id"], row["action"]))
            yield _event(row, "completed_at", kind.shown.done if kind else row["action"], _done(row, action), asked)


def _done(row: Row, action: PlannedAction | None) -> str | None:
    what, named = (action.what if action else None), (f"id {row['topic_id']}" if row["topic_id"] else None)
    return ", ".join(filter(None, (what, row["error"], named))) or None


def _why(row: Row) -> str:
    what = " ".join(filter(None, (row["action"], f"({row['phase']})")))
    return ": ".join(filter(None, (what, row["error"], row["error_message"])))


def _event(row: Row, at: str, what: str, details: str | None, asked: Mapping[str, str | None]) -> TopicEvent:
    run_id = row["run_id"]
    return TopicEvent(at=_utc(row[at]), what=what, run_id=run_id, details=details, requested_by=asked.get(run_id))


def _approvals(ledger: Ledger, run_ids: Collection[str]) -> Sequence[Row]:
    if not run_ids or not ledger.exists(APPROVALS):
        return []
    return ledger.read(APPROVALS).where(F.col("run_id").isin(*run_ids)).collect()


def _of_approvals(approved: Iterable[Row]) -> Iterator[TopicEvent]:
    for row in approved:
        allows = f"allowed {in_words(row['allows'])}" if row["allows"] else None
        details = ", ".join(filter(None, (allows, row["note"]))) or None
        yield TopicEvent(
            at=_utc(row["at"]), what=APPROVED, run_id=row["run_id"], details=details, requested_by=row["by"]
        )


def _drift(ledger: Ledger, of: Column) -> Sequence[Row]:
    """Unbroken series of findings, each with the first and the last audit that found it."""
    seen = ("declared", "live", "severity", "run_id")
    return (
        ledger.read(DRIFT)
        .where(of)
        .groupBy("cluster", "topic", "kind", "what", F.coalesce("since", "observed_at").alias("since"))
        .agg(
            *(F.max_by(name, "observed_at").alias(f"last_{name}") for name in seen),
            F.max("observed_at").alias("last_observed_at"),
            F.count(F.lit(1)).alias("audits"),
        )
        .withColumnRenamed("last_run_id", "last_run")
        .collect()
    )


def _of_drift(drift: Iterable[Row], asked: Mapping[str, str | None]) -> Iterator[TopicEvent]:
    for row in drift:
        values = (f"{name} {row[f'last_{name}']}" for name in ("declared", "live") if row[f"last_{name}"] is not None)
        until = iso_time(row["last_observed_at"])
        audits = "1 audit" if row["audits"] == 1 else f"{row['audits']:,} audits"
        kind = " ".join(filter(None, (row["last_severity"], row["kind"], row["what"])))
        words: Sequence[Any] = (kind, *values, f"found by {audits}, the last at {until}")
        run_id = row["last_run"]
        yield TopicEvent(
            at=_utc(row["since"]),
            what=DRIFTED,
            run_id=run_id,
            details=", ".join(map(str, words)),
            requested_by=asked.get(run_id),
        )
