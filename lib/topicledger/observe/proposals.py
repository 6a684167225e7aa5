"""Owners that `export` proposes for topics, for people to confirm."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topicledger.config.ownership import not_yours, owners_of
from topicledger.config.settings import Owners
from topicledger.text import show

_SEPARATOR = re.compile(r"[._-]")

Key = tuple[str, str]
"""Cluster and topic."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """An owner, and why it may be the one."""

    owner: str
    why: str | None = None
    """None: manifests or [owners] name it."""


def proposals(
    topics: Sequence[Key],
    declared: Iterable[tuple[str, str, str | None]],
    owners: Owners,
    groups: Callable[[Sequence[Key]], Mapping[Key, Sequence[str]]] | None,
) -> dict[Key, Proposal]:
    """Return an owner for each topic that something names one for, and none that [owners] would refuse.

    In order: the owner that manifests (`declared`: cluster, topic, owner) give the topic; the one that [owners] gives
    it; the one owner of all declared topics that share the longest prefix, up to a `.`, `-` or `_`; the one known owner
    whose name the consumer groups that use the topic begin with, up to such a sign. `groups` returns these for topics;
    it is called with those that are left, and None leaves out the last two, which are guesses.
    """
    by_prefix: dict[str, Counter[str]] = defaultdict(Counter)
    own: dict[Key, str] = {}
    known: dict[str, str] = {}
    for cluster, topic, owner in declared:
        if owner and (name := owner.strip()):
            own[cluster, topic] = known[name.casefold()] = name
            for prefix in _prefixes(topic):
                by_prefix[prefix][name] += 1
    known |= {name.casefold(): name for name in owners.names}
    known |= {name.casefold(): name for line in owners.lines for name in line.owners}
    found: dict[Key, Proposal] = {}

    def take(candidates: Iterable[tuple[Key, Proposal]]) -> list[Key]:
        """Take the one candidate of each topic that may declare it; returns the topics without any."""
        for key, allowed in _allowed(owners, list(candidates)).items():
            if len(allowed) == 1:
                found[key] = allowed[0]
        return [key for key in topics if key not in found]

    left = take((key, Proposal(owner=own[key])) for key in topics if key in own)
    of_settings = zip(left, owners_of(owners, left), strict=True)
    left = take((key, Proposal(owner=name)) for key, names in of_settings for name in names)
    if groups is not None:
        left = take((key, each) for key in left for each in _of_prefix(key[1], by_prefix))
        using = groups(left) if left else {}
        take((key, each) for key in left for each in _of_groups(using.get(key, ()), known))
    return found


def _allowed(owners: Owners, candidates: Sequence[tuple[Key, Proposal]]) -> dict[Key, list[Proposal]]:
    reasons = not_yours(owners, [(*key, each.owner) for key, each in candidates])
    found: dict[Key, list[Proposal]] = defaultdict(list)
    for (key, each), reason in zip(candidates, reasons, strict=True):
        if reason is None:
            found[key].append(each)
    return found


def _prefixes(name: str) -> list[str]:
    """`a.b-c` -> `a.b-`, `a.`: the longest first."""
    return [name[: sign.end()] for sign in reversed(list(_SEPARATOR.finditer(name))) if sign.end() < len(name)]


def _of_prefix(topic: str, by_prefix: Mapping[str, Counter[str]]) -> Iterator[Proposal]:
    """The owners of the declared topics that share the longest prefix with this one."""
    prefix = next((each for each in _prefixes(topic) if each in by_prefix), None)
    for owner, count in by_prefix[prefix].items() if prefix is not None else ():
        topics = "1 declared topic" if count == 1 else f"{count:,} declared topics"
        yield Proposal(owner=owner, why=f"owns the {topics} with prefix {show(str(prefix))}")


def _of_groups(groups: Sequence[str], known: Mapping[str, str]) -> Iterator[Proposal]:
    """The known owners whose names groups begin with."""
    by_owner: dict[str, str] = {}
    for group in sorted(groups):
        for start in [group, *(prefix[:-1] for prefix in _prefixes(group))]:
            if start.casefold() in known:
                by_owner.setdefault(known[start.casefold()], group)
                break
    for owner, group in by_owner.items():
        yield Proposal(owner=owner, why=f"consumer group {show(group)} uses it")
