"""Phase policy: rules about creates and deletes, judged on all decisions at once (P1, P3).

A policy adds violations to rows, it never drops a row and never stops at the first rule broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.errors import SettingsError
from topicledger.hints import show
from topicledger.manifests import Transform
from topicledger.model import Action, Outcome, Phase, Refusal
from topicledger.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A rule for one kind of action."""

    name: str
    """As `violations.policy` tells it."""
    action: Action
    """What it judges."""
    error: Refusal
    """The audit's `error` where it is the first rule broken."""
    reasons: Transform
    """Adds the column `reason`: null when fine, else what is broken and what would be allowed."""


def internal_topic() -> Policy:
    """Deletes of topics that Kafka flags as internal are refused; no setting turns this off (D9)."""
    reason = F.when(
        F.col("internal"),
        F.concat(F.col("topic"), F.lit(" is internal to Kafka and is never deleted; remove it from the manifests")),
    )
    return Policy(
        name="internal_topic",
        action=Action.DELETE,
        error=Refusal.POLICY_VIOLATION,
        reasons=lambda rows: rows.withColumn("reason", reason),
    )


def name_collision() -> Policy:
    """Creates whose metric names collide with another create (both) or with a live topic are refused (C16)."""

    def reasons(rows: DataFrame) -> DataFrame:
        metric_name = F.translate("topic", ".", "_")
        alike = Window.partitionBy("cluster", metric_name)
        creates = F.when(_open(Action.CREATE), F.col("topic"))
        lives = F.when(F.col("live"), F.col("topic"))
        others = F.array_except(
            F.array_union(F.collect_set(creates).over(alike), F.collect_set(lives).over(alike)), F.array("topic")
        )
        return rows.withColumn(
            "reason",
            F.when(
                _open(Action.CREATE) & (F.size(others) > 0),
                F.concat(
                    F.lit("in metric names '.' and '_' are the same, so it collides with "),
                    F.array_join(F.array_sort(others), ", "),
                    F.lit("; choose a name that differs otherwise"),
                ),
            ),
        )

    return Policy(name="name_collision", action=Action.CREATE, error=Refusal.NAME_COLLISION, reasons=reasons)


def _open(action: Action) -> Column:
    return F.coalesce((F.col("decision") == action.value) & F.col("phase").isNull(), F.lit(False))


def always() -> Sequence[Policy]:
    """The policies that no setting turns off, deletes first."""
    return (internal_topic(), name_collision())


def from_settings(settings: Settings) -> Sequence[Policy]:
    """The policies of a run, deletes first: those that always hold, and those that the settings name (P4).

    Raises SettingsError naming each policy that doesn't exist: a rule that is never asked is worse than none.
    """
    known: Sequence[str] = [policy.name for policy in always()]
    problems = [
        f"{settings.path}: {spec.where}: there is no policy `{show(spec.use)}` to choose; these always hold: "
        + ", ".join(known)
        for spec in (*settings.policies.create, *settings.policies.delete)
    ]
    if problems:
        raise SettingsError("\n".join(problems))
    return always()


def judge(policies: Sequence[Policy]) -> Transform:
    """Judge decisions: adds each policy's violations, then ends the rows that have any (phase policy, refused).

    In and out: `decide.COLUMNS`. Every policy is asked about every row that was open when the first was: all rules
    broken are told, not just the first (P3). The row's `error` is that of the first policy, in their order, it breaks.
    """

    def transform(decisions: DataFrame) -> DataFrame:
        names = [f"_reason_{number}" for number, _ in enumerate(policies)]
        rows = decisions
        for name, policy in zip(names, policies, strict=True):
            rows = rows.transform(policy.reasons).withColumnRenamed("reason", name)
        return rows.transform(_with_violations(policies, names)).select(*decisions.columns)

    return transform


def _with_violations(policies: Sequence[Policy], names: Sequence[str]) -> Transform:
    def broken(name: str, policy: Policy) -> Column:
        return F.when(_open(policy.action) & F.col(name).isNotNull(), F.col(name))

    found = F.filter(
        F.array(
            *(
                F.when(
                    broken(name, policy).isNotNull(),
                    F.struct(F.lit(policy.name).alias("policy"), broken(name, policy).alias("message")),
                )
                for name, policy in zip(names, policies, strict=True)
            )
        ),
        lambda violation: violation.isNotNull(),
    )
    errors = F.coalesce(
        *(
            F.when(broken(name, policy).isNotNull(), F.lit(policy.error.value))
            for name, policy in zip(names, policies, strict=True)
        )
    )
    refused = F.size("_found") > 0
    return lambda rows: rows.withColumns({"_found": found, "_error": errors}).withColumns(
        {
            "violations": F.when(refused, F.col("_found")).otherwise(F.col("violations")),
            "error": F.when(refused, F.col("_error")).otherwise(F.col("error")),
            "error_message": F.when(
                refused, F.array_join(F.transform("_found", lambda violation: violation["message"]), "; ")
            ).otherwise(F.col("error_message")),
            "outcome": F.when(refused, F.lit(Outcome.REFUSED.value)).otherwise(F.col("outcome")),
            "phase": F.when(refused, F.lit(Phase.POLICY.value)).otherwise(F.col("phase")),
        }
    )
