"""A report's figures: what rows of `audit`, `plans` and `drift` come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import dicts, frame
from topicledger.manifests import owners
from topicledger.plan.lines import in_words
from topicledger.report import figures
from topicledger.schemas import AUDIT, DRIFT, MANIFESTS, PLANS, RUNS, SENT_BATCHES

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def audit_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    usual = {
        "run_id": "one",
        "cluster": "main",
        "action": "create",
        "phase": "apply",
        "outcome": "ok",
        "error_code": 0,
        "batch": 0,
        "attempt": 1,
        "requested_at": NOON,
        "completed_at": at(1),
    }
    return frame(spark, AUDIT.schema, ({**usual, **about(row), **row} for row in rows))


def plan_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    usual = {"run_id": "one", "cluster": "main", "action": "create"}
    return frame(spark, PLANS.schema, ({**usual, **about(row), **row} for row in rows))


def about(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"resource_type": "topic", "resource": row["topic"]}


def drift_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    usual = {
        "run_id": "one",
        "cluster": "main",
        "kind": "missing",
        "severity": "error",
        "observed_at": NOON,
        "since": NOON,
    }
    return frame(spark, DRIFT.schema, ({**usual, **row} for row in rows))


def stands(found: DataFrame) -> dict[tuple[str, str | None], str]:
    return {(row["run_id"], row["topic"]): row["outcome"] for row in dicts(found)}


def test_a_topic_stands_as_its_last_phase_ended_in_each_run(spark: SparkSession) -> None:
    audit = audit_rows(
        spark,
        {"topic": "a", "phase": "validate"},
        {"topic": "a", "phase": "apply"},
        {"topic": "a", "phase": "verify", "outcome": "pending"},
        {"topic": "a", "run_id": "two", "phase": "validate", "outcome": "failed", "error": "INVALID_CONFIG"},
        {"topic": "b", "phase": "policy", "outcome": "refused", "error": "POLICY_VIOLATION"},
    )
    found = figures.results(audit, plan_rows(spark), [])
    assert stands(found) == {("one", "a"): "pending", ("two", "a"): "failed", ("one", "b"): "refused"}
    assert tuple(found.columns) == figures.RESULTS


def test_validated_actions_are_planned_or_open_while_applying(spark: SparkSession) -> None:
    audit = audit_rows(spark, *({"topic": "a", "run_id": run, "phase": "validate"} for run in ("one", "two")))
    found = figures.results(audit, plan_rows(spark), ["two"])
    assert stands(found) == {("one", "a"): "planned", ("two", "a"): "open"}


def test_a_planned_action_that_nothing_tells_of_is_open(spark: SparkSession) -> None:
    plans = plan_rows(
        spark,
        {"topic": "told"},
        {"topic": "untold"},
        {"topic": "untold", "run_id": "two"},
        {"topic": "refused", "phase": "policy", "outcome": "refused"},
    )
    found = figures.results(audit_rows(spark, {"topic": "told"}), plans, [])
    assert stands(found) == {("one", "told"): "ok", ("one", "untold"): "open", ("two", "untold"): "open"}
    found = figures.results(audit_rows(spark, {"topic": "told"}), plans, [], ["two"])
    assert stands(found) == {("one", "told"): "ok", ("one", "untold"): "open", ("two", "untold"): "unknown"}


def test_an_abandoned_run_may_have_sent_what_has_no_outcome(spark: SparkSession) -> None:
    states = {"one": "applying", "two": "abandoned", "three": "abandoned", "four": "finished"}
    runs = frame(spark, RUNS.schema, [{"run_id": run_id, "state": state} for run_id, state in states.items()])
    sent = frame(
        spark, SENT_BATCHES.schema, [{"run_id": run_id, "batch": n} for run_id in ("two", "four") for n in (0, 1)]
    )
    assert sorted(figures.maybe_sent(runs, sent)) == ["one", "two"]


def test_rows_without_a_topic_count_each(spark: SparkSession) -> None:
    audit = audit_rows(spark, *[{"topic": None, "phase": "manifest", "outcome": "refused"}] * 2)
    (row,) = dicts(figures.tallies(figures.results(audit, plan_rows(spark), [])))
    assert (row["topics"], row["example"]) == (2, None)


@pytest.mark.thorough
def test_topics_that_stand_alike_are_counted_with_the_first_of_them(spark: SparkSession) -> None:
    failed = {"outcome": "failed", "error": "INVALID_CONFIG"}
    audit = audit_rows(
        spark,
        {"topic": "b", "error_message": "of b", **failed},
        {"topic": "a", "error_message": "of a", **failed},
        {"topic": "c", "cluster": "other", "error_message": "of c", **failed},
        {"topic": "d"},
    )
    found = figures.tallies(figures.results(audit, plan_rows(spark), []))
    expected = spark.createDataFrame(
        [
            ("main", "topic", "create", "apply", "failed", "INVALID_CONFIG", 2, "a", "of a"),
            ("other", "topic", "create", "apply", "failed", "INVALID_CONFIG", 1, "c", "of c"),
            ("main", "topic", "create", "apply", "ok", None, 1, "d", None),
        ],
        "cluster string, resource_type string, action string, phase string, outcome string, error string, "
        "topics bigint, example string, message string",
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def test_problems_are_listed_first(spark: SparkSession) -> None:
    outcomes = {"a": "ok", "b": "skipped", "c": "pending", "d": "refused", "e": "failed", "f": "failed"}
    audit = audit_rows(spark, *({"topic": topic, "outcome": outcome} for topic, outcome in outcomes.items()))
    found = figures.worst_first(figures.results(audit, plan_rows(spark), []))
    assert [row["topic"] for row in found.collect()] == ["e", "f", "d", "c", "b", "a"]


def test_destructive_actions_come_after_problems_and_before_the_rest(spark: SparkSession) -> None:
    """Added partitions don't count: they lose no record."""
    shorter = {"before": {"retention.ms": "2000"}, "after": {"retention.ms": "1000"}}
    longer = {"before": {"retention.ms": "1000"}, "after": {"retention.ms": "2000"}}
    more = {"before": {"num_partitions": "1"}, "after": {"num_partitions": "2"}}
    changes: Sequence[Mapping[str, Any]] = [
        {"topic": "a", "action": "create"},
        {"topic": "b", "action": "alter_configs", **longer},
        {"topic": "c", "action": "add_partitions", **more},
        {"topic": "d", "action": "alter_configs", **shorter},
        {"topic": "e", "action": "delete"},
        {"topic": "f", "action": "delete"},
    ]
    ends = {"f": {"outcome": "refused", "phase": "guard"}}
    audit = audit_rows(
        spark, *({"topic": each["topic"], "action": each["action"], **ends.get(each["topic"], {})} for each in changes)
    )
    found = dicts(figures.worst_first(figures.results(audit, plan_rows(spark, *changes), [])))
    assert [row["topic"] for row in found] == ["f", "d", "e", "a", "b", "c"]
    assert [row["topic"] for row in found if row["destroys"]] == ["f", "d", "e"]


