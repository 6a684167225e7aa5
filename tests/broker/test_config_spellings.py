"""Every spelling of a config's value that a broker takes is planned once (K8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.test_changes import changing, set_on
from tests.unit.test_config_values import STORED
from topicledger.kafka.config_values import is_odd
from topicledger.schemas import PLANS
from topicledger.testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_no_spelling_of_a_value_is_altered_by_a_second_run(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    spellings = [
        (name, stored, value) for name in STORED for stored, values in STORED[name].items() for value in values
    ]
    topics = {f"spelt.{number}": each for number, each in enumerate(spellings)}
    estate = changing(spark, tmp_path, kafka, configs="declared")
    estate.declare(
        *({"topic": topic, "num_partitions": 1, "configs": {name: value}} for topic, (name, _, value) in topics.items())
    )
    estate.run(run_id="first", wait_visible=60.0)
    audit = estate.audit("first")
    odd = {topic for topic, (_, _, value) in topics.items() if is_odd(value)}
    assert {topic for topic, phase in audit if phase == "manifest"} == odd
    assert {audit[topic, "manifest"]["error"] for topic in odd} == {"INVALID_CONFIGS"}
    made = set_on(kafka, *(topic for topic in topics if topic not in odd))
    stored = {topic: topics[topic][1] for topic in made}
    assert {topic: configs[topics[topic][0]] for topic, configs in made.items()} == stored
    again = estate.run("plan", run_id="again")
    assert again.pending_changes == 0
    assert [row["topic"] for row in estate.rows(PLANS, "again") if row["action"] is not None] == []
