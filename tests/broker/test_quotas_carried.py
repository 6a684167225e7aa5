"""Quotas that a cluster has become rows of `quotas`, and a plan of these rows finds nothing to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.test_commands import invoke
from tests.broker.test_quotas import declare, estate_of, fresh, live  # noqa: F401
from topicledger.model.quotas import Entity
from topicledger.schemas import PLANS, QUOTAS
from topicledger.testing.embedded_kafka import EmbeddedKafka

TOOLS = clusters.JARS.with_name("kafka-tools")
WANTED: Mapping[Entity, Mapping[str, float]] = {
    Entity(user="CN=b, O=\u00fc\\"): {"producer_byte_rate": 1e9, "request_percentage": 12.5},
    Entity(user="a", client_id="one two"): {"consumer_byte_rate": 2e6},
    Entity(user="a", client_id="<default>"): {"controller_mutation_rate": 0.5},
    Entity(user="<default>"): {"producer_byte_rate": 3e9},
    Entity(client_id="\\<default>"): {"producer_byte_rate": 5.0},
    Entity(ip="10.0.0.1"): {"connection_creation_rate": 9.0},
    Entity(ip="<default>"): {"connection_creation_rate": 900.0},
    Entity(user="stranger"): {"producer_byte_rate": 77.0},
}


def described(kafka: EmbeddedKafka, folder: Path, *kinds: str) -> str:
    """What Kafka's own tool prints of the quotas of entities of these kinds."""
    options = kafka.client_options()
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{options["sasl_plain_username"]}" password="{options["sasl_plain_password"]}";'
    )
    client = folder / "client.properties"
    client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    classpath = os.pathsep.join([f"{clusters.JARS}/*", f"{TOOLS}/*"])
    tool = ["java", "-cp", classpath, "kafka.admin.ConfigCommand", "--command-config", str(client), "--describe"]
    named = [part for kind in kinds for part in ("--entity-type", kind)]
    done = subprocess.run(
        [*tool, *named, "--bootstrap-server", kafka.bootstrap_servers[0]],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    return done.stdout


def settings(kafka: EmbeddedKafka, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    options = kafka.client_options()
    monkeypatch.setenv("CARRIED_PASSWORD", options["sasl_plain_password"])
    path = folder / "settings.toml"
    path.write_text(
        f'[tables]\nroot = "{folder / "ledger"}"\n'
        f"[clusters.main]\nbootstrap_servers = {list(kafka.bootstrap_servers)}\n".replace("'", '"')
        + '[clusters.main.client]\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n'
        f'sasl_plain_username = "{options["sasl_plain_username"]}"\nsasl_plain_password = "env:CARRIED_PASSWORD"\n'
    )
    return path


@pytest.fixture
def wanted(spark: SparkSession, fresh: EmbeddedKafka, tmp_path: Path) -> EmbeddedKafka:  # noqa: F811
    """The broker, with quotas of every kind of entity."""
    estate = estate_of(spark, fresh, tmp_path / "setting-up")
    declare(estate, *({**entity._asdict(), **limits} for entity, limits in WANTED.items()))
    assert estate.run().exit_code == 0
    assert live(fresh) == WANTED
    return fresh


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_quotas_that_the_tool_describes_are_loaded_as_they_are(
    spark: SparkSession, wanted: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "described.txt"
    kinds = (("users",), ("clients",), ("users", "clients"), ("ips",))
    file.write_text("".join(described(wanted, tmp_path, *each) for each in kinds))
    config = settings(wanted, tmp_path, monkeypatch)
    options = (file, "--config", config, "--from", "kafka-configs", "--cluster", "main")
    loaded = invoke("load_manifests", *options)
    assert loaded.exit_code == 0, loaded.output + file.read_text()
    assert f"quotas: {len(WANTED)} added" in loaded.output
    planned = invoke("plan", "--config", config, "--run-id", "carried", "--detailed-exitcode")
    assert planned.exit_code == 0, planned.output
    estate = estate_of(spark, wanted, tmp_path)
    assert estate.rows(PLANS, "carried") == []
    assert len(estate.rows(QUOTAS)) == len(WANTED)
