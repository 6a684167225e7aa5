"""A plan's diff has the values of actions that guards stopped, since people approve these, as they were shown."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.harness import UNREACHABLE, Estate
from topicledger.cli import show
from topicledger.config.guards import GuardSettings
from topicledger.errors import GuardStopped, UsageError
from topicledger.ledger.run import ALLOWED_ARGUMENT, find_run
from topicledger.ledger.tables import Ledger
from topicledger.plan.approvals import SHOWN_DIGEST, parse_digest
from topicledger.review import diff, rendering
from topicledger.schemas import APPROVALS, AUDIT, PLANS, RUNS

STOPPED = {"phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED", "guards": {"deletes": 1}}


def written(ledger: Ledger, run_id: str, state: str, **more: Any) -> Row:
    """Write a plan of a create, a delete that a guard stopped, and one that a policy refused. `more`: of the run."""
    about = {"run_id": run_id, "cluster": "main", "resource_type": "topic", "before": {"num_partitions": "4"}}
    topics: list[dict[str, Any]] = [
        {"topic": "old", "action": "delete", **STOPPED},
        {"topic": "used", "action": "delete", "phase": "policy", "outcome": "refused", "error": "POLICY_VIOLATION"},
        {"topic": "new", "action": "create", "num_partitions": 2, "before": None},
    ]
    rows = [{**about, "resource": each["topic"], **each} for each in topics]
    ledger.append(PLANS, ledger.rows(PLANS, rows), app_id=f"plans-{run_id}", version=1)
    run = {"run_id": run_id, "state": state, "requested_by": "ann", "manifest_version": 1}
    run |= {"started_at": datetime.now(UTC), **more}
    ledger.append(RUNS, ledger.rows(RUNS, [run]), app_id=f"runs-{run_id}", version=1)
    ledger.ensure(AUDIT)
    found = find_run(ledger, run_id)
    assert found is not None
    return found


def told(ledger: Ledger, run: Row, **allowed: int) -> str:
    found = diff.read(ledger, run, 0, most=None, allowed={"main": [allowed]} if allowed else {})
    return "".join(rendering.text(found))


@pytest.mark.thorough
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
    assert "1 create unknown; 2 refused\n" in over, "the run is over, and audit has no row about the create"
    assert "stopped" not in over


@pytest.mark.thorough
@pytest.mark.parametrize(("let", "told_of_it"), [({"main": {"deletes": 1}}, "1 delete unknown"), ({}, "2 refused")])
def test_a_validated_action_whose_allowance_lapsed_is_refused_again(
    let: dict[str, dict[str, int]], told_of_it: str, ledger: Ledger
) -> None:
    """Validate passed while an approval allowed the delete; the run ended, and `let` is what its approvals allowed."""
    run = written(ledger, "over", "finished", arguments={ALLOWED_ARGUMENT: json.dumps(let)})
    passed = {"run_id": "over", "cluster": "main", "resource_type": "topic", "topic": "old", "resource": "old"}
    passed |= {"action": "delete", "phase": "validate", "outcome": "ok"}
    ledger.append(AUDIT, ledger.rows(AUDIT, [passed]), app_id="validated", version=1)
    assert told_of_it in told(ledger, run)


@pytest.mark.thorough
def test_an_open_run_says_how_it_is_continued(ledger: Ledger) -> None:
    assert "not finished; to continue it: apply --run-id open\n" in told(ledger, written(ledger, "open", "applying"))


@pytest.mark.thorough
@pytest.mark.parametrize("approvals", [0, 1])
def test_a_plan_that_grew_since_it_was_shown_is_not_approved(
    approvals: int, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster that could not be reached when the approver read the plan has been planned since."""
    estate = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE})
    estate.settings = replace(estate.settings, guards=GuardSettings(approvals=approvals))
    ledger = estate.ledger
    # Nobody has approved anything in this ledger.
    shutil.rmtree(Path(ledger.location(APPROVALS)))
    written(ledger, "r", "planned")

    def shown() -> str:
        show.show_diff(ledger, estate.settings, "r", "text")
        text = capsys.readouterr().out
        digest: str = text.partition("\nto approve exactly this plan, add: --plan ")[2].partition("\n")[0]
        assert len(digest) == SHOWN_DIGEST, text
        show.show_actions(ledger, "r")
        assert json.loads(capsys.readouterr().out)["plan_digest"].startswith(digest)
        return digest

    before = shown()
    more = {"run_id": "r", "cluster": "west", "resource_type": "topic", "topic": "t", "resource": "t"}
    ledger.append(PLANS, ledger.rows(PLANS, [{**more, "action": "create"}]), app_id="west", version=1)
    after = shown()
    with pytest.raises(GuardStopped, match=rf"run r has another digest than {before}: nothing was approved"):
        estate.approve("r", by="bob", allow={"deletes": 1}, digest=before)
    assert not ledger.exists(APPROVALS) or ledger.read(APPROVALS).isEmpty()
    found = estate.approve("r", by="bob", allow={"deletes": 1}, digest=after)
    assert (found.by, found.allows) == (("bob",), {"deletes": 1})
    show.show_diff(ledger, estate.settings, "r", "text")
    assert "--plan" not in capsys.readouterr().out, "nothing is left to approve"
    # While it is applied, another cluster is planned, too: all approvals lapse.
    ledger.update(RUNS, "run_id = 'r'", {"state": "'applying'"})
    grown = {**more, "cluster": "east", "action": "create"}
    ledger.append(PLANS, ledger.rows(PLANS, [grown]), app_id="east", version=1)
    show.show_diff(ledger, estate.settings, "r", "text")
    assert ("to approve exactly this plan" in capsys.readouterr().out) == bool(approvals)


def test_digest_of_a_plan_is_written_as_it_is_shown() -> None:
    assert parse_digest(" 0123456789ABCDEF ") == "0123456789abcdef"
    for wrong in ("", "0123456789abcde", "0123456789abcdeg", "a" * 65):
        with pytest.raises(UsageError, match="16 characters from `runs show`"):
            parse_digest(wrong)
