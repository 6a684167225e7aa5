"""`plan` with everything switched on and `audit` agree: each difference is found by both, or by neither.

Hundreds of resources with random differences are decided on and compared in one go; no broker is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.harness import cluster_settings
from tests.unit.config_values import STORED
from tests.unit.frames import dicts, frame, manifest_rows, policy_facts
from topicledger import phases
from topicledger.config.guards import OF_KINDS, GuardSettings
from topicledger.config.scope import ScopeSettings
from topicledger.config.settings import ChangeSettings, Owners, OwnerSettings, Settings, TablesSettings
from topicledger.drift.audit import _without_ignored
from topicledger.drift.beside import find_resource_drift
from topicledger.manifests import rows as manifests
from topicledger.naming import Sections
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.resources import building, registry
from topicledger.resources.acls import decide as plan_acls
from topicledger.resources.acls import kind as acl_kind
from topicledger.resources.acls import rows as acls
from topicledger.resources.acls.names import AclSettings
from topicledger.resources.group_configs import kind as group_kind
from topicledger.resources.kind import ResourceKind
from topicledger.resources.quotas import kind as quota_kind
from topicledger.resources.topics.drift.find import Estate, find_drift
from topicledger.resources.topics.drift.placement import uneven
from topicledger.resources.topics.plan import moving
from topicledger.resources.topics.plan.changes import DESCRIBED
from topicledger.resources.topics.plan.moving import Sizes
from topicledger.resources.topics.plan.topics import decided
from topicledger.resources.topics.plan.wanted import brought_about
from topicledger.schemas import ACLS, AUDIT, BROKERS, OBSERVED_ACLS, OBSERVED_CONFIGS

TOPICS = phases.OBSERVED
RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}
DOWN = 9
"""A broker that has replicas and isn't up."""
THROTTLED = "leader.replication.throttled.replicas"
SPELLED = {name: values for name, values in STORED.items() if name not in ("retention.ms", *ChangeSettings().ignore)}
"""By config and the value that brokers return: what may be declared for it; some is refused as odd."""
MANY = 10_000
SETTINGS = Settings(
    path=Path("drawn.toml"),
    tables=TablesSettings(root=""),
    clusters={"main": cluster_settings("main", "127.0.0.1:1")},
    changes={"main": ChangeSettings(configs="exact", partitions="grow", replicas="on", pin=True)},
    of_kinds=Sections([AclSettings(manage=(".*",))]),
    scope=ScopeSettings(ignore_topics=("^other[.]",)),
    owners=Owners(
        names={
            "low": OwnerSettings(topics=("^t[0-9]*[0-4]$",)),
            "high": OwnerSettings(topics=("^t[0-9]*[5-9]$",)),
        }
    ),
    guards=GuardSettings(
        max_deletes=MANY,
        max_losses=MANY,
        max_disruptions=MANY,
        max_moves=MANY,
        of_kinds=dict.fromkeys(OF_KINDS, MANY),
    ),
)
STATUSES = {"main": ClusterStatus(cluster_id="kafka-main")}

MENDED_BY = {
    "missing": "create",
    "should_be_absent": "delete",
    "partitions_fewer": "add_partitions",
    "partitions_more": "FEWER_PARTITIONS",
    "replication_factor": "reassign",
    "assignment": "reassign",
    "racks_shared": "reassign",
    "broker_not_allowed": "reassign",
    "replica_skew": "reassign",
    "preferred_leader": "elect_leaders",
    "config_differs": "alter_configs",
    "config_undeclared": "alter_configs",
    "unmanaged": "unmanaged",
    "not_permitted": "NOT_PERMITTED",
}
"""Kind of drift -> the action, refusal or decision of a plan that is about the same difference."""
IGNORED = "other."
"""Begins the topics that the settings leave to others: an audit counts them apart, a plan as unmanaged."""
REFUSED = {"INVALID_TOPIC", "INVALID_CONFIGS", "NOT_YOURS"}
"""Errors of rows that are refused by themselves: their topics stay as they are, and are no drift."""
MOVED = {kind for kind, action in MENDED_BY.items() if action == "reassign"}


