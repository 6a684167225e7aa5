"""All commands of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Yield the full name of each command, and the command."""
    # This adds `serve` to the group, which other tests list without it.
    from topicledger.serving.command import main

    return _commands(main)


def _commands(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    for each in group.commands.values():
        if isinstance(each, click.Group):
            yield from _commands(each, f"{name}{each.name} ")
        else:
            yield f"{name}{each.name}", each
