"""Runs that are disturbed by lost answers, by another run, by a deadline, or by being suspended and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault import told
from tests.fault.effort import THOROUGH
from tests.fault.proxy import CREATE_TOPICS, CUT, DELETE_TOPICS, DROP, METADATA, FaultProxy, Frame, delay, refuse
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate, topics
from tests.processes import command_line, family, send
from tests.standalone import standalone_cluster
from tests.waiting import until
from topicledger import pipeline
from topicledger.apply.dispatch import Context, Stop, Stopped
from topicledger.apply.executor import Executor
from topicledger.apply.progress import Progress
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import KafkaSettings
from topicledger.errors import GuardStopped, TableError, UsageError
from topicledger.kafka import ClusterAdmin
from topicledger.ledger import leases, runs
from topicledger.ledger.abandoned import abandon
from topicledger.ledger.leases import LeaseHeld, Leases
from topicledger.model import Action, PhaseResult, Target
from topicledger.resources import building
from topicledger.schemas import AUDIT, PLANS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


def with_topics(kafka: EmbeddedKafka, estate: Estate, prefix: str, creates: int, deletes: int) -> dict[str, bool]:
    """Declare new topics, and existing ones as absent; return the expected state."""
    new = [f"{prefix}new-{number:03}" for number in range(creates)]
    old = [f"{prefix}old-{number:03}" for number in range(deletes)]
    estate.declare(
        *topics(new, num_partitions=2, configs={"retention.ms": "1000"}), *topics(old, state="absent", configs=None)
    )
    targets = [Target(resource=name, action=Action.CREATE, num_partitions=1, replication_factor=1) for name in old]
    with ClusterAdmin(
        Estate(estate.spark, Path(estate.ledger.root), {"main": kafka}).settings.clusters["main"], KafkaSettings()
    ) as admin:
        if targets:
            admin.create_topics(targets, validate_only=False)
            until(lambda: set(old) <= {info.topic for info in admin.list_topics()}, seconds=60)
    return dict.fromkeys(new, True) | dict.fromkeys(old, False)


_ANSWERS = {
    "the answer to a create never comes": (CREATE_TOPICS, "response", DROP),
    "the answer to a delete never comes": (DELETE_TOPICS, "response", DROP),
    "a create is cut off before it arrives": (CREATE_TOPICS, "request", CUT),
    "a delete is cut off after it was done": (DELETE_TOPICS, "response", CUT),
    "the answer to a create comes too late": (CREATE_TOPICS, "response", delay(4.0)),
    "brokers refuse everybody for a while": (CREATE_TOPICS, "response", refuse(2.0)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", _ANSWERS if THOROUGH else list(_ANSWERS)[:1])
def test_run_with_lost_answers_finishes_normally(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path, name: str
) -> None:
    """C12, C18, D3, D7: answers to every second batch are lost; the same run id finishes actions that stay open."""
    api_key, direction, fault = _ANSWERS[name]
    prefix = f"answers-{list(_ANSWERS).index(name)}."
    patient = KafkaSettings(connect_timeout=20.0, operation_timeout=1.0, max_batch_records=20)
    estate = Estate(spark, tmp_path / "ledger", {"main": proxy.bootstrap_servers[0]}, max_deletes=50, kafka=patient)
    due = with_topics(kafka, estate, prefix, creates=15, deletes=8)
    line = Fault(name=name)
    FAULTS.append(line)
    only = False if api_key == CREATE_TOPICS else None
    rules = [proxy.on(api_key, direction, nth=nth, validate_only=only, do=fault) for nth in (1, 3)]  # type: ignore[arg-type]
    summary = estate.run(run_id="hindered")
    line.tried = sum(rule.fired for rule in rules)
    proxy.clear()
    if summary.exit_code == 1:
        line.resumed += 1
        summary = estate.run(run_id="hindered")
    assert line.tried >= 1
    assert summary.exit_code == 0
    root = tmp_path / "ledger"
    told.check(line, root, "hindered", kafka, prefix, due)


def leases_of_another_run(estate: Estate, kafka: EmbeddedKafka) -> Leases:
    return leases.take(
        estate.ledger,
        "another",
        {kafka.cluster_id: "main"},
        observed_since=datetime.now(UTC),
        request_timeout=1.0,
        wait=False,
        stop=threading.Event(),
    )


def create(estate: Estate, name: str, num_partitions: int = 1) -> None:
    """Do what the other run does in the meantime."""
    with ClusterAdmin(estate.settings.clusters["main"], KafkaSettings()) as admin:
        target = Target(resource=name, action=Action.CREATE, num_partitions=num_partitions, replication_factor=1)
        admin.create_topics([target], validate_only=False)
        until(lambda: name in {info.topic for info in admin.list_topics()}, seconds=60)


def messages(estate: Estate, run_id: str) -> dict[str, str]:
    """Topic -> the message of the run's row of phase apply, if it has one."""
    rows = estate.rows(AUDIT, run_id)
    return {row["topic"]: row["error_message"] for row in rows if row["phase"] == "apply" and row["error_message"]}


