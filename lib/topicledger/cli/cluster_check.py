"""`clusters check`: what a cluster lets this client do, and which features of the settings would fail on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
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
from topicledger.resources.registry import KINDS
from topicledger.text import cell, counted, document, grid_of


class Status(StrEnum):
    """Whether something works."""

    OK = "ok"
    FAILS = "fails"
    """The settings use it, and it would fail."""
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
class _Feature:
    """A feature of the settings."""

    name: str
    needs: Needs
    used: Callable[[Settings, ChangeSettings], bool]
    off: str
    """How the settings leave it out."""


_FEATURES = (
    _Feature(
        name="drift",
        needs=Needs(requests={DescribeConfigsRequest: 1}, since="1.1", topics=("DESCRIBE_CONFIGS",)),
        used=lambda settings, changes: True,
        off="",
    ),
    _Feature(
        name="create topics",
        needs=Needs(requests={CreateTopicsRequest: 1}, since="0.11", cluster=("CREATE",)),
        used=lambda settings, changes: True,
        off="",
    ),
    _Feature(
        name="delete topics",
        needs=Needs(requests={DeleteTopicsRequest: 0}, since="0.10.1", topics=("DELETE",)),
        used=lambda settings, changes: settings.guards.max_deletes > 0,
        off="guards.max_deletes = 0",
    ),
    _Feature(
        name="alter configs",
        needs=Needs(
            requests={IncrementalAlterConfigsRequest: 0}, since="2.3", topics=("ALTER_CONFIGS", "DESCRIBE_CONFIGS")
        ),
        used=lambda settings, changes: changes.configs != "off",
        off='changes.configs = "off"',
    ),
    _Feature(
        name="add partitions",
        needs=Needs(requests={CreatePartitionsRequest: 0}, since="1.0", topics=("ALTER",)),
        used=lambda settings, changes: changes.partitions != "off",
        off='changes.partitions = "off"',
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
        used=lambda settings, changes: changes.replicas != "off",
        off='changes.replicas = "off"',
    ),
    _Feature(
        name="throttle moves",
        needs=Needs(cluster=("ALTER_CONFIGS", "DESCRIBE_CONFIGS"), topics=("ALTER_CONFIGS",)),
        used=lambda settings, changes: changes.replicas != "off" and settings.replicas.throttle > 0,
        off="replicas.throttle = 0",
    ),
    _Feature(
        name="count hidden topics",
        needs=Needs(requests={DescribeLogDirsRequest: 0}, since="1.0", cluster=("DESCRIBE",)),
        used=lambda settings, changes: any(each.needs == "full" for each in settings.policies.all),
        off='needs = "visible" for each policy',
    ),
    _Feature(
        name="sizes of topics",
        needs=Needs(requests={DescribeLogDirsRequest: 0}, since="1.0", cluster=("DESCRIBE",)),
        used=lambda settings, changes: settings.audit.usage,
        off="audit.usage = false",
    ),
    _Feature(
        name="producers of topics",
        needs=Needs(requests={DescribeProducersRequest: 0}, since="2.8", topics=("READ",)),
        used=lambda settings, changes: settings.audit.usage,
        off="audit.usage = false",
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
    changes = settings.changes.get(name, ChangeSettings())
    for each in _FEATURES:
        used = each.used(settings, changes)
        yield _finding(each.name, each.needs, used, each.off, _lacking(admin, each.needs), found)
    for kind in KINDS:
        used = (
            kind.deciding.manages(settings)
            or any(settings.guards.most(guard) for guard in kind.names.guards)
            or kind.resource_type in settings.policies.of_kinds
        )
        off = f"no {kind.names.many} in the manifests"
        yield _finding(kind.names.many, kind.observed.needs, used, off, _lacking(admin, kind.observed.needs), found)


def _lacking(admin: ClusterAdmin, needs: Needs) -> bool:
    return not all(admin.supports(request, version) for request, version in needs.requests.items())


def _finding(about: str, needs: Needs, used: bool, off: str, too_old: bool, found: Abilities) -> Finding:
    """Return the finding about a feature: the first reason why it fails, else why it is unknown, else ok."""
    if too_old:
        problem: tuple[Status, str] | None = (
            Status.FAILS,
            f"needs Kafka {needs.since} or later: upgrade the brokers, or leave it out",
        )
    else:
        problem = _on_cluster(needs, found) or _on_topics(needs, found)
    if problem is None:
        return Finding(status=Status.OK, about=about, message="" if used else "the settings don't use it")
    status, message = problem
    if status is Status.FAILS and not used:
        return Finding(status=Status.UNUSED, about=about, message=f"not used ({off}); otherwise: {message}")
    return Finding(status=status, about=about, message=message + (f", or set {off}" if off and used else ""))


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
