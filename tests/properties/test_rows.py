"""The DataFrames in memory that random walks use compute what Spark computes, for transforms of the phases of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from tests.properties.rows.frames import Session
from tests.properties.walks import estate
from tests.properties.walks.driver import functions_in_memory
from topicledger.ledger import outcomes
from topicledger.ledger.rows import read_moves, read_violations
from topicledger.manifests import rows as manifests
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus
from topicledger.plan import batches, intent, standing
from topicledger.resources.acls import kind as acls
from topicledger.schemas import ACLS, AUDIT, MANIFESTS, OBSERVED_ACLS, PLANS, Table

NOW = datetime(2026, 11, 20, tzinfo=UTC)
Make = Callable[[Table, Sequence[Mapping[str, Any]]], Any]
"""Rows of a table, in Spark or in memory."""

_ACL = {
    "cluster": "east", "principal": "User:app", "permission": "ALLOW", "operation": "READ", "resource_type": "TOPIC",
    "pattern_type": "LITERAL", "resource_name": "t", "host": "*", "state": "present",
}  # fmt: skip
_ACLS = [
    _ACL,
    {**_ACL, "operation": "WRITE", "host": "app01.example.org"},
    {**_ACL, "operation": "ALL", "resource_name": "u"},
    {**_ACL, "operation": "DESCRIBE", "state": "absent"},
    {**_ACL, "operation": "READ", "pattern_type": "PREFIXED", "resource_name": "u v"},
    {**_ACL, "principal": "Group:x", "cluster": "west"},
    {**_ACL, "principal": None},
    {**_ACL, "cluster": "elsewhere"},
    {**_ACL, "operation": "ALTER", "state": "present", "owner": "a"},
    {**_ACL, "operation": "ALTER", "state": "absent", "owner": "b"},
    {**_ACL, "host": None, "permission": None, "operation": "CREATE", "labels": {"a": "1", "b": "2"}},
]
_LIVE = [
    {**_ACL, "cluster_id": "id-east"},
    {**_ACL, "cluster_id": "id-east", "operation": "WRITE"},
    {**_ACL, "cluster_id": "id-east", "resource_name": "u"},
    {**_ACL, "cluster_id": "id-east", "operation": "DESCRIBE"},
    {**_ACL, "cluster_id": "id-east", "principal": "User:topicledger"},
    {**_ACL, "cluster_id": "id-east", "principal": "User:*"},
    {**_ACL, "cluster_id": "id-west", "cluster": "west", "principal": "User:other"},
]
_KINDS = ("create", "delete", "add_partitions", "alter_configs", "reassign")


def _planned() -> list[dict[str, Any]]:
    found = []
    for number, (action, age) in enumerate(itertools.product(_KINDS, (1, 9))):
        found.append(
            {
                "run_id": "r",
                "cluster": "east" if number % 3 else "west",
                "cluster_id": "id",
                "topic": f"t{number}",
                "resource": f"t{number}",
                "resource_type": "topic",
                "action": action,
                "topic_id": None if action == "create" else f"id-{number}",
                "num_partitions": 2,
                "replication_factor": 1,
                "configs": {"x": "1"} if number % 2 else None,
                "batch": number % 2,
                "violations": [{"policy": "p", "message": "warning: m"}] if number % 3 == 0 else None,
                "manifest_version": 3,
                "planned_at": NOW - timedelta(days=age),
                "before": {"num_partitions": "1", "assignments": "0:1,2"},
                "after": {"num_partitions": "3", "assignments": "0:2,3;1:3,1"},
            }
        )
    return found


def _declared(change: int) -> list[dict[str, Any]]:
    """Return manifests: every third topic is declared differently; others are missing, or declared twice."""
    rows = []
    for row in _planned():
        number = int(row["topic"][1:])
        own = {name: row[name] for name in ("cluster", "topic", "num_partitions", "replication_factor", "configs")}
        own["state"] = "absent" if row["action"] == "delete" else "present"
        own["labels"] = {"a": "1"}
        if (number + change) % 3 == 0:
            own |= {"replication_factor": 3, "configs": {"x": "2"}, "state": "present" if number % 2 else "absent"}
        if (number + change) % 4 != 1:
            rows.append(own)
        if (number + change) % 5 == 0:
            rows.append({**own, "num_partitions": None if number % 2 else 0})
    return [*rows, {"cluster": "east", "topic": None, "state": "present"}, {"cluster": "east", "topic": "a/b"}]


def _audit() -> list[dict[str, Any]]:
    ends = [
        ("validate", "ok", 0), ("validate", "refused", -1), ("apply", "ok", 0), ("apply", "failed", 3),
        ("verify", "pending", 0), ("policy", "ok", 0), ("policy", "refused", -1), ("guard", "refused", -1),
    ]  # fmt: skip
    rows = []
    for number, planned in enumerate(_planned()):
        own = {name: planned[name] for name in ("run_id", "cluster", "topic", "action", "resource", "resource_type")}
        for phase, outcome, code in (ends[number % 8], ends[(number * 3) % 8], ends[0])[: 1 + number % 3]:
            rows.append({**own, "phase": phase, "outcome": outcome, "error_code": code, "topic_id": "id"})
    return rows


def _decided_acls(make: Make) -> Any:
    settings = estate.Estate().settings()
    statuses = {name: ClusterStatus(cluster_id=f"id-{name}") for name in ("east", "west")}
    listed = Listed(
        rows=make(OBSERVED_ACLS, _LIVE),
        statuses={"east": ListedStatus(own_principal="User:topicledger", allow_everyone=True), "west": ListedStatus()},
    )
    validated = make(ACLS, _ACLS).transform(acls.KIND.rows.validate(["east", "west"], None))
    return validated.transform(acls.KIND.deciding.decide(listed, statuses, settings, lambda rows: rows)).drop("acl")


def _with_sent(make: Make) -> Any:
    return make(PLANS, _planned()).withColumn("maybe_sent", standing.F.col("batch") == 0)


def _standing(make: Make) -> Any:
    run: Any = SimpleNamespace(audit=lambda: make(AUDIT, _audit()), open_actions=lambda: _with_sent(make))
    return standing.standing(run, *outcomes.Standing)


def _no_longer_declared(make: Make) -> Any:
    latest = make(MANIFESTS, _declared(1)).transform(manifests.validate(["east", "west"], None))
    planned_from = standing.F.col("manifest_version")
    return make(PLANS, _planned()).transform(intent.no_longer_declared(intent.TOPICS, latest, 7, planned_from))


def _declared_otherwise(make: Make) -> Any:
    then, now = (make(MANIFESTS, _declared(change)) for change in (0, 1))
    return make(PLANS, _planned()).transform(intent.declared_otherwise(intent.TOPICS, then, now, 3, 4))


def _batched(make: Make) -> Any:
    col = standing.F.col
    violations = read_violations(col("violations"))
    given = {"waits": col("action") == "create", "moves": read_moves(), "violations": violations}
    return make(PLANS, _planned()).withColumns(given).transform(batches.planned("r", 3, NOW, 4))


TRANSFORMS: Mapping[str, Callable[[Make], Any]] = {
    "rows of acls": lambda make: make(ACLS, _ACLS).transform(acls.KIND.rows.validate(["east", "west"], ["east"])),
    "decisions on ACLs": _decided_acls,
    "rows of manifests": lambda make: make(MANIFESTS, _declared(0)).transform(manifests.validate(["east"], None)),
    "expired": lambda make: _with_sent(make).transform(intent.expired(5 * 86_400, NOW)),
    "declared otherwise": _declared_otherwise,
    "no longer declared": _no_longer_declared,
    "standing": _standing,
    "outcomes": lambda make: outcomes.with_outcomes(make(PLANS, _planned()), make(AUDIT, _audit())),
    "batches": _batched,
    "last phases": lambda make: outcomes.results(make(AUDIT, _audit()), make(PLANS, _planned())),
}


_THOROUGH = ("decisions on ACLs",)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.thorough] if each in _THOROUGH else []) for each in TRANSFORMS]
)
def test_frames_in_memory_compute_what_spark_computes(name: str, spark: SparkSession) -> None:
    def in_spark(table: Table, rows: Sequence[Mapping[str, Any]]) -> Any:
        return spark.createDataFrame([tuple(map(row.get, table.schema.names)) for row in rows], _nullable(table.schema))

    def in_memory(table: Table, rows: Sequence[Mapping[str, Any]]) -> Any:
        return Session().createDataFrame(rows, table.schema)

    wanted = _plain(TRANSFORMS[name](in_spark).collect())
    with functions_in_memory():
        found = _plain(TRANSFORMS[name](in_memory).collect())
    differing = [pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]]
    assert not differing, differing[0]
    assert len(found) == len(wanted)
    assert wanted, "the transform returns something"


def _nullable(schema: StructType) -> StructType:
    return StructType([type(each)(each.name, each.dataType, True) for each in schema])


def _plain(rows: Sequence[Row]) -> list[str]:
    """Rows that can be compared: columns by name, maps by key."""
    return sorted(str(sorted((name, _value(value)) for name, value in row.asDict().items())) for row in rows)


def _value(value: Any) -> Any:
    if isinstance(value, Row):
        return sorted((name, _value(each)) for name, each in value.asDict().items())
    if isinstance(value, dict):
        return sorted((key, _value(each)) for key, each in value.items())
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return [_value(each) for each in value] if isinstance(value, list) else value
