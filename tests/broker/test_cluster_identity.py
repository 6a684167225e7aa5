"""A name in the settings stays the same Kafka cluster until somebody accepts a different one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import commands
from tests.broker.direct import live, make
from tests.broker.invoking import invoke, load
from tests.harness import UNREACHABLE, Estate, cluster_settings
from topicledger.config.settings import ClusterSettings
from topicledger.files import export as exporting
from topicledger.ledger.run import find_run
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, BROKERS, CLUSTERS, OBSERVED, OBSERVED_CONFIGS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


def leads_to(estate: Estate, name: str, kafka: EmbeddedKafka | str | ClusterSettings) -> None:
    """Change the address of a cluster in the settings, or all of it."""
    to = kafka if isinstance(kafka, ClusterSettings) else cluster_settings(name, kafka)
    estate.settings = replace(estate.settings, clusters={**estate.settings.clusters, name: to})


def seen_by(estate: Estate) -> dict[str, set[tuple[str, str]]]:
    """Cluster -> (cluster id, run) of what `observed` and `brokers` say of it."""
    found: dict[str, set[tuple[str, str]]] = {}
    for row in [*estate.rows(OBSERVED), *estate.rows(BROKERS)]:
        found.setdefault(row["cluster"], set()).add((row["cluster_id"], row["run_id"]))
    return found


@pytest.mark.thorough
def test_a_different_cluster_behind_a_name_is_not_touched(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """A copied address or a DNS failover: what lives there is nobody's business, deletes least of all."""
    make(kafka_policy, "known.old", "known.theirs")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, max_deletes=5)
    estate.declare({"topic": "known.first"})
    assert estate.run("plan", run_id="first").exit_code == 0

    estate.declare({"topic": "known.new"}, {"topic": "known.old", "state": "absent"}, {"topic": "known bad"})
    leads_to(estate, "main", kafka_policy)
    before = seen_by(estate)
    stopped = estate.run(run_id="stopped")
    assert (stopped.exit_code, stopped.state) == (5, "finished")
    assert stopped.decisions["unmanaged"] == 0, "a stranger's topics count for nothing"
    estate.check_invariant("stopped")
    audit = estate.audit("stopped")
    for topic in ("known.first", "known.new", "known.old"):
        row = audit[topic, "guard"]
        assert (row["outcome"], row["error"], row["action"]) == ("refused", "CLUSTER_ID_MISMATCH", None)
        assert row["cluster_id"] == kafka_policy.cluster_id
    message = audit["known.new", "guard"]["error_message"]
    assert f"main has had id {kafka.cluster_id} since 20" in message
    assert kafka_policy.cluster_id in message
    assert "first use in run first" in message
    assert "`topicledger clusters accept main --config tests.toml`" in message
    assert estate.last("stopped")["known bad"] == ("manifest", "refused", "INVALID_TOPIC")

    estate.declare({"topic": "known.elsewhere"}, cluster="other")
    leads_to(estate, "other", kafka_policy)
    partly = estate.run(run_id="partly", wait_visible=60.0)
    assert (partly.exit_code, partly.state) == (5, "finished")
    assert estate.last("partly")["known.new"] == ("guard", "refused", "CLUSTER_ID_MISMATCH")
    assert "which is cluster other of the settings" in estate.audit("partly")["known.new", "guard"]["error_message"]
    assert estate.last("partly")["known.elsewhere"] == ("verify", "ok", None)
    assert set(live(kafka_policy, "known.")) == {"known.old", "known.theirs", "known.elsewhere"}
    assert seen_by(estate)["main"] == before["main"], "what is known of a cluster is not overwritten by a stranger"


@pytest.mark.thorough
def test_an_audit_of_another_cluster_keeps_nothing_of_it(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka_policy, "audited.theirs")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka, "other": UNREACHABLE})
    assert estate.run_audit("first", clusters=("main",)).exit_code == 0
    before = seen_by(estate)
    (recorded,) = estate.rows(CLUSTERS)
    assert (recorded["name"], recorded["cluster_id"], recorded["run_id"]) == ("main", kafka.cluster_id, "first")

    leads_to(estate, "main", kafka_policy)
    stranger = estate.run_audit("stranger", clusters=("main",))
    assert (stranger.exit_code, stranger.state, stranger.drift_count) == (1, "planning", 0)
    assert [f"a cluster with id {kafka_policy.cluster_id} answers" in each for each in stranger.problems] == [True]
    assert seen_by(estate) == before
    assert {row["run_id"] for row in estate.rows(OBSERVED_CONFIGS)} <= {"first"}
    leads_to(estate, "main", kafka)
    assert estate.run_audit("stranger", clusters=("main",)).exit_code == 0, "the same id goes on when it is right"


