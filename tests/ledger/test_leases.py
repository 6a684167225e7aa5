"""Leases: who may change a cluster, and who finds out that he may not any more."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.waiting import until
from topicledger.errors import TableError
from topicledger.ledger import leases
from topicledger.ledger.lease_holder import CLOCKS, Clocks, Holder, machine, process_of
from topicledger.ledger.leases import LeaseHeld, LeaseLost, Leases
from topicledger.ledger.tables import Ledger
from topicledger.schemas import LEASES, Table

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for again twice a second."""
    monkeypatch.setattr(leases, "_ASK_AGAIN_SECONDS", 0.5)
    monkeypatch.setattr(leases, "_CLOCK_SKEW_SECONDS", 0.0)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that tests can wait for: not much longer than a commit takes on a busy machine."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 15.0)


def take(ledger: Ledger, run_id: str, *clusters: str, wait: bool = False, **given: Any) -> Leases:
    asked = {"observed_since": datetime.now(UTC), "request_timeout": 1.0, "stop": threading.Event(), **given}
    return leases.take(ledger, run_id, {f"id-{name}": name for name in clusters or ("main",)}, wait=wait, **asked)


def row(ledger: Ledger, name: str = "main") -> Mapping[str, Any]:
    (found,) = ledger.read(LEASES).where(f"cluster_id = 'id-{name}'").collect()
    return dict(found.asDict())


def held_by(
    ledger: Ledger, run_id: str, *, process: str = "boot ns 1 2", host: str = "elsewhere", **times: Any
) -> None:
    """A row as another driver left it."""
    now = datetime.now(UTC)
    given = {"acquired_at": now, "expires_at": now + timedelta(minutes=5), "released_at": None, **times}
    ledger.ensure(LEASES)
    of_cluster = {"cluster_id": "id-main", "cluster": "main", "run_id": run_id, "host": host, "process": process}
    assert ledger.compare_and_set(LEASES, "cluster_id", [{**of_cluster, **given, "changes": 1}]) == 1


@pytest.fixture
def dead() -> str:
    """A process of this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = " ".join((*machine(), *process_of(child.pid)))
    child.communicate(b"\n")
    return process


def test_a_lease_is_held_by_one_run_and_free_when_released(ledger: Ledger) -> None:
    with take(ledger, "one", "main", "other") as held:
        held.require_for_request()
        assert (row(ledger)["run_id"], row(ledger)["released_at"]) == ("one", None)
        with pytest.raises(LeaseHeld) as error:
            take(ledger, "two", "other", "free")
        assert "cluster other (id id-other) is being changed by run one" in str(error.value)
        assert f"process {os.getpid()}," in str(error.value)
        assert "--wait" in str(error.value)
        # Both runs are of this process: what the second gives back is its own.
        assert row(ledger, "other")["released_at"] is None
        assert "id-free" not in {each["cluster_id"] for each in ledger.read(LEASES).collect()}
    assert row(ledger)["released_at"] is not None
    with take(ledger, "two", "other", "free", observed_since=LONG_AGO) as held:
        assert held.contended


def test_what_is_free_is_taken_and_the_rest_told(ledger: Ledger) -> None:
    """A run that is busy with one cluster for days doesn't keep others from the next cluster."""
    with take(ledger, "one", "main"):
        with take(ledger, "two", "main", "other", some=True) as held:
            held.require_for_request()
            assert held.names == {"other"}
            assert "cluster main (id id-main) is being changed by run one" in held.busy["main"]
        assert (row(ledger)["run_id"], row(ledger)["released_at"]) == ("one", None)
        with pytest.raises(LeaseHeld):
            take(ledger, "two", "main", some=True)


def test_one_cluster_is_released_while_the_other_is_still_held(ledger: Ledger) -> None:
    with take(ledger, "one", "main", "other") as held:
        held.release_some(["other"])
        until(lambda: row(ledger, "other")["released_at"] is not None, seconds=60)
        with take(ledger, "two", "other", observed_since=LONG_AGO) as next_one:
            next_one.require_for_request()
        held.require_for_request()
        assert row(ledger)["released_at"] is None
        before = row(ledger)["changes"]
        held._wake.set()
        until(lambda: row(ledger)["changes"] > before, seconds=60)
        assert row(ledger, "other")["run_id"] == "two", "what was released is renewed no more"
    assert row(ledger)["released_at"] is not None


