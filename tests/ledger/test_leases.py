"""Leases: which run may change a cluster, and how a run learns that it no longer may."""

from __future__ import annotations

import errno
import gc
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.waiting import until
from topicledger.errors import TableError
from topicledger.ledger import lease_rows, leases
from topicledger.ledger.lease_holder import CLOCKS, Clocks, Holder, machine, process_of
from topicledger.ledger.leases import LeaseHeld, LeaseLost, Leases
from topicledger.ledger.tables import Ledger
from topicledger.schemas import LEASES, Table

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for busy leases twice a second."""
    monkeypatch.setattr(leases, "_ASK_AGAIN_SECONDS", 0.5)
    monkeypatch.setattr(lease_rows, "_CLOCK_SKEW_SECONDS", 0.0)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use leases that tests can wait for, not much longer than a commit on a busy machine."""
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
    """Write a row as another driver would leave it."""
    now = datetime.now(UTC)
    given = {"acquired_at": now, "expires_at": now + timedelta(minutes=5), "released_at": None, **times}
    ledger.ensure(LEASES)
    of_cluster = {"cluster_id": "id-main", "cluster": "main", "run_id": run_id, "host": host, "process": process}
    assert ledger.compare_and_set(LEASES, "cluster_id", [{**of_cluster, **given, "changes": 1}]) == 1


@pytest.fixture
def dead() -> str:
    """Return the identity of a process on this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = " ".join((*machine(), *process_of(child.pid)))
    child.communicate(b"\n")
    return process


@pytest.mark.thorough
def test_lease_is_held_by_one_run_until_released(ledger: Ledger) -> None:
    with take(ledger, "one", "main", "other") as held:
        held.require_for_request()
        assert (row(ledger)["run_id"], row(ledger)["released_at"]) == ("one", None)
        with pytest.raises(LeaseHeld) as error:
            take(ledger, "two", "other", "free")
        assert "cluster other (id id-other) is being changed by run one" in str(error.value)
        assert f"process {os.getpid()}," in str(error.value)
        assert "; its lease holds until 20" in str(error.value)
        # Both runs are in this process, and the second releases its own lease.
        assert row(ledger, "other")["released_at"] is None
        assert "id-free" not in {each["cluster_id"] for each in ledger.read(LEASES).collect()}
    assert row(ledger)["released_at"] is not None
    with take(ledger, "two", "other", "free", observed_since=LONG_AGO) as held:
        assert held.contended


def test_free_leases_are_taken_and_busy_ones_reported(ledger: Ledger) -> None:
    """A run that is busy with one cluster for days doesn't block other runs on the next cluster."""
    with take(ledger, "one", "main"):
        with take(ledger, "two", "main", "other", some=True) as held:
            held.require_for_request()
            assert held.names == {"other"}
            assert "cluster main (id id-main) is being changed by run one" in held.busy["main"]
        assert (row(ledger)["run_id"], row(ledger)["released_at"]) == ("one", None)
        with pytest.raises(LeaseHeld):
            take(ledger, "two", "main", some=True)
        # `plan` takes no run from a driver that applies it.
        assert [each["cluster"] for each in lease_rows.of_live(ledger, "one")] == ["main"]
        assert lease_rows.of_live(ledger, "two") == []
    assert lease_rows.of_live(ledger, "one") == []


@pytest.mark.thorough
def test_lease_of_one_cluster_can_be_released_alone(ledger: Ledger) -> None:
    with take(ledger, "one", "main", "other") as held:
        held.release_some(["other"])
        assert held.names == {"main"}
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


