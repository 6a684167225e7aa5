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
    """Context for output about committed work: an error within becomes one warning line on stderr.

    The warning says that `what` is not shown, and `instead` how to show it. The exit code of the work isn't changed.
    """
    try:
        yield
    except Exception as error:
        log.warning("%s can't be shown: %s; the work is done: %s", what, _one_line(error), instead)
        log.debug("not shown", exc_info=True)
        if isinstance(error, OSError):
            _discard_stdout()


def displayed(make: Callable[[], _Value], otherwise: _Other, what: str, *, instead: str) -> _Value | _Other:
    """Return the result of `make`; if it fails, `otherwise`, with a warning as in `display_only`."""
    with display_only(what, instead=instead):
        return make()
    return otherwise


def _one_line(error: Exception) -> str:
    message = first_sentence(error)
    return printable(message if type(error).__name__ in message else f"{type(error).__name__}: {message}")


def _discard_stdout() -> None:
    """Discard the rest of stdout: Python would end with exit code 120 if it couldn't flush it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)
