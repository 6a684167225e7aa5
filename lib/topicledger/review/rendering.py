"""A plan's diff as text and as Markdown: counts first, then what was refused and why, then a line per action.

Text from outside is put on one line, with control characters escaped; in Markdown it appears only in fenced blocks and
`<code>`, where neither Markdown nor mentions are interpreted.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice

import click

from topicledger.actions.showing import ADDS, REMOVES
from topicledger.apply.rendering import NOTHING_PLANNED
from topicledger.model import Outcome
from topicledger.model.config_texts import with_units
from topicledger.plan.allowing import STOPPED, approve_command, most_of, stopped_in_words
from topicledger.review.diff import PLANNED, Ended, Line, PlanDiff, Reason
from topicledger.text import listed, show

COMMENT_CHARACTERS = 65_536
"""The longest comment that GitHub accepts."""
LEAST_CHARACTERS = 4_000
"""Fewer leave no room for the head of a diff."""
SHORTEST_LINE = 10
"""Fewest characters of a diff's line, which limits how many lines need to be read."""
_OPENED = 50
"""Longest list that Markdown shows unfolded."""
_REASON, _SENTENCE = 600, 300
"""Most characters of a reason and of a sentence, so that they leave room for planned actions."""
_NAMED = 10
"""Most resources to name for one reason."""
_UNSUCCESSFUL = (Outcome.FAILED.value, Outcome.REFUSED.value, Outcome.SKIPPED.value)
_ENDED_SIGN, _FACT = "!", "="
_COLOURS = {ADDS: "green", REMOVES: "red", _ENDED_SIGN: "yellow"}


class _Name(str):
    """Text from outside in a title or a sentence."""


Words = Sequence[str]
"""The parts of a title or a sentence; those from outside are `_Name`."""


@dataclass(frozen=True)
class _Block:
    """A title, and lines, each with the number of actions that it describes."""

    title: Words
    is_folded: bool
    lines: Iterable[tuple[str, int]]

    @classmethod
    def of(cls, title: Words, lines: Iterator[tuple[str, int]], *, folds: bool = True) -> _Block:
        """Create a block, reading only the lines that show whether it is long. `folds`: whether it is folded then."""
        first = list(islice(lines, _OPENED + 1))
        return cls(title, folds and len(first) > _OPENED, chain(first, lines))


def text(diff: PlanDiff, *, most: int | None = None, colours: bool = False) -> Iterator[str]:
    """Yield the diff as plain text, with at most `most` characters and a note of what was cut."""

    def plain(words: Words) -> str:
        return "".join(show(part, _SENTENCE) for part in words)

    def opening(block: _Block) -> str:
        title = plain(block.title)
        return f"\n{click.style(title, bold=True) if colours else title}\n"

    def line(words: str) -> str:
        return f"  {click.style(words, fg=_COLOURS.get(words[0])) if colours else words}\n"

    head = "".join(f"{plain(each)}\n" for each in _head(diff))
    cut = lambda left: f"\n{plain(_cut(diff, left))}\n"  # noqa: E731
    return _within(most, _total(diff), head, _blocks(diff), opening, line, "", cut)


def markdown(diff: PlanDiff, *, most: int = COMMENT_CHARACTERS) -> Iterator[str]:
    """Yield the diff for a comment on a pull request, with at most `most` characters and a note of what was cut."""

    def inline(words: Words) -> str:
        """Render as HTML, which Markdown leaves unchanged up to the next empty line."""
        return "".join(
            f"<code>{html.escape(show(part, _SENTENCE))}</code>" if isinstance(part, _Name) else html.escape(part)
            for part in words
        )

    def opening(block: _Block) -> str:
        opened = "" if block.is_folded else " open"
        return f"\n<details{opened}><summary>{inline(block.title)}</summary>\n\n```diff\n"

    head = f"<p>{'<br>'.join(map(inline, _head(diff)))}</p>\n"
    return _within(
        most, _total(diff), head, _blocks(diff), opening, lambda words: f"{words}\n", "```\n\n</details>\n",
        lambda left: f"\n<p>{inline(_cut(diff, left))}</p>\n",
    )  # fmt: skip


