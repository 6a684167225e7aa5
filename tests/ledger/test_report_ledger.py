"""The command `report` on a ledger with runs, audits and drift of two days."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests import commands
from tests.harness import UNREACHABLE
from tests.unit.frames import frame
from topicledger import cli
from topicledger.config.settings import Owners, OwnerSettings
from topicledger.ledger.tables import Ledger
from topicledger.model.scope import Scope
from topicledger.report import Report, ReportKind, gather, limited, moment, of_run, render, span
from topicledger.report.resources import Owned
from topicledger.resources.acls import kind as acls
from topicledger.resources.kind import ResourceKind
from topicledger.resources.quotas import kind as quotas
from topicledger.review.history import of_topic, of_topics
from topicledger.schemas import ACLS, APPROVALS, AUDIT, DRIFT, GROUP_CONFIGS, MANIFESTS, PLANS, QUOTAS, RUNS, Table

# Pages as such are tested in tests/unit, without tables.
pytestmark = pytest.mark.thorough

MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1)
NOW = TUESDAY + timedelta(hours=6)


def put(ledger: Ledger, table: Table, usual: Mapping[str, Any], *rows: Mapping[str, Any]) -> None:
    complete = frame(ledger.spark, table.schema, ({**usual, **row} for row in rows))
    complete.write.format("delta").mode("append").save(ledger.location(table))


def copy(ledger: Ledger, root: Path) -> Ledger:
    shutil.copytree(ledger.root, root)
    return Ledger(ledger.spark, str(root))


@pytest.fixture(scope="module")
def told(pristine: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Monday: a run and an audit. Tuesday: a run that applied one of two topics, and an audit. Read only."""
    ledger = copy(pristine, tmp_path_factory.mktemp("told") / "ledger")

    def run(run_id: str, command: str, started_at: datetime, **more: Any) -> dict[str, Any]:
        arguments = {"command": command, "clusters": ""}
        return {"run_id": run_id, "started_at": started_at, "arguments": arguments, "state": "finished", **more}

    put(
        ledger,
        RUNS,
        {"manifest_version": 3, "requested_by": "alice", "exit_code": 0},
        run("monday", "provision", MONDAY, finished_at=MONDAY + timedelta(seconds=90), exit_code=4),
        run("audit-1", "audit", MONDAY + timedelta(hours=1)),
        run("given-up", "plan", MONDAY + timedelta(hours=2), state="abandoned", exit_code=None),
        run("tidied", "maintain", MONDAY + timedelta(hours=3)),
        run("tuesday", "provision", TUESDAY, state="applying", exit_code=None),
        run("audit-2", "audit", TUESDAY + timedelta(hours=1), exit_code=3),
    )
    put(ledger, MANIFESTS, {"cluster": "orders", "state": "present"}, {"topic": "a", "owner": "team"})
    put(
        ledger,
        PLANS,
        {"run_id": "tuesday", "action": "create", "planned_at": TUESDAY},
        {"cluster": "orders", "topic": "a"},
        {"cluster": "orders", "topic": "b"},
        {"cluster": "payments", "topic": "c"},
    )
    failed = {"outcome": "failed", "error": "INVALID_CONFIG", "error_message": "no such config", "error_code": 40}
    put(
        ledger,
        AUDIT,
        {"action": "create", "phase": "apply", "outcome": "ok", "error_code": 0, "batch": 0, "attempt": 1},
        *(
            {
                **row,
                "requested_at": day + timedelta(seconds=1),
                "completed_at": day + timedelta(seconds=2),
            }
            for day, row in [
                (MONDAY, {"run_id": "monday", "cluster": "orders", "topic": "a", **failed}),
                (MONDAY, {"run_id": "monday", "cluster": "payments", "topic": "d"}),
                (TUESDAY, {"run_id": "tuesday", "cluster": "orders", "topic": "a"}),
                (TUESDAY, {"run_id": "tuesday", "cluster": "payments", "topic": "c", **failed}),
            ]
        ),
    )
    found = {"kind": "missing", "cluster": "orders", "severity": "error", "since": MONDAY + timedelta(hours=1)}
    put(
        ledger,
        DRIFT,
        found,
        {"run_id": "audit-1", "topic": "x", "observed_at": MONDAY + timedelta(hours=1)},
        {"run_id": "audit-1", "topic": "y", "observed_at": MONDAY + timedelta(hours=1)},
        {"run_id": "audit-2", "topic": "x", "observed_at": TUESDAY + timedelta(hours=1)},
        {"run_id": "audit-2", "topic": "z", "observed_at": TUESDAY + timedelta(hours=1), "kind": "unmanaged"},
    )
    return ledger


