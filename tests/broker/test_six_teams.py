"""Six teams share a cluster: pull requests planned at once change what they declare, and nothing else on it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker import quotas
from tests.broker.acls import acl, right
from tests.broker.invoking import done, planned
from tests.broker.records import write
from tests.broker.whole import Whole, await_only, changed, whole
from tests.fault.killing import Doomed, committed
from tests.fault.proxy import FaultProxy
from topicledger.ledger.tables import Ledger
from topicledger.plan.lines import planned_action
from topicledger.resources.quotas.entity import Entity
from topicledger.schemas import ACLS, MANIFESTS, PLANS, QUOTAS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

SETTINGS = """
[guards]
max_quota_changes = 6
approvals = 0
[changes]
configs = "declared"
partitions = "grow"
undeclared = "delete"
replaced_idle_days = 30
[owners.t6]
topics = ["^teams[.]t6[.]"]
requested_by = ["fay"]

[[policies.create]]
use = "num_partitions"
max = 4
"""
TEAMS = [f"t{number}" for number in range(1, 7)]
PENDING = "later"
"""A topic of each team that is loaded, but that no run has applied."""
ONE = "num_partitions: 1"
# Records of the topic that will be replaced stay, so that it is known to be idle.
TOPICS = {**{f"{number:02}": ONE for number in range(50)}, PENDING: ONE, "48": f"{ONE}, configs: {{retention.ms: -1}}"}


@dataclass(frozen=True, kw_only=True)
class Files:
    """A team's manifest file."""

    topics: Mapping[str, str] = field(default_factory=lambda: TOPICS)
    """Last part of each topic's name -> its other fields."""
    operations: Collection[str] = ("READ",)
    """What the team's user may do with its topics."""
    rate: int = 1000
    """Bytes a second that the user may produce."""

    def save(self, folder: Path, team: str) -> None:
        mine = f"resource_type: TOPIC, resource_name: teams.{team}., pattern_type: PREFIXED"
        lines = [
            "cluster: main",
            f"defaults: {{owner: {team}}}",
            "topics:",
            *(f"  - {{topic: teams.{team}.{name}, {fields}}}" for name, fields in self.topics.items()),
            "acls:",
            *(f"  - {{principal: User:rights-{team}, {mine}, operation: {each}}}" for each in self.operations),
            "quotas:",
            f"  - {{user: {team}, producer_byte_rate: {self.rate}}}",
        ]
        (folder / team).mkdir(parents=True, exist_ok=True)
        (folder / team / "topics.yaml").write_text("\n".join(lines) + "\n")


def topics(team: str, *names: str) -> set[tuple[str, Any]]:
    return {("topic", f"teams.{team}.{each}") for each in names}


def granted(team: str, operation: str) -> tuple[str, Any]:
    return "acl", acl(right(f"User:rights-{team}", operation, f"teams.{team}.", pattern_type="PREFIXED"))


def limited(team: str) -> tuple[str, Any]:
    return "quota", quotas.text(Entity(user=team))


