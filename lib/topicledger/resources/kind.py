"""The definition of a kind of resource other than topics: all that generic code needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from topicledger.actions.kind import ActionKind
from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.abilities import Needs
from topicledger.manifests.files import ResourceRow
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object
from topicledger.manifests.row_rules import Rule
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, Target
from topicledger.naming import DriftName, KindNames, RefusalName
from topicledger.observe.listed import Describe, Listed, list_each
from topicledger.observe.topics import ClusterStatus
from topicledger.policies.contract import Evaluated, Subject
from topicledger.resources.scoped import Scoped
from topicledger.schemas import Table

DIFFERENCE = ("cluster", "topic", "kind", "what", "declared", "live", "message")
"""Columns of a difference between declared and live resources, all strings; `kind` is a `DriftName`."""

Compare: TypeAlias = Callable[[Listed, Mapping[str, ClusterStatus], Settings], Transform]
Find: TypeAlias = Callable[[Listed, DataFrame, Settings], Transform]
Decide: TypeAlias = Callable[[Listed, Mapping[str, ClusterStatus], Settings, Transform, Transform], Transform]


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words for the kind in messages and help texts."""

    declared: str
    """Name of the subject of a row: "entity"."""
    export_help: str
    """The help of `export --with-TABLE`."""
    advice: Mapping[RefusalName, str]
    """Refusal that only this kind has -> the remedy, in a sentence."""
    explain_help: str
    """The help of the option of `policies explain` that names a resource by its text."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of the table that declares the kind."""

    validate: Callable[[Collection[str], Collection[str] | None], Transform]
    """Returns phase manifest, for the settings' clusters and the selected ones (None: all). In: rows of the table. Out:
    its columns, `resource`, `error`, `error_message`, `phase` and `outcome`; one row per (cluster, resource)."""
    rules: Sequence[Rule]
    """The rules for single rows, of the table and of files."""
    complete: Transform
    """Replaces nulls by the defaults that they stand for."""
    text_of: Callable[[], Column]
    """Returns the text by which `plans` and `audit` name a row's resource (string)."""


class ReadEntry(Protocol):
    """Reads the rows of an entry that begins at `line`, and reports its errors."""

    def __call__(
        self, item: Object, line: int, reader: Reader, cluster: str | None = ..., defaults: Mapping[str, object] = ...
    ) -> None:
        """`cluster` and `defaults` are the document's: `state`, `owner` and `labels`, if it has them."""


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Entries of manifest files."""

    section: str
    """The key of the list of such entries in YAML."""
    fields: tuple[str, ...]
    """Fields of an entry, by the table's names."""
    read: ReadEntry
    is_one: Callable[[Object], bool]
    """Returns whether a JSON object is an entry of this kind."""
    columns_are: Callable[[Collection[str]], bool]
    """Returns whether a CSV file with this header has entries of this kind."""
    columns_needed: tuple[str, ...]
    """Columns that a CSV file must have."""
    numbers: tuple[str, ...]
    """Fields that are numbers."""
    schemas: Callable[[], Mapping[str, Mapping[str, object]]]
    """Returns JSON Schemas of fields that the types of the table's columns don't describe, shorthands included."""
    expansions: Callable[[Sequence[ResourceRow]], Sequence[str]] | None
    """Returns lines for the terminal about expanded shorthands; None if the kind has no shorthands."""


