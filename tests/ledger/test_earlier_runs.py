"""The runs that come before one: those that can be compared with it, whatever others lie between."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.frames import dicts, frame
from topicledger.drift.earlier import found_before
from topicledger.ledger.run import Run, require_run
from topicledger.ledger.tables import Ledger
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.report import audits
from topicledger.report.scope import previous, run_facts
from topicledger.schemas import DRIFT, RUNS, Table

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
MINE = Scope(owners=("payments",))


def put(ledger: Ledger, table: Table, *rows: Mapping[str, Any]) -> None:
    frame(ledger.spark, table.schema, rows).write.format("delta").mode("append").save(ledger.location(table))


def audit(run_id: str, minute: int, scope: Scope = EVERYTHING, **more: str) -> dict[str, Any]:
    """A row of `runs`. `more`: arguments, and the state if it isn't finished."""
    state = more.pop("state", "finished")
    arguments = {"command": "audit", "clusters": "", **more}
    at = NOON + timedelta(minutes=minute)
    return {"run_id": run_id, "started_at": at, "state": state, "arguments": arguments, "scope": scope.to_json()}


def found(ledger: Ledger, scope: Scope, *clusters: str) -> set[tuple[str, str]]:
    run = cast(Run, SimpleNamespace(run_id="now", ledger=ledger, scope=scope))
    return {(row["cluster"], row["run_id"]) for row in dicts(found_before(run, clusters))}


@pytest.mark.thorough
def test_the_last_audit_of_each_cluster_counts_whatever_others_lie_between(ledger: Ledger) -> None:
    """150 audits of another owner and of another cluster came after it, in which `since` would begin again."""
    others = [audit(f"theirs-{n}", 10 + n, Scope(owners=("search",)), audited="main") for n in range(75)]
    others += [audit(f"beside-{n}", 10 + n, clusters="other", audited="other") for n in range(75)]
    put(
        ledger,
        RUNS,
        audit("older", 0, audited="main,other"),
        audit("whole", 1, audited="main"),
        audit("cut", 2, clusters="third", state="planning"),
        audit("mine", 3, MINE, audited="main"),
        audit("plan", 200) | {"arguments": {"command": "plan", "clusters": ""}},
        audit("now", 201),
        *others,
    )
    rows = [("older", "main"), ("older", "other"), ("older", "third"), ("whole", "main"), ("mine", "main")]
    rows += [("cut", "third"), ("beside-74", "other"), ("theirs-74", "main")]
    put(ledger, DRIFT, *({"run_id": run_id, "cluster": cluster, "kind": "missing"} for run_id, cluster in rows))
    assert found(ledger, EVERYTHING, "main", "other", "third") == {
        ("main", "whole"),
        ("other", "beside-74"),
        ("third", "cut"),
    }
    assert found(ledger, MINE, "main") == {("main", "mine")}
    assert found(ledger, Scope(topics=("^a",)), "main") == {("main", "whole")}
    assert found(ledger, EVERYTHING, "unknown") == set()


def test_older_audits_that_name_no_clusters_compared_all(ledger: Ledger) -> None:
    put(ledger, RUNS, audit("named", 0, clusters="main"), audit("all", 1), audit("later", 2, audited="main"))
    rows = [(run_id, cluster) for run_id in ("named", "all", "later") for cluster in ("main", "other")]
    put(ledger, DRIFT, *({"run_id": run_id, "cluster": cluster, "kind": "missing"} for run_id, cluster in rows))
    assert found(ledger, EVERYTHING, "main", "other") == {("main", "later"), ("other", "all")}


