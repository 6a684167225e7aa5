"""Declared ACLs beside live ones become decisions: what is added, what is removed, and what stays for whose sake."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.harness import cluster_settings
from tests.unit.frames import dicts, frame, policy_facts
from topicledger import policies
from topicledger.config.guards import GuardSettings
from topicledger.config.scope import ScopeSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import Target, Work
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.naming import Sections
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus
from topicledger.plan.resources import changed_declarations
from topicledger.policies import Policy, built_in
from topicledger.resources import ignoring
from topicledger.resources.acls import rows as manifests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.decide import decide
from topicledger.resources.acls.kind import KIND
from topicledger.resources.acls.names import AclAction, AclSettings
from topicledger.resources.acls.policies import SUBJECT
from topicledger.resources.scoped import left_outside, with_inside
from topicledger.schemas import ACL_KEY, ACLS, OBSERVED_ACLS, PLANS

SETTINGS = Settings(
    path=Path("drawn.toml"),
    tables=TablesSettings(root=""),
    clusters={},
    of_kinds=Sections([AclSettings(manage=("",))]),
    guards=GuardSettings(of_kinds={"max_acl_deletes": 1000}),
)
STATUS = ListedStatus(own_principal="User:run", allow_everyone=False)

Rows: TypeAlias = Sequence[dict[str, Any]]


def right(principal: str = "User:app", operation: str = "READ", name: str = "orders", **given: Any) -> dict[str, Any]:
    """An ACL on a topic, unless said otherwise."""
    usual = {"permission": "ALLOW", "resource_type": "TOPIC", "pattern_type": "LITERAL", "host": "*"}
    return {**usual, "principal": principal, "operation": operation, "resource_name": name, **given}


def text(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in ACL_KEY)


def on_cluster(principal: str, operation: str, **given: Any) -> dict[str, Any]:
    return right(principal, operation, "kafka-cluster", resource_type="CLUSTER", **given)


@dataclass(frozen=True)
class Cluster:
    """Declared and existing ACLs of one cluster."""

    declared: Rows
    live: Rows = ()
    status: ListedStatus = STATUS


Decisions: TypeAlias = Mapping[str, Mapping[str, Any]]


def decided(
    spark: SparkSession,
    clusters: Mapping[str, Cluster],
    *,
    settings: Settings = SETTINGS,
    policy: tuple[str, Mapping[str, Any]] | None = None,
    scope: Scope = EVERYTHING,
    rounds: list[int] | None = None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """By cluster and text, the decisions; those about a cluster that the settings don't name are of `none`."""
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in (*clusters, "none")}
    for row in dicts(decision(spark, clusters, settings=settings, policy=policy, scope=scope, rounds=rounds)):
        found[row["cluster"] if row["cluster"] in clusters else "none"][row["resource"]] = row
    return found


def decision(
    spark: SparkSession,
    clusters: Mapping[str, Cluster],
    *,
    settings: Settings = SETTINGS,
    policy: tuple[str, Mapping[str, Any]] | None = None,
    scope: Scope = EVERYTHING,
    rounds: list[int] | None = None,
) -> DataFrame:
    """The rows of `decide`; `rounds` gets an item for each evaluation of the policy."""

    def rows(of: Callable[[Cluster], Rows]) -> list[dict[str, Any]]:
        return [{"cluster": name, **row} for name, each in clusters.items() for row in of(each)]

    settings = replace(settings, clusters={name: cluster_settings(name, "localhost:1") for name in clusters})
    live = frame(spark, OBSERVED_ACLS.schema, rows(lambda each: each.live)).drop("run_id")
    listed = Listed(rows=live, statuses={name: each.status for name, each in clusters.items()})
    declared = frame(spark, ACLS.schema, rows(lambda each: each.declared))
    validated = declared.transform(manifests.validate(list(clusters), None)).localCheckpoint()

    def validated_by(rows: DataFrame) -> DataFrame:
        if policy is None:
            return rows
        if rounds is not None:
            rounds.append(len(rounds))
        rule = built_in.BUILT_IN[AclAction.ACL_ADD][policy[0]](**policy[1])
        made = Policy(name=policy[0], action=AclAction.ACL_ADD, rule=rule)
        return rows.transform(policies.evaluate([made], policy_facts(spark), SUBJECT))

    statuses = {name: ClusterStatus(cluster_id=f"kafka-{name}") for name in clusters}
    ignored = ignoring.undecided(KIND, settings.scope, live)

    def within(rows: DataFrame) -> DataFrame:
        return rows.transform(scoped_by(scope)).transform(ignored)

    return validated.transform(decide(listed, statuses, settings, validated_by, within))


def scoped_by(scope: Scope) -> Transform:
    if not scope.narrows:
        return lambda rows: rows
    inside = with_inside(scope, KIND.deciding.scoped, None, text="resource")
    return lambda rows: rows.transform(inside).transform(left_outside(tuple(AclAction), "resource"))


def removed(found: Decisions) -> set[str]:
    """The texts of ACLs that will be removed."""
    return {name for name, row in found.items() if row["decision"] == "acl_delete" and row["phase"] is None}


MISTAKES = {
    "another host that is none": {"host": "app01.example.org"},
    "an address as no broker writes it": {"host": "2001:db8::1"},
    "an unknown operation": {"operation": "REED"},
    "an operation of another type": {"operation": "CLUSTER_ACTION"},
    "an unknown permission": {"permission": "GRANT", "host": "10.0.0.1"},
    "an unknown type": {"resource_type": "Topic"},
    "the wrong type": {"resource_type": "CLUSTER"},
    "an unknown pattern": {"pattern_type": "MATCH"},
    "a name that no topic has": {"resource_name": "orders/new"},
    "no name": {"resource_name": None},
    "* as a prefix": {"resource_name": "*", "pattern_type": "PREFIXED"},
    "an unknown state": {"state": "here", "host": "10.0.0.1"},
    "an unknown cluster": {"cluster": "mian"},
    "no cluster": {"cluster": None},
}


def some(principal: str) -> list[dict[str, Any]]:
    """ACLs of a principal that a row about `orders` may mean."""
    prefix = {"resource_name": "ord", "pattern_type": "PREFIXED"}
    rows = ({}, {"operation": "WRITE"}, {"operation": "ALTER_CONFIGS"}, {"host": "10.0.0.9"}, prefix)
    return [{**right(principal), **row} for row in rows]


