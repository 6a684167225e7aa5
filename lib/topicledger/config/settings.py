"""The run settings: one TOML file, checked completely before anything else happens.

Secrets are never read here: a cluster's client options contain references (`env:NAME`, `file:PATH`), see `secrets`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from topicledger.config.digests import canonical, digest_of
from topicledger.config.guards import GuardSettings
from topicledger.config.notify import NotifySettings
from topicledger.config.oauth import OAuthSettings
from topicledger.config.proof import ProofSettings
from topicledger.config.scope import ScopeSettings
from topicledger.config.severities import SEVERITIES, Severity
from topicledger.config.spark import SparkSettings
from topicledger.config.views import ViewSettings
from topicledger.errors import UsageError
from topicledger.naming import DriftName, Sections
from topicledger.text import nearest, show

ClientValue: TypeAlias = str | int | float | bool | tuple[int, ...]
Mode: TypeAlias = Literal["refuse", "warn"]
Needs: TypeAlias = Literal["full", "visible"]
ConfigChanges: TypeAlias = Literal["off", "declared", "exact"]
PolicyScope: TypeAlias = Literal["changes", "all"]
PartitionChanges: TypeAlias = Literal["off", "grow"]
ReplicaChanges: TypeAlias = Literal["off", "on"]
Recreated: TypeAlias = Literal["refuse", "exempt"]
Undeclared: TypeAlias = Literal["keep", "delete"]
WhoObserves: TypeAlias = Literal["auto", "driver", "executors"]

MAX_BATCH_RECORDS = 10_000
"""The records that a broker accepts in one request before it refuses the whole request (C15)."""

SECRET_OPTIONS = frozenset({"sasl_plain_password", "ssl_password"})
OF_EVERY_POLICY = ("use", "mode", "needs", "scope", "clusters", "owners", "labels")
"""Keys of any [[policies.*]]; the other keys are settings of the policy that it uses."""


@dataclass(frozen=True, kw_only=True)
class TablesSettings:
    """Where the Delta tables are."""

    root: str
    """A path (local, `s3a:`, `abfss:`, `gs:`) with a folder per table, or `catalog.schema`. A relative local path is
    relative to the current working directory, not to the settings file; a command that makes new tables says so."""
    root_is: str = "auto"
    """`path` or `catalog`, if a root can be read as both. By default, two names with a dot between them are a catalog's
    schema if both have letters, digits and `_` only, or are in backticks, as in `` `prod-eu`.kafka ``; other names with
    dots, such as `prod-eu.kafka`, are an error without this key."""
    single_writer: bool = False
    """Set this only if at most one command runs at a time. Then `apply` and `provision` accept tables on S3 without a
    LogStore for several drivers, and on file systems where two drivers can overwrite each other's commits."""
    on_create: tuple[str, ...] = ()
    """SQL statements for each table that topicledger creates; `{table}` is its name:
    ``ALTER TABLE {table} SET TAGS ('team' = 'platform')``. If one fails, the command says what to run by hand."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """How to reach one cluster.

    Sent to Spark executors as JSON, with unresolved references.
    """

    name: str
    """The name that manifests use."""
    bootstrap_servers: tuple[str, ...]
    """`host:port` of at least one broker; `[address]:port` for IPv6."""
    cluster_id: str | None = None
    """The only Kafka cluster id that this name may stand for. By default the recorded one: the id that the name had
    when it was first used, or that was accepted since."""
    principal: str | None = None
    """The principal that brokers see, such as `User:CN=topicledger`. By default `User:` and the SASL user. With a
    certificate, a ticket, a token or Confluent Cloud's API key, no ALLOW is removed and no DENY added until this is
    set."""
    client: Mapping[str, ClientValue] = field(default_factory=dict, repr=False)
    """kafka-python's options by its own names, such as TLS and SASL. A string may be `env:NAME` or `file:PATH`, which
    is read when a client is made; passwords must be such references."""

    oauth: OAuthSettings | None = None
    """[clusters.NAME.oauth]"""

    def to_json(self) -> str:
        """Return one line of JSON that `from_json` reads back into an equal object."""
        return canonical(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ClusterSettings:
        """Parse what `to_json` returns."""
        raw = json.loads(text)
        raw["bootstrap_servers"] = tuple(raw["bootstrap_servers"])
        raw["client"] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw["client"].items()
        }
        return cls(**raw | {"oauth": raw["oauth"] and OAuthSettings(**raw["oauth"])})


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """Timeouts and sizes of requests, and the processes that send read-only requests."""

    connect_timeout: float = 30.0
    """Seconds to reach a cluster."""
    operation_timeout: float = 10.0
    """Seconds that a broker may spend on a request; above 0 (C12)."""
    max_batch_records: int = 8_000
    """Size of one request in metadata records, 1 + partitions + configs for each topic. At most 10000, since a broker
    refuses a larger request as a whole (C15)."""
    observe: WhoObserves = "auto"
    """The processes that list and describe topics. `driver`: the driver, if executors can't reach the brokers.
    `executors`: the executors. `auto`: the driver lists topics of up to four clusters and executors those of more, and
    executors describe configs; through Spark Connect, the client does both."""


@dataclass(frozen=True, kw_only=True)
class ChangeSettings:
    """Differences between manifests and existing topics that a run corrects, by default none. Keys of one cluster
    override those for all clusters.
    """

    configs: ConfigChanges = "off"
    """`declared` sets the configs that manifests declare. `exact` also resets configs that are set on a declared topic
    but missing in its manifest to the broker's default."""
    partitions: PartitionChanges = "off"
    """`grow` adds partitions if a manifest declares more than the topic has. Kafka can't remove partitions."""
    replicas: ReplicaChanges = "off"
    """`on` moves replicas if the topic differs from the replication factor, placement or assignments in its manifest,
    within guards.max_moves, and elects preferred leaders."""
    undeclared: Undeclared = "keep"
    """`delete` deletes topics that this ledger created and whose row was removed, within guards.max_deletes."""
    replaced_idle_days: int | None = None
    """Days without use after which a topic that a row `replaces` is deleted, within guards.max_deletes. By default it
    is kept."""
    pin: bool = False
    """Set a declared config on the topic even if the topic already has the same value from the broker's default."""
    ignore: tuple[str, ...] = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    """Names of configs that other tools manage. Runs never set or reset them, not even on creates; audits don't compare
    them; exports and imports leave them out. The two of the default, which moves set, are always among them."""

    @property
    def any(self) -> bool:
        """Whether a run corrects any difference."""
        asked = (self.configs, self.partitions, self.replicas, self.undeclared, self.replaced_idle_days)
        return asked != ("off", "off", "off", "keep", None)


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings:
    """How replicas are moved."""

    throttle: int = 50_000_000
    """Bytes per second that each broker may send, and may receive, for moves; 0 means no limit. A rate that another
    client set on a broker is kept. In-sync replicas are not slowed down."""
    max_partitions_per_broker: int = 10
    """Partitions that are moved from or to a broker at once."""
    max_bytes_per_broker: int = 50_000_000_000
    """Bytes that are moved from or to a broker at once; a larger partition is moved alone."""


