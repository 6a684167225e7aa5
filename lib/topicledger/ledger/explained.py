"""Rows of a run that differ from its digest although nobody forged them: the row of a later run explains that.

An attacker who forges rows could forge such a run, too. So only runs count whose own row is proven, or their start. Of
maintenances, those under accepted other keys count, too: a verification with these keys proves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from topicledger.errors import ExitCode
from topicledger.ledger.chain import RunRow
from topicledger.ledger.digests import RowsDigest
from topicledger.ledger.maintain import COMMAND as MAINTAIN
from topicledger.ledger.maintain import oldest_kept
from topicledger.ledger.proof import KEY_ID, PLAN_APPROVALS_ROWS, PLAN_APPROVALS_SHA256, PROVEN, number
from topicledger.ledger.run import FILES_ARGUMENT, PLAN_ARGUMENT
from topicledger.model import Outcome, RunState
from topicledger.schemas import APPROVALS, Table


class Retention:
    """The rows that `maintain` removed by age."""

    def __init__(self, proven: Sequence[RunRow], accepted: Sequence[RunRow] = ()) -> None:
        """`accepted`: rows under other keys, which only those keys prove."""
        self._own, self._others = _oldest_kept(proven), _oldest_kept(accepted)

    def explained_by(self, run: RunRow, table: Table) -> str | None:
        """Return the id of the other key that proves why rows of the run are gone; empty if this key proves it.

        None if they aren't old enough to have been removed.
        """
        for kept in (self._own, self._others):
            before, key_id = kept.get(table.name, (run.started_at, ""))
            if run.started_at < before:
                return "" if kept is self._own else key_id
        return None


def _oldest_kept(maintenances: Sequence[RunRow]) -> Mapping[str, tuple[datetime, str]]:
    """Return, by table, the moment before which rows were removed, and the id of the key that signed that."""
    found: dict[str, tuple[datetime, str]] = {}
    for each in maintenances:
        for table in PROVEN:
            days = each.arguments.get(f"{table.name}_retention_days", "")
            if each.arguments.get("command") == MAINTAIN and days.isdecimal():
                # It may have been killed. An older topicledger counted the days from the end.
                over = each.digest and each.state == RunState.FINISHED
                kept = oldest_kept(int(days), each.finished_at if over else each.started_at)
                found[table.name] = max((kept, each.proof.get(KEY_ID, "")), found.get(table.name, (kept, "")))
    return found


class Loads:
    """The loads for plans from files that had nothing to send: such a plan may be approved after its end."""

    def __init__(self, proven: Sequence[RunRow], everything: Sequence[RunRow]) -> None:
        """`everything`: all rows of `runs`. A load without approvals has no digest, and only ends the wait for it."""
        self._approved: dict[str, list[RowsDigest]] = {}
        loads = [*proven, *(each for each in everything if not each.digest)]
        self._loaded = {each.arguments.get(PLAN_ARGUMENT) for each in loads if each.exit_code == ExitCode.DONE}
        for each in proven:
            rows, sha256 = number(each.proof.get(PLAN_APPROVALS_ROWS)), each.proof.get(PLAN_APPROVALS_SHA256)
            if rows is not None and sha256 is not None:
                approved = RowsDigest(rows=rows, sha256=sha256)
                self._approved.setdefault(each.arguments.get(PLAN_ARGUMENT, ""), []).append(approved)

    def explain(self, run: RunRow, table: Table, now: RowsDigest) -> bool:
        """Return whether a load for the plan had its approvals as they are now."""
        return table is APPROVALS and now in self._approved.get(run.run_id, ())

    def may_follow(self, run: RunRow, table: Table) -> bool:
        """Return whether the plan, with approvals that no digest has, waits for its load."""
        # Only a plan with nothing to send ends before its approvals; one that refused anything isn't loaded.
        acted = any(run.counts.get(each.value) for each in Outcome if each is not Outcome.SKIPPED)
        waits = run.state == RunState.FINISHED and FILES_ARGUMENT in run.arguments and not acted
        return table is APPROVALS and waits and not (run.run_id in self._approved or run.run_id in self._loaded)