def test_refused_row_protects_what_it_may_mean(spark: SparkSession) -> None:
    """A mistake in a declaration removes nothing; ACLs of others are removed as before."""
    principals = {mistake: f"User:{number}" for number, mistake in enumerate(MISTAKES)}
    declared = [right(principals[mistake], **given) for mistake, given in MISTAKES.items()]
    strangers = [right("User:gone"), right("User:1", name="elsewhere")]
    live = [*strangers, *(each for who in principals.values() for each in some(who))]
    more = {
        **{str(each): Cluster([{**right(), "principal": each}], some("User:app")) for each in (None, "Usr:app")},
        "declared absent": Cluster([right(host="wrong"), right(state="absent")], [right()]),
        "an unknown pattern": Cluster([right(pattern_type="MATCH")], [right(name="orders.eu")]),
        "every name, by an unknown pattern": Cluster(
            [right(pattern_type="literal", name="*")], [right(name="orders.", pattern_type="PREFIXED"), right()]
        ),
        "a blank, and an unknown operation": Cluster([right("User:app ", "REED")], [right()]),
        "a prefix with a *, and a wrong host": Cluster(
            [right(resource_type="GROUP", name="orders-*", host="app01")],
            [right(resource_type="GROUP", name="orders-", pattern_type="PREFIXED")],
        ),
        "CREATE on the cluster": Cluster(
            [right(operation="CREAT", name="app-", pattern_type="PREFIXED")], [on_cluster("User:app", "CREATE")]
        ),
        "CREATE on the cluster, by another type": Cluster(
            [right(operation="CREATE", name="app-", resource_type="topic")], [on_cluster("User:app", "CREATE")]
        ),
        "a denial for itself, which the run refuses": Cluster(
            [right("User:run", "ALL", permission="DENY")], [right("User:run", permission="DENY")]
        ),
    }
    found = decided(spark, {"main": Cluster(declared, live), "other": Cluster([]), **more})
    assert not any(removed(found.pop(name)) for name in more)
    assert sum(row["phase"] == "manifest" for rows in found.values() for row in rows.values()) == len(MISTAKES)
    for mistake, principal in principals.items():
        for each in some(principal):
            kept = found["main"][text(each)]
            assert (kept["phase"], kept["outcome"], kept["error"]) == ("guard", "skipped", None), mistake
            assert "a refused row may be meant to keep or to replace it" in kept["error_message"]
    assert removed(found["main"]) == set(map(text, strangers))


@pytest.mark.thorough
def test_refused_row_protects_nothing_else(spark: SparkSession) -> None:
    """Another principal, type or name is removed, and so is what is declared absent and isn't replaced."""
    wrong = right(host="wrong")
    others = [right("User:b"), right(name="payments"), right(resource_type="GROUP"), right(operation="ALTER_CONFIGS")]
    nobody = [{**right(), "principal": each} for each in (None, "Usr:app")]
    stranger = right("User:b", name="elsewhere")
    everyone = right("User:*", host="wrong")
    found = decided(
        spark,
        {
            "others": Cluster([wrong, {**others[3], "state": "absent"}], [*others, right()]),
            "explicit": Cluster([wrong, right(state="absent")], [right()]),
            "no principal": Cluster(nobody[:1], [*some("User:app"), *some("User:b"), stranger]),
            "no such principal": Cluster(nobody[1:], [*some("User:app"), *some("User:b"), stranger]),
            "everyone": Cluster([everyone], [right("User:a"), stranger]),
            "of everyone": Cluster([wrong], [right("User:*", permission="DENY")]),
        },
    )
    assert {name: removed(rows) for name, rows in found.items() if removed(rows)} == {
        "others": set(map(text, others)),
        "no principal": {text(stranger)},
        "no such principal": {text(stranger)},
        "everyone": {text(stranger)},
    }


@pytest.mark.thorough
def test_add_that_a_policy_refuses_protects_too(spark: SparkSession) -> None:
    new, old, other = right(host="10.0.0.1"), right(), right("User:b")
    policy = ("acl_forbidden", {"principals": ["^User:app$"]})
    found = decided(spark, {"main": Cluster([new], [old, other])}, policy=policy)["main"]
    assert found[text(new)]["error"] == "POLICY_VIOLATION"
    assert removed(found) == {text(other)}


@pytest.mark.thorough
def test_removal_that_stays_makes_no_room_for_an_add(spark: SparkSession) -> None:
    """Two may stay or come; the second add fits only if its predecessor goes, and that one stays."""
    old = [right(name="a"), right(name="b")]
    new = [right(name="a", host="10.0.0.1"), right(name="b", host="10.0.0.1"), right(name="b", host="10.0.0.2")]
    policy = ("max_acls_per_principal", {"max": 2})
    found = decided(spark, {"main": Cluster(new, old)}, policy=policy)["main"]
    assert removed(found) == {text(old[0])}
    assert {name for name, row in found.items() if row["error"] == "POLICY_VIOLATION"} == set(map(text, new[1:]))
    assert found[text(new[0])]["phase"] is None


def replaced_by(row: Mapping[str, Any]) -> set[Acl]:
    return {Acl.of(each) for each in json.loads(row["after"].get("replaced_by", "[]"))}


PARTS = [right(), right(operation="WRITE")]
REPLACED: dict[str, tuple[dict[str, Any], Rows]] = {
    "ALL by two": (right(operation="ALL"), PARTS),
    "READ by ALL": (right(), [right(operation="ALL")]),
    "what READ implies": (right(operation="DESCRIBE"), [right()]),
    "a prefix by names": (right(name="o", pattern_type="PREFIXED"), [right(), right(name="other")]),
    "every topic by a prefix": (right(name="*"), [right(name="o", pattern_type="PREFIXED")]),
    "a host by hosts": (right(), [right(host="10.0.0.1"), right(host="10.0.0.2")]),
    "a denial": (right(permission="DENY"), [right(operation="ALL", permission="DENY")]),
    "a principal by everyone": (right(), [right("User:*")]),
    "everyone by principals": (right("User:*"), [right("User:a"), right("User:b")]),
    "everything": (
        right("User:*", "ALL", "*"),
        [right("User:a"), right("User:b", "WRITE", "o", host="0:0:0:0:0:0:0:1")],
    ),
    "nothing": (right(), []),
}
"""What is removed, and all that replaces it."""
UNRELATED = [
    right(name="-"),
    right(permission="DENY"),
    right(resource_type="GROUP"),
    right(operation="ALTER_CONFIGS"),
    right("User:z"),
]


@pytest.mark.thorough
def test_removal_waits_for_every_add_that_grants_some_of_it(spark: SparkSession) -> None:
    clusters = {
        name: Cluster([*new, *(UNRELATED if name in ("READ by ALL", "nothing") else ())], [old])
        for name, (old, new) in REPLACED.items()
    }
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(manage=("",), super_users=("User:run",))]))
    found = decided(spark, clusters, settings=settings)
    for name, (old, new) in REPLACED.items():
        assert removed(found[name]) == {text(old)}, name
        assert replaced_by(found[name][text(old)]) == set(map(Acl.of, new)), name