def of(ledger: Ledger, run_id: str, *clusters: str) -> Report:
    return gather(ledger, of_run(ledger, run_id, clusters), NOW)


def owned(found: Report, kind: ResourceKind) -> Owned | None:
    return next((each for each in found.history.owned if each.kind is kind), None)


def report(ledger: Ledger, tmp_path: Path, *arguments: str) -> Result:
    servers = {"orders": [UNREACHABLE], "payments": [UNREACHABLE]}
    config = commands.settings_file(tmp_path, servers, root=ledger.root)
    result = CliRunner().invoke(cli.main, ["report", "--config", str(config), *arguments])
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def test_run_report_shows_open_actions_and_changes_since_the_last(told: Ledger) -> None:
    found = of(told, "tuesday")
    assert found.kind is ReportKind.RUN
    assert found.outcomes() == {"failed": 1, "open": 1, "ok": 1}
    assert [(row.topic, row.outcome) for row in found.rows] == [("c", "failed"), ("b", "open"), ("a", "ok")]
    assert [[each.what for each in row.history] for row in found.rows] == [["planned", "failed"], [], []]
    assert found.rows[0].history == of_topic(told, "payments", "c").events
    both = of_topics(told, [("orders", "x"), ("orders", "a")])
    assert both == [of_topic(told, "orders", "x"), of_topic(told, "orders", "a")]
    assert [len(each.events) > 1 for each in both] == [False, True]
    assert found.drift is None
    assert found.compared is not None
    assert found.compared.last.startswith("run monday ")
    assert [(row.change, row.topic) for row in found.compared.rows] == [("new", "c"), ("gone", "a")]
    assert [(each.cluster, each.seconds) for each in found.requests.batches] == [("orders", 1.0), ("payments", 1.0)]
    assert {each.began_at for each in found.requests.batches} == {TUESDAY + timedelta(seconds=1)}
    assert [(each.phase, each.seconds) for each in found.requests.phases] == [("waited for apply", 1.0), ("apply", 1.0)]


def test_first_run_has_no_comparison(told: Ledger) -> None:
    found = of(told, "monday")
    assert found.compared is None
    # The rows of `plans` have no planning time.
    assert [(each.phase, each.seconds) for each in found.requests.phases] == [("apply", 2.0), ("close", 88.0)]


def test_audit_report_shows_its_drift(told: Ledger) -> None:
    found = of(told, "audit-2")
    assert found.kind is ReportKind.AUDIT
    assert found.drift is not None
    assert {(each.kind, each.age): each.findings for each in found.drift.tallies} == {
        ("missing", "1 to 7 days"): 1,
        ("unmanaged", "1 to 7 days"): 1,
    }
    assert [row.topic for row in found.drift.rows] == ["x", "z"]
    assert found.drift.compared is not None
    assert found.drift.compared.counts == {"new": 1, "gone": 1, "still there": 1}
    assert (found.compared, found.rows) == (None, [])


