"""The rules of `rows.row_rules` for rows of files, which are checked before there is a Spark session (A3, A4).

tests/properties/test_row_rules.py compares what both find in a row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from topicledger.manifests.file_rows import state_reason, visible
from topicledger.manifests.files import ResourceRow
from topicledger.manifests.rows import ABSENT
from topicledger.resources.acls.acl import CLUSTER_NAME, OPERATIONS, PATTERN_TYPES, PERMISSIONS, PREFIXED, WILDCARD
from topicledger.resources.acls.hosts import host_reason

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_USER = "User:"


def reasons(row: ResourceRow) -> Iterator[str | None]:
    """Yield the reason of each rule, None if the row keeps it."""
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
        return f"principal is {visible(principal)}; Kafka's authorizer knows only User:name"
    return None


def _one_of(column: str, value: str | None, known: Collection[str]) -> str | None:
    names = ", ".join(known)
    if value is None:
        return f"{column} is null; write one of {names}"
    return None if value in known else f"{column} is {visible(value)}; write one of {names}"


def _operation(operation: str | None, resource_type: str | None) -> str | None:
    if operation is None:
        return "operation is null; write READ, WRITE, ..., or ALL"
    known = sorted({each for operations in OPERATIONS.values() for each in operations})
    if operation not in ("ALL", *known):
        return f"operation is {visible(operation)}; write one of {', '.join(known)}, ALL"
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
        return f"resource_name of a CLUSTER is {visible(name)}; write {CLUSTER_NAME}, LITERAL"
    if resource_type == "TOPIC" and name != WILDCARD and not _TOPIC.fullmatch(name):
        hint = "; for a prefix write PREFIXED without the *" if name.endswith(WILDCARD) else ""
        return f"resource_name is {visible(name)}, which is not a legal topic name or prefix{hint}"
    return None
