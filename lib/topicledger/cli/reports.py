"""`report`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from topicledger import report
from topicledger.apply.display import display_only
from topicledger.cli.options import (
    Options,
    ReadingCommand,
    Renamed,
    common_with,
    open_ledger,
    open_settings,
    print_result,
)
from topicledger.cli.scope import check_owners, topic_scope_options
from topicledger.errors import ExitCode, UsageError
from topicledger.ledger.session import for_few_rows
from topicledger.model.scope import Scope
from topicledger.queries.estate import read_estate
from topicledger.schemas import AUDIT, PLANS, RUNS
from topicledger.text import document, printable


@click.command(
    "report",
    cls=ReadingCommand,
    short_help="Write an HTML report of a run, a time span or the estate.",
    epilog="Example: topicledger report nightly-7 --to nightly-7.html",
)
@click.option(
    "--since", metavar="TIME", help="Report on all that ended since then (ISO 8601, UTC), instead of on one run."
)
@click.option("--until", metavar="TIME", help="With --since: until then (exclusive). Default: now.")
@click.option(
    "--estate",
    is_flag=True,
    help="Report on the live topics instead: sizes and growth by owner, unused and over-partitioned topics, risks.",
)
@click.option(
    "--to",
    "out",
    cls=Renamed,
    former=["--out"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The HTML file to write, or to replace.",
)
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write FOLDER/index.html, which lists all reports in it; alone, or after the report.",
)
@topic_scope_options
@common_with(positional="[RUN_ID]")
def report_command(
    options: Options,
    limits: Scope,
    since: str | None,
    until: str | None,
    estate: bool,
    out: Path | None,
    index: Path | None,
) -> int:
    """Write one HTML file about a run or an audit (RUN_ID), a span of time (--since), or the estate (--estate)."""
    if index is not None:
        report.make_folder(index)
        report.require_writable(index / report.INDEX_FILE, "--index")
    if out is None and index is not None and not estate and options.run_id is None and since is None and until is None:
        if options.cluster or limits.narrows:
            raise UsageError("--index alone lists all reports of its folder: leave out --cluster, --owner and --topic")
        open_settings(options)
        return _write_index(index, options)
    if out is None:
        raise UsageError("report needs --to: the HTML file to write")
    if [options.run_id is not None, since is not None, estate].count(True) != 1:
        raise UsageError("report needs one of RUN_ID (see `runs list`), --since and --estate")
    if estate and limits.topics:
        raise UsageError("--estate counts by owner: leave out --topic; --cluster and --owner limit it")
    if until is not None and since is None:
        raise UsageError("--until needs --since: a report about a run covers all of it")
    report.require_writable(out)
    now = datetime.now(UTC)
    if estate:
        return _write_estate(options, replace(limits, clusters=tuple(options.cluster)), now, out, index)
    start = None if since is None else report.moment(since, "--since")
    end = now if until is None else report.moment(until, "--until")
    asked = None if start is None else report.span(start, end, options.cluster)
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "report")
    ledger.ensure(RUNS, PLANS, AUDIT)
    check_owners(ledger, settings, limits.owners)
    if asked is None:
        asked = report.of_run(ledger, str(options.run_id), options.cluster)
    asked = report.limited(ledger, settings.owners, asked, limits)
    found = report.gather(ledger, asked, now, settings=settings)
    _write_page(report.render(found), out, index)
    drift = found.drift
    result = {
        "run_id": options.run_id,
        "kind": found.kind.value,
        "out": str(out),
        "outcomes": found.outcomes(),
        "drift": None if drift is None or drift.removed else sum(each.findings for each in drift.tallies),
    }
    return _printed(result, out, options)


def _write_estate(options: Options, limits: Scope, now: datetime, out: Path, index: Path | None) -> int:
    settings = open_settings(options)
    settings.select(options.cluster)
    ledger = open_ledger(options, settings, "report")
    with for_few_rows(ledger.spark):
        check_owners(ledger, settings, limits.owners)
        found = read_estate(ledger, settings, limits, now)
    _write_page(report.render_estate(found), out, index)
    counts = {
        "topics": sum(each.topics for each in found.owners),
        "unused": found.unused.total,
        "over_partitioned": found.over_partitioned.total,
        "risky": found.risky,
    }
    return _printed({"kind": "estate", "out": str(out), **counts}, out, options)


def _write_page(text: str, out: Path, index: Path | None) -> None:
    report.write(out, text)
    if index is not None:
        report.write(index / report.INDEX_FILE, report.render_index(report.entries(index)))


def _printed(result: dict[str, Any], out: Path, options: Options) -> int:
    with display_only("the result", instead=f"the report is in {out}"):
        print_result(document(ExitCode.DONE, result, indent=None), lambda _: click.echo(written(out)), options)
    return ExitCode.DONE


def written(out: Path) -> str:
    """Return the line that names the written file."""
    return f"wrote {printable(str(out))}"


def _write_index(folder: Path, options: Options) -> int:
    found = report.entries(folder)
    out = folder / report.INDEX_FILE
    report.write(out, report.render_index(found))
    return _printed({"out": str(out), "reports": len(found)}, out, options)
