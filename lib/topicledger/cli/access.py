"""`access who` and `access what`: effective permissions by a cluster's ACLs or by declared ACLs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console

from topicledger.cli.options import Options, Renamed, common_with, open_ledger, open_settings, print_result
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ExitCode, GuardStopped, UsageError
from topicledger.kafka import ClusterAdmin
from topicledger.manifests.rows import PRESENT
from topicledger.resources import ignoring
from topicledger.resources.acls import requests
from topicledger.resources.acls.acl import DENY, EVERYONE, OPERATION_NAMES, OPERATIONS, WILDCARD, Acl
from topicledger.resources.acls.effective import (
    AccessVerdict,
    Brokers,
    Why,
    about,
    covers_operation,
    covers_pattern,
    decide,
)
from topicledger.resources.acls.kind import KIND
from topicledger.resources.acls.names import AclSettings
from topicledger.resources.acls.requests import ALLOW_EVERYONE, SUPER_USERS
from topicledger.schemas import ACLS
from topicledger.text import cell, document, grid_of, nearest


@dataclass(frozen=True, kw_only=True)
class Permission:
    """An operation that a principal is allowed or denied."""

    principal: str
    resource_type: str
    pattern_type: str
    resource_name: str
    operation: str
    host: str
    """`*`: any host that no ACL names."""
    result: str
    """allowed, denied, or unknown."""
    because: str
    acls: Sequence[str]
    """The ACLs that decide it."""
    exceptions: Sequence[str]
    """DENYs on a part of the pattern's resources."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The ACLs from which an answer is made."""

    acls: Sequence[Acl]
    brokers: Brokers
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """Effective permissions, in order."""

    cluster: str
    source: str
    """observed or declared."""
    rights: Sequence[Permission]
    notes: Sequence[str]

    def to_json(self) -> str:
        """Return the versioned result document."""
        return document(ExitCode.DONE, asdict(self))


def _asked(command: Callable[..., int]) -> Callable[..., Any]:
    """Add the options of both commands."""
    operation = click.option("--operation", metavar="OP", help="Only this operation, by Kafka's name.")
    source = click.option(
        "--acls",
        "source",
        cls=Renamed,
        former=["--from"],
        type=click.Choice(["observed", "declared"]),
        default="observed",
        help="Use the cluster's current ACLs, or those that the table `acls` declares.",
    )
    return operation(source(command))


@click.group("access", short_help="Show effective permissions.")
def access_group() -> None:
    """Show effective permissions, as Kafka's authorizer decides them."""


@access_group.command(
    "who",
    short_help="Show who may do what on one --cluster.",
    epilog="Example: topicledger access who --topic payments.authorised --cluster orders",
)
@click.option("--topic", multiple=True, metavar="NAME", help="Show permissions on this topic; may be repeated.")
@click.option(
    "--group", multiple=True, metavar="NAME", help="Show permissions on this consumer group; may be repeated."
)
@_asked
@common_with(without=("run_id",))
def access_who(
    options: Options, topic: tuple[str, ...], group: tuple[str, ...], operation: str | None, source: str
) -> int:
    """Show who may do what to topics and groups of one --cluster, and by which ACLs. Changes nothing."""
    if not topic and not group:
        raise UsageError("access who needs a --topic or a --group")
    resources = [
        *(("TOPIC", each) for each in dict.fromkeys(topic)),
        *(("GROUP", each) for each in dict.fromkeys(group)),
    ]
    return _answered(options, operation, source, lambda known: _who(known, resources, operation))


@access_group.command(
    "what",
    short_help="Show what a principal may do on one --cluster.",
    epilog="Example: topicledger access what --principal User:billing --cluster orders",
)
@click.option("--principal", required=True, help="The principal, such as User:payments.")
@_asked
@common_with(without=("run_id",))
def access_what(options: Options, principal: str, operation: str | None, source: str) -> int:
    """Show what a principal may do on one --cluster, and by which ACLs. Changes nothing."""
    if not principal.startswith("User:"):
        raise UsageError(f"--principal is {principal}; Kafka's authorizer knows only User:name")
    return _answered(options, operation, source, lambda known: _what(known, principal, operation))


