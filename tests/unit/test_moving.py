"""Requests to the planner of replicas, its answers, and the rows that they become."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from tests.harness import cluster_settings
from tests.unit.frames import decision_rows, dicts, frame, manifest_rows, moves_of, observed_rows, plain, validated_rows
from topicledger.config.settings import GuardSettings, Owners, OwnerSettings, Settings, TablesSettings
from topicledger.model import Action, ReplicaAction, Target, Work
from topicledger.model.moves import Rebalance, parse_assignments
from topicledger.model.placement import allows, parse_placement
from topicledger.model.scope import Scope
from topicledger.policies import Policy, built_in
from topicledger.resources.topics.actions.min_insync import MIN_INSYNC, NEEDED_MIN_INSYNC
from topicledger.resources.topics.apply.moves import PlannedMoves, begin_until, render_moves
from topicledger.resources.topics.plan import wanted as asking
from topicledger.resources.topics.plan.changes import DESCRIBED
from topicledger.resources.topics.plan.guards import max_disruptions
from topicledger.resources.topics.plan.moving import _ANSWER, CREATES, GROWS, Asked, Sizes, answer, planned
from topicledger.resources.topics.plan.placing import with_moves, without_growing
from topicledger.resources.topics.plan.relying import with_needed_min_insync
from topicledger.resources.topics.plan.replicas import LiveCluster
from topicledger.schemas import BROKERS, OBSERVED_CONFIGS, PLANS

RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "c"}
ON = Asked(moves=["main"], elections=["main"])


def row(topic: str, live: dict[int, list[int]] | None, declared: bool = True, **values: Any) -> dict[str, Any]:
    """As Spark hands it over: maps are lists of pairs."""
    names = ("num_partitions", "replication_factor", "placement", "assigned", "internal", "sizes", "other_leaders")
    pairs = {name: list(value.items()) if isinstance(value, dict) else value for name, value in values.items()}
    found = dict.fromkeys((*names, "refused")) | pairs
    return {"topic": topic, "declared": declared or None, "live": None if live is None else list(live.items()), **found}


def answers(
    *rows: dict[str, Any], asked: Asked = ON, rooms: dict[int, int] | None = None
) -> dict[tuple[str, str], Any]:
    cluster = LiveCluster(racks=RACKS, rooms=rooms or {})
    return {(each["topic"], each["decision"]): each for each in answer("main", cluster, rows, asked)}


def test_only_declared_topics_that_exist_are_moved() -> None:
    found = answers(
        row("wanted", {0: [1], 1: [2]}, replication_factor=2, sizes={0: 10, 1: 20}),
        row("fine", {0: [1, 2]}, replication_factor=2, placement="racks"),
        row("said.nothing", {0: [1, 2]}),
        row("foreign", {0: [1]}, declared=False),
        row("__internal", {0: [1]}, replication_factor=3, internal=True),
        row("missing", None, replication_factor=2),
    )
    assert set(found) == {("wanted", "reassign")}
    change = found["wanted", "reassign"]
    assert change["before"] == {"assignments": "0:1;1:2"}
    assert change["moves"] == [
        {name: value if name == "partition" else list(value) for name, value in each.items()}
        for each in moves_of(change["before"], change["after"])
    ]
    assert change["after"]["bytes"] == "30"
    assert [each.split(",")[0] for each in change["after"]["assignments"].split(";")] == ["0:1", "1:2"]
    assert change["after"]["broker_bytes"].startswith(("1:", "2:", "3:"))


def test_unknown_sizes_do_not_count_as_zero() -> None:
    (found,) = answers(row("a", {0: [1], 1: [2]}, replication_factor=2, sizes={0: 10})).values()
    assert set(found["after"]) == {"assignments"}


def test_moves_of_topics_that_may_get_partitions_are_marked() -> None:
    """They are about the partitions that exist, and so are the elections that stay if the moves don't."""
    grows = Asked(moves=["main"], elections=["main"], growing=["main"])
    wanted = {"replication_factor": 2, "num_partitions": 3}

    def found(asked: Asked, **values: Any) -> Any:
        return {
            kind: (each[GROWS], len(each["moves"]) if kind == "reassign" else each["after"]["leaders"])
            for (_, kind), each in answers(row("a", {0: [1, 3]}, other_leaders={0: 3}, **values), asked=asked).items()
        }

    both = {"reassign": (True, 1), "elect_leaders": (True, "0:1")}
    assert found(grows, num_partitions=3, placement="brokers:1,2") == both
    assert found(grows, assigned={0: [2, 3], 1: [1, 2]}) == both
    assert found(grows, assigned={0: [2, 3]}) == {"reassign": (False, 1), "elect_leaders": (False, "0:2")}
    assert set(answers(row("a", {0: [1]}, **wanted))) == {("a", "reassign")}


