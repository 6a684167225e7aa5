"""What Kafka's own `kafka-topics --describe` prints is read back as the topics that are there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker import direct
from tests.broker.direct import TOOLS
from tests.broker.invoking import error_of, invoke
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS
from topicledger_testing.embedded_kafka import EmbeddedKafka


def describe(kafka: EmbeddedKafka, pattern: str) -> str:
    """Return the tool's output about topics whose names match."""
    assert any(TOOLS.glob("kafka-tools-*.jar")), f"{TOOLS} has no kafka-tools jar: run `make setup`"
    classpath = os.pathsep.join([f"{clusters.JARS}/*", f"{TOOLS}/*"])
    tool = ["java", "-cp", classpath, "org.apache.kafka.tools.TopicCommand", "--describe", "--topic", pattern]
    done = subprocess.run(
        [*tool, "--bootstrap-server", kafka.bootstrap_servers[0]],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    return done.stdout


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_topics_that_the_tool_describes_are_loaded_as_they_are(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    throttled = "leader.replication.throttled.replicas"
    configs = {"cleanup.policy": "compact,delete", "retention.ms": "3600000", throttled: "0:1,1:1"}
    direct.make(kafka, "described.one", num_partitions=3, configs=configs)
    direct.make(kafka, "described.two")
    file = tmp_path / "described.txt"
    file.write_text(describe(kafka, r"described\..*"))
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers})
    options = (file, "--config", config, "--from", "kafka-topics")

    assert "--from kafka-topics needs --cluster NAME" in error_of(invoke("load_manifests", *options), 2)
    twice = ("--cluster", "main", "--cluster", "main")
    assert "takes only one --cluster" in error_of(invoke("load_manifests", *options, *twice), 2)

    result_file = tmp_path / "result.json"
    loaded = invoke("load_manifests", *options, "--cluster", "main", "--result-file", result_file)
    assert loaded.exit_code == 0, loaded.output
    assert loaded.stdout == "2 added, 0 changed, 0 unchanged, 0 removed; 3 not carried over\n"
    assert "not carried over: `Configs` (unknown whether a config is the topic's own or the brokers'" in loaded.stderr
    document = json.loads(result_file.read_text())
    kept = [(each["file"], each["line"], each["key"]) for each in document["not_carried_over"]]
    listed = [(str(file), 1, "TopicId, Leader, Replicas, Isr, Elr"), (str(file), 1, "Configs")]
    assert kept == [*listed, (str(file), 1, f"described.one: {throttled}")]
    assert (document["added"], document["skipped"]) == (2, {})

    one, two = Ledger(spark, str(tmp_path / "ledger")).read(MANIFESTS).orderBy("topic").collect()
    assert (one["num_partitions"], one["replication_factor"], one["assignments"]) == (3, 1, None)
    # Runs ignore the lists of throttled replicas: they belong to a move.
    assert {name: one["configs"].get(name) for name in configs} == {**configs, throttled: None}
    assert (two["num_partitions"], two["replication_factor"]) == (1, 1)

    planned = invoke("plan", "--config", config, "--run-id", "described", "--detailed-exitcode")
    assert planned.exit_code == 0, planned.output
