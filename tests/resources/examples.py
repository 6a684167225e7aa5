"""One record of examples for each kind of resource: all that the tests of this folder need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.fault.proxy import ALTER_CLIENT_QUOTAS, ALTER_CONFIGS, CREATE_ACLS
from topicledger.model import Target
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A kind's rows, by the name of a resource."""

    table: str
    key: Callable[[str], Row]
    """The columns that name a resource."""
    text: Callable[[str], str]
    """Its name in `plans` and `audit`."""
    values: Row
    """Its other columns; none if the name says everything."""
    others: Row | None
    """Other values for it; None if there are none."""
    refused: Row
    """Columns that make a row one that a run refuses by itself."""
    error: str
    """The error of such a row."""
    adds: str
    alters: str | None
    removes: str
    """Actions."""
    undeclared: str
    """The decision on a live resource that no row declares, if the settings manage all of them."""
    planned: Callable[[str], Mapping[str, str]]
    """`after` of a plan that adds it."""
    planned_others: Mapping[str, str] | None
    """The same for `others`."""
    request: int
    """The API key of the request that adds it."""
    changed_meanwhile: tuple[str, str | None]
    """The phase, outcome and error of an action whose resource another client gave other values, or the same ones."""

    @property
    def kind(self) -> ResourceKind:
        (kind,) = (each for each in KINDS if each.table.name == self.table)
        return kind

    def target(self, name: str, *, adds: bool = True, **more: Any) -> Target:
        """A planned action that adds the resource, or removes it."""
        values = self.planned(name)
        before, after = ({}, values) if adds else (values, {})
        return Target(
            resource=self.text(name), action=self.adds if adds else self.removes, before=before, after=after, **more
        )

    def by_another(self, name: str, *, adds: bool = True) -> Target:
        """The action of another client: it gives the resource other values, or adds it likewise."""
        target = self.target(name, adds=adds)
        if self.planned_others is None:
            return target
        return replace(target, **{"after" if adds else "before": self.planned_others})

    def row(self, name: str, values: Row | None = None, **more: Any) -> dict[str, Any]:
        """A row of the table."""
        return {**self.key(name), **(self.values if values is None else values), **more}

    def absent(self, name: str) -> dict[str, Any]:
        return {**self.key(name), "state": "absent"}


def _acl(name: str) -> Row:
    return {
        "principal": f"User:rights-{name}",
        "permission": "ALLOW",
        "operation": "READ",
        "resource_type": "TOPIC",
        "pattern_type": "LITERAL",
        "resource_name": "kinds",
        "host": "*",
    }


EXAMPLES = (
    Example(
        table="acls",
        key=_acl,
        text=lambda name: " ".join(_acl(name).values()),
        values={},
        others=None,
        refused={"operation": "CREATE_TOKENS"},
        error="INVALID_ACL",
        adds="acl_add",
        alters=None,
        removes="acl_delete",
        undeclared="acl_delete",
        planned=_acl,
        planned_others=None,
        request=CREATE_ACLS,
        changed_meanwhile=("apply skipped", None),
    ),
    Example(
        table="quotas",
        key=lambda name: {"user": name},
        text=lambda name: f"user={name}",
        values={"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        others={"producer_byte_rate": 2000.0},
        refused={"producer_byte_rate": -1.0},
        error="INVALID_QUOTA",
        adds="alter_quota",
        alters="alter_quota",
        removes="alter_quota",
        undeclared="unmanaged",
        planned=lambda _: {"producer_byte_rate": "1000", "request_percentage": "12.5"},
        planned_others={"producer_byte_rate": "2000"},
        request=ALTER_CLIENT_QUOTAS,
        changed_meanwhile=("apply refused", "CHANGED_SINCE_PLAN"),
    ),
    Example(
        table="group_configs",
        key=lambda name: {"group": name},
        text=lambda name: name,
        values={"configs": {"consumer.session.timeout.ms": "46000", "share.isolation.level": "read_committed"}},
        others={"configs": {"consumer.session.timeout.ms": "47000"}},
        refused={"configs": {}},
        error="INVALID_GROUP_CONFIG",
        adds="alter_group_configs",
        alters="alter_group_configs",
        removes="alter_group_configs",
        undeclared="unmanaged",
        planned=lambda _: {"consumer.session.timeout.ms": "46000", "share.isolation.level": "read_committed"},
        planned_others={"consumer.session.timeout.ms": "47000"},
        request=ALTER_CONFIGS,
        changed_meanwhile=("apply refused", "CHANGED_SINCE_PLAN"),
    ),
)
