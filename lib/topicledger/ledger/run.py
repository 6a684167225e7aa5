"""A started run: its row in `runs`, and the waves in which its outcomes reach `audit`."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import UsageError
from topicledger.ledger.commits import Commits
from topicledger.ledger.leases import Leases
from topicledger.ledger.memory import Memory
from topicledger.ledger.rows import audit_table
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model import PhaseResult, RunState
from topicledger.schemas import AUDIT, PLANS, RUNS, SENT_BATCHES

WAVE_OUTCOMES = 10_000
WAVE_SECONDS = 10.0
EPOCH_STEP = 1_000_000
"""How far the txnVersions of two epochs are apart."""
_SHARDS = 64
"""Of `runs`: Delta lets one of two updates of the same partition win, and the other one is done again."""


@dataclass(kw_only=True)
class Run:
    """A started run: who it is, where it stands, and what it may still do."""

    run_id: str
    ledger: Ledger
    settings: Settings
    clusters: Sequence[ClusterSettings]
    """Those the run is about."""
    manifest_version: int
    epoch: int
    state: RunState
    resumed: bool
    """Whether an earlier start of the same run left anything."""
    selected: Sequence[str] | None
    """The clusters asked for by name, None for all."""
    exit_code: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    """As `runs` keeps them."""
    none_ended: bool = False
    """Whether it is known that nothing ended before validate."""
    none_planned: bool = False
    """Whether it is known that nothing is to be sent: then nothing is read to find out."""
    problems: list[str] = field(default_factory=list)
    """Why something is still open: for the user, and for exit code 1."""
    waiting: DataFrame | None = None
    """(cluster, topic) of creates that need room which a delete has yet to make; None where there are none."""
    may_have_sent: bool = False
    """Whether an earlier start may have sent anything: the run was `applying` when this one took it up."""
    unjudged: set[str] = field(default_factory=set)
    """Clusters on which what is open couldn't be judged again: nothing is sent to them."""
    leases: Leases | None = None
    """While it changes clusters: what allows it to."""
    observed_since: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When this start began to observe its clusters."""
    memory: Memory | None = None
    """How its planned actions stand, where that is known without reading it."""
    _wave: int = 0
    _due: dict[str, object] = field(default_factory=dict, repr=False)
    """Columns of its row that aren't committed yet."""
    ending: ExitStack = field(default_factory=ExitStack, repr=False)
    """What is closed when the run ends, after its last commit."""
    commits: Commits = field(default_factory=Commits, repr=False)
    """What it writes beside something else, in order; whoever reads that settles them first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self.ending:
            self.keep_state()
            self.commits.settle()

    @property
    def spark(self) -> SparkSession:
        return self.ledger.spark

    def next_version(self) -> int:
        """The txnVersion of the run's next append: the epoch, then the wave."""
        self._wave += 1
        return self.epoch * EPOCH_STEP + self._wave

    def plans(self) -> DataFrame:
        """This run's rows of `plans`."""
        self.commits.settle()
        return self.ledger.read(PLANS).where(F.col("run_id") == self.run_id)

    def open_actions(self) -> DataFrame:
        """Rows of `plans` for actions that nothing ended before validate, and `maybe_sent`: whether an earlier start
        may have sent them already (C18)."""
        rows = self.plans().where(F.col("phase").isNull() & F.col("action").isNotNull())
        if not self.may_have_sent:
            # A first batch is marked beside the commit that says `applying`, and may be all that was committed.
            return rows.withColumn("maybe_sent", F.lit(False))
        key = ["cluster", "action", "batch"]
        earlier = (F.col("run_id") == self.run_id) & (F.col("epoch") < self.epoch)
        sent = self.ledger.read(SENT_BATCHES).where(earlier).select(*key).distinct()
        marked = F.broadcast(sent.withColumn("maybe_sent", F.lit(True)))
        return rows.join(marked, on=key, how="left").withColumn("maybe_sent", F.coalesce("maybe_sent", F.lit(False)))

    def audit(self) -> DataFrame:
        """This run's rows of `audit`."""
        self.commits.settle()
        return self.ledger.read(AUDIT).where(F.col("run_id") == self.run_id)

    def append_outcomes(self, ended: Sequence[PhaseResult]) -> None:
        """Append what requests came to as rows of `audit`, in one commit beside what comes next.

        Raises what the appends before it failed with; `commits` raises what this one fails with: LeaseLost where this
        driver's leases expired.
        """
        if self.memory is not None:
            self.memory.keep(ended)
        # One at a time: outcomes would pile up in memory where a cluster is faster than the table.
        self.commits.settle()
        leases, version = self.leases, self.next_version()

        def append() -> None:
            table = audit_table(self.run_id, self.manifest_version, ended)
            self._append(self.spark.createDataFrame(table, AUDIT.schema), leases, version)

        self.commits.add(append)

    def append_audit(self, rows: DataFrame) -> None:
        """Append rows of `audit` in one commit. Raises LeaseLost where this driver's leases expired."""
        self.memory = None
        self.commits.add(partial(self._append, rows, self.leases, self.next_version()))
        self.commits.settle()

    def _append(self, rows: DataFrame, leases: Leases | None, version: int) -> None:
        if leases is not None:
            leases.require()
        self.ledger.append(AUDIT, rows, app_id=self.run_id, version=version)

    def becomes(self, state: RunState, **columns: object) -> None:
        """The run's next state, with other columns of its row; committed with the one after it, or by `keep_state`."""
        self._due |= {"state": state.value} | columns
        self.state = state

    def keep_state(self) -> None:
        """Commit what the run has become, beside what comes next; that of a run that is no longer ours fails."""
        if self._due:
            values, self._due = self._due, {}
            self.commits.add(partial(self._keep, values))

    def _keep(self, values: Mapping[str, object]) -> None:
        # A later start, or somebody who abandoned the run, must not be overruled.
        ours = f"{row_of(self.run_id)} AND epoch = {self.epoch}"
        unless = f"state <> {sql_value(RunState.ABANDONED.value)}"
        new = {name: sql_value(value) for name, value in values.items()}
        if self.ledger.update(RUNS, f"{ours} AND {unless}", new) == 0:
            raise self._not_ours()

    def move_to(self, state: RunState, **columns: object) -> None:
        """Commit the run's next state, with other columns of its row. Raises UsageError where it is no longer ours."""
        self.becomes(state, **columns)
        self.keep_state()
        self.commits.settle()

    def require_ownership(self) -> Row:
        """The run's row as it is now. Raises UsageError where another start has taken the run, or it was abandoned."""
        self.commits.settle()
        row = find_run(self.ledger, self.run_id)
        ours = row is not None and row["epoch"] == self.epoch and row["spark_app_id"] == app_id(self.spark)
        if row is None or not ours or row["state"] == RunState.ABANDONED:
            raise self._not_ours()
        return row

    def _not_ours(self) -> UsageError:
        return UsageError(
            f"run {self.run_id} was resumed by another start, or abandoned, in the meantime; see `runs list`"
        )


