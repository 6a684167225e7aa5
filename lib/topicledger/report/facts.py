"""The contents of a report as plain values: counts and bounded lists, whatever the size of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from topicledger.config.settings import Settings
from topicledger.ledger.comparable import AUDITED_ARGUMENT
from topicledger.ledger.run import CLUSTERS_ARGUMENT
from topicledger.ledger.runs import AUDIT_COMMAND
from topicledger.model import TOPIC
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.report.resources import Owned
from topicledger.review.history import TopicEvent

LISTED_WAITS = 50
"""Most pairs of cluster and phase whose waits a report shows."""


class ReportKind(StrEnum):
    """The subject of a report."""

    RUN = "run"
    AUDIT = "audit"
    SPAN = "span"


class ShownState(StrEnum):
    """State of an action, worst first: an outcome of `audit`, or the state before it has one."""

    FAILED = "failed"
    REFUSED = "refused"
    OPEN = "open"
    """Planned, and its outcome is unknown."""
    PENDING = "pending"
    PLANNED = "planned"
    """Validated and not sent."""
    UNKNOWN = "unknown"
    """Its rows were removed by age, since its run has finished."""
    SKIPPED = "skipped"
    OK = "ok"


PROBLEMS = (ShownState.FAILED, ShownState.REFUSED)


class Age(StrEnum):
    """How long audits have reported the same finding."""

    DAY = "under a day"
    WEEK = "1 to 7 days"
    MONTH = "7 to 30 days"
    OLDER = "over 30 days"


class Changed(StrEnum):
    """Change of a problem since the previous run or audit."""

    NEW = "new"
    OTHER = "other reason"
    STILL = "still there"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A row of `runs`."""

    run_id: str
    state: str
    started_at: datetime
    finished_at: datetime | None
    exit_code: int | None
    manifest_version: int | None
    requested_by: str | None
    principal: str | None
    arguments: Mapping[str, str]
    versions: Mapping[str, str]
    counts: Mapping[str, int]
    scope: Scope = EVERYTHING

    @property
    def command(self) -> str:
        return self.arguments.get("command", "")

    @property
    def kind(self) -> ReportKind:
        """The kind of a report on this run."""
        return ReportKind.AUDIT if self.command == AUDIT_COMMAND else ReportKind.RUN

    @property
    def clusters(self) -> str:
        """The requested clusters, separated by commas; empty for all in the settings."""
        return self.arguments.get(CLUSTERS_ARGUMENT, "")

    @property
    def audited(self) -> Sequence[str]:
        """The clusters that an audit has compared, by name; empty if there are none, or for an older audit."""
        return [name for name in self.arguments.get(AUDITED_ARGUMENT, "").split(",") if name]


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Actions of one cluster with the same state for the same reason."""

    cluster: str | None
    resource_type: str | None
    action: str | None
    phase: str | None
    """The phase that they ended in; None if unknown."""
    outcome: str
    error: str | None
    topics: int
    example: str | None
    """The first topic by name."""
    message: str | None
    """The error message of that topic."""


@dataclass(frozen=True, kw_only=True)
class PolicyTally:
    """Topics of one cluster that violate the same policy."""

    policy: str
    mode: str
    """refuse, or warn if it only reports."""
    cluster: str | None
    topics: int
    example: str | None
    message: str | None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch of a run's plan, from its first request to its last answer."""

    run_id: str
    cluster: str
    action: str | None
    phase: str
    batch: int | None
    topics: int
    requests: int
    """Requests whose response had an outcome."""
    attempts: int
    """The highest number of requests that one topic was part of."""
    began_at: datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A cluster's time in one phase: in requests whose response had an outcome, and between them."""

    cluster: str
    phase: str
    topics: int
    sent_again: int
    """Topics that were part of more than one request."""
    requests: int
    busy_seconds: float
    between_seconds: float
    longest_seconds: float
    """The longest time between two requests."""


@dataclass(frozen=True, kw_only=True)
class ChangedProblem:
    """A topic whose problem is new, gone, unchanged or different."""

    change: str
    cluster: str | None
    topic: str | None
    before: str | None
    now: str | None


@dataclass(frozen=True, kw_only=True)
class PlannedChange:
    """The change that an action makes, and what its topic is for."""

    what: str | None = None
    """In words."""
    description: str | None = None
    """The topic's description, as in the latest tables."""
    destroys: bool = False
    """Whether it removes a resource, or can lose records."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The state of one action."""

    run_id: str
    cluster: str | None
    topic: str | None
    action: str | None
    phase: str | None
    outcome: str
    error: str | None
    error_message: str | None
    completed_at: datetime | None
    change: PlannedChange = PlannedChange()
    owner: str | None = None
    """As in the plan, or else as in the latest tables."""
    history: Sequence[TopicEvent] = ()
    """Events of the topic, oldest first; only for the first topics that failed or were refused."""


