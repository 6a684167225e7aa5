"""Runs that find nothing to do: what they commit, and what they leave as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import admin_of, live, make, remove
from tests.broker.moving import throttles_on
from tests.harness import UNREACHABLE, Estate
from tests.waiting import until
from topicledger.ledger.throttles import RecordedThrottles
from topicledger.model import Action, Target
from topicledger.model.moves import BROKER, LEADER_RATE, LEADER_REPLICAS, TOPIC, Throttle
from topicledger.observe import topics
from topicledger.schemas import BROKERS, OBSERVED, PLANS, RUNS, TABLES, THROTTLES
from topicledger_testing.embedded_kafka import EmbeddedKafka


def versions(estate: Estate) -> dict[str, int]:
    return {name: estate.ledger.latest_version(table) for name, table in TABLES.items()}


def commits(estate: Estate, before: dict[str, int]) -> dict[str, int]:
    """Table -> commits since `before`, of tables that have any."""
    return {name: version - before[name] for name, version in versions(estate).items() if version != before[name]}


@pytest.mark.thorough
def test_a_run_with_nothing_to_do_commits_its_row_and_nothing_else(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare({"topic": "nothing.one", "num_partitions": 1, "replication_factor": 1})
    created = estate.run()
    assert created.outcomes() == {"ok": 1}
    first = estate.run()
    (seen,) = [row for row in estate.rows(OBSERVED) if row["topic"] == "nothing.one"]
    assert seen["run_id"] == first.run_id, "the one that created it observed it before that"

    before = versions(estate)
    for command in ("provision", "plan"):
        again = estate.run(command)
        assert (again.state, again.exit_code) == ("finished", 0)
        (row,) = estate.rows(RUNS, again.run_id)
        assert (row["state"], row["epoch"], row["counts"]["unchanged"]) == ("finished", 1, 1)
        assert row["started_at"] <= row["observed_at"] <= row["finished_at"]
        assert seen["observed_at"] < row["observed_at"]
    assert commits(estate, before) == {"runs": 2}
    assert [row for row in estate.rows(OBSERVED) if row["topic"] == "nothing.one"] == [seen]

    # An id that was given is in `runs` before anything is asked: another start may have it, too.
    before = versions(estate)
    estate.run(run_id="given")
    assert commits(estate, before) == {"runs": 2}

    # A topic that nobody declared: `observed` says so, and the brokers are as they were.
    before = versions(estate)
    made = make(kafka, "nothing.strange")
    try:
        estate.run()
    finally:
        remove(kafka, made)
    assert commits(estate, before) == {"runs": 2, "observed": 1}

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = versions(estate)
    monkeypatch.setattr(topics, "_observation", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estate.run()
    assert commits(estate, before) == {}, "what wasn't begun can't be resumed"
    remove(kafka, {name: str(info.topic_id) for name, info in live(kafka, "nothing.").items()})


@pytest.mark.thorough
def test_only_differing_clusters_are_written(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka, "away": UNREACHABLE})
    run = estate.run()
    assert run.exit_code == 0, "nothing is declared on the cluster that can't be reached"
    before = versions(estate)
    estate.declare({"topic": "nothing.away"}, cluster="away")
    unreached = estate.run()
    assert unreached.exit_code == 1
    assert set(commits(estate, before)) <= {"runs", "manifests", "plans", "audit", "observed"}
    assert [row["error"] for row in estate.rows(PLANS, unreached.run_id)] == ["CLUSTER_UNREACHABLE"]
    (row,) = estate.rows(RUNS, unreached.run_id)
    assert row["state"] == "planning"
    assert {row["cluster"] for row in estate.rows(BROKERS)} == {"main"}
    applied = estate.run("apply", unreached.run_id)
    assert (applied.exit_code, ["cluster away has no plan" in each for each in applied.problems]) == (1, [True])


@pytest.mark.thorough
def test_a_run_with_nothing_to_do_takes_away_throttles_that_runs_left(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those on a cluster that can't be reached, or that the run isn't about, stay and stop nothing."""
    make(kafka, "nothing.slow")
    lists, rates = {LEADER_REPLICAS: "0:1"}, {LEADER_RATE: "1000"}
    with admin_of(kafka) as admin:
        listed = Target(resource="nothing.slow", action=Action.ALTER_CONFIGS, after=lists)
        assert admin.alter_configs([listed], validate_only=False).results["nothing.slow"].error_code == 0
        assert admin.alter_broker_configs(1, rates).error_code == 0
    until(lambda: len(throttles_on(kafka, ["nothing.slow"])) == 2, seconds=30)
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka, "away": UNREACHABLE})
    left = [
        Throttle(resource_type=TOPIC, resource="nothing.slow", config=LEADER_REPLICAS, before=None, value="0:1"),
        Throttle(resource_type=BROKER, resource="1", config=LEADER_RATE, before=None, value="1000"),
    ]
    for name, cluster_id in {"main": kafka.cluster_id, "away": "kafka-away"}.items():
        RecordedThrottles(ledger=estate.ledger, run_id="dead", cluster=name, cluster_id=cluster_id).intend(left)
    assert estate.run("plan").exit_code == 0
    assert estate.run(clusters=("away",)).exit_code == 0
    assert len(throttles_on(kafka, ["nothing.slow"])) == 2
    caplog.clear()
    assert estate.run().exit_code == 0
    until(lambda: throttles_on(kafka, ["nothing.slow"]) == {}, seconds=30)
    assert {row["cluster"] for row in estate.rows(THROTTLES) if row["removed_at"] is None} == {"away"}
    assert "throttles of cluster away stay for now: it can't be reached" in caplog.text
