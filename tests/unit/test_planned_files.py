"""Files that a plan was made from: which of the given ones `apply` loads."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.harness import cluster_settings
from tests.unit.frames import frame, manifest_rows, plain
from topicledger.cli import loading
from topicledger.cli.scope import check_owners
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import Owners, OwnerSettings, Settings, TablesSettings
from topicledger.errors import GuardStopped, ManifestFileError, UsageError
from topicledger.files.changes import as_declared, gone
from topicledger.files.left_behind import left_behind
from topicledger.files.load import Removals, Replace, removals_of, split_removals
from topicledger.files.read import files_arguments, read
from topicledger.ledger.run import REPLACES_ARGUMENT, Run
from topicledger.ledger.runs import Files, Request, _require_same_variables
from topicledger.ledger.tables import Ledger
from topicledger.ledger.unloaded import Unloaded
from topicledger.manifests.files import ManifestRow, ParsedManifests, ResourceRow
from topicledger.model import RunState
from topicledger.model.scope import Scope
from topicledger.plan import approvals, loadable, planned_files
from topicledger.plan.approvals import Approvals
from topicledger.plan.planned_files import apply_command, as_planned, digests_in, require_loaded
from topicledger.plan.scoping import declarations
from topicledger.resources.acls.rows import text_of
from topicledger.schemas import ACL_KEY, ACLS, AUDIT, MANIFESTS, PLANS, RUNS


def run_planned_from(digests: dict[str, str], **more: str) -> Any:
    return SimpleNamespace(run_id="r1", arguments={"files": json.dumps(files_arguments(digests)), **more})


def parsed(digests: dict[str, str]) -> ParsedManifests:
    """One topic and one ACL in each file."""
    names = ["stdin" if name == "-" else name for name in digests]
    acls = [
        ResourceRow(cluster="c", state="present", owner=None, labels=None, values={}, file=name, line=2)
        for name in names
    ]
    rows = [ManifestRow(cluster="c", topic=f"of.{name}", state="present", file=name, line=1) for name in names]
    return ParsedManifests(rows=rows, errors=[], resources={"acls": acls}, digests=digests)


def test_only_files_that_are_as_planned_are_loaded() -> None:
    run = run_planned_from({"topics/a.yaml": "1", "topics/b.yaml": "2", "-": "3"})
    kept = as_planned(run, parsed({"elsewhere/a.yaml": "1", "topics/b.yaml": "changed", "new.yaml": "9", "-": "3"}))
    assert kept.digests == {"elsewhere/a.yaml": "1", "-": "3"}
    assert [row.topic for row in kept.rows] == ["of.elsewhere/a.yaml", "of.stdin"]
    assert [row.file for row in kept.rows_of("acls")] == ["elsewhere/a.yaml", "stdin"]


def test_files_of_which_none_is_as_planned_are_refused() -> None:
    with pytest.raises(UsageError, match=r"b.yaml: no file is as it was when run r1 was planned from a.yaml"):
        as_planned(run_planned_from({"a.yaml": "1"}), parsed({"b.yaml": "2"}))


def test_other_files_with_errors_hold_up_no_plan(tmp_path: Path) -> None:
    """Another team's file may have been merged since; one that can't be read may be of the plan."""
    settings = Settings(
        path=tmp_path / "s.toml", tables=TablesSettings(root="x"), clusters={"c": cluster_settings("c", "h:1")}
    )
    planned, theirs = tmp_path / "planned.yaml", tmp_path / "theirs.yaml"
    planned.write_text("cluster: c\ntopics: [{topic: a, num_partitions: 1}]\n")
    theirs.write_text("cluster: ${REGION}\ntopics: [{topic: a, num_partitions: 2}, {topic: a b}]\n")
    digests = read(settings, [planned], io.StringIO()).digests
    found = read(settings, [tmp_path], io.StringIO(), some=True, digests=digests.values())
    assert [(row.topic, row.num_partitions) for row in found.rows] == [("a", 1)]
    with pytest.raises(ManifestFileError, match=r"REGION"):
        read(settings, [tmp_path], io.StringIO(), some=True)
    with pytest.raises(ManifestFileError, match=r"gone.yaml: no such file"):
        read(settings, [planned, tmp_path / "gone.yaml"], io.StringIO(), some=True, digests=digests.values())
    files = json.dumps(files_arguments(digests))
    assert list(digests_in({"files": files}) or ()) == list(digests.values())
    assert digests_in({"files": files, REPLACES_ARGUMENT: "[]"}) is None, "rows of any file stay"


def test_very_many_files_must_all_be_as_planned() -> None:
    many = {f"{number}.yaml": str(number) for number in range(1001)}
    assert as_planned(run_planned_from(many), parsed(many)).digests == many
    with pytest.raises(UsageError, match="planned from 1,001 files, and these aren't the same"):
        as_planned(run_planned_from(many), parsed(many | {"1000.yaml": "changed"}))


def test_the_command_that_applies_a_plan_can_be_pasted() -> None:
    assert apply_command("r1", ()) == "apply --run-id r1"
    assert apply_command("r1", ("my topics/", "-")) == "apply --run-id r1 'my topics/' -"


def test_stopped_actions_need_their_files_too(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval lets them through: sent without the files, all of them would be refused, and the approval spent."""
    action = {"run_id": "r1", "cluster": "c", "resource_type": "topic", "action": "delete", "manifest_version": 1}
    stopped = {"phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED", "guards": {"deletes": 1}}
    plans = frame(spark, plain(PLANS.schema), [{**action, "topic": "old", "resource": "old", **stopped}])
    monkeypatch.setattr(planned_files, "KINDS", ())
    settings = Settings(
        path=Path("s.toml"), tables=TablesSettings(root=""), clusters={"c": cluster_settings("c", "b:1")}
    )
    declared = manifest_rows(spark)
    run: Any = SimpleNamespace(
        run_id="r1",
        of_files=True,
        by_manifests=True,
        of_earlier_manifests=False,
        plans=lambda: plans,
        open_actions=lambda: plans.where("phase is null"),
        manifests=lambda _: declared,
        settings=settings,
        selected=None,
        ledger=SimpleNamespace(
            latest_version=lambda _: 1, read=lambda _: frame(spark, plain(RUNS.schema), ()), exists=lambda _: False
        ),
        arguments={"files": json.dumps(files_arguments({"a.yaml": "1"}))},
        row={"started_at": datetime.now(UTC)},
    )
    with pytest.raises(UsageError, match="what they declare of c/old isn't loaded"):
        require_loaded(run)


