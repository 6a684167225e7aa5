"""How far each planned action came: the rows of `plans` and `audit` folded, in this one place.

A phase that ended for an action has a row in `audit`. By these rows an action is

- *planned* while no phase after the plan ended for it;
- *validated* once validate ended ok;
- *applied* once apply ended ok: the cluster acknowledged it;
- *over* once verify ended in any way, or validate, policy or apply ended in another way than ok.

The result of an action is that of its last phase, in the order of `Phase`. If verify couldn't read it, its cluster has
acknowledged it all the same: the result is ok, with verify's reason. Policies are evaluated again after validate: a row
of phase policy whose outcome is ok only notes a warning. It ends nothing and is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.ledger.allowed import Allowed
from topicledger.model import Outcome, Phase
from topicledger.schemas import ACTION_KEY, AUDIT

RESOURCE = ("cluster", "resource_type", "resource")
RESULT = ("phase", "outcome", "error_code", "error", "error_message")
"""Columns of `audit` that tell how a phase ended."""
ENDS = ("phase", "outcome", "error", "error_message")
"""Columns of `plans` that tell how an action ended before validate."""
ANSWER = ("topic_id", "num_partitions", "before", "after", "completed_at")
"""Columns of `audit` that tell what apply did."""


class Standing(StrEnum):
    """How far an action came; null once it is over."""

    PLANNED = "planned"
    """Its cluster was asked nothing yet."""
    VALIDATED = "validated"
    """It passed validate and the policies after it, and its outcome is unknown."""
    APPLIED = "applied"
    """Its cluster acknowledged it; it is not verified yet."""


def by_action(audit: DataFrame, *also: str, more: Mapping[str, Column] | None = None) -> DataFrame:
    """Fold `audit` into one row per action. In: rows of `audit` of one run, or of several with `run_id` in `also`.

    Out: `also`, `ACTION_KEY`, and

    - `validated`, `over` (boolean): see above; `exists` (boolean): validate found nothing to do and skipped it;
    - `applied`: struct of `ANSWER`, null until its cluster acknowledged it;
    - `result`: struct of `RESULT`, of the last phase;
    - `more`: aggregates of the caller's own, by name.

    Spark computes only the columns that the caller uses.
    """
    ended_early = is_phase(Phase.VALIDATE, Phase.POLICY, Phase.APPLY) & ~is_ok()
    return audit.groupBy(*also, *ACTION_KEY).agg(
        F.bool_or(is_phase(Phase.VALIDATE) & is_ok()).alias("validated"),
        F.bool_or(is_phase(Phase.VALIDATE) & (F.col("outcome") == Outcome.SKIPPED.value)).alias("exists"),
        F.bool_or(is_phase(Phase.VERIFY) | ended_early).alias("over"),
        F.any_value(F.when(is_acknowledged(), F.struct(*ANSWER)), ignoreNulls=True).alias("applied"),
        last(*RESULT).alias("result"),
        *(column.alias(name) for name, column in (more or {}).items()),
    )


def with_outcomes(
    planned: DataFrame, audit: DataFrame, *also: str, more: Mapping[str, Column] | None = None
) -> DataFrame:
    """Add to rows of `plans` how far their actions came. In: rows of one run, or of several with `run_id` in `also`.

    Out: the columns of `planned`, those of `by_action`, and `standing`, one of `Standing`: null for an action that is
    over, or that ended before validate. An action that a guard stopped and an approval let through is open again.
    """
    rows = planned.join(by_action(audit, *also, more=more), on=[*also, *ACTION_KEY], how="left")
    went_on = F.coalesce(F.col("validated") | F.col("over"), F.lit(False))
    rows = rows.transform(_unstopped(is_stopped() & went_on))
    stands = (
        F.when(F.col("phase").isNotNull() | F.coalesce("over", F.lit(False)), F.lit(None))
        .when(F.col("applied").isNotNull(), F.lit(Standing.APPLIED.value))
        .when(F.col("validated"), F.lit(Standing.VALIDATED.value))
        .otherwise(F.lit(Standing.PLANNED.value))
    )
    return rows.withColumn("standing", stands)


def open_rows(allowed: Allowed) -> Callable[[DataFrame], DataFrame]:
    """Return rows of `plans` whose actions didn't end before validate, or that guards stopped and approvals allow."""

    def transform(plans: DataFrame) -> DataFrame:
        return plans.where(F.col("action").isNotNull()).transform(let_through(allowed)).where(F.col("phase").isNull())

    return transform


def let_through(allowed: Allowed) -> Callable[[DataFrame], DataFrame]:
    """Open the rows of `plans` that guards stopped and approvals allow."""
    if not allowed:
        return lambda plans: plans
    let = reduce(or_, (_is_allowed(cluster, each) for cluster, several in sorted(allowed.items()) for each in several))
    return _unstopped(F.coalesce(is_stopped() & let, F.lit(False)))


