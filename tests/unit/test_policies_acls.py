"""Policies for rights say what is broken, on the ACLs that a run adds."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, MapType, StringType, StructField, StructType

from tests.unit.frames import dicts, frame, policy_facts
from topicledger import policies
from topicledger.phases import VIOLATIONS
from topicledger.policies import Policy, built_in
from topicledger.resources.acls.names import AclAction
from topicledger.resources.acls.policies import SUBJECT
from topicledger.schemas import ACL_KEY

_ACL = StructType([StructField(name, StringType()) for name in ACL_KEY])
_ROWS = StructType(
    [
        *(StructField(name, StringType()) for name in ("cluster", "cluster_id", "resource", "decision", "state")),
        StructField("acl", _ACL),
        StructField("owner", StringType()),
        StructField("labels", MapType(StringType(), StringType())),
        *(StructField(name, BooleanType()) for name in ("live", "validated", "waits")),
        *(StructField(name, StringType()) for name in ("phase", "outcome", "error", "error_message")),
        StructField("violations", VIOLATIONS),
    ]
)
USUAL = {
    "principal": "User:a", "permission": "ALLOW", "operation": "READ", "resource_type": "TOPIC",
    "pattern_type": "LITERAL", "resource_name": "orders", "host": "*",
}  # fmt: skip


def right(text: str, **given: Any) -> dict[str, Any]:
    """A decision about a right, by default to add it."""
    row = {"cluster": "main", "resource": text, "decision": "acl_add", "live": False, "validated": True, "waits": False}
    row["acl"] = {**USUAL, **{name: given.pop(name) for name in ACL_KEY if name in given}}
    return {**row, **given}


def evaluated(rows: DataFrame, use: str, facts: Any, **settings: Any) -> dict[str, str | None]:
    """By resource, why it is refused."""
    rule = built_in.BUILT_IN[AclAction.ACL_ADD][use](**settings)
    policy = Policy(name=use, action=AclAction.ACL_ADD, rule=rule)
    found = dicts(rows.transform(policies.evaluate([policy], facts, SUBJECT)))
    assert all((row["phase"], row["error"]) in [("policy", "POLICY_VIOLATION"), (None, None)] for row in found)
    return {row["resource"]: row["error_message"] for row in found}


FORBIDDEN = [
    ({"principals": ["^User:\\*$"]}, {"everyone"}),
    ({"operations": ["ALTER"], "resource_types": ["CLUSTER"]}, {"cluster"}),
    ({"names": ["^\\*$"]}, {"all topics"}),
    ({"names": ["^secret"]}, {"all topics"}),
    ({"principals": ["^User:guest$"]}, {"everyone"}),
    ({"pattern_types": ["PREFIXED"]}, {"prefix"}),
    ({"principals": ["^User:a$"], "permissions": ["DENY"]}, {"deny"}),
]


@pytest.mark.parametrize(("settings", "refused"), FORBIDDEN)
def test_rights_that_fit_all_that_is_given_are_forbidden(
    spark: SparkSession, settings: dict[str, Any], refused: set[str]
) -> None:
    rows = [
        right("fine"),
        right("everyone", principal="User:*"),
        right("cluster", operation="ALL", resource_type="CLUSTER", resource_name="kafka-cluster"),
        right("all topics", resource_name="*"),
        right("prefix", pattern_type="PREFIXED"),
        right("deny", permission="DENY"),
        right("there", principal="User:*", decision="unchanged", live=True),
    ]
    found = evaluated(frame(spark, _ROWS, rows), "acl_forbidden", policy_facts(spark), **settings)
    assert {name for name, reason in found.items() if reason} == refused


def test_only_the_owner_of_a_topic_grants_on_it(spark: SparkSession) -> None:
    rows = [
        right("own", owner=" Shop"),
        right("other's", owner="b"),
        right("no owner"),
        right("own prefix", owner="shop", pattern_type="PREFIXED", resource_name="orders"),
        right("wide prefix", owner="shop", pattern_type="PREFIXED", resource_name="o"),
        right("all", owner="shop", resource_name="*"),
        right("undeclared", owner="shop", resource_name="else"),
        right("gone", owner="shop", resource_name="orders.gone"),
        right("group", owner="b", resource_type="GROUP"),
        right("other's gone", owner="shop", resource_name="other.gone"),
        right("other's wrong", owner="shop", resource_name="other.w", pattern_type="PREFIXED"),
    ]
    declared = [
        {"topic": "orders", "owner": "shop"},
        {"topic": "orders.new", "owner": "SHOP"},
        {"topic": "other", "owner": "b"},
        {"topic": "orders.gone", "owner": "shop", "state": "absent"},
        {"topic": "other.gone", "owner": "b", "state": "absent"},
        {"topic": "other.wrong", "owner": "b", "state": "Present"},
    ]
    facts = policy_facts(spark, manifests=declared)
    found = evaluated(frame(spark, _ROWS, rows), "acl_owner", facts)
    assert {name for name, reason in found.items() if not reason} == {"own", "own prefix", "group"}
    assert "topic orders belongs to shop" in str(found["other's"])
    assert "has no owner" in str(found["no owner"])
    assert "topic other belongs to b" in str(found["wide prefix"])
    assert "topic other.gone belongs to b" in str(found["other's gone"]), "it may live, with its records"
    assert "topic other.wrong belongs to b" in str(found["other's wrong"])
    assert found["undeclared"] == found["gone"]
    assert "no manifest declares" in str(found["gone"])
    allowed = evaluated(frame(spark, _ROWS, rows), "acl_owner", facts, undeclared="allow")
    assert {name for name in found if found[name] and not allowed[name]} == {"undeclared", "gone"}


def test_acls_per_principal_are_limited_and_removals_make_room(spark: SparkSession) -> None:
    rows = [
        right("1", decision="unmanaged", live=True),
        right("2", decision="acl_delete", live=True),
        right("3", decision="acl_delete", live=True, phase="guard", error=None),
        right("4"),
        right("5"),
        right("6", principal="User:b"),
    ]
    frames = frame(spark, _ROWS, rows)
    rule = built_in.BUILT_IN[AclAction.ACL_ADD]["max_acls_per_principal"](max=3)
    policy = Policy(name="p", action=AclAction.ACL_ADD, rule=rule)
    found = dicts(frames.transform(policies.evaluate([policy], policy_facts(spark), SUBJECT)))
    assert {row["resource"] for row in found if row["phase"] == "policy"} == {"5"}


def test_a_deny_says_why(spark: SparkSession) -> None:
    rows = [
        right("allow"),
        right("deny", permission="DENY"),
        right("said", permission="DENY", labels={"reason": "INC-1"}),
    ]
    found = evaluated(frame(spark, _ROWS, rows), "deny_needs_label", policy_facts(spark))
    assert {name for name, reason in found.items() if reason} == {"deny"}


def test_a_users_own_policy_evaluates_acls(spark: SparkSession) -> None:
    def rule(rights: DataFrame, facts: Any) -> DataFrame:
        return rights.withColumn("reason", F.when(F.col("asked") & (F.col("acl.host") == "*"), F.lit("any host")))

    policy = Policy(name="m:own", action=AclAction.ACL_ADD, rule=rule, users_own=True)
    rows = frame(spark, _ROWS, [right("any"), right("one", host="10.0.0.1")])
    found = dicts(rows.transform(policies.evaluate([policy], policy_facts(spark), SUBJECT)))
    assert {row["resource"]: row["violations"] for row in found}["one"] is None
    assert {row["resource"]: row["error_message"] for row in found}["any"] == "any host"
