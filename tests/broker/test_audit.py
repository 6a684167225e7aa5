"""An audit of live clusters that somebody else changed: each kind of drift is found, and nothing else."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka.admin import ACLOperation, ACLResourcePatternType
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker.another_hand import AnotherHand
from tests.broker.changes import allow
from tests.broker.direct import admin_of, make, settings_for
from tests.broker.invoking import invoke
from tests.broker.records import client, commit, write
from tests.harness import UNREACHABLE, Estate, cluster_settings
from topicledger.apply.progress import Progress
from topicledger.config.scope import ScopeSettings
from topicledger.config.settings import AuditSettings, ChangeSettings, KafkaSettings
from topicledger.config.severities import DriftKind, Severity
from topicledger.drift.summary import DriftSummary
from topicledger.errors import UsageError
from topicledger.model.scope import Scope
from topicledger.schemas import BROKERS, DRIFT, OBSERVED, OBSERVED_CONFIGS, RUNS, USAGE
from topicledger_testing.embedded_kafka import EmbeddedKafka

AUDIT = AuditSettings(owners=("tests",))
SCOPE = ScopeSettings(ignore_topics=("-changelog$",))
AS_TOML = '[audit]\nowners = ["tests"]\n[scope]\nignore_topics = ["-changelog$"]\n'
DELAY = "file.delete.delay.ms"
AN_HOUR_AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)

DECLARED: list[dict[str, Any]] = [
    {"topic": "kinds.fine", "num_partitions": 2, "replication_factor": 2, "configs": {"retention.ms": "86400000"}},
    {"topic": "kinds.missing"},
    {"topic": "kinds.partitions", "num_partitions": 2},
    {"topic": "kinds.replicas", "replication_factor": 2},
    {"topic": "kinds.assigned", "assignments": {0: [1, 2], 1: [2, 3]}},
    {"topic": "kinds.leader", "replication_factor": 2},
    {"topic": "kinds.recreated"},
    {"topic": "kinds.differs", "configs": {"retention.ms": "1000", "cleanup.policy": "compact"}},
    {"topic": "kinds.undeclared", "configs": {"retention.ms": "1000"}},
    {"topic": "kinds.absent", "state": "absent"},
]
LATER: list[dict[str, Any]] = [
    {"topic": "kinds.fewer", "num_partitions": 3, "owner": "tests"},
    {"topic": "kinds.owner", "owner": "tets"},
    {"topic": "kinds wrong", "owner": "tests"},
]
DEFAULT = {"topic": "kinds.default", "configs": {DELAY: "60000"}}

Found = tuple[str, str, str | None, str | None, str | None]
EXPECTED: set[Found] = {
    ("kinds.missing", "missing", None, "present", None),
    ("kinds.stranger", "unmanaged", None, None, None),
    ("kinds.absent", "should_be_absent", None, "absent", None),
    ("kinds.fewer", "partitions_fewer", None, "3", "2"),
    ("kinds.partitions", "partitions_more", None, "2", "3"),
    ("kinds.replicas", "replication_factor", None, "2", "1"),
    ("kinds.assigned", "assignment", "1", "2,3", "3,1"),
    ("kinds.differs", "config_differs", "retention.ms", "1000", "2000"),
    ("kinds.undeclared", "config_undeclared", "segment.ms", None, "3600000"),
    ("kinds.default", "config_differs", DELAY, "60000", "30000"),
    ("kinds.owner", "owner_missing", None, "tets", None),
}
"""Beside these, what depends on ids and brokers."""

INHERITING = ["fine", "partitions", "replicas", "assigned", "leader", "recreated", "differs", "undeclared"]
"""Topics that have the default that changed, and had it at the previous audit."""


SOME = (DriftKind.MISSING, DriftKind.BROKER_DEFAULT_CHANGED)


class InterruptedWhenAllIsSeen(Progress):
    """Somebody presses Ctrl-C then."""

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        if name == "drift":
            raise KeyboardInterrupt
        with super().phase(name, total) as advance:
            yield advance


@dataclass(frozen=True)
class Audited:
    """A cluster audited before and after somebody else changed it."""

    estate: Estate
    before: DriftSummary
    after: DriftSummary
    ids: dict[str, tuple[str, str]]
    """Of the topic that was made anew: its id as created, and now."""
    leader: tuple[int, int]
    """Of the topic whose leader isn't the preferred replica: the preferred one, and the leader."""
    bytes: dict[str, int]
    """Size of all replicas of kinds.fine in the brokers' folders, by audit."""


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedKafka]:
    """Three brokers of our own: `nothing else` must be true of the whole cluster."""
    with clusters.three_brokers() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def audited(spark: SparkSession, own: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    estate = Estate(spark, tmp_path_factory.mktemp("audit") / "ledger", {"main": own})
    estate.settings = replace(estate.settings, audit=AUDIT, scope=SCOPE)
    hand = AnotherHand(own)
    # Nothing is set on it: what is declared is the default.
    hand.create(NewTopic("kinds.default", 1, 1))
    estate.declare(*({"owner": "tests", **row} for row in [*DECLARED, DEFAULT]))
    assert estate.run(wait_visible=60.0).exit_code == 0
    write(own, "kinds.fine", at=AN_HOUR_AGO, records=5, enable_idempotence=True)
    write(own, "kinds.fine", at=AN_HOUR_AGO - timedelta(hours=1), records=3, partition=1)
    commit(own, "audited-readers", "kinds.fine")
    before = estate.run_audit("before", fail_on=Severity.INFO, usage=True)
    sizes = {"before": on_disk(own, "kinds.fine")}
    write(own, "kinds.fine", at=AN_HOUR_AGO, records=2, enable_idempotence=True)

    hand.delete("kinds.missing", "kinds.recreated")
    hand.create(
        NewTopic("kinds.recreated", 1, 1),
        NewTopic("kinds.stranger", 1, 1, config={"retention.ms": "5"}),
        # Nothing is reported of a topic that the settings leave to others.
        NewTopic("kinds.store-changelog", 1, 1),
        NewTopic("kinds.absent", 1, 1),
        NewTopic("kinds.fewer", 2, 1),
        NewTopic("kinds.owner", 1, 1),
    )
    hand.add_partitions("kinds.partitions", 3)
    hand.reassign("kinds.replicas", {0: hand.replicas("kinds.replicas")[0][:1]})
    hand.reassign("kinds.assigned", {0: [1, 2], 1: [3, 1]})
    leader, other = hand.replicas("kinds.leader")[0]
    hand.reassign("kinds.leader", {0: [other, leader]})
    hand.set_configs("kinds.differs", {"retention.ms": "2000"})
    hand.set_configs("kinds.undeclared", {"segment.ms": "3600000"})
    hand.set_default("log.segment.delete.delay.ms", "30000", of_topics=DELAY, topic="kinds.fine")
    estate.declare(*LATER)
    ids = {row["topic"]: row["topic_id"] for row in estate.rows(OBSERVED)}
    after = estate.run_audit("after", fail_on=Severity.INFO, usage=True)
    sizes["after"] = on_disk(own, "kinds.fine")
    now = {row["topic"]: row["topic_id"] for row in estate.rows(OBSERVED)}
    recreated = {"kinds.recreated": (ids["kinds.recreated"], now["kinds.recreated"])}
    return Audited(estate, before, after, recreated, (other, leader), sizes)


@pytest.fixture(scope="module")
def again(audited: Audited) -> DriftSummary:
    """The next audit; one of a single topic before it takes nothing from it."""
    audited.estate.run_audit("part", scope=Scope(topics=("^kinds[.]owner$",)))
    return audited.estate.run_audit("again")


def on_disk(kafka: EmbeddedKafka, topic: str) -> int:
    """Count the bytes of a topic's records in the brokers' folders."""
    return sum(each.stat().st_size for each in kafka.folder.rglob(f"{topic}-[0-9]*/*.log"))


def found(audited: Audited, run_id: str) -> dict[Found, dict[str, Any]]:
    rows = audited.estate.rows(DRIFT, run_id)
    by_key = {(row["topic"], row["kind"], row["what"], row["declared"], row["live"]): row for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def lasting(audited: Audited) -> set[Found]:
    """Return the drift that stays until somebody corrects it."""
    preferred, leader = audited.leader
    old, new = audited.ids["kinds.recreated"]
    return EXPECTED | {
        ("kinds.recreated", "recreated", None, old, new),
        ("kinds.leader", "preferred_leader", "0", str(preferred), str(leader)),
    }


def test_a_cluster_that_is_as_declared_has_no_drift(audited: Audited) -> None:
    assert (audited.before.exit_code, audited.before.state, audited.before.drift_count) == (0, "finished", 0)
    assert found(audited, "before") == {}


def test_each_kind_is_found_and_nothing_else(audited: Audited) -> None:
    changed = {(f"kinds.{name}", "broker_default_changed", DELAY, None, "30000") for name in INHERITING}
    assert set(found(audited, "after")) == lasting(audited) | changed
    kinds = {key[1] for key in found(audited, "after")}
    # Those of rights and quotas are in test_acls.py and test_quotas.py.
    of_topics = {kind.value for kind in DriftKind}
    # Those of placements are in test_replicas.py.
    of_placements = {"racks_shared", "broker_not_allowed", "replica_skew", "moves_under_way"}
    assert kinds == of_topics - {"not_permitted"} - of_placements
    assert (audited.after.exit_code, audited.after.state) == (3, "finished")
    assert (audited.after.drift_count, audited.after.manifests_refused) == (21, 1)
    assert (audited.before.ignored, audited.after.ignored) == ({"topics": 0}, {"topics": 1})
    assert audited.after.severities == {"error": 7, "warning": 5, "info": 9}


@pytest.mark.thorough
def test_drift_counts_since_first_found_and_defaults_are_reported_once(audited: Audited, again: DriftSummary) -> None:
    first, later = found(audited, "after"), found(audited, "again")
    assert set(later) == lasting(audited)
    assert again.exit_code == 0
    assert audited.estate.rows(USAGE, "again") == []
    for key, row in later.items():
        assert row["since"] == first[key]["since"] == first[key]["observed_at"] < row["observed_at"]


def test_usage_is_what_other_clients_and_files_say(audited: Audited, own: EmbeddedKafka) -> None:
    before, after = ({row["topic"]: row for row in audited.estate.rows(USAGE, each)} for each in audited.bytes)
    with closing(Consumer(client(own, group_id="audited-readers"))) as reader:
        marks = [reader.get_watermark_offsets(TopicPartition("kinds.fine", each)) for each in (0, 1)]
        (committed,) = reader.committed([TopicPartition("kinds.fine", 0)])
    assert marks == [(0, 7), (0, 3)]
    lag = 7 - committed.offset
    fine = after["kinds.fine"]
    assert {name: fine[name] for name in USAGE.schema.names[7:-1] if name not in ("since", "last_record_at")} == {
        "partitions": 2,
        "replication_factor": 2,
        "bytes": audited.bytes["after"],
        "bytes_one_copy": audited.bytes["after"] // 2,
        "start_offset": 0,
        "end_offset": 10,
        "records_since": 2,
        "bytes_since": audited.bytes["after"] - audited.bytes["before"],
        "groups": [{"group": "audited-readers", "state": "Empty", "members": 0, "lag": lag}],
        "producers": 2,
        "under_replicated": 0,
        "offline": 0,
        "at_min_isr": 0,
    }
    assert (fine["last_record_at"].astimezone(UTC), fine["reasons"]) == (AN_HOUR_AGO, {})
    assert fine["since"] == before["kinds.fine"]["observed_at"] < fine["observed_at"]
    assert before["kinds.fine"]["end_offset"] == 8


def test_unknown_usage_is_null_with_a_reason(audited: Audited) -> None:
    before, after = ({row["topic"]: row for row in audited.estate.rows(USAGE, each)} for each in audited.bytes)
    first = "no earlier audit read the end offset of this topic"
    for row in (before["kinds.fine"], after["kinds.recreated"]):
        assert [row[name] for name in ("since", "records_since", "bytes_since")] == [None] * 3
        assert {row["reasons"][name] for name in ("since", "records_since", "bytes_since")} == {first}
    empty = after["kinds.leader"]
    assert (empty["end_offset"], empty["records_since"], empty["groups"]) == (0, 0, [])
    assert (empty["last_record_at"], empty["reasons"]) == (None, {"last_record_at": "no record is retained"})
    assert after["kinds.replicas"]["at_min_isr"] == after["kinds.replicas"]["partitions"], "one replica, and one needed"
    assert set(after) == {row["topic"] for row in audited.estate.rows(OBSERVED)}, "others' topics have sizes, too"


def test_observed_configs_are_kept_with_their_source(audited: Audited) -> None:
    estate = audited.estate
    rows = {row["topic"]: row for row in estate.rows(OBSERVED_CONFIGS)}
    assert {row["run_id"] for row in rows.values()} == {"after"}, "the last one that saw anything else"
    configs = {each["name"]: each for each in rows["kinds.differs"]["configs"]}
    assert len(configs) > 25
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["config_source"]) == (
        "2000",
        "DYNAMIC_TOPIC_CONFIG",
    )
    assert configs[DELAY]["config_source"] == "DYNAMIC_BROKER_CONFIG"
    assert (rows["kinds.differs"]["config_error_code"], rows["kinds.differs"]["config_error"]) == (0, None)
    assert {row["topic"] for row in estate.rows(OBSERVED)} == set(rows)
    assert {row["rack"] for row in estate.rows(BROKERS)} == {"a", "b", "c"}
    version = estate.ledger.latest_version(OBSERVED_CONFIGS) - 1
    earlier = estate.ledger.read(OBSERVED_CONFIGS, version).where("topic = 'kinds.differs'").collect()[0]
    assert {each["name"]: each["value"] for each in earlier["configs"]}["retention.ms"] == "1000"


def test_the_audit_is_a_run_whose_result_can_be_asked_for_again(audited: Audited, tmp_path: Path) -> None:
    root = audited.estate.settings.tables.root
    servers = list(audited.estate.settings.clusters["main"].bootstrap_servers)
    config = commands.settings_file(tmp_path, {"main": servers}, root=root, more=AS_TOML)
    (run,) = audited.estate.rows(RUNS, "after")
    assert (run["state"], run["exit_code"], run["arguments"]["command"]) == ("finished", 3, "audit")
    assert run["counts"] == {**audited.after.kinds, "manifests_refused": 1, "ignored_topics": 1}

    result = tmp_path / "result.json"
    shown = invoke("drift", "--config", config, "--run-id", "after", "--format", "json", "--result-file", result)
    assert shown.exit_code == 3
    document = json.loads(shown.stdout)
    assert document == json.loads(result.read_text())
    assert (document["format_version"], document["run_id"], document["drift_count"]) == (1, "after", 21)
    assert [each["severity"] for each in document["drift"]][:8] == ["error"] * 7 + ["warning"]
    first = {row["since"].astimezone(UTC) for row in audited.estate.rows(DRIFT, "after")}
    assert {datetime.fromisoformat(each["since"]) for each in document["drift"]} == {
        each.replace(microsecond=0) for each in first
    }

    # By its former name, as schedules may have it.
    table = invoke("audit", "--config", config, "--run-id", "after")
    assert table.exit_code == 3
    assert "broker_default_changed" in table.stdout
    assert "the first 20 of 21" in table.stdout
    assert "not compared: 1 invalid manifest rows" in table.stdout
    command = shlex.split(table.stdout[table.stdout.index("topicledger sql") :].splitlines()[0])
    rows = invoke(*command[1:], "--config", config, "--format", "json")
    assert len(json.loads(rows.stdout)["rows"]) == 21

    for command in ("plan", "provision", "apply"):
        refused = invoke(command, "--config", config, "--run-id", "after")
        assert (refused.exit_code, "was started by drift" in refused.stderr) == (2, True), refused.stderr
    config.write_text(config.read_text().replace('["tests"]', '["others"]'))
    assert invoke("drift", "--config", config, "--run-id", "after").exit_code == 2


@pytest.mark.thorough
def test_an_unreachable_cluster_is_audited_later_by_the_same_id(
    spark: SparkSession,
    own: EmbeddedKafka,
    kafka: EmbeddedKafka,
    kafka_policy: EmbeddedKafka,
    again: DriftSummary,
    tmp_path: Path,
) -> None:
    """The next start doesn't compare with the rows that an interrupted start wrote."""
    assert again.state == "finished"
    for each in (kafka, kafka_policy):
        make(each, "kinds.aside")
    estate = Estate(spark, tmp_path / "ledger", {"main": own, "dark": kafka, "other": kafka_policy})
    estate.settings = replace(
        estate.settings,
        kafka=KafkaSettings(connect_timeout=5.0),
        audit=AuditSettings(severity=dict.fromkeys(SOME, Severity.WARNING)),
        clusters={
            **estate.settings.clusters,
            "other": cluster_settings("other", kafka_policy, kafka_policy.cluster_id),
        },
    )
    for cluster in estate.settings.clusters:
        estate.declare({"topic": "nowhere"}, cluster=cluster)
    estate.declare({"topic": "kinds.fine"})
    assert estate.run_audit(fail_on=Severity.INFO).exit_code == 3
    assert [estate.run_audit(fail_on=each).exit_code for each in (Severity.WARNING, Severity.ERROR, None)] == [3, 0, 0]
    good = estate.settings
    seen = {row["cluster"]: row["run_id"] for row in estate.rows(BROKERS)}

    bad = {**good.clusters, "dark": cluster_settings("dark", UNREACHABLE)}
    estate.settings = replace(good, clusters=bad)
    AnotherHand(own).set_default("log.segment.delete.delay.ms", "20000", of_topics=DELAY, topic="kinds.fine")
    with pytest.raises(KeyboardInterrupt):
        estate.run_audit("partly", progress=InterruptedWhenAllIsSeen(shown=False))
    assert estate.rows(DRIFT, "partly") == []
    partly = estate.run_audit("partly", fail_on=Severity.INFO)
    assert (partly.exit_code, partly.state, partly.kinds) == (
        1,
        "planning",
        {"missing": 2, "broker_default_changed": 1},
    )
    assert ["dark" in problem for problem in partly.problems] == [True]
    # The views count the clusters that it compared.
    assert [row["arguments"]["audited"] for row in estate.rows(RUNS, "partly")] == ["main,other"]
    now = {row["cluster"]: row["run_id"] for row in estate.rows(BROKERS)}
    # Unchanged rows keep the run that first saw them. Main has three brokers, and any of them may be named controller.
    assert now in ({**seen, "main": each} for each in ("partly", seen["main"]))
    assert {row["cluster"] for row in estate.rows(OBSERVED_CONFIGS)} == {"main", "dark", "other"}

    estate.settings = good
    whole = estate.run_audit("partly", fail_on=Severity.INFO)
    assert (whole.exit_code, whole.state, whole.kinds) == (3, "finished", {"missing": 3, "broker_default_changed": 1})
    assert [row["arguments"]["audited"] for row in estate.rows(RUNS, "partly")] == ["dark,main,other"]
    # Asked again about a finished audit, it answers what is asked now.
    asked = (Severity.WARNING, Severity.ERROR, None)
    assert [estate.run_audit("partly", fail_on=each).exit_code for each in asked] == [3, 0, 3]
    rows = [row for row in estate.rows(DRIFT, "partly") if row["kind"] == "missing"]
    assert sorted(row["cluster"] for row in rows) == ["dark", "main", "other"]
    assert all(row["since"] < row["observed_at"] for row in rows)

    expected = {**good.clusters, "other": cluster_settings("other", kafka_policy, "another-id")}
    estate.settings = replace(good, clusters=expected)
    with pytest.raises(UsageError, match="the settings changed since"):
        estate.run_audit("partly")
    mistaken = estate.run_audit(clusters=("other",))
    assert mistaken.exit_code == 1
    assert kafka_policy.cluster_id in mistaken.problems[0]


@pytest.mark.thorough
def test_undescribable_topics_are_not_permitted_and_never_missing(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, tmp_path: Path
) -> None:
    """M3; the rights to describe a topic and to describe its configs are two."""
    make(kafka_sasl, "audited.hidden", "audited.seen")
    allowed = allow("describer", ACLOperation.DESCRIBE, "audited.seen", ACLResourcePatternType.LITERAL)
    with admin_of(kafka_sasl) as admin:
        admin._admin.create_acls([allowed])
    estate = Estate(spark, tmp_path / "ledger", {"main": settings_for("main", kafka_sasl, "describer")})
    configs = {"retention.ms": "1"}
    estate.declare({"topic": "audited.hidden"}, {"topic": "audited.seen", "configs": configs})
    estate.declare({"topic": "audited.gone", "state": "absent"})
    estate.settings = replace(estate.settings, changes={"main": ChangeSettings(replicas="on")})
    estate.run_audit("rights", usage=True)
    (usage,) = (row for row in estate.rows(USAGE, "rights") if row["topic"] == "audited.seen")
    known = {name for name in USAGE.schema.names if usage[name] is not None}
    assert known >= {"partitions", "replication_factor", "start_offset", "end_offset", "under_replicated", "offline"}
    needs = {
        "bytes": "Describe on the cluster",
        "bytes_one_copy": "Describe on the cluster",
        "groups": "Describe on the cluster",
        "producers": "Read on topic audited.seen",
        "at_min_isr": "TOPIC_AUTHORIZATION_FAILED",
    }
    assert {name: usage[name] for name in needs} == dict.fromkeys(needs)
    assert [usage["reasons"][name].endswith(why) for name, why in needs.items()] == [True] * len(needs), usage
    found = estate.rows(DRIFT, "rights")
    (unlisted,) = (row for row in found if row["topic"] is None)
    assert (unlisted["kind"], unlisted["what"]) == ("not_permitted", "moves_under_way")
    assert "Describe on the cluster" in unlisted["message"]
    rows = {row["topic"]: row for row in found if (row["topic"] or "").startswith("audited.")}
    assert {topic: row["kind"] for topic, row in rows.items()} == {
        "audited.hidden": "not_permitted",
        "audited.seen": "not_permitted",
        "audited.gone": "not_permitted",
    }
    assert "DescribeConfigs" in rows["audited.seen"]["message"]
    kept = {row["topic"]: row for row in estate.rows(OBSERVED_CONFIGS)}["audited.seen"]
    assert (kept["configs"], kept["config_error_code"], kept["config_error"]) == (
        None,
        29,
        "TOPIC_AUTHORIZATION_FAILED",
    )