@dataclass(frozen=True)
class Drawn:
    """Topics as they are declared and as they live, by name; either may lack one."""

    declared: Sequence[Mapping[str, Any]]
    live: Sequence[Mapping[str, Any]]
    configs: Sequence[Mapping[str, Any]] = field(default_factory=list)
    moving: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """Partitions whose replicas are being moved: they have old and new ones."""


def drawn(seed: int, count: int) -> Drawn:
    draw = random.Random(seed)
    declared, live, configs, moving = [], [], [], []
    for number in range(count):
        name = f"{draw.choice(['t'] * 19 + [IGNORED])}{number:04}"
        wanted = _declared(draw) if draw.random() < 0.9 else {}
        if wanted:
            theirs, others = ("low", "high") if number % 10 < 5 else ("high", "low")
            owner = draw.choice([theirs] * 18 + [f" {theirs.upper()}", others, None])
            declared.append({"topic": name, "owner": owner, **wanted})
        if draw.random() < 0.9:
            topic = _live(draw, wanted.get("assignments"))
            topic["internal"] = not wanted and draw.random() < 0.1
            live.append({"topic": name, "topic_id": f"id of {name}", "cluster": "main", **topic})
            if topic["permitted"] and draw.random() < 0.05:
                old = topic["assignments"][0]
                topic["assignments"][0] = [*old, *(each for each in RACKS if each not in old)]
                moving.append({"cluster": "main", "topic": name, "partition": 0})
            if topic["permitted"]:
                configs.append({"cluster": "main", "topic": name, **_configs(draw)})
    return Drawn(declared, live, configs, moving)