class Overtaken(Ledger):
    """Another run takes a cluster just before this one does."""

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        if not super().read(LEASES).where("cluster_id = 'id-main'").count():
            held_by(Ledger(self.spark, self.root), "one")
        return super().compare_and_set(table, key, rows)


@pytest.mark.thorough
def test_a_run_that_finds_a_cluster_taken_gives_back_what_it_had_taken(ledger: Ledger) -> None:
    """Two runs that each hold what the other waits for would wait for ever."""
    with pytest.raises(LeaseHeld, match="is being changed by run one on host elsewhere, process 1,"):
        take(Overtaken(ledger.spark, ledger.root), "two", "main", "other")
    assert (row(ledger, "other")["run_id"], row(ledger)["run_id"]) == ("two", "one")
    assert row(ledger, "other")["released_at"] is not None
    assert row(ledger)["released_at"] is None


class Failing(Ledger):
    """A ledger that fails once, after its first lease was written."""

    error: BaseException | None = None

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        written = super().compare_and_set(table, key, rows)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return written


@pytest.mark.thorough
@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        pytest.param(TableError("no answer"), marks=pytest.mark.thorough),
        pytest.param(PySparkException("no answer"), marks=pytest.mark.thorough),
        RuntimeError("no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_ends_the_taking_of_leases_lets_go_of_them(ledger: Ledger, error: BaseException) -> None:
    failing = Failing(ledger.spark, ledger.root)
    failing.error = error
    with pytest.raises(type(error)):
        take(failing, "one")
    assert row(ledger)["released_at"] is not None
    with take(ledger, "two") as held:
        held.require_for_request()


@pytest.mark.thorough
@pytest.mark.parametrize(("until_when", "contended"), [(timedelta(0), True), (timedelta(hours=-1), False)])
def test_what_was_judged_while_another_run_could_change_the_cluster_is_to_be_judged_again(
    ledger: Ledger, until_when: timedelta, contended: bool
) -> None:
    observed_since = datetime.now(UTC) - timedelta(minutes=5)
    held_by(ledger, "one", expires_at=datetime.now(UTC) + until_when - timedelta(seconds=1))
    with take(ledger, "two", observed_since=observed_since) as held:
        assert held.contended is contended


@pytest.mark.thorough
def test_the_runs_own_earlier_lease_makes_nothing_contended(ledger: Ledger) -> None:
    with take(ledger, "one"):
        pass
    with take(ledger, "one", observed_since=LONG_AGO) as held:
        assert not held.contended


@pytest.mark.thorough
def test_a_run_waits_until_the_other_is_done(ledger: Ledger) -> None:
    other = take(ledger, "one")
    with other:
        threading.Timer(1.5, other.release).start()
        with take(ledger, "two", wait=True) as held:
            assert held.contended
            assert row(ledger)["run_id"] == "two"


@pytest.mark.thorough
def test_a_run_that_died_is_waited_for_until_its_lease_expires(ledger: Ledger, dead: str) -> None:
    """Only of the run itself is it known that a dead process is all there is; another run's may have a successor."""
    expires_at = datetime.now(UTC) + timedelta(seconds=3)
    held_by(ledger, "one", process=dead, host=Holder.here("one").host, expires_at=expires_at)
    with take(ledger, "two", wait=True):
        assert datetime.now(UTC) >= expires_at


def test_a_stop_ends_the_wait(ledger: Ledger) -> None:
    held_by(ledger, "one")
    stop = threading.Event()
    stop.set()
    with pytest.raises(LeaseLost, match="stopped while it waited"):
        take(ledger, "two", wait=True, stop=stop)


def test_a_start_with_the_holders_run_id_takes_over_at_once_where_the_holder_is_dead(ledger: Ledger, dead: str) -> None:
    held_by(ledger, "one", process=dead, host=Holder.here("one").host)
    with take(ledger, "one") as held:
        held.require_for_request()


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["another host", "another pid namespace", "alive"])
def test_a_start_with_the_holders_run_id_waits_for_the_expiry_where_the_holder_may_be_alive(
    ledger: Ledger, dead: str, where: str
) -> None:
    here = Holder.here("one").host
    boot, _, pid, started = dead.split(" ")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alive:
        process, host = {
            "another host": (dead, "elsewhere"),
            "another pid namespace": (f"{boot} pid:[1] {pid} {started}", here),
            "alive": (" ".join((*machine(), *process_of(alive.pid))), here),
        }[where]
        expires_at = datetime.now(UTC) + timedelta(seconds=3)
        held_by(ledger, "one", process=process, host=host, expires_at=expires_at)
        with take(ledger, "one"):
            assert datetime.now(UTC) >= expires_at
        alive.communicate(b"\n")


