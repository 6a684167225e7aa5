"""A plan's diff has the values of actions that guards stopped, since people approve these."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row

from topicledger.ledger.run import find_run
from topicledger.ledger.tables import Ledger
from topicledger.review import diff, rendering
from topicledger.schemas import AUDIT, PLANS, RUNS

STOPPED = {"phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED", "guards": {"deletes": 1}}


def written(ledger: Ledger, run_id: str, state: str) -> Row:
    """Write a plan of a create, a delete that a guard stopped, and one that a policy refused."""
    about = {"run_id": run_id, "cluster": "main", "resource_type": "topic", "before": {"num_partitions": "4"}}
    topics: list[dict[str, Any]] = [
        {"topic": "old", "action": "delete", **STOPPED},
        {"topic": "used", "action": "delete", "phase": "policy", "outcome": "refused", "error": "POLICY_VIOLATION"},
        {"topic": "new", "action": "create", "num_partitions": 2, "before": None},
    ]
    rows = [{**about, "resource": each["topic"], **each} for each in topics]
    ledger.append(PLANS, ledger.rows(PLANS, rows), app_id=f"plans-{run_id}", version=1)
    run = {"run_id": run_id, "state": state, "requested_by": "ann", "manifest_version": 1}
    ledger.append(RUNS, ledger.rows(RUNS, [run]), app_id=f"runs-{run_id}", version=1)
    ledger.ensure(AUDIT)
    found = find_run(ledger, run_id)
    assert found is not None
    return found


def told(ledger: Ledger, run: Row, **allowed: int) -> str:
    found = diff.read(ledger, run, 0, most=None, allowed={"main": allowed} if allowed else {})
    return "".join(rendering.text(found))


def test_stopped_actions_have_their_values_until_they_are_over(ledger: Ledger) -> None:
    waits = written(ledger, "waits", "planned")
    text = told(ledger, waits)
    assert "1 create, 1 delete stopped; 1 refused\n" in text
    assert "stopped by guards: main: deletes=1 (1 action)\n" in text
    assert "\nstopped by guards: no owner on main: removals and possible losses\n  - delete old: 4 partitions\n" in text
    assert "\nrefused on main: 1\n  ! delete used (policy): POLICY_VIOLATION\n" in text
    allowed = told(ledger, waits, deletes=1)
    assert "1 create, 1 delete; 1 refused\n" in allowed
    assert "stopped" not in allowed
    over = told(ledger, written(ledger, "over", "finished"))
    assert "1 create; 2 refused\n" in over
    assert "stopped" not in over


def test_an_open_run_says_how_it_is_continued(ledger: Ledger) -> None:
    assert "not finished; to continue it: apply --run-id open\n" in told(ledger, written(ledger, "open", "applying"))
