"""Options that limit a command to a scope: see `model.scope`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from topicledger.config import patterns
from topicledger.model.scope import Scope
from topicledger.resources.registry import KINDS

Command = Callable[..., Any]


def pattern(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns of names, each checked."""
    for each in given:
        try:
            patterns.check(each)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return given


owner_option = click.option(
    "--owner", multiple=True, metavar="NAME", help="Only what this owner declares; may be repeated."
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