@pytest.mark.parametrize(
    ("end", "moved"), [({}, False), ({"phase": "policy", "outcome": "refused"}, True), ({"phase": "guard"}, True)]
)
def test_a_topic_is_moved_unless_this_run_adds_its_partitions(
    spark: SparkSession, end: dict[str, str], moved: bool
) -> None:
    """If nothing adds them, no later run would move the topic either."""
    growth = {"topic": "grows", "decision": "add_partitions", **end}
    actions = [
        {"topic": topic, "decision": decision, "after": {}, "moves": []}
        for topic in ("grows", "stays")
        for decision in ("reassign", "elect_leaders")
    ]
    rows = decision_rows(spark, growth, *actions).withColumn(
        GROWS, F.when(F.col("decision") != "add_partitions", F.col("topic") == "grows")
    )
    found = rows.transform(without_growing)
    assert GROWS not in found.columns
    left = {(each["topic"], each["decision"]) for each in found.where("decision != 'add_partitions'").collect()}
    stays = {("stays", "reassign"), ("stays", "elect_leaders")}
    assert left == {*stays, ("grows", "reassign" if moved else "elect_leaders")}


def test_refusals_name_their_reason() -> None:
    found = answers(
        row("many", {0: [1]}, replication_factor=4),
        row("racks", {0: [1]}, replication_factor=4, placement="racks"),
        row("unknown", {0: [1]}, placement="brokers:9"),
        row("full", {0: [1]}, placement="brokers:2", sizes={0: 100}),
        rooms={2: 50},
    )
    assert {topic: each["error"] for (topic, _), each in found.items()} == {
        "many": "TOO_FEW_BROKERS",
        "racks": "TOO_FEW_RACKS",
        "unknown": "BROKERS_UNAVAILABLE",
        "full": "NO_ROOM",
    }


def test_leaders_are_elected_as_they_are_after_the_moves() -> None:
    """Not if the leader is removed, if there is none, or if the preferred replica is down."""
    found = answers(
        row("turned", {0: [1, 2], 1: [2, 1]}, other_leaders={0: 2}),
        row("given", {0: [1, 2]}, assigned={0: [2, 1]}),
        row("leaves", {0: [1, 2]}, assigned={0: [2, 3]}),
        row("leaderless", {0: [1, 2]}, other_leaders={0: -1}),
        row("down", {0: [9, 2]}, other_leaders={0: 2}),
        row("foreign", {0: [1, 2]}, declared=False, other_leaders={0: 2}),
    )
    elected = {topic: (each["before"], each["after"]) for (topic, kind), each in found.items() if kind != "reassign"}
    assert elected == {
        "turned": ({"leaders": "0:2"}, {"partitions": "0", "leaders": "0:1"}),
        "given": ({"leaders": "0:1"}, {"partitions": "0", "leaders": "0:2"}),
    }
    assert {topic for topic, kind in found if kind == "reassign"} == {"given", "leaves"}


def test_a_topic_is_created_by_its_placement() -> None:
    wanted = {"num_partitions": 3, "replication_factor": 2}
    found = answers(
        row("lives", {0: [1, 2]}, replication_factor=1),
        row("racks", None, placement="racks", **wanted),
        row("here", None, placement="brokers:2,3", **wanted),
        row("any", None, placement="any", **wanted),
        row("none", None, **wanted),
        row("uncounted", None, placement="spread", num_partitions=3),
        row("too.many", None, placement="racks", num_partitions=1, replication_factor=4),
        asked=CREATES,
    )
    placed = {topic: each.get("assignments") for (topic, _), each in found.items()}
    assert {topic for topic, kind in found if kind == "create"} == {"racks", "here", "uncounted", "too.many"}
    assert {tuple(sorted(brokers)) for _, brokers in placed["here"]} == {(2, 3)}
    assert [partition for partition, _ in placed["racks"]] == [0, 1, 2]
    assert found["uncounted", "create"]["error"] == "COUNTS_REQUIRED"
    assert found["too.many", "create"]["error"] == "TOO_FEW_RACKS"


