"""Every spelling of a config's value that a broker takes is planned once (K8)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.changes import changing, set_on
from tests.broker.direct import admin_of, creates
from tests.broker.invoking import done, planned
from tests.clusters import VERSION
from tests.unit.config_values import STORED, any_text
from topicledger.config.settings import ChangeSettings
from topicledger.kafka.config_values import is_odd
from topicledger.model import Target
from topicledger.model.config_texts import ConfigTextError, stored
from topicledger.model.topic_configs import TopicConfig, topic_configs
from topicledger_testing.embedded_kafka import EmbeddedKafka


def spelt() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """By topic and config, a spelling that isn't odd, and what the broker returns for it; each spelling once."""
    of_each = [
        [(name, value, stored) for stored, values in STORED[name].items() for value in values if not is_odd(value)]
        for name in STORED
        if name not in ChangeSettings.ignore
    ]
    return {
        f"spelt.{number}": {name: (value, stored) for name, value, stored in filter(None, configs)}
        for number, configs in enumerate(zip_longest(*of_each))
    }


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_no_spelling_of_a_value_is_altered_by_a_second_run(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = spelt()
    estate = changing(spark, tmp_path, kafka, configs="declared")
    rows = [
        {"topic": topic, "num_partitions": 1, "configs": {name: value for name, (value, _) in configs.items()}}
        for topic, configs in topics.items()
    ]
    estate.declare(*rows, {"topic": "spelt.odd", "configs": {"min.cleanable.dirty.ratio": "0x1p-2"}})
    first = estate.run(run_id="first", wait_visible=60.0)
    assert first.outcomes() == {"ok": len(topics), "refused": 1}
    assert estate.audit("first")["spelt.odd", "manifest"]["error"] == "INVALID_CONFIGS"
    assert set_on(kafka, *topics) == {
        topic: {name: stored for name, (_, stored) in configs.items()} for topic, configs in topics.items()
    }
    again = estate.run("plan", run_id="again")
    assert again.pending_changes == 0


TEXTS = 8
"""Texts of each config."""
TOGETHER = {
    "flush.messages",
    "local.retention.bytes",
    "local.retention.ms",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
}
"""Configs of which a broker refuses values that others accept, by its version, its settings or the topic's others."""


def accepted(config: TopicConfig, rng: random.Random) -> Iterator[str]:
    """Texts that a load accepts."""
    while True:
        text = any_text(config, rng)
        try:
            stored(config.name, text)
        except ConfigTextError:
            continue
        yield text


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_a_second_plan_is_empty_for_any_text_that_files_may_have(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Also, a broker refuses nothing that a load accepts, but for `TOGETHER`."""
    rng = random.Random(42)
    configs = [each for each in topic_configs().values() if each.known_in(VERSION)]
    texts = [
        (each.name, text)
        for each in configs
        if each.name not in ChangeSettings.ignore
        for text in islice(accepted(each, rng), TEXTS)
    ]
    topics = {f"any.{number:03}": (name, text) for number, (name, text) in enumerate(texts)}
    targets: list[Target] = []
    for topic, (name, text) in topics.items():
        targets += creates([topic], num_partitions=1, replication_factor=1, configs={name: stored(name, text)})
    with admin_of(kafka) as admin:
        results = admin.create_topics(targets, validate_only=True).results
    refused = {topics[topic] for topic, result in results.items() if result.error_code}
    assert {name for name, _ in refused} <= TOGETHER, refused
    kept = {topic: {name: text} for topic, (name, text) in topics.items() if (name, text) not in refused}
    assert {name for each in kept.values() for name in each} == {name for name, _ in texts}

    entries = [{"topic": topic, "configs": values} for topic, values in kept.items()]
    defaults = {"num_partitions": 1, "replication_factor": 1}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"cluster": "main", "defaults": defaults, "topics": entries}))
    more = '[changes]\nconfigs = "declared"\n'
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=more)
    done("load-manifests", manifest, "--config", config)
    done("provision", "--config", config, "--wait-visible", "120s")
    found = set_on(kafka, *kept)
    assert {topic: set(each) for topic, each in found.items()} == {topic: set(each) for topic, each in kept.items()}
    assert planned(config)["pending_changes"] == 0
