"""Rights declared in `acls`, planned, applied and recorded, on a broker with StandardAuthorizer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.broker.acls import acl, change, declare, estate_of, live, outcomes, pair, right, sent
from topicledger.cli import explain_resources
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings, PolicySpec
from topicledger.errors import UsageError
from topicledger.naming import Sections
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.kind import KIND
from topicledger.resources.acls.names import AclSettings
from topicledger.schemas import AUDIT, OBSERVED_ACLS, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

ALL_OK = [("validate ok", None), ("apply ok", None), ("verify ok", None)]


@pytest.mark.thorough
def test_rights_that_are_declared_are_added_and_recorded(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """A2: declared, observed, planned, applied, audited; a second run finds nothing to do."""
    estate = estate_of(spark, kafka_acls, tmp_path)
    wanted = [
        right("User:rights-a", "READ", "rights.", pattern_type="PREFIXED", owner="payments"),
        right("User:rights-a", "READ", "rights-group", resource_type="GROUP"),
        right("User:rights-b", "WRITE", "rights.one", permission="DENY", host="10.0.0.1"),
        right("User:rights-c", "IDEMPOTENT_WRITE", "kafka-cluster", resource_type="CLUSTER"),
    ]
    declare(estate, *wanted, wanted[0])
    done = estate.run()
    assert (done.exit_code, done.outcomes()) == (0, {"ok": 4})
    assert live(kafka_acls, "User:rights") == set(map(acl, wanted))
    found = outcomes(estate, done.run_id)
    assert list(found.values()) == [ALL_OK] * 4
    assert ("acl_add", "User:rights-a ALLOW READ TOPIC PREFIXED rights. *") in found
    (row,) = [row for row in estate.rows(PLANS, done.run_id) if "rights-b" in row["resource"]]
    assert (row["before"], row["after"]) == ({}, acl(wanted[2])._asdict())

    again = estate.run()
    assert (again.exit_code, again.outcomes()) == (0, {})
    assert again.decisions["acls_unchanged"] == 4
    assert estate.rows(PLANS, again.run_id) == []
    seen = [row for row in estate.rows(OBSERVED_ACLS) if row["principal"].startswith("User:rights")]
    assert {Acl.of(row) for row in seen} == set(map(acl, wanted))


@pytest.mark.thorough
def test_only_what_is_managed_is_removed_and_only_as_far_as_the_guard_allows(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """A1, A5: an exact ACL goes, and none that its name or prefix would match."""
    estate = estate_of(spark, kafka_acls, tmp_path)
    managed = [
        right("User:rights-m1", "READ", "rights.one"),
        right("User:rights-m1", "READ", "rights.", pattern_type="PREFIXED"),
        right("User:rights-m1", "READ", "*"),
    ]
    others = [right("User:rights-o", "READ", "rights.one"), right("User:rights-super", "READ", "rights.one")]
    declare(estate, *managed, *others)
    assert estate.run().outcomes() == {"ok": 5}
    declare(estate, managed[1], {**others[0], "state": "absent"}, {**managed[2], "state": "absent"})

    manage = {"manage": ("^User:rights-(m|super)", "no-such"), "super_users": ("User:rights-super",)}
    estate.settings = replace(estate.settings, of_kinds=Sections([AclSettings(**manage)]))
    stopped = estate.run()
    assert stopped.exit_code == 5
    found = {resource: rows for (_, resource), rows in outcomes(estate, stopped.run_id).items()}
    assert found == {
        "User:rights-m1 ALLOW READ TOPIC LITERAL rights.one *": [("guard refused", "MAX_ACL_DELETES_EXCEEDED")],
        "User:rights-m1 ALLOW READ TOPIC LITERAL * *": [("guard refused", "MAX_ACL_DELETES_EXCEEDED")],
        "User:rights-o ALLOW READ TOPIC LITERAL rights.one *": [("guard refused", "NOT_MANAGED")],
    }
    assert len(live(kafka_acls, "User:rights")) == 5
    assert stopped.decisions["acls_unmanaged"] >= 1, "the super user's"

    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds={"max_acl_deletes": 2}))
    planned = estate.run("plan")
    assert planned.pending_changes == 2
    # Somebody declares one of them again before the plan is applied. That one may be meant to replace the wider one.
    declare(estate, managed[0], managed[1])
    applied = estate.run("apply", planned.run_id)
    found = {resource: rows for (_, resource), rows in outcomes(estate, planned.run_id).items()}
    changed = [("validate ok", None), ("apply refused", "CHANGED_SINCE_PLAN")]
    assert found["User:rights-m1 ALLOW READ TOPIC LITERAL rights.one *"] == changed
    assert found["User:rights-m1 ALLOW READ TOPIC LITERAL * *"] == changed
    assert applied.exit_code == 5, "the plan's own refusals count, too"
    assert live(kafka_acls, "User:rights") == set(map(acl, [*managed, *others]))


@pytest.mark.thorough
def test_a_right_that_changes_its_host_or_pattern_is_never_missing(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """The new ACL is there before the old one goes; where it can't be added, the old one stays."""
    estate = estate_of(spark, kafka_acls, tmp_path, manage=("^User:rights-s",), max_acl_deletes=10)
    before = right("User:rights-s1", "READ", "rights.one")
    declare(estate, before, right("User:rights-s2", "READ", "rights.two"))
    assert estate.run().outcomes() == {"ok": 2}
    after = right("User:rights-s1", "READ", "rights.", pattern_type="PREFIXED")
    wrong = right("User:rights-s2", "READ", "rights.two", host="10.0.0.1")
    declare(estate, after, wrong)
    planned = estate.run("plan")
    rows = {row["resource"]: row for row in estate.rows(PLANS, planned.run_id)}
    (removed,) = [row for row in rows.values() if row["action"] == "acl_delete" and "s1" in row["resource"]]
    assert '"pattern_type":"PREFIXED"' in removed["after"]["replaced_by"]
    # The ACL that should replace the second one isn't declared any more by now.
    declare(estate, after)
    estate.run("apply", planned.run_id)
    found = outcomes(estate, planned.run_id)
    assert found["acl_delete", "User:rights-s1 ALLOW READ TOPIC LITERAL rights.one *"] == ALL_OK
    assert found["acl_delete", "User:rights-s2 ALLOW READ TOPIC LITERAL rights.two *"] == [
        ("validate ok", None),
        ("apply refused", "REPLACEMENT_MISSING"),
    ]
    times = {
        row["action"]: row for row in estate.rows(AUDIT, planned.run_id) if row["phase"] == "apply" and not row["error"]
    }
    assert times["acl_add"]["completed_at"] <= times["acl_delete"]["requested_at"]
    assert live(kafka_acls, "User:rights") == {acl(after), acl(right("User:rights-s2", "READ", "rights.two"))}


