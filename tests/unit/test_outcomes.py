"""How far actions came: the fold of `audit`, compared with the same rules written as plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame, plain
from topicledger.ledger.outcomes import results, with_outcomes
from topicledger.model import Outcome, Phase
from topicledger.schemas import AUDIT, PLANS

Ends = Sequence[tuple[Phase, Outcome]]

_LATER = (Phase.VALIDATE, Phase.POLICY, Phase.APPLY, Phase.VERIFY)
_WARNED = (Phase.POLICY, Outcome.OK)


def every_way() -> Iterator[Ends]:
    """Every combination of phases that ended, each in every way; with and without a refusal by a guard before them."""
    choices = [(None, (Phase.GUARD, Outcome.REFUSED))]
    choices += [(None, *((phase, outcome) for outcome in Outcome)) for phase in _LATER]
    for chosen in itertools.product(*choices):
        yield [each for each in chosen if each is not None]


def naive_standing(ends: Ends) -> str | None:
    outcome = dict(ends)
    if Phase.VERIFY in outcome:
        return None
    if any(phase in _LATER and each is not Outcome.OK for phase, each in ends):
        return None
    if Phase.APPLY in outcome:
        return "applied"
    return "validated" if Phase.VALIDATE in outcome else "planned"


def naive_result(ends: Ends) -> tuple[str, str] | None:
    counted = [each for each in ends if each != _WARNED]
    if not counted:
        return None
    phase, outcome = max(counted, key=lambda each: list(Phase).index(each[0]))
    # An action that can't be read again is applied all the same.
    return phase.value, "ok" if (phase, outcome) == (Phase.VERIFY, Outcome.SKIPPED) else outcome.value


@pytest.fixture(scope="module")
def ways() -> Mapping[str, Ends]:
    return {f"t{number}": ends for number, ends in enumerate(every_way())}


def rows(ways: Mapping[str, Ends]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    def action(topic: str) -> dict[str, Any]:
        return {
            "run_id": "r", "cluster": "main", "topic": topic, "resource_type": "topic", "resource": topic,
            "action": "create",
        }  # fmt: skip

    audit = [
        {**action(topic), "phase": phase.value, "outcome": outcome.value, "topic_id": phase.value}
        for topic, ends in ways.items()
        for phase, outcome in ends
    ]
    return [action(topic) for topic in ways], audit


def test_standing_is_as_plain_python_says(spark: SparkSession, ways: Mapping[str, Ends]) -> None:
    planned, audit = rows(ways)
    found = dicts(
        with_outcomes(frame(spark, plain(PLANS.schema), planned), frame(spark, plain(AUDIT.schema), audit)).select(
            "topic", "standing", "applied", "exists", "result"
        )
    )
    assert {row["topic"]: row["standing"] for row in found} == {
        topic: naive_standing(ends) for topic, ends in ways.items()
    }
    assert {row["topic"]: row["result"] and (row["result"]["phase"], row["result"]["outcome"]) for row in found} == {
        topic: naive_result(ends) for topic, ends in ways.items()
    }
    acknowledged = {row["topic"]: row["applied"]["topic_id"] for row in found if row["applied"]}
    assert acknowledged == {topic: "apply" for topic, ends in ways.items() if (Phase.APPLY, Outcome.OK) in ends}
    skipped = {row["topic"] for row in found if row["exists"]}
    assert skipped == {topic for topic, ends in ways.items() if (Phase.VALIDATE, Outcome.SKIPPED) in ends}


def test_results_are_as_plain_python_says(spark: SparkSession, ways: Mapping[str, Ends]) -> None:
    planned, audit = rows(ways)
    found = dicts(results(frame(spark, plain(AUDIT.schema), audit), frame(spark, plain(PLANS.schema), planned)))
    assert {row["topic"]: row["phase"] and (row["phase"], row["outcome"]) for row in found} == {
        topic: naive_result(ends) for topic, ends in ways.items()
    }
    assert len(found) == len(ways)
    assert all(row["planned"] for row in found)


def test_an_action_that_ended_before_validate_stands_nowhere(spark: SparkSession) -> None:
    ((action,), _) = rows({"t": []})
    refused = frame(spark, plain(PLANS.schema), [{**action, "phase": "guard", "outcome": "refused"}])
    (found,) = dicts(with_outcomes(refused, frame(spark, plain(AUDIT.schema), [])))
    assert found["standing"] is None


def test_a_refusal_without_an_action_counts_unless_one_was_planned(spark: SparkSession) -> None:
    ((one, two), _) = rows({"one": [], "two": []})
    refusal = {"action": None, "phase": "observe", "outcome": "failed"}
    audit = frame(spark, plain(AUDIT.schema), [{**one, **refusal}, {**two, **refusal}])
    found = dicts(results(audit, frame(spark, plain(PLANS.schema), [two])))
    assert {(row["topic"], row["action"], row["phase"], row["planned"]) for row in found} == {
        ("one", None, "observe", False),
        ("two", "create", None, True),
    }