def rebalanced(*rows: dict[str, Any], broker: int, fills: bool) -> dict[str, Any]:
    asked = Asked(moves=["main"], elections=["main"], rebalance=Rebalance(broker=broker, fills=fills))
    found = answers(*rows, asked=asked)
    return {topic: each.get("error") or each["after"]["assignments"] for (topic, _), each in found.items()}


def test_a_broker_is_drained_of_every_topic_within_its_placement() -> None:
    """Internal topics and those that nobody declares too; what a manifest assigns stays, and says so."""
    found = rebalanced(
        row("foreign", {0: [3, 1]}, declared=False),
        row("__internal", {0: [3]}, declared=False, internal=True),
        row("racks", {0: [1, 3]}, placement="racks", replication_factor=3),
        row("here", {0: [3]}, placement="brokers:2,3"),
        row("assigned", {0: [3]}, assigned={0: [3]}),
        row("elsewhere", {0: [1, 2]}, replication_factor=1),
        broker=3,
        fills=False,
    )
    assert set(found) == {"foreign", "__internal", "racks", "here", "assigned"}
    assert found["assigned"] == "BROKERS_UNAVAILABLE"
    assert found["here"] == "0:2"
    assert {topic: parse_assignments(found[topic])[0] for topic in ("foreign", "racks")} == {
        "foreign": (1, 2),
        "racks": (1, 2),
    }


def test_a_move_without_a_leader_to_copy_from_is_refused() -> None:
    """It would never end. Others of the same topic that stay where they are do no harm."""
    gone: dict[str, Any] = {"other_leaders": {0: -1}}
    found = answers(
        row("declared", {0: [9, 1], 1: [1, 2]}, placement="brokers:1,2", **gone),
        row("assigned", {0: [9], 1: [1]}, assigned={0: [2], 1: [1]}, **gone),
        row("rest", {0: [9], 1: [1]}, assigned={0: [9], 1: [2]}, **gone),
    )
    errors = {topic: each.get("error") for (topic, _), each in found.items()}
    assert errors == {"declared": "BROKERS_UNAVAILABLE", "assigned": "BROKERS_UNAVAILABLE", "rest": None}
    message = found["declared", "reassign"]["error_message"]
    assert message.startswith("no leader to copy from (partitions 0): start a broker with a replica in sync")
    drained = rebalanced(
        row("lost", {0: [9]}, declared=False, **gone),
        row("led", {0: [9, 1]}, declared=False, other_leaders={0: 1}),
        broker=9,
        fills=False,
    )
    assert drained["lost"] == "BROKERS_UNAVAILABLE"
    assert parse_assignments(drained["led"])[0][0] == 1


def test_a_broker_is_filled_with_nothing_that_has_no_leader() -> None:
    """All its brokers are up: a log directory of one may be offline."""
    lost = row("lost", {n: [1 + n % 2] for n in range(6)}, declared=False, other_leaders=dict.fromkeys(range(6), -1))
    assert rebalanced(lost, broker=3, fills=True) == {}


@pytest.mark.parametrize("fills", [False, True])
def test_a_rebalance_leaves_topics_whose_rows_are_refused(fills: bool) -> None:
    """A mistake elsewhere in a row must not take away the placement that the row declares."""
    why = {"error": "INVALID_CONFIGS", "error_message": "retention.ms is no number"}
    live = {0: [1, 3], 1: [2, 1], 2: [2, 1], 3: [1, 2]}
    asked = Asked(moves=["main"], elections=["main"], rebalance=Rebalance(broker=3, fills=fills))
    mistaken = {**row("mistaken", live, declared=False), "refused": why}
    found = answers(mistaken, row("free", live, declared=False), asked=asked)
    assert {topic for (topic, _), each in found.items() if each.get("moves")} <= {"free"}
    refused = {topic: each["error"] for (topic, _), each in found.items() if each.get("error")}
    assert refused == ({} if fills else {"mistaken": "INVALID_CONFIGS"})
    if not fills:
        message = found["mistaken", "reassign"]["error_message"]
        assert message.endswith("correct the row first: retention.ms is no number")