@pytest.mark.thorough
def test_a_revert_adds_the_deny_before_the_allow_that_it_restricts(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """No ALLOW is added beside a DENY that is declared since the plan, or if a policy refuses any label that it had."""
    estate = estate_of(spark, kafka_acls, tmp_path, manage=("^User:rights-d",), max_acl_deletes=10)
    both, (alone, _) = pair("d1"), pair("d2")
    taken = [*both, alone]
    change(kafka_acls, add=list(map(acl, taken)))
    declare(estate, *({**each, "state": "absent"} for each in taken))
    removing = estate.run()
    assert (removing.exit_code, live(kafka_acls, "User:rights-d")) == (0, set())
    declare(estate)
    gold = PolicySpec(use="acl_forbidden", labels={"tier": "gold"}, options={"operations": ["READ"]})
    before = estate.settings
    estate.settings = replace(before, policies=PolicySettings(of_kinds={"acl": (gold,)}))
    assert estate.run("plan", reverts=removing.run_id).outcomes()["refused"] == 2
    estate.settings = before
    estate.run("plan", "back", reverts=removing.run_id)
    since = right("User:rights-d2", "READ", "a-pay.", permission="DENY", pattern_type="PREFIXED", host="10.0.0.9")
    declare(estate, since)
    back = estate.run("apply", "back")
    assert [(each.error, each.resource) for each in back.failures] == [("CHANGED_SINCE_PLAN", " ".join(acl(alone)))]
    assert live(kafka_acls, "User:rights-d") == set(map(acl, both))
    assert sent(estate, removing.run_id, "d1") == ["ALLOW", "DENY"]
    assert sent(estate, "back", "d1") == ["DENY", "ALLOW"]


@pytest.mark.thorough
def test_a_run_takes_no_right_from_itself(spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path) -> None:
    """This holds for any declared and managed ACLs; a client that doesn't know its principal restricts nobody."""
    own = [
        right("User:creator", each, "kafka-cluster", resource_type="CLUSTER")
        for each in ("ALTER", "DESCRIBE", "CREATE")
    ]
    given = [*own, right("User:*", "DESCRIBE", "rights."), right("User:rights-x", "READ", "rights.one")]
    giver = estate_of(spark, kafka_acls, tmp_path / "giver")
    declare(giver, *given)
    assert giver.run().exit_code == 0
    try:
        estate = estate_of(spark, kafka_acls, tmp_path, "creator", manage=("",), max_acl_deletes=99)
        declare(
            estate,
            {**own[0], "state": "absent"},
            right("User:creator", "DESCRIBE", "rights.two", permission="DENY"),
            right("User:*", "ALL", "rights.two", permission="DENY"),
        )
        done = estate.run("plan")
        found = outcomes(estate, done.run_id)
        refused = {resource: rows for (_, resource), rows in found.items() if rows[0][0] == "guard refused"}
        assert refused == {
            "User:creator ALLOW ALTER CLUSTER LITERAL kafka-cluster *": [("guard refused", "OWN_RIGHTS")],
            "User:creator DENY DESCRIBE TOPIC LITERAL rights.two *": [("guard refused", "OWN_RIGHTS")],
            "User:* DENY ALL TOPIC LITERAL rights.two *": [("guard refused", "OWN_RIGHTS")],
            "User:* ALLOW DESCRIBE TOPIC LITERAL rights. *": [("guard refused", "OWN_RIGHTS")],
        }
        assert found["acl_delete", "User:rights-x ALLOW READ TOPIC LITERAL rights.one *"] == ALL_OK[:1]
        assert not any("creator ALLOW DESCRIBE" in resource for _, resource in found), "unmanaged, not refused"
    finally:
        giver.settings = replace(
            giver.settings,
            of_kinds=Sections([AclSettings(manage=(r"^User:(creator|\*)$",), super_users=("User:admin",))]),
            guards=GuardSettings(of_kinds={"max_acl_deletes": 99}),
        )
        declare(giver, *({**each, "state": "absent"} for each in given[:4]))
        assert giver.run().exit_code == 0


@pytest.mark.thorough
def test_without_the_right_to_list_or_change_acls_every_row_says_so(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """Unknown ACLs are never taken for none."""
    estate = estate_of(spark, kafka_acls, tmp_path, "describer", manage=("^User:rights",), max_acl_deletes=9)
    declare(estate, right("User:rights-n", "READ", "rights.one"))
    unknown = estate.run()
    (row,) = estate.rows(AUDIT, unknown.run_id)
    assert (row["phase"], row["outcome"], row["error"]) == ("observe", "refused", "NOT_PERMITTED")
    assert "needs the ACL Describe on the cluster" in row["error_message"]
    assert unknown.exit_code == 4

    giver = estate_of(spark, kafka_acls, tmp_path / "giver", manage=("^User:describer$",), max_acl_deletes=1)
    lists = right("User:describer", "DESCRIBE", "kafka-cluster", resource_type="CLUSTER")
    declare(giver, lists)
    assert giver.run().exit_code == 0
    try:
        refused = estate.run()
        (row,) = estate.rows(AUDIT, refused.run_id)
        assert (row["phase"], row["outcome"], row["error"]) == ("validate", "refused", "NOT_PERMITTED")
        assert "grant it Alter on the cluster" in row["error_message"]
    finally:
        declare(giver, {**lists, "state": "absent"})
        assert giver.run().exit_code == 0
    assert live(kafka_acls, "User:rights") == set()


@pytest.mark.thorough
def test_policies_refuse_rights(spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path) -> None:
    """P3: of three rights that are planned, one is forbidden and one is granted by who doesn't own the topic."""
    estate = estate_of(spark, kafka_acls, tmp_path)
    specs = (
        PolicySpec(use="acl_forbidden", options={"principals": [r"^User:rights-b"]}),
        PolicySpec(use="acl_owner", options={"undeclared": "allow"}),
    )
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"acl": specs}))
    estate.declare({"topic": "rights.owned", "owner": "a", "num_partitions": 1, "replication_factor": 1})
    good = right("User:rights-a", "READ", "rights.owned", owner="a")
    declare(estate, good, right("User:rights-b", "READ", "rights.x"), right("User:rights-c", "READ", "rights.owned"))
    summary = estate.run()
    assert summary.exit_code == 4
    assert live(kafka_acls, "User:rights") == {acl(good)}
    refused = {
        row["resource"].split()[0]: row for row in estate.rows(AUDIT, summary.run_id) if row["phase"] == "policy"
    }
    assert {each["error"] for each in refused.values()} == {"POLICY_VIOLATION"}
    assert [row["policy"] for row in refused["User:rights-b"]["violations"]] == ["acl_forbidden", "acl_owner"]
    assert [row["policy"] for row in refused["User:rights-c"]["violations"]] == ["acl_owner"]


