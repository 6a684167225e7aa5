"""The tables of a page that can be searched and filtered: topics, findings and other resources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from topicledger.model.config_texts import shown
from topicledger.report import words
from topicledger.report.facts import DriftFinding, Report, Result, ShownState
from topicledger.report.resources import Owned, OwnedChange
from topicledger.review.history import TopicEvent
from topicledger.text import alike

LISTED_CHARACTERS = 3_000_000
"""Most characters of HTML for the text of a listing; further rows are left out, and the page says so."""
NO_CLUSTER = "no cluster"
NO_OWNER = "no owner"
_DIGITS = re.compile("[0-9]+")
_UNFOLDED = 3
"""Rows with the same message that stay visible when the others are folded."""
_EVENTS = 30
"""Most events of a topic's history to show; the last ones are shown."""
_FOLDED = 3
"""Rows are folded only if at least this many would be hidden."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a listing."""

    text: str = ""
    under: str = ""
    """More text, in small print below."""
    outcome: str = ""
    """The outcome whose colour the text gets; empty for plain text."""
    wide: bool = False
    history: Sequence[TopicEvent] = ()
    """Events of the topic that the text names, shown on a click."""


@dataclass(frozen=True, kw_only=True)
class ReportLine:
    """A row of a listing."""

    cells: Sequence[Cell]
    filters: Sequence[str]
    """Values for the listing's filters, in their order."""
    said: tuple[object, ...] | None = None
    """Its message without its own name and numbers; None if it is never folded."""
    alike: int | None = None
    """The number of its group of lines with the same message; None if it isn't folded with others."""
    more: int = 0
    """Number of lines that are folded behind it."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice above a listing."""

    label: str
    choices: Mapping[str, int]
    """Value -> number of rows that have it."""


@dataclass(frozen=True, kw_only=True)
class ReportList:
    """A table that can be searched and filtered in the page."""

    name: str
    title: str
    columns: Sequence[str]
    filters: Sequence[Filter]
    lines: Sequence[ReportLine]
    total: int
    query: str
    order: str
    """Which lines come first, in words."""
    within: bool = True
    """Whether the query returns only rows within the report's owners and topics."""
    labelled: bool = False
    """Whether cells name their column where a narrow screen has no head of the table."""


def topics(report: Report) -> ReportList:
    """List the state of each action."""
    several = report.run is None
    lines = [_topic(row, several=several) for row in report.rows]
    return listing(
        "topics",
        f"All {report.noun}s",
        ["Outcome", "Topic" if report.noun == "topic" else "Topic or resource", "Change or error", "Owner", "Ended"],
        ["outcome", "cluster", "error", "owner"],
        lines,
        sum(each.topics for each in report.tallies),
        report.query,
        within=not report.limits.narrows,
    )


def _said(row: Result) -> tuple[object, ...] | None:
    """A row's message without its own name and numbers; None for a row without an error."""
    if row.error is None and row.outcome != ShownState.SKIPPED:
        return None
    return row.outcome, row.error, row.action, *_alike(row.error_message, row.topic)


def _alike(message: str | None, name: str | None) -> tuple[str]:
    """A message without its own name and numbers."""
    return (_DIGITS.sub("#", alike(message, name)),)


def _topic(row: Result, *, several: bool) -> ReportLine:
    cluster = words.name(row.cluster) or NO_CLUSTER
    ended = " ".join(filter(None, (row.action, row.phase and f"in {row.phase}")))
    what = words.message(row.change.what)
    error = words.name(row.error)
    details = (what, words.message(row.error_message)) if error else (words.message(row.error_message),)
    return ReportLine(
        cells=[
            Cell(text=row.outcome, under=ended, outcome=row.outcome),
            Cell(
                text=words.name(row.topic) or "(no name)",
                under=_described(cluster, row.change.description),
                wide=True,
                history=row.history[-_EVENTS:],
            ),
            Cell(text=error or what, under="; ".join(filter(None, details)), wide=True),
            Cell(text=words.name(row.owner) or "–"),
            Cell(text=words.time(row.completed_at), under=words.name(row.run_id) if several else ""),
        ],
        said=_said(row),
        filters=[row.outcome, cluster, error or "none", words.name(row.owner) or NO_OWNER],
    )


def _described(cluster: str, description: str | None) -> str:
    return f"{cluster}: {words.message(description)}" if description else cluster


def findings(report: Report) -> ReportList | None:
    """List the findings of the audit; None if the report includes no audit."""
    drift = report.drift
    if drift is None:
        return None
    lines = [_finding(row, report) for row in drift.rows]
    return listing(
        "findings",
        "All findings",
        ["Severity", "Topic", "Kind", "Declared, live", "Owner", "Since"],
        ["severity", "cluster", "kind", "owner"],
        lines,
        sum(each.findings for each in drift.tallies),
        drift.query,
        within=not report.limits.narrows,
    )


