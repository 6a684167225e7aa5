"""What a report says, as plain values: counts and bounded lists, whatever the size of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from topicledger.ledger.run import CLUSTERS_ARGUMENT
from topicledger.ledger.runs import AUDIT_COMMAND
from topicledger.report.access import Quotas, Rights
from topicledger.review.history import TopicEvent

LISTED_WAITS = 50
"""Clusters and phases whose waits a report shows."""


class ReportKind(StrEnum):
    """What a report is about."""

    RUN = "run"
    AUDIT = "audit"
    SPAN = "span"


class Shown(StrEnum):
    """How an action stands, worst first: an outcome of `audit`, or what has none yet."""

    FAILED = "failed"
    REFUSED = "refused"
    OPEN = "open"
    """Planned, and what became of it isn't known."""
    PENDING = "pending"
    PLANNED = "planned"
    """Validated, and not sent."""
    SKIPPED = "skipped"
    OK = "ok"


PROBLEMS = (Shown.FAILED, Shown.REFUSED)


class Age(StrEnum):
    """For how long audits have found the same."""

    DAY = "under a day"
    WEEK = "1 to 7 days"
    MONTH = "7 to 30 days"
    OLDER = "over 30 days"


class Changed(StrEnum):
    """What became of a problem since the last time."""

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

    @property
    def command(self) -> str:
        return self.arguments.get("command", "")

    @property
    def kind(self) -> ReportKind:
        """What a report about it is about."""
        return ReportKind.AUDIT if self.command == AUDIT_COMMAND else ReportKind.RUN

    @property
    def clusters(self) -> str:
        """The names asked for, separated by commas; empty for all of the settings."""
        return self.arguments.get(CLUSTERS_ARGUMENT, "")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Actions of one cluster that stand alike, for the same reason."""

    cluster: str | None
    action: str | None
    phase: str | None
    """The one they ended in; None for those that nothing is known of."""
    outcome: str
    error: str | None
    topics: int
    example: str | None
    """The first topic by name."""
    message: str | None
    """The error message of that topic."""


@dataclass(frozen=True, kw_only=True)
class PolicyTally:
    """Topics of one cluster that break the same policy."""

    policy: str
    mode: str
    """refuse, or warn where it only reports."""
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
    """Those whose answer had an outcome."""
    attempts: int
    """The most requests that one topic was part of."""
    began_at: datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How a cluster's time went in one phase: in requests whose answer had an outcome, and between them."""

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
class Change:
    """A topic whose problem came, went, stayed or became another."""

    change: str
    cluster: str | None
    topic: str | None
    before: str | None
    now: str | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one action stands."""

    run_id: str
    cluster: str | None
    topic: str | None
    action: str | None
    phase: str | None
    outcome: str
    error: str | None
    error_message: str | None
    completed_at: datetime | None
    what: str | None = None
    """What it creates, changes or deletes."""
    owner: str | None = None
    """As the latest manifests have it."""
    history: Sequence[TopicEvent] = ()
    """What happened to the topic, in order, of the first that failed or were refused."""


@dataclass(frozen=True, kw_only=True)
class DriftTally:
    """Findings of an audit on one cluster that are alike."""

    cluster: str | None
    kind: str
    severity: str | None
    age: str
    findings: int


@dataclass(frozen=True, kw_only=True)
class Drift:
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
    """As the latest manifests have it."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What changed since the last."""

    last: str
    """What it is compared with, in words."""
    counts: Mapping[str, int]
    """`Changed` -> how many."""
    rows: Sequence[Change]
    """The first of them; those that stayed as they were are only counted."""


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """What one audit found."""

    run: RunFacts
    tallies: Sequence[DriftTally]
    rows: Sequence[Drift]
    query: str
    """SQL for all of them."""
    compared: Compared | None
    """None where there is no earlier audit."""


@dataclass(frozen=True, kw_only=True)
class PhaseTime:
    """How long a run was at something."""

    phase: str
    began_at: datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Requests:
    """How requests went."""

    batches: Sequence[Batch] = ()
    waiting: Sequence[Waiting] = ()
    phases: Sequence[PhaseTime] = ()
    """Of a run, in order."""


@dataclass(frozen=True, kw_only=True)
class RunOfSpan:
    """A run of a span, and how its topics stand."""

    run: RunFacts
    outcomes: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    """Owner -> topics that failed or were refused; the name is empty where they have none."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What happened before: the runs of a span, and how rights and quotas changed."""

    rights: Rights | None = None
    """None where no rights are declared."""
    quotas: Quotas | None = None
    """None where no quotas are declared."""
    runs: Sequence[RunOfSpan] = ()
    """The newest."""
    run_count: int = 0
    """Of all."""
    periods: Sequence[tuple[datetime, Mapping[str, int]]] = ()
    """What ended in each period, by when it began."""
    unit: str = "day"
    """How long a period is: hour, day, week or month."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a page shows."""

    made_at: datetime
    clusters: Sequence[str]
    """The names asked for; empty for all."""
    span: tuple[datetime, datetime] | None = None
    """From the first (inclusive) to the second (exclusive); None for a run."""
    run: RunFacts | None = None
    """The run that it is about; None for a span."""
    history: History = field(default_factory=History)
    """Of a span."""
    tallies: Sequence[Tally] = ()
    policies: Sequence[PolicyTally] = ()
    requests: Requests = field(default_factory=Requests)
    rows: Sequence[Result] = ()
    query: str = ""
    """SQL for all of them."""
    compared: Compared | None = None
    drift: DriftReport | None = None
    """None where no audit is in it."""

    @property
    def kind(self) -> ReportKind:
        return ReportKind.SPAN if self.run is None else self.run.kind

    def outcomes(self) -> dict[str, int]:
        """Topics by how they stand, worst first."""
        return {
            shown.value: topics
            for shown in Shown
            if (topics := sum(each.topics for each in self.tallies if each.outcome == shown))
        }
