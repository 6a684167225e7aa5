"""A plan's information is outdated when it is applied: manifests, topics and other runs change after the plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import live, make, remove
from tests.fault.proxy import CREATE_TOPICS, CUT, FaultProxy, Frame
from tests.harness import Estate, cluster_settings, policy, topics
from topicledger import pipeline
from topicledger.apply import stages
from topicledger.apply.dispatch import Stopped
from topicledger.apply.executor import Executor
from topicledger.apply.values import Validated
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import KafkaSettings, PolicySettings
from topicledger.ledger.sql import sql_value
from topicledger.model import PhaseResult, Target
from topicledger.schemas import MANIFESTS, OBSERVED, PLANS, RUNS, SENT_BATCHES
from topicledger_testing.embedded_kafka import EmbeddedKafka

CHANGED = ("apply", "refused", "CHANGED_SINCE_PLAN")
DONE = ("verify", "ok", None)


def test_a_saved_plan_does_only_what_the_latest_manifests_still_ask_for(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """D6: `absent` turns to `present`, a row goes, configs change; the message names both versions.

    No action is sent after `guards.max_plan_age`, also by the first start that applies it.
    """
    ids = make(kafka, "flip.kept", "flip.forgotten", "flip.doomed")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, max_deletes=5)
    estate.declare(*topics(ids, state="absent"))
    estate.declare(
        *topics(["flip.same", "flip.dropped", "flip.unwanted", "flip.aged"], configs={"retention.ms": "1"}),
        {"topic": "flip.other", "num_partitions": 2, "configs": {"retention.ms": "1"}},
        {"topic": "flip.twice"},
    )
    assert estate.run("plan", run_id="flip").pending_changes == 9
    (planned,) = estate.rows(RUNS, "flip")
    yesterday = sql_value(datetime.now(UTC) - timedelta(seconds=estate.settings.guards.max_plan_age + 1))
    assert estate.ledger.update(PLANS, "topic = 'flip.aged'", {"planned_at": yesterday}) == 1
    estate.declare_anew(
        {"topic": "flip.doomed", "state": "absent"},
        {"topic": "flip.kept"},
        {"topic": "flip.same", "configs": {"retention.ms": "1"}, "owner": "somebody else by now"},
        {"topic": "flip.aged", "configs": {"retention.ms": "1"}},
        {"topic": "flip.unwanted", "state": "absent", "configs": {"retention.ms": "1"}},
        {"topic": "flip.other", "num_partitions": 3, "configs": {"retention.ms": "2"}},
        *topics(["flip.twice"], num_partitions=1),
        *topics(["flip.twice"], num_partitions=2),
    )
    assert estate.run("apply", run_id="flip", wait_visible=60.0).exit_code == 5
    estate.check_invariant("flip")
    last = estate.last("flip")
    assert {name: end for name, end in last.items() if end != CHANGED} == {
        "flip.same": DONE,
        "flip.doomed": DONE,
        "flip.aged": ("apply", "refused", "PLAN_EXPIRED"),
    }
    audit = estate.audit("flip")
    reasons = {
        "flip.kept": "declare it present",
        "flip.forgotten": "don't declare it",
        "flip.dropped": "don't declare it",
        "flip.unwanted": "declare it absent",
        "flip.other": "declare it with other num_partitions, configs",
        "flip.twice": "refuse its row: 2 rows for this topic differ in num_partitions; keep one of them",
    }
    latest = estate.ledger.latest_version(MANIFESTS)
    for name, reason in reasons.items():
        assert audit[name, "apply"]["error_message"] == (
            f"the manifests at version {latest} {reason}; it was planned from version {planned['manifest_version']}: "
            "plan again"
        )
    assert set(live(kafka, "flip.")) == {"flip.kept", "flip.forgotten", "flip.same"}


@pytest.mark.thorough
def test_manifests_that_change_while_a_run_validates_count_for_it_too(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one start, nothing saved and nothing taken up again."""
    make(kafka, "meanwhile.there")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, max_deletes=5)
    estate.declare({"topic": "meanwhile.there", "state": "absent"}, {"topic": "meanwhile.new"})
    validate = pipeline.validate

    def flip(*arguments: Any) -> Validated:
        ready = validate(*arguments)
        estate.declare_anew({"topic": "meanwhile.there"}, {"topic": "meanwhile.new"})
        return ready

    monkeypatch.setattr(pipeline, "validate", flip)
    assert estate.run(run_id="meanwhile", wait_visible=60.0).exit_code == 4
    assert estate.last("meanwhile") == {"meanwhile.there": CHANGED, "meanwhile.new": DONE}
    assert set(live(kafka, "meanwhile.")) == {"meanwhile.there", "meanwhile.new"}


