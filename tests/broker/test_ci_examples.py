"""examples/ci: its files are what GitHub and GitLab take, and their steps do what they say, run here one by one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import live
from tests.broker.invoking import done
from tests.broker.served import serving
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
        self.event = dict(event)

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: self.event[found[1]], text)

    def as_person(self, name: str) -> Runner:
        return Runner(self.folder, self.config, {**self.event, "github.triggering_actor": name})

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
            ended = subprocess.run(
                ["bash", "-e", "-c", script], cwd=self.folder, env={**os.environ, **values, "PATH": path},
                capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
            assert ended.returncode in (0, 1, 4, 5), ended.stderr
            failed = failed or ended.returncode
        return failed


def commit(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for command in ("init --quiet", "add topics", "commit --quiet --allow-empty --message change"):
        who = ("-c", "user.name=alice", "-c", "user.email=alice@example.org")
        subprocess.run(["git", *who, *command.split()], cwd=folder, check=command.startswith("commit"))


def runner_in(folder: Path, config: Path, number: int = 7, author: str = "alice") -> Runner:
    """Return the runner of a pull request that is checked out in `folder`, merged by bob."""
    # A `gh` that knows the pull request, and keeps comments.
    binaries = folder / "bin"
    binaries.mkdir(parents=True)
    pull, comment = f"*/pulls/{number}", f"comment-{number}.md"
    (binaries / "gh").write_text(
        f'#!/bin/sh\ncase "$1 $2" in {pull}) echo 2; echo {author};; {pull}/commits*) echo {author}; echo web-flow;; '
        f'*/issues/{number}/comments*) echo "2026-01-31T12:00:00Z $(head -n 1 {comment})";; '
        'pr*) cp "$5" comment-$3.md;; esac\n'
    )
    (binaries / "gh").chmod(0o755)
    event = {
        "github.event.pull_request.number": str(number),
        "github.event.pull_request.head.sha": "abc123",
        "github.event.pull_request.user.login": author,
        "github.event.pull_request.merged_by.login": "bob",
        "github.event.pull_request.merged_at": "2026-01-31T13:00:00Z",
        "github.token": "none",
        "github.triggering_actor": "bob",
    }
    return Runner(folder, config, event)


@pytest.fixture
def runner(kafka: EmbeddedKafka, tmp_path: Path) -> Runner:
    more = "[guards]\napprovals = 1\n"
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=more)
    commit(tmp_path)
    return runner_in(tmp_path, config)


def save(topics: Path, owner: str, *rows: str, cluster: str = "main") -> None:
    """Write an owner's manifests for a cluster."""
    lines = [f"cluster: {cluster}", f"defaults: {{owner: {owner}}}", "topics:", *(f"  - {{{row}}}" for row in rows)]
    (topics / owner).mkdir(parents=True, exist_ok=True)
    (topics / owner / f"{cluster}.yaml").write_text("\n".join(lines) + "\n")


def declare(runner: Runner, *rows: str) -> None:
    shutil.rmtree(runner.folder / "topics", ignore_errors=True)
    save(runner.folder / "topics", "payments", *rows)
    commit(runner.folder)


def test_a_pull_request_gets_a_plan_and_its_merge_applies_it(runner: Runner, kafka: EmbeddedKafka) -> None:
    declare(runner, "topic: ci.one, num_partitions: 2", "topic: ci.two, num_partitions: 1")
    assert runner.job("plan") == 0
    comment = (runner.folder / "comment-7.md").read_text()
    assert comment.startswith("<p>run <code>pr-7-abc123</code>: planned, ")
    assert "requested by <code>alice</code><br>scope: <code>" in comment
    assert "<br>2 <code>create</code><br>not approved: " in comment
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
    commit(runner.folder)
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


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own for the socket of a server: a path has at most some 100 characters."""
    with tempfile.TemporaryDirectory(prefix="tl-") as folder:
        monkeypatch.setenv("TOPICLEDGER_SOCKET_DIR", folder)
        yield


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("sockets")
def test_two_teams_merge_their_changes_while_a_cluster_is_down(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Planned at once, merged in the other order. Only the team with topics on that cluster fails.

    The runner has a server, as a real one would: its commands start no Spark.
    """
    more = '[guards]\napprovals = 0\n[changes]\nundeclared = "delete"\n'
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers, "dead": [UNREACHABLE]}, more=more)
    main = tmp_path / "main"
    save(main / "topics", "payments", "topic: ci.pay.kept", "topic: ci.pay.old, num_partitions: 2")
    save(main / "topics", "orders", "topic: ci.orders.kept", "topic: ci.orders.gone")
    commit(main)
    done("load-manifests", main / "topics", "--config", config)
    done("provision", "--cluster", "main", "--wait-visible", "30", "--config", config)
    config.write_text(config.read_text().replace("approvals = 0", "approvals = 1"))
    with serving(config, environment=os.environ):
        _merge_two(kafka, tmp_path, config, main)