def _head(diff: PlanDiff) -> Iterator[Words]:
    asked = (", requested by ", _Name(diff.requested_by)) if diff.requested_by else ()
    yield "run ", _Name(diff.run_id), f": {diff.state}, manifests at version {diff.manifest_version}", *asked
    for label, name in diff.about:
        yield label, _Name(name)
    counts: list[str] = []
    for action, outcome, count in diff.counts:
        counts += ", " if counts else "", f"{count:,} ", _Name(action), "" if outcome == PLANNED else f" {outcome}"
    ended = {outcome: sum(each.count for each in diff.ended if each.outcome == outcome) for outcome in _UNSUCCESSFUL}
    unlike = ", ".join(f"{count:,} {outcome}" for outcome, count in ended.items() if count)
    yield *(counts or [NOTHING_PLANNED]), f"; {unlike}" if unlike else ""
    for removal in diff.removals:
        yield "leaves the tables: ", _Name(removal)
    if diff.stopped:
        yield "stopped by guards: ", _Name(stopped_in_words(diff.stopped))
        if not diff.waits_for:
            yield "if they are meant, before apply: ", _Name(approve_command(diff.run_id, most_of(diff.stopped)))
    if diff.waits_for:
        yield "not approved: ", _Name(diff.waits_for)


def _total(diff: PlanDiff) -> int:
    return diff.line_count + diff.ended_count


def _cut(diff: PlanDiff, left: int) -> Words:
    return f"not shown: {left:,} of {_total(diff):,}; all of them: ", _Name(f"topicledger runs show {diff.run_id}")


def _blocks(diff: PlanDiff) -> Iterator[_Block]:
    for (outcome, cluster), alike in groupby(diff.ended, key=lambda each: (each.outcome, each.cluster)):
        ended = list(alike)
        where = () if cluster is None else (" on ", _Name(cluster))
        count = sum(each.count for each in ended)
        yield _Block.of((outcome, *where, f": {count:,}"), _of_ended(ended))
    for moves in diff.moves:
        brokers = (
            f"{_FACT} broker {broker}: {comes:,} bytes in, {goes:,} bytes out"
            for broker, (comes, goes) in sorted(moves.brokers.items())
        )
        yield _Block.of(("moves on ", _Name(moves.cluster)), ((each, 0) for each in (f"{_FACT} {moves}", *brokers)))
    for (stopped, destroys, owner, cluster), lines in groupby(diff.lines, key=_of_block):
        of_owner, what = _Name(owner) if owner else "no owner", ": removals and possible losses" if destroys else ""
        title = ("stopped by guards: " if stopped else "", of_owner, " on ", _Name(cluster), what)
        yield _Block.of(title, ((with_units(str(each)), 1) for each in lines), folds=not (stopped or destroys))


def _of_block(line: Line) -> tuple[bool, bool, str | None, str]:
    return line.outcome == STOPPED, line.destroys, line.action.owner, line.action.cluster


def _of_ended(ended: Sequence[Ended]) -> Iterator[tuple[str, int]]:
    for each in ended:
        listed = 0
        for reason in each.reasons:
            listed += reason.count
            yield _in_words(each, reason), reason.count
        if each.count > listed:
            more = each.reason_count - len(each.reasons)
            yield f"{_sign(each)} {each.count - listed:,} more, for {more:,} other reasons", each.count - listed


def _sign(ended: Ended) -> str:
    return _FACT if ended.outcome == Outcome.SKIPPED else _ENDED_SIGN


def _in_words(ended: Ended, reason: Reason) -> str:
    names = listed([show(each) for each in reason.resources], reason.count, most=_NAMED)
    what = " ".join(filter(None, (ended.action, names)))
    why = with_units(": ".join(filter(None, (ended.error, reason.message))))
    return show(f"{_sign(ended)} {what} ({ended.phase}){f': {why}' if why else ''}", _REASON)


def _within(
    most: int | None,
    total: int,
    head: str,
    blocks: Iterable[_Block],
    opening: Callable[[_Block], str],
    line: Callable[[str], str],
    closing: str,
    cut: Callable[[int], str],
) -> Iterator[str]:
    """Yield `head` and as many blocks as there is room for, then the number of actions that are left out."""
    left = total
    room = None if most is None else most - len(head) - len(cut(total))
    yield head
    for block in blocks:
        begins = opening(block)
        for words, about in block.lines:
            piece = line(words)
            needed = len(begins) + len(piece) + (len(closing) if begins else 0)
            if room is not None and needed > room:
                yield "" if begins else closing
                yield cut(left)
                return
            room = None if room is None else room - needed
            left -= about
            yield begins + piece
            begins = ""
        yield "" if begins else closing
    if left:
        yield cut(left)
