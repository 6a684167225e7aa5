"""Causes that stop a run or a part of it, and how it continues: saved plans, guards, unreachable clusters."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tests.broker.direct import live, make, remove
from tests.harness import UNREACHABLE, Estate, cluster_settings, policy, topics
from topicledger import pipeline
from topicledger.apply import stages
from topicledger.apply.dispatch import Context
from topicledger.apply.rendering import render
from topicledger.apply.summary import Summary
from topicledger.apply.values import Applied, Validated
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import KafkaSettings, PolicySettings
from topicledger.errors import UsageError
from topicledger.ledger import leases, runs
from topicledger.ledger.abandoned import abandon
from topicledger.ledger.run import Run
from topicledger.model import TopicInfo
from topicledger.pipeline import Planned
from topicledger.plan import approvals
from topicledger.plan.standing import applied, in_batches, sendable
from topicledger.schemas import AUDIT, PLANS, RUNS
from topicledger.text import SHOWN_FAILURES
from topicledger_testing.embedded_kafka import EmbeddedKafka


@dataclass(frozen=True)
class Saved:
    """A plan, what happened to the cluster until it was applied, and what applying it made of that."""

    estate: Estate
    before: Mapping[str, TopicInfo]
    planned: Summary
    preview: Mapping[tuple[str | None, str], dict[str, Any]]
    planned_state: str
    meanwhile: Mapping[str, TopicInfo]
    anew: str
    applied: Summary
    after: Mapping[str, TopicInfo]


@pytest.fixture(scope="module")
def saved(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    ids = make(kafka, "saved.doomed", "saved.gone", "saved.anew")
    estate = Estate(spark, tmp_path_factory.mktemp("saved") / "ledger", {"main": kafka}, max_deletes=5)
    estate.declare(
        {"topic": "saved.fresh", "num_partitions": 2, "configs": {"retention.ms": "60000"}},
        {"topic": "saved.appears", "num_partitions": 2},
        {"topic": "saved.same", "num_partitions": 1},
        *topics(ids, state="absent"),
    )
    before = live(kafka, "saved.")
    planned = estate.run("plan", run_id="saved", detailed_exitcode=True)
    meanwhile = live(kafka, "saved.")
    preview = estate.audit("saved")
    (run,) = estate.rows(RUNS, "saved")

    make(kafka, "saved.appears", "saved.same")
    remove(kafka, {name: ids[name] for name in ("saved.gone", "saved.anew")})
    anew = make(kafka, "saved.anew")["saved.anew"]
    applied = estate.run("apply", run_id="saved", wait_visible=60.0)
    return Saved(
        estate=estate,
        before=before,
        planned=planned,
        preview=preview,
        planned_state=run["state"],
        meanwhile=meanwhile,
        anew=anew,
        applied=applied,
        after=live(kafka, "saved."),
    )


@pytest.mark.thorough
def test_plan_leaves_the_cluster_as_it_was(saved: Saved) -> None:
    """C5"""
    assert saved.meanwhile == saved.before
    assert set(saved.before) == {"saved.doomed", "saved.gone", "saved.anew"}


def test_plan_says_that_changes_are_pending(saved: Saved) -> None:
    assert (saved.planned.exit_code, saved.planned.state, saved.planned_state) == (3, "planned", "planned")
    assert saved.planned.pending_changes == 6


def test_the_preview_is_what_the_broker_would_use(saved: Saved) -> None:
    """C5, C19"""
    assert {phase for _, phase in saved.preview} == {"validate"}
    row = saved.preview["saved.fresh", "validate"]
    assert (row["outcome"], row["num_partitions"], row["replication_factor"]) == ("ok", 2, 1)
    configs = {config["name"]: (config["value"], config["config_source"]) for config in row["configs"]}
    assert configs["retention.ms"] == ("60000", "DYNAMIC_TOPIC_CONFIG")
    assert configs["cleanup.policy"] == ("delete", "DEFAULT_CONFIG")
    assert row["topic_id"] is None


def test_apply_does_what_is_still_as_planned(saved: Saved) -> None:
    """C6, D7"""
    last = saved.estate.last("saved")
    assert last["saved.fresh"] == last["saved.doomed"] == ("verify", "ok", None)
    assert saved.after["saved.fresh"].num_partitions == 2
    assert "saved.doomed" not in saved.after


def test_apply_refuses_to_create_what_another_client_created_since(saved: Saved) -> None:
    """C6: valid when planned, a stranger's since."""
    assert saved.preview["saved.appears", "validate"]["outcome"] == "ok"
    row = saved.estate.audit("saved")["saved.appears", "apply"]
    assert (row["outcome"], row["error"]) == ("refused", "CHANGED_SINCE_PLAN")
    assert row["error_message"] == (
        "the topic appeared since the plan and is not as planned: num_partitions is 1, planned 2; another client "
        "created it; plan again"
    )


