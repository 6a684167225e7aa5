"""`maintain`."""

from __future__ import annotations

from collections.abc import Callable

import click

from topicledger.apply.display import display_only
from topicledger.cli.durations import Duration
from topicledger.cli.options import (
    NEW_ID,
    Command,
    Options,
    common_with,
    interruptible,
    open_ledger,
    open_settings,
    print_result,
    requested_by_option,
)
from topicledger.errors import UsageError
from topicledger.ledger import maintain as maintenance


def _days(option: str, rows: str) -> Callable[[Command], Command]:
    text = f"Delete {rows} older than this (90d; whole days, UTC), except of open runs."
    return click.option(option, type=Duration("d", least=1, whole=True), help=text)


@click.command("maintain", short_help="Compact and vacuum the tables.", epilog="Example: topicledger maintain")
@click.option("--execute/--dry-run", help="Do it, or only print what would be done. Default: --dry-run.")
@click.option(
    "--vacuum-hours",
    type=Duration("h", least=maintenance.VACUUM_HOURS, whole=True),
    default=maintenance.VACUUM_HOURS,
    help="Remove files that no table version of this time uses (168 for hours, 168h, 7d; whole hours).",
)
@_days("--audit-retention-days", "rows of `audit`")
@_days("--plans-retention-days", "rows of `plans`")
@_days("--drift-retention-days", "rows of `drift`")
@_days("--usage-retention-days", "rows of `usage`")
@requested_by_option
@common_with(without=("cluster",), run_id=NEW_ID)
def maintain(options: Options, execute: bool, vacuum_hours: int, requested_by: str | None, **days: int | None) -> int:
    """Compact and vacuum the tables, and delete old rows if requested."""
    if not execute and (options.run_id is not None or requested_by is not None):
        raise UsageError("without --execute, maintain adds no run: leave out --run-id and --requested-by")
    retention = {name.removesuffix("_retention_days"): each for name, each in days.items() if each is not None}
    with interruptible():
        settings = open_settings(options)
        ledger = open_ledger(options, settings, "maintain")
        request = maintenance.MaintenanceRequest(
            execute=execute,
            vacuum_hours=vacuum_hours,
            retention_days=retention,
            run_id=options.run_id,
            requested_by=requested_by,
        )
        maintained = maintenance.maintain(ledger, settings, request)
    with display_only("the result", instead="`runs list` has the run"):
        print_result(maintained.to_json(), lambda console: maintenance.render(maintained, console), options)
    return maintained.exit_code
