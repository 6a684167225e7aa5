"""Evaluate policies again on a run's open actions, with facts that the plan didn't have.

After validate, these are the values that brokers resolved. Before a resumed plan is applied, they are current metadata
and usages. After the deletes, they are the deletes that freed room for waiting creates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.frames import materialised
from topicledger.kafka.config_values import values_by_name
from topicledger.ledger.leases import Leases
from topicledger.ledger.outcomes import Standing, is_ok, is_phase, with_outcomes
from topicledger.ledger.rows import audit_rows, read_violations, written_violations
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.model import OURS, Action, Decision, Outcome, Phase, Refusal
from topicledger.observe.topics import Observation
from topicledger.phases import DECIDED, VIOLATIONS, in_order, null, returned
from topicledger.policies import Facts, Policy
from topicledger.policies.contract import MAKE_PARTITIONS, created_replicas, partitions
from topicledger.resources.topics.observe.topic_use import read_consumer_groups, read_last_records, read_unseen_topics
from topicledger.resources.topics.plan.recreated import created_before, evaluate
from topicledger.schemas import MANIFESTS, USAGES

NOTED = StructType([StructField(name, VIOLATIONS) for name in ("planned_violations", "noted_violations")])
"""Columns in addition to `phases.DECIDED`: the violations that the plan, or a row of `audit`, has already."""
DECIDED_AGAIN = StructType([*DECIDED, *NOTED])


def facts(ledger: Ledger, settings: Settings, clusters: Sequence[ClusterSettings], brokers: DataFrame) -> Facts:
    """Return the data that policies may read in addition to the topics."""
    return Facts(
        brokers=brokers,
        usages=ledger.read(USAGES),
        now=datetime.now(UTC),
        consumer_groups=lambda topics: read_consumer_groups(ledger.spark, clusters, settings.kafka, topics),
        last_records=lambda topics: read_last_records(ledger.spark, clusters, settings.kafka, topics),
        unseen_topics=lambda named: read_unseen_topics(ledger.spark, clusters, settings.kafka, named),
        manifests=lambda: ledger.read(MANIFESTS),
        clusters=tuple(settings.clusters),
    )


@dataclass(frozen=True, kw_only=True)
class Reevaluated:
    """Result of the evaluation."""

    reported: bool
    """Whether rows were appended to `audit`: for refusals and new warnings."""
    waiting: DataFrame | None
    """(cluster, topic) of creates that need room which open deletes must make first; None if there are none."""


def reevaluate(
    run: Run,
    rules: Sequence[Policy],
    seen: Observation,
    manifest_version: int,
    phase: Phase,
    *actions: Action,
    waited: DataFrame | None = None,
    held: Leases | None = None,
    refusable: Callable[[DataFrame], DataFrame] | None = None,
) -> Reevaluated:
    """Evaluate open actions of these kinds again; refused ones get their last row in `audit`, in `phase`.

    They are evaluated on `seen`, this start's observation; clusters that it didn't reach are left out. Owners and
    labels are from the manifests at `manifest_version`.

    Creates of `waited` that still have no room fail with BUDGET_NOT_FREED. New warnings get a row of phase policy with
    outcome ok. `held`: the leases of a run that changes clusters. `refusable` takes out of refused rows those that an
    earlier start may have sent, since refused means not sent. In: `cluster`, `resource`, `action`, `error`,
    `error_message`.
    """
    # Clusters without open actions may be unreachable: they aren't asked.
    concerned = run.open_actions().select("cluster").distinct()
    brokers = seen.brokers.join(concerned, on="cluster", how="left_semi")
    known = facts(run.ledger, run.settings, run.clusters, brokers)
    rows = topics(run, seen, manifest_version)
    # Deletes first: only those that will be sent make room.
    for together in ((Action.DELETE,), MAKE_PARTITIONS):
        asked = [each for each in rules if each.action in together and each.action in actions]
        created = created_before(run.ledger, run.settings) if together is MAKE_PARTITIONS else None
        rows = rows.transform(evaluate(asked, known, created))
    evaluated = (
        rows.where(F.col("waits") | F.col("violations").isNotNull())
        .select(
            "cluster", "cluster_id", "topic", "topic_id", F.col("decision").alias("action"),
            "phase", "outcome", "error", "error_message", "violations", "waits", *NOTED.names,
        )
        .transform(materialised)
    )  # fmt: skip
    refused = F.col("outcome") == Outcome.REFUSED.value
    planned = F.coalesce("planned_violations", F.array().cast(VIOLATIONS))
    new = F.col("noted_violations").isNull() & (F.size(F.array_except("violations", planned)) > 0)
    reported = evaluated.where(F.coalesce(refused, F.lit(False)) | (F.col("violations").isNotNull() & new))
    if refusable is not None:
        is_refused = F.coalesce(refused, F.lit(False))
        unsent = reported.where(is_refused).withColumn("resource", F.col("topic")).transform(refusable)
        reported = reported.where(~is_refused).unionByName(unsent.drop("resource"))
    any_reported = not reported.isEmpty()
    if any_reported:
        run.append_audit(reported.transform(partial(_as_audit, run=run, phase=phase, waited=waited)), held)
    waiting = evaluated.where(F.col("waits") & F.col("phase").isNull()).select("cluster", "topic")
    return Reevaluated(reported=any_reported, waiting=None if waiting.isEmpty() else waiting)


def _as_audit(evaluated: DataFrame, *, run: Run, phase: Phase, waited: DataFrame | None) -> DataFrame:
    """Convert evaluated rows to rows of `audit`."""
    rows = evaluated.withColumn("in_vain", F.lit(False))
    if waited is not None:
        known = waited.withColumn("_waited", F.lit(True))
        rows = evaluated.join(known, on=["cluster", "topic"], how="left").withColumn(
            "in_vain", F.coalesce("_waited", F.lit(False))
        )
    refused = F.coalesce(F.col("outcome") == Outcome.REFUSED.value, F.lit(False))
    unfreed = F.concat(F.lit("the planned deletes did not make enough room: "), F.col("error_message"))
    values = {
        "phase": F.when(refused, F.lit(phase.value)).otherwise(F.lit(Phase.POLICY.value)),
        "outcome": F.when(refused & F.col("in_vain"), F.lit(Outcome.FAILED.value))
        .when(refused, F.lit(Outcome.REFUSED.value))
        .otherwise(F.lit(Outcome.OK.value)),
        "error_code": F.when(refused, F.lit(OURS)).otherwise(F.lit(0)),
        "error": F.when(refused & F.col("in_vain"), F.lit(Refusal.BUDGET_NOT_FREED.value)).otherwise(F.col("error")),
        "error_message": F.when(refused & F.col("in_vain"), unfreed).otherwise(F.col("error_message")),
        "topic_id": F.when(F.col("action") != Action.CREATE.value, F.col("topic_id")),
        "violations": written_violations(F.col("violations")),
    }
    return rows.transform(audit_rows(run.run_id, run.manifest_version, **values))


def _resolved() -> Column:
    """Return the values of validateOnly: num_partitions, replication_factor, configs."""
    values = F.struct("num_partitions", "replication_factor", "configs")
    return F.any_value(F.when(is_phase(Phase.VALIDATE) & is_ok(), values), ignoreNulls=True)


def _noted() -> Column:
    """Return the violations in `audit` since validate."""
    return F.any_value(F.when(is_phase(Phase.POLICY), F.col("violations")), ignoreNulls=True)


def topics(run: Run, seen: Observation, manifest_version: int) -> DataFrame:
    """Return the run's planned topics and all existing ones on its clusters. Out: `phases.DECIDED` and `NOTED`.

    `phase` is null for actions that passed validate and have no outcome yet; the other rows only count in budgets. A
    topic that this run created exists, and one that it deleted doesn't, even if the listing lags (C21). Values that
    validateOnly resolved are filled in; owners and labels are from the manifests at `manifest_version`, and owners of
    topics without a row from the plan.
    """
    key = ["cluster", "topic"]
    known = F.col("cluster").isin(*seen.known)
    # An alter doesn't count in budgets. Its policies need no second evaluation: it is sent as planned, or refused (K2).
    evaluated_kinds = F.col("action").isin(Action.DELETE.value, *(each.value for each in MAKE_PARTITIONS))
    planned = run.plans().withColumnRenamed("owner", "planned_owner").where(evaluated_kinds & known)
    declared = (
        run.manifests(manifest_version)
        .transform(manifests.validated_by(run.settings, run.selected))
        .where(F.col("phase").isNull())
        .select(*key, "owner", "labels", F.lit(True).alias("declared"))
    )
    rows = (
        with_outcomes(planned, run.audit(), more={"resolved": _resolved(), "noted": _noted()})
        .withColumns(
            {
                "resolved_num_partitions": F.col("resolved.num_partitions"),
                "resolved_replication_factor": F.col("resolved.replication_factor"),
                "resolved_configs": values_by_name("resolved.configs"),
            }
        )
        .withColumnsRenamed({"topic_id": "planned_id", "cluster_id": "planned_cluster_id"})
        .join(
            seen.topics.select(
                *key,
                "cluster_id",
                "topic_id",
                "internal",
                "permitted",
                "unknown",
                F.col("num_partitions").alias("seen_num_partitions"),
                F.col("replication_factor").alias("seen_replication_factor"),
            ),
            on=key,
            how="full_outer",
        )
        .join(declared, on=key, how="left")
    )
    acknowledged = F.col("applied").isNotNull()
    deleted = (
        (F.col("action") == Action.DELETE.value) & acknowledged & F.col("topic_id").eqNullSafe(F.col("planned_id"))
    )
    grown = F.when(
        (F.col("action") == Action.ADD_PARTITIONS.value) & acknowledged, F.col("after")["num_partitions"].cast("int")
    )
    created = (F.col("action") == Action.CREATE.value) & (acknowledged | F.coalesce("exists", F.lit(False)))
    listed = F.coalesce("permitted", F.lit(False)) & ~F.coalesce(deleted, F.lit(False))
    lives = listed | F.coalesce(created, F.lit(False))
    is_open = F.coalesce(F.col("standing") == Standing.VALIDATED.value, F.lit(False))
    values = {
        "cluster_id": F.coalesce("planned_cluster_id", "cluster_id"),
        "topic_id": F.coalesce("planned_id", "topic_id"),
        "owner": F.when(F.col("declared"), F.col("owner")).otherwise(F.col("planned_owner")),
        "undeclared": F.col("action").isNotNull() & F.col("declared").isNull(),
        "decision": F.coalesce("action", F.when(listed & ~F.col("internal"), F.lit(Decision.UNMANAGED.value))),
        "live": F.when(F.col("unknown").isNull() | created, lives),
        "internal": F.coalesce("internal", F.lit(False)),
        "live_num_partitions": F.when(lives, F.greatest(F.coalesce("seen_num_partitions", partitions()), grown)),
        "live_replication_factor": F.when(lives, F.coalesce("seen_replication_factor", created_replicas())),
        "validated": is_open,
        "phase": F.when(~is_open, F.coalesce("phase", F.lit(Phase.APPLY.value))),
        "waits": F.lit(False),
        "planned_violations": read_violations(F.col("violations")),
        "noted_violations": read_violations(F.col("noted")),
    }
    same = {name: name for name in DECIDED_AGAIN.names if name in rows.columns}
    unknown = {"violations": null(VIOLATIONS)}
    decided = rows.select(*in_order(DECIDED_AGAIN, {**same, **values, **unknown}))
    return returned("decide, once more", decided, DECIDED_AGAIN)
