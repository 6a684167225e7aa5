"""Announces what a run came to, as [[notify]] asks for it: once per run and event, bounded in time.

The row of the run is marked first and the announcement sent then: where the process dies in between, it is lost, but a
run that is started again doesn't announce the same twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from topicledger.config.notify import NotifySettings
from topicledger.ledger.run import Run, find_run, row_of
from topicledger.ledger.sql import sql_value
from topicledger.notify.announcement import Announcement
from topicledger.notify.sending import post_all
from topicledger.schemas import RUNS

log = logging.getLogger(__name__)


def announce(run: Run, settings: Sequence[NotifySettings], found: Sequence[Announcement]) -> None:
    """Send what wasn't announced of the run yet to each [[notify]] that it concerns.

    Never raises for an address that doesn't answer: a warning names the [[notify]], never its address.
    """
    wanted = [each for each in found if any(each.concerns(to) for to in settings)]
    if wanted:
        fresh = _marked(run, wanted)
        post_all(
            [
                (number, to.url, *each.body(to))
                for each in fresh
                for number, to in enumerate(settings, start=1)
                if each.concerns(to)
            ]
        )


def _marked(run: Run, wanted: Sequence[Announcement]) -> Sequence[Announcement]:
    """Those that no start of the run announced yet; their events are in its row now."""
    row = find_run(run.ledger, run.run_id)
    if row is None:
        # Nothing was committed, so nothing can be started again.
        return wanted
    before = row["notified"]
    events = set(before.split(",")) if before else set()
    fresh = [each for each in wanted if each.event not in events]
    if not fresh:
        return ()
    after = ",".join(sorted(events | {each.event.value for each in fresh}))
    unchanged = f"{row_of(run.run_id)} AND notified <=> {sql_value(before)}"
    if run.ledger.update(RUNS, unchanged, {"notified": sql_value(after)}) == 0:
        log.info("another start of run %s announces it", run.run_id)
        return ()
    return fresh
