"""A manifest row is accepted, or refused with each of its reasons, whatever stands beside it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession, is_remote
from pyspark.sql import functions as F

from tests.unit.frames import VALIDATED, dicts, frame, manifest_rows
from topicledger.manifests import row_rules
from topicledger.manifests import rows as manifests

FINE: dict[str, dict[str, Any]] = {
    "nothing but a name": {},
    "one letter": {"topic": "a"},
    "three dots": {"topic": "..."},
    "a dot first": {"topic": ".a"},
    "every legal character": {"topic": "aZ09._-"},
    "almost an internal topic": {"topic": "__consumer_offset"},
    "a Java number": {"configs": {"min.cleanable.dirty.ratio": "5.0e-1F"}},
    "249 characters": {"topic": "x" * 249},
    "absent": {"state": "absent"},
    "absent with settings kept": {"state": "absent", "num_partitions": 3, "configs": {"a": "b"}},
    "one partition": {"num_partitions": 1},
    "most partitions an int holds": {"num_partitions": 2**31 - 1},
    "one replica": {"replication_factor": 1},
    "32767 replicas": {"replication_factor": 32767},
    "both counts": {"num_partitions": 6, "replication_factor": 3},
    "one assigned partition": {"assignments": {0: [1]}},
    "assignments": {"assignments": {0: [1, 2], 1: [2, 1], 2: [3, 1]}},
    "assignments out of order": {"assignments": {2: [3], 0: [1], 1: [2]}},
    "broker 0": {"assignments": {0: [0]}},
    "configs": {"configs": {"retention.ms": "1", "cleanup.policy": "compact"}},
    "an empty config value": {"configs": {"follower.replication.throttled.replicas": ""}},
    "no configs": {"configs": {}},
    "replaces a topic": {"replaces": "an.older.one"},
    "null owner and labels": {"owner_is": None, "labels": {"tier": None}},
}

COUNT_HINT = "; it must be at least 1, or null for the broker's default"
NOT_ASCII = "topic has a character other than ASCII letters, digits, '.', '_' and '-'"
BOTH = "assignments exclude num_partitions and replication_factor, which they imply; give one or the other"
GAPS = "assignments must number the partitions 0 to n-1 without gaps"
NO_BROKERS = "assignments leave a partition without brokers"
STRANGE_BROKER = "assignments contain a null or negative broker id"
UNEVEN = "assignments give partitions different numbers of replicas"
TWICE = "assignments name a broker twice for one partition"

BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "replaces itself": (
        {"topic": "same", "replaces": "same"},
        "INVALID_REPLACES",
        "replaces names the topic itself; name the topic that it replaces",
    ),
    "replaces no name": (
        {"replaces": "no name"},
        "INVALID_REPLACES",
        "replaces is no name of a topic that can be declared",
    ),
    "replaces a long name": (
        {"replaces": "y" * 250},
        "INVALID_REPLACES",
        "replaces is no name of a topic that can be declared",
    ),
    "absent and replaces": (
        {"state": "absent", "replaces": "another"},
        "INVALID_REPLACES",
        "replaces is for a topic that is present; this one is absent",
    ),
    "null topic": ({"topic": None}, "INVALID_TOPIC", "topic is null"),
    "empty topic": ({"topic": ""}, "INVALID_TOPIC", "topic is empty"),
    "a dot": ({"topic": "."}, "INVALID_TOPIC", "topic can't be ."),
    "two dots": ({"topic": ".."}, "INVALID_TOPIC", "topic can't be .."),
    "250 characters": (
        {"topic": "x" * 250},
        "INVALID_TOPIC",
        "topic has 250 characters; Kafka accepts at most 249",
    ),
    "a space": ({"topic": "a b"}, "INVALID_TOPIC", NOT_ASCII),
    "only a space": ({"topic": " "}, "INVALID_TOPIC", NOT_ASCII),
    "a space after it": ({"topic": "space.after "}, "INVALID_TOPIC", NOT_ASCII),
    "a line break after it": ({"topic": "line.break.after\n"}, "INVALID_TOPIC", NOT_ASCII),
    "an umlaut": ({"topic": "köln"}, "INVALID_TOPIC", NOT_ASCII),
    "a digit of another script": ({"topic": "topic٣"}, "INVALID_TOPIC", NOT_ASCII),
    "a control character": ({"topic": "a\x1b[31m"}, "INVALID_TOPIC", NOT_ASCII),
    "a slash": ({"topic": "a/b"}, "INVALID_TOPIC", NOT_ASCII),
    **{
        f"{topic}, {state}": ({"topic": topic, "state": state}, "INVALID_TOPIC", f"{topic}{row_rules.INTERNAL}")
        for topic, state in {
            "__consumer_offsets": "present",
            "__transaction_state": "present",
            "__share_group_state": "absent",
            "__cluster_metadata": "present",
            "__remote_log_metadata": "present",
        }.items()
    },
    "a collision with an internal topic": (
        {"topic": "_.transaction.state"},
        "INVALID_TOPIC",
        f"_.transaction.state{row_rules.COLLIDES}__transaction_state{row_rules.WITH_INTERNAL}",
    ),
    "a collision with another internal topic": (
        {"topic": "__remote.log.metadata"},
        "INVALID_TOPIC",
        f"__remote.log.metadata{row_rules.COLLIDES}__remote_log_metadata{row_rules.WITH_INTERNAL}",
    ),
    "null state": ({"state": None}, "INVALID_STATE", "state is null; write present or absent"),
    "unknown state": ({"state": "gone"}, "INVALID_STATE", "state is gone; write present or absent"),
    "state in capitals": ({"state": "PRESENT"}, "INVALID_STATE", "state is PRESENT; write present or absent"),
    "no partitions": ({"num_partitions": 0}, "INVALID_NUM_PARTITIONS", f"num_partitions is 0{COUNT_HINT}"),
    "-1 partitions": ({"num_partitions": -1}, "INVALID_NUM_PARTITIONS", f"num_partitions is -1{COUNT_HINT}"),
    "no replicas": ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR", f"replication_factor is 0{COUNT_HINT}"),
    "-1 replicas": ({"replication_factor": -1}, "INVALID_REPLICATION_FACTOR", f"replication_factor is -1{COUNT_HINT}"),
    "32768 replicas": (
        {"replication_factor": 32768},
        "INVALID_REPLICATION_FACTOR",
        "replication_factor is 32768; Kafka accepts at most 32767",
    ),
    "assignments and partitions": ({"assignments": {0: [1]}, "num_partitions": 1}, "ASSIGNMENTS_AND_COUNTS", BOTH),
    "assignments and replicas": ({"assignments": {0: [1]}, "replication_factor": 1}, "ASSIGNMENTS_AND_COUNTS", BOTH),
    "empty assignments": ({"assignments": {}}, "INVALID_ASSIGNMENTS", "assignments are empty"),
    "assignments from 1": ({"assignments": {1: [1], 2: [1]}}, "INVALID_ASSIGNMENTS", GAPS),
    "assignments with a gap": ({"assignments": {0: [1], 2: [1]}}, "INVALID_ASSIGNMENTS", GAPS),
    "a negative partition": ({"assignments": {-1: [1], 0: [1]}}, "INVALID_ASSIGNMENTS", GAPS),
    "a partition twice": ({"assignments": [(0, [1]), (0, [2]), (2, [1])]}, "INVALID_ASSIGNMENTS", GAPS),
    "a partition without brokers": ({"assignments": {0: [1], 1: []}}, "INVALID_ASSIGNMENTS", NO_BROKERS),
    "a partition with null": ({"assignments": {0: [1], 1: None}}, "INVALID_ASSIGNMENTS", NO_BROKERS),
    "a null broker": ({"assignments": {0: [1, None]}}, "INVALID_ASSIGNMENTS", STRANGE_BROKER),
    "a negative broker": ({"assignments": {0: [1, -2]}}, "INVALID_ASSIGNMENTS", STRANGE_BROKER),
    "a broker twice": ({"assignments": {0: [1, 2], 1: [2, 2]}}, "INVALID_ASSIGNMENTS", TWICE),
    "uneven assignments": ({"assignments": {0: [1, 2], 1: [1]}}, "INVALID_ASSIGNMENTS", UNEVEN),
    "configs without a value": (
        {"configs": {"b": None, "a": None, "c": "1"}},
        "INVALID_CONFIGS",
        "configs without a value: a, b; leave the key out for the broker's default",
    ),
    "an empty config name": ({"configs": {"": "1"}}, "INVALID_CONFIGS", "configs have an empty name"),
    "a blank config name": ({"configs": {" ": "1"}}, "INVALID_CONFIGS", "configs have an empty name"),
    "a config name with a blank at its end": (
        {"configs": {"retention.ms ": "1", "segment.ms": "1"}},
        "INVALID_CONFIGS",
        f'{row_rules.ILLEGAL_NAMES}"retention.ms "',
    ),
    "numbers that brokers return in another form": (
        {"configs": {"b": "0x1p-2", "a": "\uff16\uff10", "c": "0.5d"}},
        "INVALID_CONFIGS",
        f'{row_rules.ODD_VALUES}"a", "b"{row_rules.PLAIN_VALUES}',
    ),
    "a config twice": (
        {"configs": [("a", "1"), ("b", "1"), ("a", "2")]},
        "INVALID_CONFIGS",
        "configs name a key twice",
    ),
    "null cluster": ({"cluster": None}, "UNKNOWN_CLUSTER", "cluster is null"),
    "unknown cluster": (
        {"cluster": "mian"},
        "UNKNOWN_CLUSTER",
        "the run settings name no cluster mian; known: main, other",
    ),
    "the cluster's name in capitals": (
        {"cluster": "MAIN"},
        "UNKNOWN_CLUSTER",
        "the run settings name no cluster MAIN; known: main, other",
    ),
    "null everywhere": (
        {"cluster": None, "topic": None, "state": None},
        "UNKNOWN_CLUSTER",
        "cluster is null; topic is null; state is null; write present or absent",
    ),
    "wrong everywhere": (
        {
            "cluster": "x",
            "topic": "a b",
            "state": "",
            "num_partitions": 0,
            "replication_factor": 40000,
            "assignments": {1: []},
            "configs": {"": None},
        },
        "UNKNOWN_CLUSTER",
        "the run settings name no cluster x; known: main, other; "
        f"{NOT_ASCII}; state is ; write present or absent; num_partitions is 0{COUNT_HINT}; "
        f"replication_factor is 40000; Kafka accepts at most 32767; {BOTH}; {GAPS}; "
        "configs without a value: ; leave the key out for the broker's default",
    ),
}


def _row(case: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A row whose owner tells its case; its topic is its own where the case isn't about topics."""
    row = {"topic": "case." + "".join(c if c.isalnum() and c.isascii() else "-" for c in case), **fields}
    row.pop("owner_is", None)
    return {**row, "owner": case}


