"""Announces what a run came to, as [[notify]] asks for it: once per run and event, bounded in time.

A server whose runs follow each other announces what they find once, until it changes: see `Announced`.
The row of the run is marked first and the announcement sent then: where the process dies in between, it is lost, but a
run that is started again doesn't announce the same twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from topicledger.config.notify import NotifySettings
from topicledger.ledger.run import Run, find_run, row_of
from topicledger.ledger.sql import sql_value
from topicledger.notify.announcement import Announcement
from topicledger.notify.sending import post_all
from topicledger.schemas import RUNS

log = logging.getLogger(__name__)


_Post: TypeAlias = tuple[int, NotifySettings, Announcement]
"""An announcement for one [[notify]], with its number."""


@dataclass
class Announced:
    """The state that each [[notify]] knows, while one process does run after run."""

    states: dict[int, str] = field(default_factory=dict)
    """By the number of a [[notify]]; none after a run that had nothing to announce to it."""

    def due(self, settings: Sequence[NotifySettings], found: Sequence[Announcement]) -> list[_Post]:
        """Return what the addresses don't know yet of what a run found, and forget states that have passed."""
        posts: list[_Post] = []
        for number, to in enumerate(settings, start=1):
            concerning = [each for each in found if each.concerns(to)]
            if not concerning:
                self.states.pop(number, None)
            posts += [(number, to, each) for each in concerning if self.states.get(number) != each.state]
        return posts

    def arrived(self, posts: Sequence[_Post], numbers: Collection[int]) -> None:
        """Keep the states of `posts` for those of these `numbers`."""
        self.states.update({number: each.state for number, _, each in posts if number in numbers})


def announce(
    run: Run,
    settings: Sequence[NotifySettings],
    make: Callable[[], Sequence[Announcement]],
    announced: Announced | None = None,
) -> None:
    """Send what wasn't announced of the run yet to each [[notify]] that it concerns; `make` makes the announcements.

    `announced`: what earlier runs of this process announced; an address doesn't get the same state again. Never raises,
    since the run has ended before: a warning says what couldn't be done, without any address.
    """
    if not settings:
        return
    try:
        _announce(run, settings, make(), announced or Announced())
    except Exception as error:
        # Its text may hold an address, which is a secret.
        log.warning("run %s ended, but couldn't be announced (%s)", run.run_id, type(error).__name__)


def _announce(
    run: Run, settings: Sequence[NotifySettings], found: Sequence[Announcement], announced: Announced
) -> None:
    posts = announced.due(settings, found)
    events = {each.event for _, _, each in posts}
    fresh = {each.event for each in _marked(run, [each for each in found if each.event in events])} if events else ()
    sent = [post for post in posts if post[2].event in fresh]
    announced.arrived(sent, post_all([(number, to.url, *each.body(to)) for number, to, each in sent]))


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
