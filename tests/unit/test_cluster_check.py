"""Findings of `clusters check` from answers of brokers, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest, ListConfigResourcesRequest
from rich.console import Console

from topicledger.cli import cluster_check
from topicledger.cli.cluster_check import Checked, Status
from topicledger.config.reading import read_settings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.abilities import Abilities, provider_of

EVERY = ("ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS")
USED = """
[tables]
root = "ledger"
[clusters.main]
bootstrap_servers = ["b-1.orders.abc.kafka.eu-west-1.amazonaws.com:9098"]
[guards]
max_deletes = 5
max_quota_changes = 1
[changes]
configs = "declared"
partitions = "grow"
replicas = "on"
[acls]
manage = ["^User:payments"]
"""


def abilities(**changed: Any) -> Abilities:
    """Return what a cluster without ACLs answers, with two topics, except for what is given."""
    usual: dict[str, Any] = {
        "cluster_id": "id-1",
        "brokers": 3,
        "version": "4.3",
        "provider": None,
        "on_cluster": frozenset(EVERY),
        "topics": 2,
        "on_topics": dict.fromkeys((*EVERY, "READ"), 2),
        "without": {},
    }
    return Abilities(**usual | changed)


def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Abilities, *, lacks: type | None = None) -> Checked:
    """Return the result of checking the cluster `main`; `lacks` is a request that its brokers don't know."""
    path = tmp_path / "settings.toml"
    if not path.exists():
        path.write_text(USED)
    settings, problems = read_settings(path)
    assert problems == []

    class Admin:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> ClusterAdmin:
            return cast(ClusterAdmin, self)

        def __exit__(self, *_: object) -> None: ...
        def supports(self, request: type, version: int = 0) -> bool:
            return request is not lacks

    monkeypatch.setattr(cluster_check, "ClusterAdmin", Admin)
    monkeypatch.setattr(cluster_check, "abilities_of", lambda _: answers)
    return cluster_check.check(settings, "main")


def statuses(checked: Checked) -> Mapping[str, Status]:
    return {each.about: each.status for each in checked.findings}


def messages(checked: Checked) -> Mapping[str, str]:
    return {each.about: each.message for each in checked.findings}


def test_a_cluster_that_allows_everything_has_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = found(tmp_path, monkeypatch, abilities())
    assert set(statuses(checked).values()) == {Status.OK}
    assert checked.exit_code == 0
    assert (
        messages(checked)["operations on the cluster"]
        == "Alter, AlterConfigs, Create, Delete, Describe, DescribeConfigs"
    )
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    cluster_check.render(checked, console)
    assert "cluster id id-1, 3 brokers" in console.export_text()


def test_operations_that_the_principal_lacks_fail_what_the_settings_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = abilities(
        on_cluster=frozenset({"DESCRIBE"}),
        on_topics={"DESCRIBE_CONFIGS": 2, "DELETE": 1},
        without={"ALTER": "a", "ALTER_CONFIGS": "a", "DELETE": "b", "READ": "a"},
    )
    checked = found(tmp_path, monkeypatch, weak)
    assert checked.exit_code == 1
    told = statuses(checked)
    assert {about for about, status in told.items() if status is Status.FAILS} == {
        "alter configs", "add partitions", "move replicas", "throttle moves", "ACLs", "quotas"
    }  # fmt: skip
    assert {about for about, status in told.items() if status is Status.POSSIBLE} == {
        "group configs", "producers of topics"
    }  # fmt: skip
    said = messages(checked)
    assert said["create topics"].startswith("Create isn't granted on the cluster; brokers don't report")
    assert said["delete topics"] == (
        "not allowed on 1 of 2 visible topics, such as b: grant this principal Delete on them, "
        "or set guards.max_deletes = 0"
    )
    assert said["alter configs"].startswith("not allowed on any of 2 visible topics: grant this principal AlterConfigs")
    assert said["move replicas"] == 'grant this principal Alter on the cluster, or set changes.replicas = "off"'
    assert said["group configs"].startswith("fails if used (by rows of the manifests): grant this principal ")


WEAK = abilities(
    on_cluster=frozenset({"CREATE", "DESCRIBE"}),
    on_topics={"DESCRIBE_CONFIGS": 2},
    without=dict.fromkeys(("ALTER", "ALTER_CONFIGS", "DELETE", "READ"), "a"),
)
"""Answers to a principal that creates topics and changes nothing else."""
PLAIN = """
[tables]
root = "ledger"
[clusters.main]
bootstrap_servers = ["kafka:9092"]
[clusters.other]
bootstrap_servers = ["other:9092"]
"""


def checked_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, answers: Abilities = WEAK) -> Checked:
    (tmp_path / "settings.toml").write_text(PLAIN + settings)
    return found(tmp_path, monkeypatch, answers)