@pytest.mark.thorough
def test_span_contains_runs_that_ended_in_it_and_its_last_audit(told: Ledger) -> None:
    found = gather(told, span(TUESDAY, NOW, ()), NOW)
    assert found.kind is ReportKind.SPAN
    assert found.outcomes() == {"failed": 1, "open": 1, "ok": 1}
    assert [(each.run.run_id, each.outcomes) for each in found.history.runs] == [
        ("audit-2", {}),
        ("tuesday", {"failed": 1, "open": 1, "ok": 1}),
    ]
    assert (found.history.unit, found.history.periods) == ("hour", [(TUESDAY, {"failed": 1, "ok": 1})])
    assert found.drift is not None
    assert found.drift.run.run_id == "audit-2"
    assert found.drift.compared is not None
    assert found.drift.compared.last.startswith("audit audit-1 ")


def test_findings_whose_rows_were_removed_by_age_are_neither_none_nor_gone(told: Ledger, tmp_path: Path) -> None:
    ledger = copy(told, tmp_path / "aged")
    ledger.update(RUNS, "run_id = 'audit-1'", {"counts": "map('missing', 2L, 'manifests_refused', 1L)"})
    whole = of(ledger, "audit-2").drift
    assert whole is not None
    assert whole.removed == {}
    assert whole.compared is not None
    ledger.delete(DRIFT, "run_id = 'audit-1'")
    for found in (of(ledger, "audit-1"), gather(ledger, span(MONDAY, TUESDAY, ()), NOW)):
        assert found.drift is not None
        assert found.drift.removed == {"audit-1": 2}
        page = render(found).replace("<wbr>", "")
        assert "Rows of 2 findings of audit audit-1 were removed by age" in page
        assert "No drift" not in page
    later = of(ledger, "audit-2").drift
    assert later is not None
    assert (later.removed, later.compared) == ({}, None)


@pytest.mark.thorough
def test_audits_of_a_part_or_of_some_clusters_hide_no_findings(told: Ledger, tmp_path: Path) -> None:
    """An owner's audit found nothing; one that didn't reach cluster orders found something on payments."""
    ledger, later = copy(told, tmp_path / "parts"), TUESDAY + timedelta(hours=2)

    def audit(run_id: str, hours: int, state: str, scope: Scope, **more: str) -> dict[str, Any]:
        arguments = {"command": "audit", "clusters": "", **more}
        at = later + timedelta(hours=hours)
        return {"run_id": run_id, "started_at": at, "state": state, "arguments": arguments, "scope": scope.to_json()}

    mine = Scope(owners=("payments",))
    put(
        ledger,
        RUNS,
        {},
        audit("partly", 0, "planning", Scope(), audited="payments"),
        audit("mine", 1, "finished", mine, audited="orders,payments"),
    )
    put(
        ledger,
        DRIFT,
        {"kind": "missing", "cluster": "payments", "severity": "error"},
        {"run_id": "partly", "topic": "p"},
    )
    spanned = gather(ledger, span(TUESDAY, NOW, ()), NOW)
    assert spanned.drift is not None
    assert [(each.run.run_id, list(each.clusters)) for each in spanned.drift.audits] == [
        ("partly", ["payments"]),
        ("audit-2", []),
    ]
    assert sorted(str(row.topic) for row in spanned.drift.rows) == ["p", "x", "z"]
    assert {row["topic"] for row in ledger.spark.sql(spanned.drift.query).collect()} == {"p", "x", "z"}
    assert spanned.drift.compared is not None
    assert spanned.drift.compared.counts == {"new": 2, "gone": 1, "still there": 1}
    # Cluster orders wasn't compared, so its findings aren't gone.
    partly = of(ledger, "partly").drift
    assert partly is not None
    assert partly.compared is not None
    assert (partly.compared.counts, partly.compared.last) == ({"new": 1}, "audit audit-2 (2026-11-17T13:00:00Z)")
    found = of(ledger, "mine")
    assert found.drift is not None
    assert (found.drift.rows, found.drift.compared) == ([], None)
    assert "Scope</dt><dd><bdi>owner payments" in render(found)
    only = gather(ledger, span(TUESDAY, NOW, ["payments"]), NOW).drift
    assert only is not None
    assert [row.topic for row in only.rows] == ["p"]
    hours = span(later + timedelta(minutes=30), NOW, ())
    assert gather(ledger, hours, NOW).drift is None


