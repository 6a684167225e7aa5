"""Earlier runs' changes of a topic in `audit`, which show two tools that change the same config in turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.frames import materialised
from topicledger.ledger.outcomes import is_acknowledged
from topicledger.ledger.rows import audit_rows, touched, written_violations
from topicledger.ledger.run import Run
from topicledger.ledger.sql import iso_times
from topicledger.model import Action, Outcome, Phase
from topicledger.policies.contract import text
from topicledger.policies.evaluating import warning
from topicledger.schemas import ACTION_KEY, AUDIT

CHANGED_BACK = "changed_back"
"""The `policy` of the warning."""
_TIMES, _DAYS = 3, 30
"""This many times within this many days is no accident."""


def warn_of_changed_back(run: Run) -> None:
    """Warn in `audit`, phase policy, of each planned alter that sets a config to the same value for the third time.

    Another client changes it back each time.
    """
    alter = (F.col("action") == Action.ALTER_CONFIGS.value) & F.col("action").isNotNull()
    planned = run.plans().where(alter & F.col("phase").isNull())
    since = F.lit(datetime.now(UTC) - timedelta(days=_DAYS))
    earlier = run.ledger.read(AUDIT).where(
        alter & is_acknowledged() & (F.col("completed_at") >= since) & (F.col("run_id") != run.run_id)
    )
    again = (
        _values(planned, F.col("cluster_id"), F.col("before")[F.col("name")].alias("was"))
        .join(
            _values(earlier, F.col("run_id"), F.col("completed_at")),
            on=["cluster", "topic", "name", "value"],
            how="inner",
        )
        .groupBy("cluster", "cluster_id", "topic", "name", "value", "was")
        .agg(
            F.countDistinct("run_id").alias("runs"),
            F.max_by("run_id", "completed_at").alias("last_run"),
            F.max("completed_at").alias("last"),
        )
        .where(F.col("runs") >= _TIMES - 1)
    )
    warned = again.groupBy("cluster", "cluster_id", "topic").agg(
        written_violations(F.array_sort(F.flatten(F.collect_list(warning(CHANGED_BACK, _message()))))).alias(
            "violations"
        )
    )
    rows = warned.join(planned.select(*ACTION_KEY, "topic", "topic_id", "batch"), on=["cluster", "topic"])
    # A resumed plan may have these warnings already.
    noted = run.audit().where(alter & (F.col("phase") == Phase.POLICY.value)).select("cluster", "topic")
    new = rows.join(noted, on=["cluster", "topic"], how="left_anti").transform(materialised)
    if not new.isEmpty():
        values = {"phase": F.lit(Phase.POLICY.value), "outcome": F.lit(Outcome.OK.value), "error_code": F.lit(0)}
        run.append_audit(new.transform(audit_rows(run.run_id, run.manifest_version, **values)))


def _values(rows: DataFrame, *more: Column) -> DataFrame:
    """Each config that an alter sets or resets: cluster, topic, name, value (empty if it is reset), and `more`."""
    value = F.coalesce(F.col("after")[F.col("name")], F.lit(""))
    return rows.withColumn("name", F.explode(touched())).select("cluster", "topic", "name", value.alias("value"), *more)


def _message() -> Column:
    what = F.when(F.col("value") == "", text("reset it")).otherwise(text("set ", F.col("name"), "=", F.col("value")))
    now = F.coalesce("was", F.lit("the broker's default"))
    return text(
        F.col("name"), " is ", now, " again: ", F.col("runs"), f" runs of the last {_DAYS} days ", what,
        ", the last of them ", F.col("last_run"), " at ", iso_times(F.col("last")),
        "; find who changes it back, declare their value, or name the config in changes.ignore",
    )  # fmt: skip
