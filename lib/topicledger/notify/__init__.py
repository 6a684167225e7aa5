"""Announce the result of a run to each [[notify]], once per run and event, within a time limit.

A server that does one run after another announces the same state only once, until it changes: see `Announced`. The
run's row is marked, with an id of its own, before the announcement is sent. If the process dies in between, the
announcement is lost; in return, a run that is started again never announces an event twice.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from topicledger.config.notify import Event, NotifySettings
from topicledger.errors import TableError
from topicledger.ledger.run import Run, find_run, row_of
from topicledger.ledger.sql import sql_value
from topicledger.notify.announcement import Announcement
from topicledger.notify.sending import post_all
from topicledger.schemas import RUNS

log = logging.getLogger(__name__)

_STATES = "TOPICLEDGER_ANNOUNCED"
"""The environment variable with the states that a server hands to itself when it starts again."""


_Post: TypeAlias = tuple[int, NotifySettings, Announcement]
"""An announcement for one [[notify]], with that table's number."""


@dataclass
class Announced:
    """The state last announced to each [[notify]] of each event, in a process that does one run after another."""

    states: dict[str, str] = field(default_factory=dict)
    """States by event and the text of a [[notify]], whose number differs once the settings differ; absent if there was
    nothing to announce."""

    @classmethod
    def taken_over(cls) -> Self:
        """Take over the states that this process announced before it started itself again."""
        return cls(json.loads(os.environ.pop(_STATES, "{}")))

    def hand_over(self) -> None:
        """Keep the states for the program that replaces this one in the same process."""
        os.environ[_STATES] = json.dumps(self.states)

    def due(self, settings: Sequence[NotifySettings], found: Sequence[Announcement]) -> list[_Post]:
        """Return the announcements that each address doesn't know yet, and forget states that no longer hold."""
        posts: list[_Post] = []
        for number, to in enumerate(settings, start=1):
            concerning = {each.event: each for each in found if each.concerns(to)}
            for event in Event:
                if event not in concerning:
                    self.states.pop(_key(to, event), None)
            fresh = (each for event, each in concerning.items() if self.states.get(_key(to, event)) != each.state)
            posts += [(number, to, each) for each in fresh]
        return posts

    def arrived(self, posts: Sequence[_Post], numbers: Collection[int]) -> None:
        """Remember the states of the `posts` to these `numbers`."""
        self.states.update({_key(to, each.event): each.state for number, to, each in posts if number in numbers})


def _key(to: NotifySettings, event: Event) -> str:
    return f"{event.value} {to!r}"


def announce(
    run: Run,
    settings: Sequence[NotifySettings],
    make: Callable[[], Sequence[Announcement]],
    announced: Announced | None = None,
) -> None:
    """Send the run's new announcements, which `make` returns, to each [[notify]] that they concern.

    `announced` has the states that earlier runs of this process announced; they aren't sent again. Never raises, since
    the run itself has ended: problems are logged as warnings, without any address.
    """
    if not settings:
        return
    try:
        _announce(run, settings, make(), announced or Announced())
    except Exception as error:
        # The error's text may contain an address, which is a secret.
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
    """Return the announcements that no start of the run has made yet, and mark their events in the run's row."""
    row = find_run(run.ledger, run.run_id)
    if row is None:
        # Nothing was committed, so nothing can be started again.
        return wanted
    before = row["notified"]
    marks = before.split(",") if before else []
    events = {mark.partition(":")[0] for mark in marks}
    fresh = [each for each in wanted if each.event not in events]
    if not fresh:
        return ()
    # Not the start's id: starts that find the run finished have that of an earlier one.
    own = secrets.token_hex(8)
    after = ",".join(sorted([*marks, *(f"{each.event.value}:{own}" for each in fresh)]))
    unchanged = f"{row_of(run.run_id)} AND notified <=> {sql_value(before)}"
    try:
        marked = run.ledger.update(RUNS, unchanged, {"notified": sql_value(after)}) > 0
    except TableError:
        # Its last try may have been committed, and only its answer lost.
        if not _has(run, own):
            raise
        marked = True
    if not marked and not _has(run, own):
        log.info("another start of run %s announces it", run.run_id)
        return ()
    return fresh


def _has(run: Run, own: str) -> bool:
    """Whether the run's row has a mark with this id: a repeated commit finds its own mark, and changes nothing."""
    row = find_run(run.ledger, run.run_id)
    return row is not None and own in (row["notified"] or "")
