"""A report's headline and reasons, and the format of its numbers and times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup, escape

from topicledger.apply.rendering import nothing_to_send
from topicledger.errors import ExitCode
from topicledger.model import Decision, Outcome, Phase, RunState
from topicledger.model.config_texts import with_units
from topicledger.report import advice
from topicledger.report.facts import PROBLEMS, Report, ReportKind, RunFacts, ShownState, Tally
from topicledger.resources import registry
from topicledger.text import counted, duration, iso_time, show

_NAME_CHARACTERS = 300
_SHOWN_CHARACTERS = 400

_EXIT_CODES = {
    ExitCode.DONE: "done",
    ExitCode.ERROR: "an error, or not finished",
    ExitCode.USAGE: "usage error",
    ExitCode.CHANGES_PENDING: "changes are pending, or there is drift",
    ExitCode.TOPICS_FAILED: "something failed or was refused",
    ExitCode.GUARD_STOPPED: "a guard stopped something",
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The result in a sentence, and its tone."""

    text: str
    tone: str
    """good, bad or open."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Topics that failed, were refused or are open for the same reason, over all clusters."""

    outcome: str
    phases: Sequence[str]
    error: str | None
    topics: int
    clusters: Sequence[str]
    """The clusters of these topics, the one with the most first."""
    example: str | None
    message: str | None
    advice: str
    parts: Sequence[Tally] = ()
    """One part per cluster and phase if there are several, else empty."""


def name(text: object) -> str:
    """Make a name from outside safe to show."""
    return "" if text is None else show(str(text), _NAME_CHARACTERS)


def message(text: object) -> str:
    """Make a message from outside safe to show, with the units of configs."""
    return "" if text is None else show(with_units(str(text)), _SHOWN_CHARACTERS)


def breaks(text: str) -> Markup:
    """Convert text to HTML that breaks lines at the dots of a name, or between a date and its time, not mid-word."""
    found = _BREAK.sub(r"\1<wbr>", str(escape(text)))
    found = _SAID.sub(r'<span class="whole">\g<0></span>', found)
    return Markup(_MOMENT.sub(r'<span class="whole">\1</span><wbr><span class="whole">\2</span>', found))


def number(count: int) -> str:
    """12345 -> 12,345."""
    return f"{count:,}"


def time(moment: datetime | None) -> str:
    """Format a time as `iso_time`; "" for None."""
    return "" if moment is None else iso_time(moment)


_BREAK = re.compile(r"([._/]|\b\d{8}T(?=\d{12}Z))(?=\w)")
"""Matches what a line may end with in a name or in the time at the start of a run's id."""
_SAID = re.compile(r"\b\d+[A-Za-z]+(?= \(\d)")
"""Matches a value with its unit, as `with_units` writes it before the plain number."""
_MOMENT = re.compile(r"\b(\d{4}-\d\d-\d\dT)(\d\d:\d\d:\d\dZ)")


def took(run: RunFacts) -> str | None:
    """How long a finished run took."""
    return None if run.finished_at is None else duration((run.finished_at - run.started_at).total_seconds())


def exit_code(code: int | None) -> str:
    """A run's exit code in words."""
    if code is None:
        return "none yet"
    return f"{code}: {_EXIT_CODES[ExitCode(code)]}" if code in ExitCode.__members__.values() else str(code)


def headline(report: Report) -> Headline:
    """The result of a run, an audit or a span in one sentence."""
    if report.kind is ReportKind.AUDIT:
        return _of_audit(report)
    outcomes = report.outcomes()
    total = sum(outcomes.values())
    problems = sum(outcomes.get(each, 0) for each in PROBLEMS)
    left = outcomes.get(ShownState.OPEN, 0)
    if report.run is not None and report.run.state == RunState.ABANDONED:
        before = (
            f"; before that {counted(problems, report.noun)} failed or {_were(problems)} refused" if problems else ""
        )
        return Headline(text=f"The run was abandoned{before}", tone="bad")
    if problems:
        also = f", and {number(left)} {'is' if left == 1 else 'are'} open" if left else ""
        return Headline(
            text=f"{number(problems)} of {counted(total, report.noun)} failed or {_were(problems)} refused{also}",
            tone="bad",
        )
    removed = outcomes.get(ShownState.UNKNOWN, 0)
    if removed:
        return Headline(text=f"What became of {counted(removed, report.noun)} was removed by age", tone="open")
    if left:
        return Headline(
            text=f"Not finished: {counted(left, report.noun)} {'is' if left == 1 else 'are'} open", tone="open"
        )
    planned = outcomes.get(ShownState.PLANNED, 0)
    if planned:
        return Headline(text=f"{counted(planned, 'change')} planned, none applied yet", tone="open")
    if report.kind is ReportKind.SPAN and not report.history.run_count:
        return Headline(text="No runs in this time", tone="open")
    if not total:
        return _of_nothing(report)
    return Headline(text=f"All succeeded: {counted(total, report.noun)}", tone="good")


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _of_nothing(report: Report) -> Headline:
    if report.kind is ReportKind.SPAN:
        waiting = sum(each.unsent for each in report.history.runs)
        also = f"; {counted(waiting, 'plan')} sent nothing" if waiting else ""
        return Headline(text=f"No run created, deleted, changed or refused anything{also}", tone="good")
    if report.run is not None and report.run.state != RunState.FINISHED:
        return Headline(text=f"No results yet: the run is {report.run.state}", tone="open")
    drifted = report.run.counts.get(Decision.DRIFTED.value, 0) if report.run is not None else 0
    text = nothing_to_send(drifted, configs_compared=None)
    return Headline(text=text[0].upper() + text[1:], tone="open" if drifted else "good")


