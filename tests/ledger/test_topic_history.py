"""The history of a topic from the tables: who declared, planned, approved and changed it, and its drift."""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests import commands
from tests.ledger.exercise import OLDER
from topicledger import cli
from topicledger.ledger.tables import Ledger
from topicledger.review.history import of_topic
from topicledger.schemas import APPROVALS, AUDIT, DRIFT, PLANS, RUNS, Table

pytestmark = pytest.mark.thorough
BEGAN = datetime.now(UTC) + timedelta(hours=1)


def minute(number: float) -> datetime:
    return BEGAN + timedelta(minutes=number)


def append(ledger: Ledger, table: Table, *rows: dict[str, Any]) -> None:
    ledger.append(table, ledger.rows(table, rows), app_id=table.name, version=1)


def test_history_shows_all_events_of_a_topic_in_order(ledger: Ledger, tmp_path: Path) -> None:
    config = commands.settings_file(tmp_path, {"main": ["localhost:1"]}, root=ledger.root)
    for name, partitions in (("first", 2), ("second", 3)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(
            f"cluster: main\ntopics:\n- {{topic: a, num_partitions: {partitions}, owner: x, description: Money}}\n"
            "- {topic: b}\n"
        )
        arguments = ["load_manifests", str(file), "--config", str(config), "--run-id", name, "--requested-by", "ann"]
        assert CliRunner().invoke(cli.main, arguments).exit_code == 0
    about = {"cluster": "main", "topic": "a", "resource_type": "topic", "resource": "a"}
    create = {**about, "run_id": "made", "action": "create"}
    grown = {"before": {"num_partitions": "2"}, "after": {"num_partitions": "3"}}
    grow = {**about, "run_id": "grown", "action": "add_partitions", **grown}
    append(
        ledger,
        PLANS,
        {**create, "num_partitions": 2, "planned_at": minute(1), "owner": "x"},
        {**grow, "planned_at": minute(5)},
        {**about, "run_id": "open", "action": "delete", "phase": "guard", "outcome": "refused",
         "error": "MAX_DELETES_EXCEEDED", "error_message": "0", "planned_at": minute(9)},
        {**create, "topic": "b", "resource": "b", "planned_at": minute(1)},
        # An ACL of that name isn't the topic.
        {**about, "resource_type": "acl", "run_id": "made", "action": "acl_add", "planned_at": minute(1)},
    )  # fmt: skip
    ok = {"outcome": "ok", "error_code": 0}
    append(
        ledger,
        AUDIT,
        {**create, **ok, "phase": "validate", "completed_at": minute(1)},
        {**create, **ok, "phase": "apply", "topic_id": "T", "completed_at": minute(3)},
        {**create, **ok, "phase": "verify", "completed_at": minute(3)},
        {**grow, "phase": "apply", "outcome": "failed", "error": "INVALID_PARTITIONS", "error_message": "no",
         "completed_at": minute(6)},
        {**about, "cluster": "other", "run_id": "made", "phase": "apply", "completed_at": minute(3), **ok},
    )  # fmt: skip
    append(ledger, APPROVALS, {"run_id": "made", "by": "bob", "at": minute(2), "note": "fine"})
    differs = {"kind": "config_differs", "what": "retention.ms", "declared": "1", "live": "2", "severity": "error"}
    drift = {"cluster": "main", "topic": "a", **differs, "since": minute(7)}
    append(
        ledger,
        DRIFT,
        {**drift, "run_id": "audit-1", "observed_at": minute(7)},
        {**drift, "run_id": "audit-2", "observed_at": minute(8)},
    )
    append(
        ledger,
        RUNS,
        *({"run_id": name, "requested_by": f"{name}'s", "state": "finished"} for name in ("made", "audit-2")),
    )

    found = of_topic(ledger, "main", "a")
    assert found.notes == []
    assert [(each.what, each.run_id, each.requested_by) for each in found.events] == [
        ("declared", "first", "ann"),
        ("declared", "second", "ann"),
        ("planned", "made", "made's"),
        ("approved", "made", "bob"),
        ("created", "made", "made's"),
        ("planned", "grown", None),
        ("failed", "grown", None),
        ("drift", "audit-2", "audit-2's"),
        ("refused", "open", None),
    ]
    assert [each.at for each in found.events[2:]] == [minute(number) for number in (1, 2, 3, 5, 6, 7, 9)]
    details = [each.details for each in found.events]
    assert str(details[0]).endswith(": state present, num_partitions 2, owner x, description Money")
    assert details[2:] == [
        "+ create a: 2 partitions",
        "fine",
        "2 partitions, id T",
        "~ add_partitions a: num_partitions 2 -> 3",
        "add_partitions (apply): INVALID_PARTITIONS: no",
        f"error config_differs retention.ms, declared 1, live 2, found by 2 audits, the last at "
        f"{minute(8):%Y-%m-%dT%H:%M:%SZ}",
        "delete (guard): MAX_DELETES_EXCEEDED: 0",
    ]

    shown = ["topics", "show", "--config", str(config), "--cluster", "main", "--topic", "a"]
    told = CliRunner().invoke(cli.main, shown).stdout.splitlines()
    assert told[0] == "a on main: 9 events"
    assert told[5] == f"{minute(3):%Y-%m-%dT%H:%M:%SZ} created by made's, run made: 2 partitions, id T"
    document = json.loads(CliRunner().invoke(cli.main, [*shown, "--format", "json"]).stdout)
    assert [each["what"] for each in document["events"]] == [each.what for each in found.events]
    assert CliRunner().invoke(cli.main, [*shown, "--cluster", "other"]).exit_code == 2
    nothing = CliRunner().invoke(cli.main, [*shown[:-1], "nobody's"]).stdout
    assert nothing == "nobody's on main: never declared, planned or found by an audit\n"


def test_history_works_on_an_older_ledger(spark: SparkSession, tmp_path: Path) -> None:
    with tarfile.open(OLDER[2]) as archive:
        archive.extractall(tmp_path, filter="data")
    found = of_topic(Ledger(spark, str(tmp_path / "ledger")), "main", "old.gone")
    what = [(each.what, each.run_id) for each in found.events if each.run_id is not None]
    assert ("created", "created") in what
    assert ("deleted", "deleted") in what
    assert what.index(("created", "created")) < what.index(("deleted", "deleted"))