def test_a_plan_that_removes_rows_needs_its_files(spark: SparkSession) -> None:
    """A start was killed between two tables, or somebody loaded the files without the removals: rows would stay."""
    given = {"removals": '["quotas: main user=a"]', "paths": '["topics"]'}
    run: Any = SimpleNamespace(
        run_id="r1",
        arguments={"files": "{}", "removed_sha256": '{"manifests": [], "quotas": ["1"]}', **given},
        ledger=SimpleNamespace(read=lambda _: frame(spark, plain(RUNS.schema), ())),
    )
    with pytest.raises(UsageError, match=r"removes rows, .*: quotas: main user=a: .*`apply --run-id r1 topics` loads"):
        require_loaded(run)


def test_misspelt_owners_are_named_and_refused_for_a_plan_of_files(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {MANIFESTS.name: manifest_rows(spark, {"topic": "t", "owner": "payments"})}
    ledger: Any = SimpleNamespace(
        read_if_exists=lambda table: tables.get(table.name, frame(spark, plain(table.schema), []))
    )
    settings: Any = SimpleNamespace(owners=Owners())
    check_owners(ledger, settings, ("payment", "PAYMENTS"), option="--replace-owner")
    assert capsys.readouterr().err == "--replace-owner payment: no row has this owner; did you mean `payments`?\n"
    of_file = manifest_rows(spark, {"topic": "t2"}, {"topic": "t3", "owner": "new"})
    check_owners(ledger, settings, ("payments", "new"), [of_file], required=True)
    with pytest.raises(UsageError, match="--owner unowned: no row has this owner; known: `new`, `payments`; leave"):
        check_owners(ledger, settings, ("payments", "unowned"), [of_file], required=True)


@pytest.mark.parametrize("given", [True, False])
def test_files_of_a_plan_with_nothing_to_send_are_not_loaded(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: bool
) -> None:
    """Guards stopped everything: the tables must not ask for what nobody has allowed."""
    action = {"run_id": "r1", "cluster": "c", "resource_type": "topic", "action": "delete", "topic": "t"}
    stopped = {"phase": "guard", "outcome": "refused", "guards": {"deletes": 1}}
    refused = {**action, "resource": "u", "topic": "u", "phase": "validate", "outcome": "refused"}
    plans = frame(spark, plain(PLANS.schema), [{**action, "resource": "t", **stopped}])
    opened = frame(spark, plain(PLANS.schema), [{**action, "resource": "u", "topic": "u"}])
    monkeypatch.setattr(loading, "read", lambda *_, **__: pytest.fail("the files are read"))
    monkeypatch.setattr(planned_files, "require_loaded", lambda _: pytest.fail("loads are looked for"))
    run: Any = SimpleNamespace(
        run_id="r1",
        of_files=True,
        state=RunState.PLANNED,
        arguments={},
        allowed={},
        plans=lambda: plans,
        open_actions=lambda: opened.withColumn("maybe_sent", opened["action"].isNull()),
        audit=lambda: frame(spark, plain(AUDIT.schema), [refused]),
    )
    loading.load_planned_files(run, [Path("a.yaml")] if given else [])
    assert capsys.readouterr().err == (
        "nothing of the plan can be sent, so its files are not loaded\n" if given else ""
    )


@pytest.mark.parametrize(
    ("removed", "allowed", "stopped"), [(None, {}, False), (3, {}, True), (3, {"": [{"removed_rows": 3}]}, False)]
)
def test_files_that_remove_too_many_rows_are_loaded_once_allowed(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    removed: int | None,
    allowed: dict[str, Any],
    stopped: bool,
) -> None:
    """A plan that only removes rows has nothing to send, and its load may still be allowed."""
    loads: list[Any] = []
    monkeypatch.setattr(loading, "_load", lambda _, files: loads.append(files))
    monkeypatch.setattr(loading, "standing", lambda *_: SimpleNamespace(isEmpty=lambda: removed is not None))
    arguments = planned_files.removals_arguments(removals(removed), most=2)
    delete = {"run_id": "r1", "cluster": "main", "action": "delete", "resource": "x", "guards": {"deletes": 1}}
    run: Any = SimpleNamespace(
        run_id="r1",
        of_files=True,
        state=RunState.PLANNED,
        arguments=arguments,
        allowed=allowed,
        plans=lambda: frame(spark, plain(PLANS.schema), [delete]),
    )
    if stopped:
        every = "deletes=1,removed_rows=3"
        with pytest.raises(GuardStopped, match=rf"removed_rows=3 \(3 rows\).*runs approve r1 --allow {every} --by WHO"):
            loading.load_planned_files(run, [Path("a.yaml")])
    else:
        loading.load_planned_files(run, [Path("a.yaml")])
    assert len(loads) == (not stopped)


def removals(count: int | None) -> Removals | None:
    return None if count is None else Removals(rows={}, lines=["..."], count=count, digest="{}")


@pytest.mark.parametrize(
    ("replaces", "who", "named"),
    [
        (None, "eve", None),
        (Replace(owners=("a", "B")), "eve", "--replace-owner would remove rows of b"),
        (Replace(owners=("a",)), "eve", None),
        (Replace(), "eve", "--replace would remove rows of b, .*: --replace-owner OWNER removes only"),
        (Replace(), "bob", None),
    ],
)
def test_rows_that_a_requester_may_not_plan_are_neither_loaded_nor_removed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, replaces: Replace | None, who: str, named: str | None
) -> None:
    owners = Owners(names={"b": OwnerSettings(topics=(), requested_by=("bob",)), "a": OwnerSettings(topics=())})
    settings: Any = SimpleNamespace(owners=owners, guards=GuardSettings())
    both = parsed({"a.yaml": "1"})
    both = replace(both, rows=[replace(both.rows[0], owner=owner) for owner in ("a", " B ", None)])
    monkeypatch.setattr(loading, "removals_of", lambda *_: removals(1))
    seen: list[Any] = []
    monkeypatch.setattr(planned_files, "unloaded", lambda _, its, __: seen.extend(row.owner for row in its.rows) or {})
    ledger: Any = SimpleNamespace(spark=spark, read_if_exists=lambda table: frame(spark, plain(table.schema), []))
    request = Request(command="plan", requested_by=who)
    if named is None:
        loading.files_of(ledger, settings, both, ["a.yaml"], replaces, request)
        assert seen == ["a", " B ", None] if who == "bob" else ["a", None]
    else:
        with pytest.raises(UsageError, match=named):
            loading.files_of(ledger, settings, both, ["a.yaml"], replaces, request)