@dataclass(frozen=True, kw_only=True)
class OwnerSettings:
    """Topics that an owner may declare, and no others. A topic that patterns match is for their owners only."""

    topics: tuple[str, ...]
    """Patterns (RE2) that match anywhere in topic names unless anchored."""
    clusters: tuple[str, ...] = ()
    """Clusters that the patterns apply to. By default all."""
    requested_by: tuple[str, ...] = ()
    """Requesters whose runs may plan this owner's resources, regardless of blanks and case. By default all."""


class OwnerLine(NamedTuple):
    """A line of the file that [owners] names."""

    pattern: str
    """RE2 pattern for `cluster/topic`."""
    owners: tuple[str, ...]
    """The owners; empty if the topics have none."""
    place: str
    """File and line, for messages."""


@dataclass(frozen=True, kw_only=True)
class Owners:
    """Owners and the topics they may declare; by default everybody may declare every topic."""

    names: Mapping[str, OwnerSettings] = field(default_factory=dict)
    """[owners.NAME]"""
    lines: tuple[OwnerLine, ...] = ()
    """Lines of the file that [owners] names, in order: the last matching line wins."""


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The kinds of drift that an audit reports, and their severities."""

    require_owner: bool = False
    """Report drift (`owner_missing`) if a manifest has no owner."""
    owners: tuple[str, ...] = ()
    """Report drift (`owner_missing`) if a manifest has an owner that isn't listed here. By default every owner is
    accepted."""
    max_replica_skew: int | None = None
    """Report drift (`replica_skew`) if the numbers of a topic's replicas on two brokers differ by more than this. By
    default it isn't reported."""
    usage: bool = False
    """Also read the size and use of every topic into the table `usage`, as `drift --usage` does."""
    severity: Mapping[DriftName, Severity] = field(default_factory=lambda: dict(SEVERITIES))
    """The severity of each kind of drift: `error`, `warning`, `info`, or `ignore` to leave the kind out."""


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """A rule that every action of a kind must satisfy.

    Its existence and options are checked when the policy is built.
    """

    use: str
    """A built-in policy's name, or `package.module:function`."""
    mode: Mode = "refuse"
    """`refuse` refuses the action, `warn` only reports the violation."""
    needs: Needs | None = None
    """`full`: evaluate only if every topic of the cluster is visible. `visible`: evaluate the visible topics. By
    default the policy decides; only for policies that compare topics."""
    scope: PolicyScope | None = None
    """The part to evaluate: altered configs and replica numbers (`changes`, the default), or `all` configs and moves.
    Only for policies of creates."""
    clusters: tuple[str, ...] = ()
    """Evaluate only topics on these clusters. By default on all."""
    owners: tuple[str, ...] = ()
    """Evaluate only topics of these owners. By default of all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Evaluate only topics that have all of these labels. By default every topic."""
    options: Mapping[str, object] = field(default_factory=dict)
    """All other keys of the table: the policy's own settings."""
    where: str = ""
    """The policy's place in the file for messages, e.g. `policies.create[2]`, counted from 1."""


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """The policies of each kind, in the file's order."""

    create: tuple[PolicySpec, ...] = ()
    """Policies for every create."""
    delete: tuple[PolicySpec, ...] = ()
    """Policies for every delete."""
    change: tuple[PolicySpec, ...] = ()
    """Policies for every change of configs or partitions, beside the policies of `create` about these."""
    of_kinds: Mapping[str, tuple[PolicySpec, ...]] = field(default_factory=dict)
    """Policies for actions on other resources, by resource type."""
    recreated: Recreated = "refuse"
    """`exempt`: policies of creates only warn about topics that this ledger created before."""

    @property
    def all(self) -> tuple[PolicySpec, ...]:
        """Policies of every kind."""
        return (*self.create, *self.delete, *self.change, *(each for specs in self.of_kinds.values() for each in specs))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A checked settings file."""

    path: Path
    """The settings file, for messages."""
    tables: TablesSettings
    """[tables]"""
    clusters: Mapping[str, ClusterSettings]
    """[clusters.NAME], in the file's order."""
    spark: SparkSettings = field(default_factory=SparkSettings)
    """[spark]"""
    kafka: KafkaSettings = KafkaSettings()
    """[kafka]"""
    changes: Mapping[str, ChangeSettings] = field(default_factory=dict)
    """[changes] by cluster, overridden by [clusters.NAME.changes]; only clusters that have any change turned on, or
    ignore other configs than the default."""
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    """[scope]"""
    replicas: ReplicaSettings = ReplicaSettings()
    """[replicas]"""
    of_kinds: Sections = field(default_factory=Sections)
    """Tables of kinds of resources beside topics."""
    guards: GuardSettings = field(default_factory=GuardSettings)
    """[guards]"""
    policies: PolicySettings = field(default_factory=PolicySettings)
    """[[policies.create]], [[policies.delete]], [[policies.change]], and [[policies.TYPE]] for other resources"""
    audit: AuditSettings = AuditSettings()
    """[audit]"""
    owners: Owners = Owners()
    """[owners.NAME], or the file that [owners] names"""
    notify: tuple[NotifySettings, ...] = ()
    """[[notify]]"""
    proof: ProofSettings = field(default_factory=ProofSettings)
    """[proof]"""
    views: ViewSettings = field(default_factory=ViewSettings)
    """[views]"""

    def cluster(self, name: str) -> ClusterSettings:
        """Return the cluster of that name; raises UsageError with the nearest known name if there is none."""
        return self.select([name])[0]

    def select(self, names: Iterable[str] = ()) -> tuple[ClusterSettings, ...]:
        """Return the clusters of these names, each once, in the given order; all clusters if no name is given."""
        wanted = tuple(dict.fromkeys(names)) or tuple(self.clusters)
        problems = [
            f"{self.path}: unknown cluster `{show(name)}`; {nearest(name, self.clusters)}"
            for name in wanted
            if name not in self.clusters
        ]
        if problems:
            raise UsageError("\n".join(problems))
        return tuple(self.clusters[name] for name in wanted)

    @property
    def ignored_configs(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the configs to ignore on each cluster: `changes.ignore`."""
        return {name: self.changes.get(name, ChangeSettings()).ignore for name in self.clusters}

    @property
    def pinned(self) -> tuple[str, ...]:
        """Clusters where declared configs must be set on topics, even if topics have the same values by default."""
        return tuple(name for name, each in self.changes.items() if each.pin)

    def digest(self) -> str:
        """Return the SHA-256 (hex) of settings that affect decisions, so that a run isn't resumed with other settings.

        docs/settings.md lists what is included. Not included: addresses, credentials, timeouts and batch sizes, since
        correcting them must not block an open run.
        """
        clusters = {name: {"cluster_id": cluster.cluster_id} for name, cluster in self.clusters.items()}
        policies = {
            kind: [{name: getattr(spec, name) for name in _DIGESTED} for spec in specs]
            for kind, specs in (
                ("create", self.policies.create),
                ("delete", self.policies.delete),
                *((("change", self.policies.change),) if self.changes or self.policies.change else ()),
                *((name, specs) for name, specs in self.policies.of_kinds.items() if specs),
            )
        }
        # Defaults that a run without [changes] doesn't need are left out, so that its digest is as in earlier versions.
        guards = self.guards.digested(changes=bool(self.changes))
        changes: dict[str, object] = {name: _as_digested(each) for name, each in self.changes.items()}
        scopes = [spec.scope or "changes" for spec in self.policies.create]
        if changes or "all" in scopes:
            changes["scopes"] = scopes
        return digest_of(
            {
                "tables": {"root": self.tables.root},
                "clusters": clusters,
                "guards": guards,
                "policies": policies,
                **({"recreated": self.policies.recreated} if self.policies.recreated != "refuse" else {}),
                **({"changes": changes} if changes else {}),
                **{each.table: asdict(each) for each in self.of_kinds if each != type(each)()},
                **self._ownership(),
            }
        )

    def _ownership(self) -> dict[str, object]:
        """Return the part of [owners] and [scope] that decisions depend on; empty if there is none."""
        ignored = dict(self.scope.digested())
        if self.owners == Owners():
            return ignored
        # The scope of a run has what `requested_by` says.
        names = {name: {"topics": each.topics, "clusters": each.clusters} for name, each in self.owners.names.items()}
        return {"owners": names, "owner_lines": [line[:2] for line in self.owners.lines], **ignored}

    def audit_digest(self) -> str:
        """Return the same digest for settings that affect an audit."""
        ignored = {name: sorted(its) for name, its in self.ignored_configs.items() if its != ChangeSettings().ignore}
        return digest_of(
            {
                "tables": {"root": self.tables.root},
                "clusters": {name: {"cluster_id": cluster.cluster_id} for name, cluster in self.clusters.items()},
                "audit": {name: value for name, value in asdict(self.audit).items() if name != "usage"},
                **{name: value for each in self.of_kinds for name in each.audited if (value := getattr(each, name))},
                **({"ignored": ignored} if ignored else {}),
                **({"pinned": sorted(self.pinned)} if self.pinned else {}),
                **self._ownership(),
            }
        )


_DIGESTED = ("use", "mode", "needs", "clusters", "owners", "labels", "options")
"""Fields of a policy that affect decisions."""


def _as_digested(changes: ChangeSettings) -> dict[str, object]:
    """Return the part that decisions depend on; keys that change nothing are left out, as in earlier versions."""
    newer, default = ("replicas", "undeclared", "replaced_idle_days"), asdict(ChangeSettings())
    return {name: value for name, value in asdict(changes).items() if name not in newer or value != default[name]}