@pytest.mark.thorough
def test_release_of_no_cluster_makes_no_commit(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    with take(ledger, "one") as held:
        taken = ledger.latest_version(LEASES)
        held.release_some([])
        held.release_some(["main"])
        until(lambda: row(ledger)["released_at"] is not None, seconds=60)
    assert ledger.latest_version(LEASES) == taken + 1
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.thorough
def test_a_lease_that_shall_expire_is_neither_released_nor_renewed(ledger: Ledger) -> None:
    """Other runs, and later starts of the same run, wait until it expires."""
    with take(ledger, "one", "main", "other", "third") as held:
        held.let_expire("main")
        held.let_expire("other")
        held.release_some(["other"])
        until(lambda: "ended" in row(ledger, "other")["process"], seconds=60)
        before = row(ledger, "other")["changes"]
        held._wake.set()
        until(lambda: row(ledger)["changes"] > 2, seconds=60)
        assert row(ledger, "other")["changes"] == before
        held.require_for_request("main")
    assert [row(ledger, name)["released_at"] is None for name in ("main", "other", "third")] == [True, True, False]
    with pytest.raises(LeaseHeld, match="is being changed by run one"):
        take(ledger, "two")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(LeaseLost, match="was stopped while it waited for a lease"):
        take(ledger, "one", stop=stopped)


@pytest.mark.thorough
@pytest.mark.parametrize("left", [-60, 60])
def test_a_lease_that_was_not_released_tells_since_when_its_holder_is_dead(
    ledger: Ledger, dead: str, left: float
) -> None:
    """Requests of a killed driver may still arrive: the time counts from the end of its lease, or from now."""
    began, expires_at = time.monotonic(), datetime.now(UTC) + timedelta(seconds=left)
    held_by(ledger, "one", process=dead, host=Holder.here("one").host, expires_at=expires_at)
    with take(ledger, "one", "main", "other") as held:
        assert 0 <= held.since_death("main") - max(0, -left) <= time.monotonic() - began + 1
        assert held.since_death("other") == math.inf
    for holder in ("one", "two", "two"):
        # Holders that released their leases in between may have stopped at once.
        with take(ledger, holder, "main", "other") as held:
            assert 0 <= held.since_death("main") - max(0, -left) <= time.monotonic() - began + 1
            assert held.since_death("other") == math.inf


@pytest.mark.thorough
def test_a_cluster_that_another_holder_takes_is_lost_alone(ledger: Ledger) -> None:
    """Its rows are left alone, and the other clusters' leases are renewed and released as before."""
    with take(ledger, "one", "main", "other") as held:
        theirs = {**row(ledger), "run_id": "two", "process": "another", "changes": row(ledger)["changes"] + 1}
        assert ledger.compare_and_set(LEASES, "cluster_id", [theirs]) == 1
        before = row(ledger, "other")["changes"]
        held._wake.set()
        until(lambda: "main" in held.lost, seconds=60)
        assert row(ledger, "other")["changes"] == before + 1
        held.require()
        held.require_for_request("other")
        with pytest.raises(LeaseLost, match="took over cluster main: nothing more is sent to it"):
            held.require_for_request("main")
        held._wake.set()
        until(lambda: row(ledger, "other")["changes"] > before + 1, seconds=60)
        held.require("other")
    assert row(ledger, "other")["released_at"] is not None
    assert (row(ledger)["run_id"], row(ledger)["changes"]) == ("two", theirs["changes"])


class Overtaken(Ledger):
    """A ledger in which another run takes a cluster just before this one does."""

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        if not super().read(LEASES).where("cluster_id = 'id-main'").count():
            held_by(Ledger(self.spark, self.root), "one")
        return super().compare_and_set(table, key, rows)


@pytest.mark.thorough
def test_run_that_finds_a_cluster_taken_releases_its_leases(ledger: Ledger) -> None:
    """Otherwise two runs that each hold a lease the other needs would wait forever."""
    with pytest.raises(LeaseHeld, match="is being changed by run one on host elsewhere, process 1,"):
        take(Overtaken(ledger.spark, ledger.root), "two", "main", "other")
    assert (row(ledger, "other")["run_id"], row(ledger)["run_id"]) == ("two", "one")
    assert row(ledger, "other")["released_at"] is not None
    assert row(ledger)["released_at"] is None


class Failing(Ledger):
    """A ledger that fails once, after it has written its first lease."""

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
def test_leases_are_released_if_acquiring_fails(ledger: Ledger, error: BaseException) -> None:
    failing = Failing(ledger.spark, ledger.root)
    failing.error = error
    with pytest.raises(type(error)):
        take(failing, "one")
    assert row(ledger)["released_at"] is not None
    with take(ledger, "two") as held:
        held.require_for_request()


@pytest.mark.thorough
@pytest.mark.parametrize(("until_when", "contended"), [(timedelta(0), True), (timedelta(hours=-1), False)])
def test_policies_are_evaluated_again_after_another_run_held_the_lease(
    ledger: Ledger, until_when: timedelta, contended: bool
) -> None:
    observed_since = datetime.now(UTC) - timedelta(minutes=5)
    held_by(ledger, "one", expires_at=datetime.now(UTC) + until_when - timedelta(seconds=1))
    with take(ledger, "two", observed_since=observed_since) as held:
        assert held.contended is contended


@pytest.mark.thorough
def test_own_earlier_lease_does_not_count_as_contended(ledger: Ledger) -> None:
    with take(ledger, "one"):
        pass
    with take(ledger, "one", observed_since=LONG_AGO) as held:
        assert not held.contended


@pytest.mark.thorough
def test_run_waits_until_the_lease_is_released(ledger: Ledger) -> None:
    other = take(ledger, "one")
    with other:
        threading.Timer(1.5, other.release).start()
        with take(ledger, "two", wait=True) as held:
            assert held.contended
            assert row(ledger)["run_id"] == "two"


@pytest.mark.thorough
def test_lease_of_a_dead_run_is_taken_after_it_expires(ledger: Ledger, dead: str) -> None:
    """A dead process of another run may have a successor, unlike a dead process of the run itself."""
    expires_at = datetime.now(UTC) + timedelta(seconds=3)
    held_by(ledger, "one", process=dead, host=Holder.here("one").host, expires_at=expires_at)
    with take(ledger, "two", wait=True):
        assert datetime.now(UTC) >= expires_at


@pytest.mark.thorough
def test_stop_ends_the_wait_for_a_lease(ledger: Ledger) -> None:
    held_by(ledger, "one")
    stop = threading.Event()
    stop.set()
    with pytest.raises(LeaseLost, match="stopped while it waited"):
        take(ledger, "two", wait=True, stop=stop)


@pytest.mark.thorough
def test_resumed_run_takes_over_the_lease_of_its_dead_holder(ledger: Ledger, dead: str) -> None:
    held_by(ledger, "one", process=dead, host=Holder.here("one").host)
    with take(ledger, "one") as held:
        held.require_for_request()


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["another host", "another pid namespace", "alive"])
def test_resumed_run_waits_if_the_holder_may_be_alive(ledger: Ledger, dead: str, where: str) -> None:
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


