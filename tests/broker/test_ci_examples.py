"""examples/ci: its files are what GitHub and GitLab take, and their steps do what they say, run here one by one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import live
from tests.harness import UNREACHABLE
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

EXAMPLES = commands.REPOSITORY / "examples" / "ci"
CHECKER = commands.REPOSITORY / "build" / "ci" / "bin" / "check-jsonschema"
INSTALLED = "/opt/topicledger"
"""Where the examples expect a checkout."""
pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("github.yml", ["--builtin-schema", "vendor.github-workflows"]),
        ("gitlab-ci.yml", ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]),
    ],
)
def test_the_files_are_what_their_schemas_allow(name: str, schema: list[str], tmp_path: Path) -> None:
    if not CHECKER.exists():
        assert os.environ.get("TOPICLEDGER_CI_EXAMPLES") != "required", "make setup-ci installs what checks them"
        pytest.skip("make setup-ci installs what checks them")
    assert subprocess.run([CHECKER, *schema, EXAMPLES / name], check=False).returncode == 0
    # The check can fail.
    wrong = tmp_path / name
    wrong.write_text(
        (EXAMPLES / name).read_text().replace("runs-on:", "runs_on:").replace("script:", "scripts: {}\n  x:")
    )
    assert subprocess.run([CHECKER, *schema, wrong], check=False, capture_output=True).returncode == 1


class Runner:
    """Runs the `run` steps of a job as GitHub's runner does: with its expressions filled in, in a shell, in turn."""

    def __init__(self, folder: Path, config: Path, event: Mapping[str, str]) -> None:
        self.workflow: dict[str, Any] = yaml.safe_load((EXAMPLES / "github.yml").read_text())
        self.folder = folder
        self.config = config
        self.event = event
        self.comments: list[str] = []

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: self.event[found[1]], text)

    def job(self, name: str) -> int:
        """Returns the exit code of the first step that failed, else 0; steps with `!cancelled()` run in any case."""
        temporary = self.folder / "runner-temp"
        temporary.mkdir(exist_ok=True)
        runner = {"RUNNER_TEMP": str(temporary), "GITHUB_REPOSITORY": "acme/topics"}
        common = {**self.workflow["env"], **runner, "TOPICLEDGER_CONFIG": str(self.config)}
        failed = 0
        for step in self.workflow["jobs"][name]["steps"]:
            always = "!cancelled()" in step.get("if", "")
            if "run" not in step or (failed and not always):
                continue
            values = {key: self.filled(value) for key, value in {**common, **step.get("env", {})}.items()}
            path = f"{Path(sys.executable).parent}:{self.folder / 'bin'}:{os.environ['PATH']}"
            script = step["run"].replace(INSTALLED, str(commands.REPOSITORY))
            done = subprocess.run(
                ["bash", "-e", "-c", script], cwd=self.folder, env={**os.environ, **values, "PATH": path},
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode in (0, 1, 4, 5), done.stderr
            failed = failed or done.returncode
        return failed


def commit(folder: Path) -> None:
    for command in ("init --quiet", "add topics", "commit --quiet --allow-empty --message change"):
        who = ("-c", "user.name=alice", "-c", "user.email=alice@example.org")
        subprocess.run(["git", *who, *command.split()], cwd=folder, check=command.startswith("commit"))


@pytest.fixture
def runner(kafka: EmbeddedKafka, tmp_path: Path) -> Runner:
    more = "[guards]\napprovals = 1\n"
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=more)
    # A `gh` that keeps what it is given.
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "gh").write_text(
        '#!/bin/sh\nif [ "$1" = api ]; then echo alice; echo web-flow; else cp "$5" comment-$3.md; fi\n'
    )
    (binaries / "gh").chmod(0o755)
    commit(tmp_path)
    event = {
        "github.event.pull_request.number": "7",
        "github.event.pull_request.head.sha": "abc123",
        "github.event.pull_request.user.login": "alice",
        "github.event.pull_request.commits": "2",
        "github.event.pull_request.merged_by.login": "bob",
        "github.token": "none",
    }
    return Runner(tmp_path, config, event)


def declare(runner: Runner, *rows: str) -> None:
    folder = runner.folder / "topics"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "payments").mkdir(parents=True)
    lines = ["cluster: main", "defaults: {owner: payments}", "topics:", *(f"  - {{{row}}}" for row in rows)]
    (folder / "payments" / "topics.yaml").write_text("\n".join(lines) + "\n")
    commit(runner.folder)


def test_a_pull_request_gets_a_plan_and_its_merge_applies_it(runner: Runner, kafka: EmbeddedKafka) -> None:
    declare(runner, "topic: ci.one, num_partitions: 2", "topic: ci.two, num_partitions: 1")
    assert runner.job("plan") == 0
    comment = (runner.folder / "comment-7.md").read_text()
    assert comment.startswith("<p>run <code>pr-7-abc123</code>: planned, ")
    assert "requested by <code>alice</code><br>2 <code>create</code><br>not approved: " in comment
    diff = comment.partition("\n```diff\n")[2].partition("\n```\n")[0]
    assert diff.splitlines() == [
        "+ create ci.one: 2 partitions, replication factor 1",
        "+ create ci.two: 1 partition, replication factor 1",
    ]
    assert "<summary><code>payments</code> on <code>main</code></summary>" in comment
    assert live(kafka, "ci.") == {}
    assert runner.job("apply") == 0
    made = {name: info.num_partitions for name, info in live(kafka, "ci.").items()}
    assert made == {"ci.one": 2, "ci.two": 1}


def test_a_pull_request_that_is_refused_fails_and_its_comment_says_why(
    runner: Runner, kafka: EmbeddedKafka, spark: SparkSession
) -> None:
    """A cluster that can't be reached is one line. The merge applies the plan of the others."""
    declare(runner, "topic: ci.copies, replication_factor: 3", "topic: ci.fine, num_partitions: 1")
    (runner.folder / "topics" / "dead.yaml").write_text("cluster: dead\ntopics: [{topic: ci.away}, {topic: ci.far}]\n")
    runner.config.write_text(f'{runner.config.read_text()}\n[clusters.dead]\nbootstrap_servers = ["{UNREACHABLE}"]\n')
    assert runner.job("plan") == 1
    comment = (runner.folder / "comment-7.md").read_text()
    assert "INVALID_REPLICATION_FACTOR" in comment
    assert "\n+ create ci.fine: 1 partition, replication factor 1\n" in comment
    (dead,) = re.findall("^.*CLUSTER_UNREACHABLE.*$", comment, re.MULTILINE)
    assert dead.startswith("! ci.away, ci.far (observe): CLUSTER_UNREACHABLE: cluster dead")
    assert runner.job("apply") == 1
    assert set(live(kafka, "ci.")) >= {"ci.fine"}
    ledger = Ledger(spark, str(runner.config.with_name("ledger")))
    (run,) = ledger.read(RUNS).where("run_id = 'pr-7-abc123'").collect()
    assert (run["state"], run["exit_code"]) == ("applying", None)
    declared = {row["topic"] for row in ledger.read(MANIFESTS).collect()}
    assert declared == {"ci.copies", "ci.fine", "ci.away", "ci.far"}
