"""Declared and live topics are compared: each kind of drift is found, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.harness import topics
from tests.unit.frames import dicts, frame, validated_rows
from topicledger import phases
from topicledger.config.settings import AuditSettings
from topicledger.config.severities import SEVERITIES, DriftKind, Severity
from topicledger.drift.beside import as_found, unlisted
from topicledger.kafka.config_values import same_value, same_value_column
from topicledger.resources.topics.drift.find import DRIFT_COLUMNS, Estate, find_drift, with_since
from topicledger.schemas import AUDIT, BROKERS, DRIFT, OBSERVED_CONFIGS

TOPICS = phases.OBSERVED
IDS = {"main": "kafka-main", "it's": "kafka-two"}
STRICT = AuditSettings(require_owner=True, owners=("payments", "search"), max_replica_skew=2)
OWNED = {"owner": "payments"}
REFUSED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}
NOTED = {"phase": "manifest", "outcome": "skipped", "error": "DUPLICATE_MANIFEST", "error_message": "2 identical"}

Config = tuple[str, str | None, str] | tuple[str, str | None, str, bool]
TOPIC, DEFAULT, BROKER = "DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG", "STATIC_BROKER_CONFIG"


def configs(*entries: Config) -> list[dict[str, Any]]:
    """name, value, source and perhaps sensitive, as `observed_configs` holds them."""
    return [
        {
            "name": entry[0],
            "value": entry[1],
            "read_only": False,
            "config_source": entry[2],
            "is_sensitive": len(entry) == 4,
        }
        for entry in entries
    ]


def estate(
    spark: SparkSession,
    live: Sequence[Mapping[str, Any]],
    *,
    earlier: Sequence[Mapping[str, Any]] = (),
    audit: Sequence[Mapping[str, Any]] = (),
    cluster_ids: Mapping[str, str] = IDS,
    racks: Mapping[int, str | None] | None = None,
    moving: Sequence[tuple[str, int]] | None = None,
) -> Estate:
    """Live topics of cluster main with one replica of one partition; `live` are their configs."""
    usual = {
        "cluster": "main",
        "internal": False,
        "permitted": True,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": {0: [1]},
        "other_leaders": {},
    }
    complete = [{**usual, "topic_id": f"id of {each['topic']}", **each} for each in live]
    told = [
        {
            "cluster": each["cluster"],
            "topic": each["topic"],
            "configs": each.pop("live", []),
            "config_error_code": each.pop("config_error_code", 0),
            "config_error": "SOME_ERROR",
        }
        for each in complete
    ]
    told = [each for each, topic in zip(told, complete, strict=True) if topic["permitted"]]
    for each in told:
        if each["config_error_code"]:
            each["configs"] = None
    key = {"cluster": "main", "cluster_id": "kafka-main"}
    return Estate(
        cluster_ids=cluster_ids,
        topics=frame(spark, TOPICS, complete),
        configs=frame(spark, OBSERVED_CONFIGS.schema, told),
        earlier_configs=frame(spark, OBSERVED_CONFIGS.schema, ({**key, **each} for each in earlier)),
        audit=frame(
            spark,
            AUDIT.schema,
            ({**key, "action": "create", "phase": "apply", "outcome": "ok", **each} for each in audit),
        ),
        brokers=None if racks is None else frame(spark, BROKERS.schema, brokers_of(racks)),
        moving=None
        if moving is None
        else spark.createDataFrame([("main", *each) for each in moving], "cluster string, topic string, partition int"),
    )


def brokers_of(racks: Mapping[int, str | None]) -> list[dict[str, Any]]:
    return [{"cluster": "main", "broker_id": broker, "rack": rack} for broker, rack in racks.items()]


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TWO = {"num_partitions": 2, "replication_factor": 2, "assignments": {0: [1, 2], 1: [2, 1]}}
PLACED = {"num_partitions": None, "assignments": {0: [1, 3], 1: [3, 2]}}
RACKS = {1: "a", 2: "a", 3: "b"}
RETENTION = ("retention.ms", "1000", TOPIC)

Row = dict[str, Any] | None
Found = tuple[str, str | None, str | None, str | None]

# what it is -> what is declared, what lives, (kind, what, declared, live) of what is found
CASES: dict[str, tuple[Row, Row, list[Found]]] = {
    "missing": ({}, None, [("missing", None, "present", None)]),
    "there": ({}, {}, []),
    "absent and gone": ({"state": "absent"}, None, []),
    "absent and there": ({"state": "absent"}, {}, [("should_be_absent", None, "absent", None)]),
    "absent, and nobody may know": (
        {"state": "absent"},
        {"permitted": False, "topic_id": None},
        [("not_permitted", None, None, None)],
    ),
    "present, and nobody may know": ({}, {"permitted": False}, [("not_permitted", None, None, None)]),
    "undeclared": (None, {}, [("unmanaged", None, None, None)]),
    "undeclared with overrides": (None, {"live": configs(RETENTION)}, [("unmanaged", None, None, None)]),
    "undeclared and internal": (None, {"internal": True}, []),
    "present, and brokers answer an error": (
        {},
        {"permitted": False, "unknown": "UNKNOWN_SERVER_ERROR"},
        [("not_permitted", None, None, None)],
    ),
    "undeclared, and nobody may know": (None, {"permitted": False}, []),
    "refused and missing": ({"state": "gone", **REFUSED}, None, []),
    "refused and there": ({"num_partitions": 9, **REFUSED}, {}, []),
    "refused without a state": ({"state": None, **REFUSED}, {}, []),
    "partitions as declared": ({"num_partitions": 2, "replication_factor": 2}, TWO, []),
    "partitions not declared": ({}, TWO, []),
    "one partition too few": ({"num_partitions": 3}, TWO, [("partitions_fewer", None, "3", "2")]),
    "one partition too many": ({"num_partitions": 1}, TWO, [("partitions_more", None, "1", "2")]),
    "a replica too few": ({"replication_factor": 3}, TWO, [("replication_factor", None, "3", "2")]),
    "a replica too many": ({"replication_factor": 1}, TWO, [("replication_factor", None, "1", "2")]),
    "replicas uneven": (
        {"replication_factor": 2},
        {**TWO, "assignments": {0: [1, 2, 3], 1: [1, 2]}},
        [("replication_factor", None, "2", "2, 3")],
    ),
    "assigned as declared": ({"assignments": {1: [2, 1], 0: [1, 2]}}, TWO, []),
    "another preferred leader": (
        {"assignments": {0: [2, 1], 1: [2, 1]}},
        TWO,
        [("assignment", "0", "2,1", "1,2")],
    ),
    "more assigned than there are": (
        {"assignments": {0: [1, 2], 1: [1, 2], 2: [1, 2]}},
        TWO,
        [("partitions_fewer", None, "3", "2"), ("assignment", "1", "1,2", "2,1")],
    ),
    "fewer assigned than there are": ({"assignments": {0: [1, 2]}}, TWO, [("partitions_more", None, "1", "2")]),
    "led by another": (
        {},
        {**TWO, "other_leaders": {1: 1}},
        [("preferred_leader", "1", "2", "1")],
    ),
    "led by nobody": ({}, {"other_leaders": {0: -1}}, [("preferred_leader", "0", "1", None)]),
    "config as declared": ({"configs": {"retention.ms": "1000"}}, {"live": configs(RETENTION)}, []),
    "config as declared, by default": (
        {"configs": {"retention.ms": "1000"}},
        {"live": configs(("retention.ms", "1000", DEFAULT))},
        [],
    ),
    "config declared in other words": (
        {"configs": {"retention.ms": " +01000 ", "cleanup.policy": "delete , compact", "preallocate": "FALSE"}},
        {"live": configs(RETENTION, ("cleanup.policy", "compact,delete", TOPIC), ("preallocate", "false", TOPIC))},
        [],
    ),
    "config set to another value": (
        {"configs": {"retention.ms": "1001"}},
        {"live": configs(RETENTION)},
        [("config_differs", "retention.ms", "1001", "1000")],
    ),
    "config left to another default": (
        {"configs": {"retention.ms": "1000"}},
        {"live": configs(("retention.ms", "5", BROKER))},
        [("config_differs", "retention.ms", "1000", "5")],
    ),
    "config that the broker doesn't know": (
        {"configs": {"no.such": "1"}},
        {"live": configs(("retention.ms", "5", DEFAULT))},
        [("config_differs", "no.such", "1", None)],
    ),
    "config without a live value": (
        {"configs": {"a": "1"}},
        {"live": configs(("a", None, DEFAULT))},
        [("config_differs", "a", "1", None)],
    ),
    "read-only config": (
        {"configs": {"a": "1"}},
        {"live": [{**each, "read_only": True} for each in configs(("a", "2", TOPIC), ("b", "3", TOPIC))]},
        [("config_differs", "a", "1", "2")],
    ),
    "sensitive config": ({"configs": {"a": "1"}}, {"live": configs(("a", None, TOPIC, True))}, []),
    "sensitive config that nobody declared": ({}, {"live": configs(("a", None, TOPIC, True))}, []),
    "config that nobody declared": (
        {"configs": {"cleanup.policy": "delete"}},
        {"live": configs(RETENTION, ("cleanup.policy", "delete", DEFAULT), ("a", "", TOPIC))},
        [("config_undeclared", "retention.ms", None, "1000"), ("config_undeclared", "a", None, "")],
    ),
    "configs that may not be described": (
        {"configs": {"retention.ms": "1"}},
        {"config_error_code": 29},
        [("not_permitted", None, None, None)],
    ),
    "configs about which brokers answer an error": (
        {"configs": {"retention.ms": "1"}},
        {"config_error_code": -1},
        [("not_permitted", None, None, None)],
    ),
    "configs of a topic that went meanwhile": ({"configs": {"retention.ms": "1"}}, {"config_error_code": 3}, []),
    "owned by nobody": ({"owner": None}, {}, [("owner_missing", None, None, None)]),
    "owned by a blank": ({"owner": " "}, {}, [("owner_missing", None, None, None)]),
    "owned by a stranger": ({"owner": "paymets"}, {}, [("owner_missing", None, "paymets", None)]),
    "absent, owned by nobody": ({"state": "absent", "owner": None}, None, []),
    "in distinct racks": ({"placement": "racks"}, PLACED, []),
    "in one rack": (
        {"placement": "racks"},
        {**PLACED, "assignments": {0: [1, 3], 1: [2, 1]}},
        [("racks_shared", "1", "racks", "2,1")],
    ),
    "in one rack, spread": (
        {"placement": "spread"},
        {**PLACED, "assignments": {0: [1, 2], 1: [2, 3]}},
        [("racks_shared", "0", "spread", "1,2")],
    ),
    "in one rack, and nobody cares": ({}, {**PLACED, "assignments": {0: [1, 2]}}, []),
    "more replicas than racks": ({"placement": "spread"}, {**PLACED, "assignments": {0: [1, 2, 3]}}, []),
    "on a broker that is down": ({"placement": "racks"}, {**PLACED, "assignments": {0: [1, 9], 1: [3, 1]}}, []),
    "in its rack": ({"placement": "rack:a"}, {**PLACED, "assignments": {0: [1, 2]}}, []),
    "in another rack": (
        {"placement": "rack:b"},
        {**PLACED, "assignments": {0: [3], 1: [3, 1]}},
        [("broker_not_allowed", "1", "rack:b", "3,1")],
    ),
    "on its brokers": ({"placement": "brokers:1,3"}, {**PLACED, "assignments": {0: [3, 1], 1: [1, 3]}}, []),
    "on another broker": (
        {"placement": "brokers:1,3"},
        {**PLACED, "assignments": {0: [1, 2], 1: [1]}},
        [("broker_not_allowed", "0", "brokers:1,3", "1,2")],
    ),
    "uneven": (
        {},
        {**PLACED, "assignments": {n: [1] for n in range(3)}},
        [("replica_skew", None, "2", "3")],
    ),
    "as uneven as is allowed": ({}, {**PLACED, "assignments": {n: [1] for n in range(2)}}, []),
    "uneven, and as declared": ({"placement": "brokers:1"}, {**PLACED, "assignments": {n: [1] for n in range(3)}}, []),
    "moved": ({}, {}, [("moves_under_way", None, None, "0,2")]),
    "twice the same": ({"num_partitions": 2}, TWO, []),
}  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    declared = [
        *({"topic": name, **OWNED, **row} for name, (row, _, _) in CASES.items() if row is not None),
        {"topic": "twice the same", "num_partitions": 2, **OWNED, **NOTED},
        {"topic": None, **REFUSED},
        {"topic": "a", "cluster": None, **REFUSED},
        {"topic": "a", "cluster": "dark", **OWNED},
        {"topic": "a", "cluster": "it's", **OWNED},
    ]
    live = [
        *({"topic": name, **row} for name, (_, row, _) in CASES.items() if row is not None),
        {"topic": "b", "cluster": "dark"},
        {"topic": "a", "cluster": "it's"},
    ]
    known = estate(spark, live, racks=RACKS, moving=[("moved", 2), ("moved", 0), ("foreign", 1)])
    rows = dicts(validated_rows(spark, *declared).transform(find_drift(known, STRICT)))
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        assert row["cluster"] == "main", row
        by_topic.setdefault(row["topic"], []).append(row)
    return by_topic


@pytest.mark.parametrize("case", CASES)
def test_only_differences_are_found(found: dict[str, list[dict[str, Any]]], case: str) -> None:
    rows = found.get(case, [])
    assert [(row["kind"], row["what"], row["declared"], row["live"]) for row in rows] == CASES[case][2]
    for row in rows:
        assert row["severity"] == SEVERITIES[DriftKind(row["kind"])]
        assert row["cluster_id"] == "kafka-main"
        assert row["message"]


def test_nothing_is_found_beside_the_cases(found: dict[str, list[dict[str, Any]]]) -> None:
    assert set(found) <= set(CASES)


def test_drift_has_its_columns(spark: SparkSession) -> None:
    rows = validated_rows(spark, {"topic": "gone"}).transform(find_drift(estate(spark, []), AuditSettings()))
    expected = frame(
        spark,
        StructType([DRIFT.schema[name] for name in DRIFT_COLUMNS]),
        [
            {
                "cluster": "main",
                "cluster_id": "kafka-main",
                "topic": "gone",
                "kind": "missing",
                "declared": "present",
                "message": "the cluster has no such topic",
                "severity": "error",
            }
        ],
    )
    assert_df_equality(rows, expected, ignore_nullable=True, ignore_metadata=True)


@pytest.mark.thorough
def test_owners_are_looked_at_where_the_settings_ask_for_it_only(spark: SparkSession) -> None:
    rows = validated_rows(spark, {"topic": "a"}, {"topic": "b", "owner": "x"})
    seen = estate(spark, [{"topic": "a"}, {"topic": "b"}])

    def told(settings: AuditSettings) -> list[str]:
        return sorted(row["topic"] for row in dicts(rows.transform(find_drift(seen, settings))))

    assert told(AuditSettings()) == []
    assert told(AuditSettings(require_owner=True)) == ["a"]
    assert told(AuditSettings(owners=("y",))) == ["b"]
    assert told(AuditSettings(owners=(" X ",), require_owner=True)) == ["a"]


@pytest.mark.thorough
def test_settings_give_severities_and_hide_ignored_kinds(spark: SparkSession) -> None:
    rows = validated_rows(spark, {"topic": "gone"})
    seen = estate(spark, [{"topic": "stranger"}])
    settings = AuditSettings(severity={DriftKind.MISSING: Severity.INFO})
    (row,) = dicts(rows.transform(find_drift(seen, settings)))
    assert (row["topic"], row["severity"]) == ("gone", "info")
    assert dicts(rows.transform(find_drift(seen, AuditSettings(severity={})))) == []


def test_clusters_that_were_all_out_of_reach_have_no_drift(spark: SparkSession) -> None:
    rows = validated_rows(spark, {"topic": "gone"})
    assert dicts(rows.transform(find_drift(estate(spark, [], cluster_ids={}), STRICT))) == []


def at(minutes: int) -> datetime:
    return NOW + timedelta(minutes=minutes)


DELETED = {"action": "delete", "completed_at": at(1)}
RECREATED: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "the id of our create": ([{"topic_id": "id of it"}], False),
    "another id than our create's": ([{"topic_id": "old"}], True),
    "another id than our last create's": ([{"topic_id": "id of it"}, {"topic_id": "new", "completed_at": at(1)}], True),
    "the id of our last create": ([{"topic_id": "old"}, {"topic_id": "id of it", "completed_at": at(1)}], False),
    "deleted by us since": ([{"topic_id": "old"}, {"topic_id": "old", **DELETED}], False),
    "a create that failed": ([{"topic_id": "old", "outcome": "failed"}], False),
    "an id from validate": ([{"topic_id": "old", "phase": "validate"}], False),
    "a create without an id": ([{"topic_id": None}], False),
    "of another cluster by that name": ([{"topic_id": "old", "cluster_id": "kafka-before"}], False),
    "of the other cluster": ([{"topic_id": "old", "cluster": "it's", "cluster_id": "kafka-two"}], False),
    "never ours": ([], False),
}  # fmt: skip


def test_a_topic_is_recreated_when_its_id_is_not_that_of_our_last_create(spark: SparkSession) -> None:
    audit = [{"topic": name, "completed_at": NOW, **row} for name, (rows, _) in RECREATED.items() for row in rows]
    seen = estate(spark, [{"topic": name, "topic_id": "id of it"} for name in RECREATED], audit=audit)
    rows = dicts(validated_rows(spark, *topics(RECREATED)).transform(find_drift(seen, AuditSettings())))
    assert {row["kind"] for row in rows} == {"recreated"}
    assert sorted(row["topic"] for row in rows) == sorted(name for name, (_, told) in RECREATED.items() if told)
    assert all(row["live"] == row["topic_id"] == "id of it" and row["declared"] in ("old", "new") for row in rows)


DEFAULTS: dict[str, tuple[Config | None, Config, bool]] = {
    "the same": (("a", "1", DEFAULT), ("a", "1", DEFAULT), False),
    "another value": (("a", "1", DEFAULT), ("a", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG"), True),
    "no value before": (("a", None, DEFAULT), ("a", "2", DEFAULT), True),
    "the same value from elsewhere": (("a", "1", DEFAULT), ("a", "1", BROKER), False),
    "set on the topic before": (("a", "1", TOPIC), ("a", "2", DEFAULT), False),
    "not seen before": (None, ("a", "2", DEFAULT), False),
    "sensitive": (("a", None, BROKER, True), ("a", "2", DEFAULT), False),
    "declared": (("declared", "1", DEFAULT), ("declared", "2", DEFAULT), False),
}


def test_a_changed_default_of_brokers_is_reported(spark: SparkSession) -> None:
    earlier = [
        {"topic": name, "configs": configs(*([before] if before else []))} for name, (before, _, _) in DEFAULTS.items()
    ]
    live = [{"topic": name, "live": configs(now)} for name, (_, now, _) in DEFAULTS.items()]
    declared = validated_rows(spark, *topics(DEFAULTS, configs={"declared": "2"}))
    rows = dicts(declared.transform(find_drift(estate(spark, live, earlier=earlier), AuditSettings())))
    # Here only one case has a value for what all of them declare.
    told = [row for row in rows if row["what"] != "declared"]
    assert {(row["kind"], row["what"], row["declared"], row["live"]) for row in told} == {
        ("broker_default_changed", "a", None, "2")
    }
    assert sorted(row["topic"] for row in told) == sorted(name for name, (_, _, changed) in DEFAULTS.items() if changed)
    assert not [row for row in rows if row["topic"] == "declared"]


def test_drift_is_since_the_first_of_an_unbroken_series(spark: SparkSession) -> None:
    key = {"cluster": "main", "topic": "a", "kind": "config_differs"}
    schema = StructType([DRIFT.schema[name] for name in DRIFT_COLUMNS])
    found = [{**key, "what": "x"}, {**key, "what": "y"}, {**key, "kind": "missing"}, {**key, "topic": "b", "what": "x"}]
    earlier = [{**key, "what": "x", "since": at(-60)}, {**key, "kind": "missing", "since": at(-30)}]
    rows = dicts(frame(spark, schema, found).transform(with_since(frame(spark, DRIFT.schema, earlier), NOW)))
    since = {(row["topic"], row["kind"], row["what"]): row["since"].astimezone(UTC) for row in rows}
    assert since == {
        ("a", "config_differs", "x"): at(-60),
        ("a", "config_differs", "y"): NOW,
        ("a", "missing", None): at(-30),
        ("b", "config_differs", "x"): NOW,
    }


SAME = [
    ("retention.ms", "1000", "1000"),
    ("retention.ms", " 1000\n", "1000"),
    ("retention.ms", "\x001000\x1f", "1000"),
    ("retention.ms", "+01000", "1000"),
    ("retention.ms", "-1", "-1"),
    ("retention.ms", "-01", "-1"),
    ("retention.ms", "-0", "0"),
    ("flush.ms", "9223372036854775807", "9223372036854775807"),
    ("min.cleanable.dirty.ratio", "0.50", "0.5"),
    ("min.cleanable.dirty.ratio", "1", "1.0"),
    ("min.cleanable.dirty.ratio", ".5", "0.5"),
    ("min.cleanable.dirty.ratio", "5e-1", "0.5"),
    ("min.cleanable.dirty.ratio", "0.00001", "1.0E-5"),
    ("min.cleanable.dirty.ratio", "0.10000000000000000001", "0.1"),
    ("preallocate", "TRUE", "true"),
    ("cleanup.policy", "compact , delete ", "compact,delete"),
    ("cleanup.policy", "delete,compact", "compact, delete"),
    ("cleanup.policy", "compact,compact", "compact"),
    ("cleanup.policy", "", " "),
    ("leader.replication.throttled.replicas", "0:1, 1:1", "1:1,0:1"),
    ("follower.replication.throttled.replicas", "1:0,2:0", "1:0,2:0"),
    ("new.in.kafka", "a,b", " a,b "),
    ("new.in.kafka", "a,b", "a, b"),
]
DIFFERENT = [
    ("retention.ms", "1000", "1001"),
    ("flush.ms", "9223372036854775807", "9223372036854775806"),
    ("preallocate", "true", "false"),
    ("compression.type", "LZ4", "lz4"),
    ("message.timestamp.type", "createtime", "CreateTime"),
    ("cleanup.policy", "compact", "compact,delete"),
    ("cleanup.policy", "Compact", "compact"),
    ("new.in.kafka", "a,b", "b,a"),
    ("new.in.kafka", "", "0"),
    ("min.cleanable.dirty.ratio", "0.5", "0.51"),
    ("new.in.kafka", "1", "true"),
    ("new.in.kafka", "x" * 400, "x" * 401),
    ("new.in.kafka", "9" * 50, "9" * 49),
]


def test_values_compare_as_kafka_reads_them_and_as_a_recovered_create_is_compared(spark: SparkSession) -> None:
    """Which configs are lists, whether case counts, and the forms of numbers were measured on Kafka 4.3.1."""
    pairs = spark.createDataFrame([*SAME, *DIFFERENT], "name string, declared string, live string")
    same = same_value_column(F.col("name"), F.col("declared"), F.col("live"))
    rows = pairs.select("name", "declared", "live", same.alias("same")).collect()
    assert [tuple(row)[:3] for row in rows if row["same"]] == SAME
    assert [tuple(row)[:3] for row in rows if row["same"] is False] == DIFFERENT
    assert [pair for pair in [*SAME, *DIFFERENT] if same_value(*pair)] == SAME


def test_moves_that_a_cluster_does_not_list_are_told_as_not_permitted(spark: SparkSession) -> None:
    told = unlisted(spark, {"main": "no answer", "elsewhere": "lost"}, "moves_under_way")
    settings: Any = SimpleNamespace(audit=AuditSettings())
    (row,) = dicts(as_found(estate(spark, []), settings, [told]))
    assert {name: value for name, value in row.items() if value is not None} == {
        "cluster": "main",
        "cluster_id": "kafka-main",
        "kind": "not_permitted",
        "what": "moves_under_way",
        "message": "no answer",
        "severity": "warning",
    }
