"""Policies of rights are asked again before a saved plan is applied: what they don't allow any more isn't sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.broker.acls import acl, change, declare, estate_of, live, right
from topicledger.config.settings import PolicySettings, PolicySpec
from topicledger.policies import Facts, SetRule
from topicledger.schemas import AUDIT
from topicledger_testing.embedded_kafka import EmbeddedKafka

FORBIDDEN: list[str] = []


def none_of_the_forbidden() -> SetRule:
    """A rule of a user's own, which becomes stricter without a word in the settings."""

    def rule(rights: DataFrame, facts: Facts) -> DataFrame:
        found = F.col("acl.principal").isin(*FORBIDDEN)
        return rights.withColumn("reason", F.when(found, F.lit("this principal is forbidden by now")))

    return rule


@pytest.mark.thorough
def test_a_saved_plan_is_applied_but_for_the_rights_that_policies_refuse_by_now(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """The owner of a topic changed, another hand used up what a principal may have, a rule of the user's own became
    stricter: each ends the rows that it is about, and nothing else."""
    estate = estate_of(spark, kafka_acls, tmp_path)
    specs = (
        PolicySpec(use="acl_owner", options={"undeclared": "allow"}),
        PolicySpec(use="max_acls_per_principal", options={"max": 2}),
        PolicySpec(use=f"{__name__}:none_of_the_forbidden"),
    )
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"acl": specs}))
    topics = [{"topic": f"rights.{name}", "owner": "a", "num_partitions": 1} for name in ("kept", "given")]
    estate.declare(*topics)
    rights = [
        right("User:rights-kept", "READ", "rights.kept", owner="a"),
        right("User:rights-given", "READ", "rights.given", owner="a"),
        right("User:rights-many", "READ", "rights.kept", owner="a"),
        right("User:rights-forbidden", "READ", "rights.kept", owner="a"),
    ]
    declare(estate, *rights)
    planned = estate.run("plan", "saved", only=("acls",))
    assert (planned.exit_code, planned.pending_changes) == (0, 4)

    estate.declare_anew(topics[0], {**topics[1], "owner": "b"})
    change(kafka_acls, add=[acl(right("User:rights-many", each, "rights.other")) for each in ("READ", "WRITE")])
    FORBIDDEN.append("User:rights-forbidden")
    done = estate.run("apply", "saved", only=("acls",))
    assert (done.exit_code, done.outcomes()) == (4, {"ok": 1, "refused": 3})
    assert not live(kafka_acls, "User:rights-given") | live(kafka_acls, "User:rights-forbidden")
    assert live(kafka_acls, "User:rights-kept") == {acl(rights[0])}
    assert acl(rights[2]) not in live(kafka_acls, "User:rights-many")
    refused = {row["resource"].split()[0]: row for row in estate.rows(AUDIT, "saved") if row["outcome"] == "refused"}
    assert {row["phase"] for row in refused.values()} == {"apply"}
    assert {row["error"] for row in refused.values()} == {"POLICY_VIOLATION"}
    assert {who: [each["policy"] for each in row["violations"]] for who, row in refused.items()} == {
        "User:rights-given": ["acl_owner"],
        "User:rights-many": ["max_acls_per_principal"],
        "User:rights-forbidden": [f"{__name__}:none_of_the_forbidden"],
    }
    estate.check_invariant("saved")
    FORBIDDEN.clear()


@pytest.mark.thorough
def test_acls_of_a_plan_from_earlier_manifests_are_evaluated_with_the_owners_of_then(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """The topic has a new owner by now, so a plan of the latest manifests is refused."""
    estate = estate_of(spark, kafka_acls, tmp_path)
    specs = (PolicySpec(use="acl_owner", options={"undeclared": "allow"}),)
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"acl": specs}))
    topic = {"topic": "rights.sold", "num_partitions": 1}
    estate.declare({**topic, "owner": "a"})
    own = right("User:rights-sold", "READ", "rights.sold", owner="a")
    declare(estate, own)
    at = datetime.now(UTC)
    estate.declare_anew({**topic, "owner": "b"})
    refused = estate.run("plan", "by-latest", only=("acls",))
    assert (refused.exit_code, refused.pending_changes) == (4, 0)
    planned = estate.run("plan", "by-earlier", manifests=at, only=("acls",))
    assert (planned.exit_code, planned.pending_changes) == (0, 1)
    done = estate.run("apply", "by-earlier", only=("acls",))
    assert (done.exit_code, done.outcomes()) == (0, {"ok": 1})
    assert live(kafka_acls, "User:rights-sold") == {acl(own)}
