"""`clusters check`: what a cluster lets this client do, and which features of the settings would fail on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)
from rich.console import Console

from topicledger.config.settings import ChangeSettings, ClusterSettings, Settings
from topicledger.errors import ExitCode
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.abilities import Abilities, Needs, abilities_of
from topicledger.policies.built_in import BUILT_IN, FULL_SIGHT
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.text import cell, counted, document, grid_of, show


class Status(StrEnum):
    """Whether something works."""

    OK = "ok"
    FAILS = "fails"
    """The settings use it, and it would fail."""
    POSSIBLE = "possible"
    """It would fail if it were used; the settings don't tell whether it is."""
    UNKNOWN = "unknown"
    """The brokers don't tell."""
    UNUSED = "unused"
    """It would fail, and the settings don't use it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A line of the result."""

    status: Status
    about: str
    """A feature, or a fact about the cluster."""
    message: str
    """The finding, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Result of checking a cluster."""

    name: str
    abilities: Abilities
    findings: Sequence[Finding]

    @property
    def exit_code(self) -> ExitCode:
        """ERROR if a feature of the settings would fail."""
        return ExitCode.ERROR if any(each.status is Status.FAILS for each in self.findings) else ExitCode.DONE

    def to_json(self) -> str:
        """Return the versioned result document."""
        found = self.abilities
        about = {name: getattr(found, name) for name in ("cluster_id", "brokers", "version", "provider", "topics")}
        operations = None if found.on_cluster is None else sorted(found.on_cluster)
        return document(
            self.exit_code,
            {
                "name": self.name,
                **about,
                "cluster_operations": operations,
                "topic_operations": found.on_topics,
                "findings": [asdict(each) for each in self.findings],
            },
        )


@dataclass(frozen=True, kw_only=True)
class _Use:
    """Whether a cluster's settings use a feature."""

    certain: bool
    """Whether the settings use it whatever is run."""
    by: str = ""
    """If it isn't certain, what uses it in spite of that; empty if nothing does."""
    off: str = ""
    """How the settings leave it out."""


@dataclass(frozen=True, kw_only=True)
class _Feature:
    """A feature of the settings."""

    name: str
    needs: Needs
    use: Callable[[Settings, str], _Use]
    """Returns whether the settings of a cluster use it."""


def _always(_: Settings, __: str) -> _Use:
    return _Use(certain=True)


def _deletes(settings: Settings, _: str) -> _Use:
    return _Use(certain=settings.guards.max_deletes > 0, by="deletes that `--allow` lets through", off=_NO_DELETES)


def _switched(switch: str, by: str = "") -> Callable[[Settings, str], _Use]:
    def use(settings: Settings, name: str) -> _Use:
        changes = settings.changes.get(name, ChangeSettings())
        return _Use(certain=getattr(changes, switch) != "off", by=by, off=f'changes.{switch} = "off"')

    return use


def _throttles(settings: Settings, name: str) -> _Use:
    if settings.replicas.throttle == 0:
        return _Use(certain=False, off=_NO_THROTTLE)
    return replace(_moves(settings, name), off=_NO_THROTTLE)


def _counts_hidden(settings: Settings, name: str) -> _Use:
    made, built_in = settings.policies, {use for named in BUILT_IN.values() for use in named}
    specs = [each for each in (*made.create, *made.delete, *made.change) if not each.clusters or name in each.clusters]
    certain = any(each.needs == "full" or (each.needs is None and each.use in FULL_SIGHT) for each in specs)
    # Importing a policy of the user's may need a Spark session.
    own = [show(each.use) for each in specs if each.needs is None and each.use not in built_in]
    return _Use(certain=certain, by=", ".join(["`rebalance --drain`", *own]), off='needs = "visible" for each policy')


def _records_usage(settings: Settings, _: str) -> _Use:
    return _Use(certain=settings.audit.usage, by="`drift --usage`", off="audit.usage = false")


def _of_kind(kind: ResourceKind, settings: Settings) -> _Use:
    certain = (
        kind.deciding.manages(settings)
        or any(settings.guards.most(guard) for guard in kind.names.guards)
        or kind.resource_type in settings.policies.of_kinds
    )
    return _Use(certain=certain, by="rows of the manifests", off=f"no {kind.names.many} in the manifests")


