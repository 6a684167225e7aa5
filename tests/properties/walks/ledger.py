"""The ledger's tables in memory, and leases: the interfaces of `Ledger` and `Leases`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from tests.properties.rows.columns import Column
from tests.properties.rows.frames import DataFrame, Session, from_driver
from tests.properties.rows.sql import parse
from tests.properties.walks.world import Moment, World
from topicledger.ledger.leases import LeaseHeld, LeaseLost
from topicledger.schemas import AUDIT, Table


class MemoryLedger:
    """Tables as lists of rows; each write is a moment of the world, at which the driver may die."""

    root = "memory"

    def __init__(self, world: World) -> None:
        self.spark = Session()
        self._world = world
        self._versions: dict[str, list[list[dict[str, Any]]]] = {}
        self._appended: dict[tuple[str, str], int] = {}
        self.looks: Callable[[Table, int], None] = lambda *_: None
        """Called where the latest version of a table is asked for."""
        self.appends: Callable[[Table, list[dict[str, Any]]], None] = lambda *_: None
        """Called with rows that are about to be appended."""
        self.beside: list[Any] = []
        """Commits that another thread makes: see `driver.Beside`."""
        self.late_commits = False

    def rows_of(self, table: Table) -> list[dict[str, Any]]:
        """Return a table's rows."""
        return self._versions.get(table.name, [[]])[-1]

    def versions(self, name: str) -> list[list[dict[str, Any]]]:
        """Everything that a table ever said."""
        return self._versions.get(name, [[]])

    def audit(self) -> list[dict[str, Any]]:
        return self.rows_of(AUDIT)

    # -- reads

    def exists(self, table: Table) -> bool:
        return table.name in self._versions

    def latest_version(self, table: Table) -> int:
        version = len(self._versions[table.name]) - 1
        self.looks(table, version)
        return version

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        versions = self._versions[table.name]
        return DataFrame(table.schema.names, versions[-1 if version is None else version])

    stored = read

    def all_rows(self, table: Table) -> Sequence[Any]:
        return self.read(table).collect()

    def read_at(self, table: Table, version: int | None) -> DataFrame:
        return self.rows(table, []) if version is None else self.read(table, version)

    def read_once(self, table: Table, version: int | None, kept: object) -> DataFrame:
        return self.read_at(table, version)

    def rows(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        return self.spark.createDataFrame(rows, table.schema)

    def location(self, table: Table) -> str:
        return f"memory/{table.name}"

    sql_name = location

    # -- writes

    def ensure(self, *tables: Table) -> None:
        for table in tables:
            self._versions.setdefault(table.name, [[]])

    def _commit(self, table: Table, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        beside, self.beside = self.beside, []
        for each in () if self.late_commits else beside:
            each.run()
        kind = self._world.moment(Moment.COMMIT, Moment.OPEN)
        if kind == "crash before":
            self._world.die()
        versions = self._versions.setdefault(table.name, [[]])
        versions.append(change(versions[-1]))
        if kind == "crash after":
            self._world.die()
        self._world.check()

    def put(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Another person's write: the table says what `rows` say."""
        names = table.schema.names
        made = self.rows(table, [{name: row.get(name) for name in names} for row in rows]).rows
        self._versions.setdefault(table.name, [[]]).append(made)

    def append(self, table: Table, rows: DataFrame, *, app_id: str, version: int) -> int:
        made = rows.select(*table.schema.names).rows
        self.appends(table, made)

        def change(before: list[dict[str, Any]]) -> list[dict[str, Any]]:
            # The same again, or a lower version, changes nothing.
            if version <= self._appended.get((table.name, app_id), -1):
                return before
            self._appended[table.name, app_id] = version
            return [*before, *made]

        self._commit(table, change)
        return 1

    def update(self, table: Table, condition: str, values: Mapping[str, str]) -> int:
        return self.update_where(table, parse(condition), {name: parse(text) for name, text in values.items()})

    def update_where(self, table: Table, condition: Column, values: Mapping[str, Column]) -> int:
        changed = 0

        def change(before: list[dict[str, Any]]) -> list[dict[str, Any]]:
            nonlocal changed
            rows = []
            for row in before:
                if condition.of(row, before) is True:
                    changed += 1
                    row = {**row, **{name: each.of(row, before) for name, each in values.items()}}
                rows.append(row)
            return rows

        self._commit(table, change)
        return changed

    def update_named(self, table: Table, named: DataFrame, condition: str, values: Mapping[str, str]) -> int:
        keys = {tuple(row[name] for name in named.columns) for row in named.rows}
        is_named = Column(lambda row, _: tuple(row[name] for name in named.columns) in keys)
        new = {name: parse(text) for name, text in values.items()}
        return self.update_where(table, is_named & parse(condition.replace("old.", "")), new)

    def compare_and_set(self, table: Table, key: str, rows: Sequence[Mapping[str, Any]]) -> int:
        types = {each.name: each.dataType for each in table.schema}
        changed = 0

        def change(before: list[dict[str, Any]]) -> list[dict[str, Any]]:
            nonlocal changed
            found = {row[key]: row for row in before}
            for row in rows:
                known = found.get(row[key])
                if (known["changes"] if known is not None else 0) == row["changes"] - 1:
                    found[row[key]] = {name: from_driver(row.get(name), kind) for name, kind in types.items()}
                    changed += 1
            return list(found.values())

        self._commit(table, change)
        return changed


class MemoryLeases:
    """Leases of a start, among those that other runs take and release: see `World.holders`."""

    def __init__(self, world: World, run_id: str, clusters: Mapping[str, str], busy: Mapping[str, str]) -> None:
        self._world, self.run_id = world, run_id
        self.clusters = clusters
        self._names = frozenset(clusters.values())
        self.busy = busy
        self.contended = world.contended
        self._released: set[str] = set()
        self._lost: set[str] = set()
        self._expiring: set[str] = set()
        self._died = {name: world.killed.pop(name) for name in self._names & world.killed.keys()}
        for name, (killed, _) in self._died.items():
            if killed not in (run_id, None):
                # Another run waits until the lease has expired.
                world.arrive(lambda late, name=name: late.cluster == name)  # type: ignore[misc]
        world.holders |= dict.fromkeys(self._names, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def names(self) -> frozenset[str]:
        """Clusters whose leases weren't released."""
        return self._names - self._released

    @property
    def lost(self) -> Mapping[str, str]:
        """Clusters that another run took, or whose lease expired."""
        self._lost |= {name for name in self.names if self._world.holders.get(name) is not self}
        return {name: f"cluster {name} was taken over; start it again with its id" for name in self._lost}

    def require(self, cluster: str | None = None) -> None:
        lost = self.lost
        if lost and lost.keys() >= self.names:
            raise LeaseLost("the leases expired; start it again with its id")
        if cluster is not None and cluster in lost:
            raise LeaseLost(lost[cluster])

    require_for_request = require

    def release_some(self, names: Collection[str]) -> None:
        # Those of a dead driver expire.
        for name in () if self._world.dead else names:
            self._released.add(name)
            if name in self._expiring:
                continue
            if self._world.holders.get(name) is self:
                del self._world.holders[name]
                self._world.was_held(name, self.run_id)
                if name in self._died:
                    # As `lease_rows.released`: the next holder waits for requests of the killed driver, too.
                    self._world.killed[name] = None, self._died[name][1]

    def since_death(self, cluster: str) -> float:
        return self._world.clock - self._died[cluster][1] if cluster in self._died else math.inf

    def let_expire(self, cluster: str) -> None:
        self._expiring.add(cluster)

    def release(self) -> None:
        self.release_some(self.names)

    release_soon = release


_WAITS = 5
"""How often a run asks for a lease until the other run has ended."""


def take(
    world: World,
    run_id: str,
    clusters: Mapping[str, str],
    *,
    observed_since: datetime,
    wait: bool,
    stop: threading.Event,
    some: bool = False,
    **_: object,
) -> MemoryLeases:
    """`leases.take`, without its table."""
    world.moment(Moment.OPEN)
    for asked in range(_WAITS + 1):
        # An earlier start of the same run is dead.
        held = {name: who for name in clusters.values() if (who := world.holder(name)) not in (None, run_id)}
        if some and len(held) < len(clusters):
            clusters = {its_id: name for its_id, name in clusters.items() if name not in held}
            busy = {name: f"run {who} is changing it" for name, who in held.items()}
            break
        busy = {}
        if not held:
            break
        if not wait:
            raise LeaseHeld(f"{held} are being changed by other runs")
        if stop.wait(2.0):
            raise LeaseLost("stopped while it waited for a lease")
        if asked + 1 == _WAITS:
            world.others_release(held)
    found = MemoryLeases(world, run_id, clusters, busy)
    found.contended = found.contended or world.held_since(found.names, run_id, observed_since)
    return found
