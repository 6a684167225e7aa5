"""Planned actions that may no longer be sent, whatever the cluster: the manifests changed, or the plan is too old.

Both are transforms from planned actions (columns of `plans`) to the refused ones (`REFUSED`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.actions.kind import DECLARED
from topicledger.manifests.rows import Transform, content
from topicledger.model import TOPIC, Outcome, Refusal
from topicledger.resources import registry
from topicledger.resources.ending import refused
from topicledger.resources.kind import ResourceKind
from topicledger.text import ISO_TIME


def no_longer_declared(latest: DataFrame, latest_version: int, *, of_files: bool = False) -> Transform:
    """Return actions that no longer follow from the latest manifests: CHANGED_SINCE_PLAN, with both versions.

    `latest`: the result of `manifests.judge` for the manifests at `latest_version`. Each kind of action defines when it
    is still declared (`ActionKind.not_declared`). `of_files`: they were planned from files.
    """

    def transform(planned: DataFrame) -> DataFrame:
        declared = latest.where(~F.col("outcome").eqNullSafe(F.lit(Outcome.SKIPPED.value))).select(
            "cluster",
            "topic",
            *_now(),
            *(F.col(name).alias(f"now_{name}") for name in (*DECLARED, "owner", "labels")),
        )
        message = F.concat(
            F.lit(f"the manifests at version {latest_version} "),
            reason(TOPIC, F.lit("don't declare it" if of_files else "no longer declare it")),
            F.lit(f"; it was planned from {'files beside ' if of_files else ''}version "),
            F.col("manifest_version"),
            F.lit(": load the files, or plan again" if of_files else ": plan again"),
        )
        both = planned.join(declared, on=["cluster", "topic"], how="left")
        return both.transform(refused(Refusal.CHANGED_SINCE_PLAN, message))

    return transform


def declared_otherwise(then: DataFrame, now: DataFrame, then_version: int, now_version: int) -> Transform:
    """Return actions of a plan from earlier manifests whose topics' rows have changed since: CHANGED_SINCE_PLAN.

    In: rows of `manifests` at the version that was the latest when planning, and at the latest now.
    """

    def transform(planned: DataFrame) -> DataFrame:
        message = (
            f"the manifests changed the topic between version {then_version}, the latest when this was planned, and "
            f"version {now_version}: plan again"
        )
        declared = (then.transform(content, "_then"), now.transform(content, "_now"))
        return planned.transform(_changed_between(*declared, message))

    return transform


def resources_no_longer_declared(
    kind: ResourceKind, latest: DataFrame, latest_version: int | None, planned_version: int | None
) -> Transform:
    """Return `no_longer_declared` for actions on resources other than topics.

    `latest`: the result of the kind's `judge` for its table at `latest_version`; None if the table doesn't exist.
    """
    name = kind.table.name

    def transform(planned: DataFrame) -> DataFrame:
        before = "there were none" if planned_version is None else f"version {planned_version}"
        message = F.concat(
            F.lit(f"{name} {'has no rows' if latest_version is None else f'at version {latest_version}'}, and they "),
            reason(kind.resource_type, kind.deciding.undeclared()),
            F.lit(f"; it was planned from {before}: plan again"),
        )
        of_kind = planned.where(F.col("resource_type") == kind.resource_type)
        both = of_kind.join(latest.transform(declared_now(kind)), on=["cluster", "resource"], how="left")
        return both.transform(refused(Refusal.CHANGED_SINCE_PLAN, message))

    return transform


def resources_declared_otherwise(
    kind: ResourceKind, then: DataFrame, now: DataFrame, then_version: int | None, now_version: int | None
) -> Transform:
    """Return `declared_otherwise` for actions on resources other than topics.

    In: the results of the kind's `judge` for its table at these versions; None if the table didn't exist.
    """

    def transform(planned: DataFrame) -> DataFrame:
        key = ["cluster", "resource"]
        # As text, since Spark can't compare maps.
        said = F.to_json(F.struct(*kind.table.schema.names))
        of_kind = planned.where(F.col("resource_type") == kind.resource_type)
        message = (
            f"{kind.table.name} changed it between version {_version(then_version)}, the latest when this was planned, "
            f"and version {_version(now_version)}: plan again"
        )
        declared = (then.select(*key, said.alias("_then")), now.select(*key, said.alias("_now")))
        return of_kind.transform(_changed_between(*declared, message))

    return transform


def _changed_between(then: DataFrame, now: DataFrame, message: str) -> Transform:
    """Return planned actions whose `_then` and `_now` differ, as `REFUSED`. In: both, with the same key columns."""
    key = [name for name in then.columns if name != "_then"]

    def transform(planned: DataFrame) -> DataFrame:
        both = planned.join(then, key, "left").join(now, key, "left")
        changed = both.where(~F.col("_then").eqNullSafe(F.col("_now")))
        return changed.transform(refused(Refusal.CHANGED_SINCE_PLAN, F.lit(message)))

    return transform


def _version(version: int | None) -> str:
    return "none" if version is None else str(version)


def declared_now(kind: ResourceKind) -> Transform:
    """Return the columns for `reason`, by cluster and resource. In: the result of the kind's `judge`."""
    more = {name: of_row().alias(f"now_{name}") for name, of_row in kind.deciding.now.items()}
    return lambda latest: latest.select("cluster", "resource", *_now(), *more.values())


def _now() -> tuple[Column, ...]:
    """Columns of the current declaration: `now_state`, whether and why its row is refused; `is_declared` is true."""
    return (
        F.lit(True).alias("is_declared"),
        F.col("state").alias("now_state"),
        F.col("phase").isNotNull().alias("now_refused"),
        F.col("error_message").alias("now_message"),
    )


def reason(resource_type: str, undeclared: Column) -> Column:
    """Return why an action is no longer declared; null if it is."""
    by_kind = (F.when(F.col("action") == kind.name, kind.not_declared()) for kind in registry.about(resource_type))
    return (
        F.when(F.col("is_declared").isNull(), undeclared)
        .when(F.col("now_refused"), F.concat(F.lit("refuse its row: "), F.col("now_message")))
        .otherwise(F.coalesce(*by_kind))
    )


def expired(max_age: float, now: datetime) -> Transform:
    """Return actions planned more than `max_age` seconds before `now`: PLAN_EXPIRED. In: `maybe_sent`, too."""

    def transform(planned: DataFrame) -> DataFrame:
        ending = F.when(F.col("maybe_sent"), F.lit("nothing more of it is sent")).otherwise(F.lit("it was not sent"))
        message = F.concat(
            F.lit("planned at "),
            F.date_format("planned_at", ISO_TIME),
            F.lit(f", and guards.max_plan_age is {max_age:g} s: "),
            ending,
            F.lit("; plan again"),
        )
        old = planned.where(F.col("planned_at") < F.lit(now - timedelta(seconds=max_age)))
        return old.transform(refused(Refusal.PLAN_EXPIRED, message))

    return transform
