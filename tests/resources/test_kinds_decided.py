"""The promises of every kind of resource before anything is sent: no broker is asked."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructField, StructType

from tests.harness import UNREACHABLE, Estate, cluster_settings
from tests.resources.examples import EXAMPLES, Example
from tests.unit.frames import dicts, frame, policy_facts
from topicledger import policies
from topicledger.config.guards import APPROVED_CLASSES, OF_KINDS, GuardSettings
from topicledger.config.scope import ScopeSettings, matches_ignored
from topicledger.config.settings import KafkaSettings, PolicySettings, PolicySpec, Settings, TablesSettings
from topicledger.files.reading import read_manifest_files
from topicledger.files.resource_rows import errors
from topicledger.files.writing import write_manifests
from topicledger.ledger.unloaded import Unloaded
from topicledger.manifests.file_rows import broken
from topicledger.manifests.files import ResourceRow
from topicledger.manifests.rows import Transform
from topicledger.model import TOPIC, Decision, Refusal
from topicledger.model.scope import Scope
from topicledger.naming import Sections
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus
from topicledger.plan import resources, scoping
from topicledger.plan.approvals import classes_of
from topicledger.plan.decided import decided_again
from topicledger.plan.lines import ROW, change_in_words, planned_action
from topicledger.plan.resources import unlisted
from topicledger.report import advice
from topicledger.report.listings import listings_of
from topicledger.report.resources import Owned, OwnedChange, OwnerCounts
from topicledger.resources import building, ignoring, registry
from topicledger.resources.acls.names import AclSettings
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import ACTIONS, KINDS
from topicledger.resources.scoped import left_outside, with_inside
from topicledger.schemas import ACLS, PLANS

of_every_kind = pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.table)
LONG = {ACLS.name}
"""Tables of kinds whose decisions take many steps: most of these tests leave them to `make test-all`, and to tests of
the kind itself."""
of_every_short_kind = pytest.mark.parametrize(
    "example",
    [pytest.param(each, marks=[pytest.mark.thorough] * (each.table in LONG)) for each in EXAMPLES],
    ids=lambda each: each.table,
)
MANY = dict.fromkeys(OF_KINDS, 100)
DONE = StructType(
    [
        *(StructField(name, StringType()) for name in ("cluster", "resource", "action")),
        *(StructField(name, MapType(StringType(), StringType())) for name in ("before", "after", "now")),
    ]
)
"""What a run changed, as `AsRows.undo` gets it."""
STATUSES = {"main": ClusterStatus(cluster_id="kafka-main")}


def settings(guards: Mapping[str, int], policies: PolicySettings | None = None) -> Settings:
    return Settings(
        path=Path("kinds.toml"),
        tables=TablesSettings(root=""),
        clusters={"main": cluster_settings("main", "127.0.0.1:1")},
        of_kinds=Sections([AclSettings(manage=("",))]),
        guards=GuardSettings(of_kinds=guards),
        policies=policies or PolicySettings(),
    )


def declared(example: Example) -> list[dict[str, Any]]:
    rows = [
        example.row("new", owner="a"),
        example.row("same"),
        example.absent("gone"),
        example.absent("never"),
        example.row("wrong") | example.refused,
        *([example.row("other", example.others)] if example.others is not None else []),
    ]
    return [{"cluster": "main", **row} for row in rows]


def decided(
    spark: SparkSession, example: Example, made: Settings, validated_by: Transform = lambda rows: rows
) -> dict[str, dict[str, Any]]:
    """By the example's name of the resource, the decision of a run.

    `wrong` is the refused row, `protected` the live resource that it may mean.
    """
    rows = decisions(spark, example, made, validated_by)
    by_text = {row["resource"]: row for row in rows}
    known = {name: by_text[example.text(name)] for name in (*live(example), "new", "never") if name != "wrong"}
    (wrong,) = (row for row in rows if row["phase"] == "manifest")
    return known | {"wrong": wrong, "protected": by_text[example.text("wrong")]}


def live(example: Example) -> Sequence[str]:
    return ("same", "gone", "wrong", "stranger", *(("other",) if example.others is not None else ()))


def decisions(spark: SparkSession, example: Example, made: Settings, *transforms: Transform) -> list[dict[str, Any]]:
    return dicts(decision_frame(spark, example, made, *transforms))


def decision_frame(spark: SparkSession, example: Example, made: Settings, *transforms: Transform) -> DataFrame:
    kind = example.kind
    rows = [{"cluster": "main", **example.row(name)} for name in live(example)]
    there = frame(spark, kind.observed.table.schema, rows).drop("run_id")
    listed = Listed(rows=there, statuses={"main": ListedStatus(own_principal="User:admin")})
    validated = frame(spark, kind.table.schema, declared(example)).transform(kind.rows.validate(["main"], None))
    return validated.localCheckpoint().transform(kind.deciding.decide(listed, STATUSES, made, *transforms))


def scoped_by(kind: ResourceKind, scope: Scope) -> Transform:
    within = with_inside(scope, kind.deciding.scoped, None, text="resource")
    outside = left_outside(tuple(each.name for each in kind.actions), "resource")
    return lambda rows: rows.transform(within).transform(outside)


@of_every_short_kind
def test_a_scope_selects_by_owner_and_by_text(spark: SparkSession, example: Example) -> None:
    """Nothing outside is planned, guarded or refused."""
    kind, new = example.kind, example.text("new")
    for scope in (Scope(owners=(" A",)), Scope(resources=(f"^{re.escape(new)}$",))):
        made = settings(dict.fromkeys(OF_KINDS, 1))
        rows = decisions(spark, example, made, lambda rows: rows, scoped_by(kind, scope))
        assert {row["resource"] for row in rows if row["decision"] in ACTIONS or row["phase"] is not None} == {new}
        pending = {row["resource"] for row in rows if row["decision"] == Decision.OUTSIDE}
        assert example.text("gone") in pending


@of_every_short_kind
@pytest.mark.parametrize("shared", [False, True])
def test_a_removed_row_leaves_its_resource_to_its_owner(spark: SparkSession, example: Example, shared: bool) -> None:
    """All rows of a principal may go at once, and another owner may declare some of the same principal."""
    kind = example.kind
    row = {"cluster": "main", "state": "present", **example.row("same", owner="a")}
    files = {each: frame(spark, kind.table.schema, rows) for each, rows in {"rows": [], "removed": [row]}.items()}
    others = [{**row, **example.row("new"), "owner": "b"}] if shared else []
    there = frame(spark, kind.observed.table.schema, [{"cluster": "main", **example.row("same")}]).drop("run_id")
    listed = Listed(rows=there, statuses={"main": ListedStatus(own_principal="User:admin")})
    validated = frame(spark, kind.table.schema, others).transform(kind.rows.validate(["main"], None)).localCheckpoint()
    for owner in ("a", "b"):
        run: Any = SimpleNamespace(
            scope=Scope(owners=(owner,), files=True),
            unloaded={kind.table.name: Unloaded(rows=files["rows"], removed=files["removed"])},
            version_of=lambda _: 1,
            ledger=SimpleNamespace(read_at=lambda *_: files["removed"]),
        )
        within = scoping.resources(run, kind, ["main"])
        decide = kind.deciding.decide(listed, STATUSES, settings(MANY), lambda rows: rows, within)
        (left,) = [each for each in dicts(validated.transform(decide)) if each["resource"] == example.text("same")]
        if owner == "a":
            assert (left["owner"], left["decision"]) == ("a", example.undeclared)
        else:
            assert left["decision"] in (Decision.OUTSIDE, None)


@of_every_short_kind
def test_a_cluster_that_an_earlier_start_did_not_reach_is_planned_later(spark: SparkSession, example: Example) -> None:
    """A row that needs nothing is skipped. One that observe ended ends in policy, after the earlier row of observe."""
    as_left = [example.text(name) for name in ("same", "stranger")]
    stays = (F.col("resource") == as_left[1]) & F.col("phase").isNull()
    rows = decision_frame(spark, example, settings(MANY), lambda rows: rows).withColumns(
        {
            "phase": F.when(stays, "observe").otherwise(F.col("phase")),
            "outcome": F.when(stays, "skipped").otherwise(F.col("outcome")),
        }
    )
    again = dicts(decided_again(registry.found(rows, None, example.kind.resource_type)))
    found = {row["resource"]: (row["action"], row["phase"], row["outcome"]) for row in again}
    assert found[example.text("new")] == (example.adds, None, None)
    assert found[as_left[0]] == (None, "policy", "skipped")
    assert found[as_left[1]][1:] == ("policy", "skipped")


@of_every_kind
def test_rows_are_decided_on(spark: SparkSession, example: Example) -> None:
    """Add, alter, remove, nothing to do, refused, and left to others."""
    found = decided(spark, example, settings(MANY))
    expected = {
        "new": example.adds,
        "same": "unchanged",
        "gone": example.removes,
        "never": "unchanged",
        "stranger": example.undeclared,
        **({} if example.alters is None else {"other": example.alters}),
    }
    assert {name: found[name]["decision"] for name in expected} == expected
    assert {found[name]["phase"] for name in expected} == {None}
    wrong = found["wrong"]
    assert (wrong["outcome"], wrong["error"]) == ("refused", example.error)
    assert found["protected"]["phase"] is not None, "a mistake in a declaration changes something"
    for name, row in found.items():
        if row["decision"] in ACTIONS:
            line = change_in_words(row["decision"], row["resource"], dict(row["before"]), dict(row["after"]))
            assert line is None or line, name


@of_every_short_kind
def test_ignored_resources_are_left_alone(spark: SparkSession, example: Example) -> None:
    """Undeclared ones are neither changed nor counted nor drift; declared ones are refused, also in files."""
    kind, same = example.kind, example.row("same", state="present")
    name, column = next(each for each in kind.names.ignores.items() if each[1] in example.key("a"))
    patterns = tuple(f"^{example.key(each)[column]}$" for each in ("stranger", "same"))
    made = replace(settings(MANY), scope=ScopeSettings(of_kinds={name: patterns}))
    live = [{"cluster": "main", **example.row(each)} for each in ("stranger", "same", "gone")]
    there = frame(spark, kind.observed.table.schema, live).drop("run_id")
    listed = Listed(rows=there, statuses={"main": ListedStatus(own_principal="User:admin")})
    rows = [{"cluster": "main", **each} for each in (same, example.absent("gone"))]
    validated = (
        frame(spark, kind.table.schema, rows).transform(ignoring.validated_by(kind, made, None)).localCheckpoint()
    )
    scoped = ignoring.undecided(kind, made.scope, listed.rows)
    decided = dicts(validated.transform(kind.deciding.decide(listed, STATUSES, made, lambda rows: rows, scoped)))
    found = {row["resource"]: row for row in decided}
    stranger, gone = found[example.text("stranger")], found[example.text("gone")]
    assert (stranger["decision"], stranger["phase"], stranger["before"]) == (None, None, None)
    assert (gone["decision"], gone["phase"]) == (example.removes, None)
    refused = found[example.text("same")]
    assert (refused["outcome"], refused["error"]) == ("refused", example.error)
    assert f"the {column} matches a pattern of scope.{name} in the settings" in refused["error_message"]
    topics = spark.createDataFrame([], "cluster string, topic string")
    found_drift = validated.transform(kind.drift.find(listed, topics, made))
    drift = dicts(found_drift.transform(ignoring.not_about_ignored(kind, made.scope, listed.rows)))
    assert example.text("gone") in {row["what"] for row in drift}
    assert {example.text("stranger"), example.text("same")}.isdisjoint({row["what"] for row in drift})
    of_every_row = {"cluster", "state", "owner", "labels"}
    values = {name: same.get(name) for name in kind.table.schema.names if name not in of_every_row}
    row = ResourceRow(cluster="main", values=values, state="present", owner=None, labels=None, file="f", line=7)
    declared = {kind.table.name: [row]}
    (error,) = errors(declared, made.scope, beside=declared)
    assert str(error) == f"f:7: {kind.resource_type}: {matches_ignored(column, name)}"


@of_every_short_kind
def test_a_guard_of_0_stops_what_it_counts(spark: SparkSession, example: Example) -> None:
    found = decided(spark, example, settings({}))
    guards = {each.name: each.safeguards.guard for each in example.kind.actions}
    assert any(guards.values()), "no action of this kind has a guard"
    for name in found.keys() - {"wrong", "protected"}:
        row = found[name]
        guard = guards.get(row["decision"])
        if guard is not None:
            assert (row["phase"], row["outcome"], row["error"]) == ("guard", "refused", guard.error.value), name
            assert f"guards.{guard.setting} is 0" in row["error_message"]
        elif row["decision"] in guards:
            assert row["phase"] is None, name


@of_every_short_kind
def test_policies_of_its_section_refuse_actions(spark: SparkSession, example: Example) -> None:
    """Every kind has the policy `owner_required`; only the new resource has an owner."""
    kind = example.kind
    spec = PolicySpec(use="owner_required", where="policies[1]")
    made = settings(MANY, PolicySettings(of_kinds={kind.resource_type: (spec,)}))
    rules = [each for each in building.from_settings(made) if each.action in kind.policies.subject.actions]
    validated_by = policies.evaluate(rules, policy_facts(spark), kind.policies.subject)
    found = decided(spark, example, made, validated_by)
    evaluated = {name for name, row in found.items() if row["decision"] == kind.policies.action}
    refused = {name for name, row in found.items() if row["phase"] == "policy"}
    assert refused == evaluated - {"new"}
    assert found["new"]["phase"] is None
    if kind.policies.action == example.removes:
        assert "gone" in refused


@of_every_short_kind
def test_undone_actions_are_rows_that_restore_what_was(spark: SparkSession, example: Example) -> None:
    kind = example.kind
    names = ("new", "gone", *(("other",) if example.others is not None else ()))
    found = decided(spark, example, settings(MANY))
    done = []
    for name in names:
        before, after = dict(found[name]["before"] or {}), dict(found[name]["after"] or {})
        kept = _live_values(spark, example) if name == "other" else {}
        now = {key: value for key, value in kept.items() if key not in before} | after
        row = {"cluster": "main", "resource": found[name]["resource"], "action": found[name]["decision"]}
        done.append({**row, "before": before, "after": after, "now": now or None})
    rows = frame(spark, DONE, done).transform(kind.as_rows.undo)
    undone = {row["resource"]: row for row in dicts(rows)}
    assert {row["stale"] for row in undone.values()} == {None}
    states = {name: undone[example.text(name)]["state"] for name in names}
    assert states == {"new": "absent", "gone": "present", **({"other": "present"} if "other" in names else {})}
    for name in set(names) - {"new"}:
        row = undone[example.text(name)]
        assert {key: row[key] for key in example.row(name)} == example.row(name)


def _live_values(spark: SparkSession, example: Example) -> dict[str, str]:
    """The values of a live resource, as `before` and `after` have them."""
    rows = frame(spark, example.kind.observed.table.schema, [{"cluster": "main", **example.row("other")}])
    (row,) = dicts(rows.transform(example.kind.as_rows.live))
    return dict(row["now"])


@of_every_kind
def test_drift_is_found(spark: SparkSession, example: Example) -> None:
    kind = example.kind
    names = ("same", "gone", "stranger", *(("other",) if example.others is not None else ()))
    live = [{"cluster": "main", **example.row(name)} for name in names]
    there = frame(spark, kind.observed.table.schema, live).drop("run_id")
    listed = Listed(rows=there, statuses={"main": ListedStatus(own_principal="User:admin")})
    validated = frame(spark, kind.table.schema, declared(example)).transform(kind.rows.validate(["main"], None))
    topics = spark.createDataFrame([("main", "kinds")], "cluster string, topic string")
    found = dicts(validated.localCheckpoint().transform(kind.drift.find(listed, topics, settings(MANY))))
    about = {row["what"] for row in found}
    differ = {"new", "gone", "stranger", *(("other",) if example.others is not None else ())}
    assert {example.text(name) for name in differ} <= about
    assert about.isdisjoint(map(example.text, ("same", "never")))
    assert {row["kind"] for row in found} <= {each.value for each in kind.names.drift}


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@of_every_kind
def test_rows_of_files_are_read_back_as_they_were(tmp_path: Path, example: Example, suffix: str) -> None:
    """With owners and labels; a wrong row has the reason that a run gives."""
    rows = [example.row("a b", owner="o", labels={"k": "v"}, state="present"), example.absent("gone")]
    complete = [{name: row.get(name) for name in example.kind.table.schema.names} for row in rows]
    file = tmp_path / f"f.{suffix}"
    assert write_manifests(file, "main", {example.table: complete}, [])[example.table] == 2
    parsed = read_manifest_files([file], io.StringIO(""))
    assert parsed.errors == []
    found = parsed.rows_of(example.table)
    assert [
        {"cluster": each.cluster, "state": each.state, "owner": each.owner, "labels": each.labels, **each.values}
        for each in found
    ] == [{**row, "cluster": "main"} for row in complete]
    table, rules = example.kind.table, example.kind.rows.rules
    assert [*broken(found, table, rules)] == []
    wrong = replace(found[0], values={**found[0].values, **example.refused})
    assert [row for row, _, _ in broken([wrong], table, rules)] == [wrong]


@of_every_kind
def test_lines_of_plans_and_reports_say_what_changes(example: Example) -> None:
    """A name can't act on the terminal, and a report has the change with its owner."""
    for adds, sign in ((True, "+~"), (False, "-~")):
        target = example.target("a\x1b[2J", adds=adds)
        row = {"cluster": "main", "owner": "o", "before": target.before, "after": target.after}
        line = str(planned_action(dict.fromkeys(ROW) | row | {"resource": target.resource, "action": target.action}))
        assert line[0] in sign
        assert target.action in line
        assert "\x1b" not in line
        change = OwnedChange(
            run_id="r",
            cluster="main",
            resource=target.resource,
            owner="o",
            what=example.kind.owners.what(target),
            values=target.after or target.before,
            completed_at=datetime.now(UTC),
        )
        counts = dict.fromkeys((*example.kind.owners.have, *example.kind.owners.moved), 1)
        owners = [OwnerCounts(cluster="main", owner="o", counts=counts)]
        both = {"owners_query": "", "query": "", "since": "ever", "total": 1}
        by_owner, changes = listings_of(Owned(kind=example.kind, owners=owners, changes=[change], **both))
        assert [each.text for each in by_owner.lines[0].cells] == ["o", *["1"] * len(counts)]
        texts = dict(zip(changes.columns, (each.text for each in changes.lines[0].cells), strict=True))
        assert texts["Owner"] == "o"
        assert texts["Change"]
        assert "\x1b" not in "".join(texts.values())


