"""Client quotas declared in `quotas`, planned, applied and recorded, on a real broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClientQuotasRequest
from pyspark.sql import SparkSession

from tests.broker.direct import admin_of
from tests.broker.quotas import Limits, alter, declare, entries, estate_of, live
from tests.harness import Estate, policy
from tests.waiting import until
from topicledger.cli import explain_resources
from topicledger.config.settings import PolicySettings
from topicledger.errors import UsageError
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.names import AclAction
from topicledger.resources.quotas.entity import Entity
from topicledger.resources.quotas.kind import KIND
from topicledger.schemas import AUDIT, OBSERVED_QUOTAS, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

ALL_OK = [("validate ok", None), ("apply ok", None), ("verify ok", None)]


def outcomes(estate: Estate, run_id: str) -> dict[str, list[tuple[str, str | None]]]:
    """By resource: phases with their outcomes and errors, in order."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    for row in sorted(estate.rows(AUDIT, run_id), key=lambda row: row["completed_at"]):
        assert (row["resource_type"], row["topic"]) == ("quota", None)
        found.setdefault(row["resource"], []).append((f"{row['phase']} {row['outcome']}", row["error"]))
    return found


@pytest.mark.thorough
def test_quotas_that_are_declared_are_set_changed_and_removed_and_recorded(
    spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path
) -> None:
    """Q1, Q2, Q4: every kind of entity; a second run finds nothing to do; a user's quotas are not its client ids'."""
    estate = estate_of(spark, kafka_quotas, tmp_path)
    wanted: dict[Entity, Limits] = {
        Entity(user="a"): {"producer_byte_rate": 1e6, "request_percentage": 12.5},
        Entity(user="a", client_id="one"): {"consumer_byte_rate": 2e6},
        Entity(user="a", client_id="<default>"): {"consumer_byte_rate": 3e6},
        Entity(user="<default>"): {"producer_byte_rate": 3e9},
        Entity(user="<default>", client_id="<default>"): {"controller_mutation_rate": 0.5},
        Entity(user="\\<default>"): {"controller_mutation_rate": 5.0},
        Entity(client_id="CN=b, O=\u00fc\\"): {"producer_byte_rate": 1.0},
        Entity(ip="10.0.0.1"): {"connection_creation_rate": 9.0},
        Entity(ip="<default>"): {"connection_creation_rate": 90.0},
    }
    rows = [{**entity._asdict(), **limits, "owner": "payments"} for entity, limits in wanted.items()]
    declare(estate, *rows, rows[0])
    done = estate.run()
    assert (done.exit_code, done.outcomes()) == (0, {"ok": len(wanted)})
    stranger = {Entity(user="stranger"): {"producer_byte_rate": 77.0}}
    assert live(kafka_quotas) == wanted | stranger
    found = outcomes(estate, done.run_id)
    assert list(found.values()) == [ALL_OK] * len(wanted)
    assert "user=a client-id=<default>" in found
    again = estate.run()
    assert (again.exit_code, again.outcomes(), estate.rows(PLANS, again.run_id)) == (0, {}, [])
    assert (again.decisions["quotas_unchanged"], again.decisions["quotas_unmanaged"]) == (len(wanted), 1)
    seen = [row for row in estate.rows(OBSERVED_QUOTAS) if row["user"] != "stranger"]
    assert {Entity(row["user"], row["client_id"], row["ip"]) for row in seen} == set(wanted)

    declare(
        estate,
        {"user": "a", "producer_byte_rate": 5e6, "consumer_byte_rate": 1.0},
        {"user": "a", "client_id": "one", "state": "absent"},
    )
    changed = estate.run()
    assert (changed.exit_code, changed.outcomes()) == (0, {"ok": 2})
    (row,) = [
        row for row in estate.rows(AUDIT, changed.run_id) if (row["resource"], row["phase"]) == ("user=a", "apply")
    ]
    assert row["before"] == {"producer_byte_rate": "1000000", "request_percentage": "12.5"}
    assert row["after"] == {"producer_byte_rate": "5000000", "consumer_byte_rate": "1"}
    kept = {entity: limits for entity, limits in wanted.items() if entity not in (Entity("a"), Entity("a", "one"))}
    assert live(kafka_quotas) == kept | stranger | {
        Entity(user="a"): {"producer_byte_rate": 5e6, "consumer_byte_rate": 1.0}
    }


