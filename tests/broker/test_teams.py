"""Teams share a cluster: pull requests that are planned at once change what they declare, and nothing else on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import commands
from tests.broker import quotas
from tests.broker.acls import acl, right
from tests.broker.direct import make
from tests.broker.invoking import done, planned
from tests.broker.whole import await_only, changed, whole
from topicledger.resources.quotas.entity import Entity
from topicledger_testing.embedded_kafka import EmbeddedKafka

SETTINGS = """
[guards]
max_quota_changes = 1
[[policies.create]]
use = "num_partitions"
max = 4
"""
ONE = """
cluster: main
defaults: {owner: one}
topics:
  - {topic: teams.one.new, num_partitions: 2, configs: {retention.ms: 60000}}
quotas:
  - {user: teams-one, producer_byte_rate: 1000}
"""
TWO = """
cluster: main
defaults: {owner: two}
topics:
  - {topic: teams.two.new, num_partitions: 1}
  - {topic: teams.two.wrong, num_partitions: 9}
acls:
  - {principal: "User:rights-two", operation: READ, resource_type: TOPIC, resource_name: teams.two.new}
"""


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_two_teams_apply_plans_that_were_made_at_once(
    kafka_acls: EmbeddedKafka, kafka_quotas: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later plan is applied first. Nothing else on the whole cluster changes, and a mistake is its own team's."""
    kafka = kafka_acls
    make(kafka, "teams.one.there", "teams.two.there", configs={"retention.ms": "-1"})
    config = commands.admins_settings(tmp_path, kafka, kafka_quotas.bootstrap_servers, monkeypatch, more=SETTINGS)
    before = whole(kafka)
    asked = {}
    for team, manifest, code in (("one", ONE, 0), ("two", TWO, 4)):
        (tmp_path / f"{team}.yaml").write_text(manifest)
        asked[team] = ("--run-id", team, tmp_path / f"{team}.yaml")
        document = planned(config, *asked[team], code=code)
        assert {each["owner"] for each in document["planned"]} == {team}
        assert [each["topic"] for each in document["failures"]] == (["teams.two.wrong"] if team == "two" else [])
    assert not changed(before, whole(kafka))

    done("apply", *asked["two"], "--wait-visible", "30", "--config", config, code=4)
    granted = acl(right("User:rights-two", "READ", "teams.two.new"))
    between = await_only(kafka, before, {("topic", "teams.two.new"), ("acl", granted)})
    done("apply", *asked["one"], "--wait-visible", "30", "--config", config)
    limited = quotas.text(Entity(user="teams-one"))
    after = await_only(kafka, between, {("topic", "teams.one.new"), ("quota", limited)})
    _, replicas, configs = after["topic", "teams.one.new"]
    assert (len(replicas), configs) == (2, {"retention.ms": "60000"})