@dataclass(frozen=True, kw_only=True)
class DriftTally:
    """Findings of an audit on one cluster with the same kind, severity and age."""

    cluster: str | None
    kind: str
    severity: str | None
    age: str
    findings: int


@dataclass(frozen=True, kw_only=True)
class DriftFinding:
    """One finding of an audit."""

    cluster: str | None
    topic: str | None
    kind: str
    what: str | None
    declared: str | None
    live: str | None
    severity: str | None
    message: str | None
    since: datetime | None
    owner: str | None = None
    """As in the latest tables."""
    description: str | None = None
    """The topic's description, as in the latest tables."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Changes since an earlier run, audit or span."""

    last: str
    """The one that it is compared with, in words."""
    counts: Mapping[str, int]
    """`Changed` -> number of topics or findings."""
    rows: Sequence[ChangedProblem]
    """The first changes; problems that are still there are only counted."""


@dataclass(frozen=True, kw_only=True)
class ShownAudit:
    """An audit whose findings are shown."""

    run: RunFacts
    clusters: Sequence[str] = ()
    """The clusters with these findings; empty if the audit didn't name them."""


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """The findings of one audit, or of the last audit of each cluster."""

    audits: Sequence[ShownAudit]
    """The newest first."""
    tallies: Sequence[DriftTally]
    rows: Sequence[DriftFinding]
    query: str
    """SQL for all findings."""
    compared: Compared | None
    """None if there is no earlier audit."""
    settings: Settings | None = None
    """The settings that stand in the way of what is advised; None if they are unknown."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Id of an audit -> its findings whose rows were removed by age."""

    @property
    def run(self) -> RunFacts:
        """The newest audit."""
        return self.audits[0].run


@dataclass(frozen=True, kw_only=True)
class PhaseTime:
    """How long a phase of a run took."""

    phase: str
    began_at: datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RequestTimes:
    """Timing of a report's requests."""

    batches: Sequence[Batch] = ()
    waiting: Sequence[Waiting] = ()
    phases: Sequence[PhaseTime] = ()
    """The phases of a run, in order; empty for a span or an audit."""


@dataclass(frozen=True, kw_only=True)
class RunOfSpan:
    """A run in a span, with the states of its topics."""

    run: RunFacts
    outcomes: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    """Owner -> topics that failed or were refused; the name is empty for topics without an owner."""
    approved_by: Sequence[str] = ()
    """People who approved its plan."""
    unsent: bool = False
    """Whether it is a plan that sent nothing in the span."""


@dataclass(frozen=True, kw_only=True)
class History:
    """The runs of a span, the approvals of a run, and the changes of resources beside topics."""

    approved_by: Sequence[str] = ()
    """People who approved the run's plan, with what they allowed beyond guards."""
    owned: Sequence[Owned] = ()
    """Each kind of resource with declarations or changes."""
    runs: Sequence[RunOfSpan] = ()
    """The newest runs."""
    run_count: int = 0
    """The number of all runs."""
    done: Mapping[str, int] = field(default_factory=dict)
    """Action -> how often runs of the span did it."""
    periods: Sequence[tuple[datetime, Mapping[str, int]]] = ()
    """The start of each period, and its results by outcome."""
    unit: str = "day"
    """The length of a period: hour, day, week or month."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All contents of a page."""

    made_at: datetime
    limits: Scope = EVERYTHING
    """The requested clusters, owners and topics."""
    span: tuple[datetime, datetime] | None = None
    """From the first (inclusive) to the second (exclusive); None for a run."""
    run: RunFacts | None = None
    """The run that it is about; None for a span."""
    history: History = field(default_factory=History)
    """The runs of a span, and the changes of other resources of any report."""
    tallies: Sequence[Tally] = ()
    policies: Sequence[PolicyTally] = ()
    requests: RequestTimes = field(default_factory=RequestTimes)
    rows: Sequence[Result] = ()
    query: str = ""
    """SQL for all results."""
    compared: Compared | None = None
    drift: DriftReport | None = None
    """None if it includes no audit."""

    @property
    def kind(self) -> ReportKind:
        return ReportKind.SPAN if self.run is None else self.run.kind

    @property
    def noun(self) -> str:
        """The unit of the counts: "topic" if all are topics, which usually have one action each; otherwise "action"."""
        return "topic" if all(each.resource_type in (None, TOPIC) for each in self.tallies) else "action"

    def outcomes(self) -> dict[str, int]:
        """Number of topics by state, worst first."""
        return {
            shown.value: topics
            for shown in ShownState
            if (topics := sum(each.topics for each in self.tallies if each.outcome == shown))
        }
