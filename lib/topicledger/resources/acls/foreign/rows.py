"""Convert ACLs of another tool's files to rows of `acls`, with Kafka's names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topicledger.files.foreign.contract import unknown_principal
from topicledger.files.foreign.fields import Fields
from topicledger.manifests.files.report import Report
from topicledger.manifests.files.results import ResourceRow
from topicledger.manifests.files.values import describe
from topicledger.resources.acls.acl import ALLOW, CLUSTER_NAME, LITERAL, WILDCARD, Acl
from topicledger.text import show

_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def kafka_name(word: str) -> str:
    """Return Kafka's name of an operation, type, pattern type or permission: DESCRIBE_CONFIGS for `DescribeConfigs`."""
    return _CAPITAL.sub("_", word.strip()).replace("-", "_").upper()


def pattern_type_of(word: str) -> str:
    """Return the pattern type: PREFIXED for `prefix` and `prefixed`."""
    name = kafka_name(word)
    return "PREFIXED" if name == "PREFIX" else name


def operations_of(fields: Fields, line: int, *keys: str) -> Sequence[str]:
    """Return Kafka's names of the operations in a list or a single text; report an error if there are none."""
    found = []
    for key in keys:
        taken = fields.take(key)
        if taken is None:
            continue
        value, at = taken
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                found.append(kafka_name(each))
            else:
                fields.error(key, at, f"must hold names of operations, not {describe(each)}")
    if not found:
        fields.error(keys[0], line, "is missing")
    return found


def add_right(
    report: Report,
    cluster: str | None,
    acl: Acl,
    line: int,
    owner: str | None = None,
    *,
    state: str = "present",
    shorthand: str | None = None,
) -> None:
    """Report a row of `acls` if its cluster is known; otherwise an error was reported before."""
    if cluster:
        report.resource(
            "acls",
            ResourceRow(
                cluster=cluster,
                values=acl._asdict(),
                state=state,
                owner=owner,
                labels=None,
                shorthand=shorthand,
                file=report.file,
                line=line,
            ),
        )


class Right(NamedTuple):
    """An operation that a tool allows a client on one resource."""

    operation: str
    resource_type: str
    name: str
    pattern_type: str = LITERAL


def rights(resource_type: str, names: Sequence[str], *operations: str, pattern_type: str = LITERAL) -> Iterator[Right]:
    """Yield each operation on each name."""
    return (Right(operation, resource_type, name, pattern_type) for name in names for operation in operations)


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client whose needs a tool's file declares: its principal and cluster."""

    report: Report
    cluster: str | None
    principal: str
    line: int

    def grant(self, kind: str, *all_rights: Iterable[Right]) -> None:
        """Report what the tool allows this kind of client; list what no name can match."""
        if not self.principal.startswith("User:"):
            self.report.leave_out(self.line, kind, unknown_principal(self.principal))
            return
        for operation, resource_type, name, pattern_type in itertools.chain(*all_rights):
            if resource_type == "TOPIC" and name.endswith(WILDCARD) and (name, pattern_type) != (WILDCARD, LITERAL):
                what = f"{operation} on {show(name)}: no topic's name has a *, and the tool makes no prefix of it"
                self.report.leave_out(self.line, kind, what)
                continue
            acl = Acl(self.principal, ALLOW, operation, resource_type, pattern_type, name, WILDCARD)
            add_right(self.report, self.cluster, acl, self.line, shorthand=kind)


def acls_of(
    rule: Fields, principal: str, *, name: str, operations: Sequence[str] = ("operations",), host: str = WILDCARD
) -> Iterator[tuple[Acl, int]]:
    """Yield the ACLs of a rule with `resource`, `type` (of permission), `operations` and `host`, each with its line.

    `name`: the key of the resource's name.
    """
    resource = rule.mapping("resource", required=True)
    names = operations_of(rule, rule.line, *operations)
    permission, host = kafka_name(rule.text_or("type", ALLOW)), rule.text_or("host", host)
    rule.rest()
    if resource is None:
        return
    kind = kafka_name(resource.text("type", required=True) or "")
    found, pattern = resource.text(name), pattern_type_of(resource.text_or("patternType", LITERAL))
    resource.rest()
    if not found and kind != "CLUSTER":
        resource.error(name, resource.line, "is missing" if found is None else "is empty")
    for operation in names:
        # The ACLs are kept in memory until the whole resource is read.
        rule.visit(len(Acl._fields))
        yield Acl(principal, permission, operation, kind, pattern, found or CLUSTER_NAME, host), rule.line
