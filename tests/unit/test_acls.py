"""Rows of `acls` are accepted, or refused with each of their reasons."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame
from topicledger.resources.acls import rows as acls
from topicledger.schemas import ACLS

RIGHT = {
    "cluster": "main", "principal": "User:a", "operation": "READ", "resource_type": "TOPIC", "resource_name": "orders",
}  # fmt: skip


def validated(spark: SparkSession, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts(frame(spark, ACLS.schema, rows).transform(acls.validate(["main", "other"], None)))


WRONG = {
    "cluster is null": {"cluster": None},
    "the run settings name no cluster elsewhere": {"cluster": "elsewhere"},
    "principal is null": {"principal": None},
    "Kafka's authorizer knows only User:name": {"principal": "Group:a"},
    "principal is User:; ": {"principal": "User:"},
    "permission is GRANT; write one of ALLOW, DENY": {"permission": "GRANT"},
    "resource_type is Topic; write one of TOPIC, GROUP": {"resource_type": "Topic"},
    "resource_type is null": {"resource_type": None},
    "operation is null": {"operation": None},
    "operation is ANY; write one of": {"operation": "ANY"},
    "operation CREATE does not apply to a GROUP; use READ, DESCRIBE": {
        "resource_type": "GROUP",
        "operation": "CREATE",
    },
    "pattern_type is MATCH; write one of LITERAL, PREFIXED": {"pattern_type": "MATCH"},
    "resource_name is null": {"resource_name": None},
    "resource_name is empty": {"resource_name": ""},
    "for every name write LITERAL": {"resource_name": "*", "pattern_type": "PREFIXED"},
    "resource_name of a CLUSTER is x; write kafka-cluster, LITERAL": {
        "resource_type": "CLUSTER",
        "operation": "CREATE",
        "resource_name": "x",
    },
    "is not a legal topic name or prefix": {"resource_name": "a/b"},
    "brokers compare IP addresses": {"host": "example.org"},
    "write 2001:db8:0:0:0:0:0:1, or * for any": {"host": "2001:DB8::1"},
    "state is gone; write present or absent": {"state": "gone"},
}


def test_a_row_that_asks_for_what_no_broker_matches_is_refused_with_its_reason(spark: SparkSession) -> None:
    """A3, A4"""
    rows = [{**RIGHT, "owner": str(number), **wrong} for number, wrong in enumerate(WRONG.values())]
    found = {int(row["owner"]): row for row in validated(spark, *rows)}
    for number, reason in enumerate(WRONG):
        assert (found[number]["phase"], found[number]["outcome"]) == ("manifest", "refused"), reason
        assert reason in found[number]["error_message"]


def test_acls_that_kafka_can_match_are_accepted_with_defaults(spark: SparkSession) -> None:
    rows = [
        RIGHT,
        {**RIGHT, "principal": "User:CN=a, O=b\\c", "host": "0:0:0:0:0:0:0:1"},
        {**RIGHT, "resource_type": "CLUSTER", "resource_name": "kafka-cluster", "operation": "ALL"},
        {**RIGHT, "resource_type": "TRANSACTIONAL_ID", "resource_name": "any name", "operation": "TWO_PHASE_COMMIT"},
        {**RIGHT, "resource_name": "*", "permission": "DENY", "host": "10.0.0.1", "state": "absent"},
        {**RIGHT, "host": "::1", "state": "absent"},
    ]
    found = validated(spark, *rows)
    assert {row["phase"] for row in found} == {None}
    assert {row["resource"] for row in found} == {
        "User:a ALLOW READ TOPIC LITERAL orders *",
        r"User:CN=a,\ O=b\\c ALLOW READ TOPIC LITERAL orders 0:0:0:0:0:0:0:1",
        "User:a ALLOW ALL CLUSTER LITERAL kafka-cluster *",
        r"User:a ALLOW TWO_PHASE_COMMIT TRANSACTIONAL_ID LITERAL any\ name *",
        "User:a DENY READ TOPIC LITERAL * 10.0.0.1",
        "User:a ALLOW READ TOPIC LITERAL orders ::1",
    }


def test_duplicates_count_once_and_contradictions_are_refused(spark: SparkSession) -> None:
    """A1"""
    twice = [{**RIGHT, "owner": owner, "host": host} for owner, host in (("b", None), ("a", "*"))]
    (one,) = validated(spark, *twice)
    assert (one["owner"], one["phase"]) == ("a", None)
    (refused,) = validated(spark, *twice, {**RIGHT, "state": "absent"})
    assert (refused["error"], refused["outcome"]) == ("DUPLICATE_MANIFEST", "refused")


@pytest.mark.parametrize(("selected", "count"), [(None, 2), (["other"], 1)])
def test_rows_of_clusters_that_are_not_selected_are_left_out(
    spark: SparkSession, selected: list[str] | None, count: int
) -> None:
    rows = frame(spark, ACLS.schema, [RIGHT, {**RIGHT, "cluster": "other"}])
    assert rows.transform(acls.validate(["main", "other"], selected)).count() == count