def _declared(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.1:
        return {"state": "absent"}
    row: dict[str, Any] = {}
    where = draw.choice(["counts", "counts", "assignments", "placement"])
    if where == "assignments":
        replicas = draw.randint(1, 3)
        row["assignments"] = {each: draw.sample(list(RACKS), replicas) for each in range(draw.randint(1, 3))}
    else:
        row["num_partitions"] = draw.choice([1, 2, 3])
        row["replication_factor"] = draw.choice([None, 1, 2, 3])
        if where == "placement":
            row["replication_factor"] = draw.choice([1, 2])
            row["placement"] = draw.choice(["any", "racks", "spread", "rack:a", "brokers:1,2"])
        if where == "counts" and draw.random() < 0.2:
            row["num_partitions"] = None
    names = {"retention.ms": ["1", "2", " 1"], THROTTLED: ["0:1"]}
    names |= {"min.insync.replicas": ["1", "2"], "sensitive": ["1"], "unknown": ["1"]}
    row["configs"] = {name: draw.choice(values) for name, values in names.items() if draw.random() < 0.2}
    for name, spellings in SPELLED.items():
        if draw.random() < 0.08:
            row["configs"][name] = draw.choice([each for values in spellings.values() for each in values])
    return row


def _live(draw: random.Random, wanted: Mapping[int, Sequence[int]] | None) -> dict[str, Any]:
    """Draw a live topic; some have the declared replicas in any order, which alone needs a move, too."""
    partitions, replicas = draw.randint(1, 3), draw.choice([1, 2, 2, 3])
    brokers = [*RACKS, DOWN] if draw.random() < 0.05 else list(RACKS)
    assignments = {each: draw.sample(brokers, replicas) for each in range(partitions)}
    if wanted is not None and draw.random() < 0.5:
        assignments = {each: draw.sample(on, len(on)) for each, on in wanted.items()}
        partitions = len(assignments)
    elif draw.random() < 0.1:
        assignments[0] = draw.sample(list(RACKS), draw.randint(1, 3))
    others: dict[int, int] = {}
    for partition, on in assignments.items():
        if draw.random() < 0.1:
            others[partition] = draw.choice([-1, *on[1:]])
    permitted = draw.random() > 0.05
    known = {
        "num_partitions": partitions,
        "replication_factor": len(assignments[0]),
        "assignments": assignments,
        "other_leaders": others,
    }
    return {"permitted": permitted, "internal": False, **(known if permitted else {})}


def _configs(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.05:
        return {"config_error_code": 29, "config_error": "TOPIC_AUTHORIZATION_FAILED"}

    def entry(name: str, values: Sequence[str], default: str) -> dict[str, Any]:
        on_topic = draw.random() < 0.3
        value = draw.choice(values) if on_topic else default
        source = "DYNAMIC_TOPIC_CONFIG" if on_topic else draw.choice(["DEFAULT_CONFIG", "STATIC_BROKER_CONFIG"])
        return {"name": name, "value": value, "config_source": source, "is_sensitive": False}

    return {
        "config_error_code": 0,
        "configs": [
            entry("retention.ms", ["1", "2", "01"], "1"),
            entry("min.insync.replicas", ["1", "2"], "1"),
            entry(THROTTLED, ["0:1", "*"], ""),
            *(entry(name, [*values], next(iter(values))) for name, values in SPELLED.items()),
            {**entry("sensitive", ["1"], "1"), "value": None, "is_sensitive": True},
        ],
    }


def planned(spark: SparkSession, these: Drawn) -> dict[str, set[str]]:
    """By topic, what a plan finds: actions, planned or refused, `unmanaged`, and refusals that no action is about."""
    seen = _seen(spark, these)
    validated = (
        manifest_rows(spark, *these.declared).transform(manifests.validated_by(SETTINGS, None)).localCheckpoint()
    )
    wanted = brought_about(validated, SETTINGS.changes, [kind.name for kind in registry.in_order()])
    asked = wanted.to_describe(seen)
    assert asked is not None
    configs = frame(spark, OBSERVED_CONFIGS.schema, these.configs).select(*DESCRIBED)
    configs = configs.join(asked.select("cluster", "topic"), on=["cluster", "topic"], how="left_semi")
    answers = moving.planned(wanted.marked, seen, Sizes(), wanted.replicas).unionByName(
        moving.planned(wanted.marked, seen, Sizes(), moving.CREATES)
    )
    rules = building.from_settings(SETTINGS)
    known = policy_facts(spark, racks=RACKS)
    rows = validated.transform(decided(seen, wanted, configs, rules, known, SETTINGS, answers))
    found: dict[str, set[str]] = {}
    for row in rows.select("topic", "decision", "action", "error").collect():
        if row["error"] in REFUSED or (row["decision"] == "unmanaged" and row["topic"].startswith(IGNORED)):
            continue
        if row["error"] in ("NOT_PERMITTED", "FEWER_PARTITIONS"):
            found.setdefault(row["topic"], set()).add(row["error"])
        elif row["error"] is not None or row["action"] is not None or row["decision"] == "unmanaged":
            found.setdefault(row["topic"], set()).add(row["decision"])
    return found


def drifted(spark: SparkSession, these: Drawn) -> dict[str, set[tuple[str, str | None]]]:
    """By topic: kind and what of each difference that an audit finds."""
    seen = _seen(spark, these)
    validated = (
        manifest_rows(spark, *these.declared).transform(manifests.validated_by(SETTINGS, None)).localCheckpoint()
    )
    estate = Estate(
        cluster_ids={"main": "kafka-main"},
        topics=seen.topics.transform(_without_ignored(SETTINGS)),
        configs=frame(spark, OBSERVED_CONFIGS.schema, these.configs),
        earlier_configs=frame(spark, OBSERVED_CONFIGS.schema, []),
        audit=frame(spark, AUDIT.schema, []),
        ignored=SETTINGS.ignored_configs,
        pinned=SETTINGS.pinned,
        brokers=seen.brokers,
        uneven=uneven(validated, seen, ["main"]),
        moving=spark.createDataFrame(list(these.moving), "cluster string, topic string, partition int"),
    )
    found: dict[str, set[tuple[str, str | None]]] = {}
    for row in dicts(validated.transform(find_drift(estate, SETTINGS.audit))):
        found.setdefault(row["topic"], set()).add((row["kind"], row["what"]))
    return found


def _seen(spark: SparkSession, these: Drawn) -> Observation:
    racks = [{"cluster": "main", "broker_id": broker, "rack": rack} for broker, rack in RACKS.items()]
    return Observation(
        topics=frame(spark, TOPICS, these.live), brokers=frame(spark, BROKERS.schema, racks), statuses=STATUSES
    )


def expected(found: set[tuple[str, str | None]], declared: Mapping[str, Any], live: Mapping[str, Any]) -> set[str]:
    """Return the actions that a plan finds if an audit found this about a topic. Each exception is a separate rule.

    A topic that gets partitions is moved by the next run, unless nothing adds them. A leader is elected only if the
    preferred replica is up and another replica leads. A topic that may not be described is tried to be created (M3).
    Nothing is decided on configs and partitions of a topic whose configs may not be described.
    """
    kinds = {kind for kind, _ in found} - {"moves_under_way"}
    if live and not live["permitted"]:
        return {"create"} if declared.get("state") is None else {"NOT_PERMITTED"}
    electable = [
        what
        for kind, what in found
        if kind == "preferred_leader" and live["other_leaders"][int(str(what))] in live["assignments"][int(str(what))]
    ]
    if not any(live["assignments"][int(str(what))][0] in RACKS for what in electable):
        kinds -= {"preferred_leader"}
    if "partitions_fewer" in kinds and "not_permitted" not in kinds:
        kinds -= MOVED
    if "not_permitted" in kinds:
        kinds -= {"partitions_fewer", "partitions_more", "config_differs", "config_undeclared"}
    return {MENDED_BY[kind] for kind in kinds}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 12))
