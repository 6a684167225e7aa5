"""Two teams share a broker: a plan of one team's files is about this team's changes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import live
from tests.broker.invoking import invoke, load
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS, PLANS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

BOTH = """
cluster: main
topics:
  - {topic: scope.b.new, num_partitions: 1, owner: b}
  - {topic: scope.b.wrong, num_partitions: 9, owner: b}
"""
OF_A = """
cluster: main
topics:
  - {topic: scope.a.new, num_partitions: 2, owner: a}
"""
SETTINGS = """
[guards]
approvals = 1

[[policies.create]]
use = "num_partitions"
max = 4
"""


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_team_plans_and_applies_only_its_own_changes(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=SETTINGS)
    assert load(config, BOTH).exit_code == 0
    ledger, file = Ledger(spark, str(config.with_name("ledger"))), tmp_path / "a.yaml"

    def planned(*more: str | Path, code: int) -> dict[str, Any]:
        result = invoke("plan", "--config", config, "--format", "json", "--requested-by", "ann", *more)
        assert result.exit_code == code, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    # The exit code is about a's own mistake, and b's is not mentioned.
    file.write_text(OF_A.replace("2", "5"))
    mistaken = planned(file, code=4)
    assert [each["topic"] for each in mistaken["failures"]] == ["scope.a.new"]
    file.write_text(OF_A)
    document = planned("--run-id", "pr", file, code=0)
    assert [each["topic"] for each in document["planned"]] == ["scope.a.new"]
    assert (document["failures"], document["scope"], document["outside"]) == ([], "the files", 2)
    assert document["decisions"] == {"unchanged": 0, "drifted": 0, "unmanaged": 0}
    (run,) = ledger.read(RUNS).where("run_id = 'pr'").collect()
    assert json.loads(run["scope"]) == {"files": True}
    another = invoke("plan", "--config", config, "--run-id", "pr", "--requested-by", "ann", "--all", file)
    assert another.exit_code == 2
    assert "run pr started with scope: the files, not everything" in another.stderr

    assert invoke("runs", "approve", "--config", config, "--run-id", "pr", "--by", "bob").exit_code == 0
    done = invoke("apply", "--config", config, "--run-id", "pr", "--wait-visible", "30", file)
    assert done.exit_code == 0, done.output
    assert set(live(kafka, "scope.")) == {"scope.a.new"}
    assert {row["topic"] for row in ledger.read(PLANS).where("run_id = 'pr'").collect()} == {"scope.a.new"}
    assert {row["owner"] for row in ledger.read(MANIFESTS).collect()} == {"a", "b"}

    of_b = planned("--owner", "B", code=4)
    assert [each["topic"] for each in of_b["planned"]] == ["scope.b.new"]
    assert (of_b["scope"], of_b["outside"]) == ("owner B", 0)
    nobody = invoke("plan", "--config", config, "--owner", "nobody")
    assert nobody.exit_code == 0, nobody.output
    assert "scope: owner nobody: nothing that is declared or exists; outside of it 2 topics" in nobody.stdout