def test_a_topic_counts_once_for_each_policy_that_it_breaks(spark: SparkSession) -> None:
    broken = {"policy": "budget", "message": "4 of 3"}
    warned = {"policy": "owner", "message": "warning: nobody owns it"}
    audit = audit_rows(
        spark,
        {"topic": "a", "phase": "policy", "outcome": "refused", "violations": [broken, warned]},
        {"topic": "a", "phase": "apply", "outcome": "refused", "violations": [broken]},
        {"topic": "b", "violations": [warned]},
    )
    found = figures.by_policy(audit).select("policy", "mode", "topics", "example", "message")
    expected = spark.createDataFrame(
        [("budget", "refuse", 1, "a", "4 of 3"), ("owner", "warn", 2, "a", "nobody owns it")],
        "policy string, mode string, topics bigint, example string, message string",
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def test_a_batch_takes_from_its_first_request_to_its_last_answer(spark: SparkSession) -> None:
    audit = audit_rows(
        spark,
        {"topic": "a", "requested_at": at(0), "completed_at": at(1)},
        {"topic": "b", "requested_at": at(0), "completed_at": at(1)},
        {"topic": "c", "requested_at": at(5), "completed_at": at(7.5), "attempt": 3},
        {"topic": "d", "batch": 1, "requested_at": at(8), "completed_at": at(9)},
        {"topic": "ours", "batch": 1, "requested_at": at(90), "completed_at": at(99), "error_code": -1},
        {"topic": "later", "phase": "verify", "requested_at": at(90), "completed_at": at(99)},
    )
    rows = {row["batch"]: row for row in dicts(figures.batches(figures.requests(audit)))}
    assert set(rows) == {0, 1}
    first = rows[0]
    assert (first["topics"], first["requests"], first["attempts"], first["seconds"]) == (3, 2, 3, 7.5)
    assert rows[1]["seconds"] == 1.0


@pytest.mark.thorough
def test_time_between_requests_is_waiting(spark: SparkSession) -> None:
    audit = audit_rows(
        spark,
        {"topic": "a", "requested_at": at(0), "completed_at": at(1)},
        {"topic": "b", "requested_at": at(5), "completed_at": at(7), "attempt": 2, "batch": 1},
        {"topic": "c", "requested_at": at(7.5), "completed_at": at(8), "batch": 2},
        {"topic": "d", "requested_at": at(100), "completed_at": at(101), "run_id": "two"},
        {"topic": "e", "requested_at": at(50), "completed_at": at(51), "cluster": "other"},
    )
    rows = {row["cluster"]: row for row in dicts(figures.waiting(figures.requests(audit)))}
    assert rows["main"] == {
        "cluster": "main",
        "phase": "apply",
        "topics": 4,
        "sent_again": 1,
        "requests": 4,
        "busy_seconds": 4.5,
        "between_seconds": 4.5,
        "longest_seconds": 4.0,
    }
    assert rows["other"]["between_seconds"] == 0.0


@pytest.mark.thorough
def test_problems_come_stay_go_and_become_others(spark: SparkSession) -> None:
    def failed(topic: str, error: str, **more: Any) -> dict[str, Any]:
        return {"topic": topic, "outcome": "failed", "error": error, **more}

    before = audit_rows(
        spark,
        failed("stays", "A"),
        failed("other", "A"),
        failed("mended", "A"),
        failed("unnamed", "A"),
        {"topic": "came"},
        {"topic": "fine"},
    )
    now = audit_rows(
        spark,
        failed("stays", "A"),
        failed("other", "B"),
        {"topic": "mended"},
        failed("came", "C"),
        failed("fresh", "D"),
        {"topic": "fine"},
        failed(None, "E"),  # type: ignore[arg-type]
    )
    nothing = plan_rows(spark)
    found = dicts(figures.changes(*(figures.results(rows, nothing, []) for rows in (before, now))))
    assert {row["topic"]: (row["change"], row["before"], row["now"]) for row in found} == {
        "stays": ("still there", "apply failed: A", "apply failed: A"),
        "other": ("other reason", "apply failed: A", "apply failed: B"),
        "mended": ("gone", "apply failed: A", "apply ok"),
        "unnamed": ("gone", "apply failed: A", None),
        "came": ("new", "apply ok", "apply failed: C"),
        "fresh": ("new", None, "apply failed: D"),
    }


@pytest.mark.thorough
def test_the_last_of_several_runs_counts(spark: SparkSession) -> None:
    now = audit_rows(
        spark,
        {"topic": "a", "run_id": "one", "outcome": "failed", "error": "A", "completed_at": at(0)},
        {"topic": "a", "run_id": "two", "completed_at": at(60)},
        {"topic": "b", "run_id": "one", "completed_at": at(0)},
        {"topic": "b", "run_id": "two", "outcome": "failed", "error": "B", "completed_at": at(60)},
    )
    before, nothing = audit_rows(spark), plan_rows(spark)
    found = dicts(figures.changes(*(figures.results(rows, nothing, []) for rows in (before, now))))
    assert [(row["topic"], row["change"]) for row in found] == [("b", "new")]


@pytest.mark.thorough
def test_a_problem_counts_although_another_action_on_the_topic_succeeded_later(spark: SparkSession) -> None:
    """One run may change a topic in several ways: its refused change is not hidden by the one that was made."""
    refused = {"topic": "a", "action": "alter_configs", "outcome": "refused", "error": "MAX_LOSSES_EXCEEDED"}
    grown = {"topic": "a", "action": "add_partitions", "completed_at": at(60)}
    both, earlier = audit_rows(spark, refused, grown), audit_rows(spark, {**refused, "run_id": "zero"})
    mended = audit_rows(spark, refused, {**grown, "run_id": "two"})
    nothing = plan_rows(spark)
    results = {name: figures.results(rows, nothing, []) for name, rows in (("both", both), ("mended", mended))}
    first = figures.results(earlier, nothing, [])
    found = {name: dicts(figures.changes(first, now)) for name, now in results.items()}
    assert [(row["change"], row["now"]) for row in found["both"]] == [
        ("still there", "apply refused: MAX_LOSSES_EXCEEDED")
    ]
    assert [row["change"] for row in found["mended"]] == ["gone"]


@pytest.mark.parametrize(
    ("days", "age"),
    [(0, "under a day"), (0.99, "under a day"), (1, "1 to 7 days"), (7, "7 to 30 days"), (30, "over 30 days")],
)
def test_findings_have_the_age_of_their_unbroken_series(spark: SparkSession, days: float, age: str) -> None:
    (row,) = dicts(figures.drift_tallies(drift_rows(spark, {"topic": "a", "since": NOON - timedelta(days=days)})))
    assert (row["age"], row["findings"]) == (age, 1)


@pytest.mark.thorough
def test_findings_come_stay_go_and_become_others(spark: SparkSession) -> None:
    config = {"kind": "config_differs", "what": "retention.ms", "declared": "1"}
    before = drift_rows(
        spark,
        {"topic": "stays"},
        {"topic": "gone"},
        {"topic": "other", **config, "live": "2"},
        {"topic": "x", "cluster": "lost"},
    )
    now = drift_rows(spark, {"topic": "stays"}, {"topic": "came"}, {"topic": "other", **config, "live": "3"})
    found = dicts(figures.drift_changes(before, now, F.col("cluster") != "lost"))
    assert {row["topic"]: (row["change"], row["before"], row["now"]) for row in found} == {
        "stays": ("still there", "missing", "missing"),
        "gone": ("gone", "missing", None),
        "came": ("new", None, "missing"),
        "other": (
            "other reason",
            "config_differs retention.ms: declared 1, live 2",
            "config_differs retention.ms: declared 1, live 3",
        ),
    }


def test_errors_come_before_warnings_and_old_findings_before_new_ones(spark: SparkSession) -> None:
    found = drift_rows(
        spark,
        {"topic": "new", "since": NOON},
        {"topic": "odd", "severity": None},
        {"topic": "info", "severity": "info"},
        {"topic": "warned", "severity": "warning"},
        {"topic": "old", "since": NOON - timedelta(days=9)},
    ).transform(figures.drift_worst_first)
    assert [row["topic"] for row in found.collect()] == ["old", "new", "warned", "info", "odd"]


@pytest.mark.thorough
def test_in_a_span_a_topic_stands_as_its_last_run_left_it(spark: SparkSession) -> None:
    """Even where that run has yet to end it."""
    refused = {"phase": "policy", "outcome": "refused", "error": "POLICY_VIOLATION", "error_code": -1}
    audit = audit_rows(
        spark,
        *({"run_id": run_id, "topic": "again", **refused} for run_id in ("one", "two", "three")),
        {"run_id": "one", "topic": "mended", **refused},
        {"run_id": "two", "topic": "mended", "phase": "verify"},
        {"run_id": "two", "topic": "going", "phase": "verify"},
    )
    plans = plan_rows(spark, {"run_id": "three", "topic": "going"})
    starts = spark.createDataFrame(
        [(name, at(second)) for second, name in enumerate(("one", "two", "three"))],
        "run_id string, started_at timestamp",
    )
    found = figures.results(audit, plans, ["three"])
    assert stands(figures.last_by_topic(found, starts)) == {
        ("three", "again"): "refused",
        ("two", "mended"): "ok",
        ("three", "going"): "open",
    }


def test_values_left_to_the_broker_are_shown_as_returned(spark: SparkSession) -> None:
    audit = audit_rows(
        spark,
        {"topic": "a", "phase": "validate", "num_partitions": 3, "replication_factor": 2},
        {"topic": "a", "num_partitions": 3, "replication_factor": 2},
        {"topic": "b"},
    )
    plans = plan_rows(
        spark,
        {"topic": "a", "configs": {"retention.ms": "5"}},
        {"topic": "b", "num_partitions": 1},
    )
    found = {row["topic"]: in_words(row["plan"]) for row in dicts(figures.results(audit, plans, []))}
    assert found == {"a": "3 partitions, replication factor 2, retention.ms=5", "b": "1 partition"}


def test_an_owner_is_one_row_a_topic_whatever_other_tools_wrote(spark: SparkSession) -> None:
    declared = (("main", "x"), ("main", None), ("b", None))
    rows = frame(
        spark,
        MANIFESTS.schema,
        ({"cluster": cluster, "topic": "a", "state": "present", "owner": owner} for cluster, owner in declared),
    )
    found = {(row["cluster"], row["topic"]): row["owner"] for row in dicts(owners.of_topics(rows))}
    assert found == {("main", "a"): "x", ("b", "a"): None}