@pytest.mark.thorough
@pytest.mark.usefixtures("brief")
def test_an_earlier_start_learns_that_a_later_one_wants_its_leases(ledger: Ledger) -> None:
    """It renews no more, so that the later one has them when they expire; also where both are of one process."""
    with take(ledger, "one") as earlier:
        first = row(ledger)
        with take(ledger, "one") as later:
            assert datetime.now() >= first["expires_at"]
            with pytest.raises(LeaseLost):
                earlier.require()
            later.require_for_request()
            assert row(ledger)["process"] == later.holder.process
        released = row(ledger)
        assert released["released_at"] is not None
    assert row(ledger) == released, "what the earlier one lost, it leaves alone"


def test_each_start_in_a_process_is_a_holder_of_its_own() -> None:
    one, other = Holder.here("one"), Holder.here("one")
    assert one.process != other.process
    assert not one.is_dead()


@dataclass
class Machine:
    """A machine whose clocks are ahead of the real ones by so many seconds."""

    slept: float = 0.0
    """Suspended, or its process stopped: Python's monotonic clock may not know of it, both of these do."""
    stepped: float = 0.0
    """Somebody set the wall clock."""

    def clocks(self) -> Clocks:
        return Clocks(
            elapsed=lambda: CLOCKS.elapsed() + self.slept,
            now=lambda: CLOCKS.now() + timedelta(seconds=self.slept + self.stepped),
        )


def test_a_lease_goes_by_a_clock_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(leases.time, "monotonic", lambda: 0.0)
    assert before <= CLOCKS.elapsed() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize(
    ("slept", "stepped", "valid"),
    [
        (0.0, 0.0, True),
        (31.0, 0.0, False),
        (0.0, 31.0, False),
        (0.0, -3600.0, True),
        (31.0, -3600.0, False),
        (-3600.0, 3631.0, False),
    ],
    ids=[
        "nothing happened",
        "suspended",
        "clock set forward",
        "clock set back",
        "clock set back in a suspend",
        "suspended, and only the wall clock knows",
    ],
)
def test_a_lease_holds_while_both_clocks_say_so(slept: float, stepped: float, valid: bool) -> None:
    machine, table = Machine(), SlowTable()
    held = of_table(table, machine.clocks())
    assert held._take([])
    held.require_for_request()
    machine.slept, machine.stepped = slept, stepped
    for asked in (held.require, held.require_for_request):
        if valid:
            asked()
        else:
            with pytest.raises(LeaseLost, match="its leases expired: it was suspended, its clock was set"):
                asked()
    written = len(table.written)
    held.release_soon()
    held._renew()
    assert len(table.written) == written + valid, "what ran out is not released: it may be another's by now"


def test_what_a_suspend_left_too_little_of_is_renewed_before_it_is_used() -> None:
    """The first commit took most of the lease, by the clock that counts sleep."""
    machine, table = Machine(), SlowTable()
    held = of_table(table, machine.clocks())
    table.meanwhile = lambda: setattr(machine, "slept", 25.0)
    assert held._take([])
    table.meanwhile = lambda: None
    held._make_last()
    assert len(table.written) == 2
    held.require_for_request()