def _answered(
    options: Options, operation: str | None, source: str, answer: Callable[[Known], Iterator[Permission]]
) -> ExitCode:
    if len(options.cluster) != 1:
        raise UsageError("access needs one --cluster")
    if operation is not None and operation not in OPERATION_NAMES:
        raise UsageError(f"there is no operation {operation}; {nearest(operation, OPERATION_NAMES)}")
    settings = open_settings(options)
    (cluster,) = settings.select(options.cluster)
    known = _observed(settings, cluster) if source == "observed" else _declared(options, settings, cluster)
    found = Permissions(cluster=cluster.name, source=source, rights=list(answer(known)), notes=known.notes)
    print_result(found.to_json(), lambda console: render(found, console), options)
    return ExitCode.DONE


def _observed(settings: Settings, cluster: ClusterSettings) -> Known:
    """Read a cluster's ACLs; raises GuardStopped if it isn't the cluster in the settings."""
    with ClusterAdmin(cluster, settings.kafka) as admin:
        described = admin.describe_cluster()
        if cluster.cluster_id not in (None, described.cluster_id):
            raise GuardStopped(
                f"cluster {cluster.name} answers with the cluster id {described.cluster_id}, but "
                f"clusters.{cluster.name}.cluster_id is {cluster.cluster_id}: its address leads to a different cluster"
            )
        acls = requests.describe_acls(admin)
        is_set = requests.authorizer_settings(admin)
    notes = [f"Kafka's id of the cluster: {described.cluster_id}"]
    allow_everyone = False if is_set[ALLOW_EVERYONE] is False else None
    if allow_everyone is None:
        why = "brokers hide its value" if is_set[ALLOW_EVERYONE] else "not every broker shows its configs"
        notes.append(f"{ALLOW_EVERYONE} is not known, {why}: access to resources without ACLs is `unknown`")
    super_users = frozenset(settings.of_kinds.of(AclSettings).super_users)
    if not super_users and is_set[SUPER_USERS] is not False:
        notes.append(f"the brokers' {SUPER_USERS} may do everything, and brokers hide who they are: acls.super_users")
    brokers = Brokers(super_users=super_users, allow_everyone=allow_everyone)
    return Known(acls=sorted(set(acls)), brokers=brokers, notes=notes)


def _declared(options: Options, settings: Settings, cluster: ClusterSettings) -> Known:
    ledger = open_ledger(options, settings, "access")
    brokers = Brokers(super_users=frozenset(settings.of_kinds.of(AclSettings).super_users), allow_everyone=None)
    notes = [f"no cluster was asked: access to resources without declared ACLs is `unknown`, since {ALLOW_EVERYONE} is"]
    if not ledger.exists(ACLS):
        return Known(acls=[], brokers=brokers, notes=[*notes, "no ACL is declared: there is no table acls"])
    validated = ledger.read(ACLS).transform(ignoring.validated_by(KIND, settings, [cluster.name]))
    rows = validated.select(*Acl._fields, "state", "phase").collect()
    refused = sum(row["phase"] is not None for row in rows)
    if refused:
        notes.append(f"{refused} invalid rows of acls don't count; `plan` says why")
    accepted = {Acl.of(row.asDict()) for row in rows if row["phase"] is None and row["state"] == PRESENT}
    return Known(acls=sorted(accepted), brokers=brokers, notes=notes)


def _who(known: Known, resources: Sequence[tuple[str, str]], operation: str | None) -> Iterator[Permission]:
    for resource_type, name in resources:
        found = about(known.acls, resource_type, name)
        named = {each.principal for each in found} | known.brokers.super_users | {EVERYONE}
        for principal in sorted(named):
            yield from _of_principal(known, found, principal, ("LITERAL", name), resource_type, operation)