def test_random_topics_differ_for_plan_and_audit_alike(spark: SparkSession, seed: int) -> None:
    these = drawn(seed, 500)
    plan, audit = planned(spark, these), drifted(spark, these)
    declared = {row["topic"]: row for row in these.declared}
    live = {row["topic"]: row for row in these.live}
    wrong = []
    for topic in sorted({*plan, *audit}):
        there, found = live.get(topic, {}), audit.get(topic, set())
        ours, theirs = plan.get(topic, set()), expected(found, declared.get(topic, {}), there)
        if "reassign" in ours and "preferred_leader" not in {kind for kind, _ in found}:
            # An election follows a move that reorders replicas.
            ours = ours - {"elect_leaders"}
        if "reassign" in ours and there.get("other_leaders"):
            ours, theirs = ours - {"elect_leaders"}, theirs - {"elect_leaders"}
        if ours != theirs:
            wrong.append((topic, ours, theirs, found, declared.get(topic), there))
    assert {each for found in plan.values() for each in found} >= set(MENDED_BY.values()), "each difference is drawn"
    assert not wrong, "\n".join(map(str, [(len(wrong),), *wrong[:12]]))


@pytest.mark.thorough
def test_random_rights_differ_for_plan_and_audit_alike(spark: SparkSession) -> None:
    draw = random.Random(1)
    declared: list[dict[str, Any]] = []
    live: list[dict[str, Any]] = []
    for number in range(300):
        right = {
            "cluster": "main",
            "principal": f"{draw.choice(['User', 'User', 'User', 'Group'])}:u{number}",
            "permission": draw.choice(["ALLOW", "DENY"]),
            "operation": draw.choice(["READ", "WRITE", "ALL"]),
            "resource_type": "TOPIC",
            "pattern_type": draw.choice(["LITERAL", "PREFIXED"]),
            "resource_name": "t",
            "host": draw.choice(["*", "10.0.0.1"]),
        }
        if draw.random() < 0.7:
            # No broker ever matches a host's name: the row is refused, and keeps the ACL that it may mean.
            host = draw.choice([right["host"]] * 9 + ["app01.example.org"])
            declared.append({**right, "host": host, "state": draw.choice(["present", "present", "absent"])})
        if draw.random() < 0.7:
            live.append(right)
    listed = Listed(
        rows=frame(spark, OBSERVED_ACLS.schema, live).drop("run_id"),
        statuses={"main": ListedStatus(own_principal="User:me")},
    )
    validated = frame(spark, ACLS.schema, declared).transform(acls.validate(["main"], None)).localCheckpoint()
    topics = manifest_rows(spark, {"topic": "t"}).transform(manifests.validated_by(SETTINGS, None))
    rows = validated.transform(plan_acls.decide(listed, STATUSES, SETTINGS, lambda decisions: decisions))
    names = {"acl_add": "acl_missing", "acl_delete": "acl_unmanaged"}
    plan = {(row["resource"], names[row["decision"]]) for row in dicts(rows) if row["decision"] in names}
    found = dicts(validated.transform(find_resource_drift(acl_kind.KIND, _nothing(spark), listed, topics, SETTINGS)))
    assert plan == {(row["what"], row["kind"]) for row in found if row["kind"] in names.values()}
    assert {kind for _, kind in plan} == set(names.values())