def _is_allowed(cluster: str, numbers: Mapping[str, int]) -> Column:
    within = F.create_map(*(F.lit(part) for pair in sorted(numbers.items()) for part in pair))
    more = F.exists(
        F.map_entries("guards"),
        lambda each: each["value"] > F.coalesce(F.try_element_at(within, each["key"]), F.lit(0)),
    )
    return (F.col("cluster") == cluster) & ~more


def is_stopped() -> Column:
    """Whether guards, and nothing else, stopped the action of a row of `plans`."""
    return F.col("guards").isNotNull()


def _unstopped(those: Column) -> Callable[[DataFrame], DataFrame]:
    """Open rows of `plans` again that guards stopped."""
    ends = {name: F.when(~those, F.col(name)) for name in ENDS}
    return lambda plans: plans.withColumns(ends)


def results(audit: DataFrame, planned: DataFrame, *also: str, by: Sequence[str] = RESOURCE) -> DataFrame:
    """Return the result of each action, and of each refusal that has no action.

    In: rows of `audit`, and of `plans` for actions that nothing ended before validate. `by` names `run_id` too if the
    rows are of several runs. Out: `by`, `action`, `topic`, `RESULT` and `also` of the last phase, null for an action
    without one; `planned` (boolean): whether it is an action of `planned`.

    A row without an action is a result only if no action was planned for its resource. Rows of phase manifest without a
    resource each count by themselves; other rows without one are about their cluster.
    """
    columns = (*by, "action", "topic", *RESULT, *also)
    unknown = {name: F.lit(None).cast(AUDIT.schema[name].dataType) for name in (*RESULT, *also)}
    rows = audit.select(*columns).unionByName(planned.withColumns(unknown).select(*columns))
    unnamed = F.col("resource").isNull() | F.col("cluster").isNull()
    own = F.when(unnamed & F.col("phase").eqNullSafe(Phase.MANIFEST.value), F.monotonically_increasing_id())
    acts = F.col("action").isNotNull()
    return (
        rows.where(~only_warns())
        .withColumn("_own", own)
        .withColumn("_any_acts", F.max(acts).over(Window.partitionBy(*by, "_own")))
        .where(acts | ~F.col("_any_acts"))
        .groupBy(*by, "_own", "action")
        .agg(last("topic", *RESULT, *also).alias("last"), F.bool_or(F.col("phase").isNull()).alias("planned"))
        .select(*by, "action", "last.*", "planned")
    )


def last(*columns: str) -> Column:
    """These columns of the last phase, as a struct: an aggregate of rows of `audit`."""
    told = (_result().alias(name) if name == "outcome" else F.col(name) for name in columns)
    return F.max_by(F.struct(*told), F.when(~only_warns(), phase_order()))


def _result() -> Column:
    """The outcome that a row means for its action: skipped in verify only means that it couldn't be read."""
    unread = is_phase(Phase.VERIFY) & (F.col("outcome") == Outcome.SKIPPED.value)
    return F.when(unread, Outcome.OK.value).otherwise(F.col("outcome"))


def phase_order() -> Column:
    """The place of `phase` in the order of `Phase`, from 1, and 0 without one."""
    position = F.array_position(F.array(*(F.lit(phase.value) for phase in Phase)), F.col("phase"))
    return F.coalesce(position, F.lit(0))


def only_warns() -> Column:
    """Whether a row of `audit` only notes a warning, which ends nothing."""
    return F.col("phase").eqNullSafe(Phase.POLICY.value) & F.col("outcome").eqNullSafe(Outcome.OK.value)


def is_acknowledged() -> Column:
    """Whether a row of `audit` tells that a cluster acknowledged an action."""
    return is_phase(Phase.APPLY) & is_ok()


def is_ok() -> Column:
    return F.col("outcome") == Outcome.OK.value


def is_validated() -> Column:
    """Whether an action passed validate."""
    return is_phase(Phase.VALIDATE) & is_ok()


def without_lapsed(audit: DataFrame, plans: DataFrame) -> DataFrame:
    """Leave out the rows of `audit` that say that an action passed validate which guards stop again.

    Its allowance lapsed since. `plans`: from `let_through`.
    """
    validated = F.coalesce(is_validated(), F.lit(False))
    stopped = plans.where(is_stopped() & F.col("phase").isNotNull()).select(*ACTION_KEY)
    others = audit.where(validated).join(stopped, on=[*ACTION_KEY], how="left_anti")
    return audit.where(~validated).unionByName(others)


def is_let_through() -> Column:
    """Whether a guard stopped an action of `results` that an approval has allowed since; never null."""
    return F.col("planned") & F.col("phase").eqNullSafe(Phase.GUARD.value)


def is_phase(*phases: Phase) -> Column:
    return F.col("phase").isin(*(each.value for each in phases))