def _of_audit(report: Report) -> Headline:
    drift = report.drift
    findings = sum(each.findings for each in drift.tallies) if drift else 0
    unseen = sum(each.topics for each in report.tallies if each.outcome in PROBLEMS)
    also = f"; {counted(unseen, report.noun)} could not be observed" if unseen else ""
    if report.run is not None and report.run.state != RunState.FINISHED:
        also += f"; the audit is {report.run.state}"
    removed = sum(drift.removed.values()) if drift else 0
    if removed and not findings:
        return Headline(text=f"Rows of {counted(removed, 'finding')} were removed by age{also}", tone="open")
    if removed:
        also += f"; rows of {number(removed)} more were removed by age"
    if not findings:
        within = " in its scope" if report.run is not None and report.run.scope.narrows else ""
        return Headline(text=f"No drift{within}{also}", tone="open" if also else "good")
    errors = sum(each.findings for each in drift.tallies if each.severity == "error") if drift else 0
    worst = f", including {counted(errors, 'error')}" if errors else ", no errors"
    return Headline(text=f"{counted(findings, 'finding')} of drift{worst}{also}", tone="bad" if errors else "open")


def done(report: Report) -> str:
    """Counts of changes that were made, in words: by each run of a span, although a topic may have several."""
    phases = {Phase.APPLY.value, Phase.VERIFY.value}
    found = Counter(report.history.done)
    if report.run is not None:
        for each in report.tallies:
            if each.phase in phases and each.outcome in (Outcome.OK, Outcome.PENDING):
                found[each.action or ""] += each.topics
    counts = [f"{number(found[kind.name])} {kind.shown.done}" for kind in registry.in_order() if found[kind.name]]
    return ", ".join(counts) or "nothing was created, deleted or changed"


def reasons(tallies: Sequence[Tally]) -> list[Reason]:
    """Reasons why topics failed, were refused or are open, with advice: worst outcomes first, then most topics."""
    wanted = {ShownState.FAILED, ShownState.REFUSED, ShownState.OPEN, ShownState.PENDING, ShownState.PLANNED}
    alike: dict[tuple[str, str | None], list[Tally]] = {}
    for each in sorted(tallies, key=lambda tally: -tally.topics):
        if each.outcome in wanted:
            alike.setdefault((each.outcome, each.error), []).append(each)
    advices = {ShownState.OPEN: advice.OPEN, ShownState.PENDING: advice.PENDING, ShownState.PLANNED: advice.PLANNED}
    found = [
        Reason(
            outcome=outcome,
            phases=sorted({each.phase for each in group if each.phase}),
            error=error,
            topics=sum(each.topics for each in group),
            clusters=list(dict.fromkeys(each.cluster or "no cluster" for each in group)),
            example=group[0].example,
            message=group[0].message,
            advice=advices.get(ShownState(outcome)) or advice.of_error(error),
            parts=group if len(group) > 1 else (),
        )
        for (outcome, error), group in alike.items()
    ]
    worst = {state.value: place for place, state in enumerate(ShownState)}
    return sorted(found, key=lambda reason: (worst[reason.outcome], -reason.topics, reason.error or ""))


def age(since: datetime | None, made_at: datetime) -> str:
    """Format how long ago something was first found."""
    if since is None:
        return ""
    passed = max(made_at - since, timedelta())
    return f"{passed.days} days" if passed.days > 1 else duration(passed.total_seconds())