def test_no_file_takes_over_what_a_barred_owner_has_declared(spark: SparkSession) -> None:
    """[owners] doesn't know whose an ACL is: a row with another owner, or `absent`, would change it."""
    acl = dict.fromkeys(ACL_KEY, "x")
    theirs = [{"cluster": "main", **acl, "owner": " B "}, {"cluster": "main", **acl, "host": "h", "owner": "a"}]
    theirs.append({"cluster": "main", **acl, "host": None, "owner": "b"})
    tables = {MANIFESTS.name: manifest_rows(spark, {"topic": "of.b", "owner": "b"}, {"topic": "of.a", "owner": "a"})}
    tables[ACLS.name] = frame(spark, plain(ACLS.schema), theirs)
    ledger: Any = SimpleNamespace(spark=spark, read_if_exists=lambda table: tables[table.name])
    place: dict[str, Any] = {"file": "a.yaml", "line": 1}
    rows = [ManifestRow(cluster="main", topic=name, owner="a", **place) for name in ("of.a", "of.b", "of.b", "new")]
    acls = [
        ResourceRow(cluster="main", state="absent", owner="a", labels=None, values={**acl, "host": host}, **place)
        for host in ("x", "h", "new", "*")
    ]
    files = ParsedManifests(rows=rows, errors=[], resources={ACLS.name: acls})
    kept = loadable.within(ledger, files, Scope(barred=("B",)))
    assert [row.topic for row in kept.rows] == ["of.a", "new"]
    assert [row.value("host") for row in kept.rows_of(ACLS.name)] == ["h", "new"]
    assert loadable.within(ledger, files, Scope()) == files


