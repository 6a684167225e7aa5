"""`changes.ignore` leaves configs to others in every path, with the changes on or off."""

from __future__ import annotations

import io
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import by_topic, manifest_rows, observed_rows, policy_facts
from topicledger import policies
from topicledger.config.reading import load_settings
from topicledger.config.settings import Settings
from topicledger.files.read import Foreign, read
from topicledger.manifests import rows as manifests
from topicledger.model import SET_ON_TOPIC, Action
from topicledger.observe.topics import ClusterStatus
from topicledger.policies import Policy
from topicledger.resources.topics.plan import revert
from topicledger.resources.topics.plan.decide import decide
from topicledger.resources.topics.policies import create

LEADER, FOLLOWER = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
CLUSTERS = (
    '[tables]\nroot = "x"\n[clusters.c1]\nbootstrap_servers = ["a:1"]\n[clusters.c2]\nbootstrap_servers = ["b:1"]\n'
)
DESCRIBED = (
    "Topic: base.first\tTopicId: AAAAAAAAAAAAAAAAAAAAAA\tPartitionCount: 1\tReplicationFactor: 1\t"
    f"Configs: {FOLLOWER}=0:1,{LEADER}=0:1,retention.ms=86400000\n"
    "\tTopic: base.first\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
)


def settings(tmp_path: Path, more: str = "") -> Settings:
    path = tmp_path / "settings.toml"
    path.write_text(CLUSTERS + more)
    return load_settings(path)


def test_names_hold_by_cluster_also_if_no_change_is_on(tmp_path: Path) -> None:
    usual = settings(tmp_path)
    assert usual.ignored_configs == dict.fromkeys(("c1", "c2"), (LEADER, FOLLOWER))
    other = settings(tmp_path, '[clusters.c2.changes]\nignore = ["retention.ms"]\n')
    assert other.ignored_configs == {"c1": (LEADER, FOLLOWER), "c2": (LEADER, FOLLOWER, "retention.ms")}
    assert usual.digest() != other.digest()
    assert usual.audit_digest() != other.audit_digest()


def test_throttle_lists_of_moves_are_ignored_beside_named_configs(tmp_path: Path) -> None:
    """A run must never reset the lists that its own move set, and an export must not freeze them."""
    named = settings(
        tmp_path,
        f'[changes]\nignore = ["retention.ms", "{LEADER}"]\n[clusters.c2.changes]\nignore = ["forks.own.config"]\n',
    )
    assert named.ignored_configs == {
        "c1": (LEADER, FOLLOWER, "retention.ms"),
        "c2": (LEADER, FOLLOWER, "forks.own.config"),
    }
    none = settings(tmp_path, "[changes]\nignore = []\n")
    assert none.ignored_configs == settings(tmp_path).ignored_configs


def test_throttle_lists_that_kafka_topics_prints_are_not_carried_over(tmp_path: Path) -> None:
    file = tmp_path / "described.txt"
    file.write_text(DESCRIBED)
    parsed = read(settings(tmp_path), [file], io.StringIO(), foreign=Foreign(form="kafka-topics", cluster="c1"))
    (row,) = parsed.rows
    assert row.configs == {"retention.ms": "86400000"}
    left = [(each.line, each.key) for each in parsed.not_carried_over if "changes.ignore" in each.what]
    assert left == [(1, f"base.first: {FOLLOWER}"), (1, f"base.first: {LEADER}")]


def test_declared_configs_that_are_ignored_count_as_undeclared(spark: SparkSession, tmp_path: Path) -> None:
    """So that neither a create sets them nor a plan or an audit compares them."""
    by_cluster = settings(tmp_path, '[clusters.c2.changes]\nignore = ["retention.ms"]\n')
    configs = {LEADER: "0:1", "retention.ms": "1", "segment.ms": "2"}
    rows = manifest_rows(
        spark,
        {"cluster": "c1", "topic": "t", "configs": configs},
        {"cluster": "c2", "topic": "t", "configs": configs},
        {"cluster": "c2", "topic": "plain"},
        {"cluster": "c3", "topic": "t", "configs": configs},
    )
    validated = by_topic(rows.transform(manifests.validated_by(by_cluster, None)))
    assert {key: row["configs"] for key, row in validated.items()} == {
        ("c1", "t"): {"retention.ms": "1", "segment.ms": "2"},
        ("c2", "t"): {"segment.ms": "2"},
        ("c2", "plain"): None,
        ("c3", "t"): configs,
    }
    everywhere = by_topic(rows.transform(manifests.validated_by(settings(tmp_path), None)))
    assert everywhere["c2", "t"]["configs"] == {"retention.ms": "1", "segment.ms": "2"}


def test_a_revert_leaves_configs_that_are_ignored_by_now(spark: SparkSession, tmp_path: Path) -> None:
    """The reverted run changed them before they were in `changes.ignore`."""
    ignored = settings(tmp_path, '[clusters.c2.changes]\nignore = ["retention.ms"]\n').ignored_configs
    live = [(name, "9", SET_ON_TOPIC, False) for name in ("retention.ms", "segment.ms")]
    done = ({"retention.ms": "1", "segment.ms": "1"}, {"retention.ms": "2", "segment.ms": "2"})
    rows = spark.createDataFrame(
        [("c1", live, done, None), ("c2", live, done, None)],
        "cluster string, live_configs array<struct<name string, value string, config_source string, "
        "is_sensitive boolean>>, _done struct<before map<string, string>, after map<string, string>>, "
        "_later map<string, string>",
    )
    names = ("_differ", "_foreign", "_left")
    found = rows.withColumns(revert._live_and_planned(ignored)).select("cluster", *names).collect()
    both = ["retention.ms", "segment.ms"]
    assert {row["cluster"]: [sorted(row[name]) for name in names] for row in found} == {
        "c1": [both, both, []],
        "c2": [["segment.ms"], ["segment.ms"], ["retention.ms"]],
    }


def test_create_warns_of_declared_configs_that_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    """And keeps that warning beside those of policies; topics that live aren't created."""
    configs = {LEADER: "0:1", "retention.ms": "1"}
    rows = manifest_rows(
        spark,
        {"cluster": "c1", "topic": "new", "configs": configs},
        {"cluster": "c1", "topic": "new.plain", "configs": {"retention.ms": "1"}},
        {"cluster": "c1", "topic": "there", "configs": configs},
        {"cluster": "dark", "topic": "new", "configs": configs},
    )
    validated = rows.transform(manifests.validated_by(settings(tmp_path), None))
    seen = observed_rows(spark, {"cluster": "c1", "topic": "there"})
    rule = Policy(name="num_partitions", action=Action.CREATE, rule=create.num_partitions(max=1), mode="warn")
    facts = policy_facts(spark)
    decided = validated.transform(decide(seen, {"c1": ClusterStatus(cluster_id="kafka-c1")}))
    found = by_topic(decided.withColumn("num_partitions", F.lit(2)).transform(policies.evaluate([rule], facts)))
    told = {key: [each["policy"] for each in row["violations"] or ()] for key, row in found.items()}
    assert told == {
        ("c1", "new"): ["ignored_configs", "num_partitions"],
        ("c1", "new.plain"): ["num_partitions"],
        ("c1", "there"): [],
        ("dark", "new"): [],
    }
    message = "changes.ignore in the settings leaves declared configs to others, so it is created without"
    assert found["c1", "new"]["violations"][0]["message"] == f"{message} {LEADER}"