@pytest.mark.thorough
def test_span_is_compared_with_the_previous_span(told: Ledger) -> None:
    found = gather(told, span(moment("2026-11-17", "--since"), moment("2026-11-18", "--until"), ()), NOW)
    assert found.compared is not None
    assert [(row.change, row.topic) for row in found.compared.rows] == [("new", "c"), ("gone", "a")]


def test_span_counts_each_topic_once_and_failures_by_owner(told: Ledger) -> None:
    """Monday's run failed to create `a`, and Tuesday's run created it."""
    found = gather(told, span(MONDAY, NOW, ()), NOW)
    assert found.outcomes() == {"failed": 1, "open": 1, "ok": 2}
    assert [(row.topic, row.outcome, row.run_id, row.owner) for row in found.rows] == [
        ("c", "failed", "tuesday", None),
        ("b", "open", "tuesday", None),
        ("a", "ok", "tuesday", "team"),
        ("d", "ok", "monday", None),
    ]
    owners = {each.run.run_id: each.owners for each in found.history.runs}
    assert (owners["monday"], owners["tuesday"]) == ({"team": 1}, {"": 1})


def test_span_counts_what_was_done_and_lists_unsent_plans_apart(told: Ledger, tmp_path: Path) -> None:
    """A later plan that nobody applied refuses `a`, which Tuesday's run created; an ACL has the owner of its plan."""
    ledger = copy(told, tmp_path / "planned")
    wednesday = TUESDAY + timedelta(days=1)
    facts = {"run_id": "pr-1", "state": "planned", "started_at": wednesday, "requested_by": "ann"}
    put(ledger, RUNS, {**facts, "arguments": {"command": "plan", "clusters": ""}}, {})
    ended = {"run_id": "pr-1", "cluster": "orders", "error_code": -1, "completed_at": wednesday}
    acl = {"resource_type": "acl", "resource": "User:x ALLOW READ TOPIC LITERAL a *", "action": "acl_delete"}
    put(
        ledger,
        PLANS,
        {"run_id": "pr-1", "cluster": "orders", "planned_at": wednesday, "owner": "team"},
        {"topic": "a", "action": "delete", "phase": "guard", "outcome": "refused"},
        {**acl, "before": {"resource_type": "TOPIC", "resource_name": "a", "pattern_type": "LITERAL"}},
    )
    put(
        ledger,
        AUDIT,
        ended,
        {"topic": "a", "action": "delete", "phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED"},
        {**acl, "phase": "validate", "outcome": "ok"},
    )
    now = wednesday + timedelta(hours=1)
    put(ledger, APPROVALS, {"run_id": "pr-1", "plan_digest": "x", "by": "bob", "at": now}, {})
    found = gather(ledger, span(MONDAY, now, ()), now)
    assert found.outcomes() == {"failed": 1, "open": 1, "ok": 2}
    assert found.history.done == {"create": 2}
    runs = {each.run.run_id: each for each in found.history.runs}
    assert {name for name, each in runs.items() if each.unsent} == {"pr-1", "given-up"}
    assert (runs["pr-1"].outcomes, runs["pr-1"].approved_by) == ({"refused": 1, "planned": 1}, ["bob"])
    page = render(found)
    assert page.index("Plans that sent nothing") < page.index("pr-1")
    only = Scope(owners=("Team ",), topics=("^a$",))
    mine = gather(ledger, limited(ledger, Owners(), of_run(ledger, "pr-1", ()), only), now)
    assert {(row.topic, row.owner, row.change.destroys) for row in mine.rows} == {
        ("a", "team", True),
        (acl["resource"], "team", True),
    }
    assert mine.noun == "action"
    assert not limited_rows(ledger, "pr-1", Scope(owners=("other",)))
    assert limited_rows(ledger, "tuesday", Scope(owners=("team",))) == ["a"]
    assert limited_rows(ledger, "tuesday", Scope(topics=("[bc]",))) == ["c", "b"]


