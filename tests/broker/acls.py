"""Rows of `acls`, and what became of them on a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.broker.direct import admin_of, settings_for
from tests.harness import Estate
from topicledger.config.guards import GuardSettings
from topicledger.model import Target
from topicledger.naming import Sections
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction, AclSettings
from topicledger.schemas import ACLS, AUDIT
from topicledger_testing.embedded_kafka import EmbeddedKafka


def right(principal: str, operation: str, name: str, **values: Any) -> dict[str, Any]:
    """A row of `acls`: a right on a topic, unless said otherwise."""
    return {"principal": principal, "operation": operation, "resource_type": "TOPIC", "resource_name": name, **values}


def acl(row: Mapping[str, Any]) -> Acl:
    """The ACL that a row asks for."""
    defaults = {"permission": "ALLOW", "pattern_type": "LITERAL", "host": "*"}
    return Acl.of({**defaults, **{name: row[name] for name in Acl._fields if name in row}})


def pair(user: str, **of_deny: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """An ALLOW on a prefix, and the DENY on one of its topics."""
    allow = right(f"User:rights-{user}", "READ", "a-pay.", pattern_type="PREFIXED")
    return allow, right(f"User:rights-{user}", "ALL", "a-pay.secret", permission="DENY", **of_deny)


def sent(estate: Estate, run_id: str, user: str) -> list[str]:
    """The permissions of a user's two actions, one of which was answered before the other was sent."""
    rows = [
        row
        for row in estate.rows(AUDIT, run_id)
        if f"User:rights-{user} " in row["resource"] and row["phase"] == "apply"
    ]
    first, second = sorted(rows, key=lambda row: row["completed_at"])
    assert first["completed_at"] <= second["requested_at"]
    return [row["resource"].split()[1] for row in (first, second)]


def estate_of(spark: SparkSession, kafka: EmbeddedKafka, root: Path, user: str | None = None, **acls: Any) -> Estate:
    """An estate whose run is `user`, the super user where none is named; `acls`: settings and max_acl_deletes."""
    estate = Estate(spark, root / "ledger", {"main": settings_for("main", kafka, user)})
    guards = GuardSettings(of_kinds={"max_acl_deletes": acls.pop("max_acl_deletes", 0)})
    estate.settings = replace(estate.settings, of_kinds=Sections([AclSettings(**acls)]), guards=guards)
    return estate


def declare(estate: Estate, *rows: Mapping[str, Any]) -> None:
    """Make `acls` say these rows and nothing else."""
    estate.ledger.ensure(ACLS)
    complete = [{"cluster": "main", **row} for row in rows]
    frame = estate.ledger.rows(ACLS, complete)
    frame.write.format("delta").mode("overwrite").save(estate.ledger.location(ACLS))


def live(kafka: EmbeddedKafka, begins: str) -> set[Acl]:
    """The cluster's ACLs of principals that begin so."""
    with admin_of(kafka) as admin:
        return {each for each in acl_requests.describe_acls(admin) if each.principal.startswith(begins)}


def outcomes(estate: Estate, run_id: str) -> dict[tuple[str, str], Sequence[tuple[str, str | None]]]:
    """By action and resource: phases with their outcomes and errors, in order."""
    found: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
    for row in sorted(estate.rows(AUDIT, run_id), key=lambda row: row["completed_at"]):
        assert row["resource_type"] == "acl"
        assert row["topic"] is None
        found.setdefault((row["action"], row["resource"]), []).append(
            (f"{row['phase']} {row['outcome']}", row["error"])
        )
    return found


def change(kafka: EmbeddedKafka, *, add: list[Acl] | None = None, remove: list[Acl] | None = None) -> None:
    """By another hand."""
    with admin_of(kafka) as admin:
        for acls, adds in ((add or [], True), (remove or [], False)):
            action = AclAction.ACL_ADD if adds else AclAction.ACL_DELETE
            values = [{"after" if adds else "before": each._asdict()} for each in acls]
            targets = [Target(resource=str(n), action=action, **each) for n, each in enumerate(values)]
            if targets:
                (acl_requests.create_acls if adds else acl_requests.delete_acls)(admin, targets)
