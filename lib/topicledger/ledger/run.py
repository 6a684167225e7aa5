"""A started run: its row in `runs`, and its commits."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.ledger.allowed import Allowed, read_allowed
from topicledger.ledger.appended import Appended, Known, collected
from topicledger.ledger.commits import Commits
from topicledger.ledger.digests import RowsDigest
from topicledger.ledger.leases import Leases
from topicledger.ledger.moments import latest_argument, version_argument
from topicledger.ledger.outcomes import open_rows
from topicledger.ledger.rows import audit_table
from topicledger.ledger.sql import collected_in_utc, sql_value
from topicledger.ledger.tables import Ledger
from topicledger.ledger.unloaded import Unloaded, as_if_loaded
from topicledger.model import PhaseResult, RunState
from topicledger.model.moves import Rebalance, parse_rebalance
from topicledger.model.prune import Prune
from topicledger.model.scope import Scope
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, RUNS, SENT_BATCHES, Table

EPOCH_STEP = 1_000_000
"""Distance between the txnVersions of two epochs."""
CLUSTERS_ARGUMENT = "clusters"
"""Key in `runs.arguments`: the requested clusters by name, with commas; empty for all."""
ONLY_ARGUMENT = "only"
"""Key: the requested kinds of actions, as `--only` names them, with commas; empty for all."""
REVERTS_ARGUMENT, DELETES_ARGUMENT = "reverts", "deletes"
"""Keys: the run whose changes are undone, and `true` if the topics that it created are deleted."""
PRUNES_ARGUMENT = "prunes"
"""Key: which unmanaged topics are deleted, as JSON; see `Prune`."""
REBALANCE_ARGUMENT = "rebalance"
"""Key: the broker that is drained or filled, such as `drain 3`."""
FILES_ARGUMENT = "files"
"""Key: the manifest files that a plan was made from, as JSON, each with the SHA-256 of its bytes."""
PLAN_ARGUMENT = "plan"
"""Key: of a load, the run whose plan `apply` loaded the files for."""
REPLACES_ARGUMENT = "replaces"
"""Key: of a plan from files, the owners whose other rows loading them removes, as JSON; `[]` for all owners."""
MANIFESTS_ARGUMENT, LATEST_ARGUMENT = "manifest_version", "latest_manifest_version"
"""Keys: the requested earlier version of `manifests`, and the latest version when the run began."""
ALLOWED_ARGUMENT = "allowed"
"""Key: what approvals let through although guards stopped it; see `Run.allowed`."""
SHARDS = 64
"""Number of partitions of `runs`. Two updates of the same partition conflict in Delta, and one is repeated."""


@dataclass(kw_only=True)
class Run:
    """A started run: its identity, its epoch, its state, and its commits."""

    run_id: str
    ledger: Ledger
    settings: Settings
    row: Mapping[str, Any]
    """The run's row in `runs`, as this start knows it."""
    found: RunState | None
    """The state in which this start found the run; None if it is new."""
    id_given: bool = True
    """Whether the user gave the id: then another start may have the same one."""
    unloaded: Mapping[str, Unloaded] = field(default_factory=dict, repr=False)
    """For a plan from files: what loading them changes, which counts as if they were loaded, by table name."""
    in_runs: bool = True
    """Whether the run's row is in `runs`, or on its way. A run that does nothing gets its row only at its end."""
    commits: Commits = field(default_factory=Commits, repr=False)
    """Commits that run in the background, in order; call `settle` before reading what they write."""
    _known: Known = field(default_factory=Known, repr=False)
    _wave: int = 0
    _next: dict[str, object] = field(default_factory=dict)
    """Columns of the run's row that aren't committed yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.settle()

    def settle(self) -> None:
        """Commit what is still uncommitted, and wait for all of the run's commits."""
        if self._next:
            self.commit_state(self.state)
        self.commits.settle()

    @property
    def state(self) -> RunState:
        return RunState(self.row["state"])

    @property
    def epoch(self) -> int:
        """The number of this start, from 1."""
        return int(self.row["epoch"])

    @property
    def manifest_version(self) -> int:
        return int(self.row["manifest_version"])

    @property
    def arguments(self) -> Mapping[str, str]:
        return self.row["arguments"] or {}

    @property
    def counts(self) -> Mapping[str, int]:
        return self.row["counts"] or {}

    @property
    def exit_code(self) -> int:
        """The exit code of a finished run; 0 for any other."""
        return self.row["exit_code"] or 0

    @property
    def scope(self) -> Scope:
        """The run's scope. Rows before schema version 9 have only its clusters and kinds, among the arguments."""
        text = self.row.get("scope")
        if text is not None:
            return Scope.from_json(text)
        given = (self.arguments.get(name, "").split(",") for name in (CLUSTERS_ARGUMENT, ONLY_ARGUMENT))
        clusters, kinds = (tuple(filter(None, names)) for names in given)
        return Scope(clusters=clusters, kinds=kinds)

    @property
    def selected(self) -> Sequence[str] | None:
        """The requested clusters by name; None for all."""
        return list(self.scope.clusters) or None

    @property
    def clusters(self) -> Sequence[ClusterSettings]:
        """Settings of the run's clusters."""
        return self.settings.select(self.selected or ())

    @property
    def reverts(self) -> str | None:
        """Id of the run whose changes this run undoes; None if it undoes none."""
        return self.arguments.get(REVERTS_ARGUMENT) or None

    @property
    def rebalances(self) -> Rebalance | None:
        """The broker that this run drains or fills; None if it does neither."""
        text = self.arguments.get(REBALANCE_ARGUMENT)
        return parse_rebalance(text) if text else None

    @property
    def by_manifests(self) -> bool:
        """Whether the run applies what manifests declare."""
        return self.reverts is None and self.rebalances is None and self.prunes is None

    @property
    def deletes_created(self) -> bool:
        """Whether a revert deletes the topics that the reverted run created."""
        return self.arguments.get(DELETES_ARGUMENT) == "true"

    @property
    def prunes(self) -> Prune | None:
        """The selection of unmanaged topics that this run deletes; None if it deletes none."""
        text = self.arguments.get(PRUNES_ARGUMENT)
        return Prune.from_json(text) if text else None

    @property
    def latest_version_then(self) -> int:
        """The latest version of `manifests` when the run began."""
        return int(self.arguments.get(LATEST_ARGUMENT) or self.manifest_version)

    @property
    def of_earlier_manifests(self) -> bool:
        """Whether the run is planned from an earlier version of `manifests`."""
        return bool(self.arguments.get(MANIFESTS_ARGUMENT))

    def owners_version(self, latest: int) -> int:
        """The version of `manifests` from which owners and labels are taken."""
        return self.manifest_version if self.of_earlier_manifests else latest

    @property
    def of_files(self) -> bool:
        """Whether the run is planned from files that aren't loaded into `manifests`."""
        return bool(self.arguments.get(FILES_ARGUMENT))

    def version_of(self, table: Table) -> int | None:
        """The version of one of `schemas.RESOURCES` that is planned from; None if the table didn't exist."""
        version = self.arguments.get(version_argument(table))
        return None if version is None else int(version)

    def latest_version_of(self, table: Table) -> int | None:
        """The latest version of one of `schemas.RESOURCES` when the run began; None if the table didn't exist."""
        version = self.arguments.get(latest_argument(table))
        return self.version_of(table) if version is None else int(version)

    def leaves_out(self, table: Table) -> bool:
        """Whether the run leaves out one of `schemas.RESOURCES`: the table didn't exist at the moment planned from."""
        return self.of_earlier_manifests and self.version_of(table) is None

    @property
    def allowed(self) -> Allowed:
        """Stopped actions that approvals let through."""
        return read_allowed(self.arguments.get(ALLOWED_ARGUMENT))

    @property
    def resumed(self) -> bool:
        """Whether an earlier start of the same run left a row in `runs`."""
        return self.found is not None

    @property
    def may_have_sent(self) -> bool:
        """Whether an earlier start may have sent requests: the run was `applying` when this start found it."""
        return self.found is RunState.APPLYING

    @property
    def spark(self) -> SparkSession:
        return self.ledger.spark

    def keep_row(self) -> None:
        """Begin to commit the run's row, the first of its commits, unless it is in `runs` already."""
        if not self.in_runs:
            self.in_runs = True
            self.commits.add(partial(self._append_row, self.row))

    def _append_row(self, row: Mapping[str, Any]) -> None:
        self.ledger.append(RUNS, self.ledger.rows(RUNS, [row]), app_id=self.run_id, version=EPOCH_STEP)

    def next_version(self) -> int:
        """Return the txnVersion of the run's next append: the epoch, then the wave."""
        assert self.in_runs, "the run's row is the first of its commits"
        self._wave += 1
        return self.epoch * EPOCH_STEP + self._wave

    def manifests(self, version: int) -> DataFrame:
        """Read `manifests` at a version; for a plan from files, as the table would be once they are loaded."""
        return self.resources(MANIFESTS, version)

    def resources(self, table: Table, version: int | None) -> DataFrame:
        """Read a table of declarations at a version (None: no rows); files of a plan count as if loaded."""
        return as_if_loaded(self.unloaded, table, self.ledger.read_once(table, version, self._known.kept))

    def as_written(self, table: Table, version: int | None) -> DataFrame:
        """As `resources`, with all columns that others gave the table, and read when the query runs."""
        return as_if_loaded(self.unloaded, table, self.ledger.read_at(table, version))

    def plans(self) -> DataFrame:
        """Read this run's rows of `plans`."""
        return self._rows_of(PLANS)

    def _rows_of(self, table: Table) -> DataFrame:
        """Read this run's rows of a table; few rows that this start has written aren't read back."""
        self.commits.settle()
        appended = None if self.resumed else self._known.appended.get(table.name)
        known = None if appended is None else appended.read(self.spark, table)
        return known if known is not None else self.ledger.read(table).where(F.col("run_id") == self.run_id)

    def open_actions(self) -> DataFrame:
        """Read the rows of `plans` for actions that didn't end before validate, or that approvals let through.

        The added column `maybe_sent` tells whether an earlier start may have sent the action already (C18).
        """
        rows = self.plans().transform(open_rows(self.allowed))
        if not self.may_have_sent:
            # The mark of the first batch may be in the ledger without `applying`; then nothing was sent.
            return rows.withColumn("maybe_sent", F.lit(False))
        key = ["cluster", "action", "batch"]
        earlier = (F.col("run_id") == self.run_id) & (F.col("epoch") < self.epoch)
        sent = self.ledger.read(SENT_BATCHES).where(earlier).select(*key).distinct()
        marked = F.broadcast(sent.withColumn("maybe_sent", F.lit(True)))
        return rows.join(marked, on=key, how="left").withColumn("maybe_sent", F.coalesce("maybe_sent", F.lit(False)))

    def audit(self) -> DataFrame:
        """Read this run's rows of `audit`."""
        return self._rows_of(AUDIT)

    def digests(self) -> Mapping[str, RowsDigest]:
        """Return the digests of the run's rows in `plans` and `audit`; of tables with rows of this start only."""
        self.commits.settle()
        found = {} if self.resumed else {name: each.digest for name, each in self._known.appended.items()}
        return {name: digest for name, digest in found.items() if digest is not None}

    def append_plan(self, rows: DataFrame, *, few: bool) -> None:
        """Append the run's plan, in one commit. `few`: whether the driver may keep the rows."""
        known = collected(PLANS, rows) if few and not self.resumed else None
        self._append(PLANS, rows if known is None else known, self.next_version())

    def append_outcomes(self, ended: Sequence[PhaseResult], held: Leases | None) -> None:
        """Append the outcomes of requests to `audit`, in one commit in the background.

        `held`: the leases of a run that changes clusters. Raises the exception of an earlier append that failed. If
        this one fails, `commits` raises its exception: LeaseLost if this driver's leases expired.
        """
        # One at a time: outcomes would pile up in memory if a cluster is faster than the table.
        self.commits.settle()
        version = self.next_version()

        def append() -> None:
            if held is not None:
                held.require()
            # If another holder has taken over a cluster, the next start asks the cluster again.
            kept = [each for each in ended if held is None or each.cluster not in held.lost]
            if kept:
                self._append(AUDIT, audit_table(self.run_id, self.manifest_version, kept), version)

        self.commits.add(append)

    def append_audit(self, rows: DataFrame, held: Leases | None = None) -> None:
        """Append rows of `audit` in one commit. Raises LeaseLost if the leases `held` expired."""
        version = self.next_version()

        def append() -> None:
            if held is not None:
                held.require()
            kept = rows.where(~F.col("cluster").isin(*held.lost)) if held is not None and held.lost else rows
            known = None if self.resumed else collected(AUDIT, kept)
            self._append(AUDIT, kept if known is None else known, version)

        self.commits.add(append)
        self.commits.settle()

    def _append(self, table: Table, rows: DataFrame | pa.Table, version: int) -> None:
        known = None if isinstance(rows, DataFrame) else rows
        frame = rows if known is None else self.spark.createDataFrame(known, table.schema)
        self.ledger.append(table, frame, app_id=self.run_id, version=version)
        self._known.appended.setdefault(table.name, Appended()).add(known)

    def put_state(self, state: RunState, **columns: object) -> None:
        """Set the run's state and other columns of its row, to be committed with the next state or by `settle`."""
        self._next |= {"state": state.value, **columns}
        self.row = {**self.row, **self._next}

    def commit_state(self, state: RunState, **columns: object) -> None:
        """Commit the run's state and other columns of its row. Raises UsageError as `require_ownership` does."""
        self.put_state(state, **columns)
        values, self._next = self._next, {}
        if self.in_runs:
            self.commits.add(partial(self._commit_row, values))
        else:
            self.keep_row()
        self.commits.settle()

    def _commit_row(self, values: Mapping[str, object]) -> None:
        # This must not overwrite the row if a later start has taken the run, or somebody has abandoned it.
        ours = f"{row_of(self.run_id)} AND epoch = {self.epoch}"
        unless = f"state <> {sql_value(RunState.ABANDONED.value)}"
        new = {name: sql_value(value) for name, value in values.items()}
        if self.ledger.update(RUNS, f"{ours} AND {unless}", new) == 0:
            # A start that ends a run may have changed clusters.
            raise self._not_ours(TopicLedgerError if values.get("state") == RunState.FINISHED else UsageError)

    def require_ownership(self) -> Row:
        """Return the run's current row. Raises UsageError if another start has taken the run, or it was abandoned."""
        self.commits.settle()
        if (row := self.own_row()) is None:
            raise self._not_ours()
        return row

    def own_row(self) -> Row | None:
        """Return the run's current row; None if it has none, another start has it, or it was abandoned."""
        row = find_run(self.ledger, self.run_id)
        # Spark's application doesn't identify a start: several starts may share one.
        ours = row is not None and row["epoch"] == self.epoch and row["start_id"] == self.row["start_id"]
        return None if row is None or not ours or row["state"] == RunState.ABANDONED else row

    def _not_ours(self, kind: type[TopicLedgerError] = UsageError) -> TopicLedgerError:
        return kind(f"run {self.run_id} was resumed by another start, or abandoned, in the meantime; see `runs list`")


