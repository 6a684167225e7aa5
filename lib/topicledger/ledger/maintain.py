"""Maintain the tables: compact small files, remove old files, and delete old rows on request.

The default is a dry run, which reports what would be done. Rows of open runs are never deleted, and the table versions
that such a run may still read are kept. A plan that is too old to be applied doesn't count as open, nor does an audit
that is older than the versions which VACUUM keeps anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, TableError, exit_code
from topicledger.ledger import proof, runs
from topicledger.ledger.acknowledged import last_creates
from topicledger.ledger.comparable import last_findings
from topicledger.ledger.expired import abandon_audits, abandon_expired
from topicledger.ledger.run import MANIFESTS_ARGUMENT, SHARDS, Run, require_new
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger, Size
from topicledger.model import OPEN_STATES, Action, Phase, RunState
from topicledger.model.renames import REPLACED_BY, REPLACES
from topicledger.schemas import AUDIT, DECLARING, DRIFT, OBSERVED_CONFIGS, PLANS, RUNS, TABLES, USAGE, Table
from topicledger.text import cell, document, grid_of, listed, plain

COMMAND = "maintain"
VACUUM_HOURS = 168
"""Default age at which old files are removed, as in Delta (delta.deletedFileRetentionDuration)."""

AGED: Mapping[str, str] = {
    AUDIT.name: "completed_at",
    PLANS.name: "planned_at",
    DRIFT.name: "observed_at",
    USAGE.name: "observed_at",
}
"""Tables from which rows may be deleted -> the column with a row's time."""

MANY_FILES = 50
"""Files of a partition from which compaction is worthwhile, as in spark.databricks.delta.autoCompact.minNumFiles."""

_PINNED = frozenset(table.name for table in (*DECLARING, OBSERVED_CONFIGS))
"""Tables that an open run reads at the version with which it began."""
_EVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, kw_only=True)
class MaintenanceRequest:
    """A request for maintenance."""

    execute: bool = False
    """False: a dry run."""
    vacuum_hours: int = VACUUM_HOURS
    """Hours: files that no table version of this time uses are removed."""
    retention_days: Mapping[str, int] = field(default_factory=dict)
    """Table -> days; rows of earlier days (UTC) are deleted. All rows of other tables are kept."""
    run_id: str | None = None
    requested_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableMaintained:
    """The maintenance of one table, done or (in a dry run) possible."""

    table: str
    files: int
    """Number of files before."""
    bytes: int
    """Size before."""
    rows_deleted: int = 0
    files_vacuumed: int = 0
    """Number of removed files, which no version of the last `vacuum_hours` uses."""
    files_after: int | None = None
    """None in a dry run."""
    note: str | None = None
    error: str | None = None
    """Reason why a part was not done."""
    work: Sequence[str] = ()
    """In a dry run: the work that is worth doing."""


@dataclass(frozen=True, kw_only=True)
class Maintained:
    """Result of a maintenance."""

    executed: bool
    run_id: str | None
    """The id of its row in `runs`; None in a dry run."""
    exit_code: int
    abandoned: Sequence[str]
    """Runs whose plans are past `guards.max_plan_age`: abandoned now, or (in a dry run) with --execute."""
    abandoned_audits: Sequence[str]
    """Audits that were open for longer than `vacuum_hours`: likewise."""
    contradicted: Sequence[str]
    """Runs that aren't abandoned: their state says that they are only planned, but `audit` says that they sent
    something."""
    tables: Sequence[TableMaintained]

    def to_json(self) -> str:
        """Return the versioned result document."""
        return document(self.exit_code, asdict(self))


def maintain(ledger: Ledger, settings: Settings, request: MaintenanceRequest) -> Maintained:
    """Abandon plans and audits that are too old, then maintain every existing table: delete rows, compact, vacuum.

    An executed maintenance has a row in `runs`, committed before anything is done. A table that can't be maintained is
    reported, and the others are maintained. Raises UsageError for a run id that already exists.
    """
    ledger.ensure(RUNS)
    require_new(ledger, request.run_id, "a maintenance can't be resumed")
    if request.execute:
        # The key signs the abandoned runs and this run's end: if it is missing, fail before anything is done.
        proof.signer(settings)
    run = _begin(ledger, settings, request) if request.execute else None
    expired = abandon_expired(ledger, settings, execute=request.execute)
    audits = abandon_audits(ledger, _kept_since(request), execute=request.execute)
    open_runs = _open_runs(ledger, [*expired.abandoned, *audits])
    at = datetime.now(UTC) if run is None else run.row["started_at"]
    maintained = (_maintain_table(ledger, table, request, open_runs, at) for table in TABLES.values())
    tables = [each for each in maintained if each is not None]
    code = exit_code({ExitCode.ERROR: any(each.error for each in tables) or bool(expired.contradicted)})
    if run is not None:
        counts = {f"{each.table}_rows_deleted": each.rows_deleted for each in tables if each.rows_deleted}
        if abandoned := len(expired.abandoned) + len(audits):
            counts["runs_abandoned"] = abandoned
        ended: Mapping[str, object] = {"finished_at": datetime.now(UTC), "counts": counts, "exit_code": int(code)}
        if request.retention_days:
            ended = proof.sealed(run, proof.ending_of_maintenance(run), ended)
        run.commit_state(RunState.FINISHED, **ended)
    return Maintained(
        executed=request.execute,
        run_id=run.run_id if run is not None else None,
        exit_code=int(code),
        abandoned=expired.abandoned,
        abandoned_audits=audits,
        contradicted=expired.contradicted,
        tables=tables,
    )