def _merge_two(kafka: EmbeddedKafka, tmp_path: Path, config: Path, main: Path) -> None:
    before = live(kafka, "")

    def proposed(number: int, author: str) -> Runner:
        folder = tmp_path / f"pr-{number}"
        subprocess.run(["git", "clone", "--quiet", main, folder], check=True)
        return runner_in(folder, config, number, author)

    def merge(pull: Runner, owner: str) -> None:
        shutil.copytree(pull.folder / "topics" / owner, main / "topics" / owner, dirs_exist_ok=True)
        commit(main)
        shutil.rmtree(pull.folder / "topics")
        shutil.copytree(main / "topics", pull.folder / "topics")

    payments, orders = proposed(1, "alice"), proposed(2, "carol")
    save(payments.folder / "topics", "payments", "topic: ci.pay.kept", "topic: ci.pay.renamed, replaces: ci.pay.old")
    save(payments.folder / "topics", "payments", "topic: ci.away", "topic: ci.far", cluster="dead")
    save(orders.folder / "topics", "orders", "topic: ci.orders.kept", "topic: ci.orders.new")
    for each in (payments, orders):
        commit(each.folder)

    assert (payments.job("plan"), orders.job("plan")) == (1, 1)
    comment = (payments.folder / "comment-1.md").read_text()
    assert "\n+ create ci.pay.renamed: 2 partitions, replication factor 1, replaces ci.pay.old\n" in comment
    assert "ci.pay.kept" not in comment
    assert "orders" not in comment
    assert len(re.findall("CLUSTER_UNREACHABLE", comment)) == 1
    comment = (orders.folder / "comment-2.md").read_text()
    assert "\n+ create ci.orders.new: 1 partition, replication factor 1\n" in comment
    stopped = "main: deletes=1 (1 action); loading the files: removed_rows=1 (1 row)"
    assert f"stopped by guards: <code>{stopped}</code>" in comment
    assert not re.search("ci.pay|payments|dead", comment)
    assert live(kafka, "") == before

    # Guards stay at 0: somebody allows what is meant, and the check that failed passes. The author can't.
    (digest,) = re.findall("<code>--plan ([0-9a-f]+)</code>", comment)
    orders.event |= {"inputs.run_id": "pr-2-abc123", "inputs.allow": "deletes=1,removed_rows=1", "inputs.plan": digest}
    assert orders.as_person("carol").job("allow") == 1
    assert orders.as_person("dave").job("allow") == 0
    assert orders.job("plan") == 0
    comment = (orders.folder / "comment-2.md").read_text()
    assert "\n- delete ci.orders.gone: 1 partition (warning of undeclared)\n" in comment
    assert "stopped by guards" not in comment
    merge(orders, "orders")
    assert orders.job("apply") == 0
    between = live(kafka, "")
    assert set(between) == {*before, "ci.orders.new"} - {"ci.orders.gone"}

    done("runs", "approve", "pr-1-abc123", "--allow", "removed_rows=1", "--by", "bob", "--config", config)
    merge(payments, "payments")
    assert payments.job("apply") == 1, "the cluster that is down"
    after = live(kafka, "")
    assert set(after) == {*between, "ci.pay.renamed"}
    assert after["ci.pay.renamed"].num_partitions == 2
    assert {name: each for name, each in after.items() if name != "ci.pay.renamed"} == between
