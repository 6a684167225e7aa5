"""Options for manifest files, and loading the files of a plan before `apply` sends anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import click

from topicledger.apply.display import display_only
from topicledger.cli.scope import check_owners, named
from topicledger.config import ownership
from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, GuardStopped, UsageError
from topicledger.files.left_behind import left_behind
from topicledger.files.load import Replace, removals_of
from topicledger.files.read import files_arguments, read
from topicledger.ledger import runs
from topicledger.ledger.outcomes import Standing
from topicledger.ledger.run import FILES_ARGUMENT, Run
from topicledger.ledger.tables import Ledger
from topicledger.ledger.who import os_user
from topicledger.manifests.files import ParsedManifests
from topicledger.manifests.files.variables import variables_in
from topicledger.model.scope import Scope
from topicledger.plan import approvals, loadable, planned_files
from topicledger.plan.allowing import LOAD
from topicledger.plan.scoping import declarations
from topicledger.plan.standing import standing
from topicledger.text import counted, listed, show

var_option = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _, __, given: variables_in(given),
    help="The value of ${NAME} in the YAML files; may be repeated.",
)


def paths_of(files: Sequence[str]) -> list[Path | Literal["-"]]:
    """Return the files that a command is given; - is stdin."""
    return ["-" if name == "-" else Path(name) for name in files]


def replace_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--replace` and `--replace-owner`."""
    every = click.option(
        "--replace",
        is_flag=True,
        help="Also remove rows that no file has, of any owner, from each table and cluster for which FILES have "
        "entries.",
    )
    of_owner = click.option(
        "--replace-owner",
        multiple=True,
        callback=named,
        metavar="OWNER",
        help="Like --replace, but only for rows of this owner; may be repeated.",
    )
    return every(of_owner(command))


def replaced(every: bool, owners: tuple[str, ...]) -> Replace | None:
    """Return the request of `replace_options`; raises UsageError if both are given."""
    if every and owners:
        raise UsageError("--replace removes the rows of all owners: give it or --replace-owner")
    return Replace(owners=owners) if every or owners else None


def files_of(
    ledger: Ledger,
    settings: Settings,
    parsed: ParsedManifests,
    paths: Sequence[str],
    replacing: Replace | None,
    request: runs.Request,
) -> runs.Files:
    """Return the files of a plan. Raises UsageError if they would remove rows that the requester may not plan.

    Rows of the files outside of the request's scope are not loaded, and count as pending outside. A run that is being
    applied has loaded its files: for clusters that it has not reached yet, it goes by those that are still as planned.
    """
    begun = planned_files.begun(ledger, settings, request.run_id)
    # `apply` loads what the requester of the run may declare, whoever starts it again.
    requester = str(begun.row["requested_by"]) if begun is not None else request.requested_by or os_user()
    barred = ownership.barred(settings.owners, requester)
    if replacing is not None:
        _require_may_replace(replacing, barred, requester)
    for line in left_behind(ledger, parsed, replacing):
        click.echo(line, err=True)
    removals = None
    if replacing is not None and begun is None:
        removals = removals_of(ledger, parsed, replacing, partial(declarations, request.scope))
    elif replacing is not None and begun is not None:
        removals = planned_files.removals_then(begun, parsed, replacing)
    argument = json.dumps(files_arguments(parsed.digests), sort_keys=True)
    if begun is not None and begun.may_have_sent:
        parsed, argument = planned_files.as_planned(begun, parsed), begun.arguments[FILES_ARGUMENT]
    kept = loadable.within(ledger, parsed, Scope(barred=tuple(barred)))
    unloaded = planned_files.unloaded(ledger, kept, removals)
    if replacing is not None:
        rows = [each.rows for each in unloaded.values()]
        check_owners(ledger, settings, replacing.owners, rows, option="--replace-owner")
    return runs.Files(
        argument=argument,
        paths=paths,
        variables=parsed.variables,
        unloaded=unloaded,
        replaces="" if replacing is None else json.dumps(replacing.owners),
        removals=planned_files.removals_arguments(removals, settings.guards.max_removed_rows),
    )


def _require_may_replace(replacing: Replace, barred: Sequence[str], requested_by: str) -> None:
    asked = set(map(ownership.owner_key, replacing.owners))
    theirs = [each for each in barred if not asked or ownership.owner_key(each) in asked]
    if theirs:
        raise UsageError(
            f"--replace{'-owner' if asked else ''} would remove rows of {listed(list(map(show, theirs)))}, and by "
            f"[owners] of the settings {show(requested_by)} may not plan them"
            + ("" if asked else ": --replace-owner OWNER removes only rows of that owner")
        )


def require_files_of(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    """Raise UsageError if files are given to `apply` for a plan that wasn't made from files."""
    if files and not run.of_files:
        raise UsageError(f"run {run.run_id} wasn't planned from files: leave them out")


def load_planned_files(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    """Load the files of an approved plan, if they are given and something of the plan can be sent.

    Raises UsageError, with the run as it was, if they aren't as planned, or if none is given and they aren't loaded.
    Raises GuardStopped if loading them removes more rows than is allowed.
    """
    if not planned_files.is_waiting(run):
        return
    if files:
        planned_files.require_removals_allowed(run)
    if LOAD not in run.allowed and standing(run, Standing.PLANNED, Standing.VALIDATED).isEmpty():
        if files:
            click.echo("nothing of the plan can be sent, so its files are not loaded", err=True)
        return
    if files:
        _load(run, files)
    else:
        planned_files.require_loaded(run)


def load_files_of_finished(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    """Load the files of a plan that ended because it had nothing to send, unless they are loaded.

    Raises UsageError if they aren't as planned. Raises GuardStopped if the plan is too old, or lacks an approval: its
    files may change owners, and remove rows.
    """
    if not files or planned_files.were_loaded(run):
        return
    if run.exit_code != ExitCode.DONE:
        click.echo("the plan refused something, so its files are not loaded: load-manifests loads them", err=True)
        return
    runs.require_fresh(run.run_id, run.row["started_at"], run.settings)
    found = approvals.of_run(run.ledger, run.settings.guards, run.row)
    if found.missing:
        raise GuardStopped(f"run {run.run_id} sends nothing, but its files change the tables: {found}")
    _load(run, files)


def _load(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    variables = planned_files.variables_in(run.arguments)
    clusters, digests = run.selected or (), planned_files.digests_in(run.arguments)
    owners = run.scope.owners
    found = read(
        run.settings, files, sys.stdin,
        clusters=clusters, variables=variables, some=True, digests=digests, owners=owners,
    )  # fmt: skip
    inside = loadable.within(run.ledger, planned_files.as_planned(run, found), run.scope)
    parsed, refused = loadable.without_refused(run, inside)
    if refused:
        click.echo(f"the plan refused {counted(refused, 'row')} of the files as wrong: not loaded", err=True)
    planned_files.load_planned(run, parsed, found)
    with display_only("the loaded files", instead="`runs list` has the load"):
        click.echo(f"loaded {planned_files.named(parsed.digests)}, as planned", err=True)
