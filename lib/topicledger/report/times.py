"""How long each phase of a run took, from the times of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.model import Phase
from topicledger.report.facts import PhaseTime, RunFacts
from topicledger.report.scope import utc

OBSERVED = "observe, decide, plan"
WAITED = "waited for apply"
"""The time between a plan and its first request, such as for an approval."""
CLOSED = "close"


@dataclass(frozen=True, kw_only=True)
class Moments:
    """When the first row of a phase was requested and the last was completed; None if unknown."""

    first: datetime | None = None
    last: datetime | None = None


def of_run(run: RunFacts, plans: DataFrame, audit: DataFrame) -> Sequence[PhaseTime]:
    """Durations of a run's phases. In: the run's rows of `plans` and of `audit`."""
    nothing = F.lit(None).cast("timestamp")
    asked = audit.groupBy("phase").agg(F.min("requested_at").alias("first"), F.max("completed_at").alias("last"))
    planned = plans.agg(F.max("planned_at").alias("last")).select(
        F.lit(OBSERVED).alias("phase"), nothing.alias("first"), "last"
    )
    return in_order(
        run,
        {
            row["phase"]: Moments(**{name: row[name] and utc(row[name]) for name in ("first", "last")})
            for row in asked.unionByName(planned.where("last IS NOT NULL")).collect()
        },
    )


def in_order(run: RunFacts, found: Mapping[str, Moments]) -> Sequence[PhaseTime]:
    """Durations of phases, each from the end of the previous one; a phase without known times is part of the next.

    `found`: moments by phase, and by `OBSERVED` the time when the plan was committed.
    """
    apply = found.get(Phase.APPLY, Moments())
    ends = [
        (OBSERVED, found.get(OBSERVED, Moments()).last),
        (Phase.VALIDATE.value, found.get(Phase.VALIDATE, Moments()).last),
        (WAITED, apply.first if OBSERVED in found or Phase.VALIDATE in found else None),
        (Phase.APPLY.value, apply.last),
        (Phase.VERIFY.value, found.get(Phase.VERIFY, Moments()).last),
        (CLOSED, run.finished_at),
    ]
    began, times = run.started_at, []
    for phase, ended in ends:
        if ended is not None and ended > began:
            times.append(PhaseTime(phase=phase, began_at=began, seconds=(ended - began).total_seconds()))
            began = ended
    return times