@contextmanager
def interrupted(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, api_key: int, nth: int) -> Iterator[None]:
    """Within it, the n-th answer to changes of a kind is lost, and the run is asked to stop, as by SIGTERM."""
    stops: list[threading.Event] = []
    real = Executor.__init__

    def init(self: Executor, **fields: Any) -> None:
        stops.append(fields["stop"])
        real(self, **fields)

    def lose(_: Frame) -> Any:
        for stop in stops:
            stop.set()
        return CUT

    monkeypatch.setattr(Executor, "__init__", init)
    rule = proxy.on(api_key, "response", nth=nth, times=None, validate_only=False, do=lose)
    yield
    assert rule.fired
    proxy.clear()


@pytest.fixture
def halfway(spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path) -> Estate:
    """For runs whose creates go one in a batch; see `begin`."""
    small = KafkaSettings(connect_timeout=20.0, operation_timeout=2.0, max_batch_records=8)
    return Estate(spark, tmp_path / "ledger", {"main": proxy.bootstrap_servers[0]}, kafka=small)


def begin(estate: Estate, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, prefix: str) -> Sequence[str]:
    """Start a run of eight creates that is stopped at its second, whose answer is lost; its topics in their order."""
    names = [f"{prefix}.{letter}" for letter in "abcdefgh"]
    estate.declare(*topics(names, num_partitions=2, configs={"retention.ms": "1"}))
    with (
        monkeypatch.context() as patched,
        interrupted(proxy, patched, CREATE_TOPICS, nth=2),
        pytest.raises(Stopped),
    ):
        estate.run(run_id=prefix)
    (run,) = estate.rows(RUNS, prefix)
    assert run["state"] == "applying"
    batches = {row["topic"]: row["batch"] for row in estate.rows(PLANS, prefix)}
    assert len(set(batches.values())) >= 4
    return sorted(names, key=lambda name: batches[name])


