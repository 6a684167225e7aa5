"""Output of commands as a terminal gets it, and what must hold of any."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import click
import pytest

from topicledger import cli

LONG = ("payments." * 28)[:249]
"""A name as long as Kafka takes it."""
HOSTILE = "[bold red]team[/bold red] [/] :smile: \x1b[31m\x1b[2J\x1b]0;title\x07\x9b1m\u202e\r'\"<b>`|"
"""Text whose markup and control characters would act on a terminal."""
WORDS = "more words than a line has " * 60
WIDTHS = (80, 120)

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MARKUP = "\x1b[1;31m"
"""How the markup of `HOSTILE` acts: nothing else is bold and red."""
_ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TABLE = "┏┃┡│├└"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, width: int, *, colours: bool = False) -> Iterator[Terminal]:
    """A context with stdout on a terminal of `width` columns; without `colours`, NO_COLOR is set."""
    screen = Terminal()
    with monkeypatch.context() as patch, redirect_stdout(screen):
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm-256color")
        if colours:
            patch.delenv("NO_COLOR", raising=False)
        else:
            patch.setenv("NO_COLOR", "1")
        yield screen


def registered(command: click.Command = cli.main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from registered(each, (*path, name))
    else:
        yield path


def problems_of(text: str, width: int) -> list[str]:
    """Return the problems of text for a terminal of `width` columns: it acts, doesn't fit, or repeats itself."""
    acts = ["markup acts"] if _MARKUP in text else []
    text = _COLOUR.sub("", text)
    lines = text.splitlines()
    tables = [line for line in lines if line[:1] and line[0] in _TABLE]
    sentences = [line for line in lines if len(line) > 40 and line not in tables]
    return [
        *acts,
        *(f"{found!r} acts" for found in sorted(set(_ACTS.findall(text)))),
        *(f"a line of {len(line)}: {line}" for line in tables if len(line) > width),
        *(f"twice: {line[:200]}" for line in dict.fromkeys(sentences) if sentences.count(line) > 1),
    ]