@dataclass
class Shared:
    """A cluster whose teams have all they declare but one pending topic each, and the files of their main branch."""

    kafka: EmbeddedKafka
    folder: Path
    config: Path
    ledger: Ledger
    live: Whole = field(default_factory=dict)

    @property
    def main(self) -> Path:
        return self.folder / "main"

    def set_up(self) -> None:
        for team in TEAMS:
            Files().save(self.main, team)
        done("load-manifests", self.main, "--config", self.config)
        # All quotas and ACLs are in the scope, but not the pending topics.
        asked = ("--requested-by", "fay", "--topic", "[0-9]$", "--resource", ".")
        before = whole(self.kafka)
        done("provision", "--run-id", "before", *asked, "--wait-visible", "60", "--config", self.config)
        expected = {each for team in TEAMS for each in (granted(team, "READ"), limited(team))}
        for team in TEAMS:
            expected |= topics(team, *TOPICS) - topics(team, PENDING)
        self.live = await_only(self.kafka, before, expected)
        strict = self.config.read_text().replace("max_quota_changes = 6", "max_quota_changes = 0")
        self.config.write_text(strict.replace("approvals = 0", "approvals = 1"))

    def propose(
        self, team: str, files: Files, *, code: int, about: set[tuple[str, Any]], by: str = "ann", **more: Files
    ) -> None:
        """Plan a team's files and `more`, by team, in the main branch: the plan is about `about` alone."""
        run_id, proposed = f"pr-{team}", self.folder / team
        shutil.copytree(self.main, proposed)
        for name, each in {team: files, **more}.items():
            each.save(proposed, name)
        asked = ("--run-id", run_id, "--requested-by", by, "--replace-owner", team)
        document = planned(self.config, *asked, proposed, code=code)
        names = {name if isinstance(name, str) else " ".join(name) for _, name in about}
        rows = self.plan(run_id)
        assert {row["resource"] for row in rows} == names
        assert {row["owner"] for row in rows} <= {team}
        assert len(document["planned"]) + len(document["failures"]) == len(about)
        assert document["outside"] >= len(TEAMS) - 1, "the pending topics"
        assert not changed(self.live, whole(self.kafka)), "a plan changes nothing"

    def merge(self, team: str, files: Files, *, allow: str = "") -> None:
        files.save(self.main, team)
        self.approve(f"pr-{team}", allow=allow)

    def approve(self, run_id: str, *, allow: str = "") -> None:
        done("runs", "approve", run_id, "--by", "bob", *(["--allow", allow] if allow else []), "--config", self.config)

    def apply(self, run_id: str, *files: Path, about: set[tuple[str, Any]]) -> None:
        """Apply a plan; of the whole cluster, exactly `about` changes."""
        done("apply", "--run-id", run_id, *files, "--wait-visible", "60", "--config", self.config)
        self.live = await_only(self.kafka, self.live, about)

    def plan(self, run_id: str) -> list[Any]:
        return list(self.ledger.read(PLANS).where(f"run_id = '{run_id}'").collect())

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return declarations of all teams by owner and what they are about."""
        found = {}
        for table in (MANIFESTS, ACLS, QUOTAS):
            for row in self.ledger.read(table).collect():
                values = row.asDict(recursive=True)
                name = values.get("topic") or values.get("user") or f"{values['principal']} {values['operation']}"
                found[values["owner"], f"{table.name} {name}"] = values
        return found


def but(*gone: str, **new: str) -> dict[str, str]:
    return {**{name: fields for name, fields in TOPICS.items() if name not in gone}, **new}


@pytest.fixture
def alone() -> Iterator[EmbeddedKafka]:
    """A cluster for one test: comparing all of it takes long once other tests have left topics there."""
    with clusters.with_sasl() as cluster:
        yield cluster


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_pull_requests_of_six_teams_touch_nothing_of_each_other(
    spark: SparkSession, alone: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 topics: the later plan is applied first; the driver of the other is killed, and resumed."""
    with FaultProxy(alone) as proxy:
        config = commands.admins_settings(tmp_path, alone, proxy.bootstrap_servers, monkeypatch, more=SETTINGS)
        root = config.with_name("ledger")
        teams = Shared(alone, tmp_path, config, Ledger(spark, str(root)))
        teams.set_up()
        write(alone, "teams.t1.48", at=datetime.now(UTC) - timedelta(days=40))
        before, first = teams.rows(), teams.live
        more = {"00": "num_partitions: 2", "01": f"{ONE}, configs: {{flush.ms: 5}}"}
        one = Files(
            topics=but("48", "49", renamed="replaces: teams.t1.48", new=ONE, **more),
            operations=("READ", "WRITE"),
            rate=2000,
        )
        ones = {*topics("t1", "renamed", "new", "49", "00", "01"), granted("t1", "WRITE"), limited("t1")}
        two = Files(topics=but(new=ONE), operations=("READ", "WRITE"))
        twos = {*topics("t2", "new"), granted("t2", "WRITE")}

        # Every team proposes a change of its own, all of them planned from what is merged.
        teams.propose("t1", one, code=5, about=ones)
        # The files of the sixth one are for its own people.
        teams.propose("t2", two, t6=Files(topics=but(stray=ONE)), code=0, about=twos)
        teams.propose("t3", Files(topics=but(wrong="num_partitions: 9")), code=4, about=topics("t3", "wrong"))
        teams.propose("t6", Files(), code=0, about=set(), by="fay")
        states = {row["run_id"]: row["state"] for row in teams.ledger.read(RUNS).where("run_id like 'pr-%'").collect()}
        assert states == {"pr-t1": "planned", "pr-t2": "planned", "pr-t3": "finished", "pr-t6": "finished"}
        shown = {row["topic"]: str(planned_action(row)) for row in teams.plan("pr-t1") if row["topic"]}
        assert shown["teams.t1.49"] == "- delete teams.t1.49: 1 partition"
        assert shown["teams.t1.renamed"].endswith("retention.ms=-1, replaces teams.t1.48")

        # The second one is applied first. The driver of the other dies when the broker has created its topics.
        teams.merge("t1", one, allow="deletes=1,quota_changes=1,removed_rows=2")
        teams.merge("t2", two)
        teams.apply("pr-t2", teams.main, about=twos)
        doomed = Doomed(config, "pr-t1", "create response", partial(committed, root), "apply", (str(teams.main),))
        assert doomed.wait_behind(proxy) is None
        assert topics("t1", "new", "renamed") <= changed(teams.live, whole(alone)) <= ones
        teams.apply("pr-t1", teams.main, about=ones)

        # The replaced topic goes once it has been idle for long enough.
        scope = ("--owner", "t1", "--topic", "[.]48$")
        done("plan", "--run-id", "idle", *scope, "--requested-by", "ann", "--config", config, code=5)
        (line,) = map(str, map(planned_action, teams.plan("idle")))
        assert line == "- delete teams.t1.48: 1 partition, replaced by teams.t1.renamed"
        teams.approve("idle", allow="deletes=1")
        teams.apply("idle", about=topics("t1", "48"))

        # The other teams have the same resources and rows as before.
        assert changed(first, teams.live) == {*ones, *twos, *topics("t1", "48")}
        after = teams.rows()
        assert {key[0] for key in {*before, *after} if before.get(key) != after.get(key)} == {"t1", "t2"}