@pytest.mark.thorough
def test_busy_cluster_is_skipped_and_evaluated_again_later(
    spark: SparkSession, kafka: EmbeddedKafka, estate: Estate
) -> None:
    """The plan stays unchanged; topics that the other run created in the meantime are not ours (C18).

    One that is as planned is skipped, one that isn't is refused, and a revert leaves both.
    """
    names = ["leased.as-planned", "leased.made", "leased.otherwise"]
    estate.declare(*topics(names, num_partitions=1))
    with leases_of_another_run(estate, kafka):
        with pytest.raises(LeaseHeld, match=r"cluster main .* is being changed by run another .*--wait"):
            estate.run(run_id="second")
        (run,) = estate.rows(RUNS, "second")
        assert run["state"] == "planned"
        assert {phase for _, phase in estate.audit("second")} == {"validate"}
        create(estate, "leased.as-planned")
        create(estate, "leased.otherwise", num_partitions=2)
    summary = estate.run(run_id="second", wait_visible=60.0)
    assert summary.exit_code == 4
    assert estate.last("second") == {
        "leased.as-planned": ("apply", "skipped", None),
        "leased.made": ("verify", "ok", None),
        "leased.otherwise": ("apply", "refused", "CHANGED_SINCE_PLAN"),
    }
    assert messages(estate, "second") == {
        "leased.as-planned": "the topic exists as planned: another client created it since the plan",
        "leased.otherwise": "the topic appeared since the plan and is not as planned: num_partitions is 2, planned 1; "
        "another client created it; plan again",
    }
    estate.settings = replace(estate.settings, guards=GuardSettings(max_deletes=10))
    assert estate.run("plan", run_id="undone", reverts="second", deletes=True).exit_code == 0
    assert {row["topic"] for row in estate.rows(PLANS, "undone")} == {"leased.made"}


@pytest.mark.thorough
def test_run_that_waited_evaluates_its_plan_again(spark: SparkSession, kafka: EmbeddedKafka, estate: Estate) -> None:
    """In one start with --wait; the other run created a topic that this run had observed as missing."""
    estate.declare(*topics(["waited.a", "waited.b"], num_partitions=1))
    with leases_of_another_run(estate, kafka) as held:

        def other_run() -> None:
            until(lambda: bool(estate.rows(AUDIT, "waits")), seconds=120)
            create(estate, "waited.a")
            held.release()

        other = threading.Thread(target=other_run)
        other.start()
        summary = estate.run(run_id="waits", wait=True, wait_visible=60.0)
        other.join()
    assert summary.exit_code == 0
    assert estate.last("waits") == {"waited.a": ("apply", "skipped", None), "waited.b": ("verify", "ok", None)}
    assert messages(estate, "waits") == {
        "waited.a": "the topic exists as planned: another client created it since the plan"
    }


