"""Leases: who may change a cluster, and who finds out that he may not any more."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.waiting import until
from topicledger import leases
from topicledger.leases import Holder, LeaseHeld, LeaseLost, Leases
from topicledger.schemas import LEASES, Table
from topicledger.tables import Ledger

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
    asked = {"looked_at": datetime.now(UTC), "request_timeout": 1.0, "stop": threading.Event(), **given}
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
    process = " ".join((*leases._machine(), *leases._process(child.pid)))
    child.communicate(b"\n")
    return process


def test_a_lease_is_held_by_one_run_and_free_when_released(ledger: Ledger) -> None:
    with take(ledger, "one", "main", "other") as held:
        held.require_for_request()
        assert (row(ledger)["run_id"], row(ledger)["released_at"]) == ("one", None)
        with pytest.raises(LeaseHeld) as error:
            take(ledger, "two", "other", "free")
        assert "cluster other (id id-other) is being changed by run one" in str(error.value)
        assert "--wait" in str(error.value)
    assert row(ledger)["released_at"] is not None
    with take(ledger, "two", "other", "free", looked_at=LONG_AGO) as held:
        assert held.contended


def test_a_run_that_finds_a_cluster_taken_gives_back_what_it_had_taken(ledger: Ledger) -> None:
    """Two runs that each hold what the other waits for would wait for ever."""
    with take(ledger, "one", "other"):
        here = Holder.here("two")
        mine = {"cluster_id": "id-main", "cluster": "main", "run_id": "two", "host": here.host, "process": here.process}
        now = datetime.now(UTC)
        times = {"acquired_at": now, "expires_at": now + timedelta(minutes=1), "released_at": None}
        ledger.compare_and_set(LEASES, "cluster_id", [{**mine, **times, "changes": 1}])
        with pytest.raises(LeaseHeld):
            take(ledger, "two", "main", "other")
        assert row(ledger)["released_at"] is not None


@pytest.mark.parametrize(("until_when", "contended"), [(timedelta(0), True), (timedelta(hours=-1), False)])
def test_what_was_judged_while_another_run_could_change_the_cluster_is_to_be_judged_again(
    ledger: Ledger, until_when: timedelta, contended: bool
) -> None:
    looked_at = datetime.now(UTC) - timedelta(minutes=5)
    held_by(ledger, "one", expires_at=datetime.now(UTC) + until_when - timedelta(seconds=1))
    with take(ledger, "two", looked_at=looked_at) as held:
        assert held.contended is contended


def test_the_runs_own_earlier_lease_makes_nothing_contended(ledger: Ledger) -> None:
    with take(ledger, "one"):
        pass
    with take(ledger, "one", looked_at=LONG_AGO) as held:
        assert not held.contended


def test_a_run_waits_until_the_other_is_done(ledger: Ledger) -> None:
    other = take(ledger, "one")
    with other:
        threading.Timer(1.5, other.release).start()
        with take(ledger, "two", wait=True) as held:
            assert held.contended
            assert row(ledger)["run_id"] == "two"


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
            "alive": (" ".join((*leases._machine(), *leases._process(alive.pid))), here),
        }[where]
        expires_at = datetime.now(UTC) + timedelta(seconds=3)
        held_by(ledger, "one", process=process, host=host, expires_at=expires_at)
        with take(ledger, "one"):
            assert datetime.now(UTC) >= expires_at
        alive.communicate(b"\n")


@pytest.mark.usefixtures("brief")
def test_an_earlier_start_learns_that_a_later_one_wants_its_leases(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews no more, so that the later one has them when they expire."""
    with take(ledger, "one") as earlier:
        here = Holder.here("one")
        monkeypatch.setattr(Holder, "here", lambda run_id: replace(here, process="boot ns 1 2"))
        with take(ledger, "one") as later:
            with pytest.raises(LeaseLost):
                earlier.require()
            later.require_for_request()
    assert row(ledger)["process"] == "boot ns 1 2"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How far this process's monotonic clock is ahead, as after it was stopped and woken."""
    ahead = [0.0]
    real = time.monotonic
    monkeypatch.setattr(leases.time, "monotonic", lambda: real() + ahead[0])
    return ahead


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

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, object]]) -> int:
        time.sleep(self.seconds.pop(0) if self.seconds else 0.0)
        return len(rows)


def test_a_renewal_that_took_most_of_a_lease_is_followed_by_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease counts from when it was asked for: 2.4 of 3 seconds are gone when the second commit is done."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    table: Any = SlowTable(0.0, 2.4)
    holder = Holder.here("one")
    held = Leases(table, holder, {"id-main": "main"}, request_timeout=0.1, contended=False)
    assert held._take([])
    with held:
        until(lambda: not table.seconds, seconds=5)
        beyond = time.monotonic() + 4.0
        until(lambda: held.require() is None and time.monotonic() > beyond, seconds=10)


def test_a_driver_woken_past_its_lease_may_do_nothing_more(ledger: Ledger, clock: list[float]) -> None:
    """Even where nobody took the lease meanwhile: it can't know that."""
    with take(ledger, "one") as held:
        clock[0] = 31.0
        before = row(ledger)["changes"]
        for asked in (held.require, held.require_for_request):
            with pytest.raises(LeaseLost, match="ran out while it did nothing"):
                asked()
        clock[0] = 0.0
        with pytest.raises(LeaseLost):
            held.require()
    assert row(ledger)["changes"] == before, "a lost lease is neither renewed nor released"


def test_a_request_is_sent_only_while_the_lease_outlasts_it(ledger: Ledger, clock: list[float]) -> None:
    with take(ledger, "one", request_timeout=12.0) as held:
        clock[0] = 18.5
        held.require()
        asked = row(ledger)["changes"]
        held.require_for_request()
        assert row(ledger)["changes"] > asked, "it waited for a renewal"


def test_leases_outlast_twice_what_a_request_may_take() -> None:
    assert leases.lease_seconds(1.0) == 30.0
    assert leases.lease_seconds(40.0) == 80.0
