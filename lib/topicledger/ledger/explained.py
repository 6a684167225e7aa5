"""Rows of a run that differ from its digest although nobody forged them: the row of a later run explains that.

An attacker who forges rows could forge such a run, too. So only runs count whose own row is proven, or their start.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from topicledger.ledger.chain import RunRow
from topicledger.ledger.digests import RowsDigest
from topicledger.ledger.maintain import COMMAND as MAINTAIN
from topicledger.ledger.maintain import oldest_kept
from topicledger.ledger.proof import PLAN_APPROVALS_ROWS, PLAN_APPROVALS_SHA256, PROVEN, number
from topicledger.ledger.run import FILES_ARGUMENT, PLAN_ARGUMENT
from topicledger.model import RunState
from topicledger.schemas import APPROVALS, Table


class Retention:
    """The rows that `maintain` removed by age."""

    def __init__(self, proven: Sequence[RunRow]) -> None:
        self._before: dict[str, datetime] = {}
        for each in proven:
            for table in PROVEN:
                days = each.arguments.get(f"{table.name}_retention_days", "")
                if each.arguments.get("command") == MAINTAIN and days.isdecimal():
                    # It may have been killed. An older topicledger counted the days from the end.
                    over = each.digest and each.state == RunState.FINISHED
                    kept = oldest_kept(int(days), each.finished_at if over else each.started_at)
                    self._before[table.name] = max(kept, self._before.get(table.name, kept))

    def explains(self, run: RunRow, table: Table) -> bool:
        """Return whether rows of the run are old enough to have been removed."""
        before = self._before.get(table.name)
        return before is not None and run.started_at < before


class Loads:
    """The loads for plans from files that had nothing to send: such a plan may be approved after its end."""

    def __init__(self, proven: Sequence[RunRow]) -> None:
        self._approved: dict[str, list[RowsDigest]] = {}
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
        waits = run.state == RunState.FINISHED and FILES_ARGUMENT in run.arguments
        return table is APPROVALS and waits and run.run_id not in self._approved
