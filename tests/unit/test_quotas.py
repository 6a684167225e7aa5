"""Rows of `quotas` are accepted, or refused with each of their reasons; beside what is live they become decisions."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.files.reading import read_manifest_files
from topicledger.files.writing import write_manifests
from topicledger.model import Refusal
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus
from topicledger.resources.quotas import rows as quotas
from topicledger.resources.quotas.entity import Entity, kafka_name, written
from topicledger.resources.quotas.kind import KIND
from topicledger.resources.quotas.rows import entity_of, limits_of, text_of
from topicledger.schemas import OBSERVED_QUOTAS, QUOTAS
from topicledger.text import number_text

QUOTA = {"cluster": "main", "user": "a", "producer_byte_rate": 1000.0}


def validated(spark: SparkSession, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts(frame(spark, QUOTAS.schema, rows).transform(quotas.validate(["main", "other"], None)))


WRONG = {
    "cluster is null": {"cluster": None},
    "the run settings name no cluster elsewhere": {"cluster": "elsewhere"},
    "it names no user, client_id or ip": {"user": None},
    "user is empty": {"user": ""},
    "client_id is empty": {"client_id": ""},
    "ip can't be combined": {"ip": "10.0.0.1", "producer_byte_rate": None, "connection_creation_rate": 1.0},
    "producer_byte_rate is 0.0; it must be above 0": {"producer_byte_rate": 0.0},
    "producer_byte_rate is -1.0; it must be above 0": {"producer_byte_rate": -1.0},
    "producer_byte_rate is 1000.5; it must be a whole number below 2^63": {"producer_byte_rate": 1000.5},
    "request_percentage is 1.0E-19; it must be at least 1E-18": {"request_percentage": 1e-19},
    "request_percentage is NaN": {"request_percentage": float("nan")},
    "request_percentage is Infinity; for no limit write null": {"request_percentage": float("inf")},
    "connection_creation_rate is 5.0; only an ip can have it": {"connection_creation_rate": 5.0},
    "producer_byte_rate is 1000.0; an ip can have only connection_creation_rate": {"user": None, "ip": "10.0.0.2"},
    "it has no limit": {"producer_byte_rate": None},
    "state is gone; write present or absent": {"state": "gone"},
}


def test_a_row_that_no_broker_could_mean_is_refused_with_its_reason(spark: SparkSession) -> None:
    """Q2: what Kafka refuses by the row alone, and NaN and Infinity, which it takes."""
    rows = [
        {**QUOTA, "user": f"u{number}", "owner": str(number), **wrong} for number, wrong in enumerate(WRONG.values())
    ]
    found = {int(row["owner"]): row for row in validated(spark, *rows)}
    for number, reason in enumerate(WRONG):
        assert (found[number]["phase"], found[number]["outcome"]) == ("manifest", "refused"), reason
        assert reason in found[number]["error_message"]
    both = {**QUOTA, "request_percentage": -1.0, "consumer_byte_rate": 0.5, "state": "x"}
    (every,) = validated(spark, both)
    assert every["error_message"].count("; ") >= 4, "each reason"


def test_entities_have_one_text_each(spark: SparkSession) -> None:
    rows = [
        QUOTA,
        {**QUOTA, "client_id": "<default>"},
        {**QUOTA, "user": "<default>", "request_percentage": 0.5},
        {**QUOTA, "user": None, "client_id": r"a user=b\ "},
        {**QUOTA, "user": r"a client-id=b", "state": "absent"},
        {**QUOTA, "client_id": "b"},
        {"cluster": "main", "ip": "10.0.0.1", "connection_creation_rate": 5.0},
    ]
    found = validated(spark, *rows)
    assert {row["phase"] for row in found} == {None}
    texts = {row["resource"]: Entity(row["user"], row["client_id"], row["ip"]) for row in found}
    assert set(texts) == {
        "user=a",
        "user=a client-id=<default>",
        "user=<default>",
        r"client-id=a\ user=b\\\ ",
        r"user=a\ client-id=b",
        "user=a client-id=b",
        "ip=10.0.0.1",
    }
    assert {text: Entity.of_text(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("kafkas", "ours"), [(None, "<default>"), ("<default>", r"\<default>"), ("a", "a"), ("\\", "\\")]
)
def test_the_default_is_told_from_a_name_that_looks_like_it(kafkas: str | None, ours: str) -> None:
    """Brokers take a user who is called `<default>` for another entity (measured)."""
    assert (written(kafkas), kafka_name(ours)) == (ours, kafkas)
    assert kafka_name(written(rf"\{kafkas}")) == rf"\{kafkas}"


def test_copies_are_one_and_entities_that_rows_disagree_about_are_refused(spark: SparkSession) -> None:
    """Q3: an entity is in a request once."""
    (one,) = validated(spark, {**QUOTA, "owner": "b"}, {**QUOTA, "owner": "a", "state": "present"})
    assert (one["owner"], one["phase"]) == ("a", None)
    for other in ({"producer_byte_rate": 5.0}, {"request_percentage": 5.0}, {"state": "absent"}):
        (refused,) = validated(spark, QUOTA, {**QUOTA, **other})
        assert (refused["error"], refused["outcome"]) == ("DUPLICATE_MANIFEST", "refused"), other
    assert len(validated(spark, QUOTA, {**QUOTA, "client_id": "c"})) == 2


def decided(
    spark: SparkSession, declared: list[dict[str, Any]], live: list[dict[str, Any]], most: int = 9, **status: Any
) -> dict[str, dict[str, Any]]:
    seen = [{"cluster": "main", "cluster_id": "id", "observed_at": datetime.now(UTC), **row} for row in live]
    rows = frame(spark, OBSERVED_QUOTAS.schema, seen).drop("run_id")
    listed = Listed(rows=rows, statuses={"main": ListedStatus(**status)})
    clusters = {"main": ClusterStatus(cluster_id="id")}
    settings = Settings(
        path=Path("tests.toml"),
        tables=TablesSettings(root="/"),
        clusters={},
        guards=GuardSettings(of_kinds={"max_quota_changes": most}),
    )
    transform = KIND.deciding.decide(listed, clusters, settings, lambda rows: rows)
    found = frame(spark, QUOTAS.schema, declared).transform(quotas.validate(["main"], None)).transform(transform)
    return {row["resource"]: row for row in dicts(found)}


def test_a_row_declares_all_limits_of_an_entity(spark: SparkSession) -> None:
    live = [
        {"user": "same", "producer_byte_rate": 1000.0},
        {"user": "other", "producer_byte_rate": 1000.0, "consumer_byte_rate": 5.0, "request_percentage": 0.5},
        {"user": "gone", "controller_mutation_rate": 0.25, "producer_byte_rate": 1e18},
        {"user": "same", "client_id": "x", "producer_byte_rate": 1.0},
    ]
    declared = [
        {**QUOTA, "user": "same"},
        {**QUOTA, "user": "other", "producer_byte_rate": 3e9, "consumer_byte_rate": 5.0},
        {**QUOTA, "user": "gone", "state": "absent"},
        {**QUOTA, "user": "nothing", "state": "absent"},
        {**QUOTA, "user": "new", "client_id": "<default>"},
    ]
    found = decided(spark, declared, live)
    changes = {name: (row["decision"], row["before"], row["after"]) for name, row in found.items()}
    assert changes == {
        "user=same": ("unchanged", None, None),
        "user=other": (
            "alter_quota",
            {"producer_byte_rate": "1000", "request_percentage": "0.5"},
            {"producer_byte_rate": "3000000000"},
        ),
        "user=gone": (
            "alter_quota",
            {"controller_mutation_rate": "0.25", "producer_byte_rate": "1000000000000000000"},
            {},
        ),
        "user=nothing": ("unchanged", None, None),
        "user=new client-id=<default>": ("alter_quota", {}, {"producer_byte_rate": "1000"}),
        "user=same client-id=x": ("unmanaged", None, None),
    }


@pytest.mark.thorough
def test_refused_row_changes_no_entity_that_it_may_mean(spark: SparkSession) -> None:
    live = [{"user": "a", "producer_byte_rate": 5.0}, {"client_id": "c", "producer_byte_rate": 5.0}]
    for mistake in ({"producer_byte_rate": -1.0}, {"ip": "10.0.0.1"}, {"cluster": "mian"}, {"user": None}):
        found = decided(spark, [{**QUOTA, **mistake}], live)
        assert {row["decision"] for row in found.values() if row["phase"] is None} <= {"unmanaged"}, mistake
        assert [row["outcome"] for row in found.values()].count("refused") == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ({"user": "User:bob"}, "remove User:"),
        ({"user": "*"}, "write <default>"),
        ({"client_id": "*"}, "write <default>"),
        ({"user": "CN=bob, O=x"}, None),
    ],
)
def test_quota_that_almost_never_applies_is_a_warning(
    spark: SparkSession, entity: dict[str, Any], reason: str | None
) -> None:
    (row,) = decided(spark, [{**QUOTA, **entity}], []).values()
    assert (row["decision"], row["phase"]) == ("alter_quota", None)
    told = [(each["policy"], each["message"]) for each in row["violations"] or ()]
    assert [policy for policy, _ in told] == ([] if reason is None else ["unusual_quota"])
    assert reason is None or reason in told[0][1]
    absent = decided(spark, [{**QUOTA, **entity, "state": "absent"}], [{**entity, "producer_byte_rate": 1.0}])
    assert {row["violations"] for row in absent.values()} == {None}


def test_more_changes_than_the_guard_allows_are_all_stopped(spark: SparkSession) -> None:
    declared = [{**QUOTA, "user": name} for name in "ab"]
    found = decided(spark, [*declared, {**QUOTA, "user": "same"}], [{"user": "same", "producer_byte_rate": 1000.0}], 1)
    assert {row["error"] for name, row in found.items() if name != "user=same"} == {"MAX_QUOTA_CHANGES_EXCEEDED"}
    assert found["user=same"]["phase"] is None
    assert "planned quota changes of this cluster: 2, guards.max_quota_changes is 1" in found["user=a"]["error_message"]


def test_unknown_quotas_are_never_taken_for_none(spark: SparkSession) -> None:
    found = decided(spark, [QUOTA], [], error=Refusal.NOT_PERMITTED, message="grant it")
    row = found["user=a"]
    assert (row["phase"], row["outcome"], row["error"]) == ("observe", "refused", "NOT_PERMITTED")


def test_the_columns_of_an_entity_come_back_from_its_text(spark: SparkSession) -> None:
    """Q2: blanks and backslashes in names part nothing, whatever stands beside them."""
    names = ["a", "<default>", "\\<default>", "a b", "a\\", "\\ client-id=x", "x ip=\t\\\\ y", "=", "user=a", "n\nl"]
    names.append("\u00fc" * 3_000)
    entities = [
        *({"user": name} for name in names),
        *({"client_id": name} for name in names),
        *({"user": one, "client_id": other} for one in names for other in names),
        *({"ip": name} for name in names),
    ]
    texts = (
        frame(spark, QUOTAS.schema, entities).withColumn("text", text_of()).select("text", "user", "client_id", "ip")
    )
    back = entity_of("text")
    rows = texts.select(*("user", "client_id", "ip"), *(column.alias(f"_{name}") for name, column in back.items()))
    for row in rows.collect():
        assert (row["_user"], row["_client_id"], row["_ip"]) == (row["user"], row["client_id"], row["ip"])


LIMITS_AS_TEXT = {
    1.0: "1",
    0.5: "0.5",
    0.00001: "0.00001",
    1.25e-7: "0.000000125",
    2.0**53: "9007199254740992",
    1e15: "1000000000000000",
    # A usual value for "no limit": Java's largest long.
    9.223372036854776e18: "9223372036854776000",
    123.45: "123.45",
    float("inf"): "Infinity",
}


def test_a_limit_has_one_text_whoever_writes_it(spark: SparkSession) -> None:
    """In `before` and `after` of plans Spark writes it, in those of audit the driver: where they differ a change that
    was made would count as not made."""
    rows = [{"user": f"u{number}", "request_percentage": value} for number, value in enumerate(LIMITS_AS_TEXT)]
    found = frame(spark, QUOTAS.schema, rows).select("request_percentage", limits_of().alias("limits")).collect()
    assert {row["request_percentage"]: row["limits"]["request_percentage"] for row in found} == LIMITS_AS_TEXT
    assert {value: number_text(value) for value in LIMITS_AS_TEXT} == LIMITS_AS_TEXT


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_limits_are_exported_as_they_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"export{suffix}"
    values = [each for each in LIMITS_AS_TEXT if each != float("inf")]
    entries = [{"cluster": "main", "user": f"u{n}", "request_percentage": each} for n, each in enumerate(values)]
    write_manifests(path, "main", {"quotas": entries}, [])
    read = read_manifest_files([path], io.StringIO(""))
    assert read.errors == []
    assert [row.values["request_percentage"] for row in read.rows_of("quotas")] == values
