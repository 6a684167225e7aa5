"""Whose a topic without a manifest may be: what `export --unmanaged` proposes, for people to confirm."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from topicledger.config.ownership import owners_of
from topicledger.config.settings import Owners
from topicledger.text import show

_SEPARATOR = re.compile(r"[._-]")

Key = tuple[str, str]
"""Cluster and topic."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """An owner, and why it may be the one."""

    owner: str
    why: str


def proposals(
    topics: Sequence[Key],
    declared: Iterable[tuple[str, str, str | None]],
    groups: Mapping[Key, Sequence[str]],
    owners: Owners,
) -> dict[Key, Proposal]:
    """An owner for each of `topics` of which something tells one; the others are left out.

    In order: the one owner that [owners] gives the topic to; the one owner of all declared topics (`declared`: cluster,
    topic, owner) that share the longest prefix, up to a `.`, `-` or `_`; the one known owner whose name the consumer
    groups that use the topic (`groups`) begin with, up to such a sign.
    """
    by_prefix: dict[str, Counter[str]] = defaultdict(Counter)
    known: dict[str, str] = {}
    for _, topic, owner in declared:
        if owner and owner.strip():
            known[owner.strip().casefold()] = owner.strip()
            for prefix in _prefixes(topic):
                by_prefix[prefix][owner.strip()] += 1
    known |= {name.casefold(): name for name in owners.names}
    known |= {name.casefold(): name for line in owners.lines for name in line.owners}
    found: dict[Key, Proposal] = {}
    for key, of_settings in zip(topics, owners_of(owners, topics), strict=True):
        proposal = _of_settings(of_settings) or _of_prefix(key[1], by_prefix) or _of_groups(groups.get(key, ()), known)
        if proposal is not None:
            found[key] = proposal
    return found


def _prefixes(name: str) -> list[str]:
    """`a.b-c` -> `a.b-`, `a.`: the longest first."""
    return [name[: sign.end()] for sign in reversed(list(_SEPARATOR.finditer(name))) if sign.end() < len(name)]


def _of_settings(owners: tuple[str, ...]) -> Proposal | None:
    return Proposal(owner=owners[0], why="[owners]") if len(owners) == 1 else None


def _of_prefix(topic: str, by_prefix: Mapping[str, Counter[str]]) -> Proposal | None:
    """The longest prefix that any declared topic shares decides; where its topics have several owners, nobody does."""
    for prefix in _prefixes(topic):
        if prefix in by_prefix:
            (owner, count), *others = by_prefix[prefix].most_common(2)
            topics = "1 declared topic" if count == 1 else f"{count:,} declared topics"
            return None if others else Proposal(owner=owner, why=f"owns the {topics} with prefix {show(prefix)}")
    return None


def _of_groups(groups: Sequence[str], known: Mapping[str, str]) -> Proposal | None:
    by_owner: dict[str, str] = {}
    for group in sorted(groups):
        for start in [group, *(prefix[:-1] for prefix in _prefixes(group))]:
            if start.casefold() in known:
                by_owner.setdefault(known[start.casefold()], group)
                break
    if len(by_owner) != 1:
        return None
    ((owner, group),) = by_owner.items()
    return Proposal(owner=owner, why=f"consumer group {show(group)} uses it")