@of_every_kind
def test_a_cluster_that_cannot_be_listed_shows_no_secret(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, example: Example
) -> None:
    monkeypatch.setenv("KINDS_PASSWORD", "hunter22-of-kinds")
    client = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u"}
    password = {"sasl_plain_password": "env:KINDS_PASSWORD"}
    clusters = [cluster_settings("main", "127.0.0.1:1", **client, **password)]
    listed = example.kind.observed.observe(spark, clusters, KafkaSettings(connect_timeout=1.0), {"main": "kafka-main"})
    (status,) = listed.statuses.values()
    assert status.error is Refusal.CLUSTER_UNREACHABLE
    assert status.message is not None
    assert "main" in status.message
    assert "hunter22" not in status.message
    assert listed.rows.isEmpty()


def test_a_kind_that_a_cluster_does_not_list_any_more_is_refused_alone(spark: SparkSession) -> None:
    """Policies need the list before a saved plan is applied. Other actions are applied."""
    kind, *others = KINDS
    barred = ListedStatus(error=Refusal.NOT_PERMITTED, message="grant it")
    lost = ListedStatus(error=Refusal.CLUSTER_UNREACHABLE, message="no answer")
    statuses = {"main": barred, "away": lost, "east": ListedStatus()}
    types = [TOPIC, *(each.resource_type for each in (kind, *others))]
    planned = [{"cluster": name, "resource_type": of_type, "resource": "r"} for name in statuses for of_type in types]
    listed = Listed(rows=frame(spark, kind.observed.table.schema, []), statuses=statuses)
    (transform,) = unlisted(kind, listed)
    (refused,) = dicts(frame(spark, PLANS.schema, planned).transform(transform))
    assert (refused["cluster"], refused["resource_type"]) == ("main", kind.resource_type)
    assert (refused["error"], refused["error_message"]) == ("NOT_PERMITTED", "grant it")


