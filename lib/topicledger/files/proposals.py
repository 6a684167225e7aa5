"""Owners that `export` proposes for topics, to be confirmed by people."""

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
    """A proposed owner, and the reason."""

    owner: str
    why: str | None = None
    """None if manifests or [owners] name the owner."""


def proposals(
    topics: Sequence[Key],
    declared: Iterable[tuple[str, str, str | None]],
    owners: Owners,
    groups: Callable[[Sequence[Key]], Mapping[Key, Sequence[str]]] | None,
) -> dict[Key, Proposal]:
    """Return an owner for each topic for which there is one, never one that [owners] would refuse.

    Sources, in order:
    1. the topic's owner in manifests (`declared`: cluster, topic, owner);
    2. its owner in [owners];
    3. a guess: the only owner of the declared topics with the longest common prefix, up to a `.`, `-` or `_`;
    4. a guess: the only known owner with whose name the topic's consumer groups begin, up to such a separator.

    `groups` returns the consumer groups of the remaining topics; None turns both guesses off.
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
        """Take the only allowed candidate of each topic; return the topics that have no owner yet."""
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
    """Return the prefixes of a name, the longest first: `a.b-c` -> `a.b-`, `a.`."""
    return [name[: sign.end()] for sign in reversed(list(_SEPARATOR.finditer(name))) if sign.end() < len(name)]


def _of_prefix(topic: str, by_prefix: Mapping[str, Counter[str]]) -> Iterator[Proposal]:
    """Yield the owners of the declared topics that share the longest prefix with this topic."""
    prefix = next((each for each in _prefixes(topic) if each in by_prefix), None)
    for owner, count in by_prefix[prefix].items() if prefix is not None else ():
        topics = "1 declared topic" if count == 1 else f"{count:,} declared topics"
        yield Proposal(owner=owner, why=f"owns the {topics} with prefix {show(str(prefix))}")


def _of_groups(groups: Sequence[str], known: Mapping[str, str]) -> Iterator[Proposal]:
    """Yield the known owners with whose names groups begin."""
    by_owner: dict[str, str] = {}
    for group in sorted(groups):
        for start in [group, *(prefix[:-1] for prefix in _prefixes(group))]:
            if start.casefold() in known:
                by_owner.setdefault(known[start.casefold()], group)
                break
    for owner, group in by_owner.items():
        yield Proposal(owner=owner, why=f"consumer group {show(group)} uses it")