@pytest.mark.thorough
def test_a_run_changes_no_quotas_unless_its_guard_allows_all_of_them(
    spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = estate_of(spark, kafka_quotas, tmp_path, most=0)
    declare(estate, {"user": "a", "producer_byte_rate": 1.0}, {"user": "b", "producer_byte_rate": 0.5})
    stopped = estate.run()
    assert stopped.exit_code == 5
    assert outcomes(estate, stopped.run_id) == {
        "user=a": [("guard refused", "MAX_QUOTA_CHANGES_EXCEEDED")],
        "user=b": [("manifest refused", "INVALID_QUOTA")],
    }
    assert set(live(kafka_quotas)) == {Entity(user="stranger")}


@pytest.mark.thorough
def test_changes_between_plan_and_apply_are_refused(
    spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path
) -> None:
    """On the cluster, or in `quotas`: each entity by itself. A refusal by the broker fails only its entity."""
    estate = estate_of(spark, kafka_quotas, tmp_path)
    rows = [{"user": name, "producer_byte_rate": 10.0} for name in ("by-hand", "done", "undeclared", "other", "fine")]
    declare(estate, *rows, {"ip": "no such host", "connection_creation_rate": 1.0})
    # More decimals than a decimal of Spark has.
    alter(kafka_quotas, Entity(user="fine"), request_percentage=1.2345678901234567e-4)
    planned = estate.run("plan")
    assert planned.pending_changes == 5
    alter(kafka_quotas, Entity(user="by-hand"), producer_byte_rate=3.0)
    alter(kafka_quotas, Entity(user="done"), producer_byte_rate=10.0)
    declare(estate, *rows[:2], {**rows[3], "producer_byte_rate": 20.0}, rows[4])
    applied = estate.run("apply", planned.run_id)
    assert applied.exit_code == 4
    changed = [("validate ok", None), ("apply refused", "CHANGED_SINCE_PLAN")]
    assert outcomes(estate, planned.run_id) == {
        "user=by-hand": changed,
        "user=done": ALL_OK,
        "user=undeclared": changed,
        "user=other": changed,
        "user=fine": ALL_OK,
        r"ip=no\ such\ host": [("validate failed", "INVALID_REQUEST")],
    }
    messages = {row["resource"]: row["error_message"] for row in estate.rows(AUDIT, planned.run_id) if row["error"]}
    assert "producer_byte_rate is 3, the plan saw not set" in messages["user=by-hand"]
    assert "declare other limits of it: producer_byte_rate" in messages["user=other"]
    assert "don't declare it" in messages["user=undeclared"]
    assert "not a valid IP or resolvable host" in messages[r"ip=no\ such\ host"]
    assert live(kafka_quotas)[Entity(user="by-hand")] == {"producer_byte_rate": 3.0}


@pytest.mark.thorough
def test_without_the_right_to_describe_or_alter_quotas_every_row_says_so(
    spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path
) -> None:
    """Unknown quotas are never taken for none."""
    estate = estate_of(spark, kafka_quotas, tmp_path, "describer")
    declare(estate, {"user": "a", "producer_byte_rate": 1.0}, {"user": "stranger", "producer_byte_rate": 1.0})
    unknown = estate.run()
    rows = estate.rows(AUDIT, unknown.run_id)
    assert {(row["phase"], row["outcome"], row["error"]) for row in rows} == {("observe", "refused", "NOT_PERMITTED")}
    assert all("needs the ACL DescribeConfigs on the cluster" in row["error_message"] for row in rows)
    assert (len(rows), unknown.exit_code) == (2, 4)
    right = {
        "principal": "User:describer", "permission": "ALLOW", "operation": "DESCRIBE_CONFIGS",
        "resource_type": "CLUSTER", "pattern_type": "LITERAL", "resource_name": "kafka-cluster", "host": "*",
    }  # fmt: skip
    with admin_of(kafka_quotas) as admin:
        acl_requests.create_acls(admin, [Target(resource="r", action=AclAction.ACL_ADD, after=right)])
        try:
            refused = estate.run()
        finally:
            acl_requests.delete_acls(admin, [Target(resource="r", action=AclAction.ACL_DELETE, before=right)])
    rows = estate.rows(AUDIT, refused.run_id)
    assert {(row["phase"], row["outcome"], row["error"]) for row in rows} == {("validate", "refused", "NOT_PERMITTED")}
    assert all("grant it AlterConfigs on the cluster" in row["error_message"] for row in rows)
    assert live(kafka_quotas) == {Entity(user="stranger"): {"producer_byte_rate": 77.0}}


@pytest.mark.thorough
def test_a_broker_treats_quotas_as_assumed(kafka_quotas: EmbeddedKafka) -> None:
    """Q1 to Q4, and the size of a request, as the code takes them for granted."""
    one, two = [("producer_byte_rate", 1.0)], [("producer_byte_rate", 2.0)]
    with admin_of(kafka_quotas) as admin:
        # Q1: validateOnly gives the real answers and changes nothing.
        wrong = [("producer_byte_rate", 1.5)]
        mixed = [(Entity(user="v"), one), (Entity(user="w"), wrong)]
        assert sorted(entries(admin, mixed, validate_only=True)) == [("v", 0), ("w", 42)]
        assert set(live(kafka_quotas)) == {Entity(user="stranger")}
        # Q2: fractions and what isn't above 0; NaN and Infinity are taken.
        for limits in (wrong, [("producer_byte_rate", 0.0)], [("connection_creation_rate", 1.0)], [("x", 1.0)]):
            assert entries(admin, [(Entity(user="w"), limits)]) == [("w", 42)]
        assert entries(admin, [(Entity(ip="10.0.0.1", user="w"), one)])[0][1] == 42
        infinite = [("request_percentage", float("inf"))]
        assert entries(admin, [(Entity(user="w"), infinite)], validate_only=True) == [("w", 0)]
        # Q3: an entity twice, and a limit twice: 42 for all, and the first is applied of the one, none of the other.
        assert entries(admin, [(Entity(user="d"), one), (Entity(user="d"), two)]) == [("d", 42)]
        until(lambda: live(kafka_quotas).get(Entity(user="d")) == {"producer_byte_rate": 1.0}, seconds=20)
        assert entries(admin, [(Entity(user="e"), [*one, *two])]) == [("e", 42)]
        # Q4: a filter by user that isn't strict has the user's client ids.
        assert entries(admin, [(Entity(user="d", client_id="c"), one)])[0][1] == 0
        until(lambda: Entity(user="d", client_id="c") in live(kafka_quotas), seconds=20)
        named = DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=0, match="d")
        found = [admin.ask(DescribeClientQuotasRequest(components=[named], strict=each)) for each in (False, True)]
        assert [len(each.entries) for each in found] == [2, 1]
        # The limit counts limits, not entities: 10,000 a request, refused whole.
        many = [(Entity(user=f"many-{n}"), [*one, ("consumer_byte_rate", 1.0)]) for n in range(5_001)]
        assert {code for _, code in entries(admin, many)} == {44}
        assert {code for _, code in entries(admin, many[:4_990])} == {0}
    until(lambda: len(live(kafka_quotas)) == 4_990 + 3, seconds=30)


