"""Listings of a page: tables that can be searched and filtered in it, as long as there is room for their words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import escape

from topicledger.report import words
from topicledger.report.facts import Rights
from topicledger.text import show

LISTED_CHARACTERS = 3_000_000
"""Characters of HTML that a listing's own words may take; rows beyond are left out, and the page says so."""
NO_OWNER = "no owner"
_NAME_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a listing."""

    text: str = ""
    under: str = ""
    """More of it, in small print below."""
    outcome: str = ""
    """Where the text is one: it gets its colour."""
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a listing."""

    cells: Sequence[Cell]
    filters: Sequence[str]
    """What its filters compare with, in their order."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice above a listing."""

    label: str
    choices: Mapping[str, int]
    """Value -> rows that have it."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A table that can be searched and filtered in the page."""

    name: str
    title: str
    columns: Sequence[str]
    filters: Sequence[Filter]
    lines: Sequence[Line]
    total: int
    query: str
    order: str
    """Which ones come first, in words."""


def name_of(text: object) -> str:
    """A name as a page shows it; nothing for none."""
    return "" if text is None else show(str(text), _NAME_CHARACTERS)


def listing(
    name: str,
    title: str,
    columns: Sequence[str],
    labels: Sequence[str],
    lines: Sequence[Line],
    total: int,
    query: str,
    order: str = "problems",
) -> Listing:
    """The lines that a page has room for, with the choices of their filters; `total` is how many there are."""
    kept = _within(lines)
    choices: list[dict[str, int]] = [{} for _ in labels]
    for line in kept:
        for counts, value in zip(choices, line.filters, strict=True):
            counts[value] = counts.get(value, 0) + 1
    return Listing(
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
    )


def _within(lines: Sequence[Line]) -> Sequence[Line]:
    """As many lines, from the first, as a page has room for: names and messages may be long, and grow when escaped."""
    left = LISTED_CHARACTERS
    for number, line in enumerate(lines):
        texts = [*line.filters, *(part for cell in line.cells for part in (cell.text, cell.under))]
        left -= sum(len(escape(text)) for text in texts)
        if left < 0:
            return lines[:number]
    return lines


def listings_of_rights(rights: Rights | None) -> Iterator[Listing]:
    """Rights by owner, and each change of one."""
    if rights is None:
        return
    since = name_of(rights.since)
    owners = [
        Line(
            cells=[
                Cell(text=name_of(each.owner) or NO_OWNER, under=name_of(each.cluster), wide=True),
                *(Cell(text=words.number(count)) for count in (each.rights, each.principals, each.added, each.removed)),
            ],
            filters=[name_of(each.cluster)],
        )
        for each in rights.owners
    ]
    yield listing(
        "rights",
        f"Rights by owner, and how many changed {since}",
        ["Owner", "Rights", "Principals", "Added", "Removed"],
        ["cluster"],
        owners,
        len(owners),
        rights.owners_query,
        "most changes",
    )
    changes = [
        Line(
            cells=[
                Cell(text=each.change),
                Cell(text=name_of(each.resource), under=name_of(each.cluster), wide=True),
                Cell(text=name_of(each.owner) or "–"),
                Cell(text=words.time(each.completed_at), under=name_of(each.run_id)),
            ],
            filters=[
                each.change, name_of(each.cluster), name_of(each.principal) or "none", name_of(each.owner) or NO_OWNER,
            ],
        )
        for each in rights.changes
    ]  # fmt: skip
    yield listing(
        "rights-changed",
        f"Rights that changed {since}",
        ["Change", "Right", "Owner", "When (UTC)"],
        ["change", "cluster", "principal", "owner"],
        changes,
        rights.total,
        rights.query,
        "the newest",
    )
