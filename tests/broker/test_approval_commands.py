"""Approvals and announcements by command: what is printed, what is sent, and that docs have the same words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import make
from tests.broker.invoking import invoke, load
from tests.harness import UNREACHABLE, Estate
from tests.receiver import Receiver, receiver
from topicledger.config.guards import GuardSettings
from topicledger.plan.approvals import of_run
from topicledger.schemas import PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

DOCS = commands.REPOSITORY / "docs" / "approvals.md"


def manifest(*entries: str) -> str:
    return "cluster: main\ntopics:\n" + "".join(f"  - {{{each}}}\n" for each in entries)


@pytest.mark.thorough
def test_apply_without_approval_ends_with_5_and_says_what_is_missing(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more="[guards]\napprovals = 1\n")
    load(config, manifest("topic: approved.one, num_partitions: 1"))
    common = ("--config", config, "--run-id", "R")
    planned = invoke("plan", *common, "--requested-by", "ann")
    assert planned.exit_code == 0
    printed = []
    for _ in range(2):
        stopped = invoke("apply", *common)
        assert stopped.exit_code == 5
        assert len(stopped.stdout.splitlines()) == 1
        printed += stopped.stdout.splitlines()
    assert invoke("runs", "approve", *common, "--by", "ann").exit_code == 2
    shown = invoke("runs", "show", *common).stdout.partition("to approve exactly this plan, add: --plan ")[2].split()[0]
    another = invoke("runs", "approve", *common, "--by", "bob", "--plan", "0" * 16)
    assert (another.exit_code, f"has another digest than {'0' * 16}" in another.stderr) == (5, True)
    assert invoke("runs", "approve", *common, "--by", "bob", "--plan", shown[:8]).exit_code == 2
    approved = invoke("runs", "approve", *common, "--by", "bob", "--note", "ticket 17", "--plan", shown.upper())
    assert approved.exit_code == 0
    printed += approved.stdout.splitlines()
    assert invoke("apply", *common).exit_code == 0
    section = DOCS.read_text(encoding="utf-8").split("## Approvals", 1)[1].split("```")[1]
    answers = [line for line in section.strip().splitlines() if not line.startswith("$")]
    assert len(answers) == 3
    assert set(answers) <= set(printed), "docs say what is printed"


CLASSES: Mapping[str, Mapping[str, Any]] = {
    "deletes": {"action": "delete", "topic_id": "an-id"},
    "losses": {"action": "alter_configs", "before": {"retention.ms": "2"}, "after": {"retention.ms": "1"}},
    "disruptions": {
        "action": "alter_configs",
        "before": {"max.message.bytes": "2"},
        "after": {"max.message.bytes": "1"},
    },
    "moves": {"action": "reassign", "before": {"assignments": "0:1,2"}, "after": {"assignments": "0:1,3"}},
    "rights": {"action": "acl_delete", "resource_type": "acl", "resource": "an ACL", "topic": None},
}
FEWER_REPLICAS = {"action": "reassign", "before": {"assignments": "0:1,2"}, "after": {"assignments": "0:1"}}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("names", "action"),
    [
        *(pytest.param({name}, action, id=name) for name, action in CLASSES.items()),
        pytest.param({"losses", "moves"}, FEWER_REPLICAS, id="fewer replicas"),
    ],
)
def test_each_class_asks_for_its_approvals_and_no_other(
    names: set[str], action: Mapping[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE})
    planned = {"run_id": "R", "cluster": "main", "topic": "t", "resource": "t", "resource_type": "topic"}
    row = {**planned, **action}
    ended = {**planned, "action": "delete", "phase": "policy", "outcome": "refused"}
    create = {**planned, "topic": "u", "resource": "u", "action": "create"}
    rows = estate.ledger.rows(PLANS, [row, ended, create])
    estate.ledger.append(PLANS, rows, app_id="test", version=1)
    run = {"run_id": "R", "requested_by": "ann", "scope": None, "arguments": None}
    for name in names:
        asked = {name: 2, **dict.fromkeys(CLASSES.keys() - names, 9)}
        assert of_run(estate.ledger, GuardSettings(approvals_for=asked), run).missing == 2, asked


@pytest.mark.thorough
def test_commands_announce_stopped_guards_waiting_plans_and_drift(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(kafka, "told.old", "told.drifted", configs={"flush.ms": "7"})
    more = '[guards]\napprovals = 1\n[[notify]]\nurl = "env:HOOK"\nseverity = "error"\n'
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=more)
    with receiver() as received:
        monkeypatch.setenv("HOOK", received.url)

        def done(*arguments: str) -> int:
            return invoke(*arguments, "--config", config).exit_code

        load(config, manifest("topic: told.drifted"))
        # Undeclared and unmanaged topics are warnings, which are below the announced severity.
        assert done("drift", "--run-id", "warned") == 0
        load(config, manifest("topic: told.old, state: absent"))
        assert done("plan", "--run-id", "stopped") == 5
        load(config, manifest("topic: told.old", "topic: told.new, num_partitions: 1", "topic: told.drifted"))
        assert done("plan", "--run-id", "waits", "--requested-by", "ann") == 0
        load(config, manifest("topic: told.drifted, configs: {flush.ms: '8'}"))
        assert done("drift", "--run-id", "drifted") == 0
        load(config, manifest("topic: told.bad, replication_factor: 9"))
        assert done("plan", "--run-id", "failed") == 4
        load(config, manifest("topic: told.bad, num_partitions: 1"))
        assert done("provision", "--run-id", "not-applied", "--requested-by", "ann") == 5
    # The announcements of a run are sent at the same time.
    assert sorted(events(received)) == [
        ("drifted", "drift"),
        ("failed", "approval_wanted"),
        ("failed", "failed"),
        ("not-applied", "approval_wanted"),
        ("stopped", "guard_stopped"),
        ("waits", "approval_wanted"),
    ]


def events(received: Receiver) -> list[tuple[str, str]]:
    return [(event["subject"], event["data"]["event"]) for _, event in received.posts]