@pytest.mark.thorough
def test_a_report_takes_the_last_whole_audit_of_each_cluster(ledger: Ledger) -> None:
    """Audits of a part or of another cluster may come later, and it needn't have reached all of its clusters."""
    put(
        ledger,
        RUNS,
        audit("monday", 0),
        audit("tuesday", 60, state="planning", audited="eu,us"),
        audit("mine", 70, MINE, audited="eu,us"),
        audit("us", 80, clusters="us", audited="us"),
        audit("running", 90, state="planning"),
    )

    def last(scope: Scope, before: int, since: int | None = None) -> dict[str, str]:
        began = None if since is None else NOON + timedelta(minutes=since)
        found = audits.last(ledger, scope, NOON + timedelta(minutes=before), began)
        return {name: run.run_id for name, run in found.by_cluster.items()}

    assert last(EVERYTHING, 100) == {"": "monday", "eu": "tuesday", "us": "us"}
    assert last(EVERYTHING, 100, since=1) == {"eu": "tuesday", "us": "us"}
    assert last(EVERYTHING, 75) == {"": "monday", "eu": "tuesday", "us": "tuesday"}
    assert last(MINE, 100) == {"eu": "mine", "us": "mine"}
    assert last(EVERYTHING, 100, since=85) == {}


@pytest.mark.thorough
def test_findings_are_taken_from_the_audit_of_their_cluster(ledger: Ledger) -> None:
    put(ledger, RUNS, audit("all", 0), audit("first", 1, audited="eu,us"), audit("second", 2, audited="us"))
    rows = [(run_id, cluster) for run_id in ("all", "first", "second") for cluster in ("eu", "us", "asia")]
    put(ledger, DRIFT, *({"run_id": run_id, "cluster": cluster, "kind": "missing"} for run_id, cluster in rows))
    found, expected = (
        audits.last(ledger, EVERYTHING, NOON + timedelta(minutes=9)),
        {
            ("eu", "first"),
            ("us", "second"),
            ("asia", "all"),
        },
    )
    for rows_found in (ledger.read(DRIFT).where(found.findings()), ledger.read(DRIFT).where(found.condition())):
        assert {(row["cluster"], row["run_id"]) for row in dicts(rows_found)} == expected
    assert [(each.run.run_id, list(each.clusters)) for each in found.shown()] == [
        ("second", ["us"]),
        ("first", ["eu"]),
        ("all", []),
    ]
    eu = found.of(["eu"])
    assert (
        eu.words(found)
        == "audit first (2026-11-16T12:01:00Z) of eu; audit all (2026-11-16T12:00:00Z) of other clusters"
    )
    one = audits.of_run(run_facts(require_run(ledger, "first")))
    assert one.words(one) == "audit first (2026-11-16T12:01:00Z)"


@pytest.mark.thorough
def test_a_run_is_compared_with_the_last_one_of_the_same_request_and_scope(ledger: Ledger) -> None:
    """A plan of a pull request, or of a part, doesn't come between two nightly runs."""
    part, files = Scope(owners=("payments",)), {"files": "[digests]", "paths": '["topics"]'}
    of_files = Scope(files=True)

    def run(run_id: str, minute: int, command: str, scope: Scope = EVERYTHING, **more: str) -> dict[str, Any]:
        return audit(run_id, minute, scope, command=command, **more)

    rows = [
        run("monday", 0, "provision"),
        run("monday-creates", 1, "provision", only="creates"),
        run("monday-mine", 2, "provision", part),
        run("pr-1", 3, "plan", of_files, state="planned", **files),
        run("pr-1-all", 4, "plan", **files),
        run("pr-2", 5, "plan", of_files, state="planned", files="[others]", paths='["more"]'),
        run("planned", 6, "plan", state="planned"),
        run("reverted", 7, "plan", reverts="monday"),
        run("eu", 8, "provision", clusters="eu"),
        run("tuesday", 10, "provision", Scope(barred=("search",))),
        run("tuesday-creates", 11, "provision", only="creates"),
        run("tuesday-mine", 12, "provision", part),
        run("pr-1-again", 13, "plan", of_files, state="planned", **files | {"files": "[newer]"}),
        run("pr-1-all-again", 14, "plan", **files),
        run("plan", 15, "plan", state="planned"),
    ]
    put(ledger, RUNS, *rows)
    found = {row["run_id"]: previous(ledger, run_facts(require_run(ledger, row["run_id"]))) for row in rows[9:]}
    assert {name: each and each.run_id for name, each in found.items()} == {
        "tuesday": "monday",
        "tuesday-creates": "monday-creates",
        "tuesday-mine": "monday-mine",
        "pr-1-again": "pr-1",
        "pr-1-all-again": "tuesday",
        "plan": "tuesday",
    }