@pytest.mark.thorough
def test_removal_stays_if_an_add_outside_the_scope_replaces_it(spark: SparkSession) -> None:
    """Without that add, the principal would lose its access until another run makes it."""
    new, own, gone = right(host="10.0.0.1"), right(name="mine"), right(name="elsewhere")
    scope, declared = Scope(owners=("a",)), [{**new, "owner": "b"}, {**own, "owner": "a"}]
    clusters = {
        "undeclared": Cluster(declared, [right(), gone, own]),
        "absent": Cluster([declared[0], right(state="absent", owner="a")], [right()]),
        "done": Cluster(declared, [right(), new, own]),
    }
    found = decided(spark, clusters, scope=scope)
    assert removed(found["undeclared"]) == {text(gone)}
    assert removed(found["absent"]) == set()
    assert removed(found["done"]) == {text(right())}
    kept = found["undeclared"][text(right())]
    assert (kept["outcome"], kept["error"]) == ("skipped", None)
    assert kept["error_message"].startswith("it stays: an add outside the scope of this run would replace it: ")


NO_DELETES = replace(SETTINGS, guards=GuardSettings(of_kinds={"max_acl_deletes": 0}))


def allowable(found: Decisions) -> set[str]:
    """The texts of ACLs that an approval may let a run remove."""
    return {name for name, row in found.items() if row["guards"] is not None}


@pytest.mark.thorough
def test_approvals_allow_removals_as_a_run_would_make_them(spark: SparkSession) -> None:
    """Those that wait for adds have these; none is allowed that a refused add replaces, or of the last on a cluster."""
    new, old, bad = right(host="10.0.0.1"), right(), right("User:bad")
    clusters = {
        "waits": Cluster([new], [old]),
        "replaced": Cluster([{**bad, "host": "10.0.0.1"}], [bad, old]),
        "last": Cluster([], [FOREIGN, old], OPEN),
    }
    policy = ("acl_forbidden", {"principals": ["^User:bad$"]})
    found = decided(spark, clusters, policy=policy, settings=NO_DELETES)
    assert {name: (removed(rows), allowable(rows)) for name, rows in found.items() if rows} == dict.fromkeys(
        clusters, (set(), {text(old)})
    )
    assert replaced_by(found["waits"][text(old)]) == {Acl.of(new)}
    assert (found["replaced"][text(bad)]["outcome"], found["replaced"][text(bad)]["error"]) == ("skipped", None)
    assert found["last"][text(FOREIGN)]["error"] == "LAST_CLUSTER_ACL"
    assert set(warnings(found["last"])) == {text(old)}, "without a warning, it would be refused when it is sent"


def planned_delete(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cluster": "main", "resource_type": "acl", "resource": text(row), "action": "acl_delete", "batch": 0,
        "before": Acl.of(row)._asdict(), "after": {},
    }  # fmt: skip


@pytest.mark.thorough
def test_row_refused_since_the_plan_protects_too(spark: SparkSession) -> None:
    """The plan was made before the mistake, which is also in the cluster, and the run is about one cluster only."""
    plans = frame(spark, PLANS.schema, [planned_delete(right()), planned_delete(right("User:b"))])
    wrong = frame(spark, ACLS.schema, [right(host="wrong", cluster="mian")])
    settings = replace(SETTINGS, clusters={name: cluster_settings(name, "localhost:1") for name in ("main", "other")})
    run = SimpleNamespace(
        settings=settings, selected=("main",), scope=EVERYTHING, reverts=None, of_files=False,
        of_earlier_manifests=False, latest_version_of=lambda _: 1, resources=lambda *_: wrong,
        ledger=SimpleNamespace(exists=lambda _: True, latest_version=lambda _: 2),
    )  # fmt: skip
    work = {"main": (0, [[Target(resource=text(right()), action=AclAction.ACL_DELETE)]])}
    refusing = changed_declarations(cast(Run, run), cast(Work, work))
    (row,) = (row for transform in refusing for row in dicts(plans.transform(transform)))
    assert (row["resource"], row["error"]) == (text(right()), "CHANGED_SINCE_PLAN")
    assert "a refused row may be meant to keep or to replace it" in row["error_message"]


