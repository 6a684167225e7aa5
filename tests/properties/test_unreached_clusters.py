"""Plans that lack a cluster which could not be reached, on clusters in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.properties.rows.frames import DataFrame
from tests.properties.walks import driver
from tests.properties.walks.driver import STAGE, WalkStop, installed
from tests.properties.walks.estate import EAST, WEST, Estate
from tests.properties.walks.history import Walk
from topicledger import pipeline
from topicledger.apply.dispatch import Context
from topicledger.apply.progress import Progress
from topicledger.apply.summary import Summary
from topicledger.ledger import runs
from topicledger.model import Refusal
from topicledger.observe.topics import ClusterStatus, Observation

CREATES = {EAST: {"c1", "c2"}, WEST: {"c3"}}


def started(walk: Walk, command: str) -> Summary:
    request = runs.Request(command=command, run_id="topics-1", requested_by="ann")
    walk.checks.starts("topics-1")
    run = runs.start(walk.ledger, walk.settings, request)  # type: ignore[arg-type]
    context = Context(progress=Progress(), stop=WalkStop())
    return pipeline.provision(run, context, planning_only=command == "plan", applying_only=command == "apply")


def unreached(planned: DataFrame) -> DataFrame:
    """Rows of a plan that could not reach the second cluster."""
    end = {"action": None, "phase": "observe", "outcome": "failed", "error": Refusal.CLUSTER_UNREACHABLE.value}
    rows = [row if row["cluster"] == EAST else {**row, **end} for row in planned.rows]
    return DataFrame(planned.columns, rows)


def needless(planned: DataFrame) -> DataFrame:
    """Rows of a plan for which the second cluster needs nothing."""
    end = {"action": None, "phase": "policy", "outcome": "skipped", "error": None}
    return DataFrame(planned.columns, [row if row["cluster"] == EAST else {**row, **end} for row in planned.rows])


def made(walk: Walk, cluster: str) -> set[str]:
    return CREATES[cluster] & walk.world.clusters[cluster].topics.keys()


@pytest.mark.parametrize("needed", [True, False], ids=["something to do", "nothing to do"])
def test_a_plan_is_applied_although_a_cluster_was_not_reached(needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`apply` sends what is planned, leaves the rest open and says how to plan it; a later plan completes the run.

    Only `apply` ends the run: it verifies what an earlier start applied.
    """
    with installed():
        walk = Walk(Estate(), Counter())
        planned, seen = STAGE.plans, driver._seen

        def half(clusters: Sequence[Any]) -> Observation:
            found = seen(clusters)
            lost = ClusterStatus(error="cluster west: can't be reached")
            return Observation(topics=found.topics, brokers=found.brokers, statuses={**found.statuses, WEST: lost})

        with monkeypatch.context() as away:
            away.setattr(driver, "_seen", half)
            STAGE.plans = lambda kind, version: unreached(planned(kind, version))
            assert (started(walk, "plan").exit_code, made(walk, EAST)) == (1, set())
        STAGE.plans = planned
        summary = started(walk, "apply")
        assert (summary.exit_code, summary.state) == (1, "applying")
        assert [each for each in summary.problems if "cluster west has no plan" in each] == list(summary.problems)
        assert (made(walk, EAST), made(walk, WEST)) == (CREATES[EAST], set())
        if not needed:
            STAGE.plans = lambda kind, version: needless(planned(kind, version))
        later = started(walk, "plan")
        assert (later.exit_code, later.state, later.pending_changes > 0) == (0, "applying", needed)
        assert [each for each in later.problems if "to end the run: apply --run-id topics-1" in each] == list(
            later.problems
        )
        assert made(walk, WEST) == set()
        last = started(walk, "apply")
        assert (last.exit_code, last.state, made(walk, WEST)) == (0, "finished", CREATES[WEST] if needed else set())
        STAGE.plans = planned
