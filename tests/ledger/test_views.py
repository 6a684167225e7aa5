"""The views of views.sql, on Spark and on DuckDB over delta-rs: the same rows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import topicledger.queries
from tests.commands import REPOSITORY
from topicledger.arrow import arrow_schema
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.config.views import ViewSettings
from topicledger.errors import UsageError
from topicledger.ledger.tables import Ledger
from topicledger.queries import printing
from topicledger.queries.asking import answered
from topicledger.queries.views import all_views, used_by
from topicledger.schemas import AUDIT, MANIFESTS, TABLES, Table

VIEWS = Path(topicledger.queries.__file__).with_name("views.sql")
PYTHON = REPOSITORY / "build" / "queries" / "bin" / "python"
START = datetime(2026, 9, 1, 6, tzinfo=UTC)
NO_GROUPS: Sequence[Mapping[str, Any]] = ()

Rows = Sequence[Mapping[str, Any]]


def days(number: float) -> datetime:
    return START + timedelta(days=number)


def usage(topic: str, at: float, records: int | None, **more: Any) -> Mapping[str, Any]:
    """Return a row of `usage` of an audit after `at` days; nobody reads the topic unless `more` says so."""
    usual = {"bytes": 3_000, "bytes_one_copy": 1_000, "partitions": 1, "groups": NO_GROUPS, "producers": 0}
    return {
        "run_id": f"audit-{at}",
        "cluster": "main",
        "topic": topic,
        "topic_id": f"id-{topic}",
        "observed_at": days(at),
        "records_since": records,
        **usual,
        **more,
    }


def reader(members: int | None) -> Rows:
    return [{"group": "billing", "state": "Stable", "members": members, "lag": 0}]


def configs(topic: str, **values: str) -> Mapping[str, Any]:
    found = [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]
    return {"cluster": "main", "topic": topic, "topic_id": f"id-{topic}", "configs": found}


def observed(topic: str, partitions: int = 1, replicas: int = 3, **more: Any) -> Mapping[str, Any]:
    numbers = {"num_partitions": partitions, "replication_factor": replicas, "permitted": True, "internal": False}
    return {"cluster": "main", "topic": topic, "topic_id": f"id-{topic}", **numbers, **more}


def run(run_id: str, command: str, day: float, state: str = "finished", **more: Any) -> Mapping[str, Any]:
    arguments = {"command": command, "clusters": more.pop("clusters", "")}
    return {"run_id": run_id, "arguments": arguments, "started_at": days(day), "state": state, **more}


def applied(run_id: str, topic: str, action: str, **more: Any) -> Mapping[str, Any]:
    return {
        "run_id": run_id,
        "cluster": "main",
        "topic": topic,
        "resource": topic,
        "resource_type": "topic",
        "action": action,
        "phase": "apply",
        "outcome": "ok",
        "completed_at": days(3),
        **more,
    }


ROWS: Mapping[str, Rows] = {
    "manifests": [
        {"cluster": "main", "topic": "idle", "state": "present", "owner": "payments", "labels": {"tier": "gold"}},
        {"cluster": "main", "topic": "busy", "state": "present", "owner": "payments"},
        {"cluster": "main", "topic": "wide", "state": "present", "owner": "search"},
        {"cluster": "main", "topic": "gone", "state": "absent", "owner": "search"},
    ],
    "observed": [
        observed("idle", replicas=1),
        observed("busy", 2, replicas=2),
        observed("wide", 12),
        observed("gone"),
        observed("unknown"),
        observed("recreated"),
        observed("hidden", permitted=False),
        observed("__consumer_offsets", internal=True),
    ],
    "observed_configs": [
        configs("idle", cleanup_policy="compact", min_insync_replicas="1"),
        configs("busy", cleanup_policy="delete", retention_ms="1000", min_insync_replicas="2"),
        configs("wide", min_insync_replicas="2", unclean_leader_election_enable="true"),
        {**configs("recreated", unclean_leader_election_enable="true"), "topic_id": "its former id"},
    ],
    "usage": [
        # Nothing was written for 30 days, and nobody reads it; it was used before.
        *(usage("idle", at, records) for at, records in ((0, None), (1, 5), (2, 0), (20, 0), (32, 0))),
        *(usage("busy", at, 7, groups=reader(1)) for at in (1, 2, 20, 32)),
        # Small, and one group of two members reads it.
        *(usage("wide", at, 1, groups=reader(2), bytes_one_copy=150_000_000) for at in (1, 32)),
        # A live reader in one audit only.
        *(usage("gone", at, 0, groups=reader(1) if at == 20 else NO_GROUPS) for at in (1, 20, 32)),
        # Three audits couldn't read what was written, the groups, or their members.
        usage("unknown", 0, 0),
        usage("unknown", 10, None),
        usage("unknown", 20, 0, groups=None),
        usage("unknown", 30, 0, groups=reader(None)),
        usage("unknown", 50, 0, bytes=None, bytes_one_copy=None),
        # An old topic of the same name was unused.
        *({**usage("recreated", at, 0), "topic_id": "its former id"} for at in (0, 40)),
        usage("recreated", 41, None),
    ],
    "runs": [
        run("load", "load_manifests", 0),
        run("plan-1", "plan", 1, "planned", requested_by="alice"),
        run("plan-2", "plan", 1, "planned", requested_by="alice"),
        run("plan-3", "plan", 1, "planned", requested_by="alice"),
        run("apply-1", "provision", 3, requested_by="alice"),
        run("audit-1", "audit", 10),
        run("audit-2", "audit", 20),
        run("audit-main", "audit", 21, clusters="main", scope='{"clusters": ["main"]}'),
        run("audit-owner", "audit", 22, scope='{"clusters": ["main"], "owners": ["payments"]}', clusters="main"),
        run("audit-open", "audit", 23, "planning"),
    ],
    "drift": [
        {"run_id": audit, "cluster": cluster, "topic": audit, "kind": "missing", "severity": "error"}
        for audit, cluster in (
            ("audit-1", "main"),
            ("audit-2", "main"),
            ("audit-2", "other"),
            ("audit-main", "main"),
            ("audit-owner", "main"),
            ("audit-open", "main"),
        )
    ],
    "plans": [
        {"run_id": "plan-1", "cluster": "main", "topic": "old", "action": "delete", "planned_at": days(1)},
        {"run_id": "plan-2", "cluster": "main", "topic": "idle", "action": "delete", "planned_at": days(1)},
        {
            "run_id": "plan-3",
            "cluster": "main",
            "topic": "busy",
            "action": "delete",
            "phase": "guard",
            "outcome": "refused",
            "guards": {"deletes": 2},
            "planned_at": days(1),
        },
        {
            "run_id": "apply-1",
            "cluster": "main",
            "topic": "wide",
            "owner": "search",
            "action": "create",
            "planned_at": days(3),
            "violations": [
                {"policy": "topic_name_pattern", "message": "the name is short"},
                {"policy": "config_range", "message": "warning: retention.ms is large"},
            ],
        },
        {
            "run_id": "load",
            "cluster": "main",
            "topic": "wide",
            "action": "create",
            "planned_at": days(0),
            "violations": [{"policy": "earlier", "message": "no longer"}],
        },
    ],
    "audit": [
        applied("apply-1", "new", "create", num_partitions=3, replication_factor=2),
        # A row of an older version, which had no resources.
        applied(
            "apply-1",
            "old",
            "delete",
            before={"num_partitions": "6", "replication_factor": "2"},
            resource=None,
            resource_type=None,
        ),
        applied(
            "apply-1",
            "busy",
            "alter_configs",
            before={"retention.ms": "1000", "segment.ms": "5"},
            after={"retention.ms": "2000", "flush.ms": "7"},
        ),
        applied("apply-1", "failed", "create", outcome="failed"),
        applied("apply-1", "checked", "create", phase="validate"),
        applied(
            "apply-1",
            "wide",
            "create",
            phase="validate",
            outcome="refused",
            violations=[{"policy": "broker", "message": "not here"}],
        ),
    ],
    "approvals": [
        {"run_id": "apply-1", "by": "zoe", "note": "CHG-7", "at": days(2)},
        {"run_id": "apply-1", "by": "bob", "at": days(2)},
        {"run_id": "plan-1", "by": "Bob ", "at": days(2)},
        {"run_id": "plan-2", "by": "alice", "at": days(2)},
    ],
    "acls": [
        {"cluster": "main", "principal": "User:a", "owner": "payments"},
        {"cluster": "main", "principal": "User:b", "owner": "payments", "state": "absent"},
    ],
    "quotas": [{"cluster": "main", "user": "a", "owner": "payments"}],
    "group_configs": [{"cluster": "other", "group": "g", "owner": "search"}],
}


def write(root: Path, table: Table, rows: Rows) -> None:
    schema = arrow_schema(table.schema)
    complete = [
        {name: list(value.items()) if isinstance(value := row.get(name), Mapping) else value for name in schema.names}
        for row in rows
    ]
    unknown = {name for row in rows for name in row} - set(schema.names)
    assert not unknown, unknown
    write_deltalake(root / table.name, pa.Table.from_pylist(complete, schema=schema))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with rows for every view, written without Spark."""
    folder = tmp_path_factory.mktemp("views") / "ledger"
    for table in TABLES.values():
        write(folder, table, ROWS.get(table.name, ()))
    return folder


