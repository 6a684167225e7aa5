"""Two teams share a broker: a plan of one team's files is about this team's changes alone."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import live
from tests.broker.invoking import done, invoke, load, planned
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, RUNS
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
POLICY = """
[[policies.create]]
use = "num_partitions"
max = 1
mode = "warn"
"""
SETTINGS = """
[guards]
approvals = 1
[changes]
undeclared = "delete"

[[policies.create]]
use = "num_partitions"
max = 4
"""


OWNED = """
cluster: main
topics:
  - {topic: owned.payments, num_partitions: 2, owner: payments}
  - {topic: owned.orders, num_partitions: 2, owner: orders}
"""


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_commands_with_an_owner_concern_its_topics_alone(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=POLICY)
    assert load(config, OWNED).exit_code == 0
    shown = done("provision", "--run-id", "mine", "--owner", "payments", "--config", config)
    assert "1 topic or other resource outside the scope has pending changes; this run doesn't apply them" in shown
    assert set(live(kafka, "owned.")) == {"owned.payments"}
    assert "\nscope: owner payments\n" in done("runs", "show", "mine", "--config", config)

    audited = invoke("drift", "--owner", "orders", "--owner", "payment", "--format", "json", "--config", config)
    assert audited.exit_code == 0, audited.output
    assert [(each["topic"], each["kind"]) for each in json.loads(audited.stdout)["drift"]] == [
        ("owned.orders", "missing")
    ]
    assert "--owner payment: no row has this owner; did you mean `payments`?" in audited.stderr
    validated = invoke("policies", "audit", "--owner", "orders", "--format", "json", "--config", config)
    assert json.loads(validated.stdout)["findings"] == [], validated.output

    page = tmp_path / "page.html"
    report = ("report", "mine", "--out", page, "--format", "json", "--config", config)
    assert json.loads(done(*report, "--owner", "orders"))["outcomes"] == {}
    assert "owned.payments" not in page.read_text()

    revert = ("runs", "revert", "mine", "--deletes", "--format", "json", "--config", config)
    assert json.loads(done(*revert, "--owner", "orders"))["failures"] == []
    stopped = json.loads(done(*revert, "--owner", "payments", code=5))
    assert [(each["topic"], each["error"]) for each in stopped["failures"]] == [
        ("owned.payments", "MAX_DELETES_EXCEEDED")
    ]


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_team_plans_and_applies_only_its_own_changes(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=SETTINGS)
    assert load(config, BOTH).exit_code == 0
    # The folder has the files of both, and those of b are loaded.
    ledger, folder = Ledger(spark, str(config.with_name("ledger"))), tmp_path / "topics"
    folder.mkdir()
    (folder / "b.yaml").write_text(BOTH)
    file = folder / "a.yaml"

    plan = partial(planned, config, "--requested-by", "ann")

    # The exit code is about a's own mistake, and b's is not mentioned.
    file.write_text(OF_A.replace("2", "5"))
    mistaken = plan(folder, code=4)
    assert [each["topic"] for each in mistaken["failures"]] == ["scope.a.new"]
    file.write_text(OF_A)
    document = plan("--run-id", "pr", folder, code=0)
    assert [each["topic"] for each in document["planned"]] == ["scope.a.new"]
    assert (document["failures"], document["scope"], document["outside"]) == ([], "the files", 2)
    assert document["decisions"] == {"unchanged": 0, "drifted": 0, "unmanaged": 0}
    (run,) = ledger.read(RUNS).where("run_id = 'pr'").collect()
    assert json.loads(run["scope"]) == {"files": True}
    another = invoke("plan", "--config", config, "--run-id", "pr", "--requested-by", "ann", "--all", folder)
    assert another.exit_code == 2
    assert "run pr started with scope: the files, not everything" in another.stderr

    assert invoke("runs", "approve", "--config", config, "--run-id", "pr", "--by", "bob").exit_code == 0
    done = invoke("apply", "--config", config, "--run-id", "pr", "--wait-visible", "30", folder)
    assert done.exit_code == 0, done.output
    assert set(live(kafka, "scope.")) == {"scope.a.new"}
    assert {row["topic"] for row in ledger.read(PLANS).where("run_id = 'pr'").collect()} == {"scope.a.new"}
    assert {row["owner"] for row in ledger.read(MANIFESTS).collect()} == {"a", "b"}

    of_b = plan("--owner", "B", code=4)
    assert [each["topic"] for each in of_b["planned"]] == ["scope.b.new"]
    assert (of_b["scope"], of_b["outside"]) == ("owner B", 0)
    nobody = invoke("plan", "--config", config, "--owner", "nobody")
    assert nobody.exit_code == 0, nobody.output
    assert "scope: owner nobody: nothing is inside; 2 topics" in nobody.stdout
    lost = invoke("plan", "--config", config, "--owner", "nobody", folder)
    assert (lost.exit_code, lost.stdout) == (2, ""), "the file's changes would be left out, and the check green"
    assert "--owner nobody: no row has this owner; known: `a`, `b`; leave it out" in lost.stderr


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_removed_row_is_seen_and_its_topic_deleted_once_allowed(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    """Its team's plan has nothing else, and a second plan that overlaps it does nothing twice."""
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=SETTINGS)
    ledger, folder = Ledger(spark, str(config.with_name("ledger"))), tmp_path / "topics"
    folder.mkdir()

    def of_owner(owner: str, *topics: str) -> str:
        rows = "".join(f"  - {{topic: {each}, num_partitions: 1, owner: {owner}}}\n" for each in topics)
        return f"cluster: main\ntopics:\n{rows}"

    # Both plans would create the team's topic; the second one comes too late.
    assert load(config, of_owner("c", "removed.kept", "removed.gone")).exit_code == 0
    assert load(config, of_owner("d", "removed.other")).exit_code == 0
    overlapping = {"first": ("--owner", "c"), "second": ("--topic", "^removed[.]gone$")}
    for run_id, limits in overlapping.items():
        done("plan", "--run-id", run_id, "--requested-by", "ann", *limits, "--config", config, code=0)
        done("runs", "approve", "--run-id", run_id, "--by", "bob", "--config", config, code=0)
    done("apply", "--run-id", "first", "--wait-visible", "30", "--config", config, code=0)
    before = {name: info.topic_id for name, info in live(kafka, "removed.").items()}
    assert set(before) == {"removed.kept", "removed.gone"}
    done("apply", "--run-id", "second", "--config", config, code=0)
    outcomes = {(row["phase"], row["outcome"]) for row in ledger.read(AUDIT).where("run_id = 'second'").collect()}
    assert outcomes == {("validate", "ok"), ("apply", "skipped")}
    assert {name: info.topic_id for name, info in live(kafka, "removed.").items()} == before

    (folder / "c.yaml").write_text(of_owner("c", "removed.kept"))
    (folder / "d.yaml").write_text(of_owner("d", "removed.other"))
    removal = ("--run-id", "removal", folder, "--config", config)
    shown = done("plan", *removal, "--requested-by", "ann", "--replace-owner", "c", code=5)
    assert "leaves the tables: main / removed.gone, owner c" in shown
    assert "stopped by guards: main: deletes=1 (1 action); loading the files: removed_rows=1 (1 row)" in shown
    # Nothing can be sent, so the files are not loaded.
    version = ledger.latest_version(MANIFESTS)
    done("apply", *removal, code=5)
    assert ledger.latest_version(MANIFESTS) == version
    done("runs", "approve", "removal", "--allow", "deletes=1,removed_rows=1", "--by", "bob", "--config", config)
    # A check that ran before is green now.
    shown = done("plan", *removal, "--requested-by", "ann", "--replace-owner", "c")
    assert "- delete removed.gone: 1 partition" in shown, shown
    assert "stopped by guards" not in shown
    # The load removes what the plan lists, and neither another load nor another team's change meanwhile matters.
    assert load(config, of_owner("c", "removed.late")).exit_code == 0
    (folder / "d.yaml").write_text(of_owner("d", "removed.other", "removed.more"))
    applied = invoke("apply", *removal)
    assert applied.exit_code == 0, applied.output
    assert "run removal doesn't remove them: main / removed.late, owner c" in applied.stderr
    assert set(live(kafka, "removed.")) == {"removed.kept"}
    declared = ledger.read(MANIFESTS).where("topic like 'removed.%'").collect()
    assert {row["topic"] for row in declared} == {"removed.kept", "removed.other", "removed.late"}