@pytest.mark.thorough
def test_only_what_may_have_been_sent_is_taken_for_ours_by_the_next_start(
    halfway: Estate, proxy: FaultProxy, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18: a stranger makes a topic of a later batch, exactly as planned."""
    names = begin(halfway, proxy, monkeypatch, "halfway")
    marked = {row["batch"] for row in halfway.rows(SENT_BATCHES, "halfway")}
    planned = {row["topic"]: row["batch"] for row in halfway.rows(PLANS, "halfway")}
    assert max(planned.values()) not in marked, "the last batch was not near to being sent"
    make(kafka, names[-1], num_partitions=2, configs={"retention.ms": "1"})
    assert halfway.run(run_id="halfway", wait_visible=60.0).exit_code == 0
    halfway.check_invariant("halfway")
    assert halfway.last("halfway")[names[-1]] == ("apply", "skipped", None)
    audit = halfway.audit("halfway")
    recovered = {name for name in names if audit[name, "apply"]["error"] == "RECOVERED"}
    assert recovered
    assert {planned[name] for name in recovered} <= marked
    assert {audit[name, "apply"]["outcome"] for name in names[:-1]} == {"ok"}


@pytest.mark.thorough
def test_sent_actions_are_recovered_before_others_are_refused(
    halfway: Estate, proxy: FaultProxy, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in `applying`: nothing more is done, and what had been done is told."""
    names = begin(halfway, proxy, monkeypatch, "withdrawn")
    there = set(live(kafka, "withdrawn."))
    halfway.declare_anew(*topics(names, state="absent"))
    sent = proxy.count(CREATE_TOPICS, "request", validate_only=False)
    assert halfway.run(run_id="withdrawn").exit_code == 4
    assert proxy.count(CREATE_TOPICS, "request", validate_only=False) == sent
    halfway.check_invariant("withdrawn")
    ends = {name: end for name, end in halfway.last("withdrawn").items() if end != CHANGED}
    assert set(ends) == there == set(live(kafka, "withdrawn."))
    assert set(ends.values()) == {DONE}


@pytest.mark.thorough
def test_requests_of_an_earlier_start_before_it_loses_its_lease_are_recovered(
    halfway: Estate, proxy: FaultProxy, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18: it lives, and notices the next start only when it renews its lease; the plan isn't asked for any more."""
    names = begin(halfway, proxy, monkeypatch, "overlap")
    (last,) = [row for row in halfway.rows(PLANS, "overlap") if row["topic"] == names[-1]]
    leases = stages._leases

    def meanwhile(*arguments: Any) -> Any:
        mark = {name: last[name] for name in ("run_id", "cluster", "action", "batch")}
        rows = halfway.ledger.rows(SENT_BATCHES, [{**mark, "epoch": 0, "marked_at": datetime.now(UTC)}])
        halfway.ledger.append(SENT_BATCHES, rows, app_id="earlier start", version=1)
        make(kafka, names[-1], num_partitions=2, configs={"retention.ms": "1"})
        return leases(*arguments)

    monkeypatch.setattr(stages, "_leases", meanwhile)
    halfway.declare_anew(*topics(names, state="absent"))
    assert halfway.run(run_id="overlap").exit_code == 4
    halfway.check_invariant("overlap")
    ends = {name: end for name, end in halfway.last("overlap").items() if end != CHANGED}
    assert set(ends) == set(live(kafka, "overlap."))
    assert ends[names[-1]] == DONE


@pytest.mark.thorough
def test_a_plan_that_expired_while_it_was_applied_sends_no_more_and_tells_what_was_done(
    halfway: Estate, proxy: FaultProxy, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """guards.max_plan_age holds on a resume: exit code 5."""
    names = begin(halfway, proxy, monkeypatch, "expired")
    there = set(live(kafka, "expired."))
    halfway.settings = replace(halfway.settings, guards=GuardSettings(max_plan_age=0.001))
    summary = halfway.run(run_id="expired")
    assert (summary.exit_code, summary.state) == (5, "finished")
    halfway.check_invariant("expired")
    last = halfway.last("expired")
    assert {name for name in names if last[name] == ("apply", "refused", "PLAN_EXPIRED")} == set(names) - there
    row = halfway.audit("expired")[names[-1], "apply"]
    assert "guards.max_plan_age is 0.001 s: it was not sent; plan again" in row["error_message"]


@pytest.mark.thorough
def test_a_topic_that_a_stranger_makes_amid_a_first_start_is_not_ours(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """C18: it comes as planned, between our validateOnly and our create. It is not ours, and nothing is wrong."""
    estate = Estate(spark, tmp_path / "ledger", {"main": proxy.bootstrap_servers[0]})
    estate.declare(*topics(["amid.a", "amid.b"], num_partitions=2))

    def stranger(_: Frame) -> None:
        make(kafka, "amid.a", num_partitions=2)

    rule = proxy.on(CREATE_TOPICS, "request", validate_only=False, do=stranger)
    assert estate.run(run_id="amid", wait_visible=60.0).exit_code == 0
    assert rule.fired == 1
    estate.check_invariant("amid")
    assert estate.last("amid") == {"amid.a": ("apply", "skipped", None), "amid.b": DONE}
    skipped = estate.audit("amid")["amid.a", "apply"]
    assert "or another client did since the plan" in skipped["error_message"]
    assert skipped["topic_id"] is None


@pytest.mark.thorough
def test_a_topic_that_a_stranger_made_is_not_recovered_where_the_broker_resolved_other_counts(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """C18: the manifest leaves the count to the broker; our request never arrived, somebody else's did."""
    patient = KafkaSettings(connect_timeout=20.0, operation_timeout=2.0)
    estate = Estate(spark, tmp_path / "ledger", {"main": proxy.bootstrap_servers[0]}, kafka=patient)
    estate.declare(*topics(["resolved.a"]))

    def stranger(_: Frame) -> Any:
        make(kafka, "resolved.a", num_partitions=7)
        return CUT

    proxy.on(CREATE_TOPICS, "request", validate_only=False, do=stranger)
    assert estate.run(run_id="resolved").exit_code == 4
    row = estate.audit("resolved")["resolved.a", "apply"]
    assert (row["outcome"], row["error"]) == ("failed", "TOPIC_ALREADY_EXISTS")
    assert row["error_message"] == "the topic exists and is not as planned: num_partitions is 7, planned 1"


@pytest.mark.thorough
def test_a_run_evaluates_again_on_its_own_observation(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: while it validates, a run with other settings writes to `observed`, of another cluster of the same name."""
    rules = PolicySettings(create=(policy("partition_budget", max=10_000),))
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, policies=rules)
    estate.declare({"topic": "own.look"})
    validate = pipeline._evaluated_on_resolved

    def crowd(*arguments: Any) -> Validated:
        (row, *_) = estate.rows(OBSERVED)
        crowded = estate.ledger.rows(OBSERVED, [{**row, "topic": "huge", "num_partitions": 10_000}])
        estate.ledger.replace_clusters(OBSERVED, crowded, ["main"])
        return validate(*arguments)

    monkeypatch.setattr(pipeline, "_evaluated_on_resolved", crowd)
    assert estate.run(run_id="own", wait_visible=60.0).exit_code == 0
    assert estate.last("own")["own.look"] == DONE


@pytest.fixture
def old(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Estate:
    """The broker, spoken to as to one of Kafka 2.3."""
    settings = cluster_settings("main", kafka, api_version=(2, 3))
    return Estate(spark, tmp_path / "ledger", {"main": settings}, max_deletes=5)


@pytest.mark.thorough
def test_a_topic_without_an_id_is_deleted_by_name_after_it_was_compared(old: Estate, kafka: EmbeddedKafka) -> None:
    """D7: the plan keeps what it saw."""
    make(kafka, "noid.plain", "noid.set", num_partitions=2, configs={"retention.ms": "60000"})
    old.declare(*topics(["noid.plain", "noid.set"], state="absent"))
    assert old.run(run_id="noid", wait_visible=60.0).exit_code == 0
    old.check_invariant("noid")
    assert not live(kafka, "noid.").keys() & {"noid.plain", "noid.set"}
    for row in old.rows(PLANS, "noid"):
        assert row["topic_id"] is None
        assert row["before"] == {
            "num_partitions": "2",
            "replication_factor": "1",
            "assignments": row["before"]["assignments"],
            "retention.ms": "60000",
        }


@pytest.mark.thorough
@pytest.mark.parametrize("changed", ["counts", "configs"])
def test_a_topic_without_an_id_that_was_recreated_otherwise_survives(
    old: Estate, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """D7: between validate and the delete."""
    name = f"noid.{changed}"
    ids = make(kafka, name, num_partitions=2)
    old.declare({"topic": name, "state": "absent"})
    apply = Executor.apply

    def recreated(self: Executor, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        remove(kafka, ids)
        make(kafka, name, **({"num_partitions": 3} if changed == "counts" else {"configs": {"retention.ms": "1"}}))
        return apply(self, targets)

    if changed == "configs":
        remove(kafka, ids)
        ids = make(kafka, name)
    monkeypatch.setattr(Executor, "apply", recreated)
    assert old.run(run_id=name).exit_code == 4
    assert old.last(name)[name] == ("apply", "failed", "RECREATED")
    assert set(live(kafka, name)) == {name}


@pytest.mark.thorough
def test_a_saved_delete_without_an_id_is_refused(old: Estate, kafka: EmbeddedKafka) -> None:
    """D7: since the plan it may have been recreated just as it was."""
    make(kafka, "noid.saved")
    old.declare({"topic": "noid.saved", "state": "absent"})
    assert old.run("plan", run_id="noid saved").exit_code == 0
    assert old.run("apply", run_id="noid saved").exit_code == 4
    assert old.last("noid saved")["noid.saved"] == CHANGED
    assert set(live(kafka, "noid.saved")) == {"noid.saved"}
