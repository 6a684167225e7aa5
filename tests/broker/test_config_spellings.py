"""Every spelling of a config's value that a broker takes is planned once (K8)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.changes import changing, set_on
from tests.unit.config_values import STORED
from topicledger.config.settings import ChangeSettings
from topicledger.kafka.config_values import is_odd
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
