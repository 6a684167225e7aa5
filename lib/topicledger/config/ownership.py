"""Owners and the topics they may declare: [owners] in the settings, or a file like GitHub's CODEOWNERS.

The values themselves are in `settings`; this module reads and evaluates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from topicledger.config.settings import OwnerLine, Owners, OwnerSettings
from topicledger.config.toml_table import TomlTable
from topicledger.text import listed, nearest, show

_BLANKS = "".join(map(chr, range(0x21)))
"""Characters that are trimmed from owners, as from configs."""
_UNSUPPORTED = ("!", "[", "\\")
_LONGEST_PATTERN = 1_000
"""Longest pattern; longer than any path with a legal topic name."""
_SHOWN_OWNERS = 5
_NO_TOPIC = re.compile(r"[^A-Za-z0-9._*?-]")
"""A character that neither names of topics nor patterns of them have."""

Topic = tuple[str | None, str | None, str | None]
"""A row's cluster, topic and owner."""
Replacing = tuple[str | None, str | None, str | None, str | None]
"""A row's cluster, topic, the topic that it replaces, and owner."""


def read_owners(table: TomlTable, settings_file: Path, clusters: Iterable[str]) -> Owners:
    """Read [owners.NAME], or the lines of the file that [owners] names; problems are noted in the table."""
    if isinstance(table.values.get("file"), dict) or "file" not in table.values:
        return Owners(names={name: _owner(table, name, clusters) for name in table.values})
    others = [name for name in table.values if name != "file"]
    if others:
        table.problem("file", f"and [{table.key(others[0])}] both assign owners to topics: use only one of them")
    path = table.text("file")
    if path is None:
        return Owners()
    lines = _lines(settings_file.parent / path, table, list(clusters))
    if not lines and not table.problems:
        table.problem("file", f"{show(path)} has no line with a pattern: anybody could declare everything")
    return Owners(lines=lines)


def _owner(table: TomlTable, name: str, clusters: Iterable[str]) -> OwnerSettings:
    of = table.table(name)
    of.only("topics", "clusters", "requested_by")
    if "topics" not in of.values:
        of.problem("topics", "is missing: patterns of the topics that this owner may declare")
    found = OwnerSettings(
        topics=of.patterns("topics"), clusters=of.texts("clusters"), requested_by=of.texts("requested_by")
    )
    for each in found.clusters:
        if each not in clusters:
            of.problem("clusters", f"names unknown cluster `{show(each)}`; {nearest(each, clusters)}")
    return found