@pytest.mark.parametrize("of_files", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_acl_declared_since_the_plan_keeps_what_it_may_replace(spark: SparkSession, of_files: bool) -> None:
    """READ is declared after the removal of ALL was planned: until it is added, ALL grants it.

    A plan from files knows rows that the table didn't have: it adds the ACL for b, and that for c exists.
    """
    wide = [right(who, operation="ALL") for who in ("User:app", "User:b", "User:c")]
    added, there = right("User:b", cluster="main"), right("User:c", cluster="main")
    before = [right(host="10.0.0.1", cluster="main"), *(() if of_files else (added, there))]
    latest = [*before, right(cluster="main"), *((added, there) if of_files else ())]
    adds = {**planned_delete(added), "action": "acl_add", "before": {}, "after": Acl.of(added)._asdict()}
    plans = frame(spark, PLANS.schema, [adds, *map(planned_delete, wide)])
    versions = {1: frame(spark, ACLS.schema, before), 2: frame(spark, ACLS.schema, latest)}
    observed = frame(spark, OBSERVED_ACLS.schema, [there])
    settings = replace(SETTINGS, clusters={"main": cluster_settings("main", "localhost:1")})
    run = SimpleNamespace(
        settings=settings, selected=None, scope=EVERYTHING, reverts=None, of_files=of_files,
        of_earlier_manifests=False, latest_version_of=lambda _: 1, resources=lambda _, version: versions[version],
        ledger=SimpleNamespace(exists=lambda _: True, latest_version=lambda _: 2, read=lambda _: observed),
        plans=lambda: plans,
    )  # fmt: skip
    work = {"main": (0, [[Target(resource=text(wide[0]), action=AclAction.ACL_DELETE)]])}
    refusing = changed_declarations(cast(Run, run), cast(Work, work))
    (row,) = (row for transform in refusing for row in dicts(plans.transform(transform)))
    assert (row["resource"], row["error"]) == (text(wide[0]), "CHANGED_SINCE_PLAN")
    assert f"an ACL that is declared since the plan may replace it: {text(right())}" in row["error_message"]


def on_pay(**given: Any) -> dict[str, Any]:
    return right("User:b", **{"name": "pay.secret", **given})


PAY, SECRET = on_pay(name="pay", pattern_type="PREFIXED"), on_pay(permission="DENY")
ALL_TOPICS, NO_TOPIC = right("User:*", name="*"), right("User:b", name="*", permission="DENY")


def test_deny_stays_with_an_allow_that_it_restricts(spark: SparkSession) -> None:
    """Without the DENY, the ALLOW would grant more than anybody declared, for any reason that keeps it."""
    refused = on_pay(name="pay.open", host="app01")
    absent = {**ALL_TOPICS, "state": "absent"}
    clusters = {
        "a refused row": Cluster([refused], [PAY, SECRET]),
        "a refused row, and absent": Cluster([refused, {**SECRET, "state": "absent"}], [PAY, SECRET]),
        "a refused row, denied to everyone": Cluster([refused], [PAY, {**SECRET, "principal": "User:*"}]),
        "the run's own rights": Cluster([], [ALL_TOPICS, NO_TOPIC]),
        "an unknown principal": Cluster([absent], [ALL_TOPICS, NO_TOPIC], replace(STATUS, own_principal=None)),
    }
    found = decided(spark, clusters)
    assert {name: removed(rows) for name, rows in found.items() if removed(rows)} == {}
    kept = found["a refused row"][text(SECRET)]
    assert (kept["phase"], kept["outcome"], kept["error"]) == ("guard", "skipped", None)
    assert kept["error_message"] == f"it stays: it may restrict an ALLOW that isn't removed, either: {text(PAY)}"
    of_own = found["the run's own rights"][text(NO_TOPIC)]
    assert of_own["error_message"].endswith(f"an ALLOW that isn't removed, either: {text(ALL_TOPICS)}")


@pytest.mark.thorough
def test_deny_stays_with_an_allow_that_only_other_principals_manage(spark: SparkSession) -> None:
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(manage=("^User:b$",))]))
    absent = {**ALL_TOPICS, "state": "absent"}
    clusters = {"absent": Cluster([absent], [ALL_TOPICS, NO_TOPIC]), "undeclared": Cluster([], [ALL_TOPICS, NO_TOPIC])}
    found = decided(spark, clusters, settings=settings)
    assert found["absent"][text(ALL_TOPICS)]["error"] == "NOT_MANAGED"
    assert removed(found["absent"]) == set()
    assert removed(found["undeclared"]) == {text(NO_TOPIC)}, "nobody wants to remove the ALLOW"


@pytest.mark.thorough
def test_deny_goes_with_or_without_the_allows_that_go(spark: SparkSession) -> None:
    """It waits for those that go, which its row names; others have nothing to do with it."""
    others = [
        right("User:c", name="pay.secret"), on_pay(name="elsewhere"), on_pay(operation="ALTER"),
        on_pay(resource_type="GROUP"),
    ]  # fmt: skip
    mistakes = [{**each, "host": "app01"} for each in others]
    clusters = {
        "both go": Cluster([], [PAY, SECRET]),
        "declared": Cluster([PAY], [PAY, SECRET]),
        "alone": Cluster([], [SECRET]),
        "others stay": Cluster(mistakes[:1], [*others, SECRET]),
    }
    found = decided(spark, clusters)
    assert {name: removed(rows) for name, rows in found.items() if rows} == {
        "both go": {text(PAY), text(SECRET)},
        "declared": {text(SECRET)},
        "alone": {text(SECRET)},
        "others stay": {text(each) for each in (*others[1:], SECRET)},
    }
    waits = found["both go"][text(SECRET)]
    assert {Acl.of(each) for each in json.loads(waits["after"]["restricts"])} == {Acl.of(PAY)}
    assert waits["waits"], "its batch comes after that of the ALLOW"
    assert found["both go"][text(PAY)]["after"] == found["alone"][text(SECRET)]["after"] == {}


@pytest.mark.thorough
def test_deny_stays_if_a_policy_refuses_what_would_replace_the_allow(spark: SparkSession) -> None:
    policy = ("acl_forbidden", {"names": ["open"]})
    clusters = {"main": Cluster([on_pay(name="pay.open")], [PAY, SECRET])}
    found = decided(spark, clusters, policy=policy, settings=NO_DELETES)["main"]
    assert allowable(found) == set(), "no approval lets it through, either"
    assert {found[text(each)]["outcome"] for each in (PAY, SECRET)} == {"skipped"}


@pytest.mark.thorough
def test_deny_stays_if_the_allow_is_outside_the_scope_or_ignored(spark: SparkSession) -> None:
    clusters = {"main": Cluster([], [PAY, SECRET])}
    assert removed(decided(spark, clusters, scope=Scope(topics=("^pay\\.secret$",)))["main"]) == set()
    ignore = ScopeSettings(of_kinds={"ignore_principals": ("^User:[*]$",)})
    clusters = {"main": Cluster([], [ALL_TOPICS, NO_TOPIC])}
    super_user = Sections([AclSettings(manage=("",), super_users=("User:run",))])
    settings = replace(SETTINGS, scope=ignore, of_kinds=super_user)
    assert removed(decided(spark, clusters, settings=settings)["main"]) == set()


TO_ALL = {**SECRET, "principal": "User:*"}


def added(found: Decisions) -> set[str]:
    """The texts of ACLs that will be added."""
    return {name for name, row in found.items() if row["decision"] == "acl_add" and row["phase"] is None}