_NO_DELETES = "guards.max_deletes = 0"
_NO_THROTTLE = "replicas.throttle = 0"
_moves = _switched("replicas", by="`rebalance` and `runs revert`")

_FEATURES = (
    _Feature(
        name="drift",
        needs=Needs(requests={DescribeConfigsRequest: 1}, since="1.1", topics=("DESCRIBE_CONFIGS",)),
        use=_always,
    ),
    _Feature(
        name="create topics",
        needs=Needs(requests={CreateTopicsRequest: 1}, since="0.11", cluster=("CREATE",)),
        use=_always,
    ),
    _Feature(
        name="delete topics",
        needs=Needs(requests={DeleteTopicsRequest: 0}, since="0.10.1", topics=("DELETE",)),
        use=_deletes,
    ),
    _Feature(
        name="alter configs",
        needs=Needs(
            requests={IncrementalAlterConfigsRequest: 0}, since="2.3", topics=("ALTER_CONFIGS", "DESCRIBE_CONFIGS")
        ),
        use=_switched("configs", by="`runs revert`"),
    ),
    _Feature(
        name="add partitions",
        needs=Needs(requests={CreatePartitionsRequest: 0}, since="1.0", topics=("ALTER",)),
        use=_switched("partitions"),
    ),
    _Feature(
        name="move replicas",
        needs=Needs(
            requests={
                AlterPartitionReassignmentsRequest: 0,
                ListPartitionReassignmentsRequest: 0,
                ElectLeadersRequest: 1,
            },
            since="2.4",
            cluster=("ALTER", "DESCRIBE"),
        ),
        use=_moves,
    ),
    _Feature(
        name="throttle moves",
        needs=Needs(cluster=("ALTER_CONFIGS", "DESCRIBE_CONFIGS"), topics=("ALTER_CONFIGS",)),
        use=_throttles,
    ),
    _Feature(
        name="count hidden topics",
        needs=Needs(requests={DescribeLogDirsRequest: 0}, since="1.0", cluster=("DESCRIBE",)),
        use=_counts_hidden,
    ),
    _Feature(
        name="sizes of topics",
        needs=Needs(requests={DescribeLogDirsRequest: 0}, since="1.0", cluster=("DESCRIBE",)),
        use=_records_usage,
    ),
    _Feature(
        name="producers of topics",
        needs=Needs(requests={DescribeProducersRequest: 0}, since="2.8", topics=("READ",)),
        use=_records_usage,
    ),
)


def check(settings: Settings, name: str) -> Checked:
    """Ask the cluster; changes nothing. Raises ClusterError if it can't be reached or refuses the login."""
    cluster = settings.cluster(name)
    with ClusterAdmin(cluster, settings.kafka) as admin:
        abilities = abilities_of(admin)
        findings = [*_facts(cluster, abilities), *_features(settings, name, admin, abilities)]
    return Checked(name=name, abilities=abilities, findings=findings)


def _facts(cluster: ClusterSettings, found: Abilities) -> Iterator[Finding]:
    where = f"cluster id {found.cluster_id}, {counted(found.brokers, 'broker')}"
    if cluster.cluster_id not in (None, found.cluster_id):
        message = f"{where}; the settings expect {cluster.cluster_id}: correct bootstrap_servers or cluster_id"
        yield Finding(status=Status.FAILS, about="connection", message=message)
    else:
        yield Finding(status=Status.OK, about="connection", message=where)
    fixed = " (set by api_version)" if "api_version" in cluster.client else ""
    provider = found.provider or "not recognized as a managed service"
    yield Finding(status=Status.OK, about="brokers", message=f"requests of Kafka {found.version}{fixed}; {provider}")
    if found.on_cluster is None:
        message = "the brokers are too old to report operations on the cluster (before Kafka 2.3)"
        yield Finding(status=Status.UNKNOWN, about="operations on the cluster", message=message)
    elif "DESCRIBE" not in found.on_cluster:
        message = "without Describe on the cluster, brokers report no operation on it: grant it to this principal"
        yield Finding(status=Status.UNKNOWN, about="operations on the cluster", message=message)
    else:
        names = ", ".join(_word(each) for each in sorted(found.on_cluster))
        yield Finding(status=Status.OK, about="operations on the cluster", message=names)


