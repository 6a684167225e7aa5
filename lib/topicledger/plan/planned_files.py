"""Files that a plan was made from: whether they are loaded, and loading them for `apply`.

An action of such a plan follows from the files, so none is sent before the files are in the tables. A plan whose files
aren't loaded is refused as a whole, before its run changes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, GuardStopped, UsageError
from topicledger.files.load import (
    COMMAND,
    Removals,
    Replace,
    frames_beside,
    load,
    removals_of,
    split_removals,
)
from topicledger.files.read import files_arguments
from topicledger.ledger.outcomes import is_stopped
from topicledger.ledger.proof import approvals_of
from topicledger.ledger.run import FILES_ARGUMENT, PLAN_ARGUMENT, REPLACES_ARGUMENT, Run, find_run
from topicledger.ledger.runs import PATHS_ARGUMENT, VARIABLES_ARGUMENT
from topicledger.ledger.sql import differ, same_key
from topicledger.ledger.tables import Ledger
from topicledger.ledger.unloaded import Unloaded
from topicledger.ledger.versions import latest_if_exists
from topicledger.manifests import rows as manifests
from topicledger.manifests.files import ParsedManifests
from topicledger.model import RunState
from topicledger.plan import resources
from topicledger.plan.allowing import (
    LOAD,
    REMOVED_ROWS,
    REMOVED_ROWS_ARGUMENT,
    all_stopped,
    approve_command,
    most_of,
    stopped_load,
)
from topicledger.plan.intent import declarations_of, no_longer_declared
from topicledger.plan.scoping import declarations
from topicledger.resources.registry import KINDS
from topicledger.resources.topics.plan.undeclared import no_longer_asked_for
from topicledger.schemas import DECLARING, MANIFESTS, RUNS, TABLES, Table
from topicledger.text import counted, listed, show

REMOVALS_ARGUMENT, REMOVED_ARGUMENT = "removals", "removed_sha256"
"""Keys of a run's arguments: the first rows that loading the plan's files removes, in words, as JSON; and the digest of
all of them."""
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class PlannedFiles:
    """Files that a plan was made from, as `runs.arguments` lists them."""

    digests: Mapping[str, str]
    """Name of each listed file -> SHA-256 (hex) of its bytes."""
    total: int
    argument: Mapping[str, str]
    """The arguments that list the files; see `files_arguments`."""

    @property
    def all_listed(self) -> bool:
        """Whether every file is listed: for very many, only the first ones are."""
        return self.total == len(self.digests)


def planned_files(argument: str) -> PlannedFiles:
    """Parse the argument `files` of a run's row, or the arguments of a load as JSON."""
    kept = json.loads(argument)
    digests = {each["file"]: each["sha256"] for each in json.loads(kept["files"])}
    return PlannedFiles(digests=digests, total=int(kept.get("files_total", len(digests))), argument=kept)


def digests_in(arguments: Mapping[str, str]) -> Collection[str] | None:
    """Return the digests of the files of a plan, by the arguments of its run; None if other files count, too.

    With --replace, rows of any file stay. `runs` doesn't list all of very many files.
    """
    planned = planned_files(arguments[FILES_ARGUMENT])
    return planned.digests.values() if planned.all_listed and replace_in(arguments) is None else None


def paths_in(arguments: Mapping[str, str] | None) -> Sequence[str]:
    """Return the files and folders that a plan was made from, by the arguments of its run."""
    return tuple(json.loads((arguments or {}).get(PATHS_ARGUMENT, "[]")))


