"""Abandon plans that are too old to be applied, and audits that nobody restarted.

`runs.require_fresh` refuses such a plan as a whole, and `plan.intent.expired` the open actions of one that is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.ledger import proof
from topicledger.ledger.runs import AUDIT_COMMAND, PROVISIONING
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model import Outcome, Phase, RunState
from topicledger.schemas import AUDIT, RUNS

_WAITING = (RunState.PLANNING.value, RunState.PLANNED.value)
"""States of runs of which nothing was sent yet."""


@dataclass(frozen=True, kw_only=True)
class Expired:
    """Plans older than `guards.max_plan_age`."""

    abandoned: Sequence[str]
    contradicted: Sequence[str]
    """Runs that stay as they are: their state says that they are only planned, but `audit` says that they sent
    something."""


def abandon_expired(ledger: Ledger, settings: Settings, *, execute: bool) -> Expired:
    """Abandon plans older than `guards.max_plan_age`, which may not be applied any more.

    A run that is being applied stays, and so does one with actions in `audit` that were sent: its digest would prove
    rows that somebody may have forged. Plans that an earlier call abandoned and, killed, didn't seal are sealed now.
    Nothing is changed without `execute`.
    """
    oldest = datetime.now(UTC) - timedelta(seconds=settings.guards.max_plan_age)
    plans = F.col("arguments")["command"].isin(*PROVISIONING) & (F.col("started_at") < oldest)
    found = _ids(ledger, plans & F.col("state").isin(*_WAITING))
    contradicted = sorted(_applied_something(ledger, found))
    expired = sorted(found.difference(contradicted))
    if not execute:
        return Expired(abandoned=expired, contradicted=contradicted)
    signs = proof.signer(settings)
    done = _abandon(ledger, expired) if expired else set[str]()
    unsealed = _ids(ledger, plans & (F.col("state") == RunState.ABANDONED.value) & F.col(proof.DIGEST).isNull())
    left = _with_rows(ledger, unsealed - done)
    for run_id in sorted(done | (left - _applied_something(ledger, left))):
        proof.seal_abandoned(ledger, signs, run_id)
    return Expired(abandoned=sorted(done), contradicted=contradicted)


def abandon_audits(ledger: Ledger, before: datetime, *, execute: bool) -> Sequence[str]:
    """Abandon open audits that began before this moment: a cluster that they didn't reach kept them open.

    The findings on other clusters still count. They get no digest, as they have no rows that are proven. Nothing is
    changed without `execute`.
    """
    audits = (F.col("arguments")["command"] == AUDIT_COMMAND) & (F.col("started_at") < before)
    found = sorted(_ids(ledger, audits & F.col("state").isin(*_WAITING)))
    return sorted(_abandon(ledger, found)) if execute and found else found


def _ids(ledger: Ledger, condition: Column) -> set[str]:
    return {row["run_id"] for row in ledger.read(RUNS).where(condition).select("run_id").collect()}


def _abandon(ledger: Ledger, run_ids: Sequence[str]) -> set[str]:
    """Set the state of runs of which nothing was sent; return those that are abandoned."""
    ids = f"run_id IN ({', '.join(map(sql_value, run_ids))})"
    states = ", ".join(map(sql_value, _WAITING))
    ledger.update(RUNS, f"{ids} AND state IN ({states})", {"state": sql_value(RunState.ABANDONED.value)})
    # One of them may have been resumed in the meantime, and be `applying` now.
    return _ids(ledger, F.expr(ids) & (F.col("state") == RunState.ABANDONED.value))


def _with_rows(ledger: Ledger, run_ids: Collection[str]) -> set[str]:
    """Return the runs with rows in tables that are proven: the others need no digest."""
    found = set[str]()
    for table in proof.PROVEN if run_ids else ():
        if ledger.exists(table):
            rows = ledger.read(table).where(F.col("run_id").isin(*run_ids))
            found |= {row["run_id"] for row in rows.select("run_id").distinct().collect()}
    return found


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