@pytest.mark.thorough
def test_an_audit_compares_acls_only_if_some_are_declared(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = estate_of(spark, kafka_acls, tmp_path)
    wanted = [
        right("User:rights-a", "READ", "rights.none"),
        right("User:rights-a", "READ", "rights.none", pattern_type="PREFIXED"),
    ]
    declare(estate, *wanted)
    assert estate.run().exit_code == 0
    declare(estate, *wanted, right("User:rights-a", "WRITE", "rights.none"))
    found = estate.run_audit()
    assert {kind: count for kind, count in found.kinds.items() if kind.startswith("acl_")} == {
        "acl_missing": 1,
        "acl_on_missing_topic": 2,
        "acl_principal_without_topics": 1,
    }
    without = estate_of(spark, kafka_acls, tmp_path / "without")
    assert not [kind for kind in without.run_audit().kinds if kind.startswith("acl_")]
    assert without.rows(OBSERVED_ACLS) == []
    few = estate_of(spark, kafka_acls, tmp_path, "nobody")
    told = few.run_audit()
    (row,) = [each for each in told.drift if each.what == "acls"]
    assert (row.kind, row.topic) == ("not_permitted", None)
    assert "needs the ACL Describe on the cluster" in row.message


@pytest.mark.thorough
def test_policies_explain_says_what_each_rule_says_of_a_right(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estate = estate_of(spark, kafka_acls, tmp_path)
    specs = tuple(PolicySpec(use=name) for name in ("acl_owner", "deny_needs_label"))
    there = right("User:rights-there", "READ", "rights.x")
    declare(estate, there)
    assert estate.run().exit_code == 0
    estate.settings = replace(estate.settings, policies=PolicySettings(of_kinds={"acl": specs}))
    denied = right("User:rights-new", "READ", "rights.x", permission="DENY", owner="a")
    declare(estate, there, denied, {**there, "operation": "REED"})

    def explained(acl: str) -> dict[str, Any]:
        main = estate.settings.cluster("main")
        explain_resources.explain(estate.ledger, estate.settings, main, KIND, acl, as_json=True)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    new = explained("User:rights-new DENY READ TOPIC LITERAL rights.x *")
    assert [(each["policy"], each["verdict"]) for each in new["verdicts"]] == [
        ("acl_owner", "broken"),
        ("deny_needs_label", "broken"),
    ]
    known = explained("User:rights-there ALLOW READ TOPIC LITERAL rights.x *")
    assert known["notes"] == ["unchanged: evaluated as if it were now added"]
    assert [each["verdict"] for each in known["verdicts"]] == ["broken", "fine"]
    assert "INVALID_ACL" in explained("User:rights-there ALLOW REED TOPIC LITERAL rights.x *")["notes"][0]
    with pytest.raises(UsageError, match="has no ACL nothing, and no row of acls declares it"):
        explained("nothing")