def test_allow_is_not_added_without_the_deny_that_restricts_it(spark: SparkSession) -> None:
    """Else it would grant more than declared, for any reason for which the DENY isn't added."""
    wide, other, deny = on_pay(operation="ALL"), right(), {**SECRET, "operation": "DESCRIBE"}
    certificate = replace(STATUS, own_principal=None)
    twice = ({**SECRET, "state": "absent", "owner": "a"}, {**SECRET, "owner": "b"})
    one, own = {**SECRET, "host": "10.0.0.1"}, on_cluster("User:run", "ALTER")
    clusters = {
        "present and absent": Cluster([PAY, *twice]),
        "absent, and wrong": Cluster([PAY, {**NO_TOPIC, "principal": "Group:x", "state": "absent"}, right("User:z")]),
        "absent, elsewhere": Cluster([PAY, {**ALL_TOPICS, "permission": "DENY", "state": "absent", "cluster": "old"}]),
        "another operation": Cluster([{**PAY, "operation": "WRITE"}, SECRET], (), certificate),
        "another host": Cluster([{**PAY, "host": "10.0.0.2"}, one], (), certificate),
        "the run's own": Cluster([own, on_cluster("User:*", "ALTER", permission="DENY")]),
        "another type": Cluster(
            [on_cluster("User:b", "CREATE"), right("User:b", "CREATE", permission="DENY")], (), certificate
        ),
        "a wrong host": Cluster([PAY, other, {**SECRET, "host": "app01"}]),
        "a wrong permission": Cluster([PAY, {**SECRET, "permission": "DENIED"}]),
        "the run's own rights": Cluster([PAY, TO_ALL]),
        "an unknown principal": Cluster([PAY, SECRET], (), certificate),
        "implied": Cluster([PAY, deny], (), certificate),
        "a wrong host, and a blank": Cluster([PAY, {**SECRET, "principal": f"{PAY['principal']} ", "host": "app01"}]),
        "an ALLOW to replace": Cluster([on_pay(), {**SECRET, "host": "app01"}], [wide]),
        "added": Cluster([PAY, other, SECRET]),
        "there": Cluster([PAY, TO_ALL], [TO_ALL]),
        "no such resource": Cluster([PAY, {**SECRET, "resource_name": "sales", "host": "app01"}]),
        "absent": Cluster([PAY, {**SECRET, "host": "app01", "state": "absent"}]),
    }
    found = decided(spark, clusters)
    assert {name: added(rows) for name, rows in found.items() if added(rows)} == {
        "absent, and wrong": {text(PAY), text(right("User:z"))},
        "absent, elsewhere": {text(PAY)},
        "another operation": {text({**PAY, "operation": "WRITE"})},
        "another host": {text({**PAY, "host": "10.0.0.2"})},
        "the run's own": {text(own)},
        "another type": {text(on_cluster("User:b", "CREATE"))},
        "a wrong host": {text(other)},
        "added": {text(PAY), text(other), text(SECRET)},
        "there": {text(PAY)},
        "no such resource": {text(PAY)},
        "absent": {text(PAY)},
    }
    stopped = found["a wrong host"][text(PAY)]
    assert (stopped["phase"], stopped["outcome"], stopped["error"]) == ("guard", "refused", "DENY_MISSING")
    missing = text({**SECRET, "host": "app01"})
    assert stopped["error_message"] == f"a DENY that may restrict it isn't added, so it isn't, either: {missing}"
    assert removed(found["an ALLOW to replace"]) == set(), "it stays, since what replaces it isn't added"
    for name, denied in (("added", SECRET), ("there", TO_ALL)):
        waits = found[name][text(PAY)]
        assert [Acl.of(each) for each in json.loads(waits["before"]["restricted_by"])] == [Acl.of(denied)]
        assert waits["waits"], "its batch comes after that of the DENY"
    assert found["added"][text(other)]["before"] == found["added"][text(SECRET)]["before"] == {}


@pytest.mark.thorough
@pytest.mark.parametrize("manage", [(), ("",)])
def test_allow_is_not_added_if_a_policy_refuses_the_deny(spark: SparkSession, manage: tuple[str, ...]) -> None:
    """Also if the policy refuses it for the sake of the ALLOW, which it counts first."""
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(manage=manage)]))
    clusters = {"main": Cluster([PAY, right(), SECRET])}
    policy = ("acl_forbidden", {"names": ["secret"], "permissions": ["DENY"]})
    assert added(decided(spark, clusters, policy=policy, settings=settings)["main"]) == {text(right())}
    most = ("max_acls_per_principal", {"max": 1})
    assert added(decided(spark, clusters, policy=most, settings=settings)["main"]) == {text(right())}


@pytest.mark.thorough
def test_adds_that_a_policy_refuses_one_by_one_are_refused_together(spark: SparkSession) -> None:
    """Each refused add keeps an ACL, which counts: else as many rounds as ACLs would follow.

    Principals of which the first round refused an add for good keep the others.
    """
    names = [f"t{number:02}" for number in range(20)]
    old = [right(operation="ALTER", name=each) for each in names]
    new = [*(right(name=each) for each in names), right(operation="WRITE", name="t00"), right("User:other")]
    policy = ("max_acls_per_principal", {"max": len(names)})
    rounds: list[int] = []
    many = Cluster([right("User:many", name=each) for each in (*names, "one.more")])
    alone = added(decided(spark, {"main": many}, policy=policy)["main"])
    both = decided(spark, {"main": Cluster(new, old), "other": many}, policy=policy, rounds=rounds)
    found = both["main"]
    assert (added(found), removed(found)) == ({text(new[-1])}, set())
    assert len(rounds) < 9
    assert added(both["other"]) == alone
    assert 0 < len(alone) < len(many.declared)
    refused = {row["error_message"] for row in found.values() if row["decision"] == "acl_add" and row["phase"]}
    assert any("policies refuse other ACLs of its principal one by one" in each for each in refused)


@pytest.mark.thorough
def test_revert_adds_no_allow_without_a_deny_that_the_table_declares(spark: SparkSession) -> None:
    def valid(*rows: Mapping[str, Any]) -> DataFrame:
        declared = frame(spark, ACLS.schema, [{"cluster": "main", **each} for each in rows])
        return declared.transform(manifests.validate(["main"], None)).localCheckpoint()

    settings = replace(SETTINGS, clusters={"main": cluster_settings("main", "localhost:1")})
    statuses = {"main": ClusterStatus(cluster_id="kafka-main")}
    for live in ([], [SECRET]):
        there = frame(spark, OBSERVED_ACLS.schema, [{"cluster": "main", **each} for each in live]).drop("run_id")
        listed = Listed(rows=there, statuses={"main": STATUS}, declared_only=True, declared=valid(SECRET))
        rows = valid(PAY).transform(decide(listed, statuses, settings, lambda rows: rows))
        (allow,) = [row for row in dicts(rows) if row["acl"]["permission"] == "ALLOW"]
        named = json.loads((allow["before"] or {}).get("restricted_by", "[]"))
        assert (allow["error"], [Acl.of(each) for each in named]) == (
            (None, [Acl.of(SECRET)]) if live else ("DENY_MISSING", [])
        )


@pytest.mark.thorough
def test_allow_is_not_added_if_the_deny_is_outside_the_scope(spark: SparkSession) -> None:
    clusters = {
        "missing": Cluster([{**PAY, "owner": "a"}, {**SECRET, "owner": "b"}]),
        "there": Cluster([{**PAY, "owner": "a"}, {**SECRET, "owner": "b"}], [SECRET]),
    }
    found = decided(spark, clusters, scope=Scope(owners=("a",)))
    assert {name: added(rows) for name, rows in found.items() if rows} == {"missing": set(), "there": {text(PAY)}}
    message = found["missing"][text(PAY)]["error_message"]
    assert message == (
        f"a DENY outside the scope of this run may restrict it and is missing: {text(SECRET)}; plan both in one run"
    )