def variables_in(arguments: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of the variables in the files that a plan was made from, by the arguments of its run."""
    found: Mapping[str, str] = json.loads(arguments.get(VARIABLES_ARGUMENT, "{}"))
    return found


def removals_in(arguments: Mapping[str, str] | None) -> Sequence[str]:
    """Return the first rows that loading the plan's files removes, in words, by the arguments of its run."""
    return tuple(json.loads((arguments or {}).get(REMOVALS_ARGUMENT, "[]")))


def replace_in(arguments: Mapping[str, str]) -> Replace | None:
    """Return the `--replace` of a plan from files, by the arguments of its run; None without it."""
    owners = arguments.get(REPLACES_ARGUMENT)
    return None if not owners else Replace(owners=tuple(json.loads(owners)))


def apply_command(run_id: str, paths: Sequence[str]) -> str:
    """Return the command that applies a plan. `paths`: the files and folders that it was planned from."""
    return shlex.join(["apply", "--run-id", run_id, *paths])


def is_waiting(run: Run) -> bool:
    """Whether a run is a plan from files of which nothing was sent yet."""
    return run.of_files and run.state in (RunState.PLANNING, RunState.PLANNED)


def begun(ledger: Ledger, settings: Settings, run_id: str | None) -> Run | None:
    """Return the plan from files that an earlier start left, to read its row; None if there is none."""
    row = find_run(ledger, run_id) if run_id is not None and ledger.exists(RUNS) else None
    if row is None:
        return None
    found = RunState(row["state"])
    run = Run(run_id=row["run_id"], ledger=ledger, settings=settings, row=row.asDict(), found=found)
    return run if run.of_files else None


def as_planned(run: Run, parsed: ParsedManifests) -> ParsedManifests:
    """Return only the files that are as they were when planned.

    Raises UsageError if none is. Also if any of them differs and the plan has more files than `runs` lists.
    """
    planned = planned_files(run.arguments[FILES_ARGUMENT])
    if not planned.all_listed:
        if files_arguments(parsed.digests) != planned.argument:
            raise UsageError(
                f"run {run.run_id} was planned from {counted(planned.total, 'file')}, and these aren't the same: give "
                "the same files, unchanged, or plan again; this start loads nothing and sends nothing"
            )
        return parsed
    digests = {name: digest for name, digest in parsed.digests.items() if digest in planned.digests.values()}
    if not digests:
        raise UsageError(
            f"{named(parsed.digests)}: no file is as it was when run {run.run_id} was planned from "
            f"{named(planned.digests)}: plan again; this start loads nothing and sends nothing"
        )
    same = {"stdin" if name == "-" else name for name in digests}
    return replace(parsed.only(lambda row: row.file in same), digests=digests)


def load_planned(run: Run, parsed: ParsedManifests, beside: ParsedManifests) -> None:
    """Load the files that a plan was made from, or nothing.

    `parsed`: what `as_planned` returned. `beside`: all files that are given now; rows that any of them has aren't
    removed. Raises UsageError if the tables changed a row of `parsed` since the plan, or if an action of the plan
    wouldn't follow from the tables with these files.
    """
    replaces = replace_in(run.arguments)
    removals = None if replaces is None else _planned_removals(run, beside, replaces)
    with_files = replace(run, unloaded=unloaded(run.ledger, parsed, removals))
    versions = {each.name: run.ledger.latest_version(each) for each in DECLARING if run.ledger.exists(each)}
    changed = list(_changed_since(with_files, versions))
    if changed:
        raise UsageError(
            f"the tables changed since run {run.run_id} was planned, and its files declare otherwise "
            f"{listed(changed)}: plan again; nothing was loaded and nothing was sent"
        )
    _require_declared(with_files, "isn't among the files that are as planned")
    allowed = max((each.get(REMOVED_ROWS, 0) for each in run.allowed.get(LOAD, ())), default=0)
    guards = replace(run.settings.guards, max_removed_rows=max(allowed, run.settings.guards.max_removed_rows))
    # A run that hasn't ended proves its approvals itself.
    approved = approvals_of(run.ledger, run.run_id) if run.state is RunState.FINISHED else None
    load(
        run.ledger,
        replace(run.settings, guards=guards),
        parsed,
        replace=replaces,
        requested_by=str(run.row["requested_by"]),
        plan=run.run_id,
        removals=removals,
        compared={name: run.ledger.read(TABLES[name], version) for name, version in versions.items()},
        approved=approved if approved is not None and approved.rows else None,
    )


def _planned_removals(run: Run, beside: ParsedManifests, replaces: Replace) -> Removals:
    """Return the rows to remove that are as they were when planned, and name the others that no file has: they stay.

    An earlier start may have removed some, and another merge may leave more rows without a file. A load for the plan
    has removed all of them: by now, none is the plan's.
    """
    if were_loaded(run):
        return Removals(rows={}, lines=(), count=0, digest="{}")
    planned, others = _split(run, removals_of(run.ledger, beside, replaces, partial(declarations, run.scope)))
    if others.count:
        click.echo(
            f"no file has these rows either, and run {run.run_id} doesn't remove them: {listed(others.lines)}", err=True
        )
    return planned


def removals_then(run: Run, parsed: ParsedManifests, replaces: Replace) -> Removals:
    """Return the rows that a plan removes, by the tables that it was planned from: its load may have removed them.

    `parsed`: all files that are given now.
    """
    within = partial(declarations, run.scope)
    found = removals_of(run.ledger, parsed, replaces, within, partial(_declared_then, run))
    return _split(run, found)[0]


def _split(run: Run, found: Removals) -> tuple[Removals, Removals]:
    """Return the rows to remove that a plan has, and the others."""
    try:
        return split_removals(found, run.arguments.get(REMOVED_ARGUMENT, "{}"))
    except ValueError:
        raise UsageError(
            f"loading the files of run {run.run_id} would by now remove other rows than when it was planned: "
            f"{listed(found.lines)}: plan again; this start loads nothing and sends nothing"
        ) from None


def removals_arguments(removals: Removals | None, most: int) -> Mapping[str, str]:
    """Return the arguments of a run about the rows that loading its files removes. `most`: the guard of such rows."""
    if removals is None:
        return {}
    lines = {REMOVALS_ARGUMENT: json.dumps(removals.lines)} if removals.lines else {}
    stopped = {REMOVED_ROWS_ARGUMENT: str(removals.count)} if removals.count > most else {}
    return {**lines, **stopped, REMOVED_ARGUMENT: removals.digest}


def require_removals_allowed(run: Run) -> None:
    """Raise GuardStopped if loading the plan's files removes more rows than guards and approvals allow."""
    for each in stopped_load(run.arguments):
        if not each.is_let_through(run.allowed):
            every = most_of(all_stopped(run.plans(), run.arguments))
            raise GuardStopped(
                f"run {run.run_id} is stopped by guards.max_removed_rows: {each}: nothing was loaded and nothing was "
                f"sent. If all that guards stopped of the plan is meant: {approve_command(run.run_id, every)}"
            )


def unloaded(ledger: Ledger, parsed: ParsedManifests, removals: Removals | None) -> Mapping[str, Unloaded]:
    """Return what loading files changes, by table name."""
    gone = {} if removals is None else removals.rows
    tables = frames_beside(ledger, parsed, removals)
    return {name: Unloaded(rows=rows, removed=gone.get(name)) for name, rows in tables.items()}


def require_loaded(run: Run) -> None:
    """Raise UsageError if the files of a plan aren't loaded: the whole plan is refused then.

    They are if a load for this plan had them: actions that later rows contradict are refused one by one. They also are
    if every action of the plan follows from the tables, whoever loaded what, and the plan removes no rows: not every
    removal causes an action.
    """
    if were_loaded(run):
        return
    if any(json.loads(run.arguments.get(REMOVED_ARGUMENT, "{}")).values()):
        lines = listed(removals_in(run.arguments))
        raise UsageError(
            f"loading the files of run {run.run_id} removes rows, and no load for it did that: {lines}: nothing was "
            f"sent, and the plan stays as it is. `{apply_command(run.run_id, paths_in(run.arguments))}` loads the "
            "files and applies the plan"
        )
    _require_declared(run, "isn't loaded")


def _require_declared(run: Run, why: str) -> None:
    first = _undeclared(run).limit(_SHOWN + 1).collect()
    if not first:
        return
    some = ", ".join(show(f"{row['cluster']}/{row['resource']}") for row in first[:_SHOWN])
    more = " and others" if len(first) > _SHOWN else ""
    command = apply_command(run.run_id, paths_in(run.arguments))
    raise UsageError(
        f"run {run.run_id} was planned from files, and what they declare of {some}{more} {why}: nothing was sent, and "
        f"the plan stays as it is. `{command}` loads the files and applies the plan; if a file changed, plan again"
    )


def were_loaded(run: Run) -> bool:
    """Return whether a load for this plan had its files. Loads of the same files for others may have left out rows."""
    return _any_load(run.ledger, run.run_id)


def is_unloaded_plan(ledger: Ledger, row: Mapping[str, Any] | Row) -> bool:
    """Return whether a run is a plan that ended with nothing to send, and `apply` may load its files. In: its row."""
    of_files = bool((row["arguments"] or {}).get(FILES_ARGUMENT))
    ended = row["state"] == RunState.FINISHED and row["exit_code"] == ExitCode.DONE
    return of_files and ended and not _any_load(ledger, row["run_id"])


def _any_load(ledger: Ledger, run_id: str) -> bool:
    arguments = F.col("arguments")
    for_this = (arguments["command"] == COMMAND) & (arguments[PLAN_ARGUMENT] == run_id)
    return not ledger.read(RUNS).where(for_this & (F.col("exit_code") == int(ExitCode.DONE))).isEmpty()


def _undeclared(run: Run) -> DataFrame:
    """Planned actions that don't follow from the latest tables, with the run's unloaded rows: cluster and resource.

    Those that guards stopped count: approvals that this start has not read yet may let them through.
    """
    planned = run.plans().where(F.col("action").isNotNull() & (F.col("phase").isNull() | is_stopped()))
    latest = run.ledger.latest_version(MANIFESTS)
    now = run.manifests(latest)
    of_topics = no_longer_asked_for(now, now.transform(manifests.validated_by(run.settings, run.selected)), latest, run)
    found = planned.transform(of_topics).select("cluster", "resource")
    for kind in KINDS:
        version = latest_if_exists(run.ledger, kind.table)
        validated = resources.validated_rows(run, kind, version, run.selected)
        then = run.latest_version_of(kind.table)
        no_longer = no_longer_declared(declarations_of(kind), validated, version, then, of_files=True)
        found = found.unionByName(planned.transform(no_longer).select("cluster", "resource"))
    return found


def _changed_since(run: Run, versions: Mapping[str, int]) -> Iterator[str]:
    """Keys of rows of the run's files that the tables, by name, changed between the plan and these versions."""
    for table, latest in ((TABLES[name], version) for name, version in versions.items()):
        unloaded = run.unloaded.get(table.name)
        if unloaded is None or latest == _version_then(run, table):
            continue
        yield from _otherwise(table, unloaded.rows, _declared_then(run, table), run.ledger.read(table, latest))


def _version_then(run: Run, table: Table) -> int | None:
    return run.latest_version_then if table is MANIFESTS else run.latest_version_of(table)


def _declared_then(run: Run, table: Table) -> DataFrame:
    """Read a table as it was when the run began."""
    return run.ledger.read_at(table, _version_then(run, table))


def _otherwise(table: Table, rows: DataFrame, before: DataFrame, now: DataFrame) -> list[str]:
    both = rows.alias("file").join(now.alias("now"), same_key(table, "file", "now"), "left")
    all_three = both.join(before.alias("then"), same_key(table, "file", "then"), "left")
    changed = all_three.where(differ(table, "then", "now") & differ(table, "file", "now"))
    return _keys(changed.select(*(F.col(f"file.{name}") for name in table.key)))


def _keys(rows: DataFrame) -> list[str]:
    first = rows.limit(_SHOWN + 1).collect()
    return [show(" ".join(str(value) for value in row if value is not None)) for row in first]


def named(digests: Mapping[str, str]) -> str:
    """Return the first names of files, for a message."""
    return listed([show(name) for name in digests])
