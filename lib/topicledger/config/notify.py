"""[[notify]]: destinations for the results of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, cast

from topicledger.config.severities import Severity
from topicledger.config.toml_table import TomlTable

Format: TypeAlias = Literal["cloudevents", "slack", "teams"]


class Event(StrEnum):
    """The events that a run announces."""

    FAILED = "failed"
    """The run failed or refused something, or isn't finished."""
    GUARD_STOPPED = "guard_stopped"
    """A guard stopped something."""
    APPROVAL_WANTED = "approval_wanted"
    """A saved plan is waiting to be applied, whether or not it needs approvals."""
    DRIFT = "drift"
    """An audit found drift."""


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """Where run results are sent, once per run and event."""

    url: str
    """The address to POST to, as `env:NAME` or `file:PATH`. Anyone who knows the address can post there, so it is a
    secret."""
    format: Format = "cloudevents"
    """`cloudevents`: CloudEvents 1.0 as JSON. `slack`: a message for an incoming webhook of Slack. `teams`: an adaptive
    card for a Teams workflow that posts webhook requests."""
    events: tuple[Event, ...] = tuple(Event)
    """`failed`: a run failed or refused something, or isn't finished. `guard_stopped`: a guard stopped something.
    `approval_wanted`: a saved plan is waiting to be applied, whether or not it needs approvals. `drift`: an audit found
    drift."""
    severity: Severity = Severity.ERROR
    """The lowest severity of drift that is announced."""
    report: str | None = None
    """The address of the run's report, for a link; `{run_id}` in it is replaced by the run's id."""


def read_notify(values: Mapping[str, object], problems: list[str]) -> tuple[NotifySettings, ...]:
    """Read the list [[notify]] of a settings file; append errors to `problems`."""
    given = values.get("notify", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        problems.append("`notify` must be a list of tables: write [[notify]] above each")
        return ()
    return tuple(_one(TomlTable(f"notify[{number}]", each, problems)) for number, each in enumerate(given, start=1))


def _one(table: TomlTable) -> NotifySettings:
    table.only("url", "format", "events", "severity", "report")
    events = table.texts("events")
    for each in events:
        if each not in tuple(Event):
            table.problem("events", f"must contain only {', '.join(Event)}")
            break
    return NotifySettings(
        url=table.reference("url", required=True) or "",
        format=cast(Format, table.choice("format", NotifySettings.format, "cloudevents", "slack", "teams")),
        events=tuple(Event(each) for each in events if each in tuple(Event)) or NotifySettings.events,
        severity=Severity(table.choice("severity", NotifySettings.severity, *Severity)),
        report=table.text("report"),
    )
