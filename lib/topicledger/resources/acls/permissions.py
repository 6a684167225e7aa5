"""Effective permissions by a cluster's ACLs or by declared ACLs: the answers of `access who` and `access what`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import GuardStopped, UsageError
from topicledger.kafka import ClusterAdmin
from topicledger.ledger.tables import Ledger
from topicledger.manifests.row_rules import PRESENT
from topicledger.observe.clusters import Recorded, refusals
from topicledger.resources import ignoring
from topicledger.resources.acls import requests
from topicledger.resources.acls.acl import (
    DENY,
    EVERYONE,
    LITERAL,
    OPERATION_NAMES,
    OPERATIONS,
    PREFIXED,
    WILDCARD,
    Acl,
)
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
from topicledger.text import nearest


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


def require_operation(name: str) -> None:
    """Raise UsageError unless ACLs can allow or deny an operation of this name."""
    if name not in OPERATION_NAMES:
        raise UsageError(f"there is no operation {name}; {nearest(name, OPERATION_NAMES)}")


def observed(settings: Settings, cluster: ClusterSettings, recorded: Mapping[str, Recorded]) -> Known:
    """Read a cluster's ACLs; raises GuardStopped if it isn't the cluster in the settings or in `recorded`."""
    with ClusterAdmin(cluster, settings.kafka) as admin:
        described = admin.describe_cluster()
        refused = refusals(settings, recorded, {cluster.name: described.cluster_id}).get(cluster.name)
        if refused is not None:
            raise GuardStopped(refused.message)
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


def declared(ledger: Ledger, settings: Settings, cluster: ClusterSettings) -> Known:
    """Read the ACLs that the table `acls` declares for a cluster."""
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


def who(known: Known, resources: Sequence[tuple[str, str]], operation: str | None) -> Iterator[Permission]:
    """Yield what each principal may do to resources, each a type and a name; `operation`: only this one."""
    for resource_type, name in resources:
        all_of_them = about(known.acls, resource_type, name)
        by_principal: dict[str, list[Acl]] = {}
        for each in all_of_them:
            by_principal.setdefault(each.principal, []).append(each)
        for principal in sorted({*by_principal, *known.brokers.super_users, EVERYONE}):
            mine = sorted(acl for each in {principal, EVERYONE} for acl in by_principal.get(each, ()))
            # Others' ACLs matter only in that there are some.
            found = mine or all_of_them[:1]
            yield from _of_principal(known, found, principal, ("LITERAL", name), resource_type, operation)


def what(known: Known, principal: str, operation: str | None) -> Iterator[Permission]:
    """Yield what a principal may do; `operation`: only this one."""
    mine = [each for each in known.acls if each.principal in (principal, EVERYONE)]
    by_pattern: dict[tuple[str, str, str], list[Acl]] = {}
    for each in mine:
        by_pattern.setdefault((each.resource_type, each.resource_name, each.pattern_type), []).append(each)
    patterns = set(by_pattern)
    if principal in known.brokers.super_users:
        patterns |= {(resource_type, WILDCARD, LITERAL) for resource_type in OPERATIONS}
    denies = [each for each in mine if each.permission == DENY]
    for resource_type, name, pattern_type in sorted(patterns):
        beginnings = [(resource_type, name[:end], PREFIXED) for end in range(len(name) + 1)]
        keys = dict.fromkeys([(resource_type, WILDCARD, LITERAL), (resource_type, name, LITERAL), *beginnings])
        candidates = sorted(acl for key in keys for acl in by_pattern.get(key, ()))
        found = [each for each in candidates if covers_pattern(each, pattern_type, name)]
        # Only a prefix and `*` have parts.
        narrower = denies if pattern_type == PREFIXED or name == WILDCARD else ()
        others = set(found)
        of_type = [each for each in narrower if each.resource_type == resource_type and each not in others]
        within = [each for each in of_type if _within(each, pattern_type, name)]
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
                yield _permission(principal, resource_type, pattern, each, host, verdict, exceptions)


def _permission(
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