@pytest.mark.thorough
def test_an_id_in_the_settings_decides_and_is_recorded(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare({"topic": "stated.topic"})
    assert estate.run("plan", run_id="known").exit_code == 0
    leads_to(estate, "main", cluster_settings("main", kafka_policy, kafka_policy.cluster_id))
    assert estate.run("plan", run_id="stated").exit_code == 0
    (row,) = estate.rows(CLUSTERS)
    assert (row["cluster_id"], row["accepted_how"], row["run_id"]) == (kafka_policy.cluster_id, "settings", "stated")
    leads_to(estate, "main", kafka)
    assert estate.run("plan", run_id="back").exit_code == 5, "what the settings stated stays when they no longer do"


@pytest.mark.thorough
def test_two_names_of_one_cluster_are_refused_and_others_continue(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    """Each guard, budget and lease would count for half of the cluster."""
    make(kafka, "twice.old")
    both = {"main": kafka, "copy": kafka, "third": kafka_policy}
    estate = Estate(spark, tmp_path / "ledger", both, max_deletes=1)
    estate.declare({"topic": "twice.new"}, {"topic": "twice.old", "state": "absent"})
    estate.declare({"topic": "twice.copy"}, cluster="copy")
    estate.declare({"topic": "twice.third"}, cluster="third")
    stopped = estate.run(run_id="twice", wait_visible=60.0)
    assert (stopped.exit_code, stopped.state) == (5, "finished")
    for topic in ("twice.new", "twice.old", "twice.copy"):
        row = estate.audit("twice")[topic, "guard"]
        assert (row["outcome"], row["error"], row["action"]) == ("refused", "SAME_CLUSTER", None)
        assert all(part in row["error_message"] for part in ("main", "copy", kafka.cluster_id))
    assert estate.last("twice")["twice.third"] == ("verify", "ok", None)
    assert set(live(kafka, "twice.")) == {"twice.old"}
    assert [row["name"] for row in estate.rows(CLUSTERS)] == ["third"]
    assert set(seen_by(estate)) == {"third"}

    audited = estate.run_audit(clusters=("main", "copy"))
    assert (audited.exit_code, len(audited.problems)) == (1, 2)
    to = exporting.ExportRequest(to=tmp_path / "export")
    exported = exporting.export(estate.ledger, estate.settings, estate.settings.select(["main", "copy"]), to)
    assert (exported.exit_code, exported.clusters, len(exported.problems)) == (1, [], 2)
    assert all("main" in each and "copy" in each for each in [*audited.problems, *exported.problems])


@pytest.mark.thorough
def test_a_second_name_is_refused_also_if_selected_alone(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka, "copy": UNREACHABLE})
    estate.declare({"topic": "second.main"})
    estate.declare({"topic": "second.copy"}, cluster="copy")
    assert estate.run(run_id="main", clusters=("main",)).exit_code == 0
    leads_to(estate, "copy", kafka)
    assert estate.run(run_id="copy", clusters=("copy",)).exit_code == 5
    assert estate.last("copy") == {"second.copy": ("guard", "refused", "SAME_CLUSTER")}
    assert set(live(kafka, "second.")) == {"second.main"}
    estate.settings = replace(estate.settings, clusters={"copy": estate.settings.clusters["copy"]})
    assert estate.run(run_id="renamed").outcomes() == {"ok": 1, "refused": 1}, "main isn't in the settings any more"


@pytest.fixture
def config(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Path:
    """Settings with cluster `main`, and a manifest for it."""
    assert spark is not None
    path = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers})
    assert load(path, "cluster: main\ntopics: [{topic: accepted.topic}]\n").exit_code == 0
    return path


def point(config: Path, **clusters: EmbeddedKafka | str) -> None:
    """Write the settings again, with other addresses."""
    servers = {name: [each] if isinstance(each, str) else each.bootstrap_servers for name, each in clusters.items()}
    commands.settings_file(config.parent, servers)