@pytest.mark.parametrize("error", [PermissionError(), OSError(errno.EMFILE, "too many open files"), None])
def test_holder_that_cannot_be_seen_may_be_alive(
    dead: str, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    """/proc can't be read, or it hides processes of other users."""
    holder = Holder(run_id="one", host=Holder.here("one").host, process=dead)
    assert holder.is_dead()
    read, exists = Path.read_text, Path.exists

    def unread(self: Path, *arguments: Any, **options: Any) -> str:
        if error is not None and self.name == "stat":
            raise error
        return read(self, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", unread)
    monkeypatch.setattr(Path, "exists", lambda self: (error is not None or str(self) != "/proc/1") and exists(self))
    assert not holder.is_dead()
    assert not Holder.here("one").is_dead()


@pytest.mark.thorough
@pytest.mark.usefixtures("brief")
def test_earlier_start_stops_renewing_for_a_later_one(ledger: Ledger) -> None:
    """It stops renewing, so that the later start gets the leases when they expire, even within one process."""
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


def test_each_start_in_a_process_is_a_separate_holder() -> None:
    one, other = Holder.here("one"), Holder.here("one")
    assert one.process != other.process
    assert not one.is_dead()


@dataclass
class Machine:
    """A machine whose clocks are ahead of the real ones by some seconds."""

    slept: float = 0.0
    """Time suspended or stopped, which Python's monotonic clock may not count, but both of these clocks do."""
    stepped: float = 0.0
    """Change of the wall clock."""

    def clocks(self) -> Clocks:
        return Clocks(
            elapsed=lambda: CLOCKS.elapsed() + self.slept,
            now=lambda: CLOCKS.now() + timedelta(seconds=self.slept + self.stepped),
        )


def test_lease_uses_a_clock_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_lease_is_valid_only_while_both_clocks_agree(slept: float, stepped: float, valid: bool) -> None:
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


def test_short_lease_after_a_suspend_is_renewed_before_use() -> None:
    """The first commit took most of the lease, according to the clock that counts sleep."""
    machine, table = Machine(), SlowTable()
    held = of_table(table, machine.clocks())
    table.meanwhile = lambda: setattr(machine, "slept", 25.0)
    assert held._take([])
    table.meanwhile = lambda: None
    held._renew_until_usable()
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
    """A stand-in for a table of leases that accepts any row, with slow commits."""

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
    """Return leases in such a table, not yet acquired."""
    stands_for: Any = table
    return Leases(stands_for, Holder.here("one"), {"id-main": "main"}, request_timeout=0.1, clocks=clocks)


@pytest.mark.thorough
def test_slow_renewal_is_followed_by_the_next_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease counts from its request, so 2.4 of 3 seconds have passed when the second commit is done."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    table = SlowTable(0.0, 2.4)
    held = of_table(table)
    assert held._take([])
    with held:
        until(lambda: not table.seconds, seconds=5)
        beyond = time.monotonic() + 4.0
        until(lambda: held.require() is None and time.monotonic() > beyond, seconds=10)


def test_failed_renewal_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected exception must not end the renewing thread."""
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


def test_abandoned_leases_are_not_renewed() -> None:
    """If a run ends without releasing its leases, they expire instead of being renewed by the process."""
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


def test_driver_resumed_after_its_lease_expired_stops(ledger: Ledger) -> None:
    """Even if no other run took the lease in the meantime, since the driver can't know that."""
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


def test_request_is_sent_only_if_the_lease_outlasts_it(ledger: Ledger) -> None:
    machine = Machine()
    with take(ledger, "one", request_timeout=12.0, clocks=machine.clocks()) as held:
        machine.slept = 18.5
        held.require()
        asked = row(ledger)["changes"]
        held.require_for_request()
        assert row(ledger)["changes"] > asked, "it waited for a renewal"


def test_lease_lasts_twice_as_long_as_a_request_may_take() -> None:
    assert leases.lease_seconds(1.0) == 30.0
    assert leases.lease_seconds(40.0) == 80.0