@pytest.mark.thorough
def test_run_abandoned_while_waiting_sends_nothing(kafka: EmbeddedKafka, estate: Estate) -> None:
    """Before it sends, the run notices that its row no longer belongs to it."""
    estate.declare(*topics(["given-up.a"], num_partitions=1))
    with leases_of_another_run(estate, kafka) as held:

        def give_up() -> None:
            try:
                until(lambda: [row["state"] for row in estate.rows(RUNS, "given up")] == ["planned"], seconds=120)
                abandon(estate.ledger, estate.settings, "given up")
            finally:
                held.release()

        somebody = threading.Thread(target=give_up)
        somebody.start()
        with pytest.raises(UsageError, match=r"run given up was resumed by another start, or abandoned"):
            estate.run(run_id="given up", wait=True)
        somebody.join()
    assert {phase for _, phase in estate.audit("given up")} == {"validate"}
    assert [row["state"] for row in estate.rows(RUNS, "given up")] == ["abandoned"]


@pytest.mark.thorough
def test_actions_left_by_a_deadline_are_finished_by_the_same_run_id(estate: Estate) -> None:
    """C17: actions that weren't sent have no rows."""
    estate.declare(*topics(["deadline.a"], num_partitions=1))
    stop = Stop()
    with stop.after(0.001):
        assert stop.wait(10)
        with pytest.raises(Stopped, match=r"reached its deadline of 0\.001 s; start it again with its id"):
            estate.run(run_id="late", stop=stop)
    assert estate.audit("late") == {}
    assert estate.run(run_id="late").exit_code == 0
    estate.check_invariant("late")


@pytest.mark.thorough
def test_plan_older_than_the_settings_allow_is_refused_as_a_whole(estate: Estate) -> None:
    estate.declare(*topics(["aged.a"], num_partitions=1))
    assert estate.run("plan", run_id="aged").exit_code == 0
    fresh = estate.settings
    estate.settings = replace(fresh, guards=GuardSettings(max_plan_age=0.001))
    assert estate.settings.digest() == fresh.digest()
    with pytest.raises(GuardStopped, match=r"the plan of run aged is \d+ s old .* nothing was sent; plan again"):
        estate.run("apply", run_id="aged")
    assert {phase for _, phase in estate.audit("aged")} == {"validate"}
    estate.settings = fresh
    assert estate.run("apply", run_id="aged").exit_code == 0