def _features(settings: Settings, name: str, admin: ClusterAdmin, found: Abilities) -> Iterator[Finding]:
    for each in _FEATURES:
        yield _finding(each.name, each.needs, each.use(settings, name), _lacking(admin, each.needs), found)
    for kind in KINDS:
        needs = kind.observed.needs
        yield _finding(kind.names.many, needs, _of_kind(kind, settings), _lacking(admin, needs), found)


def _lacking(admin: ClusterAdmin, needs: Needs) -> bool:
    return not all(admin.supports(request, version) for request, version in needs.requests.items())


def _finding(about: str, needs: Needs, use: _Use, too_old: bool, found: Abilities) -> Finding:
    """Return the finding about a feature: the first reason why it fails, else why it is unknown, else ok."""
    if too_old:
        problem: tuple[Status, str] | None = (
            Status.FAILS,
            f"needs Kafka {needs.since} or later: upgrade the brokers, or leave it out",
        )
    else:
        problem = _on_cluster(needs, found) or _on_topics(needs, found)
    uncertain = f"used only by {use.by}" if use.by else "the settings don't use it"
    if problem is None:
        return Finding(status=Status.OK, about=about, message="" if use.certain else uncertain)
    status, message = problem
    if status is Status.FAILS and not use.certain:
        if use.by:
            return Finding(status=Status.POSSIBLE, about=about, message=f"fails if used (by {use.by}): {message}")
        return Finding(status=Status.UNUSED, about=about, message=f"not used ({use.off}); otherwise: {message}")
    instead = f", or set {use.off}" if use.off and use.certain else ""
    return Finding(status=status, about=about, message=message + instead)


def _on_cluster(needs: Needs, found: Abilities) -> tuple[Status, str] | None:
    missing = [each for each in needs.cluster if each not in (found.on_cluster or ())]
    if not missing:
        return None
    words = " and ".join(map(_word, missing))
    if missing == ["CREATE"]:
        # A principal may create topics of a prefix, which brokers don't report.
        return Status.UNKNOWN, "Create isn't granted on the cluster; brokers don't report whether it is on prefixes"
    if found.on_cluster is None or ("DESCRIBE" not in found.on_cluster and "DESCRIBE" not in needs.cluster):
        return Status.UNKNOWN, f"needs {words} on the cluster"
    return Status.FAILS, f"grant this principal {words} on the cluster"


def _on_topics(needs: Needs, found: Abilities) -> tuple[Status, str] | None:
    if not needs.topics:
        return None
    words = " and ".join(map(_word, needs.topics))
    if found.topics == 0 or found.on_topics is None:
        why = "no topic is visible to check it on" if found.topics == 0 else "the brokers are too old to report it"
        return Status.UNKNOWN, f"needs {words} on topics; {why}"
    allowed = min(found.on_topics.get(each, 0) for each in needs.topics)
    if allowed == found.topics:
        return None
    example = next(found.without[each] for each in needs.topics if each in found.without)
    grant = f"grant this principal {words} on them"
    if allowed == 0:
        return Status.FAILS, f"not allowed on any of {counted(found.topics, 'visible topic')}: {grant}"
    lacking = found.topics - allowed
    return Status.UNKNOWN, f"not allowed on {lacking:,} of {found.topics:,} visible topics, such as {example}: {grant}"


def _word(operation: str) -> str:
    """Return Kafka's name of an operation as its tools write it, such as AlterConfigs."""
    return "".join(part.capitalize() for part in operation.split("_"))


def render(checked: Checked, console: Console) -> None:
    """Print a line for each finding."""
    grid = grid_of("", cell(checked.name), "")
    for each in checked.findings:
        grid.add_row(cell(each.status), cell(each.about), cell(each.message))
    console.print(grid)
    if any(each.status is Status.POSSIBLE for each in checked.findings):
        console.print("possible: the settings don't tell whether it is used, so the exit code doesn't count it")
