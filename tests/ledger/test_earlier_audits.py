"""What audits found before: by cluster, in the same scope, whatever other audits lie between."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.frames import dicts, frame
from topicledger.drift.earlier import found_before
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.model.scope import EVERYTHING, Scope
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
