"""Effects of mistakes in `acls`, replacements and earlier manifests on the ACLs of a broker with StandardAuthorizer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.acls import acl, change, declare, estate_of, live, outcomes, pair, right, sent
from tests.broker.direct import admin_of
from tests.clusters import KAFKA, SASL_USERS, QuickKafka
from topicledger.config.settings import PolicySettings, PolicySpec
from topicledger.resources.acls import requests as acl_requests
from topicledger.schemas import PLANS, QUOTAS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions


def test_mistakes_take_no_acl_and_replacements_come_first(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = estate_of(spark, kafka_acls, tmp_path, manage=("^User:rights-k",), max_acl_deletes=10)
    before = [
        right("User:rights-k1", "READ", "rights.one"),
        right("User:rights-k2", "READ", "rights.two"),
        right("User:rights-k3", "ALL", "rights.three"),
        right("User:rights-k4", "ALL", "rights.four"),
        right("User:rights-k6", "ALL", "rights.six"),
    ]
    _, mistaken, failed, replaced, narrowed = before
    declare(estate, *before)
    assert estate.run().outcomes() == {"ok": 5}

    warns = PolicySpec(use="acl_forbidden", mode="warn", options={"operations": ["WRITE"]})
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"acl": (warns,)}))
    odd = right("User:rights-k5*", "READ", "rights.five")
    parts = [{**old, "operation": each} for old in (failed, replaced) for each in ("READ", "WRITE")]
    # An ALLOW waits for its DENY, which is added, refused, or gone by the time of the apply.
    both, wrong, gone = pair("k7"), pair("k8", host="app01.example.org"), pair("k9")
    pairs = [*both, *wrong, *gone]
    change(kafka_acls, add=[acl(gone[1])])
    declare(estate, {**mistaken, "host": "app01.example.org"}, *parts, odd, *pairs)
    planned = estate.run("plan", "change")
    assert (planned.exit_code, planned.pending_changes) == (5, 12)
    (waits,) = [row for row in estate.rows(PLANS, "change") if row["error"] == "DENY_MISSING"]
    assert waits["resource"] == "User:rights-k8 ALLOW READ TOPIC PREFIXED a-pay. *"
    change(kafka_acls, remove=[acl(gone[1])])
    assert {(each.policy, each.resource.split()[0]) for each in planned.warnings} == {
        ("acl_forbidden", "User:rights-k3"),
        ("acl_forbidden", "User:rights-k4"),
        ("unusual_acl", "User:rights-k5*"),
    }
    # By now, one of the ACLs that replace the third one's is not asked for any more, and a part of the sixth one's is.
    since = {**narrowed, "operation": "READ"}
    declare(estate, {**mistaken, "host": "app01.example.org"}, parts[0], *parts[2:], odd, since, *pairs)
    estate.run("apply", "change")
    assert sent(estate, "change", "k7") == ["DENY", "ALLOW"]
    of_gone = outcomes(estate, "change")["acl_add", "User:rights-k9 ALLOW READ TOPIC PREFIXED a-pay. *"]
    assert of_gone == [("validate ok", None), ("apply refused", "DENY_MISSING")]
    found = {
        resource: rows for (action, resource), rows in outcomes(estate, "change").items() if action == "acl_delete"
    }
    assert {resource.split()[0]: rows[-1] for resource, rows in found.items()} == {
        "User:rights-k1": ("verify ok", None),
        "User:rights-k2": ("guard skipped", None),
        "User:rights-k3": ("apply refused", "REPLACEMENT_MISSING"),
        "User:rights-k4": ("verify ok", None),
        "User:rights-k6": ("apply refused", "CHANGED_SINCE_PLAN"),
    }
    assert live(kafka_acls, "User:rights") == set(
        map(acl, [mistaken, failed, parts[0], *parts[2:], odd, narrowed, *both])
    )


@pytest.mark.thorough
def test_a_plan_from_the_manifests_of_before_gives_acls_back(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = estate_of(spark, kafka_acls, tmp_path, manage=("^User:before-k",), max_acl_deletes=10)
    kept, replaced = before = [
        right("User:before-k1", "READ", "before.one"),
        right("User:before-k2", "ALL", "before.two"),
    ]
    declare(estate, *before)
    assert estate.run().outcomes() == {"ok": 2}
    moment = datetime.now(UTC)
    parts = [{**replaced, "operation": each} for each in ("READ", "WRITE")]
    declare(estate, kept, *parts)
    assert estate.run().exit_code == 0
    assert live(kafka_acls, "User:before") == set(map(acl, [kept, *parts]))

    back = estate.run("plan", "back", manifests=moment)
    (row,) = estate.rows(RUNS, "back")
    assert int(row["arguments"]["acls_version"]) < int(row["arguments"]["latest_acls_version"])
    actions = {(row["action"], row["resource"]) for row in estate.rows(PLANS, "back")}
    assert actions == {
        ("acl_add", " ".join(acl(replaced))),
        *(("acl_delete", " ".join(acl(each))) for each in parts),
    }
    assert back.exit_code == 0
    done = estate.run("apply", "back")
    assert (done.exit_code, live(kafka_acls, "User:before")) == (0, set(map(acl, before)))


@pytest.mark.thorough
def test_first_acl_on_the_cluster_leaves_the_run_its_rights(spark: SparkSession, tmp_path: Path) -> None:
    """I2: everybody may do everything, until an ACL is about it."""
    opened = {"allow.everyone.if.no.acl.found": "true"}
    with QuickKafka(KAFKA, KafkaOptions(sasl_users=SASL_USERS, properties=opened)) as kafka:
        estate = estate_of(spark, kafka, tmp_path, "creator")
        foreign = right("User:rights-app", "IDEMPOTENT_WRITE", "kafka-cluster", resource_type="CLUSTER")
        topic = right("User:rights-app", "READ", "rights.open")
        own = right("User:creator", "ALL", "kafka-cluster", resource_type="CLUSTER")
        declare(estate, foreign, topic)
        first = estate.run()
        assert (first.exit_code, first.outcomes()) == (5, {"ok": 1, "refused": 1})
        (failure,), (warned,) = first.failures, first.warnings
        assert (failure.error, failure.resource) == ("OWN_RIGHTS", " ".join(acl(foreign)))
        assert (warned.policy, warned.resource) == ("first_acl", " ".join(acl(topic)))
        declare(estate, foreign, topic, own)
        assert estate.run().outcomes() == {"ok": 1, "refused": 1}
        last = estate.run()
        assert (last.exit_code, last.outcomes()) == (0, {"ok": 1})
        with admin_of(kafka, "creator") as admin:
            assert set(acl_requests.describe_acls(admin)) == set(map(acl, [foreign, topic, own]))
        assert estate.rows(QUOTAS) == []
        # The super user needs no ACL, and is the only one who may remove the last ones.
        admins = estate_of(spark, kafka, tmp_path, manage=("^User:",), super_users=("User:admin",), max_acl_deletes=9)
        declare(admins)
        removing = admins.run()
        errors = {each.resource: each.error for each in removing.failures}
        assert errors == {" ".join(acl(each)): "LAST_CLUSTER_ACL" for each in (foreign, own)}
        (warned,) = [each for each in removing.warnings if each.policy == "last_acl"]
        assert (warned.resource, removing.exit_code) == (" ".join(acl(topic)), 5)
        assert live(kafka, "User:") == set(map(acl, [foreign, own]))
