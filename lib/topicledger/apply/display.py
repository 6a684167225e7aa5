"""Output after the work is done: an error in it becomes a warning, never the command's result."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from topicledger.ledger.retries import first_sentence
from topicledger.text import printable

log = logging.getLogger(__name__)

_Value = TypeVar("_Value")
_Other = TypeVar("_Other")


@contextmanager
def display_only(what: str, *, instead: str) -> Iterator[None]:
    """A context for output about committed work: an error within becomes one warning line on stderr.

    `what` is not shown then; `instead` says how to show it. The exit code stays that of the work.
    """
    try:
        yield
    except Exception as error:
        log.warning("%s can't be shown: %s; the work is done: %s", what, _one_line(error), instead)
        log.debug("not shown", exc_info=True)
        if isinstance(error, OSError):
            _discard_stdout()


def displayed(make: Callable[[], _Value], otherwise: _Other, what: str, *, instead: str) -> _Value | _Other:
    """Return what `make` returns; `otherwise`, and a warning as of `display_only`, if it fails."""
    with display_only(what, instead=instead):
        return make()
    return otherwise


def _one_line(error: Exception) -> str:
    message = first_sentence(error)
    return printable(message if type(error).__name__ in message else f"{type(error).__name__}: {message}")


def _discard_stdout() -> None:
    """Send the rest of stdout nowhere: Python would end with exit code 120 if it can't flush it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)
