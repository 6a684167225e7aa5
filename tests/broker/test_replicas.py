"""Moving replicas and leaders of topics that exist, from manifest to verify, on three brokers in three racks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.changes import alter, changing, ended, of_phase
from tests.broker.direct import admin_of, live, make
from tests.broker.invoking import done, invoke
from tests.broker.moving import Kept, mover, replicas, throttles_on, with_data
from tests.broker.moving import move as moved
from tests.clusters import three_brokers
from tests.commands import settings_file
from tests.harness import Estate, policy
from tests.waiting import until
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings
from topicledger.errors import UsageError
from topicledger.model.moves import Rebalance, parse_assignments
from topicledger.resources.topics.actions.min_insync import NEEDED_MIN_INSYNC
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.resources.topics.apply.moves import planned_moves
from topicledger.schemas import DRIFT, MANIFESTS, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

OK = ("apply", "ok", None)


def turned(kafka: EmbeddedKafka, topic: str) -> None:
    """A topic on brokers 2 and 1 that 1 leads."""
    topic_id = with_data(kafka, topic, {0: (1, 2)}, 20_000)
    with mover(kafka) as executor:
        list(executor.apply([moved(topic, topic_id, {0: (1, 2)}, {0: (2, 1)})]))
    until(lambda: live(kafka, topic)[topic].other_leaders == {0: 1}, seconds=30)


def test_declared_replicas_are_brought_about_and_a_second_plan_is_empty(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    with_data(kafka_three, "rep.rf", {0: (1,), 1: (2,), 2: (3,)}, 400_000)
    for name, assignments in {"rep.rack": {0: (1,)}, "rep.racks": {0: (1, 2)}, "rep.given": {0: (1, 2)}}.items():
        make(kafka_three, name, assignments=assignments, num_partitions=None, replication_factor=None)
    turned(kafka_three, "rep.leader")
    for name in ("rep.less", "rep.unsafe"):
        make(kafka_three, name, assignments={0: (1, 2, 3)}, num_partitions=None, replication_factor=None)
    alter(kafka_three, "rep.unsafe", min_insync_replicas="2")
    estate = changing(spark, tmp_path, kafka_three, replicas="on")
    estate.declare(
        {"topic": "rep.rf", "num_partitions": 3, "replication_factor": 2},
        {"topic": "rep.rack", "placement": "rack:c"},
        {"topic": "rep.racks", "placement": "racks", "replication_factor": 2},
        {"topic": "rep.given", "assignments": {0: [3, 1]}},
        {"topic": "rep.leader"},
        {"topic": "rep.less", "num_partitions": 1, "replication_factor": 1},
        {"topic": "rep.unsafe", "num_partitions": 1, "replication_factor": 1},
        {"topic": "rep.new", "num_partitions": 6, "replication_factor": 2, "placement": "racks"},
        {"topic": "rep.many", "num_partitions": 1, "replication_factor": 4, "placement": "racks"},
        {"topic": "rep.wrong", "placement": "rock:c"},
        {"topic": "rep.both", "placement": "any", "assignments": {0: [1]}},
        {"topic": "rep.unknown", "num_partitions": 1, "replication_factor": 1, "placement": "brokers:1,7"},
    )
    assert estate.run("plan", "none").exit_code == 5
    assert ended(estate, "none") == {
        **dict.fromkeys(
            [
                *((name, "reassign") for name in ("rep.rf", "rep.rack", "rep.given")),
                ("rep.given", "elect_leaders"),
            ],
            ("guard", "refused", "MAX_MOVES_EXCEEDED"),
        ),
        ("rep.less", "reassign"): ("guard", "refused", "MAX_LOSSES_EXCEEDED"),
        ("rep.unsafe", "reassign"): ("policy", "refused", "BELOW_MIN_INSYNC"),
        ("rep.leader", "elect_leaders"): ("validate", "ok", None),
        ("rep.new", "create"): ("validate", "ok", None),
        ("rep.many", "create"): ("policy", "refused", "TOO_FEW_RACKS"),
        **dict.fromkeys([("rep.wrong", None), ("rep.both", None)], ("manifest", "refused", "INVALID_PLACEMENT")),
        ("rep.unknown", "create"): ("policy", "refused", "BROKERS_UNAVAILABLE"),
    }
    (less,) = (row["error_message"] for row in estate.rows(PLANS, "none") if row["topic"] == "rep.less")
    assert less.startswith("replication factor 3 -> 1 keeps data less safely (partitions 0); topics of this cluster")
    estate.settings = replace(estate.settings, guards=GuardSettings(max_moves=6, max_losses=1))
    assert estate.run(run_id="move").exit_code == 4
    results = ended(estate, "move")
    assert {key for key, result in results.items() if result == OK} == {
        *((name, "reassign") for name in ("rep.rf", "rep.rack", "rep.given", "rep.less")),
        *((name, "elect_leaders") for name in ("rep.leader", "rep.given")),
        ("rep.new", "create"),
    }
    row = of_phase(estate, "move", "apply")["rep.rf", "reassign"]
    assert parse_assignments(row["after"]["assignments"]) == replicas(kafka_three, "rep.rf")
    assert (row["after"]["partitions"], int(row["after"]["bytes"]) > 1_200_000) == ("3", True)
    assert {len(each) for each in replicas(kafka_three, "rep.rf").values()} == {2}
    assert [each[0] for each in replicas(kafka_three, "rep.rf").values()] == [1, 2, 3]
    assert replicas(kafka_three, "rep.rack") == {0: (3,)}
    assert replicas(kafka_three, "rep.given") == {0: (3, 1)}
    until(lambda: live(kafka_three, "rep.leader")["rep.leader"].other_leaders == {}, seconds=30)
    (new,) = (row for row in estate.rows(PLANS, "move") if row["topic"] == "rep.new")
    assert {part: tuple(brokers) for part, brokers in new["assignments"].items()} == replicas(kafka_three, "rep.new")
    assert (new["placement"], new["num_partitions"]) == ("racks", 6)
    assert throttles_on(kafka_three) == {}
    estate.ledger.delete(MANIFESTS, "topic IN ('rep.unsafe', 'rep.many', 'rep.wrong', 'rep.both', 'rep.unknown')")
    again = estate.run("plan", "again")
    assert (again.exit_code, again.outcomes(), estate.rows(PLANS, "again")) == (0, {}, [])
    estate.run("plan", "back", reverts="move")
    assert {key: result[2] for key, result in ended(estate, "back").items() if key[1] == "reassign"} == dict.fromkeys(
        [(name, "reassign") for name in ("rep.rf", "rep.rack", "rep.given", "rep.less")], "NOT_REVERTIBLE"
    )


def test_move_stays_if_the_alter_that_its_policies_needed_is_refused(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """Two replicas leave one to lose only with min.insync.replicas=1, which the same plan sets, with another config."""
    names = ("rely.altered", "rely.refused")
    for name in names:
        make(kafka_three, name, assignments={0: (1, 2, 3)}, num_partitions=None, replication_factor=None)
        alter(kafka_three, name, min_insync_replicas="2", flush_ms="5")
    policies = PolicySettings(create=(policy("min_insync_replicas"),))
    guards = GuardSettings(max_moves=6, max_losses=6, max_disruptions=6)
    estate = changing(spark, tmp_path, kafka_three, policies=policies, guards=guards, configs="declared", replicas="on")
    wanted = {"num_partitions": 1, "replication_factor": 2, "configs": {"min.insync.replicas": "1", "flush.ms": "7"}}
    estate.declare(*({"topic": name, **wanted} for name in names))
    assert estate.run("plan", "rely").pending_changes == 4
    alter(kafka_three, "rely.refused", min_insync_replicas="2", flush_ms="6")
    assert estate.run("apply", "rely").exit_code == 4
    refused = ("apply", "refused", "CHANGED_SINCE_PLAN")
    assert ended(estate, "rely") == {
        **dict.fromkeys([("rely.altered", "alter_configs"), ("rely.altered", "reassign")], OK),
        **dict.fromkeys([("rely.refused", "alter_configs"), ("rely.refused", "reassign")], refused),
    }
    rows = of_phase(estate, "rely", "apply")
    assert "only with min.insync.replicas 1" in rows["rely.refused", "reassign"]["error_message"]
    assert NEEDED_MIN_INSYNC not in rows["rely.altered", "reassign"]["after"], "the move didn't set it"
    assert {len(replicas(kafka_three, name)[0]) for name in names} == {2, 3}
    assert len(replicas(kafka_three, "rely.refused")[0]) == 3


def test_a_move_that_only_reorders_replicas_is_planned_and_shown(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """By the commands, whose output failed on it after the plan was saved."""
    make(
        kafka_three,
        "order.one",
        assignments={0: (1, 2, 3), 1: (2, 3, 1)},
        num_partitions=None,
        replication_factor=None,
    )
    more = '[changes]\nreplicas = "on"\n[guards]\nmax_moves = 100\n'
    config = settings_file(tmp_path, {"main": list(kafka_three.bootstrap_servers)}, more=more)
    Estate(spark, tmp_path / "ledger", {"main": kafka_three}).declare(
        {"topic": "order.one", "assignments": {0: [3, 2, 1], 1: [2, 3, 1]}},
        {"topic": "order.new", "num_partitions": 1, "replication_factor": 1},
    )
    saved = ("--config", config, "--run-id", "order")
    plan = invoke("plan", *saved, "--detailed-exitcode")
    assert (plan.exit_code, "can't be shown" in plan.stderr) == (3, False), plan.output
    assert "Moves on main: 1 partition of 1 topic, 0 bytes" in plan.stdout
    assert "order.new" in plan.stdout
    shown = done("runs", "show", *saved).splitlines()
    assert {
        "+ create order.new: 1 partition, replication factor 1",
        "~ elect_leaders order.one: preferred leaders of partition 0",
        "~ reassign order.one: 0: 1,2,3 -> 3,2,1; 0 bytes",
    } <= {line.strip() for line in shown}
    done("apply", *saved)
    assert replicas(kafka_three, "order.one") == {0: (3, 2, 1), 1: (2, 3, 1)}


def test_moves_wait_for_their_approvals(spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path) -> None:
    """Nothing is moved before; a create of another run waits for nobody."""
    with_data(kafka_three, "asked.moved", {0: (1,)}, 20_000)
    guards = GuardSettings(max_moves=5, approvals_for={"moves": 2})
    estate = changing(spark, tmp_path, kafka_three, replicas="on", guards=guards)
    estate.declare({"topic": "asked.new", "num_partitions": 1, "replication_factor": 1})
    assert estate.run(run_id="create", requested_by="ann").exit_code == 0
    estate.declare_anew({"topic": "asked.moved", "placement": "brokers:3"})
    summary = estate.run(run_id="move", requested_by="ann")
    assert (summary.exit_code, summary.state) == (5, "planned")
    assert estate.approve("move", by="bob").missing == 1
    assert estate.run("apply", "move").exit_code == 5
    assert replicas(kafka_three, "asked.moved") == {0: (1,)}
    assert estate.approve("move", by="carol").missing == 0
    assert estate.run("apply", "move").exit_code == 0
    assert ended(estate, "move") == {("asked.moved", "reassign"): OK}
    assert replicas(kafka_three, "asked.moved") == {0: (3,)}
    assert throttles_on(kafka_three, ["asked.moved"]) == {}


def test_without_the_setting_replicas_are_only_drift(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """A topic that is created gets its place all the same, and is created where it was planned."""
    make(kafka_three, "still.one", assignments={0: (1,)}, num_partitions=None, replication_factor=None)
    estate = changing(spark, tmp_path, kafka_three)
    estate.declare(
        {"topic": "still.one", "replication_factor": 3},
        {"topic": "still.new", "num_partitions": 4, "replication_factor": 1, "placement": "brokers:2,3"},
        {"topic": "still.uncounted", "placement": "spread"},
    )
    assert estate.run("plan", "still").exit_code == 4
    assert estate.run("apply", "still").exit_code == 4
    assert ended(estate, "still") == {
        ("still.new", "create"): OK,
        ("still.uncounted", "create"): ("policy", "refused", "COUNTS_REQUIRED"),
    }
    assert sorted(replicas(kafka_three, "still.new").values()) == [(2,), (2,), (3,), (3,)]
    with admin_of(kafka_three) as admin:
        assert not admin.list_reassignments()


def test_a_broker_is_drained_and_filled_again_by_plans_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """Both declared and undeclared topics move; a second plan is empty; changed manifests stop it."""
    with three_brokers() as kafka:
        with_data(kafka, "bal.declared", {n: (1 + n % 3,) for n in range(6)}, 100_000)
        make(
            kafka,
            "bal.foreign",
            assignments=dict.fromkeys(range(3), (3, 1)),
            num_partitions=None,
            replication_factor=None,
        )
        make(kafka, "bal.three", num_partitions=1, replication_factor=3)
        estate = changing(spark, tmp_path, kafka, guards=GuardSettings(max_moves=100))
        estate.declare({"topic": "bal.declared", "owner": "payments"}, {"topic": "bal.missing"})
        with pytest.raises(UsageError, match=r"has no broker 7 that is up: it has 1, 2, 3"):
            estate.run("plan", "none", instead=Rebalance(broker=7, fills=False))
        drain = Rebalance(broker=3, fills=False)
        assert estate.run("plan", "drain", instead=drain).exit_code == 4
        assert ended(estate, "drain") == {
            ("bal.declared", "reassign"): ("validate", "ok", None),
            ("bal.foreign", "reassign"): ("validate", "ok", None),
            ("bal.three", "reassign"): ("policy", "refused", "TOO_FEW_BROKERS"),
        }
        assert estate.run("apply", "drain").exit_code == 4
        of_both = [*replicas(kafka, "bal.declared").values(), *replicas(kafka, "bal.foreign").values()]
        assert 3 not in {broker for brokers in of_both for broker in brokers}
        estate.run("plan", "again", instead=drain)
        assert set(ended(estate, "again")) == {("bal.three", "reassign")}

        fill = Rebalance(broker=3, fills=True)
        assert estate.run("plan", "late", instead=fill).exit_code == 0
        (moves,) = planned_moves(estate.ledger.read(PLANS).where("run_id = 'late'"), 1_000)
        assert (moves.cluster, moves.unknown, set(moves.brokers) >= {3}) == ("main", 0, True)
        assert moves.brokers[3][0] == moves.bytes == sum(out for _, out in moves.brokers.values())
        assert moves.seconds == moves.bytes / 1_000
        estate.declare_anew({"topic": "bal.declared", "owner": "other"})
        assert estate.run("apply", "late").exit_code == 4
        errors = {key: result[2] for key, result in ended(estate, "late").items()}
        assert errors.get(("bal.declared", "reassign"), "CHANGED_SINCE_PLAN") == "CHANGED_SINCE_PLAN"
        assert estate.run(run_id="fill", instead=fill).exit_code == 0
        counts = Counter(
            broker
            for topic in ("bal.declared", "bal.foreign")
            for each in replicas(kafka, topic).values()
            for broker in each
        )
        assert counts[3] == 4
        assert estate.run("plan", "full", instead=fill).exit_code == 0
        assert estate.rows(PLANS, "full") == []
        assert throttles_on(kafka) == {}

        # A broker that is gone for good is drained of replicas that others have, too; the rest has no leader.
        kafka.kill_broker(3)
        until(lambda: live(kafka, "bal.declared")["bal.declared"].leaderless > 0, seconds=60)
        assert estate.run("plan", "dead", instead=drain).exit_code == 4
        assert ended(estate, "dead") == {
            ("bal.declared", "reassign"): ("policy", "refused", "BROKERS_UNAVAILABLE"),
            ("bal.foreign", "reassign"): ("validate", "ok", None),
            ("bal.three", "reassign"): ("policy", "refused", "TOO_FEW_BROKERS"),
        }


def test_an_audit_says_what_placements_do_not_allow_and_what_is_moved(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """R2: another hand's move is drift while it lasts, and its topic's moves are refused."""
    topic_id = with_data(kafka_three, "seen.moving", {0: (1,)}, 60_000_000)
    placed = {"seen.rack": {0: (1,), 1: (3,)}, "seen.skew": dict.fromkeys(range(4), (1,)), "seen.fine": {0: (1, 2)}}
    for name, assignments in placed.items():
        make(kafka_three, name, assignments=assignments, num_partitions=None, replication_factor=None)
    # While the other move lasts, the topic has two replicas: one is fewer.
    guards = GuardSettings(max_moves=100, max_losses=1)
    estate = changing(spark, tmp_path, kafka_three, replicas="on", guards=guards)
    audit = replace(estate.settings.audit, max_replica_skew=3)
    estate.settings = replace(estate.settings, audit=audit)
    estate.declare(
        {"topic": "seen.rack", "placement": "rack:c"},
        {"topic": "seen.skew"},
        {"topic": "seen.fine", "placement": "racks"},
        {"topic": "seen.moving", "placement": "brokers:3", "replication_factor": 1},
    )
    with mover(kafka_three) as executor:
        throttling = Throttling(executor, Kept())
        throttling.begin(moves_of(moved("seen.moving", topic_id, {0: (1,)}, {0: (1, 2)})), 1)
        assert executor.admin.reassign({("seen.moving", 0): (1, 2)})[0]["seen.moving", 0].error_code == 0
        estate.run_audit("seen")
        assert estate.run("plan", "busy").exit_code == 4
        executor.admin.reassign({("seen.moving", 0): None})
        until(lambda: executor.reassignments() == {}, seconds=30)
        throttling.end()
    found = {
        (row["topic"], row["kind"], row["what"], row["live"])
        for row in estate.rows(DRIFT, "seen")
        if row["topic"].startswith("seen.")
    }
    assert found >= {
        ("seen.rack", "broker_not_allowed", "0", "1"),
        ("seen.skew", "replica_skew", None, "4"),
        ("seen.moving", "moves_under_way", None, "0"),
    }
    assert {key[0] for key in found} == {"seen.rack", "seen.skew", "seen.moving"}
    assert ended(estate, "busy")["seen.moving", "reassign"] == ("validate", "refused", "REASSIGNMENT_IN_PROGRESS")
    assert ended(estate, "busy")["seen.rack", "reassign"] == ("validate", "ok", None)
    assert throttles_on(kafka_three, ["seen.moving"]) == {}