def _what(known: Known, principal: str, operation: str | None) -> Iterator[Permission]:
    mine = [each for each in known.acls if each.principal in (principal, EVERYONE)]
    patterns = {(each.resource_type, each.resource_name, each.pattern_type) for each in mine}
    if principal in known.brokers.super_users:
        patterns |= {(resource_type, WILDCARD, "LITERAL") for resource_type in OPERATIONS}
    for resource_type, name, pattern_type in sorted(patterns):
        of_type = [each for each in mine if each.resource_type == resource_type]
        found = [each for each in of_type if covers_pattern(each, pattern_type, name)]
        narrower = [each for each in of_type if each.permission == DENY and each not in found]
        within = [each for each in narrower if _within(each, pattern_type, name)]
        pattern = pattern_type, name
        yield from _of_principal(known, found, principal, pattern, resource_type, operation, within)


def _within(acl: Acl, pattern_type: str, name: str) -> bool:
    """Return whether an ACL covers a part of a pattern's resources."""
    whole = Acl("", "", "", "", pattern_type, name, "")
    return covers_pattern(whole, acl.pattern_type, acl.resource_name)


def _of_principal(
    known: Known,
    found: Sequence[Acl],
    principal: str,
    pattern: tuple[str, str],
    resource_type: str,
    operation: str | None,
    within: Sequence[Acl] = (),
) -> Iterator[Permission]:
    """Yield what a principal is allowed or denied, or unknown; for named hosts only if the answer differs."""
    hosts = sorted({each.host for each in found if each.principal in (principal, EVERYONE)} - {WILDCARD})
    for each in OPERATIONS.get(resource_type, ()):
        if operation not in (None, each):
            continue
        usual = decide(found, principal, WILDCARD, each, known.brokers)
        verdicts = [(WILDCARD, usual), *((host, decide(found, principal, host, each, known.brokers)) for host in hosts)]
        for host, verdict in verdicts:
            differs = host != WILDCARD and verdict.allowed != usual.allowed
            tells = verdict.allowed is not False or verdict.why is Why.DENY
            if differs or (host == WILDCARD and tells):
                # For `*`, exceptions also include DENYs for a single host.
                of_host = {WILDCARD, host, *(acl.host for acl in within if host == WILDCARD)}
                exceptions = [acl for acl in within if acl.host in of_host and covers_operation(acl, each)]
                yield _right(principal, resource_type, pattern, each, host, verdict, exceptions)


def _right(
    principal: str,
    resource_type: str,
    pattern: tuple[str, str],
    operation: str,
    host: str,
    verdict: AccessVerdict,
    exceptions: Sequence[Acl],
) -> Permission:
    result = {True: "allowed", False: "denied", None: "unknown"}[verdict.allowed]
    return Permission(
        principal=principal,
        resource_type=resource_type,
        pattern_type=pattern[0],
        resource_name=pattern[1],
        operation=operation,
        host=host,
        result=result,
        because=verdict.why.value,
        acls=[_text(each) for each in verdict.acls],
        exceptions=[_text(each) for each in exceptions] if verdict.allowed and verdict.why is Why.ALLOW else [],
    )


def _text(acl: Acl) -> str:
    return " ".join(acl)


def render(answer: Permissions, console: Console) -> None:
    """Print effective permissions, a row for each."""
    console.print(f"cluster {cell(answer.cluster)}, ACLs as {answer.source}")
    if answer.rights:
        grid = grid_of("principal", "resource", "operation", "host", "result", "because", "except")
        for each in answer.rights:
            resource = f"{each.resource_type} {each.pattern_type} {each.resource_name}"
            because = "\n".join(each.acls) or each.because
            values = (each.principal, resource, each.operation, each.host, each.result)
            texts = (_lines(because), _lines("\n".join(each.exceptions)))
            grid.add_row(*map(cell, values), *texts)
        console.print(grid)
    else:
        console.print("nobody may do anything")
    for note in answer.notes:
        console.print(cell(note), soft_wrap=True)


def _lines(text: str) -> str:
    """Return a cell of several lines, each safe to print."""
    return "\n".join(cell(line) for line in text.split("\n"))
