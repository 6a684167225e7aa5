"""Six teams share 300 topics: two pull requests, planned at once, give exactly their own changes in either order.

Meanwhile other teams have changes that nobody applied, and a row that is refused.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.direct import live
from tests.broker.invoking import done, planned
from tests.waiting import until
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, MANIFESTS
from topicledger_testing.embedded_kafka import EmbeddedKafka

OWNERS = ("payments", "search", "fraud", "risk", "mail", "shop")
EACH = 50
SETTINGS = """
[guards]
approvals = 1
max_removed_rows = 2
[changes]
configs = "declared"
undeclared = "delete"
"""


class Team:
    """A team's file: its topics by name, each with the rest of its entry."""

    def __init__(self, folder: Path, prefix: str, owner: str) -> None:
        self.path, self.owner, self.prefix = folder / f"{owner}.yaml", owner, f"{prefix}.{owner}."
        self.topics = {f"{self.prefix}{number:02}": "num_partitions: 1" for number in range(EACH)}

    def write(self) -> Path:
        lines = [f"  - {{topic: {topic}, {fields}}}" for topic, fields in self.topics.items()]
        text = ["cluster: main", f"defaults: {{owner: {self.owner}}}", "topics:", *lines]
        self.path.write_text("\n".join(text) + "\n", encoding="utf-8")
        return self.path


def lines_of(plan: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(each["action"], each["topic"]) for each in plan["planned"]}


@pytest.mark.thorough
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("order", [("payments", "search"), ("search", "payments")], ids="-".join)
def test_two_pull_requests_change_nothing_of_each_other_or_of_others(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, order: Sequence[str]
) -> None:
    prefix = f"six-{order[0]}"
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=SETTINGS)
    files = tmp_path / "files"
    files.mkdir()
    teams = {owner: Team(files, prefix, owner) for owner in OWNERS}
    for team in teams.values():
        team.write()
    done("load-manifests", "--config", config, files)
    done("plan", "--config", config, "--run-id", "all", "--requested-by", "ann")
    done("runs", "approve", "--config", config, "--run-id", "all", "--by", "bob")
    done("apply", "--config", config, "--run-id", "all", "--wait-visible", "60")
    assert len(live(kafka, prefix)) == len(OWNERS) * EACH

    # Others have pending changes and mistakes.
    fraud, risk = teams["fraud"], teams["risk"]
    fraud.topics[f"{fraud.prefix}pending"] = "num_partitions: 1"
    risk.topics[f"{risk.prefix}wrong"] = "num_partitions: 1, placement: 'rock:c'"
    done("load-manifests", "--config", config, fraud.write())
    ledger = Ledger(spark, str(config.with_name("ledger")))
    loaded = ledger.latest_version(MANIFESTS)
    before = live(kafka, prefix)

    # Payments add a topic, change one and remove one; search renames one.
    payments, search = teams["payments"], teams["search"]
    payments.topics[f"{payments.prefix}new"] = "num_partitions: 2"
    payments.topics[f"{payments.prefix}00"] = "num_partitions: 1, configs: {retention.ms: 30d}"
    del payments.topics[f"{payments.prefix}01"]
    del search.topics[f"{search.prefix}00"]
    search.topics[f"{search.prefix}renamed"] = f"replaces: {search.prefix}00"
    expected = {
        "payments": {
            ("create", f"{payments.prefix}new"),
            ("alter_configs", f"{payments.prefix}00"),
            ("delete", f"{payments.prefix}01"),
        },
        "search": {("create", f"{search.prefix}renamed")},
    }
    allowed = {"payments": ["--allow", "deletes=1"], "search": []}
    for owner, code in (("payments", 5), ("search", 0)):
        plan = planned(
            config,
            "--run-id",
            owner,
            "--requested-by",
            "ann",
            "--replace-owner",
            owner,
            teams[owner].write(),
            code=code,
        )
        failed = {(each["action"], each["topic"]) for each in plan["failures"]}
        assert lines_of(plan) | failed == expected[owner]
        assert plan["scope"] == "the files"
    assert ledger.latest_version(MANIFESTS) == loaded
    for owner in order:
        done("runs", "approve", "--config", config, "--run-id", owner, "--by", "bob", *allowed[owner])

    first, second = (teams[owner] for owner in order)
    killed_once_something_is_done(config, kafka, first, prefix, before)
    done("apply", "--config", config, "--run-id", first.owner, "--wait-visible", "60", first.path)
    done("apply", "--config", config, "--run-id", second.owner, "--wait-visible", "60", second.path)

    after = live(kafka, prefix)
    assert set(after) == {
        *(set(before) - {f"{payments.prefix}01"}),
        f"{payments.prefix}new",
        f"{search.prefix}renamed",
    }
    assert {name: each.topic_id for name, each in after.items() if name in before} == {
        name: each.topic_id for name, each in before.items() if name in after
    }
    rows = ledger.read(AUDIT).where("run_id IN ('payments', 'search') AND phase = 'apply'").collect()
    assert {(row["action"], row["topic"], row["outcome"]) for row in rows} == {
        (*line, "ok") for lines in expected.values() for line in lines
    }
    assert len(rows) == 4, "nothing was done twice"
    declared = {row["topic"] for row in ledger.read(MANIFESTS).where(f"topic LIKE '{prefix}.%'").collect()}
    assert declared == {topic for team in teams.values() for topic in team.topics} - {f"{risk.prefix}wrong"}


def killed_once_something_is_done(
    config: Path, kafka: EmbeddedKafka, team: Team, prefix: str, before: Mapping[str, Any]
) -> None:
    """Start `apply` as a process, and kill it as soon as one of its creates is live."""
    arguments = ["apply", "--config", str(config), "--run-id", team.owner, str(team.path)]
    with subprocess.Popen(
        commands.command(*arguments), stdout=subprocess.DEVNULL, stderr=sys.stderr, env=commands.environment()
    ) as process:
        try:
            until(lambda: process.poll() is not None or set(live(kafka, prefix)) - set(before) != set(), seconds=600)
        finally:
            process.kill()