@pytest.mark.thorough
def test_allow_waits_for_a_deny_that_is_declared_since_the_plan(spark: SparkSession) -> None:
    """A refused row that may be meant as a DENY counts, too."""
    adds = [
        {**planned_delete(each), "action": "acl_add", "before": {}, "after": Acl.of(each)._asdict()}
        for each in (PAY, right(), right("User:c", name="c"))
    ]
    plans = frame(spark, PLANS.schema, adds)
    known, wrong = [PAY, right(), right("User:c", name="c")], right("User:c", name="c", permission="no")
    rows = frame(spark, ACLS.schema, [{**each, "cluster": "main"} for each in (*known, SECRET, wrong)])
    validated = rows.transform(manifests.validate(["main"], None)).localCheckpoint()
    then = frame(spark, ACLS.schema, [{**each, "cluster": "main"} for each in known])
    planned = then.transform(manifests.validate(["main"], None)).select("cluster", "resource")
    assert KIND.deciding.protected is not None
    protected = dicts(plans.transform(KIND.deciding.protected(validated, planned, ["main"])))
    refused = {row["resource"]: row for row in protected}
    assert {row["error"] for row in refused.values()} == {"CHANGED_SINCE_PLAN"}
    assert refused.keys() == {text(PAY), text(known[2])}
    assert refused[text(PAY)]["error_message"] == (
        f"a DENY that is declared since the plan may restrict it: {text(SECRET)}; plan again"
    )


ODD = {
    "a name with a *": (
        right(name="app-*", resource_type="GROUP"),
        [right(name="app-", pattern_type="PREFIXED", resource_type="GROUP")],
    ),
    "several principals": (right("User:a,User:b"), [right("User:a"), right("User:b")]),
    "a blank": (right("User:c "), [right("User:c")]),
    "a placeholder": (right("User:{{ u }}"), [right("User:d")]),
    "several names": (
        right(name="g,h", resource_type="GROUP"),
        [right(name=each, resource_type="GROUP") for each in "gh"],
    ),
}
"""An ACL that almost never applies, and those that were probably meant."""


@pytest.mark.thorough
@pytest.mark.parametrize("there", [True, False])
def test_acl_with_an_odd_name_keeps_what_may_be_meant(spark: SparkSession, there: bool) -> None:
    """It grants nothing, so nothing that works is removed for it: neither now, nor once a run has added it."""
    strangers = [right("User:z", name="elsewhere"), right("User:z", name="e", resource_type="GROUP")]
    clusters = {name: Cluster([new], [*old, *strangers, *([new] if there else ())]) for name, (new, old) in ODD.items()}
    found = decided(
        spark, {**clusters, "absent": Cluster([right("User:c "), right("User:c", state="absent")], [right("User:c")])}
    )
    assert removed(found.pop("absent")) == set()
    for name, (_, old) in ODD.items():
        assert removed(found[name]) == set(map(text, strangers)), name
        for each in old:
            kept = found[name][text(each)]
            assert (kept["phase"], kept["outcome"], kept["error"]) == ("guard", "skipped", None)
            assert "an ACL that almost never applies may be meant to keep or to replace it" in kept["error_message"]


@pytest.mark.thorough
def test_acl_declared_with_an_odd_name_since_the_plan_protects_too(spark: SparkSession) -> None:
    plans = frame(spark, PLANS.schema, [planned_delete(right()), planned_delete(right("User:b", name="else"))])
    rows = frame(spark, ACLS.schema, [right("User:app,User:b", cluster="main")])
    validated = rows.transform(manifests.validate(["main"], None))
    known = validated.select("cluster", "resource")
    assert KIND.deciding.protected is not None
    (row,) = dicts(plans.transform(KIND.deciding.protected(validated, known, ["main"])))
    assert (row["resource"], row["error"]) == (text(right()), "CHANGED_SINCE_PLAN")


@pytest.mark.thorough
@pytest.mark.parametrize(("outcome", "error"), [("refused", "NOT_REVERTIBLE"), ("skipped", None)])
def test_revert_keeps_what_replaced_an_acl_that_it_cannot_add_again(
    spark: SparkSession, outcome: str, error: str | None
) -> None:
    """A run replaced ALL by READ and WRITE, and what became of ALL is unknown, or changed later."""
    wide, narrow, other = right(operation="ALL"), [right(), right(operation="WRITE")], right("User:other")
    rows = [{**wide, "state": "present"}, *({**each, "state": "absent"} for each in (*narrow, other))]
    ended = {"phase": "observe", "outcome": outcome, "error": error, "error_message": "its reason"}
    for live, gone in (([*narrow, other], {text(other)}), ([wide, *narrow, other], set(map(text, (*narrow, other))))):
        declared = frame(spark, ACLS.schema, [{"cluster": "main", **each} for each in rows])
        validated = declared.transform(manifests.validate(["main"], None))
        is_wide = F.col("operation") == "ALL"
        validated = validated.withColumns(
            {name: F.when(is_wide, F.lit(value)).otherwise(F.col(name)) for name, value in ended.items()}
        ).localCheckpoint()
        there = frame(spark, OBSERVED_ACLS.schema, [{"cluster": "main", **each} for each in live]).drop("run_id")
        listed = Listed(rows=there, statuses={"main": STATUS}, declared_only=True)
        statuses = {"main": ClusterStatus(cluster_id="kafka-main")}
        settings = replace(SETTINGS, clusters={"main": cluster_settings("main", "localhost:1")})
        decisions = dicts(validated.transform(decide(listed, statuses, settings, lambda rows: rows)))
        assert removed({row["resource"]: row for row in decisions}) == gone


ACROSS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "CREATE by CREATE of topics": (
        on_cluster("User:app", "CREATE"), right(operation="CREATE", name="app-", pattern_type="PREFIXED")
    ),
    "CREATE by ALL of topics": (
        on_cluster("User:app", "CREATE"), right(operation="ALL", name="app-", pattern_type="PREFIXED")
    ),
    "CREATE of topics by CREATE": (right(operation="CREATE", name="t"), on_cluster("User:app", "CREATE")),
    "IDEMPOTENT_WRITE by WRITE": (on_cluster("User:app", "IDEMPOTENT_WRITE"), right(operation="WRITE")),
}  # fmt: skip
"""An ACL of the cluster or of topics, and one of the other type that replaces it."""
APART = [
    (on_cluster("User:app", "IDEMPOTENT_WRITE"), right()),
    (on_cluster("User:app", "ALTER"), right(operation="ALL")),
    (on_cluster("User:b", "CREATE"), right(operation="CREATE")),
    (right(operation="WRITE"), on_cluster("User:app", "IDEMPOTENT_WRITE")),
    (on_cluster("User:app", "CREATE"), right(operation="DESCRIBE", name="g", resource_type="GROUP")),
]
"""An ACL of the cluster, and one that grants nothing of it."""