def settings_of(root: Path, views: ViewSettings | None = None, **more: Any) -> Settings:
    tables = TablesSettings(root=str(root))
    return Settings(path=Path("settings.toml"), tables=tables, clusters={}, views=views or ViewSettings(), **more)


def ask(spark: SparkSession, settings: Settings, query: str) -> list[dict[str, Any]]:
    with answered(Ledger(spark, settings.tables.root), settings, query) as rows:
        found: list[dict[str, Any]] = json.loads("".join(printing.json_lines(rows)))
    return found


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession, root: Path) -> Mapping[str, list[dict[str, Any]]]:
    """The rows of every view on Spark."""
    settings = settings_of(root)
    return {view.name: ask(spark, settings, f"SELECT * FROM {view.name}") for view in all_views()}


def pairs(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def test_current_topics_have_their_owner_configs_and_size(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    rows = {row["topic"]: row for row in on_spark["current_topics"]}
    assert set(rows) == {"idle", "busy", "wide", "gone", "unknown", "recreated"}
    idle = rows["idle"]
    assert (idle["owner"], idle["labels"], idle["cleanup_policy"]) == ("payments", {"tier": "gold"}, "compact")
    assert (idle["bytes"], idle["usage_at"]) == (3_000, "2026-10-03T06:00:00Z")
    assert {name for name, row in rows.items() if row["declared"]} == {"idle", "busy", "wide"}
    assert rows["recreated"]["unclean_leader_election"] is None, "the config of the former topic isn't this one's"


def test_open_drift_is_that_of_the_last_whole_audit(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    assert pairs(on_spark["open_drift"], "cluster", "run_id") == [("main", "audit-main"), ("other", "audit-2")]


def test_changes_name_the_values_and_the_people(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    rows = on_spark["changes"]
    assert pairs(rows, "topic", "action", "what", "before", "after") == [
        ("busy", "alter_configs", "flush.ms", None, "7"),
        ("busy", "alter_configs", "retention.ms", "1000", "2000"),
        ("busy", "alter_configs", "segment.ms", "5", None),
        ("new", "create", None, None, "3 partitions"),
        ("old", "delete", None, "6 partitions", None),
    ]
    assert {row["requested_by"] for row in rows} == {"alice"}
    assert [row["approved_by"] for row in rows] == [["bob", "zoe"]] * 5
    assert rows[0]["notes"] == ["CHG-7"]
    assert rows[0]["changed_at"] == "2026-09-04T06:00:00Z"


def test_ownership_counts_resources_and_what_nobody_owns(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    counts = ("owner", "cluster", "declared_topics", "live_topics", "partitions", "acls", "quotas", "group_configs")
    assert pairs(on_spark["ownership"], *counts) == [
        ("payments", "main", 2, 2, 3, 1, 1, 0),
        ("search", "main", 1, 2, 13, 0, 0, 0),
        ("search", "other", 0, 0, 0, 0, 0, 1),
        (None, "main", 0, 2, 2, 0, 0, 0),
    ]


def test_only_topics_that_every_audit_showed_unused_are_unused(
    on_spark: Mapping[str, list[dict[str, Any]]],
) -> None:
    """Unknown counts as used, and the period begins at the last audit that didn't show it unused."""
    (row,) = on_spark["unused_topics"]
    assert (row["topic"], row["owner"]) == ("idle", "payments")
    assert (row["unused_since"], row["unused_until"]) == ("2026-09-02T06:00:00Z", "2026-10-03T06:00:00Z")


def test_the_number_of_unused_days_is_a_setting(spark: SparkSession, root: Path) -> None:
    settings = settings_of(root, ViewSettings(unused_days=12))
    rows = ask(spark, settings, "SELECT topic FROM unused_topics")
    assert pairs(rows, "topic") == [("gone",), ("idle",), ("unknown",)]


def test_costs_are_unknown_without_prices_or_with_unknown_sizes(
    spark: SparkSession, root: Path, on_spark: Mapping[str, list[dict[str, Any]]]
) -> None:
    assert {row["cost"] for row in on_spark["cost_by_owner"]} == {None}
    views = ViewSettings(gigabyte_price=1_000_000.0, partition_price=0.5, currency="EUR")
    rows = ask(spark, settings_of(root, views), "SELECT * FROM cost_by_owner")
    assert pairs(rows, "owner", "topics", "topics_of_unknown_size", "partitions", "bytes", "cost") == [
        ("payments", 2, 0, 3, 6_000, 6.0 + 1.5),
        ("search", 2, 0, 13, 6_000, 6.0 + 6.5),
        (None, 2, 1, 2, 3_000, None),
    ]


def test_over_partitioned_compares_with_bytes_and_members(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    columns = ("topic", "num_partitions", "partitions_needed", "most_members")
    assert pairs(on_spark["over_partitioned"], *columns) == [("busy", 2, 1, 1), ("wide", 12, 2, 2)]


def test_risks_are_few_replicas_and_unclean_elections(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    assert pairs(on_spark["risky_topics"], "topic", "risk") == [
        ("busy", "no_spare_replica"),
        ("idle", "one_replica"),
        ("wide", "unclean_election"),
    ]


def test_plans_wait_for_approvals_that_guards_or_settings_want(
    spark: SparkSession, root: Path, on_spark: Mapping[str, list[dict[str, Any]]]
) -> None:
    assert pairs(on_spark["pending_approvals"], "run_id", "stopped", "approvals") == [("plan-3", 1, 0)]
    settings = settings_of(root, guards=GuardSettings(approvals=1, approvals_for={"deletes": 2}))
    rows = ask(spark, settings, "SELECT * FROM pending_approvals")
    assert pairs(rows, "run_id", "deletes", "approvals", "approvals_needed") == [
        ("plan-1", 1, 1, 2),
        ("plan-2", 1, 0, 2),
        ("plan-3", 0, 0, 2),
    ]


def test_policy_violations_are_those_of_the_last_plan(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    assert pairs(on_spark["policy_violations"], "topic", "owner", "policy", "warns") == [
        ("wide", "search", "broker", False),
        ("wide", "search", "config_range", True),
        ("wide", "search", "topic_name_pattern", False),
    ]


@pytest.fixture(scope="module")
def on_duckdb(root: Path) -> Mapping[str, list[dict[str, Any]]]:
    if not PYTHON.exists():
        reason = "there is no DuckDB in build/queries: make setup-queries"
        if os.environ.get("TOPICLEDGER_QUERIES") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    script = Path(__file__).with_name("duckdb_views.py")
    done = subprocess.run([PYTHON, script, root, VIEWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Mapping[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [view.name for view in all_views()])
def test_duckdb_has_the_same_rows(
    on_spark: Mapping[str, list[dict[str, Any]]], on_duckdb: Mapping[str, list[dict[str, Any]]], name: str
) -> None:
    def comparable(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True).replace("+00:00", "Z") for row in rows)

    assert comparable(on_duckdb[name]) == comparable(on_spark[name])


def test_views_over_missing_tables_are_empty(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    counts = ", ".join(f"(SELECT count(*) FROM {view.name}) AS {view.name}" for view in all_views())
    (found,) = ask(spark, settings, f"SELECT {counts}")
    assert found == {view.name: 0 for view in all_views()} | {"view_settings": 1}
    assert list(tmp_path.iterdir()) == []


def test_columns_that_an_older_table_lacks_are_null(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"run_id": ["1"], "cluster": ["main"], "topic": ["a"], "action": ["create"], "phase": ["apply"]})
    write_deltalake(tmp_path / AUDIT.name, rows.append_column("outcome", pa.array(["ok"])))
    (found,) = ask(spark, settings_of(tmp_path), "SELECT * FROM changes")
    assert (found["resource_type"], found["resource"], found["changed_at"]) == ("topic", "a", None)


def test_a_query_finds_the_tables_that_its_views_need() -> None:
    assert used_by("select * from Open_Drift") >= {"open_drift", "drift", "runs"}
    assert used_by("SELECT 1") == set()
    assert MANIFESTS.name in used_by("SELECT * FROM unused_topics")


def test_a_session_keeps_no_views(spark: SparkSession, root: Path) -> None:
    ask(spark, settings_of(root), "SELECT * FROM open_drift")
    with pytest.raises(UsageError):
        ask(spark, settings_of(root), "SELECT * FROM open_drifts")
    assert not {table.name for table in spark.catalog.listTables()} & {*TABLES, *(view.name for view in all_views())}
