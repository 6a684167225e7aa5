"""Announce how a run ended: with a result, or by an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.ledger.retries import SPARK_ERRORS, first_sentence
from topicledger.ledger.run import Run
from topicledger.notify import Announced, announce
from topicledger.notify.announcement import Announcement, of_error


def announce_end(run: Run, make: Callable[[str | None, datetime], Sequence[Announcement]]) -> None:
    """Send what `make` returns for the requester and the time; see `announce`."""
    context = click.get_current_context(silent=True)
    announced = None if context is None else context.find_object(Announced)
    announce(run, run.settings.notify, lambda: make(run.row["requested_by"], datetime.now(UTC)), announced)


@contextmanager
def errors_announced(run: Run, what: str) -> Iterator[None]:
    """Context in which an error that ends the run is announced, and raised again. `what`: `run` or `audit`.

    A wrong use isn't announced, nor a run that another start has taken: that start announces its end. After Ctrl-C,
    the session can't be used any more.
    """
    try:
        yield
    except UsageError:
        raise
    except TopicLedgerError as error:
        _announce_error(run, str(error), error.exit_code, what)
        raise
    except SPARK_ERRORS as error:
        _announce_error(run, f"Spark failed: {first_sentence(error)}", ExitCode.ERROR, what)
        raise


def _announce_error(run: Run, message: str, code: ExitCode, what: str) -> None:
    def found(requested_by: str | None, at: datetime) -> Sequence[Announcement]:
        if run.own_row() is None:
            return ()
        return [of_error(message, code, what=what, run_id=run.run_id, requested_by=requested_by, at=at)]

    if run.in_runs:
        announce_end(run, found)