@pytest.mark.thorough
def test_acl_of_the_cluster_is_replaced_by_one_of_topics(spark: SparkSession) -> None:
    """CREATE, and IDEMPOTENT_WRITE, which WRITE on any topic implies since Kafka 2.8 (KIP-679)."""
    other = on_cluster("User:other", "ALTER")
    refused = {name: Cluster([{**new, "host": "app01"}], [old, other]) for name, (old, new) in ACROSS.items()}
    for name, rows in decided(spark, refused).items():
        assert removed(rows) == ({text(other)} if rows else set()), name
    found = decided(spark, {name: Cluster([new], [old]) for name, (old, new) in ACROSS.items()})
    for name, (old, new) in ACROSS.items():
        assert (removed(found[name]), replaced_by(found[name][text(old)])) == ({text(old)}, {Acl.of(new)}), name


@pytest.mark.thorough
def test_acl_of_the_cluster_goes_if_one_of_topics_grants_nothing_of_it(spark: SparkSession) -> None:
    refused = {str(number): Cluster([{**new, "host": "app01"}], [old]) for number, (old, new) in enumerate(APART)}
    found = decided(spark, refused)
    for number, (old, _) in enumerate(APART):
        assert removed(found[str(number)]) == {text(old)}, number


OPEN = replace(STATUS, allow_everyone=True)
FOREIGN = on_cluster("User:app", "IDEMPOTENT_WRITE")
OWN = on_cluster("User:run", "ALL")
OWN_PARTS = [on_cluster("User:run", each) for each in ("ALTER", "CREATE", "ALTER_CONFIGS")]


def test_first_acl_on_the_cluster_takes_no_right_from_the_run(spark: SparkSession) -> None:
    """I2: if everybody may use resources without ACLs, such an ACL locks out the run, too."""
    found = decided(
        spark,
        {
            "open": Cluster([FOREIGN], status=OPEN),
            "unknown": Cluster([FOREIGN], status=replace(OPEN, allow_everyone=None)),
            "nobody": Cluster([FOREIGN], status=replace(OPEN, own_principal=None)),
            "closed": Cluster([FOREIGN]),
            "not the first": Cluster([FOREIGN, on_cluster("User:run", "ALTER")], [OWN_PARTS[0]], OPEN),
            "own": Cluster([FOREIGN, OWN], status=OPEN),
            "own parts": Cluster(OWN_PARTS, status=OPEN),
            "too few parts": Cluster(OWN_PARTS[:2], status=OPEN),
            "another host": Cluster([{**OWN, "host": "10.0.0.1"}], status=OPEN),
            "super user": Cluster([FOREIGN], status=replace(OPEN, own_principal="User:super")),
        },
        settings=replace(SETTINGS, of_kinds=Sections([AclSettings(manage=("",), super_users=("User:super",))])),
    )
    errors = {name: {text: row["error"] for text, row in rows.items()} for name, rows in found.items() if rows}
    foreign = text(FOREIGN)
    assert errors == {
        "open": {foreign: "OWN_RIGHTS"},
        "unknown": {foreign: "OWN_RIGHTS"},
        "nobody": {foreign: "PRINCIPAL_UNKNOWN"},
        "closed": {foreign: None},
        "not the first": {foreign: None, text(OWN_PARTS[0]): None},
        "own": {foreign: "OWN_RIGHTS", text(OWN): None},
        "own parts": {text(each): None for each in OWN_PARTS},
        "too few parts": {text(each): "OWN_RIGHTS" for each in OWN_PARTS[:2]},
        "another host": {text({**OWN, "host": "10.0.0.1"}): "OWN_RIGHTS"},
        "super user": {foreign: None},
    }
    assert {name for name, rows in found.items() if warnings(rows)} == {"own", "own parts", "super user"}
    assert "User:run" not in str([found[each] for each in ("open", "unknown")]), "it may be the value of a reference"
    assert "the run's own principal (clusters.open.client)" in found["open"][foreign]["error_message"]
    assert found["open"][foreign]["phase"] == "guard"
    assert "allow.everyone.if.no.acl.found is set" in found["open"][foreign]["error_message"]
    assert "it isn't known whether" in found["unknown"][foreign]["error_message"]
    assert "clusters.nobody.principal" in found["nobody"][foreign]["error_message"]


@pytest.mark.thorough
def test_own_acl_that_a_policy_refuses_keeps_no_rights(spark: SparkSession) -> None:
    policy = ("acl_forbidden", {"operations": ["CREATE"]})
    found = decided(spark, {"main": Cluster(OWN_PARTS, status=OPEN)}, policy=policy)["main"]
    assert [found[text(each)]["error"] for each in OWN_PARTS] == ["OWN_RIGHTS", "POLICY_VIOLATION", "OWN_RIGHTS"]


def warnings(found: Decisions) -> dict[str, str]:
    return {name: each["message"] for name, row in found.items() for each in row["violations"] or ()}


@pytest.mark.thorough
def test_first_acl_on_another_resource_is_a_warning(spark: SparkSession) -> None:
    new = [right(name="new"), right(name="n", pattern_type="PREFIXED"), right(name="*"), right("User:b", name="old")]
    old = [right(name="old")]
    clusters = {
        "open": Cluster(new, old, OPEN),
        "unknown": Cluster(new, old, replace(OPEN, allow_everyone=None)),
        "closed": Cluster(new, old),
        "super user": Cluster([FOREIGN], status=OPEN),
    }
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(super_users=("User:run",))]))
    told = {name: warnings(rows) for name, rows in decided(spark, clusters, settings=settings).items()}
    assert {name.split(" ", 4)[-1]: message.split("access to ")[1] for name, message in told["open"].items()} == {
        "LITERAL new *": "TOPIC new",
        "PREFIXED n *": "every TOPIC that begins with n and that no other ACL is about",
        "LITERAL * *": "every TOPIC that no other ACL is about",
    }
    (message,) = told["unknown"].values()
    assert message.startswith("it isn't known whether")
    assert message.endswith("first ACLs of this plan: 3")
    assert (told["closed"], list(told["super user"])) == ({}, [text(FOREIGN)])


