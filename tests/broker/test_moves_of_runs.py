"""Runs that are stopped while replicas move: what later starts, other runs and refused cancels make of that."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from pyspark.sql import SparkSession

from tests.broker.changes import changing
from tests.broker.direct import admin_of, executor_of, make
from tests.broker.moving import Kept, move, replicas, throttles_on, with_data
from tests.clusters import KAFKA, SASL_USERS, QuickKafka
from tests.harness import Estate
from tests.waiting import until
from topicledger.apply.dispatch import Stop, Stopped
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ReplicaSettings
from topicledger.kafka.sending import OutcomeUnknown
from topicledger.ledger.abandoned import abandon
from topicledger.model import Outcome
from topicledger.resources.topics.actions.moved import moves_of
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.schemas import AUDIT, THROTTLES
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

pytestmark = pytest.mark.thorough

SLOW = ReplicaSettings(throttle=4_000, max_partitions_per_broker=1)
"""Several runs start and end while 60 MB move, on slow machines too. A follower fetches 1 MB at once and then waits for
the quota's window, however low the rate: 6 MB took 57 s at this one."""


def stopped_while_it_moves(estate: Estate, kafka: EmbeddedKafka, run_id: str, **request: Any) -> None:
    """A run that is told to stop as soon as a replica moves."""
    stop = Stop()

    def when_it_moves() -> None:
        with admin_of(kafka) as admin:
            until(lambda: bool(admin.list_reassignments()), seconds=400)
        stop.set()

    thread = threading.Thread(target=when_it_moves)
    thread.start()
    with pytest.raises(Stopped):
        estate.run(run_id=run_id, stop=stop, **request)
    thread.join()


@pytest.mark.timeout(1_200)
def test_moves_of_stopped_runs_keep_their_throttles_and_are_waited_for(
    spark: SparkSession, kafka_three: EmbeddedKafka, tmp_path: Path
) -> None:
    """R4, R6: through other runs, an abandoned one, and a plan that is too old when it is resumed."""
    with_data(kafka_three, "stay.moved", {0: (1,), 1: (1,)}, 60_000_000)
    estate = changing(spark, tmp_path, kafka_three, replicas="on", guards=GuardSettings(max_moves=100))
    estate.settings = replace(estate.settings, replicas=SLOW)
    estate.declare({"topic": "stay.moved", "placement": "brokers:3"})
    stopped_while_it_moves(estate, kafka_three, "moves")
    set_by_then = throttles_on(kafka_three, ["stay.moved"])
    assert set(set_by_then) == {"broker 1", "broker 3", "stay.moved"}

    # Another run, with nothing to do; and one that is given up.
    assert estate.run("provision", "other", only=("creates",)).exit_code == 0
    estate.declare({"topic": "stay.new", "num_partitions": 1, "replication_factor": 1})
    estate.run("plan", "given", only=("creates",))
    abandon(estate.ledger, estate.settings, "given")
    assert estate.run("provision", "creates", only=("creates",)).exit_code == 0
    with admin_of(kafka_three) as admin:
        listed = admin.list_reassignments()
    assert listed == {("stay.moved", 0): (3,)}, "too fast for this test"
    assert throttles_on(kafka_three, ["stay.moved"]) == set_by_then

    # It is resumed when its plan is too old: what moves is waited for, faster, and the rest isn't begun.
    estate.settings = replace(
        estate.settings,
        guards=GuardSettings(max_moves=100, max_plan_age=0.001),
        replicas=replace(SLOW, throttle=50_000_000),
    )
    summary = estate.run(run_id="moves")
    assert (summary.exit_code, summary.state) == (5, "finished")
    (row,) = [row for row in estate.rows(AUDIT, "moves") if row["phase"] == "apply"]
    assert (row["outcome"], row["error"]) == ("failed", "PLAN_EXPIRED")
    assert row["error_message"].startswith("1 of 2 partitions moved; the rest was not begun: planned at ")
    assert replicas(kafka_three, "stay.moved") == {0: (3,), 1: (1,)}
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}

    # The next run has nothing to do, and takes away the throttles of an abandoned run once nothing moves.
    some_seconds = replace(SLOW, throttle=400_000)
    estate.settings = replace(estate.settings, guards=GuardSettings(max_moves=100), replicas=some_seconds)
    stopped_while_it_moves(estate, kafka_three, "again")
    abandon(estate.ledger, estate.settings, "again")
    assert throttles_on(kafka_three, ["stay.moved"])
    with admin_of(kafka_three) as admin:
        until(lambda: admin.list_reassignments() == {}, seconds=300)
    assert estate.run("provision", "nothing", only=("creates",)).exit_code == 0
    until(lambda: throttles_on(kafka_three) == {}, seconds=30)
    assert None not in {row["removed_at"] for row in estate.rows(THROTTLES)}


def test_a_cancel_that_brokers_refuse_leaves_move_and_throttle() -> None:
    """R2: without Alter on the cluster (31) there is no row, and the error names the topic."""
    before, after, kept = {0: (1,)}, {0: (2,)}, Kept()
    with QuickKafka(KAFKA, KafkaOptions(brokers=3, sasl_users=SASL_USERS, heap="384m")) as kafka:
        made = make(kafka, "refused.cancel", assignments=before, num_partitions=None, replication_factor=None)
        target = move("refused.cancel", made["refused.cancel"], before, after, maybe_sent=True)
        with KafkaProducer(**kafka.client_options(), acks="all") as producer:
            for _ in range(100):
                producer.send("refused.cancel", bytes(20_000), partition=0)
        with executor_of(kafka) as owner, executor_of(kafka, user="describer") as other:
            for resource in (
                ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", ACLResourcePatternType.LITERAL),
                ResourcePattern(ResourceType.TOPIC, "refused.cancel", ACLResourcePatternType.LITERAL),
            ):
                may = ACL("User:describer", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, resource)
                owner.admin._admin.create_acls([may])
            Throttling(owner, kept).begin(moves_of(target), 1_000)
            assert owner.admin.reassign({("refused.cancel", 0): (2,)})[0]["refused.cancel", 0].error_code == 0
            until(lambda: other.reassignments() == {("refused.cancel", 0): (2,)}, seconds=30)
            until(lambda: other.topic_states(["refused.cancel"])["refused.cancel"].permitted, seconds=30)
            with pytest.raises(
                OutcomeUnknown, match=r"refused.cancel: still moved, not cancelled \(CLUSTER_AUTHORIZATION_FAILED"
            ):
                list(other.cancel([target]))
            assert owner.reassignments() == {("refused.cancel", 0): (2,)}
            assert Throttling(owner, kept).end() == len(kept.written) == 6
            (row,) = owner.cancel([target])
            assert (row.outcome, row.error) == (Outcome.FAILED, "CANCELLED")
            assert Throttling(owner, kept).end() == 0
