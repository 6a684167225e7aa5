"""Two teams share a broker: a plan of one team's files is about this team's changes alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
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

    audited = invoke("audit", "--owner", "orders", "--owner", "payment", "--format", "json", "--config", config)
    assert audited.exit_code == 0, audited.output
    assert [(each["topic"], each["kind"]) for each in json.loads(audited.stdout)["drift"]] == [
        ("owned.orders", "missing")
    ]
    assert "--owner payment: no row has this owner; did you mean `payments`?" in audited.stderr
    judged = invoke("policies", "audit", "--owner", "orders", "--format", "json", "--config", config)
    assert json.loads(judged.stdout)["findings"] == [], judged.output

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
    # The load removes what the plan lists, and another team's change meanwhile doesn't matter.
    assert load(config, of_owner("c", "removed.late")).exit_code == 0
    other = invoke("apply", *removal)
    assert other.exit_code == 2, other.output
    assert "would by now remove other rows" in other.stderr
    spark.sql(f"DELETE FROM {ledger.sql_name(MANIFESTS)} WHERE topic = 'removed.late'")
    (folder / "d.yaml").write_text(of_owner("d", "removed.other", "removed.more"))
    done("apply", *removal)
    assert set(live(kafka, "removed.")) == {"removed.kept"}
    declared = ledger.read(MANIFESTS).where("topic like 'removed.%'").collect()
    assert {row["topic"] for row in declared} == {"removed.kept", "removed.other"}


TEAMS = [f"t{number}" for number in range(1, 7)]
"""The topics of the last three are loaded, but don't exist yet."""


def names(team: str, *more: str, without: int = 0) -> list[str]:
    return [f"teams.{team}.{number:02}" for number in range(50 - without)] + [f"teams.{team}.{each}" for each in more]


def write(folder: Path, team: str, topics: Sequence[str], **fields: str) -> None:
    """Write a team's file; `fields`: of topics by the last part of their names, instead of one partition."""
    rows = [
        f"  - {{topic: {each}, owner: {team}, {fields.get(each.rpartition('.')[2], 'num_partitions: 1')}}}\n"
        for each in topics
    ]
    (folder / team).mkdir(parents=True, exist_ok=True)
    (folder / team / "topics.yaml").write_text(f"cluster: main\ntopics:\n{''.join(rows)}")


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_pull_requests_of_six_teams_touch_nothing_of_each_other(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=SETTINGS)
    ledger, main = Ledger(spark, str(config.with_name("ledger"))), tmp_path / "main"
    for team in TEAMS:
        write(main, team, names(team))
    done("load-manifests", main, "--config", config)
    created = ("--owner", "t1", "--owner", "t2", "--owner", "t3")
    done("plan", "--run-id", "before", "--requested-by", "ann", *created, "--config", config)
    done("runs", "approve", "before", "--by", "bob", "--config", config)
    done("apply", "--run-id", "before", "--config", config)
    before = {name: info.topic_id for name, info in live(kafka, "teams.").items()}
    assert set(before) == {name for team in TEAMS[:3] for name in names(team)}
    rows = {row["topic"]: row for row in ledger.read(MANIFESTS).collect()}

    # Every team proposes a change of its own, all of them planned at once from what is merged.
    changes: dict[str, tuple[list[str], dict[str, str], int]] = {
        "t1": (names("t1", "renamed", "new", without=2), {"renamed": "replaces: teams.t1.48"}, 5),
        "t2": (names("t2", "new"), {}, 0),
        "t3": (names("t3", "wrong"), {"wrong": "num_partitions: 9"}, 4),
        "t4": (names("t4", "new"), {}, 0),
        "t5": (names("t5", without=1), {}, 5),
        "t6": (names("t6"), {}, 0),
    }
    changed = {"t1": {"renamed", "new", "49"}, "t2": {"new"}, "t3": {"wrong"}, "t4": {"new"}}
    for team, (topics, more, code) in changes.items():
        proposed = tmp_path / team
        shutil.copytree(main, proposed)
        write(proposed, team, topics, **more)
        asked = ("--run-id", f"pr-{team}", "--requested-by", "ann", "--replace-owner", team)
        document = planned(config, *asked, proposed, code=code)
        about = {row["topic"] for row in ledger.read(PLANS).where(f"run_id = 'pr-{team}'").collect()}
        assert about == {f"teams.{team}.{each}" for each in changed.get(team, ())}
        assert {each["topic"] for each in (*document["planned"], *document["failures"])} == about
        assert document["outside"] == 150 - (team == "t5"), "what the last three teams have loaded"
    assert {row["state"] for row in ledger.read(RUNS).where("run_id = 'pr-t6'").collect()} == {"finished"}

    # Those of three teams are merged; the last one is applied first.
    allowed = {"t1": ["--allow", "deletes=1,removed_rows=2"], "t2": [], "t5": ["--allow", "removed_rows=1"]}
    for team in allowed:
        write(main, team, changes[team][0], **changes[team][1])
    for team, allow in allowed.items():
        done("runs", "approve", f"pr-{team}", "--by", "bob", *allow, "--config", config)
    done("apply", "--run-id", "pr-t5", main, "--config", config)
    done("apply", "--run-id", "pr-t2", main, "--config", config)
    # A start that is stopped once the files are loaded is resumed.
    done("apply", "--run-id", "pr-t1", main, "--deadline", "0.001", "--config", config, code=1)
    done("apply", "--run-id", "pr-t1", main, "--wait-visible", "30", "--config", config)

    made = {"teams.t1.renamed", "teams.t1.new", "teams.t2.new"}
    after = {name: info.topic_id for name, info in live(kafka, "teams.").items()}
    assert set(after) == {*before, *made} - {"teams.t1.49"}
    assert {name: its_id for name, its_id in after.items() if name not in made}.items() <= before.items()
    now = {row["topic"]: row for row in ledger.read(MANIFESTS).collect()}
    assert set(now) == {*rows, *made} - {"teams.t1.48", "teams.t1.49", "teams.t5.49"}
    assert {name: row for name, row in now.items() if name not in made}.items() <= rows.items()