def test_features_that_only_some_commands_or_approvals_use_are_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = checked_with(tmp_path, monkeypatch, "")
    told, said = statuses(checked), messages(checked)
    assert {about for about, status in told.items() if status is Status.POSSIBLE} == {
        "delete topics", "alter configs", "move replicas", "throttle moves", "producers of topics", "ACLs",
        "quotas", "group configs"
    }  # fmt: skip
    assert said["delete topics"].startswith("fails if used (by deletes that `--allow` lets through): not allowed on")
    assert said["move replicas"].startswith("fails if used (by `rebalance` and `runs revert`): grant this principal")
    assert told["add partitions"] is Status.UNUSED
    assert checked.exit_code == 0
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    cluster_check.render(checked, console)
    assert "possible: the settings don't tell whether it is used" in console.export_text()
    no_throttle = checked_with(tmp_path, monkeypatch, "[replicas]\nthrottle = 0")
    assert statuses(no_throttle)["throttle moves"] is Status.UNUSED


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ("[[policies.create]]\nuse = 'partition_budget'\nmax = 5", Status.FAILS),
        ("[[policies.create]]\nuse = 'replicas_per_broker'\nmax = 5", Status.FAILS),
        ("[[policies.create]]\nuse = 'partition_budget'\nmax = 5\nclusters = ['main']", Status.FAILS),
        ("[[policies.create]]\nuse = 'partition_budget'\nmax = 5\nclusters = ['other']", Status.POSSIBLE),
        ("[[policies.create]]\nuse = 'partition_budget'\nmax = 5\nneeds = 'visible'", Status.POSSIBLE),
        ("[[policies.create]]\nuse = 'topics_per_owner'\nmax = 5", Status.POSSIBLE),
        ("[[policies.create]]\nuse = 'topics_per_owner'\nmax = 5\nneeds = 'full'", Status.FAILS),
        ("[[policies.delete]]\nuse = 'house:rule'", Status.POSSIBLE),
    ],
)
def test_hidden_topics_are_counted_for_policies_that_need_full_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, status: Status
) -> None:
    checked = checked_with(tmp_path, monkeypatch, policy, replace(WEAK, on_cluster=frozenset()))
    assert statuses(checked)["count hidden topics"] is status
    assert checked.exit_code == (1 if status is Status.FAILS else 0)
    if "house:rule" in policy:
        assert "(by `rebalance --drain`, house:rule)" in messages(checked)["count hidden topics"]


def test_operations_that_brokers_do_not_report_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = found(tmp_path, monkeypatch, abilities(on_cluster=frozenset(), topics=0, on_topics={}))
    told = statuses(checked)
    assert told["quotas"] is told["delete topics"] is told["operations on the cluster"] is Status.UNKNOWN
    # Describe itself is known to be missing.
    assert told["move replicas"] is told["ACLs"] is Status.FAILS
    old = found(tmp_path, monkeypatch, abilities(on_cluster=None, on_topics=None))
    assert {about for about, status in statuses(old).items() if status is Status.OK} == {"connection", "brokers"}
    assert old.exit_code == 0


def test_brokers_that_lack_a_request_fail_the_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = found(tmp_path, monkeypatch, abilities(), lacks=IncrementalAlterConfigsRequest)
    assert statuses(checked)["alter configs"] is Status.FAILS
    assert messages(checked)["alter configs"].startswith("needs Kafka 2.3 or later: upgrade the brokers")
    unused = found(tmp_path, monkeypatch, abilities(), lacks=ListConfigResourcesRequest)
    assert statuses(unused)["group configs"] is Status.POSSIBLE
    assert unused.exit_code == 0


def test_a_cluster_with_another_id_than_the_settings_say_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.toml").write_text(USED.replace("[guards]", 'cluster_id = "id-2"\n[guards]'))
    checked = found(tmp_path, monkeypatch, abilities())
    assert checked.exit_code == 1
    assert "the settings expect id-2: correct bootstrap_servers or cluster_id" in messages(checked)["connection"]


@pytest.mark.parametrize(
    ("cluster_id", "host", "provider"),
    [
        ("x", "b-1.orders.abc.c2.kafka.eu-west-1.amazonaws.com", "AWS MSK"),
        ("lkc-1", "pkc-4nym6.us-east-1.aws.confluent.cloud", "Confluent Cloud"),
        ("redpanda.0a1b", "10.0.0.1", "Redpanda"),
        ("x", "orders.servicebus.windows.net", "Azure Event Hubs"),
        ("x", "kafka.example.com", None),
    ],
)
def test_the_provider_is_told_by_names(cluster_id: str, host: str, provider: str | None) -> None:
    assert provider_of(cluster_id, host) == provider