@pytest.mark.thorough
@pytest.mark.usefixtures("brief")
def test_leases_are_renewed_for_as_long_as_they_are_held(ledger: Ledger) -> None:
    with take(ledger, "one") as held:
        first = row(ledger)
        until(lambda: row(ledger)["changes"] >= first["changes"] + 2, seconds=60)
        held.require_for_request()
        assert row(ledger)["expires_at"] > first["expires_at"]
        assert row(ledger)["acquired_at"] == first["acquired_at"]


class SlowTable:
    """Stands for a table of leases that takes any row, each commit after so many seconds."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.written: list[Mapping[str, object]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        self.meanwhile()
        time.sleep(self.seconds.pop(0) if self.seconds else 0.0)
        self.written += rows
        return len(rows)


def of_table(table: SlowTable, clocks: Clocks = CLOCKS) -> Leases:
    """Leases in such a table, not yet taken."""
    stands_for: Any = table
    return Leases(stands_for, Holder.here("one"), {"id-main": "main"}, request_timeout=0.1, clocks=clocks)


def test_a_renewal_that_took_most_of_a_lease_is_followed_by_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease counts from when it was asked for: 2.4 of 3 seconds are gone when the second commit is done."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    table = SlowTable(0.0, 2.4)
    held = of_table(table)
    assert held._take([])
    with held:
        until(lambda: not table.seconds, seconds=5)
        beyond = time.monotonic() + 4.0
        until(lambda: held.require() is None and time.monotonic() > beyond, seconds=10)


def test_a_renewal_that_fails_in_any_way_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An exception that nobody expected must not end the thread that renews."""
    table = SlowTable()
    held = of_table(table)
    assert held._take([])
    failures = [RuntimeError("nobody expected it"), PySparkException("nor this"), TableError("this was")]

    def fail() -> None:
        if failures:
            raise failures.pop(0)

    table.meanwhile = fail
    with held:
        held._wake.set()
        until(lambda: len(table.written) >= 2, seconds=20)
        held.require_for_request()
    warnings = [record.getMessage() for record in caplog.records]
    assert [each.startswith("leases could not be renewed, trying again: ") for each in warnings] == [True] * 3
    assert warnings[0].endswith("RuntimeError('nobody expected it')")
    assert warnings[2].endswith(": this was")
    assert table.written[-1]["released_at"] is not None


def test_leases_that_nobody_has_any_more_are_not_renewed() -> None:
    """A run that ended without releasing them: they expire, instead of being renewed for as long as the process is."""
    table = SlowTable()
    held = of_table(table)
    assert held._take([])
    renewing = held._thread
    held.__enter__()
    assert renewing.is_alive()
    del held
    gc.collect()
    renewing.join(10)
    assert not renewing.is_alive()
    assert len(table.written) == 1


def test_a_driver_woken_past_its_lease_may_do_nothing_more(ledger: Ledger) -> None:
    """Even where nobody took the lease meanwhile: it can't know that."""
    machine = Machine()
    with take(ledger, "one", clocks=machine.clocks()) as held:
        machine.slept = 31.0
        before = row(ledger)["changes"]
        for asked in (held.require, held.require_for_request):
            with pytest.raises(LeaseLost, match="its leases expired: it was suspended"):
                asked()
        machine.slept = 0.0
        with pytest.raises(LeaseLost):
            held.require()
    assert row(ledger)["changes"] == before, "a lost lease is neither renewed nor released"


def test_a_request_is_sent_only_while_the_lease_outlasts_it(ledger: Ledger) -> None:
    machine = Machine()
    with take(ledger, "one", request_timeout=12.0, clocks=machine.clocks()) as held:
        machine.slept = 18.5
        held.require()
        asked = row(ledger)["changes"]
        held.require_for_request()
        assert row(ledger)["changes"] > asked, "it waited for a renewal"


def test_leases_outlast_twice_what_a_request_may_take() -> None:
    assert leases.lease_seconds(1.0) == 30.0
    assert leases.lease_seconds(40.0) == 80.0
