"""Abandon runs, or take them over to end what they have under way."""

from __future__ import annotations

from pyspark.sql import Row

from topicledger.config.settings import Settings
from topicledger.errors import UsageError
from topicledger.ledger import proof
from topicledger.ledger.run import Run, require_run, row_of
from topicledger.ledger.runs import PROVISIONING, with_next_epoch
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.schemas import RUNS


def take_over(ledger: Ledger, settings: Settings, run_id: str) -> Run:
    """Take an open run from a driver that may still apply it, to end its actions that are under way.

    That driver can't write any more. The current settings may differ from the run's. Raises UsageError if the run is
    unknown, finished or abandoned, or changed no cluster.
    """
    ledger.ensure(RUNS)
    row = _to_abandon(ledger, run_id)
    if row["state"] == RunState.ABANDONED:
        raise UsageError(f"run {run_id} was abandoned: it is unknown which moves under way are its own")
    if (row["arguments"] or {}).get("command") not in PROVISIONING:
        raise UsageError(f"run {run_id} changed no cluster: there is nothing to cancel")
    run = Run(run_id=run_id, ledger=ledger, settings=settings, row=row.asDict(), found=RunState(row["state"]))
    taken = with_next_epoch(run)
    _to_abandon(ledger, run_id)
    return taken


def _to_abandon(ledger: Ledger, run_id: str) -> Row:
    row = require_run(ledger, run_id)
    if row["state"] == RunState.FINISHED:
        raise UsageError(f"run {run_id} is finished: there is nothing to abandon")
    return row


def abandon(ledger: Ledger, settings: Settings, run_id: str) -> None:
    """Abandon a run on request: it can't be resumed any more, and gets a digest as finished runs do.

    A run that an older topicledger abandoned without a digest gets one. Raises UsageError if the run is finished or
    unknown, and SecretError if `proof.key` can't be read here.
    """
    ledger.ensure(RUNS)
    signs = proof.signer(settings)
    _to_abandon(ledger, run_id)
    unless = f"state <> {sql_value(RunState.FINISHED.value)}"
    new = {"state": sql_value(RunState.ABANDONED.value)}
    if ledger.update(RUNS, f"{row_of(run_id)} AND {unless} AND digest IS NULL", new) == 0:
        _to_abandon(ledger, run_id)
    proof.seal_abandoned(ledger, signs, run_id)
