"""Policies for quotas say what is broken, of the entities whose quotas a run alters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import dicts, frame, policy_facts
from topicledger import policies
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings, PolicySpec, Settings, TablesSettings
from topicledger.observe.listed import Listed, ListedStatus
from topicledger.observe.topics import ClusterStatus
from topicledger.policies import Policy, built_in
from topicledger.resources import building
from topicledger.resources.quotas import rows as quotas
from topicledger.resources.quotas.kind import KIND
from topicledger.resources.quotas.names import QuotaAction
from topicledger.resources.quotas.policies import SUBJECT
from topicledger.schemas import OBSERVED_QUOTAS
from topicledger.schemas import QUOTAS as TABLE

Rows = Sequence[Mapping[str, Any]]


def decided(spark: SparkSession, rules: Sequence[Policy], declared: Rows, live: Rows = (), most: int = 100) -> Any:
    """By resource, the decision that a run comes to."""
    settings = Settings(
        path=Path("drawn.toml"),
        tables=TablesSettings(root=""),
        clusters={},
        guards=GuardSettings(of_kinds={"max_quota_changes": most}),
    )
    rows = frame(spark, TABLE.schema, [{"cluster": "main", **row} for row in declared])
    there = frame(spark, OBSERVED_QUOTAS.schema, [{"cluster": "main", **row} for row in live]).drop("run_id")
    listed = Listed(rows=there, statuses={"main": ListedStatus()})
    validated = rows.transform(quotas.validate(["main"], None))
    validated_by = policies.evaluate(rules, policy_facts(spark), SUBJECT)
    statuses = {"main": ClusterStatus(cluster_id="kafka-main")}
    return {
        row["resource"]: row
        for row in dicts(validated.transform(KIND.deciding.decide(listed, statuses, settings, validated_by)))
    }


def ours(use: str, **settings: Any) -> Policy:
    return Policy(
        name=use,
        action=QuotaAction.ALTER_QUOTA,
        rule=built_in.BUILT_IN[QuotaAction.ALTER_QUOTA][use](**settings),
        settings=settings,
    )


def refused(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: row["error_message"] for name, row in found.items() if row["phase"] == "policy"}


@pytest.mark.thorough
def test_limits_are_in_the_range_of_the_entities_that_it_is_about(spark: SparkSession) -> None:
    rule = ours("quota_range", limit="producer_byte_rate", min=10, max=1000.5, users=["^app-"])
    declared = [
        {"user": "app-low", "producer_byte_rate": 9.0},
        {"user": "app-high", "client_id": "c", "producer_byte_rate": 1001.0},
        {"user": "app-fine", "producer_byte_rate": 1000.0, "consumer_byte_rate": 5000.0},
        {"user": "app-without", "consumer_byte_rate": 5000.0},
        {"user": "other", "producer_byte_rate": 1.0},
        {"client_id": "app-", "producer_byte_rate": 1.0},
    ]
    assert refused(decided(spark, [rule], declared)) == {
        "user=app-low": "quota_range: producer_byte_rate is 9; allowed is 10 to 1000.5",
        "user=app-high client-id=c": "quota_range: producer_byte_rate is 1001; allowed is 10 to 1000.5",
    }


def test_all_limits_of_altered_entities_are_evaluated(spark: SparkSession) -> None:
    rule = ours("quota_range", limit="request_percentage", max=50)
    live = [
        {"user": "kept", "request_percentage": 90.0},
        {"user": "changed", "request_percentage": 90.0},
        {"user": "gone", "request_percentage": 90.0},
        {"user": "stranger", "request_percentage": 90.0},
    ]
    declared = [
        {"user": "kept", "request_percentage": 90.0},
        {"user": "changed", "request_percentage": 90.0, "producer_byte_rate": 1.0},
        {"user": "gone", "state": "absent"},
    ]
    found = decided(spark, [rule], declared, live)
    assert refused(found) == {"user=changed": "quota_range: request_percentage is 90; allowed is any to 50"}
    assert {name: row["decision"] for name, row in found.items()} == {
        "user=kept": "unchanged",
        "user=changed": "alter_quota",
        "user=gone": "alter_quota",
        "user=stranger": "unmanaged",
    }


def test_an_ip_in_another_notation_passes_no_pattern(spark: SparkSession) -> None:
    """Brokers resolve texts of addresses, so 167772161 limits 10.0.0.1."""
    rule = ours("quota_range", limit="connection_creation_rate", max=50, ips=["^10\\."])
    others = ["167772161", "::ffff:10.0.0.1", "10.1", "app.example.org", "10.0.0.1"]
    fine = ["11.0.0.1", "<default>", "2001:db8:0:0:0:0:0:1"]
    declared = [{"ip": each, "connection_creation_rate": 1e6} for each in (*others, *fine)]
    assert refused(decided(spark, [rule], declared, [])).keys() == {f"ip={each}" for each in others}


def test_a_limit_that_is_required_is_there_but_for_entities_that_go(spark: SparkSession) -> None:
    rule = ours("quota_range", limit="connection_creation_rate", required=True, ips=["."])
    users = ours("quota_range", limit="consumer_byte_rate", required=True, max=7, users=["^<default>$"])
    live = [{"user": "<default>", "consumer_byte_rate": 5.0}, {"ip": "10.0.0.1", "connection_creation_rate": 1.0}]
    declared = [{"user": "<default>", "producer_byte_rate": 5.0}, {"ip": "10.0.0.1", "state": "absent"}]
    found = refused(decided(spark, [rule, users], declared, live))
    assert found == {
        "user=<default>": "quota_range: consumer_byte_rate is not set, so nothing limits it; allowed is any to 7"
    }


@pytest.mark.thorough
def test_refused_changes_do_not_count_for_the_guard(spark: SparkSession) -> None:
    rule = ours("quota_range", limit="producer_byte_rate", max=10)
    declared = [{"user": "a", "producer_byte_rate": 5.0}, {"user": "b", "producer_byte_rate": 50.0}]
    assert decided(spark, [rule], declared, most=1)["user=a"]["phase"] is None
    assert decided(spark, [], declared, most=1)["user=a"]["error"] == "MAX_QUOTA_CHANGES_EXCEEDED"


@pytest.mark.thorough
def test_owners_labels_and_scopes_are_those_of_the_row(spark: SparkSession) -> None:
    owned = ours("owner_required", values=["shop"])
    labelled = replace(ours("labels_required", names=["ticket"]), owners=("shop",))
    declared = [
        {"user": "a", "producer_byte_rate": 5.0, "owner": "Shop"},
        {"user": "b", "producer_byte_rate": 5.0, "owner": "shop", "labels": {"ticket": "T-1"}},
        {"user": "c", "producer_byte_rate": 5.0},
    ]
    assert set(refused(decided(spark, [owned], declared))) == {"user=c"}
    assert set(refused(decided(spark, [labelled], declared))) == {"user=a"}


@pytest.mark.thorough
def test_a_users_own_policy_sees_every_entity_and_may_only_warn(spark: SparkSession) -> None:
    def rule(rows: DataFrame, facts: Any) -> DataFrame:
        assert rows.columns == list(SUBJECT.columns)
        wide = F.col("asked") & F.col("user").eqNullSafe("<default>") & (F.size("live_limits") == 0)
        return rows.withColumn("reason", F.when(wide, F.lit("no default is set here")))

    own = Policy(name="m:own", action=QuotaAction.ALTER_QUOTA, rule=rule, users_own=True)
    declared = [{"user": "<default>", "producer_byte_rate": 5.0}, {"user": "b", "producer_byte_rate": 5.0}]
    found = decided(spark, [own], declared, [{"user": "stranger", "producer_byte_rate": 1.0}])
    assert refused(found) == {"user=<default>": "no default is set here"}
    warned = decided(spark, [replace(own, mode="warn")], declared)
    assert refused(warned) == {}
    assert [each["message"] for each in warned["user=<default>"]["violations"] if each["warns"]] == [
        "no default is set here"
    ]


WRONG: Sequence[tuple[Mapping[str, Any], str]] = [
    ({"limit": "producer_byte_rate"}, "give min or max, or required = true"),
    ({"limit": "producer_byte_rate", "max": 0}, "max must be above 0"),
    ({"limit": "producer_byte_rate", "min": float("nan")}, "min must be a finite number"),
    ({"limit": "producer_byte_rate", "min": 2, "max": 1}, "min must not be above max"),
    ({"limit": "bytes", "max": 1}, "`limit` must be 'producer_byte_rate' or"),
    ({"limit": "producer_byte_rate", "max": 1, "users": ["("]}, "is not valid in RE2"),
    ({"limit": "producer_byte_rate", "maximum": 1}, "unknown setting `maximum`"),
]


@pytest.mark.parametrize(("options", "problem"), WRONG)
def test_settings_of_a_policy_that_are_wrong_are_refused(
    spark: SparkSession, options: Mapping[str, Any], problem: str
) -> None:
    spec = PolicySpec(use="quota_range", options=options, where="policies.quota[1]")
    settings = Settings(
        path=Path("s.toml"),
        tables=TablesSettings(root=""),
        clusters={},
        policies=PolicySettings(of_kinds={"quota": (spec,)}),
    )
    with pytest.raises(Exception, match=r"policies\.quota") as error:
        building.from_settings(settings)
    assert problem in str(error.value)