def limited_rows(ledger: Ledger, run_id: str, limits: Scope) -> list[str | None]:
    found = gather(ledger, limited(ledger, Owners(), of_run(ledger, run_id, ()), limits), NOW)
    return [row.topic for row in found.rows]


def test_span_without_runs_is_empty(told: Ledger) -> None:
    found = gather(told, span(moment("2025-01-01", "--since"), moment("2025-02-01", "--until"), ()), NOW)
    assert (found.outcomes(), found.history.run_count, found.drift) == ({}, 0, None)


@pytest.mark.thorough
def test_report_contains_only_selected_clusters(told: Ledger) -> None:
    found = of(told, "tuesday", "payments")
    assert {each.cluster for each in found.tallies} == {"payments"}
    assert found.outcomes() == {"failed": 1}
    drift = of(told, "audit-2", "payments").drift
    assert drift is not None
    assert drift.tallies == []
    audit = of_run(told, "audit-2", ())
    settings = Owners(names={"team": OwnerSettings(topics=("^z",))})
    for only, topics in ((Scope(owners=("team",)), ["z"]), (Scope(topics=("^x",)), ["x"])):
        within = gather(told, limited(told, settings, audit, only), NOW).drift
        assert within is not None
        assert [row.topic for row in within.rows] == topics


@pytest.mark.thorough
def test_details_are_limited_and_the_query_returns_all(told: Ledger) -> None:
    found = gather(told, of_run(told, "monday", ()), NOW, listed=1)
    assert [row.topic for row in found.rows] == ["a"]
    rows = told.spark.sql(found.query).collect()
    assert [(row["resource_type"], row["resource"]) for row in rows] == [("topic", "a"), ("topic", "d")]
    spanned = gather(told, span(MONDAY, TUESDAY, ["payments"]), NOW)
    assert [row["resource"] for row in told.spark.sql(spanned.query).collect()] == ["d"]
    audit = of(told, "audit-2")
    assert audit.drift is not None
    assert [row["topic"] for row in told.spark.sql(audit.drift.query).collect()] == ["x", "z"]


@pytest.mark.thorough
def test_a_finding_on_a_group_has_its_own_owner_though_a_topic_has_its_name(told: Ledger, tmp_path: Path) -> None:
    """Owners are looked up by name: that of a topic doesn't become that of a group."""
    ledger = copy(told, tmp_path / "groups")
    ledger.ensure(GROUP_CONFIGS)
    put(ledger, GROUP_CONFIGS, {}, {"cluster": "orders", "group": "a", "owner": "readers"})
    put(
        ledger,
        DRIFT,
        {"run_id": "audit-2", "cluster": "orders", "severity": "error", "observed_at": TUESDAY + timedelta(hours=1)},
        {"topic": "a", "kind": "config_differs", "what": "retention.ms"},
        {"topic": None, "kind": "group_config_differs", "what": "a"},
    )
    drift = of(ledger, "audit-2").drift
    assert drift is not None
    owners = {row.kind: row.owner for row in drift.rows}
    assert owners == {"missing": None, "unmanaged": None, "config_differs": "team", "group_config_differs": "readers"}