def _quota(draw: random.Random, number: int, *, declared: bool) -> dict[str, Any]:
    limits = {name: draw.choice([None, 1.0, 2.0, 1e15]) for name in ("producer_byte_rate", "request_percentage")}
    if declared and draw.random() < 0.1:
        limits["producer_byte_rate"] = -1.0
    return {"user": f"u{number}", **limits}


def _group(draw: random.Random, number: int, *, declared: bool) -> dict[str, Any]:
    # A broker reads "01" and " 1" as the same number.
    spelled = ["1", "2", "01", " 1", "1.0", "0.5d", "5e-1", " True ", "+1", "0x1p-2", "1e400"]
    values = spelled if declared else ["1", "2", "0.5", "true"]
    names = ("consumer.session.timeout.ms", "share.session.timeout.ms", "unknown")
    configs = {name: draw.choice(values) for name in names if draw.random() < 0.5}
    if declared and draw.random() < 0.1:
        configs = {"": "1"}
    return {"group": f"g{number}", "configs": configs}


@dataclass(frozen=True)
class Values:
    """A kind of names with values: how a resource is drawn, its drift, and the error of a refused row."""

    kind: ResourceKind
    draw: Callable[..., dict[str, Any]]
    kinds: Sequence[str]
    invalid: str


VALUED = (
    Values(quota_kind.KIND, _quota, ("quota_missing", "quota_differs", "quota_unmanaged"), "INVALID_QUOTA"),
    Values(
        group_kind.KIND,
        _group,
        ("group_config_missing", "group_config_differs", "group_config_unmanaged"),
        "INVALID_GROUP_CONFIG",
    ),
)


def test_every_kind_of_resource_is_compared_here() -> None:
    compared = [acl_kind.KIND, *(each.kind for each in VALUED)]
    assert {each.names.resource_type for each in compared} == {each.names.resource_type for each in registry.KINDS}


@pytest.mark.thorough
@pytest.mark.parametrize("of", VALUED, ids=lambda each: each.kind.names.resource_type)
def test_random_values_differ_for_plan_and_audit_alike(spark: SparkSession, of: Values) -> None:
    """Client quotas and group configs; a refused row leaves its resource as it is, and is no drift."""
    draw = random.Random(1)
    declared: list[dict[str, Any]] = []
    live: list[dict[str, Any]] = []
    for number in range(300):
        for rows in (declared, live):
            row = {"cluster": "main", **of.draw(draw, number, declared=rows is declared)}
            if rows is declared and draw.random() < 0.2:
                key = ("cluster", *of.kind.table.key)
                row = {"state": "absent", **{name: value for name, value in row.items() if name in key}}
            has_values = any(value for name, value in row.items() if name not in of.kind.table.key)
            if draw.random() < 0.8 and has_values:
                rows.append(row)
    listed = Listed(
        rows=frame(spark, of.kind.observed.table.schema, live).drop("run_id"), statuses={"main": ListedStatus()}
    )
    validated = (
        frame(spark, of.kind.table.schema, declared).transform(of.kind.rows.validate(["main"], None)).localCheckpoint()
    )
    topics = manifest_rows(spark, {"topic": "t"}).transform(manifests.validated_by(SETTINGS, None))
    decisions = of.kind.deciding.decide(listed, STATUSES, SETTINGS, lambda rows: rows)
    rows = dicts(validated.transform(decisions))
    (action,) = of.kind.actions
    plan = {row["resource"] for row in rows if row["decision"] in (action.name, "unmanaged") and row["phase"] is None}
    found = dicts(validated.transform(find_resource_drift(of.kind, _nothing(spark), listed, topics, SETTINGS)))
    assert plan == {row["what"] for row in found}
    assert {row["kind"] for row in found} == set(of.kinds)
    assert {row["error"] for row in rows if row["phase"] is not None} == {of.invalid}


def _nothing(spark: SparkSession) -> Estate:
    nothing = frame(spark, OBSERVED_CONFIGS.schema, [])
    return Estate(
        cluster_ids={"main": "kafka-main"},
        topics=frame(spark, TOPICS, []),
        configs=nothing,
        earlier_configs=nothing,
        audit=frame(spark, AUDIT.schema, []),
    )