def test_no_leaders_are_elected_where_a_move_is_refused() -> None:
    """The first replica may be on the broker that is drained, since another broker had to take over from it."""
    turned: dict[str, Any] = {"other_leaders": {0: 1}}
    why = {"error": "INVALID_CONFIGS", "error_message": "retention.ms is no number"}
    rows = [
        {**row("mistaken", {0: [3, 1]}, declared=False, **turned), "refused": why},
        row("assigned", {0: [3, 1]}, assigned={0: [3, 1]}, **turned),
        row("nowhere", {0: [3, 1]}, placement="brokers:3", **turned),
        row("drained", {0: [3, 1]}, **turned),
    ]
    found = answers(*rows, asked=Asked(moves=["main"], elections=["main"], rebalance=Rebalance(broker=3, fills=False)))
    assert {topic for (topic, kind), each in found.items() if kind == "reassign" and each.get("error")} == {
        "mistaken",
        "assigned",
        "nowhere",
    }
    assert {topic for topic, kind in found if kind == "elect_leaders"} <= {"drained"}
    refused = row("many", {0: [1, 2]}, replication_factor=9, other_leaders={0: 2})
    assert {kind for _, kind in answers(refused)} == {"reassign"}


@pytest.mark.parametrize("fills", [False, True])
def test_a_rebalance_leaves_topics_outside_the_scope_where_they_are(fills: bool) -> None:
    """Topics on a drained broker are counted, whatever they declare."""
    theirs = {"declared": False, "live": [(0, [1, 3]), (1, [2, 1])]}
    rows = [
        row("mine", {0: [1, 3], 1: [2, 1]}),
        {**row("theirs", {}, placement="brokers:1,2,3"), **theirs},
        {**row("assigned", {}, assigned={0: [1, 3]}), **theirs},
        {**row("elsewhere", {}), **theirs, "live": [(0, [1, 2])]},
    ]
    asked = Asked(moves=["main"], elections=["main"], rebalance=Rebalance(broker=3, fills=fills))
    found = answers(*rows, asked=asked)
    moved = {topic for topic, decision in found if decision != "outside"}
    assert moved <= {"mine"}
    assert {topic for topic, decision in found if decision == "outside"} == (set() if fills else {"theirs", "assigned"})
    assert fills or moved == {"mine"}


def test_a_broker_is_filled_with_what_it_may_have() -> None:
    found = rebalanced(
        row("declared", {n: [1 + n % 2] for n in range(6)}, placement="brokers:1,2"),
        row("assigned", {n: [1 + n % 2] for n in range(6)}, assigned={n: [1 + n % 2] for n in range(6)}),
        row("free", {n: [1 + n % 2] for n in range(6)}, declared=False),
        broker=3,
        fills=True,
    )
    assert set(found) == {"free"}
    assert set(parse_assignments(found["free"]).values()) == {(3,)}


def test_totals_of_moves_are_shown_by_broker() -> None:
    brokers = {1: (0, 3_000), 2: (3_000, 0)}
    known = PlannedMoves(cluster="main", topics=1, partitions=2, bytes=3_000, unknown=0, brokers=brokers, seconds=90.4)
    unknown = PlannedMoves(cluster="other", topics=2, partitions=1_234, bytes=0, unknown=2)
    console = Console(width=100, record=True, file=io.StringIO())
    render_moves([known, unknown], console)
    lines = console.export_text().splitlines()
    assert lines[0] == "Moves on main: 2 partitions of 1 topic, 3,000 bytes, about 1 min 30 s at the throttle"
    assert [line.split() for line in lines if "│" in line] == [
        ["│", "1", "│", "0", "│", "3,000", "│"],
        ["│", "2", "│", "3,000", "│", "0", "│"],
    ]
    assert lines[-1] == "Moves on other: 1,234 partitions of 2 topics, 0 bytes, 2 topics of unknown size"


@pytest.mark.parametrize(
    ("placement", "brokers"),
    [("any", [1, 4]), ("spread", [1, 4]), ("racks", [1]), ("rack:a", [1]), ("brokers:4", [4])],
)
def test_a_broker_without_a_rack_gets_no_replicas_of_placement_racks(placement: str, brokers: list[int]) -> None:
    """The next plan would move them back: it counts racks."""
    racks = {1: "a", 4: None}
    assert [each for each, rack in racks.items() if allows(parse_placement(placement), each, rack)] == brokers