@pytest.mark.parametrize(
    ("scope", "topics", "names"),
    [
        (Scope(), ["a.x", "b.x", "b.y"], ["a.x", "b.y", "b.z"]),
        (Scope(owners=("B",), files=True), ["b.x", "b.y"], ["b.y", "b.z"]),
        (Scope(topics=("x$",)), ["a.x", "b.x"], ["a.x"]),
        (Scope(topics=("x$",), owners=("b",)), ["b.x"], []),
        (Scope(resources=("b[.]z",)), [], ["b.z"]),
        (Scope(topics=("y$",), resources=("b[.]z",)), ["b.y"], ["b.y", "b.z"]),
    ],
)
def test_a_narrowed_plan_loads_and_removes_only_rows_inside(
    spark: SparkSession, scope: Scope, topics: Sequence[str], names: Sequence[str]
) -> None:
    place: dict[str, Any] = {"file": "a.yaml", "line": 1}
    rows = [ManifestRow(cluster="main", topic=name, owner=name[0], **place) for name in ("a.x", "b.x", "b.y")]
    acl = {**dict.fromkeys(ACL_KEY, "x"), "resource_type": "TOPIC"}
    acls = [
        ResourceRow(
            cluster="main", state="present", owner=name[0], labels=None, values={**acl, "resource_name": name}, **place
        )
        for name in ("a.x", "b.y", "b.z")
    ]
    files = ParsedManifests(rows=rows, errors=[], resources={ACLS.name: acls})
    ledger: Any = SimpleNamespace(spark=spark)
    kept = loadable.within(ledger, files, scope)
    assert [row.topic for row in kept.rows] == topics
    assert [row.value("resource_name") for row in kept.rows_of(ACLS.name)] == names
    table = manifest_rows(spark, *({"topic": row.topic, "owner": row.owner} for row in rows))
    left: Any = SimpleNamespace(spark=spark, read_if_exists=lambda _: table)
    gone_from = ParsedManifests(rows=[replace(rows[0], topic="kept")], errors=[])
    found = removals_of(left, gone_from, Replace(), partial(declarations, scope))
    assert sorted(row["topic"] for row in found.rows[MANIFESTS.name].collect()) == topics


