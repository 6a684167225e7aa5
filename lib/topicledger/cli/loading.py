"""Options for manifest files, and loading the files of a plan before `apply` sends anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from topicledger.cli.options import with_resume_hint
from topicledger.errors import UsageError
from topicledger.files.read import read
from topicledger.ledger.run import Run
from topicledger.manifests.files.variables import variables_in
from topicledger.model import RunState
from topicledger.plan import approvals, planned_files

var_option = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _, __, given: variables_in(given),
    help="The value of ${NAME} in the YAML files; may be repeated.",
)


def load_planned_files(run: Run, files: Sequence[Path | Literal["-"]]) -> None:
    """Load the files of an approved plan, if they are given.

    Raises UsageError, with the run as it was, if they aren't as planned, or if none is given and they aren't loaded.
    """
    if files and not run.of_files:
        raise UsageError(f"run {run.run_id} wasn't planned from files: leave them out")
    if files and run.state is RunState.FINISHED:
        click.echo("the files are not loaded: load_manifests loads them", err=True)
    if not planned_files.is_waiting(run) or approvals.missing(run) is not None:
        return
    with with_resume_hint(run):
        if not files:
            planned_files.require_loaded(run)
            return
        variables = planned_files.variables_in(run.arguments)
        found = read(run.settings, files, sys.stdin, clusters=run.selected or (), variables=variables)
        parsed = planned_files.as_planned(run, found)
        planned_files.load_planned(run, parsed)
        click.echo(f"loaded {planned_files.named(parsed.digests)}, as planned", err=True)
