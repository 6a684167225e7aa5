"""`runs revert`, `--only` and earlier manifests by command: what is printed, and what is wrong with the question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.changes import set_on
from tests.broker.direct import make
from tests.broker.invoking import invoke, load
from topicledger_testing.embedded_kafka import EmbeddedKafka

CHANGES = '[changes]\nconfigs = "declared"\n[guards]\nmax_losses = 1\n'


def manifest(retention: str) -> str:
    return f"cluster: main\ntopics:\n  - {{topic: asked.one, configs: {{retention.ms: '{retention}'}}}}\n"


@pytest.fixture(scope="module")
def config(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    make(kafka, "asked.one", configs={"retention.ms": "700000000"})
    return commands.settings_file(tmp_path_factory.mktemp("asked"), {"main": kafka.bootstrap_servers}, more=CHANGES)


@pytest.mark.thorough
def test_a_run_is_applied_and_undone_by_command(config: Path, kafka: EmbeddedKafka) -> None:
    assert load(config, manifest("600000000")).exit_code == 0
    common = ("--config", config, "--run-id")
    assert invoke("provision", *common, "shorter", "--only", "configs").exit_code == 0
    assert set_on(kafka, "asked.one") == {"asked.one": {"retention.ms": "600000000"}}
    planned = invoke("runs", "revert", *common, "shorter", "--plan-id", "back", "--detailed-exitcode")
    assert planned.exit_code == 3, planned.output
    assert "the manifests declare other values" in planned.stdout
    assert "apply --run-id back" in planned.stdout
    shown = json.loads(invoke("runs", "show", *common, "back", "--format", "json").stdout)["actions"]
    assert [each["change"] for each in shown] == ["retention.ms 600000000 -> 700000000"]
    assert invoke("apply", *common, "back").exit_code == 0
    assert set_on(kafka, "asked.one") == {"asked.one": {"retention.ms": "700000000"}}
    assert "reverts: shorter, not none" in invoke("plan", *common, "back").stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("plan", "--only", "config"), "there is no kind of actions `config`; did you mean `configs`?"),
        (("provision", "--only", "partitions"), "--only partitions: changes.partitions is off"),
        (("plan", "--manifest-as-of", "yesterday"), "yesterday is not a time: write it as 2026-"),
        (("plan", "--manifest-version", "1", "--manifest-as-of", "2026-01-01"), "give one of them"),
        (("plan", "--manifest-version", "9999"), "has no version 9999"),
        (("runs", "revert"), "needs RUN_ID"),
        (("runs", "revert", "--run-id", "nobody"), "there is no run nobody"),
    ],
)
def test_a_question_that_can_not_be_answered_is_a_usage_error(
    config: Path, asked: tuple[str, ...], message: str
) -> None:
    load(config, manifest("600000000"))
    answer = invoke(*asked, "--config", config)
    assert answer.exit_code == 2
    assert message in answer.stderr.replace("\n", " ")
