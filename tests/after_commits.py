"""Records what a command does after its last commit: an error there must not end it as failed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import click
import pytest
from pyspark.sql.classic.dataframe import DataFrame
from rich.console import Console

from tests.commands import REPOSITORY
from topicledger import atomic
from topicledger.ledger.tables import Ledger

COMMITS = ("append", "compare_and_set", "delete", "merge", "replace_clusters", "update", "update_named")
"""Methods of `Ledger` that commit something."""
_READS = ("count", "exists", "latest_version", "read", "stored")
_ACTIONS = ("collect", "count", "first", "head", "isEmpty", "take", "toArrow", "toLocalIterator")
"""Methods of a DataFrame that run a query."""
_PACKAGE = REPOSITORY / "lib" / "topicledger"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A commit, a read or an output of a command."""

    what: str
    commits: bool
    within: Sequence[str]
    """Functions of topicledger that led to it, the outermost first."""
    shows: bool
    """Whether it is within `display_only`."""

    def __str__(self) -> str:
        return f"{self.what} in {' > '.join(self.within[-3:])}"


@dataclass
class Recorded:
    """The steps of a command, in order."""

    steps: list[Step] = field(default_factory=list)

    def exposed(self, *, work: Sequence[str] = ()) -> list[str]:
        """Steps after the last commit that can end the command as failed; those within functions in `work` may."""
        last = max(number for number, step in enumerate(self.steps) if step.commits)
        left = [step for step in self.steps[last + 1 :] if not step.shows]
        return [str(step) for step in left if not set(work) & set(step.within)]


@contextmanager
def recorded() -> Iterator[Recorded]:
    """Context that records what the commands in it do."""
    found = Recorded()
    for path in _PACKAGE.rglob("*.py"):
        _guarded_lines(path)  # not first while recording: Python 3.11's parser can fail deep within Py4J's callbacks

    def recording(what: str, real: Callable[..., Any], *, commits: bool = False) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            frames = list(_frames())
            shows = any(_shows(path, line) for path, line, _ in frames)
            names = [name for *_, name in reversed(frames)]
            step = Step(what=what, commits=commits and not shows, within=names, shows=shows)
            if not step.commits:
                found.steps.append(step)
                return real(*arguments, **named)
            done = real(*arguments, **named)
            found.steps.append(step)
            return done

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in COMMITS:
            patch.setattr(Ledger, name, recording(f"commit by {name}", getattr(Ledger, name), commits=True))
        for name in _READS:
            patch.setattr(Ledger, name, recording(f"{name} of a table", getattr(Ledger, name)))
        for name in _ACTIONS:
            patch.setattr(DataFrame, name, recording(name, getattr(DataFrame, name)))
        patch.setattr(atomic, "write", recording("a file", atomic.write, commits=True))
        patch.setattr(click, "echo", recording("output", click.echo))
        patch.setattr(Console, "print", recording("output", Console.print))
        yield found


def _frames() -> Iterator[tuple[Path, int, str]]:
    """Yield the callers in topicledger, the innermost first: file, line, function."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            yield path, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back


def _shows(path: Path, line: int) -> bool:
    return any(first <= line <= last for first, last in _guarded_lines(path))


@cache
def _guarded_lines(path: Path) -> Sequence[tuple[int, int]]:
    """Return the first and last lines of each body of `with display_only(...)` in a file."""
    return [
        (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.With) and any("display_only" in ast.unparse(item.context_expr) for item in node.items)
    ]
