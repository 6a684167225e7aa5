"""Options that limit a command to a scope: see `model.scope`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import click
from pyspark.sql import DataFrame

from topicledger.config import patterns
from topicledger.config.ownership import owner_key
from topicledger.config.settings import Settings
from topicledger.errors import UsageError
from topicledger.ledger.tables import Ledger
from topicledger.model.scope import Scope
from topicledger.resources.registry import KINDS
from topicledger.schemas import DECLARING
from topicledger.text import nearest, show

Command = Callable[..., Any]
_Names = TypeVar("_Names", "str | None", tuple[str, ...])


def named(_: click.Context, __: click.Parameter, given: _Names) -> _Names:
    """Return the name or names of owners; none may be blank, such as from a variable that isn't set."""
    if not all(each.strip() for each in ([given] if isinstance(given, str) else given or ())):
        raise click.BadParameter("a name is blank: leave the option out")
    return given


def pattern(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns of names, each checked; a blank one would match every name."""
    for each in given:
        if not each.strip():
            raise click.BadParameter("a pattern is blank: leave the option out; . matches every name")
        try:
            patterns.check(each)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return given


owner_option = click.option(
    "--owner", multiple=True, callback=named, metavar="NAME", help="Only what this owner declares; may be repeated."
)
_topic = click.option(
    "--topic",
    multiple=True,
    callback=pattern,
    metavar="PATTERN",
    help="Only topics whose name matches this pattern (RE2; anywhere unless anchored), and other resources about "
    "them; may be repeated.",
)
_resource = click.option(
    "--resource",
    multiple=True,
    callback=pattern,
    metavar="PATTERN",
    help=f"Only {', '.join(kind.table.name for kind in KINDS)} whose text, as plans show it, matches this pattern; "
    "may be repeated. With --topic: either is enough.",
)


def topic_scope_options(command: Command) -> Command:
    """Add the options of a scope of topics alone, as one argument `limits`."""

    @functools.wraps(command)
    def call(*, owner: tuple[str, ...], topic: tuple[str, ...], **arguments: Any) -> Any:
        return command(limits=Scope(owners=owner, topics=topic), **arguments)

    return owner_option(_topic(call))


def scope_options(command: Command) -> Command:
    """Add the options of a scope, as one argument `limits`."""

    @functools.wraps(command)
    def call(*, owner: tuple[str, ...], topic: tuple[str, ...], resource: tuple[str, ...], **arguments: Any) -> Any:
        return command(limits=Scope(owners=owner, topics=topic, resources=resource), **arguments)

    return owner_option(_topic(_resource(call)))


def check_owners(
    ledger: Ledger,
    settings: Settings,
    owners: Sequence[str],
    unloaded: Sequence[DataFrame] = (),
    *,
    option: str = "--owner",
    required: bool = False,
) -> None:
    """Print a line for each of these owners that neither a row nor the settings name: it is likely misspelt.

    `unloaded`: rows of files that count as if they were loaded. `option`: the option that names the owners.
    Raises UsageError for the first one if they are `required`: a plan of files would silently leave out their changes.
    """
    if not owners:
        return
    tables = map(ledger.read_if_exists, DECLARING)
    rows = [table.select("owner").where("owner is not null") for table in (*tables, *unloaded)]
    found = reduce(DataFrame.union, rows).distinct().collect()
    in_file = (name for line in settings.owners.lines for name in line.owners)
    known = [*(row["owner"] for row in found), *settings.owners.names, *in_file]
    keys = set(map(owner_key, known))
    for each in owners:
        if owner_key(each) not in keys:
            hint = nearest(each, known)
            message = f"{option} {show(each)}: no row has this owner{'; ' + hint if hint else ''}"
            if required:
                raise UsageError(f"{message}; leave it out to plan the files' changes of every owner")
            click.echo(message, err=True)
