"""The decisions of a plan and their commit; and what the pipeline needs of each kind of resource for them.

A kind gives the pipeline a `Goal`. The goal is observed on clusters, and what was found there is decided on. The
pipeline itself names no kind: `plan.kinds` has the functions that return goals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.frames import with_metrics
from topicledger.ledger.appended import FEW_ROWS
from topicledger.ledger.retries import retried
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Decision, Outcome, Phase, Refusal
from topicledger.observe.topics import Observation
from topicledger.plan.batches import NEEDS_SOMETHING, planned
from topicledger.policies import Policy
from topicledger.resources.topics.plan import placing

_NEED_NOTHING = (Decision.UNCHANGED, Decision.DRIFTED, Decision.LEFT_OUT, Decision.DECLARED)
"""Decisions for declared topics that need no action."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """Result of phases decide, policy and guard."""

    rows: DataFrame | None = None
    """Actions and refusals from `registry.found`, materialised; None if no cluster was decided on."""
    size: int = 0
    """The number of rows, or more."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Decision -> topics that need no action."""
    ended: bool = False
    """Whether any row ended before validate."""
    any_planned: bool = False
    """Whether there is any planned action."""
    any_altered: bool = False
    """Whether configs will be altered."""
    any_warned: bool = False
    """Whether an action has a warning."""
    any_to_place: bool = False
    """Whether a create still needs assignments from the planner."""
    any_guarded: bool = False
    """Whether a guard stopped an action that an approval may allow."""

    def also(self, other: Decided) -> Decided:
        """Combine both results: other kinds of resources go into the same plan."""
        parts = [each for each in (self.rows, other.rows) if each is not None]
        return Decided(
            rows=reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts) if parts else None,
            size=self.size + other.size,
            counts={
                name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in {**self.counts, **other.counts}
            },
            ended=self.ended or other.ended,
            any_planned=self.any_planned or other.any_planned,
            any_altered=self.any_altered or other.any_altered,
            any_warned=self.any_warned or other.any_warned,
            any_to_place=self.any_to_place or other.any_to_place,
            any_guarded=self.any_guarded or other.any_guarded,
        )


NOTHING = Decided()


class Observed(Protocol):
    """A goal for one kind of resource, and what clusters have of it."""

    def decide(self, run: Run, policies: Sequence[Policy], seen: Observation, *, again: bool) -> Decided:
        """Return the decisions, after phases policy and guard. `seen`: the clusters, after all kinds were observed.

        `again`: the goal's clusters were unreachable in the plan of an earlier start.
        """


class Goal(Protocol):
    """The goal of a run for one kind of resource."""

    def named(self) -> DataFrame | None:
        """Return topics to describe even if clusters don't list them (cluster, topic); None if there are none."""

    def observe(self, run: Run, seen: Observation) -> tuple[Observation, Observed]:
        """Ask clusters about the kind. Also returns `seen`, in which a cluster that didn't answer is unreachable."""


def decided_on(run: Run, rows: DataFrame, tallied: Mapping[str, Decision], *, again: bool) -> Decided:
    """Materialise decisions with their actions (`registry.found`), with `resource_type` and `resource`.

    `tallied`: name of a count -> the decision that it counts, for rows that need no action. `again`: see
    `Observed.decide`.
    """
    ended, acts = F.col("phase").isNotNull(), F.col("action").isNotNull()
    metered = [
        *(F.count_if((F.col("decision") == each.value) & ~acts).alias(name) for name, each in tallied.items()),
        F.count_if(F.expr(NEEDS_SOMETHING)).alias("size"),
        F.count_if(ended).alias("ended"),
        F.count_if(acts & ~ended).alias("planned"),
        F.count_if((F.col("action") == Action.ALTER_CONFIGS.value) & ~ended).alias("altered"),
        F.count_if(acts & F.col("violations").isNotNull()).alias("warned"),
        F.count_if(F.col("guards").isNotNull()).alias("guarded"),
        F.count_if(placing.to_place() if "placement" in rows.columns else F.lit(False)).alias("to_place"),
    ]

    def needed(found: DataFrame) -> DataFrame:
        if again:
            found = found.transform(decided_again).transform(_not_planned_before(run))
        # If clusters are as declared, no row is left here, and the run needs no batches and no commit.
        return found.where(NEEDS_SOMETHING)

    def decided() -> Decided:
        kept, found = with_metrics(rows, metered, needed)
        return Decided(
            rows=kept,
            size=found["size"],
            counts={name: found[name] for name in tallied},
            ended=found["ended"] > 0,
            any_planned=found["planned"] > 0,
            any_altered=found["altered"] > 0,
            any_warned=found["warned"] > 0,
            any_to_place=found["to_place"] > 0,
            any_guarded=found["guarded"] > 0,
        )

    return retried(f"the plan of run {run.run_id} can't be made", decided)


def commit_plan(run: Run, decided: Decided) -> None:
    """Commit `decided` as rows of `plans`. Raises UsageError if another start has taken the run."""
    run.keep_row()
    run.commits.settle()
    now, most = datetime.now(UTC), run.settings.kafka.max_batch_records
    assert decided.rows is not None, "a plan is committed of what was decided"
    rows = decided.rows.transform(planned(run.run_id, run.manifest_version, now, most, guarded=decided.any_guarded))
    run.append_plan(rows, few=decided.size <= FEW_ROWS)
    if run.id_given:
        # If another start has taken the run, Delta has ignored this plan.
        run.require_ownership()


def _not_planned_before(run: Run) -> Transform:
    """Drop refusals that the plan of an earlier start has already."""

    def transform(decisions: DataFrame) -> DataFrame:
        key = ("cluster", "resource_type", "resource", "phase", "error")
        known = run.plans().where(F.col("error").isNotNull()).select(*(F.col(name).alias(f"_{name}") for name in key))
        same = [F.col("error").isNotNull(), *(F.col(name).eqNullSafe(F.col(f"_{name}")) for name in key)]
        return decisions.join(known, on=same, how="left_anti")

    return transform


def decided_again(decisions: DataFrame) -> DataFrame:
    """Give each declared resource of a cluster that was unreachable a later row than CLUSTER_UNREACHABLE.

    Those that need no action are skipped. Those that end in phase observe, which also has that earlier row, end in
    phase policy instead. Otherwise their result would stay CLUSTER_UNREACHABLE.
    """
    needs_nothing = F.col("decision").isin(*(each.value for each in _NEED_NOTHING))
    # A row without a resource is about its cluster.
    needs_nothing = F.coalesce(needs_nothing, F.lit(False)) | F.col("resource").isNull()
    left_alone = needs_nothing & F.col("action").isNull() & F.col("phase").isNull()
    is_unreached = F.col("error").eqNullSafe(F.lit(Refusal.CLUSTER_UNREACHABLE.value))
    decided_now = (F.col("phase") == Phase.OBSERVE.value) & ~is_unreached
    message = F.concat_ws(": ", F.lit("nothing to do, now that the cluster was reached"), F.col("decision"))
    return decisions.withColumns(
        {
            "outcome": F.when(left_alone, F.lit(Outcome.SKIPPED.value)).otherwise(F.col("outcome")),
            "error_message": F.when(left_alone, message).otherwise(F.col("error_message")),
            "phase": F.when(left_alone | decided_now, F.lit(Phase.POLICY.value)).otherwise(F.col("phase")),
        }
    )
