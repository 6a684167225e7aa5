"""Options for manifest files, and loading the files of a plan before `apply` sends anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from topicledger.errors import UsageError
from topicledger.files.read import read
from topicledger.ledger.outcomes import Standing
from topicledger.ledger.run import Run
from topicledger.manifests.files.variables import variables_in
from topicledger.model import RunState
from topicledger.plan import planned_files
from topicledger.plan.standing import standing

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


def require_files_of(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    """Raise UsageError if files are given to `apply` for a plan that wasn't made from files."""
    if files and not run.of_files:
        raise UsageError(f"run {run.run_id} wasn't planned from files: leave them out")
    if files and run.state is RunState.FINISHED:
        click.echo("the files are not loaded: load_manifests loads them", err=True)


def load_planned_files(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    """Load the files of an approved plan, if they are given and something of the plan can be sent.

    Raises UsageError, with the run as it was, if they aren't as planned, or if none is given and they aren't loaded.
    """
    if not planned_files.is_waiting(run):
        return
    if standing(run, Standing.PLANNED, Standing.VALIDATED).isEmpty():
        if files:
            click.echo("nothing of the plan can be sent, so its files are not loaded", err=True)
        return
    if not files:
        planned_files.require_loaded(run)
        return
    variables = planned_files.variables_in(run.arguments)
    found = read(run.settings, files, sys.stdin, clusters=run.selected or (), variables=variables)
    parsed = planned_files.as_planned(run, found)
    planned_files.load_planned(run, parsed)
    click.echo(f"loaded {planned_files.named(parsed.digests)}, as planned", err=True)