def test_a_move_to_fewer_replicas_goes_by_the_configs_that_were_described(spark: SparkSession) -> None:
    """Unknown only if they weren't: min.insync.replicas may be as many as there are replicas then. A cluster each."""
    stopped = "MAX_DISRUPTIONS_EXCEEDED"
    wanted = {"one": ("1", None), "two": ("2", stopped), "unknown": (None, stopped)}
    (move,) = answers(row("t", {0: [1, 2, 3]}, replication_factor=2)).values()
    found = frame(spark, plain(_ANSWER), [{**move, "cluster": each} for each in wanted])
    live = {
        each: [] if needed is None else [{"name": MIN_INSYNC, "value": needed, "is_sensitive": False}]
        for each, (needed, _) in wanted.items()
    }
    described = [{"cluster": each, "topic": "t", "configs": configs} for each, configs in live.items()]
    configs = frame(spark, plain(OBSERVED_CONFIGS.schema), described)
    there = {"topic": "t", "assignments": {0: [1, 2, 3]}, "replication_factor": 3}
    seen: Any = SimpleNamespace(
        topics=observed_rows(spark, *({"cluster": each, **there} for each in wanted)),
        known=list(wanted),
        statuses={each: SimpleNamespace(cluster_id="K") for each in wanted},
    )
    asked = [{"cluster": each, "topic": "t", "replication_factor": 2} for each in wanted]
    moves = with_moves(found, validated_rows(spark, *asked), seen, configs.select(*DESCRIBED))
    rows = decision_rows(spark).transform(moves).transform(max_disruptions(0)).collect()
    assert not any(each["undeclared"] for each in rows)
    without = with_moves(found, validated_rows(spark, *asked[1:]), seen, configs.select(*DESCRIBED))
    undeclared = decision_rows(spark).transform(without).where("undeclared").collect()
    assert [each["cluster"] for each in undeclared] == [asked[0]["cluster"]], "policies take it to have any label"
    assert {each["cluster"]: (each["decision"], each["error"], each["resolved_configs"]) for each in rows} == {
        each: ("reassign", error, {} if needed is None else {MIN_INSYNC: needed})
        for each, (needed, error) in wanted.items()
    }


@pytest.mark.parametrize(
    ("spare", "altered", "needed"),
    [(1, "1", "1"), (0, "1", None), (1, None, None)],
    ids=["the policy needs it", "any would do", "no alter"],
)
def test_move_notes_the_min_insync_that_an_alter_of_the_plan_makes(
    spark: SparkSession, spare: int, altered: str | None, needed: str | None
) -> None:
    """Without the alter, which may fail, policy min_insync_replicas would have refused the move."""
    live = [{"name": MIN_INSYNC, "value": "2" if altered else "1", "is_sensitive": False}]
    resolved = {MIN_INSYNC: altered or "1"}
    change = {"before": {"assignments": "0:1,2,3"}, "after": {"assignments": "0:1,2", "bytes": "7"}}
    rows = decision_rows(
        spark,
        {"topic": "t", "decision": "reassign", "live_configs": live, "resolved_configs": resolved, **change},
        {"topic": "t", "decision": "alter_configs", "live_configs": live, "resolved_configs": resolved},
    )
    factory = built_in.BUILT_IN[Action.CREATE]["min_insync_replicas"]
    rules = [Policy(name="min_insync_replicas", action=ReplicaAction.REASSIGN, rule=factory(spare=spare))]
    noted = rows.transform(with_needed_min_insync(rules))
    assert noted.columns == rows.columns
    found = {row["decision"]: row for row in dicts(noted)}
    assert found["reassign"]["after"] == change["after"] | ({} if needed is None else {NEEDED_MIN_INSYNC: needed})
    assert (found["reassign"]["resolved_configs"], found["alter_configs"]["after"]) == (resolved, None)


def test_rebalance_leaves_topics_that_a_row_of_an_unknown_cluster_may_mean(spark: SparkSession) -> None:
    """Such a row may say where the replicas may be; the topics of another cluster of the settings are others."""
    clusters = {name: cluster_settings(name, "localhost:1") for name in ("main", "other")}
    settings = Settings(path=Path("s.toml"), tables=TablesSettings(root="x"), clusters=clusters)
    rows = manifest_rows(
        spark,
        {"topic": "a", "cluster": "mian", "placement": "rack:eu"},
        {"topic": "b", "cluster": None},
        {"topic": "c", "num_partitions": 0},
        {"topic": "d", "cluster": "other", "num_partitions": 0},
        {"topic": "e"},
        {"topic": "f", "cluster": "other"},
    )
    run: Any = SimpleNamespace(
        manifests=lambda _: rows, manifest_version=1, settings=settings, clusters=(), scope=Scope()
    )
    goal = asking.rebalanced(run, Rebalance(broker=3, fills=False), ["main"])
    assert goal.refused is not None
    refused = {(row["topic"], row["error"]) for row in goal.refused.where("cluster = 'main'").collect()}
    assert refused == {("a", "UNKNOWN_CLUSTER"), ("b", "UNKNOWN_CLUSTER"), ("c", "INVALID_NUM_PARTITIONS")}
    assert [row["topic"] for row in goal.validated.collect()] == ["e"]


