"""Rights that are declared and rights that there are, compared: each kind where it is, and nothing where it isn't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, frame, observed_rows, validated_rows
from topicledger.config.scope import ScopeSettings
from topicledger.config.settings import AuditSettings, Settings, TablesSettings
from topicledger.config.severities import SEVERITIES
from topicledger.drift.beside import find_resource_drift
from topicledger.drift.scoping import on_resources
from topicledger.model import Refusal
from topicledger.model.scope import Scope
from topicledger.naming import Sections
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.resources.acls import rows as acls
from topicledger.resources.acls.kind import KIND
from topicledger.resources.acls.names import AclDrift, AclSettings
from topicledger.resources.topics.drift.find import DRIFT_COLUMNS, Estate
from topicledger.schemas import ACLS, AUDIT, OBSERVED_ACLS, OBSERVED_CONFIGS

USUAL = {
    "cluster": "main", "permission": "ALLOW", "operation": "READ", "resource_type": "TOPIC", "pattern_type": "LITERAL",
    "host": "*",
}  # fmt: skip
SETTINGS = Settings(
    path=Path("drawn.toml"),
    tables=TablesSettings(root=""),
    clusters={},
    of_kinds=Sections([AclSettings(manage=("^User:managed",))]),
)


def right(principal: str, name: str, **given: Any) -> dict[str, Any]:
    return {**USUAL, "principal": f"User:{principal}", "resource_name": name, **given}


def found(
    spark: SparkSession,
    declared: Sequence[dict[str, Any]],
    live: Sequence[dict[str, Any]],
    settings: Settings = SETTINGS,
    statuses: dict[str, ListedStatus] | None = None,
) -> set[tuple[str | None, ...]]:
    """topic, kind, what, declared; topics `t` and `t.1` live, `declared` is only declared."""
    estate = Estate(
        cluster_ids={"main": "kafka-main"},
        topics=observed_rows(spark, {"topic": "t"}, {"topic": "t.1"}),
        configs=frame(spark, OBSERVED_CONFIGS.schema, []),
        earlier_configs=frame(spark, OBSERVED_CONFIGS.schema, []),
        audit=frame(spark, AUDIT.schema, []),
    )
    listed = Listed(
        rows=frame(spark, OBSERVED_ACLS.schema, live).drop("run_id"), statuses=statuses or {"main": ListedStatus()}
    )
    validated = frame(spark, ACLS.schema, declared).transform(acls.validate(["main"], None))
    manifests = validated_rows(spark, {"topic": "declared"})
    rows = validated.transform(find_resource_drift(KIND, estate, listed, manifests, settings))
    assert tuple(rows.columns) == DRIFT_COLUMNS
    told = dicts(rows)
    assert all(row["severity"] == settings.audit.severity[row["kind"]] for row in told)
    assert {row["cluster_id"] for row in told} <= {"kafka-main"}
    return {(row["topic"], row["kind"], row["what"], row["declared"]) for row in told}


@pytest.mark.thorough
def test_rights_as_declared_are_no_drift(spark: SparkSession) -> None:
    rights = [right("a", "t"), right("a", "t", operation="WRITE"), right("b", "declared"), right("c", "*")]
    stranger = right("stranger", "t")
    assert found(spark, rights, [*rights, stranger]) == set()


def test_missing_unmanaged_and_absent_rights(spark: SparkSession) -> None:
    declared = [right("a", "t"), right("b", "t.1", state="absent"), right("wrong", "t", operation="REED")]
    live = [right("b", "t.1"), right("managed-1", "t", operation="WRITE"), right("other", "t")]
    assert found(spark, declared, live) == {
        ("t", "acl_missing", "User:a ALLOW READ TOPIC LITERAL t *", "present"),
        ("t.1", "acl_unmanaged", "User:b ALLOW READ TOPIC LITERAL t.1 *", "absent"),
        ("t", "acl_unmanaged", "User:managed-1 ALLOW WRITE TOPIC LITERAL t *", None),
    }


@pytest.mark.thorough
def test_rights_that_are_wider_than_declared(spark: SparkSession) -> None:
    declared = [right("a", "t.1", host="10.0.0.1")]
    wide = [
        right("a", "t", pattern_type="PREFIXED"),
        right("a", "t.1", host="10.0.0.1", operation="ALL"),
        right("a", "*", host="10.0.0.1"),
    ]
    others = [right("a", "t.1", host="10.0.0.2"), right("a", "u", pattern_type="PREFIXED"), right("b", "*")]
    text = "User:a ALLOW READ TOPIC LITERAL t.1 10.0.0.1"
    assert found(spark, declared, [*declared, *wide, *others]) == {
        (None, "acl_wider", "User:a ALLOW READ TOPIC PREFIXED t *", text),
        ("t.1", "acl_wider", "User:a ALLOW ALL TOPIC LITERAL t.1 10.0.0.1", text),
        (None, "acl_wider", "User:a ALLOW READ TOPIC LITERAL * 10.0.0.1", text),
    }


@pytest.mark.thorough
def test_denies_that_hide_what_is_declared(spark: SparkSession) -> None:
    """A declared DENY is meant. READ implies DESCRIBE, without which no client gets metadata."""
    allowed, meant = right("a", "t", pattern_type="PREFIXED"), right("a", "t", permission="DENY")
    denies = [
        right("a", "t.1", permission="DENY", host="10.0.0.1"),
        right("*", "*", permission="DENY", operation="ALL"),
        right("a", "t.2", permission="DENY", operation="DESCRIBE"),
    ]
    others = [right("b", "t.1", permission="DENY"), right("a", "t", permission="DENY", operation="WRITE")]
    text = "User:a ALLOW READ TOPIC PREFIXED t *"
    assert found(spark, [allowed, meant], [allowed, meant, *denies, *others]) == {
        ("t.1", "acl_denied", "User:a DENY READ TOPIC LITERAL t.1 10.0.0.1", text),
        (None, "acl_denied", "User:* DENY ALL TOPIC LITERAL * *", text),
        ("t.2", "acl_denied", "User:a DENY DESCRIBE TOPIC LITERAL t.2 *", text),
    }
    describes = right("a", "t.2", operation="DESCRIBE")
    reads = [right("a", "t.2", permission="DENY", operation="READ")]
    kinds = {kind for _, kind, *_ in found(spark, [describes], [describes, *reads])}
    assert "acl_denied" not in kinds, "a DENY implies nothing"


@pytest.mark.thorough
def test_an_audit_of_an_owner_has_what_denies_its_acls_and_its_principals(spark: SparkSession) -> None:
    declared = [
        {**right("a", "t"), "state": "present", "owner": "mine"},
        {**right("b", "missing"), "state": "present", "owner": "mine"},
        {**right("c", "missing"), "state": "present", "owner": "theirs"},
    ]
    live = [right("a", "t"), right("*", "t", permission="DENY")]
    estate = Estate(
        cluster_ids={"main": "kafka-main"},
        topics=observed_rows(spark, {"topic": "t"}),
        configs=frame(spark, OBSERVED_CONFIGS.schema, []),
        earlier_configs=frame(spark, OBSERVED_CONFIGS.schema, []),
        audit=frame(spark, AUDIT.schema, []),
    )
    listed = Listed(rows=frame(spark, OBSERVED_ACLS.schema, live).drop("run_id"), statuses={"main": ListedStatus()})
    validated = frame(spark, ACLS.schema, declared).transform(acls.validate(["main"], None))
    rows = validated.transform(find_resource_drift(KIND, estate, listed, validated_rows(spark), SETTINGS))

    def kinds(**limits: Any) -> set[tuple[str, str]]:
        run: Any = SimpleNamespace(scope=Scope(**limits), settings=SETTINGS)
        mine = rows.transform(on_resources(run, KIND, estate, listed, validated))
        return {(row["kind"], row["what"].split()[0]) for row in dicts(mine)}

    of_b = {("acl_missing", "User:b"), ("acl_on_missing_topic", "User:b"), ("acl_principal_without_topics", "User:b")}
    assert kinds(owners=("Mine",)) == {("acl_denied", "User:*"), *of_b}
    assert kinds(resources=("^User:b ",)) == of_b
    assert kinds(topics=("^t$",)) == {("acl_denied", "User:*")}


@pytest.mark.thorough
def test_rights_on_topics_that_do_not_exist(spark: SparkSession) -> None:
    rights = [right("a", "gone"), right("a", "t"), right("b", "x", pattern_type="PREFIXED"), right("c", "g")]
    group = right("d", "g", resource_type="GROUP")
    assert found(spark, [*rights, group], [*rights, group]) == {
        ("gone", "acl_on_missing_topic", "User:a ALLOW READ TOPIC LITERAL gone *", "present"),
        ("g", "acl_on_missing_topic", "User:c ALLOW READ TOPIC LITERAL g *", "present"),
        (None, "acl_principal_without_topics", "User:b", None),
        (None, "acl_principal_without_topics", "User:c", None),
    }


def test_rights_that_may_not_be_listed_are_not_known_which_is_not_none(spark: SparkSession) -> None:
    statuses = {"main": ListedStatus(error=Refusal.NOT_PERMITTED, message="grant it")}
    assert found(spark, [right("a", "t")], [], statuses=statuses) == {(None, "not_permitted", "acls", None)}


def test_an_ignored_acl_that_denies_what_is_declared_is_found(spark: SparkSession) -> None:
    """Nobody but its owner may change it, but the declared ACL doesn't do what it says. Nothing else of theirs is."""
    settings = replace(SETTINGS, scope=ScopeSettings(of_kinds={"ignore_principals": (r"^User:\*$", "^User:managed-x")}))
    live = [right("a", "t"), right("*", "t", permission="DENY"), right("managed-x", "gone"), right("managed-xy", "t")]
    assert {(kind, declared) for _, kind, _, declared in found(spark, [right("a", "t")], live, settings)} == {
        ("acl_denied", "User:a ALLOW READ TOPIC LITERAL t *")
    }


@pytest.mark.thorough
def test_kinds_that_are_ignored_are_left_out(spark: SparkSession) -> None:
    severity = {kind: each for kind, each in SEVERITIES.items() if kind != AclDrift.ACL_MISSING}
    assert found(spark, [right("a", "t")], [], replace(SETTINGS, audit=AuditSettings(severity=severity))) == set()
