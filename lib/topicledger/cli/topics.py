"""`topics show`: the history of one topic."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console

from topicledger.cli.options import (
    THE_CLUSTER,
    Options,
    ReadingCommand,
    common_with,
    open_ledger,
    open_settings,
    print_result,
)
from topicledger.errors import ExitCode, UsageError
from topicledger.ledger.session import for_few_rows
from topicledger.model.config_texts import with_units
from topicledger.review import history
from topicledger.schemas import APPROVALS, AUDIT, DRIFT, MANIFESTS, PLANS, RUNS
from topicledger.text import counted, document, iso_time, show

_MOST_CHARACTERS = 1_000


@click.group("topics")
def topics_group() -> None:
    """Show single topics."""


@topics_group.command(
    "show",
    cls=ReadingCommand,
    short_help="Show the history of a topic.",
    epilog="Example: topicledger topics show --topic payments.authorised --cluster orders",
)
@click.option("--topic", required=True, metavar="NAME", help="Its name.")
@common_with("text", "json", without=("run_id",), cluster=THE_CLUSTER)
def topics_show(options: Options, topic: str) -> int:
    """Show the history of a topic, oldest event first: --cluster names its cluster. Sends no request to it."""
    if len(options.cluster) != 1:
        raise UsageError("topics show needs --cluster, once: the cluster that the topic is on")
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "topics")
    with for_few_rows(ledger.spark):
        tables = [each for each in (MANIFESTS, PLANS, AUDIT, DRIFT, RUNS, APPROVALS) if ledger.exists(each)]
        ledger.ensure(*tables)
        found = history.of_topic(ledger, options.cluster[0], topic)
    print_result(document(ExitCode.DONE, asdict(found)), lambda console: render(found, console), options)
    return ExitCode.DONE


def render(found: history.TopicHistory, console: Console) -> None:
    """Print a history, one line per event."""

    def say(words: str, style: str | None = None) -> None:
        console.print(words, style=style, markup=False, soft_wrap=True)

    told = counted(len(found.events), "event") if found.events else "never declared, planned or found by an audit"
    say(f"{show(found.topic)} on {show(found.cluster)}: {told}", "bold")
    for each in found.events:
        # The requester of the audit didn't cause the drift.
        by = f" by {show(each.requested_by)}" if each.requested_by and each.what != history.DRIFTED else ""
        run = f", run {show(each.run_id)}" if each.run_id else ""
        details = f": {with_units(each.details)}" if each.details else ""
        say(show(f"{iso_time(each.at)} {each.what}{by}{run}{details}", _MOST_CHARACTERS))
    for note in found.notes:
        say(f"note: {note}")