def _can_be_sent(fields: dict[str, Any]) -> bool:
    """Whether the session can get such a row: Spark Connect refuses one whose map has a key twice."""
    return not (is_remote() and any(isinstance(each, list) for each in fields.values()))


@pytest.fixture(scope="module")
def validated(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Validate all cases together, and return the results by case."""
    cases = [*FINE.items(), *((case, fields) for case, (fields, _, _) in BROKEN.items())]
    rows = manifest_rows(spark, *(_row(case, fields) for case, fields in cases if _can_be_sent(fields)))
    found = defaultdict(list)
    for row in dicts(rows.transform(manifests.validate(["other", "main"], None))):
        found[row["owner"]].append(row)
    return found


@pytest.mark.parametrize("case", FINE)
def test_a_row_without_faults_is_accepted(validated: dict[str, list[dict[str, Any]]], case: str) -> None:
    (row,) = validated[case]
    assert (row["phase"], row["outcome"], row["error"], row["error_message"]) == (None, None, None, None)


@pytest.mark.parametrize("case", BROKEN)
def test_a_row_with_faults_is_refused_with_each_reason(validated: dict[str, list[dict[str, Any]]], case: str) -> None:
    """C1, C3"""
    fields, error, message = BROKEN[case]
    if not _can_be_sent(fields):
        pytest.skip("Spark Connect sends no such row")
    (row,) = validated[case]
    assert (row["phase"], row["outcome"]) == ("manifest", "refused")
    assert (row["error"], row["error_message"]) == (error, message)


def test_a_refused_row_keeps_what_it_said(validated: dict[str, list[dict[str, Any]]]) -> None:
    (row,) = validated["wrong everywhere"]
    assert {name: row[name] for name in ("cluster", "topic", "num_partitions", "assignments", "configs")} == {
        "cluster": "x",
        "topic": "a b",
        "num_partitions": 0,
        "assignments": {1: []},
        "configs": {"": None},
    }


def test_rows_for_one_topic_that_disagree_become_one_refusal_that_names_the_columns(spark: SparkSession) -> None:
    """C2"""
    settings = {"num_partitions": 3, "replication_factor": 1}
    rows = manifest_rows(
        spark,
        {"topic": "states", **settings},
        {"topic": "states", **settings, "state": "absent"},
        {"topic": "one.null", "num_partitions": 3, "owner": "a"},
        {"topic": "one.null", "owner": "b"},
        {"topic": "maps", "configs": {"a": "1"}, "labels": {"x": "1"}},
        {"topic": "maps", "configs": {"a": "2"}},
        {"topic": "copy.and.other", "owner": "a"},
        {"topic": "copy.and.other", "owner": "a"},
        {"topic": "copy.and.other", "owner": "c"},
        {"topic": "one.is.broken", "num_partitions": 1},
        {"topic": "one.is.broken", "num_partitions": 0},
        {"topic": "states", "cluster": "other"},
    )
    found = {
        (row["cluster"], row["topic"]): row
        for row in dicts(rows.transform(manifests.validate(["main", "other"], None)).orderBy("topic"))
    }
    assert len(found) == 6
    assert found.pop(("other", "states"))["phase"] is None
    told = {topic: row["error_message"] for (_, topic), row in found.items()}
    assert told == {
        "states": "2 rows for this topic differ in state; keep one of them",
        "one.null": "2 rows for this topic differ in num_partitions, owner; keep one of them",
        "maps": "2 rows for this topic differ in configs, labels; keep one of them",
        "copy.and.other": "3 rows for this topic differ in owner; keep one of them",
        "one.is.broken": "2 rows for this topic differ in num_partitions; keep one of them",
    }
    assert {(row["phase"], row["outcome"], row["error"]) for row in found.values()} == {
        ("manifest", "refused", "DUPLICATE_MANIFEST")
    }


def test_a_topic_that_is_declared_or_replaced_twice_is_not_replaced(spark: SparkSession) -> None:
    """A refused or absent row declares its topic, too; the same names on another cluster are other topics.

    An absent one is refused itself: the old topic would go before the new one is there, whether or not it is used.
    """
    rows = manifest_rows(
        spark,
        {"topic": "a", "replaces": "declared"},
        {"topic": "declared", "state": "absent"},
        {"topic": "b", "replaces": "wrong", "num_partitions": 0},
        {"topic": "wrong", "num_partitions": 0},
        {"topic": "c", "replaces": "old"},
        {"topic": "d", "replaces": "old"},
        {"topic": "e", "replaces": "gone"},
        {"topic": "e", "replaces": "gone"},
        {"topic": "f", "replaces": "declared", "cluster": "other"},
        {"topic": "g", "replaces": "f"},
        {"topic": "h", "replaces": "meant", "cluster": "mian"},
        {"topic": "meant", "state": "absent"},
    )
    found = dicts(rows.transform(manifests.validate(["main", "other"], None)))
    refused = {row["topic"]: (row["error"], row["error_message"]) for row in found if row["outcome"] == "refused"}
    still = "{} is still declared: remove its row, or leave out replaces"
    twice = ("INVALID_REPLACES", "old is replaced by several topics, of which only one can: c, d")
    counts = "num_partitions is 0; it must be at least 1, or null for the broker's default"
    assert refused == {
        "a": ("INVALID_REPLACES", still.format("declared")),
        "declared": (
            "INVALID_REPLACES",
            "the row of a says that it replaces this topic: remove one of these rows",
        ),
        "b": ("INVALID_NUM_PARTITIONS", f"{counts}; {still.format('wrong')}"),
        "wrong": ("INVALID_NUM_PARTITIONS", counts),
        "c": twice,
        "d": twice,
        "h": ("UNKNOWN_CLUSTER", "the run settings name no cluster mian; known: main, other"),
        "meant": (
            "INVALID_REPLACES",
            "the row of h says that it replaces this topic: remove one of these rows",
        ),
    }
    assert {row["topic"] for row in found if row["outcome"] is None} == {"e", "f", "g"}


def test_identical_rows_count_as_one_and_the_copies_are_noted(spark: SparkSession) -> None:
    """C2. Maps in another order of keys say the same; copies that are wrong are refused once."""
    same = {
        "cluster": "main",
        "topic": "copied",
        "state": "present",
        "assignments": {0: [1, 2], 1: [2, 1]},
        "configs": {"a": "1", "b": "2"},
        "labels": {"x": "1", "y": None},
    }
    turned = {
        **same,
        "assignments": {1: [2, 1], 0: [1, 2]},
        "configs": {"b": "2", "a": "1"},
        "labels": {"y": None, "x": "1"},
    }
    wrong = {"cluster": "main", "topic": "wrong", "state": "gone"}
    validated = manifest_rows(spark, same, turned, same, wrong, wrong).transform(manifests.validate(["main"], None))
    copied, refused = validated.where("topic = 'copied'"), validated.where("topic = 'wrong'")
    note = {
        "phase": "manifest",
        "outcome": "skipped",
        "error": "DUPLICATE_MANIFEST",
        "error_message": "3 identical rows for this topic; they count as one",
    }
    rows = sorted(dicts(copied), key=lambda row: row["phase"] or "")
    ended = ("phase", "outcome", "error", "error_message")
    assert [{name: row[name] for name in ended} for row in rows] == [dict.fromkeys(ended), note]
    assert all({name: row[name] for name in same} == same for row in rows)
    assert [row["error"] for row in dicts(refused)] == ["INVALID_STATE"]


def test_rows_without_a_topic_or_cluster_stay_rows_of_their_own(spark: SparkSession) -> None:
    rows = manifest_rows(spark, *[{"topic": None}] * 3, *[{"topic": "a", "cluster": None}] * 2)
    validated = rows.transform(manifests.validate(["main"], None))
    ended = {"state": "present", "phase": "manifest", "outcome": "refused"}
    expected = frame(
        spark,
        VALIDATED,
        [{"cluster": "main", **ended, "error": "INVALID_TOPIC", "error_message": "topic is null"}] * 3
        + [{"topic": "a", **ended, "error": "UNKNOWN_CLUSTER", "error_message": "cluster is null"}] * 2,
    )
    assert_df_equality(comparable(validated), comparable(expected), ignore_row_order=True, ignore_nullable=True)


def test_rows_of_clusters_that_were_not_asked_for_are_not_looked_at(spark: SparkSession) -> None:
    rows = manifest_rows(
        spark, {"topic": "a"}, {"topic": "b", "cluster": "other"}, {"topic": "c", "cluster": "x"}, {"cluster": None}
    )
    validated = rows.transform(manifests.validate(["main", "other"], ["other"]))
    assert [(row["topic"], row["phase"]) for row in dicts(validated)] == [("b", None)]


def test_columns_that_other_tools_keep_in_the_table_are_ignored(spark: SparkSession) -> None:
    rows = manifest_rows(spark, {"topic": "a", "owner": "team"}, {"topic": "a", "owner": "team"})
    with_more = rows.withColumn("ticket", F.monotonically_increasing_id()).withColumn("error", F.lit("theirs"))
    validated = with_more.transform(manifests.validate(["main"], None)).where("phase is null")
    expected = frame(spark, VALIDATED, [{"cluster": "main", "topic": "a", "state": "present", "owner": "team"}])
    assert_df_equality(comparable(validated), comparable(expected), ignore_nullable=True)


@pytest.mark.thorough
def test_one_good_row_among_ten_thousand_is_found(spark: SparkSession) -> None:
    rows = (
        manifest_rows(spark, {})
        .drop("topic")
        .crossJoin(spark.range(10_000))
        .withColumn("topic", F.when(F.col("id") == 4711, "good").otherwise(F.concat(F.lit("bad "), "id")))
    )
    validated = rows.transform(manifests.validate(["main"], None))
    counts = validated.groupBy("outcome", "error").agg(F.count(F.lit(1)).alias("rows"), F.min("topic").alias("topic"))
    assert {(row["outcome"], row["error"]): (row["rows"], row["topic"]) for row in counts.collect()} == {
        (None, None): (1, "good"),
        ("refused", "INVALID_TOPIC"): (9_999, "bad 0"),
    }


def comparable(rows: Any) -> Any:
    """Without the maps, which Spark can neither sort nor compare."""
    return rows.drop("assignments", "configs", "labels")
