"""Histories at random, and shorter ones that show the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from tests.properties.walks.estate import ACLS, ALTERS, CREATES, DELETES, GROWS, IDS, MOVES, ON, TOPICS, Estate
from tests.properties.walks.history import KINDS, OTHERS, Abandon, Approve, Item, Start, Walk
from tests.properties.walks.world import (
    ANOTHER_RUN,
    AT_COMMIT,
    AT_READ,
    CURSE,
    FAULTS,
    GRANTS,
    RELEASES,
    REVOKES,
    TAKES,
    TO_ALL,
    TOLD,
    UNTOLD,
    Broken,
    Event,
    To,
)

_EDITS = tuple(f"{each} an acl" for each in ("edits", "moves", "removes", "corrects"))
HAPPENINGS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys((*FAULTS, *AT_COMMIT, *AT_READ, *TO_ALL), ("",)),
    **dict.fromkeys(("moves", "moves the first", "moves back", "cancels"), tuple(MOVES)),
    **dict.fromkeys(("deletes", "recreates"), (*MOVES, *DELETES, *ALTERS)),
    **dict.fromkeys((TAKES, RELEASES), tuple(IDS)),
    ANOTHER_RUN: OTHERS,
    "makes": tuple(CREATES),
    "grows": tuple(GROWS),
    "alters": tuple(ALTERS),
    **dict.fromkeys((CURSE, UNTOLD, TOLD, "declares otherwise"), TOPICS),
    **dict.fromkeys(_EDITS, tuple(map(str, range(len(ACLS))))),
    **dict.fromkeys((GRANTS, REVOKES), ON),
}
"""By kind of event, what it may be about."""

_KINDS = (
    *(*HAPPENINGS, *FAULTS, *FAULTS),
    *((*_EDITS, UNTOLD, UNTOLD, UNTOLD) * 2),
    *(("stop", "replicas are slow", ANOTHER_RUN) * 8),
)
"""Kinds of events, each as often as it is drawn: stops and slow replicas are what most faults of moves need."""
_UNANSWERED = ("lost, done", "lost, not done", "lost, late", "-1, done", "-1, not done", "7, done")
_AFTERS = (0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 12, 16)
_AFTERS_OF_A_KIND = (0, 0, 0, 0, 1, 1, 2, 3)
"""There are fewer requests of one kind."""
_TIMES = (1, 1, 1, 2, 3, 8)
_BEFORE_THE_NEXT_ATTEMPT = ("stop", "stop", "stop", "moves", "moves the first", "cancels", "recreates", "read lost")

COMMANDS: Sequence[Item] = (
    *(Start("moves", cancel=cancel) for cancel in (True, True, False) * 3),
    *(Start(kind) for kind in ("topics", "topics", "acls", "acls", *OTHERS)),
    *(Start(kind, wait=True) for kind in KINDS),
    *(Abandon("moves", cancel=cancel) for cancel in (True, True, True, False)),
    *(command(kind) for command in (Abandon, Approve) for kind in ("topics", "acls")),
    Approve("moves"),
)
"""Each as often as it is drawn."""


@dataclass(frozen=True)
class History:
    """The events of a walk, and the estate that it begins with."""

    estate: Estate
    items: tuple[Item, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, (self.estate, *self.items)))


@dataclass(frozen=True, kw_only=True)
class About:
    """The focus of histories: kinds of events, commands and requests that faults meet."""

    kinds: Sequence[str] = _KINDS
    commands: Sequence[Item] = COMMANDS
    requests: Sequence[To] = tuple(To)
    first: Sequence[str] = ()
    """Kinds of two events before the first start."""
    topics: Sequence[str] = TOPICS
    """Topics that something happens to."""
    events: tuple[int, int] = (0, 4)
    """The fewest and the most events of a start."""
    moving: float = 0.5
    """Share of events for which only moments count while a run of ours moves something."""
    followed: float = 0.0
    """Share of faults and stops after which something else happens at once: before the request is repeated, or while
    moves are cancelled."""


EVERYTHING = About()
OF_ACLS = About(
    kinds=(*_KINDS, *((*_EDITS, GRANTS, REVOKES) * 16)),
    commands=(
        *(Start(kind) for kind in ("acls", "acls", "acls", "acls+", "topics")),
        Start("acls", wait=True),
        Abandon("acls"),
        Approve("acls"),
    ),
    # Else the first run would find no ACL to remove.
    first=_EDITS,
)
OF_MOVES = About(
    kinds=(
        *(("stop",) * 5),
        *(("moves", "moves the first") * 3),
        *("moves back", "cancels", "deletes", "recreates"),
        *(_UNANSWERED * 2),
        *("41", "31", "crash, done", "crash, not done", "crash after", "read lost"),
        *(("replicas are slow", "a week passes", "declares otherwise") * 3),
        *("replicas arrive", "lease lost"),
        *(ANOTHER_RUN, CURSE, UNTOLD),
    ),
    commands=(
        *(Start("moves", cancel=cancel) for cancel in (True, False) * 3),
        *(Abandon("moves", cancel=cancel) for cancel in (True, False)),
        *(Start(kind) for kind in ("moves+", "topics")),
    ),
    requests=(To.MOVES, To.MOVES, To.MOVES, To.CANCELS, To.THROTTLES),
    topics=tuple(MOVES),
    events=(1, 4),
    moving=0.4,
    followed=0.7,
)
"""Lost requests for moves, and what happens before they are repeated: few histories about everything have both."""
OF_KILLS = replace(OF_MOVES, kinds=(*OF_MOVES.kinds, *(("crash, late",) * 10)))
"""Drivers that are killed while a request is on its way."""


def history(chance: random.Random, about: About = EVERYTHING) -> History:
    """Make a history: starts and other commands, each with what happens meanwhile.

    Few kinds of events, commands and requests that fail occur in it, but these often: of many kinds, one would seldom
    meet another (Groce et al., Swarm Testing, ISSTA 2012).
    """
    kinds = chance.choices(about.kinds, k=chance.randint(2, 5))
    commands = chance.choices(about.commands, k=chance.randint(1, 3))
    requests = chance.choices(about.requests, k=chance.randint(1, 2))
    items: list[Item] = [_event(chance, about, about.first, requests) for _ in range(2 if about.first else 0)]
    for _ in range(chance.randint(1, 4)):
        items.append(chance.choice(commands))
        items += _meanwhile(chance, about, kinds, requests)
    estate = Estate(
        at_once=chance.random() < 0.5,
        by_manifests=chance.random() < 0.5,
        appends=chance.choice(("step", "step", "step", "batch", "row")),
        late_commits=chance.random() < 0.5,
        approvals=chance.choice((0, 0, 0, 1)),
        max_acl_deletes=chance.choice((9, 9, 1)),
        allows=chance.random() < 0.5,
        open_to_all=chance.random() < 0.5,
    )
    return History(estate, tuple(items))


def _meanwhile(chance: random.Random, about: About, kinds: Sequence[str], requests: Sequence[To]) -> Iterator[Event]:
    for _ in range(chance.randint(*about.events)):
        event = _event(chance, about, kinds, requests)
        yield event
        if about.followed and event.kind in (*FAULTS, "stop") and chance.random() < about.followed:
            # After a stop, the requests that are left are those that cancel.
            then = FAULTS if event.kind == "stop" else _BEFORE_THE_NEXT_ATTEMPT
            yield replace(_event(chance, about, then, [To.CANCELS]), after=0, moving=False)


def _event(chance: random.Random, about: About, kinds: Sequence[str], requests: Sequence[To]) -> Event:
    kind = chance.choice(kinds)
    to = chance.choice(requests) if kind in FAULTS else To.ANY
    return Event(
        kind,
        what=chance.choice([each for each in HAPPENINGS[kind] if each in about.topics or each not in TOPICS]),
        after=chance.choice(_AFTERS if to is To.ANY else _AFTERS_OF_A_KIND),
        moving=chance.random() < about.moving,
        to=to,
        times=chance.choice(_TIMES) if kind in (*FAULTS, *AT_READ) else 1,
    )


def broken(found: History, reached: Counter[str] | None = None) -> Broken | None:
    """Walk through a history; return the promise that it broke."""
    try:
        Walk(found.estate, Counter() if reached is None else reached).walk(found.items)
    except Broken as error:
        return error
    return None


def shortest(found: History, shows: Callable[[History], bool]) -> History:
    """Return a history that shows the same as `found`, of which nothing can be left out."""
    while (simpler := next(filter(shows, _simpler(found)), None)) is not None:
        found = simpler
    return found


def _simpler(found: History) -> Iterator[History]:
    for n in range(len(found.items)):
        yield replace(found, items=found.items[:n] + found.items[n + 1 :])
    for field in fields(Estate):
        if getattr(found.estate, field.name) != field.default:
            yield replace(found, estate=replace(found.estate, **{field.name: field.default}))
    for n, item in enumerate(found.items):
        if isinstance(item, Event):
            for field in fields(Event):
                if field.name not in ("kind", "what") and getattr(item, field.name) != field.default:
                    plain = replace(item, **{field.name: field.default})
                    yield replace(found, items=(*found.items[:n], plain, *found.items[n + 1 :]))
            if item.after > 1:
                sooner = replace(item, after=item.after - 1)
                yield replace(found, items=(*found.items[:n], sooner, *found.items[n + 1 :]))
        elif isinstance(item, Start | Abandon) and item != type(item)(item.kind):
            yield replace(found, items=(*found.items[:n], type(item)(item.kind), *found.items[n + 1 :]))