def test_planned_removals_are_told_from_rows_that_other_merges_left(spark: SparkSession) -> None:
    """An earlier start may have removed some, too: one commit for each table."""

    def left(*rows: tuple[str, str | None]) -> Removals:
        table = manifest_rows(spark, *({"topic": topic, "owner": owner} for topic, owner in rows))
        ledger: Any = SimpleNamespace(spark=spark, read_if_exists=lambda _: table)
        row = ManifestRow(cluster="main", topic="kept", file="a.yaml", line=1)
        return removals_of(ledger, ParsedManifests(rows=[row], errors=[]), Replace(), partial(declarations, Scope()))

    def topics(found: Removals) -> set[str]:
        return {row["topic"] for row in found.rows[MANIFESTS.name].collect()}

    planned = left(("a", "x"), ("b", "x"), ("c", "x"))
    now, others = split_removals(left(("a", "x"), ("b", "other"), ("d", "x")), planned.digest)
    assert (topics(now), now.count) == ({"a"}, 1), "b changed since"
    assert (topics(others), others.lines) == ({"b", "d"}, ["main / b, owner other", "main / d, owner x"])
    for start, count in ((planned, 3), (left(), 0)):
        now, others = split_removals(start, planned.digest)
        assert (now.count, others.count, others.lines) == (count, 0, [])
    many = left(*((f"t{number}", "x") for number in range(501)))
    assert split_removals(many, many.digest)[0].count == 501
    with pytest.raises(ValueError, match="manifests"):
        split_removals(planned, many.digest)


@pytest.mark.parametrize("loaded", [True, False])
def test_a_plan_that_was_loaded_removes_nothing_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    """Its driver died before it sent anything. The one hash of many rows no longer fits those that are left."""
    loads: list[Any] = []
    monkeypatch.setattr(planned_files, "removals_of", lambda *_: replace(OTHERS_LEFT, digest='{"manifests": ["1"]}'))
    monkeypatch.setattr(planned_files, "unloaded", lambda *_: {})
    monkeypatch.setattr(planned_files, "_require_declared", lambda *_: None)
    monkeypatch.setattr(planned_files, "load", lambda *_, **given: loads.append(given))
    row = {"arguments": {"command": "load_manifests", "plan": "r1"}, "exit_code": 0 if loaded else 5}
    runs = frame(spark, plain(RUNS.schema), [row])
    arguments = {"replaces": "[]", "removed_sha256": '{"manifests": "of 501 rows"}'}
    run = Run(
        run_id="r1",
        ledger=cast(Ledger, SimpleNamespace(read=lambda _: runs, exists=lambda _: False)),
        settings=Settings(path=Path("s.toml"), tables=TablesSettings(root=""), clusters={}),
        row={"state": "planned", "arguments": arguments, "requested_by": "ann"},
        found=RunState.PLANNED,
    )
    files = parsed({"a.yaml": "1"})
    if loaded:
        planned_files.load_planned(run, files, files)
        (given,) = loads
        assert (given["replace"], given["removals"].count, given["removals"].rows) == (Replace(), 0, {})
    else:
        with pytest.raises(UsageError, match="would by now remove other rows"):
            planned_files.load_planned(run, files, files)


OTHERS_LEFT = Removals(rows={}, lines=["..."], count=1, digest="{}")