def _begin(ledger: Ledger, settings: Settings, request: MaintenanceRequest) -> Run:
    arguments = {f"{name}_retention_days": str(days) for name, days in request.retention_days.items()}
    arguments["vacuum_hours"] = str(request.vacuum_hours)
    asked = runs.Request(command=COMMAND, run_id=request.run_id, requested_by=request.requested_by)
    run = runs.begin(ledger, settings, asked, arguments)
    if request.retention_days:
        proof.commit_intent(run)
    return run


def _open_runs(ledger: Ledger, abandoned: Sequence[str]) -> Mapping[str, datetime]:
    """Return the open runs -> from when on they read table versions, at the latest, without those in `abandoned`."""
    # These read no old version, and are never resumed.
    others = F.col("arguments")["command"].isin(COMMAND, runs.LOAD_COMMAND, runs.ACCEPT_COMMAND)
    reads = ~F.coalesce(others, F.lit(False)) & ~F.col("run_id").isin(*abandoned)
    rows = ledger.read(RUNS).where(F.col("state").isin(*(state.value for state in OPEN_STATES)) & reads)
    asked = F.col("arguments")[MANIFESTS_ARGUMENT].isNotNull().alias("earlier")
    return {
        # PySpark returns naive timestamps in this process's own time zone. A version that was asked for may be old.
        row["run_id"]: _EVER if row["earlier"] else row["started_at"].astimezone(UTC)
        for row in rows.select("run_id", "started_at", asked).collect()
    }