def test_a_revert_includes_clusters_that_the_settings_do_not_have(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are refused as of an unknown cluster, apart from the others, which they don't mean. `--cluster` leaves
    them out."""
    of_type = KINDS[0].resource_type
    rows = [{"cluster": name, "resource_type": of_type, "resource": "r"} for name in ("main", "gone")]
    done = frame(spark, PLANS.schema, rows).select("cluster", "resource_type", "resource")
    monkeypatch.setattr(resources, "changed_by", lambda *_: done)
    clusters = [cluster_settings("main", "127.0.0.1:1")]
    run: Any = SimpleNamespace(reverts="x", ledger=None, settings=SimpleNamespace(clusters={"main": clusters[0]}))
    for selected, expected in ((None, {"main": ["main"], "gone": []}), (["main"], {"main": ["main"]})):
        found = {}
        for goal in resources.goals(run, clusters, selected):
            (name,) = (row["cluster"] for row in goal.validated.collect())
            found[name] = [each.name for each in goal.clusters]
        assert found == expected


def test_every_kind_has_examples_here() -> None:
    assert [each.table for each in EXAMPLES] == [kind.table.name for kind in KINDS]


@of_every_kind
def test_names_of_a_kind_agree_with_what_it_registers(example: Example) -> None:
    kind = example.kind
    assert [each.name for each in kind.actions] == [each.value for each in kind.names.actions]
    assert {ACTIONS[each].resource_type for each in kind.names.actions} == {kind.resource_type}
    assert kind.names.approved_as in APPROVED_CLASSES
    assert {kind.names.approved_as} == {*classes_of(dict.fromkeys(kind.names.actions, ()))}
    guards: Sequence[str] = [each.safeguards.guard.setting for each in kind.actions if each.safeguards.guard]
    assert set(guards) == set(kind.names.guards) <= set(OF_KINDS)
    assert set(kind.drift.advice) == set(kind.names.drift)
    assert all(advice.of_error(each.value) != advice.UNKNOWN for each in kind.names.refusals)


@pytest.mark.thorough
def test_an_audit_counts_and_names_the_invalid_rows_of_every_kind(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They aren't compared, whether the cluster is reached or not; those outside the audit's scope don't count."""
    estate = Estate(spark, tmp_path / "ledger", {"main": UNREACHABLE}, kafka=KafkaSettings(connect_timeout=1.0))
    estate.declare({"topic": "wrong topic"}, {"topic": "fine"})
    for example in EXAMPLES:
        table = example.kind.table
        rows = [*declared(example), {"cluster": "main", **example.row("theirs", owner="b"), **example.refused}]
        made = frame(spark, table.schema, rows)
        made.write.format("delta").mode("append").save(estate.ledger.location(table))
    with caplog.at_level("WARNING", "topicledger"):
        found = estate.run_audit()
    assert (found.exit_code, found.manifests_refused) == (1, 1 + 2 * len(EXAMPLES))
    invalid = {record.getMessage().split(" on main: ")[0] for record in caplog.records}
    # Other columns than the key may be what is wrong.
    assert {each.split(": ")[0] for each in invalid} >= {"manifests", *(each.table for each in EXAMPLES)}
    assert estate.run_audit(scope=Scope(owners=("B",))).manifests_refused == len(EXAMPLES)