@dataclass(frozen=True, kw_only=True)
class ObservedResources:
    """The resources of this kind on live clusters."""

    table: Table
    describe: Describe
    allows_everyone: Callable[[ClusterAdmin], bool | None] | None
    """See `listed.ListedStatus.allow_everyone`; None if it isn't asked."""
    needs: Needs
    """For listing and changing them."""

    def observe(
        self, spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, ids: Mapping[str, str]
    ) -> Listed:
        """List them on `clusters`. `ids`: Kafka's cluster ids by name."""
        return list_each(spark, clusters, kafka, ids, self.table, self.describe, self.allows_everyone)


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """The decision: declared and observed rows become actions."""

    compare: Compare
    """Phase decide. In: the result of `Rows.validate`, materialised. Out: the columns that policies see."""
    decide: Decide
    """Phases decide, guard and policy; the last arguments evaluate policies, and close rows outside the scope of the
    run before any guard counts them. In: the result of `Rows.validate`, materialised. Out:
    `phases.DECIDED_RESOURCE`, and more."""
    scoped: Scoped
    """In: the result of `compare`."""
    manages: Callable[[Settings], bool]
    """Returns whether a run decides on resources that no row declares."""
    now: Mapping[str, Callable[[], Column]]
    """Values of the latest declaration that `ActionKind.not_declared` needs beside its state: name -> Column of
    validated rows."""
    undeclared: Callable[[], Column]
    """Returns why a planned action without a row isn't declared any more (string); null if it is."""
    protected: Callable[[DataFrame, DataFrame, Collection[str]], Transform] | None
    """Returns the planned actions that a refused row might prevent if it were valid, or that a row added since the plan
    would make wait, as `ending.REFUSED`. In: the result of `Rows.validate` for the latest table, cluster and resource
    of what the plan knew, and the settings' clusters. None if missing rows cause no action."""


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies of the kind. They are in the settings under `[[policies.TYPE]]`, TYPE as `resource_type`."""

    subject: Subject
    action: Evaluated
    """The kind of action that they evaluate."""
    as_if: str
    """Participle for a resource that needs no action: `policies explain` evaluates it as if it were now "added"."""


@dataclass(frozen=True, kw_only=True)
class AsRows:
    """Transforms from actions back to rows of their kind's table."""

    live: Transform
    """Converts rows of `observed` to cluster, resource, and `now` (map<string,string>, with the keys of `before`)."""
    undo: Transform
    """Converts actions to rows that undo them. In: cluster, resource, `action`, `before`, `after`, `now` (null if the
    cluster doesn't have the resource), and more. Out: also the table's columns, `stale`: how the resource differs from
    the action's result, null if it doesn't, and `as_before` (boolean): whether it is as before the action."""
    asked_by: Transform
    """Converts planned actions to rows that ask for them, so that policies can evaluate them again. In: cluster,
    resource, `action`, `before`, `after`, `now`, and more. Out: also the table's columns, without owner and labels."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The differences between live clusters and declarations."""

    find: Find
    """Takes the listed resources, and the existing or declared topics (cluster, topic). In: from `Rows.validate`,
    materialised. Out: `DIFFERENCE`, a row for each; none for refused rows."""
    advice: Mapping[DriftName, str]
    """Kind of drift that it finds -> the remedy, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class OwnerLists:
    """Two lists of a report: declarations by owner, and changes."""

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
    """Returns the change of an action, in words."""
    columns: Mapping[str, Literal["what", "resource", "owner", "when"]]
    """Columns of the list of changes, by heading."""
    filters: Sequence[str]
    """Filters of the list of changes: `change`, `cluster`, `owner`, or names in `after` and `before`."""
    audited: str
    """Columns of `audit` that the query of changes selects."""


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """A kind of resources with a separate table. A missing field is an error at import."""

    names: KindNames
    words: Words
    table: Table
    """The table that declares it, one of `schemas.RESOURCES`."""
    rows: Rows
    entries: Entries
    observed: ObservedResources
    deciding: Deciding
    actions: tuple[ActionKind, ...]
    policies: Policies
    as_rows: AsRows
    drift: Drift
    owners: OwnerLists

    @property
    def resource_type(self) -> str:
        """The type of these resources in `plans` and `audit`, and their name in options and settings."""
        return self.names.resource_type

    @property
    def counted(self) -> Mapping[str, Decision]:
        """Name of a run's count -> the decision that it counts, for resources that need no action."""
        counted = (Decision.UNCHANGED, Decision.UNMANAGED, Decision.OUTSIDE)
        return {f"{self.table.name}_{each.value}": each for each in counted}
