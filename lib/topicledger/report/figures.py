"""Transforms from table rows to a report's figures: DataFrame -> DataFrame, without Spark actions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.ledger import outcomes
from topicledger.ledger.rows import read_violations
from topicledger.model import OURS, Action, Outcome, Phase, RunState
from topicledger.plan.lines import ROW, as_returned, returned, with_destroys
from topicledger.report.facts import PROBLEMS, Age, Changed, ShownState
from topicledger.schemas import ACTION_KEY
from topicledger.text import MESSAGE_CHARACTERS

RESULTS = (
    "run_id",
    "cluster",
    "resource_type",
    "topic",
    "action",
    "phase",
    "outcome",
    "error",
    "error_message",
    "completed_at",
    "plan",
    "destroys",
)
_TOPIC = ("run_id", "cluster", "topic")
_RESOURCE = ("run_id", "cluster", "resource_type", "resource")
_BATCH = ("run_id", "cluster", "action", "phase", "batch")
_FOUND = ("cluster", "topic", "kind", "what")
_SENT = (Phase.APPLY.value, Phase.VERIFY.value)
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def results(audit: DataFrame, plans: DataFrame, applying: Collection[str], finished: Collection[str] = ()) -> DataFrame:
    """The state of each action, or of a topic that ended without one, as `RESULTS`.

    In: rows of `audit` and `plans` of some runs; `applying`: from `maybe_sent`; `finished`: ids of finished runs. A
    planned action without a row of `audit` is `open`, or `unknown` if its run has finished, so that the row was removed
    by age; one whose last phase is validation is `planned`, or `open` if its run is applying.
    `plan` has the columns `plan.lines.ROW`; counts that a create left to the broker are those that the broker returned.
    `destroys` (boolean): whether the action removes a resource, or can lose records.
    """
    planned = plans.where(F.col("phase").isNull() & F.col("action").isNotNull())
    last = outcomes.results(audit, planned, "completed_at", by=_RESOURCE)
    waits = F.when(F.col("run_id").isin(*applying), ShownState.OPEN.value).otherwise(ShownState.PLANNED.value)
    outcome = (
        F.when(F.col("phase").isNull() & F.col("run_id").isin(*finished), ShownState.UNKNOWN.value)
        .when(F.col("phase").isNull(), ShownState.OPEN.value)
        .when(outcomes.is_validated(), waits)
        .otherwise(F.col("outcome"))
    )
    short = F.substring("error_message", 1, MESSAGE_CHARACTERS)
    creates = audit.where((F.col("action") == Action.CREATE.value) & F.col("num_partitions").isNotNull())
    found = outcomes.by_action(creates, "run_id", more=returned())
    acts = plans.where(F.col("action").isNotNull()).join(found, on=["run_id", *ACTION_KEY], how="left")
    as_planned = (
        acts.withColumns(as_returned())
        .transform(with_destroys)
        .select(*_RESOURCE, "action", F.struct(*ROW).alias("plan"), "destroys")
    )
    rows = last.join(as_planned.dropDuplicates([*_RESOURCE, "action"]), on=[*_RESOURCE, "action"], how="left")
    destroys = F.coalesce("destroys", F.lit(False))
    return rows.withColumns({"outcome": outcome, "error_message": short, "destroys": destroys}).select(*RESULTS)


def maybe_sent(runs: DataFrame, sent: DataFrame) -> Collection[str]:
    """Return the ids of runs that are applying, or that were abandoned after requests may have been sent.

    In: rows of `runs` and of `sent_batches`.
    """
    state, of_run = F.col("state"), runs.select("run_id", "state")
    abandoned = of_run.where(state == RunState.ABANDONED.value).join(sent, on="run_id", how="left_semi")
    applying = of_run.where(state == RunState.APPLYING.value)
    return [row["run_id"] for row in applying.union(abandoned).collect()]


def unsent(found: DataFrame, runs: DataFrame) -> DataFrame:
    """Return the plans that sent nothing: run_id. In: `RESULTS`, and rows of `runs`."""
    sent = found.where(F.col("phase").isin(*_SENT)).select("run_id").distinct()
    plans = (F.col("arguments")["command"] == "plan") & (F.col("state") != RunState.APPLYING.value)
    return runs.where(plans).select("run_id").join(sent, on="run_id", how="left_anti")


def done(found: DataFrame) -> DataFrame:
    """Count what was done, once for each run: action, number. In: `RESULTS`."""
    ok = F.col("outcome").isin(Outcome.OK.value, Outcome.PENDING.value)
    return found.where(F.col("phase").isin(*_SENT) & ok).groupBy("action").agg(F.count(F.lit(1)).alias("number"))


def last_by_topic(found: DataFrame, starts: DataFrame) -> DataFrame:
    """Keep the results of each topic's last run, and rows without a topic. In and out: `RESULTS`.

    `starts`: run_id, started_at. An open action has no end time, so the last run is the one that started last.
    """
    latest = Window.partitionBy("cluster", "resource_type", "topic").orderBy(
        F.desc_nulls_last("started_at"), F.desc("run_id")
    )
    first = (F.rank().over(latest) == 1) | F.col("topic").isNull()
    ordered = found.join(starts.select("run_id", "started_at"), on="run_id", how="left")
    return ordered.withColumn("_last", first).where("_last").select(*RESULTS)


def tallies(found: DataFrame) -> DataFrame:
    """Count topics with the same state and reason, and name the first. In: `RESULTS`. Out: `facts.Tally`."""
    first = F.min_by(F.struct("topic", "error_message"), F.coalesce("topic", F.lit(""))).alias("_first")
    return (
        found.groupBy("cluster", "resource_type", "action", "phase", "outcome", "error")
        .agg(F.count(F.lit(1)).alias("topics"), first)
        .select(
            "cluster",
            "resource_type",
            "action",
            "phase",
            "outcome",
            "error",
            "topics",
            F.col("_first.topic").alias("example"),
            F.col("_first.error_message").alias("message"),
        )
    )


def by_policy(audit: DataFrame) -> DataFrame:
    """Count topics that violate a policy, by policy and cluster. In: rows of `audit`. Out: `facts.PolicyTally`.

    A topic that violates it twice in one run, before and after validation, counts once.
    """
    named = F.coalesce("topic", F.lit(""))
    return (
        audit.select(*_TOPIC, F.explode(read_violations(F.col("violations"))).alias("violation"))
        .select(
            *_TOPIC,
            F.col("violation.policy").alias("policy"),
            F.when(F.col("violation.warns"), "warn").otherwise("refuse").alias("mode"),
            F.substring("violation.message", 1, MESSAGE_CHARACTERS).alias("message"),
        )
        .groupBy("policy", "mode", "cluster")
        .agg(
            F.count_distinct(F.struct("run_id", named)).alias("topics"),
            F.min_by(F.struct("topic", "message"), named).alias("_first"),
        )
        .select(
            "policy",
            "mode",
            "cluster",
            "topics",
            F.col("_first.topic").alias("example"),
            F.col("_first.message").alias("message"),
        )
    )


def requests(audit: DataFrame) -> DataFrame:
    """Requests whose response had an outcome: one row per batch and `requested_at`. In: rows of `audit`.

    Out: run_id, cluster, action, phase, batch, requested_at, completed_at, topics, sent_again, attempts. Refusals of
    our own, without a request, are left out.
    """
    sent = F.col("phase").isin(Phase.VALIDATE.value, Phase.APPLY.value) & (F.col("error_code") != OURS)
    return (
        audit.where(sent & F.col("requested_at").isNotNull() & F.col("completed_at").isNotNull())
        .groupBy(*_BATCH, "requested_at")
        .agg(
            F.max("completed_at").alias("completed_at"),
            F.count(F.lit(1)).alias("topics"),
            F.count_if(F.col("attempt") > 1).alias("sent_again"),
            F.max("attempt").alias("attempts"),
        )
    )


def batches(sent: DataFrame) -> DataFrame:
    """Duration of each batch in seconds. In: the result of `requests`. Out: `facts.Batch`."""
    return sent.groupBy(*_BATCH).agg(
        F.sum("topics").alias("topics"),
        F.count(F.lit(1)).alias("requests"),
        F.max("attempts").alias("attempts"),
        F.min("requested_at").alias("began_at"),
        _seconds(F.min("requested_at"), F.max("completed_at")).alias("seconds"),
    )


def slowest_first(batches: DataFrame) -> DataFrame:
    """Order the result of `batches`: the slowest first; of two equally slow ones, the one that began earlier."""
    return batches.orderBy(F.desc("seconds"), "began_at", *_BATCH)


def waiting(sent: DataFrame) -> DataFrame:
    """Time in requests and between them by cluster and phase, in seconds. In: the result of `requests`.

    Out: `facts.Waiting`. A cluster gets one request at a time, so the time between two requests is waiting time.
    """
    in_order = Window.partitionBy("run_id", "cluster", "phase").orderBy("requested_at")
    until = F.max("completed_at").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    between = F.greatest(F.lit(0.0), _seconds(until, F.col("requested_at")))
    return (
        sent.withColumn("_between", F.when(until.isNotNull(), between).otherwise(F.lit(0.0)))
        .groupBy("cluster", "phase")
        .agg(
            F.sum("topics").alias("topics"),
            F.sum("sent_again").alias("sent_again"),
            F.count(F.lit(1)).alias("requests"),
            F.sum(_seconds(F.col("requested_at"), F.col("completed_at"))).alias("busy_seconds"),
            F.sum("_between").alias("between_seconds"),
            F.max("_between").alias("longest_seconds"),
        )
    )


def _seconds(start: Column, end: Column) -> Column:
    return end.cast("double") - start.cast("double")


def worst_first(found: DataFrame) -> DataFrame:
    """Order `RESULTS` for listing: problems, then what destroys something, then the rest; each by cluster and topic."""
    order = F.array_position(F.array(*(F.lit(shown.value) for shown in ShownState)), F.col("outcome"))
    harmless = F.when(F.col("outcome").isin(*(each.value for each in PROBLEMS)), -1).otherwise(
        F.when(F.col("destroys"), 0).otherwise(1)
    )
    return found.orderBy(harmless, order, "cluster", "topic", "run_id")


def changes(before: DataFrame, now: DataFrame) -> DataFrame:
    """Find topics whose problems are new, gone, unchanged or different.

    In: `RESULTS` twice. Out: `facts.ChangedProblem`. If several runs have a topic, the last one counts; if that has
    several results for it, a problem does. Rows without a topic can't be compared.
    """
    problem = F.col("outcome").isin(*(each.value for each in PROBLEMS))
    stand = F.struct(
        problem.alias("problem"),
        F.concat_ws(" ", "phase", "outcome").alias("stands"),
        F.col("error").alias("error"),
    )
    when = F.coalesce("completed_at", F.lit(_LONG_AGO))
    sides = {"before": before, "now": now}
    rows = [frame.where("topic IS NOT NULL").withColumn("_side", F.lit(name)) for name, frame in sides.items()]
    worst = F.max_by(stand, F.struct(problem, when)).alias("_stand")
    of_runs = (
        reduce(DataFrame.unionByName, rows)
        .groupBy("_side", "run_id", "cluster", "topic")
        .agg(worst, F.max(when).alias("_when"))
    )
    last = [F.max_by("_stand", F.when(F.col("_side") == name, F.col("_when"))).alias(f"_{name}") for name in sides]
    was, is_now = (F.coalesce(F.col(f"_{name}.problem"), F.lit(False)) for name in sides)
    change = (
        F.when(~was & is_now, Changed.NEW.value)
        .when(was & ~is_now, Changed.GONE.value)
        .when(was & is_now & ~F.col("_before.error").eqNullSafe(F.col("_now.error")), Changed.OTHER.value)
        .when(was & is_now, Changed.STILL.value)
    )
    stands = [
        F.when(F.col(f"_{name}").isNotNull(), F.concat_ws(": ", f"_{name}.stands", f"_{name}.error")).alias(name)
        for name in sides
    ]
    return (
        of_runs.groupBy("cluster", "topic")
        .agg(*last)
        .select(change.alias("change"), "cluster", "topic", *stands)
        .where(F.col("change").isNotNull())
    )


def drift_tallies(drift: DataFrame) -> DataFrame:
    """Count findings by cluster, kind, severity and age. In: rows of `drift`. Out: `facts.DriftTally`."""
    days = _seconds(F.coalesce("since", "observed_at"), F.col("observed_at")) / 86_400
    age = (
        F.when(days < 1, Age.DAY.value)
        .when(days < 7, Age.WEEK.value)
        .when(days < 30, Age.MONTH.value)
        .otherwise(Age.OLDER.value)
    )
    return (
        drift.withColumn("age", age)
        .groupBy("cluster", "kind", "severity", "age")
        .agg(F.count(F.lit(1)).alias("findings"))
    )


def drift_worst_first(drift: DataFrame) -> DataFrame:
    """Order rows of `drift` for listing: errors, warnings, the rest; the oldest first."""
    order = F.array_position(F.array(*map(F.lit, ("info", "warning", "error"))), F.col("severity"))
    return drift.orderBy(F.desc(order), F.asc_nulls_last("since"), *_FOUND)


def drift_changes(before: DataFrame, now: DataFrame, both: Column) -> DataFrame:
    """Find findings that are new, gone, unchanged or different.

    In: rows of `drift` twice. Out: `facts.ChangedProblem`. `both`: whether both audits compared a row's cluster
    (boolean); elsewhere, nothing is new or gone.
    """
    words = F.concat_ws(
        "",
        F.col("kind"),
        F.concat(F.lit(" "), F.col("what")),
        F.concat(F.lit(": declared "), F.col("declared")),
        F.concat(F.lit(", live "), F.col("live")),
    )
    rows = [
        frame.where(both).select(*_FOUND, words.alias("_words")).withColumn("_side", F.lit(name))
        for name, frame in {"before": before, "now": now}.items()
    ]
    sides = [
        F.max(F.when(F.col("_side") == name, F.substring("_words", 1, MESSAGE_CHARACTERS))).alias(name)
        for name in ("before", "now")
    ]
    change = (
        F.when(F.col("before").isNull(), Changed.NEW.value)
        .when(F.col("now").isNull(), Changed.GONE.value)
        .when(F.col("before") != F.col("now"), Changed.OTHER.value)
        .otherwise(Changed.STILL.value)
    )
    return (
        reduce(DataFrame.unionByName, rows)
        .groupBy(*_FOUND)
        .agg(*sides)
        .select(change.alias("change"), "cluster", "topic", "before", "now")
    )
