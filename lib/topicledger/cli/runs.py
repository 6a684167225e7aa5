"""`runs list`, `runs show`, `runs revert` and `runs abandon`."""

from __future__ import annotations

import click

from topicledger.apply.throttles import take_away_left
from topicledger.cli import show
from topicledger.cli.options import Options, common, open_ledger, open_settings
from topicledger.cli.provisioning import revert
from topicledger.errors import ExitCode, UsageError
from topicledger.ledger import runs


@click.group("runs")
def runs_group() -> None:
    """Runs so far."""


@runs_group.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="How many runs to list.")
@common
def runs_list(options: Options, limit: int) -> int:
    """The runs, newest first."""
    ledger = open_ledger(options, open_settings(options), "runs")
    return show.list_runs(ledger, limit, as_json=options.format == "json")


@runs_group.command("show")
@common
def runs_show(options: Options) -> int:
    """Every action of a run, with what validateOnly resolved: --run-id names it."""
    if options.run_id is None:
        raise UsageError("runs show needs --run-id; see `runs list`")
    ledger = open_ledger(options, open_settings(options), "runs")
    return show.show_run(ledger, options.run_id, as_json=options.format == "json")


runs_group.add_command(revert)


@runs_group.command("abandon")
@common
def runs_abandon(options: Options) -> int:
    """Give up an open run: --run-id names it. Throttles that runs left on clusters are taken away."""
    if options.run_id is None:
        raise UsageError("runs abandon needs --run-id; see `runs list`")
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "runs")
    runs.abandon(ledger, options.run_id)
    click.echo(f"run {options.run_id} is abandoned")
    take_away_left(ledger, settings, options.run_id)
    return ExitCode.DONE
