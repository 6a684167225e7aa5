"""The rules of `acls.row_rules` and `quotas.row_rules` in Python, for rows of files (A3, A4, Q2).

Files are validated before Spark starts. As for topics (`reasons`), tests/properties/test_row_rules.py compares the
messages of both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal

from topicledger.manifests.files import FileError, ResourceRow
from topicledger.manifests.reasons import state_reason
from topicledger.manifests.rows import ABSENT
from topicledger.model.access import CLUSTER_NAME, OPERATIONS, PATTERN_TYPES, PERMISSIONS, PREFIXED, WILDCARD
from topicledger.model.quotas import ENTITY, IP_LIMIT, LIMITS, WHOLE_LIMITS
from topicledger.resources.acls.hosts import host_reason
from topicledger.schemas import ACLS, QUOTAS, RESOURCES
from topicledger.text import show

_REASON_CHARACTERS = 2_000
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_USER = "User:"
_LARGEST = 2.0**63
"""Upper bound of whole limits, which are longs."""

Reasons = Iterator[str | None]


def errors(declared: Mapping[str, Sequence[ResourceRow]]) -> list[FileError]:
    """Return an error for each row that a run would refuse by itself, or that differs from an earlier row.

    In: the declared resources beside topics, by table.
    """
    found = []
    for table in RESOURCES:
        kind, what, reasons_of = _KINDS[table.name]
        rows = declared.get(table.name, ())
        for row in rows:
            why = "; ".join(each for each in reasons_of(row) if each is not None)
            if why:
                found.append(
                    FileError(file=row.file, line=row.line, message=f"{kind}: {show(why, _REASON_CHARACTERS)}")
                )
        found += _repeated(table.key, what, rows)
    # The ACLs of a shorthand often have the same error.
    return list(dict.fromkeys(found))


def reasons(table: str, row: ResourceRow) -> str | None:
    """Return the messages of all rules that a row breaks by itself, as a run would report them; else None."""
    return "; ".join(each for each in _KINDS[table][2](row) if each is not None) or None


def _repeated(key: Sequence[str], what: str, rows: Sequence[ResourceRow]) -> list[FileError]:
    """Return an error for each row that differs from an earlier row of the same resource in state or values."""
    first: dict[tuple[object, ...], ResourceRow] = {}
    found = []
    for row in rows:
        named = (row.cluster, *(row.values[name] for name in key if name in row.values))
        earlier = first.setdefault(named, row)
        if row.state != earlier.state:
            says = f"is {earlier.state} at {earlier.file}:{earlier.line}, and {row.state} here"
        elif row.values != earlier.values:
            says = f"is declared differently at {earlier.file}:{earlier.line}"
        else:
            continue
        found.append(FileError(file=row.file, line=row.line, message=f"this {what} {says}; keep one"))
    return found


def _of_acl(row: ResourceRow) -> Reasons:
    values = {name: None if value is None else str(value) for name, value in row.values.items()}
    yield _principal(values["principal"])
    yield _one_of("permission", values["permission"], PERMISSIONS)
    yield _one_of("resource_type", values["resource_type"], [*OPERATIONS])
    yield _operation(values["operation"], values["resource_type"])
    yield _one_of("pattern_type", values["pattern_type"], PATTERN_TYPES)
    yield _name(values["resource_name"], values["resource_type"], prefixed=values["pattern_type"] == PREFIXED)
    # Brokers may have ACLs with any host, and it must be possible to remove them.
    yield None if row.state == ABSENT else host_reason(values["host"])
    yield state_reason(row.state)


def _principal(principal: str | None) -> str | None:
    if principal is None:
        return "principal is null; write User:name"
    if not principal.startswith(_USER) or principal == _USER:
        return f"principal is {principal}; Kafka's authorizer knows only User:name"
    return None


def _one_of(column: str, value: str | None, known: Collection[str]) -> str | None:
    names = ", ".join(known)
    if value is None:
        return f"{column} is null; write one of {names}"
    return None if value in known else f"{column} is {value}; write one of {names}"


def _operation(operation: str | None, resource_type: str | None) -> str | None:
    if operation is None:
        return "operation is null; write READ, WRITE, ..., or ALL"
    known = sorted({each for operations in OPERATIONS.values() for each in operations})
    if operation not in ("ALL", *known):
        return f"operation is {operation}; write one of {', '.join(known)}, ALL"
    legal = OPERATIONS.get(resource_type or "", known)
    if operation not in ("ALL", *legal):
        return f"operation {operation} does not apply to a {resource_type}; use {', '.join((*legal, 'ALL'))}"
    return None


def _name(name: str | None, resource_type: str | None, *, prefixed: bool) -> str | None:
    if name is None:
        return "resource_name is null"
    if name == "":
        return "resource_name is empty"
    if name == WILDCARD and prefixed:
        return "resource_name * with PREFIXED matches only names that begin with a *; for every name write LITERAL"
    if resource_type == "CLUSTER" and (name != CLUSTER_NAME or prefixed):
        return f"resource_name of a CLUSTER is {name}; write {CLUSTER_NAME}, LITERAL"
    if resource_type == "TOPIC" and name != WILDCARD and not _TOPIC.fullmatch(name):
        return f"resource_name is {name}, which is not a legal topic name or prefix"
    return None


def _of_quota(row: ResourceRow) -> Reasons:
    yield _entity(*(row.values[name] for name in ENTITY))
    limits = {name: value for name in LIMITS if isinstance(value := row.values[name], float)}
    for name, value in limits.items():
        yield _limit(name, value, of_ip=row.values["ip"] is not None)
    if row.state == "present" and not limits:
        yield "it has no limit; write one, or state absent to remove all"
    yield state_reason(row.state)


def _entity(user: object, client_id: object, ip: object) -> str | None:
    if user is None and client_id is None and ip is None:
        return "it names no user, client_id or ip; write one of them"
    if ip is not None and not (user is None and client_id is None):
        return "ip can't be combined with user or client_id"
    for name, value in zip(ENTITY, (user, client_id, ip), strict=True):
        if value == "":
            return f"{name} is empty; write a name, <default>, or null"
    return None


def _limit(name: str, value: float, *, of_ip: bool) -> str | None:
    said = f"{name} is {_as_spark_writes(value)}"
    if math.isnan(value) or value <= 0:
        return f"{said}; it must be above 0, or null for no limit"
    if math.isinf(value):
        return f"{said}; for no limit write null"
    if of_ip != (name == IP_LIMIT):
        return f"{said}; an ip can have only {IP_LIMIT}" if of_ip else f"{said}; only an ip can have it"
    if name in WHOLE_LIMITS and not (value.is_integer() and value <= _LARGEST):
        return f"{said}; it must be a whole number"
    return None


def _as_spark_writes(value: float) -> str:
    """Format a double as Spark's `cast("string")` does, which uses Java's form."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


_KINDS: Mapping[str, tuple[str, str, Callable[[ResourceRow], Reasons]]] = {
    ACLS.name: ("acl", "ACL", _of_acl),
    QUOTAS.name: ("quota", "entity", _of_quota),
}
"""By table: prefix of errors, name of a resource in errors, and the rules that a row can break by itself."""