def _lines(path: Path, table: TomlTable, clusters: Sequence[str]) -> tuple[OwnerLine, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL
        reason = getattr(error, "strerror", None) or "not UTF-8, or not a path"
        table.problem("file", f"{show(str(path))} can't be read: {reason}")
        return ()
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        pattern, *owners = words
        if any(each in pattern for each in _UNSUPPORTED):
            table.problem("file", f"{path}:{number}: a pattern can't contain !, [ ] or \\; use * or ?")
            continue
        names = tuple(owner.removeprefix("@").rpartition("/")[2] for owner in owners)
        if "" in names:
            table.problem("file", f"{path}:{number}: an owner has no name; write @team or @organisation/team")
            continue
        found.append(OwnerLine(pattern=_regex(pattern), owners=names, place=f"{path.name}:{number}"))
        if len(pattern) > _LONGEST_PATTERN:
            table.problem("file", f"{path}:{number}: the pattern is longer than {_LONGEST_PATTERN:,} characters")
        elif (reason := _matches_nothing(pattern, clusters)) is not None:
            table.problem("file", f"{path}:{number}: {reason}")
    return tuple(found)


def _regex(pattern: str) -> str:
    """Convert a pattern of the file to RE2 for `cluster/topic`; without a slash it matches topics on any cluster.

    Names of clusters may have slashes, those of topics have none.
    """
    whole_cluster = pattern.endswith("/")
    path = pattern.strip("/")
    parts = re.split(r"(\*\*|\*|\?)", path)
    means = {"**": ".*" if "/" in pattern else "[^/]*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(means.get(part, re.escape(part)) for part in parts)
    if whole_cluster:
        return f"^{body}/.*$"
    if pattern.startswith("/") and "/" not in path:
        # Such a pattern names a file at the root. Here it names a cluster instead.
        return f"^{body}(?:/.*)?$"
    return f"^{body}$" if "/" in path else f"^.*/{body}$"


def _matches_nothing(pattern: str, clusters: Sequence[str]) -> str | None:
    """Return why a pattern matches no topic of these clusters, as when it is misspelt; None if it may match one."""
    cluster, slash, topic = pattern.lstrip("/").rpartition("/")
    if pattern.startswith("/") and not slash:
        cluster, topic = topic, ""
    if (odd := _NO_TOPIC.search(topic)) is not None:
        return f"no topic has {show(odd[0])} in its name; a pattern and its owners are separated by a blank"
    begins = re.split(r"[*?]", cluster, maxsplit=1)[0].rstrip("/")
    known = any(each.startswith(begins) for each in clusters) if begins != cluster else cluster in clusters
    if cluster and not known:
        return f"no cluster of the settings is {show(cluster)}; {nearest(cluster, clusters)}"
    return None


def not_yours(owners: Owners, rows: Sequence[Topic]) -> list[str | None]:
    """Return for each row why its owner may not declare its topic, with the topic's owners; None if it may.

    A topic's owners are all owners with a matching pattern; in a file, those of the last matching line. Only its owners
    may declare it. Owners that the settings name may declare only topics that match their patterns. Owners are
    compared without surrounding blanks, and regardless of case.
    """
    owned = _owned(owners, [(cluster, topic) for cluster, topic, _ in rows])
    named = {owner_key(name) for name in owners.names} | {
        owner_key(name) for line in owners.lines for name in line.owners
    }
    return [_reason(owner, *of, named) for (_, _, owner), of in zip(rows, owned, strict=True)]


def not_yours_to_replace(owners: Owners, rows: Sequence[Replacing]) -> list[str | None]:
    """As `not_yours`, also about the topics that rows replace: these are deleted in the end."""
    found = not_yours(owners, [(cluster, topic, owner) for cluster, topic, _, owner in rows])
    replacing = {place: (cluster, old, owner) for place, (cluster, _, old, owner) in enumerate(rows) if old is not None}
    for (place, (_, old, _)), why in zip(replacing.items(), not_yours(owners, list(replacing.values())), strict=True):
        if why is not None:
            found[place] = "; ".join(filter(None, (found[place], f"it replaces {show(str(old))}: {why}")))
    return found


def owners_of(owners: Owners, topics: Sequence[tuple[str | None, str | None]]) -> list[tuple[str, ...]]:
    """Return the owners of each topic (cluster, topic); empty if it has none."""
    return [names for names, _ in _owned(owners, topics)]


def barred(owners: Owners, requester: str) -> tuple[str, ...]:
    """Return the owners whose resources the runs of this requester may not plan, by [owners.NAME] requested_by."""
    bound = {name: each.requested_by for name, each in owners.names.items() if each.requested_by}
    return tuple(name for name, people in bound.items() if owner_key(requester) not in map(owner_key, people))


def _owned(owners: Owners, rows: Sequence[tuple[str | None, str | None]]) -> list[tuple[tuple[str, ...], str]]:
    """Return each topic's owners, and the place in the settings or the file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    topics = pa.array([topic or "" for _, topic in rows], pa.string())
    paths = pa.array([f"{cluster or ''}/{topic or ''}" for cluster, topic in rows], pa.string())
    owned: list[tuple[tuple[str, ...], str]] = [((), "")] * len(rows)
    for line in owners.lines:
        for number, hit in enumerate(pc.match_substring_regex(paths, pattern=line.pattern).to_pylist()):
            if hit:
                owned[number] = (line.owners, line.place)
    for name, claim in owners.names.items():
        for pattern in claim.topics:
            for number, hit in enumerate(pc.match_substring_regex(topics, pattern=pattern).to_pylist()):
                names, _ = owned[number]
                if hit and name not in names and (not claim.clusters or rows[number][0] in claim.clusters):
                    owned[number] = ((*names, name), "[owners]")
    return owned


def _reason(owner: str | None, owners: tuple[str, ...], place: str, named: set[str]) -> str | None:
    own = owner_key(owner or "")
    if own in map(owner_key, owners):
        return None
    who = f"owner {show(owner)}" if owner and own else "a row without an owner"
    if owners:
        shown = listed(list(map(show, owners)), most=_SHOWN_OWNERS)
        return f"{who} may not declare it: it belongs to {shown} ({place})"
    if own and own in named:
        return f"{who} may not declare it: none of its patterns in [owners] match, and the topic has no owner"
    return None


def owner_key(owner: str) -> str:
    """Return an owner in the form for comparisons, like `manifests.owners.owner_key`; empty if it is blank."""
    return owner.strip(_BLANKS).upper().lower()
