"""Announcements of a run, and their body in each format; plain values only."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from topicledger.apply.summary import FAILED_OR_REFUSED, Failure, Summary
from topicledger.config.notify import Event, Format, NotifySettings
from topicledger.config.severities import Severity
from topicledger.drift.summary import DriftRow, DriftSummary
from topicledger.errors import ExitCode
from topicledger.kinds import NAMES
from topicledger.model import RunState
from topicledger.text import any_of, document, iso_time, show

SOURCE = "urn:topicledger"
MOST_LINES = 10
"""Lines of a message for people; the result document has the first 20."""
_MOST_CHARACTERS = 300
_PASSING = re.compile(
    r"\d{8}T\d+Z-[0-9a-f]+|\bnode_id=\S+|\b0x[0-9a-f]+"
    r"|(?<![\w.-])\d[\d.:,TZ-]*(?:(?:ms|[dhms])\d[\d.]*)*(?:ms|[dhms])?(?!\w)"
)
"""Matches run ids, times, durations, counts, addresses and a client's nodes in a text, but not digits in names."""
_TYPES: Mapping[Format, str] = {
    "cloudevents": "application/cloudevents+json",
    "slack": "application/json",
    "teams": "application/json",
}


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """One event of a run."""

    event: Event
    run_id: str
    requested_by: str | None
    at: datetime
    """When the event was found."""
    headline: str
    lines: Sequence[str] = ()
    """The first problems or actions."""
    worst: Severity | None = None
    """For drift, the highest severity."""
    state: str = ""
    """A text without run id, time or duration, equal for two runs that found the same."""
    document: dict[str, Any] = field(default_factory=dict, repr=False)
    """The run's result document."""

    def concerns(self, settings: NotifySettings) -> bool:
        """Whether a [[notify]] asks for this event."""
        order = list(Severity)
        severe = self.worst is None or order.index(self.worst) <= order.index(settings.severity)
        return self.event in settings.events and severe

    def body(self, settings: NotifySettings) -> tuple[str, bytes]:
        """Return the content type and the body in the format of a [[notify]]."""
        report = settings.report and settings.report.replace("{run_id}", self.run_id)
        document = {"cloudevents": self._cloud_event, "slack": self._slack, "teams": self._teams}[settings.format](
            report
        )
        return _TYPES[settings.format], json.dumps(document, ensure_ascii=True).encode("ascii")

    def _cloud_event(self, report: str | None) -> dict[str, Any]:
        """Return a CloudEvents 1.0 document in structured mode; receivers recognise a copy by source and id."""
        data = {"event": self.event.value, "headline": self.headline, "requested_by": self.requested_by}
        return {
            "specversion": "1.0",
            "id": f"{self.run_id}/{self.event.value}",
            "source": SOURCE,
            "type": f"topicledger.run.{self.event.value}",
            "subject": self.run_id,
            "time": iso_time(self.at),
            "datacontenttype": "application/json",
            "data": {**data, "report": report, "result": self.document},
        }

    def _slack(self, report: str | None) -> dict[str, Any]:
        # Slack interprets commands such as <!channel> in a text unless these three characters are escaped.
        text = "\n".join(self._text(report)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return {"text": text, "mrkdwn": False}

    def _teams(self, report: str | None) -> dict[str, Any]:
        # A TextRun is plain text; a TextBlock would interpret Markdown in topic names.
        runs = [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": each}]} for each in self._text(None)]
        card: dict[str, Any] = {"type": "AdaptiveCard", "version": "1.4", "body": runs}
        if report is not None:
            card["actions"] = [{"type": "Action.OpenUrl", "title": "Report", "url": report}]
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        return {"type": "message", "attachments": [attachment]}

    def _text(self, report: str | None) -> Sequence[str]:
        who = f"requested by {self.requested_by}" if self.requested_by else ""
        lines = (self.headline, who, *self.lines, report or "")
        return [show(each, _MOST_CHARACTERS) for each in lines if each]


def of_run(summary: Summary, requested_by: str | None, at: datetime) -> Sequence[Announcement]:
    """Return the announcements of a run of `plan`, `apply` or `provision`."""
    failed = [*summary.problems, *map(_failed, summary.failures)]
    waiting = [f"{each.action} {each.cluster} {each.resource}" for each in summary.pending.first]
    return [
        Announcement(
            event=event,
            run_id=summary.run_id,
            requested_by=requested_by,
            at=at,
            headline=f"topicledger run {summary.run_id}: {what}",
            lines=(waiting if event is Event.APPROVAL_WANTED else failed)[:MOST_LINES],
            state=_state(event, summary),
            document=json.loads(summary.to_json()),
        )
        for event, what in _events(summary)
    ]


def of_error(
    error: str, code: ExitCode, *, what: str, run_id: str, requested_by: str | None, at: datetime
) -> Announcement:
    """Return the announcement of a run that an error ended. `what`: `run` or `audit`; `code`: the exit code."""
    event, ended = Event.FAILED, "not finished; start it again with its id"
    if code == ExitCode.GUARD_STOPPED:
        event, ended = Event.GUARD_STOPPED, "a guard stopped it"
    return Announcement(
        event=event,
        run_id=run_id,
        requested_by=requested_by,
        at=at,
        headline=f"topicledger {what} {run_id}: {ended}",
        lines=[error],
        state=_digest(event.value, _PASSING.sub("#", error.replace(run_id, "#"))),
        document=json.loads(document(code, {"run_id": run_id, "error": error})),
    )


def _state(event: Event, summary: Summary) -> str:
    """Return a digest that is equal for two runs that found the same.

    Failures are compared by name and error, since their messages may contain times.
    """
    found: tuple[object, ...] = (event.value, [str(each) for each in summary.pending.first], summary.pending_changes)
    if event is not Event.APPROVAL_WANTED:
        failed = {
            each.cluster or "": {name: count for name, count in each.outcomes.items() if name in FAILED_OR_REFUSED}
            for each in summary.clusters
        }
        failures = [(each.cluster, each.resource, each.action, each.phase, each.error) for each in summary.failures]
        found = (event.value, failed, failures, sorted(_PASSING.sub("#", each) for each in summary.problems))
    return _digest(*found)


def _digest(*found: object) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _events(summary: Summary) -> Iterator[tuple[Event, str]]:
    """Yield each event with a headline. The exit code says less: one code stands for all that happened."""
    failed = _count(
        summary.failure_count,
        any_of(["topic", *(kind.one for kind in NAMES)]),
        any_of(["topics", *(kind.many for kind in NAMES)]),
    )
    if summary.exit_code == ExitCode.ERROR:
        yield Event.FAILED, f"not finished; start it again with its id; {failed} failed or refused"
    elif summary.failure_count > summary.pending.guarded:
        yield Event.FAILED, f"{failed} failed or refused"
    if summary.pending.guarded or summary.pending.stopped:
        yield Event.GUARD_STOPPED, f"a guard stopped something; {failed} failed or refused in all"
    if summary.state == RunState.PLANNED and summary.pending_changes:
        waits = "waits" if summary.pending_changes == 1 else "wait"
        yield Event.APPROVAL_WANTED, f"{_count(summary.pending_changes, 'change', 'changes')} {waits} to be applied"


def _failed(failure: Failure) -> str:
    what = failure.resource if failure.topics == 1 else f"{failure.topics:,} topics or other resources"
    return f"{failure.cluster or ''} {what or ''}: {failure.error or ''} {failure.error_message or ''}".strip()


def of_audit(summary: DriftSummary, requested_by: str | None, at: datetime) -> Sequence[Announcement]:
    """Return the announcements of an audit."""
    found = [each for each in Severity if summary.severities.get(each.value, 0)]
    counted = (_count(summary.severities[each], f"{each} of drift", f"{each}s of drift") for each in found)
    unfinished = Announcement(
        event=Event.FAILED,
        run_id=summary.run_id,
        requested_by=requested_by,
        at=at,
        headline=f"topicledger audit {summary.run_id}: not finished; start it again with its id",
        lines=summary.problems[:MOST_LINES],
        document=json.loads(summary.to_json()),
    )
    drift = replace(
        unfinished,
        event=Event.DRIFT,
        headline=f"topicledger audit {summary.run_id}: {', '.join(counted)}",
        lines=[_found(each) for each in summary.drift[:MOST_LINES]],
        worst=found[0] if found else None,
    )
    return [*((drift,) if found else ()), *((unfinished,) if summary.problems else ())]


def _found(each: DriftRow) -> str:
    """Return a line about a finding: configs, and resources that are no topics, are named by `what`."""
    about = " ".join(filter(None, (each.severity, each.cluster, each.topic)))
    return f"{about}: {' '.join(filter(None, (each.kind, each.what)))}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
