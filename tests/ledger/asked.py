"""A ledger with rows for every view, written without Spark, and questions to it."""

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

from tests.commands import REPOSITORY
from topicledger.arrow import arrow_schema
from topicledger.config.settings import Settings, TablesSettings
from topicledger.config.views import ViewSettings
from topicledger.ledger.tables import Ledger
from topicledger.queries import printing
from topicledger.queries.asking import answered
from topicledger.schemas import TABLES, Table

PYTHON = REPOSITORY / "build" / "queries" / "bin" / "python"
START = datetime(2026, 9, 1, 6, tzinfo=UTC)
LABELS = {"tier": "gold", "pii": ""}
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
        "end_offset": 7,
        "since": None if records is None else days(at - 0.5),
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
    arguments |= {name: more.pop(name) for name in ("audited", "removed_rows") if name in more}
    times = {"started_at": days(day), "finished_at": days(day) if state == "finished" else None}
    return {"run_id": run_id, "arguments": arguments, "state": state, **times, **more}


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


STOPPED = {"topic": "busy", "action": "delete", "phase": "guard", "outcome": "refused", "guards": {"deletes": 2}}
ROWS: Mapping[str, Rows] = {
    "manifests": [
        {
            "cluster": "main",
            "topic": "idle",
            "state": "present",
            "owner": "payments",
            "labels": LABELS,
            "description": "Money, (mostly)",
        },
        {"cluster": "main", "topic": "busy", "state": "present", "owner": "payments"},
        {"cluster": "main", "topic": "wide", "state": "present", "owner": "search"},
        {"cluster": "main", "topic": "gone", "state": "absent", "owner": "search"},
        {"cluster": "third", "topic": "patchy", "state": "present", "owner": "Payments "},
        {"cluster": "third", "topic": "_schemas", "state": "present", "owner": " "},
    ],
    "observed": [
        observed("idle", replicas=1),
        observed("busy", 2, replicas=2),
        observed("wide", 12),
        observed("gone"),
        observed("unknown"),
        observed("recreated"),
        observed("patchy", 3, replicas=1, cluster="third"),
        observed("_schemas", cluster="third"),
        observed("hidden", permitted=False),
        observed("__consumer_offsets", internal=True),
    ],
    "observed_configs": [
        configs("idle", cleanup_policy="compact", min_insync_replicas="1"),
        configs("busy", cleanup_policy="delete", retention_ms="1000", min_insync_replicas="2"),
        configs("wide", min_insync_replicas="2", unclean_leader_election_enable="true"),
        {**configs("patchy", min_insync_replicas="2"), "cluster": "third"},
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
        # Exactly 30 days of 24 hours, in which one of three audits couldn't read the groups.
        *(usage("patchy", at, records, cluster="third") for at, records in ((40, 5), (50, 0), (70, 0))),
        usage("patchy", 55, 0, groups=None, cluster="third"),
        *(usage("_schemas", at, records, cluster="third") for at, records in ((40, None), (50, 0), (70, 0))),
        # Half past midnight in Berlin, but not in UTC.
        {**usage("patchy", 24.6875, 1, cluster="third"), "run_id": "audit-half"},
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
        # It read one cluster, and could not reach the cluster `fourth`.
        run("audit-half", "audit", 24, "planning", audited="third"),
        # The settings of this audit have no other cluster.
        run("audit-named", "audit", 25, audited="alone"),
        # It compared the topics of one owner.
        run("audit-part", "audit", 32.9, scope='{"owners": ["payments"]}', audited="main,other"),
        run("hangs", "provision", 31, "applying", clusters="other"),
        run("apply-2", "provision", 32.5, exit_code=4, clusters="other"),
        *(run(plan, "plan", 1, "planned", requested_by="alice") for plan in ("plan-4", "plan-5", "plan-6")),
        # Only its load is stopped; a cluster is missing; it is still being planned; its plan grew; it is being applied.
        run("removes", "plan", 1, "planned", requested_by="alice", removed_rows="3"),
        run("partial", "plan", 1, "planning", requested_by="alice", observed_at=days(1)),
        run("planning", "plan", 1, "planning", requested_by="alice"),
        run("grew", "provision", 1, "applying", requested_by="alice"),
        run("applied", "provision", 1, "applying", requested_by="alice"),
    ],
    "drift": [
        {"run_id": audit, "cluster": cluster, "topic": audit, "kind": "missing", "severity": "error", "since": days(9)}
        for audit, cluster in (
            ("audit-1", "main"),
            ("audit-2", "main"),
            ("audit-2", "other"),
            ("audit-2", "third"),
            ("audit-half", "third"),
            ("audit-main", "main"),
            ("audit-owner", "main"),
            ("audit-open", "main"),
        )
    ],
    "plans": [
        {"run_id": "plan-1", "cluster": "main", "topic": "old", "action": "delete", "planned_at": days(1)},
        {"run_id": "plan-2", "cluster": "main", "topic": "idle", "action": "delete", "planned_at": days(1)},
        *(
            {**STOPPED, "run_id": run_id, "cluster": "main", "planned_at": days(1)}
            for run_id in ("plan-3", "plan-4", "plan-5", "plan-6")
        ),
        *(
            {**STOPPED, "run_id": run_id, "cluster": cluster, "planned_at": days(at)}
            for run_id, cluster, at in (
                ("partial", "main", 1),
                ("planning", "main", 1),
                ("grew", "main", 1),
                ("grew", "other", 2),
                ("applied", "main", 1),
            )
        ),
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
        # The next plan of everything needed nothing for it.
        {
            "run_id": "load",
            "cluster": "main",
            "topic": "corrected",
            "action": "alter_configs",
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
        # The principal may not see the topic's counts.
        applied("apply-1", "unseen", "create"),
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
        {"run_id": "apply-1", "by": "alice", "at": days(2)},
        # Approvals that allow nothing, that allow it, and that allowed it in an earlier plan.
        {"run_id": "plan-4", "by": "bob", "at": days(2)},
        {"run_id": "plan-5", "by": "bob", "at": days(2), "allows": {"deletes": 2}},
        {"run_id": "plan-6", "by": "bob", "at": days(0), "allows": {"deletes": 2}},
        {"run_id": "plan-1", "by": "Bob ", "at": days(2)},
        {"run_id": "plan-2", "by": "alice", "at": days(2)},
    ],
    "clusters": [{"name": "main"}, {"name": "other"}],
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
    write_deltalake(root / table.name, pa.Table.from_pylist(complete, schema=schema), mode="overwrite")


def write_ledger(folder: Path) -> Path:
    """Create all tables in a folder, with the rows."""
    for table in TABLES.values():
        write(folder, table, ROWS.get(table.name, ()))
    return folder


def settings_of(root: Path, views: ViewSettings | None = None, **more: Any) -> Settings:
    tables = TablesSettings(root=str(root))
    return Settings(path=Path("settings.toml"), tables=tables, clusters={}, views=views or ViewSettings(), **more)


def ask(spark: SparkSession, settings: Settings, query: str) -> list[dict[str, Any]]:
    with answered(Ledger(spark, settings.tables.root), settings, query) as rows:
        found: list[dict[str, Any]] = json.loads("".join(printing.json_lines(rows)))["rows"]
    return found


def elsewhere(script: str, *arguments: Path) -> Any:
    """Return what a script prints as JSON in the environment build/queries."""
    if not PYTHON.exists():
        reason = "there is neither DuckDB nor DataHub in build/queries: make setup-queries"
        if os.environ.get("TOPICLEDGER_QUERIES") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    command = [PYTHON, Path(__file__).with_name(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