class Waves:
    """Collects outcomes and appends them: at most a commit per 10,000 outcomes or 10 s (DESIGN, Phases)."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._held: list[PhaseResult] = []
        self._since = time.monotonic()

    def add(self, ended: Sequence[PhaseResult]) -> None:
        """Take outcomes; commits when enough are held."""
        if not self._held:
            self._since = time.monotonic()
        self._held.extend(ended)
        if len(self._held) >= WAVE_OUTCOMES:
            self.flush()

    def flush_if_due(self) -> None:
        """Commit what has been held for long enough."""
        if self._held and time.monotonic() - self._since >= WAVE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit everything held."""
        if self._held:
            held, self._held = self._held, []
            self._run.append_outcomes(held)


def find_run(ledger: Ledger, run_id: str) -> Row | None:
    """The row of a run, or None."""
    rows = ledger.read(RUNS).where(F.col("run_id") == run_id).limit(1).collect()
    return rows[0] if rows else None


def shard_of(run_id: str) -> int:
    """The partition of `runs` that has the run's row."""
    return zlib.crc32(run_id.encode()) % _SHARDS


def row_of(run_id: str) -> str:
    """The condition of a run's row, in SQL, that leaves the partitions of other runs alone."""
    # Rows of an older version have no shard, and its table isn't partitioned by it.
    return f"(shard = {shard_of(run_id)} OR shard IS NULL) AND run_id = {sql_value(run_id)}"


def app_id(spark: SparkSession) -> str | None:
    """Spark's id of this application."""
    return spark.conf.get("spark.app.id", None)