def find_run(ledger: Ledger, run_id: str) -> Row | None:
    """Return the row of a run; None if there is none."""
    rows = collected_in_utc(ledger.read(RUNS).where(row_of(run_id)).limit(1))
    return Row(**rows[0]) if rows else None


def require_run(ledger: Ledger, run_id: str) -> Row:
    """Return the row of a run; raises UsageError if there is none."""
    row = find_run(ledger, run_id)
    if row is None:
        raise UsageError(f"there is no run {run_id} in {ledger.root}; see `runs list`")
    return row


def require_new(ledger: Ledger, run_id: str | None, why: str) -> None:
    """Raise UsageError if a run with this id exists. `why`: why it can't be resumed."""
    if run_id is not None and find_run(ledger, run_id) is not None:
        raise UsageError(f"run {run_id} already exists; {why}: use another run id")


def shard_of(run_id: str) -> int:
    """Return the partition of `runs` that has the run's row."""
    return zlib.crc32(run_id.encode()) % SHARDS


def row_of(run_id: str) -> str:
    """Return the SQL condition for a run's row; it reads no partition of other runs."""
    # Rows that an older version wrote have no shard, and its table isn't partitioned by shard.
    return f"(shard = {shard_of(run_id)} OR shard IS NULL) AND run_id = {sql_value(run_id)}"