def test_superseded_start_sends_nothing(kafka: EmbeddedKafka, estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta ignores the rows of a superseded start, also its refusals: it would send what it has just refused."""
    declared = with_topics(kafka, estate, "superseded.", 0, 3)
    # Each delete is a batch.
    estate.settings = replace(
        estate.settings, guards=GuardSettings(max_deletes=9), kafka=KafkaSettings(max_batch_records=8)
    )
    real = Executor.apply

    def first_only(self: Executor, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        yield from real(self, targets)
        self.stop.set()

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "apply", first_only)
        with pytest.raises(Stopped):
            estate.run(run_id="superseded")
    left = live_of(estate, declared)
    assert 0 < len(left) < 3
    asked = runs.Request(command="provision", run_id="superseded")
    superseded = runs.start(estate.ledger, estate.settings, asked)
    runs.start(estate.ledger, estate.settings, asked)
    estate.declare_anew(*topics(list(declared), num_partitions=1, configs=None))
    context = Context(progress=Progress(shown=False), stop=Stop(), policies=building.from_settings(estate.settings))
    with pytest.raises(UsageError, match="was resumed by another start"):
        pipeline.provision(superseded, context, planning_only=False)
    assert live_of(estate, declared) == left


def live_of(estate: Estate, names: Collection[str]) -> set[str]:
    with ClusterAdmin(estate.settings.clusters["main"], KafkaSettings()) as admin:
        return {info.topic for info in admin.list_topics()} & {*names}


@pytest.mark.thorough
def test_driver_resumed_after_its_lease_sends_and_records_nothing(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """SIGSTOP after the first create was answered; another start of the run waits for the lease, and finishes."""
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    due = with_topics(kafka, estate, "stopped.", creates=40, deletes=0)
    config = commands.settings_file(
        tmp_path, {"main": proxy.bootstrap_servers}, more="[kafka]\nmax_batch_records = 40\n"
    )
    arguments = [str(commands.SUBMIT), "jobs/provision.py", "--config", str(config), "--run-id", "stopped"]
    line = Fault(name="driver stopped past its lease and woken")
    FAULTS.append(line)

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            arguments,
            cwd=commands.REPOSITORY,
            env=commands.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    first = start()
    asleep = threading.Event()

    def stop(frame: Frame) -> None:
        if not asleep.is_set():
            send(family(first.pid), signal.SIGSTOP)
            asleep.set()

    proxy.on(CREATE_TOPICS, "response", validate_only=False, do=stop)
    try:
        assert asleep.wait(300)
        line.tried = 1
        second = start()
        output, _ = second.communicate(timeout=400)
        assert second.returncode == 0, output
        line.resumed = 1
        before = Counts(proxy, told.rows(tmp_path / "ledger", "audit", "stopped"))
    finally:
        send(family(first.pid), signal.SIGCONT)
    output, _ = first.communicate(timeout=300)
    assert first.returncode == 1, output
    after = Counts(proxy, told.rows(tmp_path / "ledger", "audit", "stopped"))
    assert (after.sent, after.rows) == (before.sent, before.rows), output
    root = tmp_path / "ledger"
    told.check(line, root, "stopped", kafka, "stopped.", due)


@pytest.mark.thorough
def test_executor_killed_while_observing_is_replaced(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """Work of executors can be repeated: Spark runs it again on another executor."""
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    due = with_topics(kafka, estate, "executor.", creates=20, deletes=0)
    # The tables are on a disk of this machine, and there is only one driver.
    config = commands.settings_file(tmp_path, {"main": proxy.bootstrap_servers}, single_writer=True)
    arguments = [str(commands.SUBMIT), "jobs/provision.py", "--config", str(config), "--run-id", "executor"]
    line = Fault(name="executor killed while it observes")
    FAULTS.append(line)

    def kill(frame: Frame) -> None:
        executors = [pid for pid in family(os.getpid()) if "CoarseGrainedExecutorBackend" in command_line(pid)]
        # The driver sends no requests before the executors do.
        line.tried += bool(executors)
        for pid in executors[:1]:
            send(family(pid), signal.SIGKILL)

    proxy.on(METADATA, "request", do=kill)
    with standalone_cluster(tmp_path) as master:
        done = commands.run(arguments, SPARK_MASTER=master, timeout=500)
    assert done.returncode == 0, done.stderr
    assert line.tried == 1
    root = tmp_path / "ledger"
    told.check(line, root, "executor", kafka, "executor.", due)


@pytest.mark.thorough
def test_full_disk_under_the_tables_loses_nothing(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """The disk fills up when the first create is sent; with space again, the same run id recovers it (C18)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a disk of one's own needs the right to mount it")
    try:
        estate = Estate(spark, disk / "ledger", {"main": proxy.bootstrap_servers[0]})
        due = with_topics(kafka, estate, "disk.", creates=30, deletes=0)
        line = Fault(name="disk full under the tables")
        FAULTS.append(line)
        filler = disk / "filler"

        def fill(frame: Frame) -> None:
            line.tried += 1
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"0" * 4096)

        proxy.on(CREATE_TOPICS, "request", validate_only=False, do=fill)
        with pytest.raises(TableError, match="No space left"):
            estate.run(run_id="disk")
        filler.unlink()
        assert estate.run(run_id="disk").exit_code == 0
        line.resumed = 1
        assert "RECOVERED" in {row["error"] for row in estate.audit("disk").values()}
        assert line.tried == 1
        told.check(line, disk / "ledger", "disk", kafka, "disk.", due)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class Counts:
    """Numbers of requests that changed the cluster, and of recorded rows, so far."""

    def __init__(self, proxy: FaultProxy, rows: list[Mapping[str, object]]) -> None:
        self.sent = proxy.count(CREATE_TOPICS, "request", validate_only=False)
        self.rows = len(rows)
