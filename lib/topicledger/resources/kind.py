"""A kind of resources beside topics: all that generic code needs of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from topicledger.actions.kind import ActionKind
from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings
from topicledger.config.severities import DriftKind
from topicledger.manifests.files import ResourceRow
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object
from topicledger.manifests.rows import Rule, Transform
from topicledger.model import Decision, Refusal, ResourceType, Target
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.policies.contract import Judged, Subject
from topicledger.schemas import Table

DIFFERENCE = ("cluster", "topic", "kind", "what", "declared", "live", "message")
"""Columns of a difference between what is declared and what lives, all strings; `kind` is a `DriftKind`."""

Observe: TypeAlias = Callable[[SparkSession, Sequence[ClusterSettings], KafkaSettings, Mapping[str, str]], Listed]
Compare: TypeAlias = Callable[[Listed, Mapping[str, ClusterStatus], Settings], Transform]
Find: TypeAlias = Callable[[Listed, DataFrame, Settings], Transform]
Decide: TypeAlias = Callable[[Listed, Mapping[str, ClusterStatus], Settings, Transform], Transform]


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words for the kind in messages and help texts."""

    one: str
    """One of them: "ACL"."""
    declared: str
    """What a row declares: "entity"."""
    export_help: str
    """The help of `export --with-TABLE`."""
    advice: Mapping[Refusal, str]
    """What to do about refusals of this kind only, in a sentence."""
    explain_help: str
    """The help of the option of `policies explain` that names one of them by its text."""

    @property
    def with_article(self) -> str:
        """One of them, with its article: "an ACL"."""
        return f"{'an' if self.one[0] in 'AEIOU' else 'a'} {self.one}"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of the table that declares the kind."""

    judge: Callable[[Collection[str], Collection[str] | None], Transform]
    """Phase manifest; takes the settings' clusters, and the selected ones or None for all. In: rows of the table. Out:
    its columns, `resource`, `error`, `error_message`, `phase` and `outcome`; one row per (cluster, resource)."""
    rules: Callable[[], Sequence[Rule]]
    """Rules that a row can break by itself."""
    reasons: Callable[[ResourceRow], Iterator[str | None]]
    """The same for a row of a file, without Spark: yields the reason of each rule that it breaks, else None."""
    complete: Transform
    """Fills in the defaults that nulls stand for."""
    text_of: Callable[[], Column]
    """The text by which `plans` and `audit` name a row's resource (string)."""


class ReadEntry(Protocol):
    """Reports the rows of an entry that begins at `line`, or what is wrong with it."""

    def __call__(
        self, item: Object, line: int, reader: Reader, cluster: str | None = ..., defaults: Mapping[str, object] = ...
    ) -> None:
        """`cluster` and `defaults` are the document's: `state`, `owner` and `labels`, if it has them."""


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Entries of manifest files. In YAML they stand under the table's name."""

    fields: tuple[str, ...]
    """Fields of an entry, by the table's names."""
    read: ReadEntry
    is_one: Callable[[Object], bool]
    """Whether a JSON object that may be of any kind is such an entry."""
    columns_are: Callable[[Collection[str]], bool]
    """Whether a CSV header that may be of any kind is of such entries."""
    columns_needed: tuple[str, ...]
    """Columns that a CSV file must have."""
    numbers: tuple[str, ...]
    """Fields that are numbers."""
    expansions: Callable[[Sequence[ResourceRow]], Sequence[str]] | None
    """What shorthands stand for, in lines for the terminal; None if there are no shorthands."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What live clusters have of the kind."""

    table: Table
    observe: Observe
    """Lists it; takes Kafka's id of each cluster by name."""


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """How declared and observed rows become actions."""

    compare: Compare
    """Phase decide. In: what `Rows.judge` returns, materialised. Out: the columns that policies see."""
    decide: Decide
    """Phases decide, guard and policy; the last argument is what policies do. In: what `Rows.judge` returns,
    materialised. Out: `phases.DECIDED_RESOURCE`, and more."""
    manages: Callable[[Settings], bool]
    """Whether a run decides on resources that no row declares."""
    now: Mapping[str, Callable[[], Column]]
    """Columns of judged rows that `ActionKind.not_declared` needs beside their state."""
    undeclared: Callable[[], Column]
    """string, of a planned action that no row asks for: why it isn't asked for any more, null where it is."""
    protected: Callable[[DataFrame, Collection[str]], Transform] | None
    """Planned actions that a refused row may mean to prevent, as `ending.REFUSED`; takes what `Rows.judge` returns for
    the latest table, and the settings' clusters. None if no action follows from a row that is missing."""


@dataclass(frozen=True, kw_only=True)
class Policies:
    """What policies evaluate of the kind. The settings name them under `[[policies.TYPE]]`, TYPE as `resource_type`."""

    subject: Subject
    action: Judged
    """The kind of action that they evaluate."""
    as_if: str
    """How `policies explain` evaluates a resource that needs no action, in words: "added"."""


@dataclass(frozen=True, kw_only=True)
class AsRows:
    """How actions become rows of their kind's table again."""

    live: Transform
    """Rows of `observed` as cluster, resource, and `now`: map<string,string>, as `before` and `after` have values."""
    undo: Transform
    """What undoes actions. In: cluster, resource, `action`, `before`, `after`, `now` (null where the cluster has none
    of it), and more. Out: also the table's columns, and `stale`: how it isn't as the action left it, null where it
    is."""
    asked_by: Transform
    """What planned actions ask for, for policies that evaluate it again. In: cluster, resource, `action`, `before`,
    `after`, `now`, and more. Out: also the table's columns, less owner and labels."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How live clusters may differ from what is declared."""

    find: Find
    """Takes what clusters have, and the topics (cluster, topic) that live or are declared. In: what `Rows.judge`
    returns, materialised. Out: `DIFFERENCE`, a row for each; of refused rows none."""
    advice: Mapping[DriftKind, str]
    """What to do about each kind of drift that it finds, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Owners:
    """Two lists of a report: what each owner declares, and what changed."""

    name: str
    """The id of the first list."""
    title: str
    title_of_changes: str
    have: Mapping[str, str]
    """Name -> SQL of a count of an owner's declarations, the main one first. In: table rows, one per resource."""
    moved: Mapping[str, str]
    """Name -> SQL of a count of changes. In: rows of `audit`."""
    headings: Sequence[str]
    """Headings of `have` and `moved`."""
    also: Sequence[str]
    """Further columns of the table that `have` reads."""
    what: Callable[[Target], str]
    """What an action changed, in words."""
    columns: Mapping[str, Literal["what", "resource", "owner", "when"]]
    """Columns of the list of changes, by heading."""
    filters: Sequence[str]
    """What the list of changes can be filtered by: `change`, `cluster`, `owner`, or names in `after` and `before`."""
    audited: str
    """Columns of `audit` that the query of changes selects."""


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """A kind of resources that are declared in a table of their own. A field that is left out is an error at import."""

    resource_type: ResourceType
    """Also the name of one of them in options, settings and errors: `acl`, `quota`."""
    words: Words
    table: Table
    """The table that declares it, one of `schemas.RESOURCES`."""
    rows: Rows
    entries: Entries
    observed: Observed
    deciding: Deciding
    actions: tuple[ActionKind, ...]
    policies: Policies
    as_rows: AsRows
    drift: Drift
    owners: Owners

    @property
    def counted(self) -> Mapping[str, Decision]:
        """Names of counts of a run, by decision, of resources that need nothing."""
        return {f"{self.table.name}_{each.value}": each for each in (Decision.UNCHANGED, Decision.UNMANAGED)}