@pytest.mark.thorough
def test_acls_are_reported_by_owner_with_their_changes(told: Ledger, tmp_path: Path) -> None:
    """A run shows its changes, an audit the changes since the previous one, a span the changes within it."""
    assert owned(of(told, "tuesday"), acls.KIND) is None, "no rights are declared"
    ledger = copy(told, tmp_path / "rights")
    ledger.ensure(ACLS)
    right = {"operation": "READ", "resource_type": "TOPIC", "resource_name": "orders"}
    rows = [("a", "team", None), ("b", " team ", "present"), ("b", "team", "present"), ("c", None, "absent")]
    put(
        ledger,
        ACLS,
        {"cluster": "orders", **right},
        *({"principal": f"User:{name}", "owner": owner, "state": state} for name, owner, state in rows),
    )

    def resource(name: str) -> str:
        return f"User:{name} ALLOW READ TOPIC LITERAL orders *"

    changes = [
        ("monday", MONDAY, "a", "acl_add"),
        ("tuesday", TUESDAY, "b", "acl_add"),
        ("tuesday", TUESDAY, "c", "acl_delete"),
    ]
    put(
        ledger,
        AUDIT,
        {"cluster": "orders", "phase": "apply", "outcome": "ok", "resource_type": "acl", "error_code": 0},
        *(
            {
                "run_id": run_id,
                "action": action,
                "resource": resource(name),
                "completed_at": day + timedelta(seconds=3),
                ("after" if action == "acl_add" else "before"): {"principal": f"User:{name}"},
            }
            for run_id, day, name, action in changes
        ),
    )
    found = owned(of(ledger, "tuesday"), acls.KIND)
    assert found is not None
    assert [(each.owner, *each.counts.values()) for each in found.owners] == [
        ("team", 2, 2, 1, 0),
        ("", 0, 0, 0, 1),
    ]
    assert {(each.what, each.resource, each.values["principal"], each.owner) for each in found.changes} == {
        ("added", resource("b"), "User:b", "team"),
        ("removed", resource("c"), "User:c", None),
    }
    assert {row["action"] for row in ledger.spark.sql(found.query).collect()} == {"acl_add", "acl_delete"}
    assert ledger.spark.sql(found.owners_query).count() == 2, "blanks around an owner are its own"
    audited = owned(of(ledger, "audit-2"), acls.KIND)
    assert audited is not None
    assert (audited.since, audited.total) == ("since audit audit-1", 2)
    first = owned(of(ledger, "audit-1"), acls.KIND)
    assert first is not None
    assert [each.resource for each in first.changes] == [resource("a")]
    spanned = owned(gather(ledger, span(MONDAY, TUESDAY, ()), NOW, listed=1), acls.KIND)
    assert spanned is not None
    assert (spanned.total, [each.run_id for each in spanned.changes]) == (1, ["monday"])
    assert owned(of(ledger, "tuesday", "payments"), acls.KIND) is None
    page = render(of(ledger, "tuesday"))
    assert resource("b") in page.replace("&#34;", '"')


@pytest.mark.thorough
def test_quotas_are_reported_by_owner_with_their_changes(told: Ledger, tmp_path: Path) -> None:
    """Like ACLs: previous and current limits, and the owner."""
    assert owned(of(told, "tuesday"), quotas.KIND) is None, "no quotas are declared"
    ledger = copy(told, tmp_path / "quotas")
    ledger.ensure(QUOTAS)
    declared = [("a", " team ", None), ("b", "team", "present"), ("c", None, "absent")]
    rows = ({"user": name, "owner": owner, "state": state} for name, owner, state in declared)
    put(ledger, QUOTAS, {"cluster": "orders", "producer_byte_rate": 2_000.0}, *rows)
    altered = [
        ("monday", MONDAY, "a", {}, {"producer_byte_rate": "2000"}),
        ("tuesday", TUESDAY, "b", {"producer_byte_rate": "1000"}, {"producer_byte_rate": "2000"}),
        ("tuesday", TUESDAY, "c", {"request_percentage": "0.5"}, {}),
    ]
    of_all = {"cluster": "orders", "phase": "apply", "outcome": "ok", "resource_type": "quota", "error_code": 0}
    put(
        ledger,
        AUDIT,
        {**of_all, "action": "alter_quota"},
        *(
            {
                "run_id": run_id,
                "resource": f"user={name}",
                "completed_at": day + timedelta(seconds=3),
                "before": before,
                "after": after,
            }
            for run_id, day, name, before, after in altered
        ),
    )
    found = owned(of(ledger, "tuesday"), quotas.KIND)
    assert found is not None
    assert [(each.owner, *each.counts.values()) for each in found.owners] == [("team", 2, 1), ("", 0, 1)]
    assert {(each.resource, each.what, each.owner) for each in found.changes} == {
        ("user=b", "producer_byte_rate 1000 -> 2000", "team"),
        ("user=c", "request_percentage 0.5 -> none", None),
    }
    assert {row["resource"] for row in ledger.spark.sql(found.query).collect()} == {"user=b", "user=c"}
    assert ledger.spark.sql(found.owners_query).count() == 2, "blanks around an owner are its own"
    first = owned(of(ledger, "audit-1"), quotas.KIND)
    assert first is not None
    assert [each.resource for each in first.changes] == ["user=a"]
    assert owned(of(ledger, "tuesday", "payments"), quotas.KIND) is None
    assert "producer_byte_rate 1000 -&gt; 2000" in render(of(ledger, "tuesday")).replace("<wbr>", "")


