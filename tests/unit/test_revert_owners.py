"""Owners of what `runs revert` undoes: by the current rows, and else by those of the reverted run."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.unit.frames import dicts, validated_rows
from topicledger.model.scope import Scope
from topicledger.plan.revert_resources import _with_owners
from topicledger.resources.acls.kind import KIND as ACLS
from topicledger.resources.topics.plan.revert import _as_manifests


def test_topics_without_a_row_belong_to_their_owner_of_then(spark: SparkSession) -> None:
    """Without that, `runs revert --owner` would leave out what its own removed rows have caused."""
    rows = [("same", "a"), ("removed", "a"), ("given away", "a"), ("given up", "a"), ("never owned", None)]
    done = spark.createDataFrame(
        [("main", topic, "create", True, None, owner) for topic, owner in rows]
        + [("main", "maybe created", "create", True, "lost 8 times", "a")],
        "cluster string, topic string, action string, known boolean, failed string, owner string",
    )
    declared = validated_rows(
        spark, {"topic": "same", "owner": "a"}, {"topic": "given away", "owner": "b"}, {"topic": "given up"}
    )
    found = dicts(_as_manifests(done, declared, deletes=True))
    owners = {"same": "a", "removed": "a", "given away": "b", "given up": None, "never owned": None}
    owners["maybe created"] = "a"
    assert {row["topic"]: row["owner"] for row in found} == owners
    assert {row["topic"] for row in found if row["state"] != "absent"} == {"maybe created"}


def test_removed_acls_that_no_row_declared_have_owners(spark: SparkSession) -> None:
    """Those of an earlier plan, and those who declare ACLs of the same principal."""
    removed = [("planned", "User:p"), ("held", "User:h"), ("both", "User:h"), ("foreign", "User:f")]
    done = spark.createDataFrame(
        [("main", resource, None, {"principal": name}, {}, None) for resource, name in removed]
        + [("main", "declared", "then", {"principal": "User:p"}, {}, ("now", None))],
        "cluster string, resource string, owner string, before map<string,string>, after map<string,string>, "
        "_declared struct<owner:string,labels:map<string,string>>",
    )
    plans = spark.createDataFrame(
        [("main", "acl", "planned", "old", 1), ("main", "acl", "planned", "last", 2), ("main", "acl", "both", "x", 1)],
        "cluster string, resource_type string, resource string, owner string, planned_at int",
    )
    rows = spark.createDataFrame(
        [("main", "User:h", "a"), ("main", "User:h", "b"), ("other", "User:f", "c")],
        "cluster string, principal string, owner string",
    )

    def owners(*asked: str, barred: tuple[str, ...] = ()) -> dict[str, str | None]:
        found = dicts(_with_owners(plans, rows, ACLS, Scope(owners=asked, barred=barred))(done))
        return {row["resource"]: row["owner"] for row in found}

    anybody = {"planned": "last", "held": "a", "both": "x", "foreign": None, "declared": "now"}
    assert owners() == anybody
    assert owners(" B") == {**anybody, "held": "b", "both": "b"}
    # Nobody reverts an ACL of an owner whose resources they may not plan.
    assert owners("a", barred=("b",)) == {**anybody, "held": "b", "both": "b"}
