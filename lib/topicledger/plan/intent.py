"""Planned actions that may no longer be sent, whatever the cluster: the manifests changed, or the plan is too old.

Both are transforms from planned actions (columns of `plans`) to the refused ones (`REFUSED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.actions.kind import DECLARED
from topicledger.ledger.sql import iso_times
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.rows import Transform, content
from topicledger.model import TOPIC, Outcome, Refusal
from topicledger.model.renames import REPLACES
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.resources import registry
from topicledger.resources.ending import refused
from topicledger.resources.kind import ResourceKind


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """The declarations of one type of resource, with which planned actions are compared."""

    resource_type: str
    rows: str
    """Their name in messages."""
    key: tuple[str, ...]
    """The columns that name a resource, of both a declaration and an action."""
    now: Mapping[str, Callable[[], Column]]
    """The declared values that `ActionKind.not_declared` compares, by the name after `now_`."""
    undeclared: Callable[[], Column]
    """Returns why an action without a declaration isn't asked for any more."""
    content: Callable[[DataFrame, str], DataFrame]
    """Returns the content of each resource's declaration as one comparable value of this name, with the key."""


def _declared(name: str) -> Callable[[], Column]:
    return lambda: F.col(name)


TOPICS = Declarations(
    resource_type=TOPIC,
    rows="the manifests",
    key=("cluster", "topic"),
    now={name: _declared(name) for name in (*DECLARED, "owner", "labels", REPLACES)},
    undeclared=lambda: F.lit("don't declare it"),
    content=content,
)


def declarations_of(kind: ResourceKind) -> Declarations:
    """Return the declarations of a kind of resource beside topics: the results of its `validate`."""
    key = ("cluster", "resource")
    # As text, since Spark can't compare maps.
    said = F.to_json(F.struct(*kind.table.schema.names))
    return Declarations(
        resource_type=kind.resource_type,
        rows=f"rows of {kind.table.name}",
        key=key,
        now=kind.deciding.now,
        undeclared=kind.deciding.undeclared,
        content=lambda validated, name: validated.select(*key, said.alias(name)),
    )


def no_longer_declared(
    of: Declarations,
    latest: DataFrame,
    version: int | None,
    then: Column | int | None,
    *,
    of_files: bool = False,
    scope: Scope = EVERYTHING,
) -> Transform:
    """Return actions that no longer follow from the latest declarations: CHANGED_SINCE_PLAN, with both versions.

    `latest`: validated declarations at `version`; None if there is no table. `then`: the version that was planned from.
    Each kind of action defines when it is still declared (`ActionKind.not_declared`). `of_files`: they were planned
    from files. `scope`: the run's; what another owner declares by now is no longer inside.
    """
    at = F.lit(None if of_files else "when there were none")
    if then is not None:
        planned_from = F.lit(then) if isinstance(then, int) else then
        at = F.concat(F.lit("beside version " if of_files else "from version "), planned_from)

    def transform(planned: DataFrame) -> DataFrame:
        message = F.concat(
            F.lit(f"{of.rows}{', of which there are none,' if version is None else f' at version {version}'} "),
            F.coalesce(reason(of), F.when(F.col("is_declared"), _of_others(scope))),
            F.concat_ws(" ", F.lit("; it was planned from files" if of_files else "; it was planned"), at),
            F.lit(": load the files, or plan again" if of_files else ": plan again"),
        )
        of_type = planned.where(F.col("resource_type") == of.resource_type)
        both = of_type.join(latest.transform(declared_now(of)), on=[*of.key], how="left")
        return both.transform(refused(Refusal.CHANGED_SINCE_PLAN, message))

    return transform


def declared_otherwise(
    of: Declarations, then: DataFrame, now: DataFrame, then_version: int | None, now_version: int | None
) -> Transform:
    """Return actions whose resources' declarations have changed since the plan: CHANGED_SINCE_PLAN.

    In: declarations at the version that was the latest when planning, and at the latest now; None: there was no table.
    """

    def transform(planned: DataFrame) -> DataFrame:
        message = (
            f"{of.rows} changed it between version {_version(then_version)}, the latest when this was planned, and "
            f"version {_version(now_version)}: plan again"
        )
        of_type = planned.where(F.col("resource_type") == of.resource_type)
        key = [*of.key]
        both = of_type.join(of.content(then, "_then"), key, "left").join(of.content(now, "_now"), key, "left")
        changed = both.where(~F.col("_then").eqNullSafe(F.col("_now")))
        return changed.transform(refused(Refusal.CHANGED_SINCE_PLAN, F.lit(message)))

    return transform


def _version(version: int | None) -> str:
    return "none" if version is None else str(version)


def declared_now(of: Declarations) -> Transform:
    """Return the columns for `reason`, by key. In: validated declarations.

    `now_state`, whether and why the row is refused, and `now_...` for each of `of.now`; `is_declared` is true.
    """
    columns = {
        "is_declared": F.lit(True),
        "now_state": F.col("state"),
        "now_refused": F.col("phase").isNotNull(),
        "now_message": F.col("error_message"),
        "now_owner": F.col("owner"),
        **{f"now_{name}": value() for name, value in of.now.items()},
    }
    # Skipped rows declare what is declared elsewhere, too.
    counts = ~F.col("outcome").eqNullSafe(F.lit(Outcome.SKIPPED.value))
    return lambda latest: latest.where(counts).select(
        *of.key, *(column.alias(name) for name, column in columns.items())
    )


def _of_others(scope: Scope) -> Column:
    """Return why the latest declaration isn't inside a run's scope by its owner; null if it is."""
    owner, outside = F.col("now_owner"), F.lit(False)
    if scope.owners:
        outside = outside | ~F.coalesce(is_one_of(owner, scope.owners), F.lit(False))
    if scope.barred:
        outside = outside | F.coalesce(is_one_of(owner, scope.barred), F.lit(False))
    given = F.concat(F.lit("give it to "), F.coalesce(owner, F.lit("no owner")))
    return F.when(outside, F.concat(given, F.lit(f", which is outside the scope of this run ({scope})")))


def reason(of: Declarations) -> Column:
    """Return why an action is no longer declared; null if it is."""
    kinds = registry.about(of.resource_type)
    by_kind = (F.when(F.col("action") == kind.name, kind.not_declared()) for kind in kinds)
    return (
        F.when(F.col("is_declared").isNull(), of.undeclared())
        .when(F.col("now_refused"), F.concat(F.lit("refuse its row: "), F.col("now_message")))
        .otherwise(F.coalesce(*by_kind))
    )


def expired(max_age: float, now: datetime) -> Transform:
    """Return actions planned more than `max_age` seconds before `now`: PLAN_EXPIRED. In: `maybe_sent`, too."""

    def transform(planned: DataFrame) -> DataFrame:
        ending = F.when(F.col("maybe_sent"), F.lit("nothing more of it is sent")).otherwise(F.lit("it was not sent"))
        message = F.concat(
            F.lit("planned at "),
            iso_times(F.col("planned_at")),
            F.lit(f", and guards.max_plan_age is {max_age:g} s: "),
            ending,
            F.lit("; plan again"),
        )
        old = planned.where(F.col("planned_at") < F.lit(now - timedelta(seconds=max_age)))
        return old.transform(refused(Refusal.PLAN_EXPIRED, message))

    return transform