def test_missing_drift_table_means_no_audit(told: Ledger, tmp_path: Path) -> None:
    again = copy(told, tmp_path / "ledger")
    shutil.rmtree(again.location(DRIFT))
    found = gather(again, span(moment("2026-11-01", "--since"), NOW, ()), NOW)
    assert found.drift is not None
    assert found.drift.tallies == []
    assert not Path(again.location(DRIFT)).exists()


def test_report_command_writes_a_page_and_prints_its_path(told: Ledger, tmp_path: Path) -> None:
    out, result_file = tmp_path / "report.html", tmp_path / "result.json"
    done = report(told, tmp_path, "--run-id", "tuesday", "--out", str(out), "--result-file", str(result_file))
    assert (done.exit_code, done.stdout) == (0, f"wrote {out}\n")
    assert "1 of 3 topics failed or was refused, and 1 is open" in out.read_text(encoding="utf-8")
    assert json.loads(result_file.read_text()) == {
        "format_version": 1,
        "exit_code": 0,
        "run_id": "tuesday",
        "kind": "run",
        "out": str(out),
        "outcomes": {"failed": 1, "open": 1, "ok": 1},
        "drift": None,
    }


@pytest.mark.thorough
def test_report_command_accepts_a_span(told: Ledger, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    more = ("--since", "2026-11-16", "--until", "2026-11-18T00:00+00:00", "--format", "json")
    done = report(told, tmp_path, "--out", str(out), *more)
    document = json.loads(done.stdout)
    assert (document["kind"], document["outcomes"], document["drift"]) == ("span", {"failed": 1, "open": 1, "ok": 2}, 2)
    assert "2026-11-16T00:00:00Z to 2026-11-18T00:00:00Z" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "report needs one of RUN_ID (see `runs list`), --since and --estate"),
        (["--run-id", "monday", "--since", "2026-11-16"], "report needs one of RUN_ID"),
        (["--run-id", "monday", "--until", "2026-11-16"], "--until needs --since"),
        (["--run-id", "no-such"], "there is no run no-such in "),
        (["--since", "soon"], "--since soon is not a time"),
        (["--since", "2026-11-16", "--until", "2026-11-16"], "is not before --until"),
        (["--since", "2026-11-16", "--cluster", "other"], "other"),
    ],
)
def test_invalid_report_options_are_errors_and_write_nothing(
    told: Ledger, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "report.html"
    done = report(told, tmp_path, *arguments, "--out", str(out))
    assert done.exit_code == 2
    assert message in done.stderr
    assert not out.exists()


@pytest.mark.thorough
def test_broken_table_keeps_the_last_page(told: Ledger, tmp_path: Path) -> None:
    broken = copy(told, tmp_path / "ledger")
    location = broken.location(DRIFT)
    shutil.rmtree(location)
    told.spark.range(1).write.format("delta").save(location)
    out = tmp_path / "report.html"
    out.write_text("the last page")
    done = report(broken, tmp_path, "--since", "2026-11-16", "--out", str(out))
    assert done.exit_code == 1
    assert "table" in done.stderr
    assert out.read_text() == "the last page"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