@pytest.mark.thorough
def test_a_loaded_plan_that_is_continued_removes_what_it_planned(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its load has removed the rows, and another team has changed its file and left a row without one since."""
    then = manifest_rows(spark, *({"topic": name, "owner": "a"} for name in ("gone", "kept")))
    now = manifest_rows(spark, {"topic": "kept", "owner": "a"}, {"topic": "left", "owner": "a"})
    rows = [ManifestRow(cluster="main", topic="kept", owner="a", file="a.yaml", line=1)]
    theirs = ManifestRow(cluster="main", topic="theirs", owner="b", file="b.yaml", line=1)
    digests = {"a.yaml": "1", "b.yaml": "2"}
    files, replaces = ParsedManifests(rows=[*rows, theirs], errors=[], digests=digests), Replace(owners=("a",))
    row: dict[str, Any] = {"run_id": "r", "state": "planning", "manifest_version": 3, "scope": None}
    row["requested_by"] = "ann"
    kept: list[Any] = []
    ledger: Any = SimpleNamespace(
        spark=spark,
        exists=lambda _: True,
        read_if_exists=lambda table: now if table is MANIFESTS else frame(spark, plain(table.schema), []),
        read_at=lambda table, version: then if version == 3 else frame(spark, plain(table.schema), []),
    )

    monkeypatch.setattr(planned_files, "find_run", lambda *_: Row(**kept[-1]) if kept else None)

    # Another person may start the run again: `apply` loads what its requester may declare.
    owners = Owners(names={"a": OwnerSettings(topics=(), requested_by=("ann",))})

    def files_of(parsed: ParsedManifests, run_id: str) -> Files:
        settings: Any = SimpleNamespace(owners=owners, guards=GuardSettings())
        request = Request(command="plan", run_id=run_id, requested_by="eve" if kept else "ann")
        return loading.files_of(ledger, settings, parsed, ["."], replaces, request)

    def removed(found: Files) -> set[str]:
        gone = found.unloaded[MANIFESTS.name].removed
        assert gone is not None
        return {each["topic"] for each in gone.collect()}

    first = files_of(files, "r")
    assert removed(first) == {"left"}, "a new run goes by the tables as they are"
    planned = files_arguments(digests)
    digest = removals_of(ledger, files, replaces, partial(declarations, Scope()), lambda _: then).digest
    arguments = {"files": json.dumps(planned, sort_keys=True), "removed_sha256": digest}
    kept.append({**row, "arguments": arguments})
    assert removed(files_of(files, "r")) == {"gone"}
    changed = replace(files, digests={"a.yaml": "1", "b.yaml": "other"})
    assert files_of(changed, "r").argument != arguments["files"], "not loaded yet: it needs the same files"
    kept[0]["state"] = "applying"
    found = files_of(changed, "r")
    assert (removed(found), found.argument) == ({"gone"}, arguments["files"])
    assert {each["topic"] for each in found.unloaded[MANIFESTS.name].rows.collect()} == {"kept"}


def test_a_plan_from_files_is_continued_with_the_values_of_its_variables() -> None:
    """`apply` reads the files with the first values: with others, a cluster would be planned from other rows."""
    row: Any = {"run_id": "r", "arguments": {"variables": '{"COUNT": "2", "ENV": "dev"}'}}

    def files(**values: str) -> Any:
        return Request(command="plan", run_id="r", manifests=Files(argument="{}", unloaded={}, variables=values))

    for accepted in (files(COUNT="2", ENV="dev"), files(), files(NEW="1"), Request(command="plan", run_id="r")):
        _require_same_variables(row, accepted)
    with pytest.raises(UsageError, match="run r started with --var COUNT=2, not 3; the same id needs the same"):
        _require_same_variables(row, files(COUNT="3"))


@pytest.mark.parametrize(
    ("load", "loaded"),
    [
        ({"plan": "r1"}, True),
        ({"plan": "r2"}, False),
        ({"plan": "r1", "command": "plan"}, False),
        ({"files": files_arguments({"a.yaml": "1"})["files"]}, False),
    ],
)
def test_only_a_load_for_the_plan_itself_proves_that_its_files_are_loaded(
    spark: SparkSession, load: dict[str, str], loaded: bool
) -> None:
    """A load for another plan, or another cluster, had an older version of a file, or left out some of its rows."""
    row = {"arguments": {"command": "load_manifests", **load}, "exit_code": 0}
    runs = frame(spark, plain(RUNS.schema), [row, {**row, "arguments": {**row["arguments"], "plan": "r3"}}])
    run: Any = SimpleNamespace(run_id="r1", ledger=SimpleNamespace(read=lambda _: runs))
    assert planned_files.were_loaded(run) is loaded


def test_the_owners_of_removed_rows_are_kept_with_the_plan() -> None:
    assert planned_files.replace_in({}) is None
    assert planned_files.replace_in({"replaces": "[]"}) == Replace()
    assert planned_files.replace_in({"replaces": '["team a"]'}) == Replace(owners=("team a",))
    assert planned_files.removals_in({"removals": '["main / old, owner a"]'}) == ("main / old, owner a",)
    assert loading.replaced(False, ()) is None
    assert loading.replaced(True, ()) == Replace()
    assert loading.replaced(False, ("a",)) == Replace(owners=("a",))
    with pytest.raises(UsageError, match="give it or --replace-owner"):
        loading.replaced(True, ("a",))


def test_null_in_a_row_of_an_acl_is_what_files_write_for_it(spark: SparkSession) -> None:
    """Any writer of the table may leave ALLOW, LITERAL and `*` null, and even write one ACL in both ways."""
    acl = {"cluster": "main", "operation": "READ", "resource_type": "TOPIC", "resource_name": "t", "owner": "a"}
    short, left = {**acl, "principal": "User:p"}, {**acl, "principal": "User:left"}

    def acls(*rows: dict[str, Any]) -> DataFrame:
        return frame(spark, plain(ACLS.schema), list(rows))

    written = {**short, **ACLS.key_defaults}
    table = acls(short, left, {**left, **ACLS.key_defaults, "labels": {"tier": "gold"}})
    removed = gone(ACLS, table, acls(written), ["main"], ())
    assert [row["principal"] for row in removed.collect()] == ["User:left", "User:left"]
    assert Unloaded(rows=acls(written)).changed(ACLS, table).isEmpty()
    absent = Unloaded(rows=acls({**written, "state": "absent"}))
    assert absent.changed(ACLS, table).count() == 1
    after = absent.over(ACLS, table).where("principal = 'User:p'").collect()
    assert [row["state"] for row in after] == ["absent"]
    (live,) = acls({**left, **ACLS.key_defaults}).transform(as_declared(ACLS, table)).collect()
    assert live["labels"] == {"tier": "gold"}
    within = declarations(Scope(resources=("^User:p ALLOW READ TOPIC LITERAL t [*]$",)), ACLS)
    assert table.transform(within).collect() == table.where("principal = 'User:p'").collect(), "as they are"


def test_a_plan_reads_tables_without_the_rows_that_its_load_removes(spark: SparkSession) -> None:
    names = (("a", "x"), ("b", "x"), ("c", "y"), (None, "x"))
    table = manifest_rows(spark, *({"topic": name, "owner": owner} for name, owner in names))
    files = manifest_rows(spark, {"topic": "a", "owner": "x", "num_partitions": 7}, {"topic": "new", "owner": "x"})
    removed = gone(MANIFESTS, table, files, ["main"], (" X ",))
    assert {row["topic"] for row in removed.collect()} == {"b", None}
    assert {row["topic"] for row in gone(MANIFESTS, table, files, ["main"], ()).collect()} == {"b", "c", None}
    assert gone(MANIFESTS, table, files, ["other"], ()).isEmpty()
    changes = Unloaded(rows=files, removed=removed)
    after = changes.over(MANIFESTS, table)
    assert after.columns == table.columns
    assert {(row["topic"], row["num_partitions"]) for row in after.collect()} == {("a", 7), ("c", None), ("new", None)}
    assert {row["topic"] for row in changes.changed(MANIFESTS, table).collect()} == {"a", "new", "b", None}, "the scope"
    assert {row["topic"] for row in changes.changed(MANIFESTS, after).collect()} == {"b", None}, "loaded: no change"
    kept = Unloaded(rows=files).over(MANIFESTS, table)
    assert {row["topic"] for row in kept.collect()} == {"a", "b", "c", None, "new"}


@pytest.mark.parametrize(("code", "loaded", "loads"), [(0, False, 1), (0, True, 0), (4, False, 0), (4, True, 0)])
def test_files_of_a_plan_with_nothing_to_do_are_loaded_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, loaded: bool, loads: int
) -> None:
    """A change of owners alone plans nothing, and must not be lost; of a plan that refused a row, nothing is loaded."""
    done: list[Any] = []
    monkeypatch.setattr(planned_files, "were_loaded", lambda _: loaded)
    monkeypatch.setattr(loading, "_load", lambda _, files: done.append(files))
    given = Approvals(run_id="r", requested_by="ann", plan_digest="", needed=1, by=("bob",))
    monkeypatch.setattr(approvals, "of_run", lambda *_: given)
    settings: Any = SimpleNamespace(guards=GuardSettings(approvals=1))
    row: dict[str, Any] = {"started_at": datetime.now(UTC)}
    run: Any = SimpleNamespace(run_id="r", exit_code=code, settings=settings, ledger=None, row=row)
    loading.load_files_of_finished(run, [Path("a.yaml")])
    loading.load_files_of_finished(run, [])
    assert len(done) == loads
    assert ("are not loaded" in capsys.readouterr().err) == (code == 4 and not loaded)
    if loads:
        # Its files may change owners: it needs what any plan needs.
        monkeypatch.setattr(approvals, "of_run", lambda *_: replace(given, by=()))
        with pytest.raises(GuardStopped, match="run r sends nothing, but its files change the tables: it needs"):
            loading.load_files_of_finished(run, [Path("a.yaml")])
        row["started_at"] -= timedelta(days=2)
        with pytest.raises(GuardStopped, match="max_plan_age"):
            loading.load_files_of_finished(run, [Path("a.yaml")])
        assert len(done) == 1


def test_rows_that_replace_leaves_are_named(spark: SparkSession) -> None:
    """Files without an entry of a table for a cluster remove none of its rows there."""
    theirs = [{"cluster": cluster, "topic": cluster, "owner": " A "} for cluster in ("c", "eu", "left")]
    quota = {"cluster": "c", "user": "ann", "owner": "a"}
    # Runs refuse a row without a cluster.
    quotas = [quota, {**quota, "cluster": None}]
    tables = {MANIFESTS.name: manifest_rows(spark, *theirs, {"cluster": "eu", "topic": "x", "owner": "b"})}
    ledger: Any = SimpleNamespace(
        read_if_exists=lambda table: tables.get(
            table.name, frame(spark, plain(table.schema), quotas if table.name == "quotas" else [])
        )
    )
    files = replace(parsed({"a.yaml": "1"}), left_out={"left": 1})
    words = "rows that no file has stay where the files have no entry of their kind: "
    (line,) = left_behind(ledger, files, Replace(owners=("A",)))
    assert line.startswith(f"{words}manifests on eu: 1, quotas on no cluster: 1, quotas on c: 1. ")
    (line,) = left_behind(ledger, files, Replace())
    assert line.startswith(f"{words}quotas on c: 1. ")
    empty = replace(files, rows=[], resources={}, documents={("a.yaml", "c"): [1]})
    (line,) = left_behind(ledger, empty, Replace())
    assert line.startswith(f"{words}manifests on c: 1, quotas on c: 1. ")
    assert left_behind(ledger, files, None) == left_behind(ledger, files, Replace(owners=("x",))) == []


def test_rows_that_the_plan_refused_are_not_loaded(spark: SparkSession) -> None:
    """Two rows that replace the same topic are both refused: a loaded mistake would stop another team's topic."""
    place: dict[str, Any] = {"file": "a.yaml", "line": 1}
    names = ("good", "wrong", "policy", "copy")
    rows = [ManifestRow(cluster="main", topic=name, **place) for name in names]
    acl = {**dict.fromkeys(ACL_KEY, "x"), "resource_type": "TOPIC"}
    acls = [
        ResourceRow(
            cluster="main", state="present", owner=None, labels=None, values={**acl, "resource_name": n}, **place
        )
        for n in ("a", "b")
    ]
    files = ParsedManifests(rows=rows, errors=[], resources={ACLS.name: acls})
    ended = {"cluster": "main", "resource_type": "topic", "outcome": "refused", "phase": "manifest"}
    plans = [
        {**ended, "resource": "wrong"},
        {**ended, "resource": "good", "cluster": "other"},
        {**ended, "resource": "policy", "phase": "policy"},
        {**ended, "resource": "copy", "outcome": "skipped"},
        {**ended, "resource": None},
        {**ended, "resource": "x x x TOPIC x b x", "resource_type": "acl"},
    ]
    text = frame(spark, plain(ACLS.schema), [{**acl, "resource_name": "b"}]).select(text_of().alias("text"))
    plans[-1]["resource"] = text.collect()[0]["text"]
    made = frame(spark, plain(PLANS.schema), plans)
    run: Any = SimpleNamespace(spark=spark, plans=lambda: made)
    kept, left_out = loadable.without_refused(run, files)
    assert ([row.topic for row in kept.rows], left_out) == (["good", "policy", "copy"], 2)
    assert [row.value("resource_name") for row in kept.rows_of(ACLS.name)] == ["a"]
    run.plans = lambda: made.limit(0)
    assert loadable.without_refused(run, files) == (files, 0)