def test_apply_skips_what_exists_as_planned(saved: Saved) -> None:
    row = saved.estate.audit("saved")["saved.same", "apply"]
    assert (row["outcome"], row["error"]) == ("skipped", None)
    assert row["error_message"] == "the topic exists as planned: another client created it since the plan"
    assert ("saved.same", "verify") not in saved.estate.audit("saved")


@pytest.mark.thorough
def test_a_plan_carried_out_by_another_run_has_nothing_to_do(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(*topics(["twice.one", "twice.two"], num_partitions=2, configs={"retention.ms": "60000"}))
    estate.run("plan", run_id="first")
    assert estate.run(run_id="second", wait_visible=60.0).outcomes() == {"ok": 2}
    late = estate.run("apply", run_id="first")
    assert (late.exit_code, late.outcomes(), late.state) == (0, {"skipped": 2}, "finished")
    reason = "the topic exists as planned: run second created it since the plan"
    assert estate.audit("first")["twice.one", "apply"]["error_message"] == reason
    shown = Console(file=io.StringIO(), width=200)
    render(late, shown)
    assert f"2 skipped on main: {reason}" in shown.file.getvalue().splitlines()


def test_apply_refuses_to_delete_what_is_gone_since(saved: Saved) -> None:
    """D6: before `applying` it was not our delete."""
    assert saved.estate.last("saved")["saved.gone"] == ("apply", "refused", "CHANGED_SINCE_PLAN")


def test_a_topic_recreated_between_plan_and_apply_survives(saved: Saved) -> None:
    """D7"""
    assert saved.estate.last("saved")["saved.anew"] == ("apply", "refused", "RECREATED")
    assert saved.after["saved.anew"].topic_id == saved.anew


def test_an_applied_plan_is_finished(saved: Saved) -> None:
    saved.estate.check_invariant("saved")
    assert saved.applied.exit_code == 4
    assert saved.applied.outcomes() == {"ok": 2, "refused": 3, "skipped": 1}


@pytest.mark.thorough
def test_a_saved_plan_is_not_applied_to_another_cluster(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """D6: the address leads to another cluster than at the time of the plan."""
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare({"topic": "moved.topic"})
    assert estate.run("plan", run_id="moved").exit_code == 0
    elsewhere = Estate(spark, tmp_path / "ledger", {"main": kafka_policy})
    assert elsewhere.run("apply", run_id="moved").exit_code == 5
    elsewhere.check_invariant("moved")
    assert elsewhere.last("moved")["moved.topic"] == ("apply", "refused", "CLUSTER_ID_MISMATCH")
    assert not live(kafka, "moved.")
    assert not live(kafka_policy, "moved.")


def test_the_same_run_with_other_clusters_is_a_usage_error(saved: Saved) -> None:
    with pytest.raises(UsageError, match="started with clusters: all, not main") as error:
        saved.estate.run(run_id="saved", clusters=("main",))
    assert error.value.exit_code == 2


def test_the_same_run_with_other_settings_is_a_usage_error(
    saved: Saved, spark: SparkSession, kafka: EmbeddedKafka
) -> None:
    other = Estate(spark, Path(saved.estate.settings.tables.root), {"main": kafka}, max_deletes=6)
    with pytest.raises(UsageError, match="start a new run") as error:
        other.run(run_id="saved")
    assert error.value.exit_code == 2


def test_an_unknown_plan_cannot_be_applied(saved: Saved) -> None:
    with pytest.raises(UsageError, match="there is no run nowhere"):
        saved.estate.run("apply", run_id="nowhere")


@pytest.mark.thorough
def test_too_many_deletes_stop_all_deletes_of_that_cluster_and_nothing_else(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """D7: with the limit raised a new run deletes by id; then nothing is left to do."""
    ids = make(kafka, "guard.old-1", "guard.old-2", "guard.old-3")
    make(kafka_policy, "guard.other")
    both = {"main": kafka, "other": kafka_policy}
    estate = Estate(spark, tmp_path / "ledger", both, max_deletes=2)
    estate.declare(*topics(ids, state="absent"), {"topic": "guard.new"})
    estate.declare({"topic": "guard.other", "state": "absent"}, cluster="other")

    stopped = estate.run(run_id="stopped", wait_visible=60.0)
    assert stopped.exit_code == 5
    estate.check_invariant("stopped")
    audit = estate.audit("stopped")
    for name in ids:
        row = audit[name, "guard"]
        assert (row["outcome"], row["error"], row["action"]) == ("refused", "MAX_DELETES_EXCEEDED", "delete")
        assert "deletes of this cluster: 3" in row["error_message"]
        assert "max_deletes is 2" in row["error_message"]
    assert estate.last("stopped")["guard.new"] == estate.last("stopped")["guard.other"] == ("verify", "ok", None)
    assert set(live(kafka, "guard.")) == {*ids, "guard.new"}

    raised = Estate(spark, tmp_path / "ledger", both, max_deletes=3)
    assert raised.run(run_id="raised").exit_code == 0
    raised.check_invariant("raised")
    applied = {row["topic"]: row["topic_id"] for row in raised.rows(AUDIT, "raised") if row["phase"] == "apply"}
    assert applied == ids
    assert set(live(kafka, "guard.")) == {"guard.new"}

    idle = raised.run(run_id="idle")
    assert (idle.exit_code, idle.state, idle.outcomes()) == (0, "finished", {})
    assert not raised.rows(PLANS, "idle")


@pytest.mark.thorough
def test_a_cluster_other_than_the_settings_say_is_not_touched(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka, "stranger.theirs")
    estate = Estate(
        spark,
        tmp_path / "ledger",
        {
            "right": cluster_settings("right", kafka, cluster_id=kafka.cluster_id),
            "wrong": cluster_settings("wrong", kafka, cluster_id="another"),
        },
        max_deletes=5,
    )
    estate.declare({"topic": "stranger.right"}, cluster="right")
    estate.declare({"topic": "stranger.wrong"}, {"topic": "stranger.theirs", "state": "absent"}, cluster="wrong")
    assert estate.run(run_id="stranger").exit_code == 5
    estate.check_invariant("stranger")
    for topic in ("stranger.wrong", "stranger.theirs"):
        row = estate.audit("stranger")[topic, "guard"]
        assert (row["outcome"], row["error"]) == ("refused", "CLUSTER_ID_MISMATCH")
        assert kafka.cluster_id in row["error_message"]
    assert set(live(kafka, "stranger.")) == {"stranger.right", "stranger.theirs"}


@pytest.mark.thorough
def test_an_unreachable_cluster_fails_alone_and_the_same_run_finishes_when_its_address_is_right(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """M1: the resumed run observes and plans that cluster, and does nothing twice."""
    hasty = KafkaSettings(connect_timeout=3.0)
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka, "away": UNREACHABLE}, kafka=hasty)
    estate.declare({"topic": "reach.main"})
    estate.declare({"topic": "reach.away-1"}, {"topic": "reach.away-2", "num_partitions": 0}, cluster="away")
    estate.declare({"topic": "reach.away-3", "state": "absent"}, cluster="away")
    started = time.monotonic()
    first = estate.run(run_id="reach", wait_visible=60.0)
    assert time.monotonic() - started < 60
    assert first.exit_code == 1
    assert any(UNREACHABLE in problem for problem in first.problems)
    away = [each for each in first.failures if each.error == "CLUSTER_UNREACHABLE"]
    assert [(each.cluster, each.topic, each.topics) for each in away] == [("away", None, 2)]
    last = estate.last("reach")
    assert last["reach.main"] == ("verify", "ok", None)
    assert last["reach.away-1"] == last["reach.away-3"] == ("observe", "failed", "CLUSTER_UNREACHABLE")
    assert last["reach.away-2"] == ("manifest", "refused", "INVALID_NUM_PARTITIONS")
    (run,) = estate.rows(RUNS, "reach")
    assert (run["state"], run["exit_code"]) == ("applying", None)

    corrected = Estate(spark, tmp_path / "ledger", {"main": kafka, "away": kafka_policy})
    second = corrected.run(run_id="reach", wait_visible=60.0)
    assert second.exit_code == 4, second
    assert second.outcomes() == {"ok": 2, "refused": 1, "skipped": 1}
    corrected.check_invariant("reach")
    assert corrected.last("reach")["reach.away-3"] == ("policy", "skipped", None)
    assert corrected.last("reach")["reach.away-1"] == ("verify", "ok", None)
    applied = [row["topic"] for row in corrected.rows(AUDIT, "reach") if row["phase"] == "apply"]
    assert sorted(applied) == ["reach.away-1", "reach.main"]
    assert set(live(kafka_policy, "reach.")) == {"reach.away-1"}
    (run,) = corrected.rows(RUNS, "reach")
    assert (run["state"], run["exit_code"]) == ("finished", 4)


@pytest.mark.thorough
def test_a_cluster_that_another_run_changes_stops_only_itself(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """Its actions stay open, and the same run does them once the other run has released the lease."""
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka, "other": kafka_policy})
    estate.declare({"topic": "held.main"})
    estate.declare({"topic": "held.other"}, cluster="other")
    asked = {"observed_since": datetime.now(UTC), "request_timeout": 1.0, "wait": False, "stop": threading.Event()}
    with leases.take(estate.ledger, "another", {kafka_policy.cluster_id: "other"}, **asked):
        first = estate.run(run_id="held", wait_visible=60.0)
        assert (first.exit_code, first.outcomes()) == (1, {"ok": 1, "open": 1})
        (problem,) = first.problems
        assert "cluster other" in problem
        assert "is being changed by run another" in problem
        assert "start the run again later with its id, or with --wait" in problem
        assert (set(live(kafka, "held.")), set(live(kafka_policy, "held."))) == ({"held.main"}, set())
    assert estate.run(run_id="held", wait_visible=60.0).exit_code == 0
    estate.check_invariant("held")
    assert set(live(kafka_policy, "held.")) == {"held.other"}


@pytest.mark.thorough
def test_a_plan_is_applied_although_one_cluster_was_not_reached(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """Only the plan of that time is approved: the later plan of the other cluster needs its own approval."""
    hasty, guards = KafkaSettings(connect_timeout=3.0), GuardSettings(approvals=1)
    away = Estate(spark, tmp_path / "ledger", {"main": kafka, "away": UNREACHABLE}, kafka=hasty)
    away.settings = replace(away.settings, guards=guards)
    away.declare({"topic": "part.main"})
    away.declare({"topic": "part.away"}, cluster="away")
    planned = away.run("plan", run_id="part")
    assert (planned.exit_code, planned.state) == (1, "planning")
    approvals.approve(away.ledger, away.settings, "part", by="somebody else")

    applied = away.run("apply", run_id="part", wait_visible=60.0)
    assert (applied.exit_code, applied.state) == (1, "applying")
    (problem,) = applied.problems
    assert "cluster away has no plan" in problem
    assert "start `plan` again with --run-id part, then `apply`" in problem
    assert away.last("part")["part.main"] == ("verify", "ok", None)

    back = Estate(spark, tmp_path / "ledger", {"main": kafka, "away": kafka_policy}, kafka=hasty)
    back.settings = replace(back.settings, guards=guards)
    assert back.run("plan", run_id="part").pending_changes == 1
    waiting = back.run("apply", run_id="part")
    assert (waiting.exit_code, waiting.pending.waits_for is not None) == (5, True)
    assert not live(kafka_policy, "part.")
    approvals.approve(back.ledger, back.settings, "part", by="somebody else")
    assert back.run("apply", run_id="part", wait_visible=60.0).exit_code == 0
    back.check_invariant("part")
    assert set(live(kafka_policy, "part.")) == {"part.away"}


@pytest.mark.thorough
def test_empty_manifests_are_nothing_to_do(estate: Estate) -> None:
    summary = estate.run(run_id="empty")
    assert (summary.exit_code, summary.state, summary.outcomes()) == (0, "finished", {})


@pytest.mark.thorough
def test_an_abandoned_run_is_not_taken_up_again(estate: Estate, kafka: EmbeddedKafka) -> None:
    estate.declare({"topic": "abandoned.topic"})
    runs.start(estate.ledger, estate.settings, runs.Request(command="plan", run_id="abandoned"))
    abandon(estate.ledger, estate.settings, "abandoned")
    for command in ("plan", "apply", "provision"):
        with pytest.raises(UsageError, match="was abandoned"):
            estate.run(command, run_id="abandoned")
    assert not live(kafka, "abandoned.")


@pytest.mark.thorough
def test_the_only_cluster_may_be_away_twice_and_the_same_run_still_finishes(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """M1: nothing is planned twice, and what turns out to need nothing has a result as well."""
    quick = KafkaSettings(connect_timeout=2.0)
    make(kafka, "away.there")
    away = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE}, kafka=quick)
    away.declare({"topic": "away.there"}, {"topic": "away.new"}, {"topic": "away bad"})
    for _ in range(2):
        summary = away.run(run_id="away")
        assert summary.exit_code == 1
        assert summary.problems
    back = Estate(spark, tmp_path / "ledger", {"main": kafka}, kafka=quick)
    assert back.run(run_id="away").exit_code == 4
    back.check_invariant("away")
    assert back.last("away") == {
        "away.there": ("policy", "skipped", None),
        "away.new": ("verify", "ok", None),
        "away bad": ("manifest", "refused", "INVALID_TOPIC"),
    }
    assert [row["phase"] for row in back.rows(PLANS, "away")].count("manifest") == 1


@pytest.mark.thorough
def test_values_between_phases_agree_with_the_tables(
    estate: Estate, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is taken up again makes the same values from the tables."""
    handed, read = list[Any](), list[Any]()
    validate, apply = pipeline.validate, stages.apply

    def after_validate(run: Run, context: Context, planned: Planned) -> Validated:
        ready = validate(run, context, planned)
        handed.append(ready.actions)
        read.append(in_batches(sendable(run)))
        return ready

    def after_apply(run: Run, context: Context, ready: Validated, closing: ExitStack, left: Any) -> Applied:
        done = apply(run, context, ready, closing, left)
        actions, answers = applied(run)
        handed.append((done.actions, {key: done.answers[key] for key in answers}))
        read.append((actions, answers))
        return done

    monkeypatch.setattr(pipeline, "validate", after_validate)
    monkeypatch.setattr(stages, "apply", after_apply)
    make(kafka, "handed.there")
    estate.declare(
        {"topic": "handed.there"},
        *topics([f"handed.{n}" for n in range(3)], configs={"retention.ms": "1"}),
        *topics([f"handed.bad-{n}" for n in range(25)], configs={"retention.ms": "never"}),
        {"topic": "handed.wide", "replication_factor": 3},
    )
    done = estate.run(wait_visible=60.0)
    assert done.failure_count == 26
    assert len(done.failures) == SHOWN_FAILURES
    assert done.outcomes() == {"ok": 3, "failed": 26}
    assert len(handed) == 2
    assert handed == read
    assert [len(batch) for batch in handed[0]["main"][1]] == [3]


@pytest.mark.thorough
def test_refusals_after_validate_are_read_from_the_tables(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Its row of `audit` comes from no request, so nothing is remembered from there on."""
    rules = PolicySettings(create=(policy("num_partitions", min=2),))
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, policies=rules)
    estate.declare({"topic": "forgotten.small"}, {"topic": "forgotten.large", "num_partitions": 2})
    summary = estate.run(run_id="forgotten")
    assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 1, "refused": 1})
    assert estate.last("forgotten")["forgotten.small"] == ("policy", "refused", "POLICY_VIOLATION")
    assert set(live(kafka, "forgotten.")) == {"forgotten.large"}