@pytest.mark.parametrize("barred", [(), ("payments",)])
def test_rebalance_leaves_what_may_be_anothers_or_declared_in_a_row_that_cannot_be_read(
    spark: SparkSession, barred: tuple[str, ...]
) -> None:
    """A blank at the end of a name; and topics without a row that belong to an owner who bars the requester."""
    mine = OwnerSettings(topics=("^payments[.]",), requested_by=("ann",) if barred else ())
    settings = Settings(
        path=Path("s.toml"),
        tables=TablesSettings(root="x"),
        clusters={name: cluster_settings(name, "localhost:1") for name in ("main", "other")},
        owners=Owners(names={"payments": mine}),
    )
    rows = manifest_rows(
        spark,
        {"topic": "orders.a ", "placement": "brokers:1"},
        {"topic": "b"},
        {"cluster": "other", "topic": "c"},
        # Nobody may declare it, but it names no other topic.
        {"cluster": "other", "topic": "__consumer_offsets"},
    )
    run: Any = SimpleNamespace(
        manifests=lambda _: rows, manifest_version=1, settings=settings, clusters=(), scope=Scope(barred=barred)
    )
    goal = asking.rebalanced(run, Rebalance(broker=3, fills=False), None)
    live = [
        {"cluster": cluster, "topic": topic, "permitted": True, "internal": False, "assignments": {0: [1, 3]}}
        for cluster, topic in (("main", "orders.a"), ("main", "b"), ("other", "payments.x"), ("other", "d"))
    ]
    brokers = [{"cluster": name, "broker_id": each} for name in ("main", "other") for each in (1, 2, 3)]
    seen: Any = SimpleNamespace(
        topics=observed_rows(spark, *live), brokers=frame(spark, BROKERS.schema, brokers), known=["main", "other"]
    )
    asked = replace(goal.replicas, moves=["main", "other"], elections=[])
    found = {each["topic"]: each for each in dicts(planned(goal.marked, seen, Sizes(), asked, goal.refused))}
    assert found["orders.a"]["error"] == "INVALID_TOPIC"
    assert "a row names a topic that can't be read and may mean it" in found["orders.a"]["error_message"]
    assert found["payments.x"]["decision"] == ("outside" if barred else "reassign")
    assert {name for name in ("b", "d", "payments.x") if found[name]["moves"]} == {"b", "d", "payments.x"} - (
        {"payments.x"} if barred else set()
    )


def test_moves_of_a_cluster_that_was_planned_later_expire_later(spark: SparkSession) -> None:
    """A later start plans a cluster that couldn't be reached before; `guards.max_plan_age` counts from then."""
    noon = datetime(2026, 11, 30, 12, tzinfo=UTC)
    at = [("orders", "create", -30), ("orders", "reassign", 5), ("orders", "reassign", 0), ("late", "reassign", 40)]
    at.append(("unsent", "reassign", -50))
    rows = [
        {"cluster": cluster, "action": action, "planned_at": noon + timedelta(minutes=minute)}
        for cluster, action, minute in at
    ]
    plans = frame(spark, plain(PLANS.schema), rows)
    run: Any = SimpleNamespace(plans=lambda: plans, settings=SimpleNamespace(guards=GuardSettings(max_plan_age=3600)))
    move = Target(resource="t", action=ReplicaAction.REASSIGN)
    create = Target(resource="new", action=Action.CREATE)
    work: Work = {"orders": ("A", [[create], [move]]), "late": ("B", [[move]]), "created": ("C", [[create]])}
    hour = timedelta(hours=1)
    assert begin_until(run, work) == {"orders": noon + hour, "late": noon + timedelta(minutes=40) + hour}
    assert begin_until(run, {"created": work["created"]}) == {}
