"""A plan from files lacks a cluster that was down: the same run does the rest once the cluster is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import commands
from tests.broker import quotas
from tests.broker.direct import live
from tests.broker.invoking import done, invoke, load
from topicledger.resources.quotas.entity import Entity
from topicledger_testing.embedded_kafka import EmbeddedKafka

SETTINGS = """
[kafka]
connect_timeout = 3
[guards]
max_deletes = 2
max_removed_rows = 4
max_quota_changes = 1
[changes]
undeclared = "delete"
"""


def of_a(*topics: str) -> str:
    rows = "".join(f"  - {{topic: {each}, owner: a, num_partitions: 1}}\n" for each in topics)
    return f"clusters: [main, away]\ntopics:\n{rows}"


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_removal_and_a_rename_reach_a_cluster_that_was_down(
    kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, tmp_path: Path
) -> None:
    def settings(away: list[str]) -> Path:
        return commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers, "away": away}, more=SETTINGS)

    config, folder = settings(kafka_policy.bootstrap_servers), tmp_path / "topics"
    folder.mkdir()
    assert load(config, of_a("later.kept", "later.old", "later.gone")).exit_code == 0
    done("provision", "--wait-visible", "30", "--config", config)
    before = {"later.kept", "later.old", "later.gone"}
    assert set(live(kafka_policy, "later.")) == before

    # One row leaves both clusters, and one topic gets another name.
    renamed = "  - {topic: later.new, owner: a, num_partitions: 1, replaces: later.old}\n"
    limit = "quotas: [{user: later, owner: a, producer_byte_rate: 1048576}]\n"
    (folder / "a.yaml").write_text(of_a("later.kept") + renamed + limit)
    config = settings(["127.0.0.1:1"])
    plan = ("plan", "--run-id", "pr", "--replace-owner", "a", "--config", config, folder)
    done(*plan, code=1)
    half = invoke("apply", "--run-id", "pr", "--wait-visible", "30", "--config", config, folder)
    assert half.exit_code == 1, half.output
    assert f"start `plan` again with --run-id pr, its files ({folder}) and its options, then `apply`" in half.output
    after = {"later.kept", "later.old", "later.new"}
    assert (set(live(kafka, "later.")), set(live(kafka_policy, "later."))) == (after, before)
    user = Entity(user="later")
    assert [user in quotas.live(each) for each in (kafka, kafka_policy)] == [True, False]

    # Another team's merge meanwhile changes nothing about it.
    (folder / "b.yaml").write_text("cluster: main\ntopics: [{topic: later.theirs, owner: b, num_partitions: 1}]\n")
    config = settings(kafka_policy.bootstrap_servers)
    shown = done(*plan)
    assert "- delete later.gone" in shown, shown
    assert "+ create later.new" in shown, shown
    assert "later.theirs" not in shown
    done("apply", "--run-id", "pr", "--wait-visible", "30", "--config", config, folder)
    assert (set(live(kafka, "later.")), set(live(kafka_policy, "later."))) == (after, after)
    assert [quotas.live(each)[user] for each in (kafka, kafka_policy)] == [{"producer_byte_rate": 1048576.0}] * 2
    for each in (kafka, kafka_policy):
        quotas.alter(each, user, producer_byte_rate=None)
