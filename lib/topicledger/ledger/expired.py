"""Abandon plans that are too old to be applied.

`runs.require_fresh` refuses such a plan as a whole, and `plan.intent.expired` the open actions of one that is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.ledger import proof
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model import Outcome, Phase, RunState
from topicledger.schemas import AUDIT, RUNS


@dataclass(frozen=True, kw_only=True)
class Expired:
    """Plans older than `guards.max_plan_age`."""

    abandoned: Sequence[str]
    contradicted: Sequence[str]
    """Runs that stay as they are: their state says that they are only planned, but `audit` has actions that were sent."""


def abandon_expired(ledger: Ledger, settings: Settings, *, execute: bool) -> Expired:
    """Abandon plans older than `guards.max_plan_age`, which may not be applied any more.

    A run that is being applied stays, and so does one with actions in `audit` that were sent: its digest would prove
    rows that somebody may have forged. Nothing is changed without `execute`.
    """
    oldest = datetime.now(UTC) - timedelta(seconds=settings.guards.max_plan_age)
    waiting = F.col("state").isin(RunState.PLANNING.value, RunState.PLANNED.value)
    plans = F.col("arguments")["command"].isin("plan", "apply", "provision") & (F.col("started_at") < oldest)
    found = {row["run_id"] for row in ledger.read(RUNS).where(waiting & plans).select("run_id").collect()}
    contradicted = sorted(_applied_something(ledger, found))
    expired = sorted(found.difference(contradicted))
    if not execute or not expired:
        return Expired(abandoned=expired, contradicted=contradicted)
    signs = proof.signer(settings)
    ids = f"run_id IN ({', '.join(map(sql_value, expired))})"
    states = ", ".join(sql_value(state.value) for state in (RunState.PLANNING, RunState.PLANNED))
    ledger.update(RUNS, f"{ids} AND state IN ({states})", {"state": sql_value(RunState.ABANDONED.value)})
    # One of them may have been resumed in the meantime, and be `applying` now.
    rows = ledger.read(RUNS).where(ids).where(F.col("state") == RunState.ABANDONED.value).select("run_id").collect()
    done = sorted(row["run_id"] for row in rows)
    for run_id in done:
        proof.seal_abandoned(ledger, signs, run_id)
    return Expired(abandoned=done, contradicted=contradicted)


def _applied_something(ledger: Ledger, run_ids: Collection[str]) -> set[str]:
    """Return the runs of which `audit` says that something was sent.

    `apply` also refuses and skips actions before it sends any: then the run is still only planned.
    """
    if not run_ids or not ledger.exists(AUDIT):
        return set()
    unsent = F.coalesce(F.col("outcome").isin(Outcome.REFUSED.value, Outcome.SKIPPED.value), F.lit(False))
    sent = (F.col("phase") == Phase.VERIFY.value) | ((F.col("phase") == Phase.APPLY.value) & ~unsent)
    rows = ledger.read(AUDIT).where(F.col("run_id").isin(*run_ids) & sent)
    return {row["run_id"] for row in rows.select("run_id").distinct().collect()}