@pytest.mark.parametrize("manage", [(), pytest.param(("",), marks=pytest.mark.thorough)])
def test_plan_of_the_decision_reads_its_rows_a_few_times(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], manage: tuple[str, ...]
) -> None:
    """Each join of rows with themselves doubles their plan: with 24 reads, a decision about 12 rows took 4 minutes."""
    cluster = Cluster([right(name="new")], [right(name="old")], OPEN)
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(manage=manage)]))
    rows = decision(spark, {"open": cluster}, settings=settings)
    rows.explain()
    assert 0 < capsys.readouterr().out.count("Scan ExistingRDD") <= 15


@pytest.mark.thorough
def test_last_acl_on_a_resource_is_a_warning(spark: SparkSession) -> None:
    """I2: if everybody may use resources without ACLs, its removal opens the resource to everybody."""
    gone = [right(name="a"), right(operation="WRITE", name="a"), right(name="p", pattern_type="PREFIXED")]
    kept = [right(name="b"), right("User:x", "ALL", "b")]
    by_prefix = [right(name="q.a"), right("User:x", name="q", pattern_type="PREFIXED")]
    live = [*gone, *kept, *by_prefix, right(name="c")]
    declared = [kept[0], by_prefix[1], right(host="10.0.0.1", name="c")]
    clusters = {
        "open": Cluster(declared, live, OPEN),
        "unknown": Cluster(declared, live, replace(OPEN, allow_everyone=None)),
        "closed": Cluster(declared, live),
    }
    found = decided(spark, clusters)
    told = {name: warnings(rows) for name, rows in found.items()}
    assert told["open"] == {
        text(each): "allow.everyone.if.no.acl.found is set on this cluster (brokers hide its value): if it is "
        f"true, everybody may use {what} once this last ACL on it is removed"
        for each, what in zip(
            gone, ("TOPIC a", "TOPIC a", "every TOPIC that begins with p and that no other ACL is about"), strict=True
        )
    }
    (message,) = told["unknown"].values()
    assert message.endswith("last ACLs that this plan removes: 3")
    assert told["closed"] == {}
    assert removed(found["open"]) == removed(found["closed"])


@pytest.mark.thorough
def test_last_acl_on_the_cluster_itself_stays(spark: SparkSession) -> None:
    other, admins = on_cluster("User:app", "ALTER"), on_cluster("User:admin", "ALL")
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(manage=("",), super_users=("User:run",))]))
    found = decided(
        spark,
        {
            "last": Cluster([], [FOREIGN, other], OPEN),
            "unknown": Cluster([], [FOREIGN], replace(OPEN, allow_everyone=None)),
            "closed": Cluster([], [FOREIGN]),
            "replaced": Cluster([admins], [FOREIGN], OPEN),
            "one stays": Cluster([other], [FOREIGN, other], OPEN),
        },
        settings=settings,
    )
    errors = {name: {text: row["error"] for text, row in rows.items()} for name, rows in found.items() if rows}
    assert errors == {
        "last": dict.fromkeys(map(text, (FOREIGN, other)), "LAST_CLUSTER_ACL"),
        "unknown": {text(FOREIGN): "LAST_CLUSTER_ACL"},
        "closed": {text(FOREIGN): None},
        "replaced": {text(FOREIGN): None, text(admins): None},
        "one stays": {text(FOREIGN): None, text(other): None},
    }
    assert found["last"][text(FOREIGN)]["phase"] == "guard"


@pytest.mark.thorough
def test_last_acl_on_the_cluster_makes_no_room_for_an_add(spark: SparkSession) -> None:
    """It stays, as does a DENY that may restrict it: each principal may have one ACL, and has it."""
    allow, deny = on_cluster("User:app", "CREATE"), right("User:*", "CREATE", permission="DENY")
    adds, admins = [right(), right("User:*", name="new")], on_cluster("User:admin", "ALL")
    settings = replace(SETTINGS, of_kinds=Sections([AclSettings(manage=("",), super_users=("User:run",))]))
    clusters = {
        "last": Cluster(adds, [allow, deny], OPEN),
        "unknown": Cluster(adds, [allow, deny], replace(OPEN, allow_everyone=None)),
        "closed": Cluster(adds, [allow, deny]),
        "replaced": Cluster([*adds, admins], [allow, deny], OPEN),
        "one stays": Cluster([*adds, admins], [allow, deny, admins], OPEN),
    }
    found = decided(spark, clusters, settings=settings, policy=("max_acls_per_principal", {"max": 1}))
    for name in clusters:
        rows, stays = found[name], name in ("last", "unknown")
        refused = {each for each, row in rows.items() if row["error"] == "POLICY_VIOLATION"}
        assert refused == (set(map(text, adds)) if stays else set()), name
        assert removed(rows) == (set() if stays else {text(allow), text(deny)}), name
        assert rows[text(allow)]["error"] == ("LAST_CLUSTER_ACL" if stays else None), name


@pytest.mark.thorough
def test_warning_of_a_row_evaluated_twice_is_given_once(spark: SparkSession) -> None:
    """Refused adds keep removals, and then policies evaluate all rows again."""
    wide = right(operation="ALL")
    policy = ("acl_forbidden", {"operations": ["READ"]})
    found = decided(
        spark, {"main": Cluster([right(), right(name="new", operation="WRITE")], [wide], OPEN)}, policy=policy
    )
    assert found["main"][text(wide)]["outcome"] == "skipped"
    (warning,) = found["main"][text(right(name="new", operation="WRITE"))]["violations"]
    assert warning["policy"] == "first_acl"


UNUSUAL = [
    (right("User:a*"), "only User:* is everyone"),
    (right("User:a,User:b"), "one name with a separator"),
    (right(name="app-*", resource_type="GROUP"), "for a prefix write PREFIXED"),
    (right("User:User:a"), "it has two types"),
    (right("User:a\u00a0"), "begins or ends with a blank"),
    (right("User: a"), "begins or ends with a blank"),
    (right("User:a "), "begins or ends with a blank"),
    (right(name="app ", resource_type="GROUP"), "begins or ends with a blank"),
    (right("User:{{ u }}"), "contains a template placeholder"),
    (right(name="${APP}", resource_type="GROUP"), "contains a template placeholder"),
    (right("User:CN=a, O=b"), None),
    (right("User:*"), None),
    (right(name="*"), None),
]


@pytest.mark.thorough
def test_acl_that_almost_never_applies_is_a_warning(spark: SparkSession) -> None:
    rows = [row for row, _ in UNUSUAL]
    found = decided(spark, {"new": Cluster(rows), "there already": Cluster(rows, rows)})
    told = {name.replace("\\ ", " "): message for name, message in warnings(found["new"]).items()}
    for row, reason in UNUSUAL:
        assert (text(row) in told) == (reason is not None), row
        assert reason is None or reason in told[text(row)]
    assert warnings(found["there already"]) == {}