def _finding(row: DriftFinding, report: Report) -> ReportLine:
    cluster = words.name(row.cluster) or NO_CLUSTER
    severity = row.severity or "none"
    sides = {"declared": row.declared, "live": row.live}
    pair = [f"{side} {shown(row.what, words.name(value))}" for side, value in sides.items() if value is not None]
    return ReportLine(
        cells=[
            Cell(text=severity, outcome=severity),
            # A finding that names no topic shows its subject.
            Cell(
                text=words.name(row.topic) or words.name(row.what) or "(no name)",
                under=_described(cluster, row.description),
                wide=True,
            ),
            Cell(text=row.kind, under=words.name(row.what)),
            Cell(text=", ".join(pair), under=words.message(row.message), wide=True),
            Cell(text=words.name(row.owner) or "–"),
            Cell(text=words.time(row.since), under=words.age(row.since, report.made_at)),
        ],
        said=(severity, row.kind, row.what if row.topic else None, *_alike(row.message, row.topic or row.what)),
        filters=[severity, cluster, row.kind, words.name(row.owner) or NO_OWNER],
    )


def listing(
    name: str,
    title: str,
    columns: Sequence[str],
    labels: Sequence[str],
    lines: Sequence[ReportLine],
    total: int,
    query: str,
    order: str = "problems",
    *,
    within: bool = True,
) -> ReportList:
    """Make a listing of lines, as many as a page has room for, with a filter for each label.

    `total`: number of all lines. `query`: returns all of them. `order`: which lines come first, in words.
    """
    kept = _folded(_within(lines))
    choices: list[dict[str, int]] = [{} for _ in labels]
    for line in kept:
        for counts, value in zip(choices, line.filters, strict=True):
            counts[value] = counts.get(value, 0) + 1
    return ReportList(
        name=name,
        title=title,
        columns=columns,
        filters=[
            Filter(label=label, choices=dict(sorted(counts.items())))
            for label, counts in zip(labels, choices, strict=True)
        ],
        lines=kept,
        total=max(total, len(kept)),
        query=query,
        order=order,
        within=within,
    )


def _folded(lines: Sequence[ReportLine]) -> list[ReportLine]:
    """Mark lines that have the same message, so that the page can fold them."""
    counts = Counter(line.said for line in lines)
    numbers: dict[tuple[object, ...], int] = {}
    seen: Counter[int] = Counter()
    found = []
    for line in lines:
        if line.said is None or counts[line.said] < _UNFOLDED + _FOLDED:
            found.append(line)
            continue
        number = numbers.setdefault(line.said, len(numbers))
        seen[number] += 1
        more = counts[line.said] - _UNFOLDED if seen[number] == _UNFOLDED else 0
        found.append(replace(line, alike=number, more=more))
    return found


def _within(lines: Sequence[ReportLine]) -> Sequence[ReportLine]:
    """The first lines, as many as a page has room for: names and messages may be long, and grow when escaped."""
    left = LISTED_CHARACTERS
    for number, line in enumerate(lines):
        texts = [*line.filters, *(part for cell in line.cells for part in (cell.text, cell.under))]
        texts += [words.message(event.details) for cell in line.cells for event in cell.history]
        left -= sum(len(words.breaks(text)) for text in texts)
        if left < 0:
            return lines[:number]
    return lines


def listings_of(owned: Owned) -> Iterator[ReportList]:
    """List resources of a kind by owner, and each change of one."""
    of, since = owned.kind.owners, words.name(owned.since)
    counted = [*of.have, *of.moved]
    yield _by_owner(
        of.name,
        f"{of.title} by owner, and changes {since}",
        [*of.headings],
        [(each.owner, each.cluster, *(each.counts[name] for name in counted)) for each in owned.owners],
        owned.owners_query,
    )
    changes = [
        ReportLine(
            cells=[_cell_of_change(each, what) for what in of.columns.values()],
            filters=[_filter_of_change(each, name) for name in of.filters],
        )
        for each in owned.changes
    ]
    yield listing(
        f"{of.name}-changed",
        f"{of.title_of_changes} {since}",
        [*of.columns],
        [*of.filters],
        changes,
        owned.total,
        owned.query,
        "the newest",
    )


def _cell_of_change(change: OwnedChange, what: str) -> Cell:
    cells = {
        "what": Cell(text=words.message(change.what)),
        "resource": Cell(text=words.name(change.resource), under=words.name(change.cluster), wide=True),
        "owner": Cell(text=words.name(change.owner) or "–"),
        "when": Cell(text=words.time(change.completed_at), under=words.name(change.run_id)),
    }
    return cells[what]


def _filter_of_change(change: OwnedChange, name: str) -> str:
    own = {
        "change": change.what,
        "cluster": words.name(change.cluster),
        "owner": words.name(change.owner) or NO_OWNER,
    }
    return own[name] if name in own else words.name(change.values.get(name)) or "none"


def _by_owner(
    name: str, title: str, counts: Sequence[str], owners: Sequence[tuple[str, str, *tuple[int, ...]]], query: str
) -> ReportList:
    """List owners, each with its cluster and its counts."""
    lines = [
        ReportLine(
            cells=[
                Cell(text=words.name(owner) or NO_OWNER, under=words.name(cluster), wide=True),
                *(Cell(text=words.number(number)) for number in numbers),
            ],
            filters=[words.name(cluster)],
        )
        for owner, cluster, *numbers in owners
    ]
    return listing(name, title, ["Owner", *counts], ["cluster"], lines, len(lines), query, "most changes")