def _maintain_table(
    ledger: Ledger, table: Table, request: MaintenanceRequest, open_runs: Mapping[str, datetime], at: datetime
) -> TableMaintained | None:
    """Maintain a table; None if it doesn't exist. `at`: the moment from which the days of retention count."""
    before = Size(files=0, bytes=0)
    done: dict[str, int] = {}
    note = _pinned(table, request, open_runs)
    steps: list[tuple[str, Callable[[], int]]] = []
    if (days := request.retention_days.get(table.name)) is not None:
        steps.append(("rows_deleted", partial(_delete, ledger, table, _older(table, days, open_runs, at), request)))
    if request.execute:
        steps.append(("files_after", partial(ledger.compact, table)))
    if note is None:
        steps.append(
            ("files_vacuumed", partial(ledger.vacuum, table, request.vacuum_hours, dry_run=not request.execute))
        )
    error = None
    try:
        if not ledger.exists(table):
            return None
        before = ledger.size(table)
        for name, step in steps:
            done[name] = step()
    except TableError as failed:
        error = str(failed)
    work = () if request.execute else _work(before.files // (SHARDS if table.partitioned_by else 1), **done)
    return TableMaintained(
        table=table.name, files=before.files, bytes=before.bytes, note=note, error=error, work=work, **done
    )


def _work(files_of_partition: int, rows_deleted: int = 0, files_vacuumed: int = 0) -> Sequence[str]:
    """Describe the work that is worth doing on a table."""
    work = [(rows_deleted, f"delete {rows_deleted:,} rows"), (files_vacuumed, f"remove {files_vacuumed:,} old files")]
    return [*(["compact"] if files_of_partition >= MANY_FILES else []), *(words for count, words in work if count)]


def _delete(ledger: Ledger, table: Table, old: str, request: MaintenanceRequest) -> int:
    delete_or_count = ledger.delete if request.execute else ledger.count
    kept = {AUDIT.name: _creates, PLANS.name: _replacements, DRIFT.name: _findings}.get(table.name)
    return delete_or_count(table, old, None if kept is None else kept(ledger))


def _creates(ledger: Ledger) -> DataFrame:
    """Return the rows of `audit` that are kept at any age: later runs and audits learn from them which topics are ours.

    Columns: run_id, cluster, topic, action, phase.
    """
    return last_creates(ledger.read(AUDIT)).select(
        "run_id",
        "cluster",
        "topic",
        F.lit(Action.CREATE.value).alias("action"),
        F.lit(Phase.APPLY.value).alias("phase"),
    )


def _replacements(ledger: Ledger) -> DataFrame:
    """Return the rows of `plans` that are kept at any age: later runs learn from them which topics were replaced.

    Columns: run_id, cluster, topic, action.
    """
    key, plans = ["run_id", "cluster", "topic"], ledger.read(PLANS)
    created = _creates(ledger) if ledger.exists(AUDIT) else plans.limit(0)
    by = plans.where(F.col("before")[REPLACES].isNotNull()).join(created, [*key, "action"], "left_semi")
    last = F.max_by(F.struct("run_id", "action"), "planned_at").alias("last")
    old = plans.where(F.col("before")[REPLACED_BY].isNotNull()).groupBy("cluster", "topic").agg(last)
    return by.select(*key, "action").unionByName(old.select("last.run_id", "cluster", "topic", "last.action"))


def _findings(ledger: Ledger) -> DataFrame:
    """Return the rows of `drift` that are kept at any age: without them, a cluster that nobody audits looks clean.

    Columns: run_id, cluster.
    """
    return last_findings(ledger.read(RUNS), ledger.read(DRIFT))


def oldest_kept(days: int, at: datetime) -> datetime:
    """Return the moment before which rows are deleted: the start of the day (UTC) `days` before `at`."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


def _older(table: Table, days: int, open_runs: Mapping[str, datetime], at: datetime) -> str:
    """Return the condition (SQL) for rows before `oldest_kept`, without those of open runs."""
    old = f"{AGED[table.name]} < {sql_value(oldest_kept(days, at))}"
    return f"{old} AND run_id NOT IN ({', '.join(map(sql_value, open_runs))})" if open_runs else old


def _kept_since(request: MaintenanceRequest) -> datetime:
    """Return the moment from which on VACUUM keeps all versions."""
    return datetime.now(UTC) - timedelta(hours=request.vacuum_hours)


def _pinned(table: Table, request: MaintenanceRequest, open_runs: Mapping[str, datetime]) -> str | None:
    """Return why a table isn't vacuumed: an open run may read a version of before `vacuum_hours`; None if it is."""
    if table.name not in _PINNED:
        return None
    since = _kept_since(request)
    late = sorted(run_id for run_id, started_at in open_runs.items() if started_at < since)
    if not late:
        return None
    if len(late) > 1:
        return f"not vacuumed: runs {listed(late)} are open and may still read old versions; finish or abandon them"
    return f"not vacuumed: run {late[0]} is open and may still read an old version; finish or abandon it"


def render(maintained: Maintained, console: Console) -> None:
    """Print the abandoned runs, and a line per table."""
    if maintained.abandoned:
        done = (
            "abandoned, past guards.max_plan_age"
            if maintained.executed
            else "past guards.max_plan_age, abandoned by --execute"
        )
        console.print(f"plans {done}: {plain(', '.join(maintained.abandoned))}", soft_wrap=True)
    if maintained.abandoned_audits:
        done = "abandoned" if maintained.executed else "abandoned by --execute"
        names = plain(", ".join(maintained.abandoned_audits))
        console.print(f"audits open for longer than --vacuum-hours, {done}: {names}", soft_wrap=True)
    if maintained.contradicted:
        console.print(
            "not abandoned, since audit has applied actions of these plans: "
            f"{plain(', '.join(maintained.contradicted))}. "
            "Somebody added or changed rows: DESCRIBE HISTORY of both tables shows when. "
            "`runs abandon` seals them as they are",
            soft_wrap=True,
        )
    executed = maintained.executed
    columns: list[tuple[str, list[str]]] = [
        ("table", [each.table for each in maintained.tables]),
        ("files", [f"{each.files:,}" for each in maintained.tables]),
        ("bytes", [f"{each.bytes:,}" for each in maintained.tables]),
        ("rows deleted", [f"{each.rows_deleted:,}" if executed else "" for each in maintained.tables]),
        ("old files removed", [f"{each.files_vacuumed:,}" if executed else "" for each in maintained.tables]),
        ("files now", ["" if each.files_after is None else f"{each.files_after:,}" for each in maintained.tables]),
        ("work", [", ".join(each.work) or ("" if executed else "none") for each in maintained.tables]),
        ("note", [cell(each.error or each.note) for each in maintained.tables]),
    ]
    filled = [(title, cells) for title, cells in columns if any(cells)]
    title = "Maintained" if executed else "Dry run: nothing was done"
    grid = grid_of(*(name for name, _ in filled), title=title)
    for row in zip(*(cells for _, cells in filled), strict=True):
        grid.add_row(*row)
    console.print(grid)
    if not executed:
        needed = [each.table for each in maintained.tables if each.work]
        if needed or maintained.abandoned or maintained.abandoned_audits:
            where = ", ".join(needed) or RUNS.name
            console.print(f"work is needed on {where}: maintain --execute does it")
        else:
            console.print("no work is needed")