@pytest.mark.thorough
def test_ten_thousand_entities_are_set_in_batches(
    spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path
) -> None:
    """Also where the settings ask for larger requests than the broker takes: these are halved."""
    estate = estate_of(spark, kafka_quotas, tmp_path, most=10_000)
    estate.settings = replace(estate.settings, kafka=replace(estate.settings.kafka, max_batch_records=10_000_000))
    limits = {"producer_byte_rate": 100.0, "request_percentage": 1.5}
    declare(estate, *({"user": f"many-{number}", **limits} for number in range(10_000)))
    done = estate.run()
    assert (done.exit_code, done.outcomes()) == (0, {"ok": 10_000})
    found = {entity: each for entity, each in live(kafka_quotas).items() if entity.user != "stranger"}
    assert found == {Entity(user=f"many-{number}"): limits for number in range(10_000)}


@pytest.mark.thorough
def test_policies_evaluate_quotas_and_an_audit_finds_differences(
    spark: SparkSession, kafka_quotas: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estate = estate_of(spark, kafka_quotas, tmp_path, most=1)
    most = policy("quota_range", limit="producer_byte_rate", max=100)
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"quota": (most,)}))
    declare(estate, {"user": "wide", "producer_byte_rate": 101.0}, {"user": "fine", "producer_byte_rate": 100.0})
    done = estate.run()
    assert done.exit_code == 4
    assert outcomes(estate, done.run_id) == {
        "user=wide": [("policy refused", "POLICY_VIOLATION")],
        "user=fine": ALL_OK,
    }

    def explained(text: str) -> dict[str, Any]:
        capsys.readouterr()
        main = estate.settings.cluster("main")
        explain_resources.explain(estate.ledger, estate.settings, main, KIND, text, as_json=True)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    wide, stranger = explained("user=wide"), explained("user=stranger")
    assert [each["message"] for each in wide["verdicts"]] == ["producer_byte_rate is 101; allowed is any to 100"]
    assert (stranger["decision"], stranger["verdicts"][0]["verdict"]) == ("unmanaged", "fine")
    assert stranger["notes"] == ["unmanaged: evaluated as if it were now altered to its current limits"]
    with pytest.raises(UsageError, match="no row of quotas declares it"):
        explained("user=nobody")

    audited = estate.run_audit()
    assert {(each.kind, each.what, each.declared, each.live) for each in audited.drift if each.topic is None} == {
        ("quota_missing", "user=wide", "producer_byte_rate=101", None),
        ("quota_unmanaged", "user=stranger", None, "producer_byte_rate=77"),
    }