@pytest.mark.thorough
def test_accepting_a_different_cluster_ends_plans_for_the_old_one(
    config: Path, spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka
) -> None:
    """Also when the address leads to the old one again, nothing that was planned for it is sent."""
    asked = ("--config", config, "--format", "json")
    assert invoke("plan", *asked, "--run-id", "old").exit_code == 0
    (listed,) = json.loads(invoke("clusters", "list", *asked).stdout)["clusters"]
    assert (listed["name"], listed["cluster_id"], listed["settings_cluster_id"]) == ("main", kafka.cluster_id, None)
    assert (listed["accepted_how"], listed["run_id"], listed["in_settings"]) == ("first use", "old", True)

    point(config, main=kafka_policy)
    stopped = invoke("plan", *asked)
    assert stopped.exit_code == 5
    message = json.loads(stopped.stdout)["failures"][0]["error_message"]
    assert f"`topicledger clusters accept main --config {config}`" in message
    explained = invoke("policies", "explain", "--topic", "accepted.topic", "--cluster", "main", "--config", config)
    assert (explained.exit_code, kafka_policy.cluster_id in explained.stderr) == (5, True)
    who = invoke("access", "who", "--topic", "accepted.topic", "--cluster", "main", "--config", config)
    assert (who.exit_code, kafka_policy.cluster_id in who.stderr) == (5, True)
    exported = invoke("export", *asked, "--cluster", "main", "--to", config.parent / "out.yaml")
    assert (exported.exit_code, message in json.loads(exported.stdout)["problems"]) == (1, True)

    result = config.with_name("result.json")
    by = ("--requested-by", "ann", "--run-id", "accepting", "--result-file", result)
    accepted = invoke("clusters", "accept", "main", *asked, *by)
    assert (accepted.exit_code, json.loads(accepted.stdout)) == (0, json.loads(result.read_text()))
    assert json.loads(accepted.stdout) == {
        "format_version": 1,
        "exit_code": 0,
        "name": "main",
        "cluster_id": kafka_policy.cluster_id,
        "earlier_cluster_id": kafka.cluster_id,
        "changed": True,
        "run_id": "accepting",
        "open_runs": ["old"],
    }
    ledger = Ledger(spark, str(config.parent / "ledger"))
    row = find_run(ledger, "accepting")
    assert row is not None
    assert (row["state"], row["exit_code"], row["requested_by"]) == ("finished", 0, "ann")
    assert row["arguments"] == {
        "command": "clusters accept",
        "name": "main",
        "old_cluster_id": kafka.cluster_id,
        "new_cluster_id": kafka_policy.cluster_id,
    }
    version = ledger.latest_version(CLUSTERS)
    again = invoke("clusters", "accept", "main", "--config", config)
    assert (again.exit_code, again.stdout) == (0, f"the id of cluster main is {kafka_policy.cluster_id} already\n")
    assert ledger.latest_version(CLUSTERS) == version
    assert ledger.read(RUNS).where("arguments['command'] = 'clusters accept'").count() == 1
    assert "command: ann" in invoke("clusters", "list", "--config", config).stdout

    point(config, main=kafka)
    assert invoke("apply", *asked, "--run-id", "old").exit_code == 5
    found = ledger.read(AUDIT).where("run_id = 'old' AND phase = 'apply'").collect()
    assert [(each["outcome"], each["error"]) for each in found] == [("refused", "CLUSTER_ID_MISMATCH")]
    assert kafka_policy.cluster_id in found[0]["error_message"]
    assert not live(kafka, "accepted.")

    point(config, main=kafka_policy)
    assert invoke("provision", *asked, "--wait-visible", "60").exit_code == 0
    assert set(live(kafka_policy, "accepted.")) == {"accepted.topic"}


def test_unacceptable_clusters_are_refused_with_a_reason(
    config: Path, kafka: EmbeddedKafka, spark: SparkSession
) -> None:
    def accept(name: str) -> tuple[int, str]:
        done = invoke("clusters", "accept", name, "--config", config)
        return done.exit_code, done.stderr

    assert accept("mian") == (2, f"error: {config}: unknown cluster `mian`; did you mean `main`?\n")
    assert accept("main")[0] == 0
    point(config, main=kafka, copy=kafka, away=UNREACHABLE)
    config.write_text(config.read_text() + "[kafka]\nconnect_timeout = 2\n")
    code, message = accept("copy")
    assert (code, "clusters copy and main of the settings are one Kafka cluster" in message) == (5, True), message
    code, message = accept("away")
    assert (code, UNREACHABLE in message) == (1, True), message
    config.write_text(config.read_text().replace("[clusters.copy]", '[clusters.copy]\ncluster_id = "another"'))
    code, message = accept("copy")
    assert (code, "the settings expect id another for cluster copy" in message) == (5, True), message
    ledger = Ledger(spark, str(config.parent / "ledger"))
    assert [row["name"] for row in ledger.read(CLUSTERS).collect()] == ["main"]
    accepted = ledger.read(RUNS).where(F.col("arguments")["command"] == "clusters accept")
    assert accepted.count() == 1
