"""Rights carried out of a cluster and back: `export` and loading it again, and `runs revert`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.broker.acls import acl, change, declare, estate_of, live, outcomes, right
from tests.broker.direct import admin_of
from tests.clusters import with_sasl
from tests.harness import Estate
from topicledger.config.guards import GuardSettings
from topicledger.errors import ExitCode
from topicledger.files.export import ExportRequest, export
from topicledger.files.exported import Exported
from topicledger.files.load import load
from topicledger.files.read import read
from topicledger.naming import Sections
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclSettings
from topicledger.resources.registry import KINDS
from topicledger.schemas import ACLS, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedKafka]:
    """A broker of our own, so that all of its ACLs are ours."""
    with with_sasl() as cluster:
        yield cluster


def exported_to(estate: Estate, to: Path | None, **given: Any) -> Exported:
    request = ExportRequest(to=to, resources=[each for each in KINDS if each.table is ACLS], **given)
    return export(estate.ledger, estate.settings, list(estate.settings.clusters.values()), request)


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_loading_what_was_exported_plans_nothing(
    suffix: str, spark: SparkSession, own: EmbeddedKafka, tmp_path: Path
) -> None:
    """Also names that YAML would take for something else, and where all rights are managed."""
    odd = ["no", "1e3", "0777", "null", "2026-11-21", "-", "x" * 249]
    there = [
        *(acl(right(f"User:carried-{name}", "READ", name)) for name in odd),
        acl(right("User:carried a:b\"c'", "WRITE", "orders.", pattern_type="PREFIXED", host="10.0.0.1")),
        acl(right("User:carried-deny", "ALL", "*", permission="DENY")),
        acl(right("User:carried-x", "IDEMPOTENT_WRITE", "kafka-cluster", resource_type="CLUSTER")),
        acl(right("User:carried-x", "READ", "a group: of {odd} name", resource_type="GROUP")),
    ]
    illegal = acl(right("Group:carried", "READ", "orders"))
    change(own, add=[*there, illegal])
    estate = estate_of(spark, own, tmp_path, max_acl_deletes=0)
    with admin_of(own) as admin:
        all_of_them = set(acl_requests.describe_acls(admin))

    file = tmp_path / f"main.{suffix}"
    found = exported_to(estate, file, owner="payments")
    assert found.exit_code == ExitCode.TOPICS_FAILED, "what no manifest can declare is listed"
    (left,) = found.not_exported
    assert left.resource == " ".join(illegal)
    assert "User:name" in left.message
    assert found.clusters[0].resources == {"acls": len(all_of_them) - 1}

    parsed = read(estate.settings, [file], io.StringIO())
    loaded = load(estate.ledger, estate.settings, parsed)
    assert loaded.resources["acls"]["added"] == len(all_of_them) - 1
    rows = estate.rows(ACLS)
    assert {Acl.of(row) for row in rows} == all_of_them - {illegal}
    assert {row["owner"] for row in rows} == {"payments"}
    estate.settings = replace(estate.settings, of_kinds=Sections([AclSettings(manage=("^User:",))]))
    again = estate.run("plan", only=("acls",))
    assert (again.exit_code, again.outcomes()) == (0, {})
    assert estate.rows(PLANS, again.run_id) == []
    assert again.decisions["acls_unchanged"] == len(all_of_them) - 1

    into = exported_to(estate, None)
    assert into.loaded is not None
    counts = into.loaded.resources["acls"]
    assert counts == {"added": 0, "changed": 0, "unchanged": len(all_of_them) - 1, "removed": 0}
    assert {row["owner"] for row in estate.rows(ACLS)} == {"payments"}, "owners stay as the table has them"
    change(own, add=[acl(right("User:carried-new", "READ", "new"))])
    unmanaged = exported_to(estate, tmp_path / f"new.{suffix}", unmanaged=True)
    assert unmanaged.clusters[0].resources == {"acls": 1}
    assert "User:carried-new" in (tmp_path / f"new.{suffix}").read_text()
    with admin_of(own) as admin:
        change(own, remove=[each for each in acl_requests.describe_acls(admin) if "carried" in each.principal])


@pytest.mark.thorough
def test_a_cluster_whose_resources_can_not_be_listed_is_not_exported(
    spark: SparkSession, own: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = estate_of(spark, own, tmp_path, user="nobody")
    both = ExportRequest(to=tmp_path / "main.yaml", resources=KINDS)
    found = export(estate.ledger, estate.settings, list(estate.settings.clusters.values()), both)
    assert found.exit_code == ExitCode.ERROR
    assert [each.partition(":")[2].partition(":")[0] for each in found.problems] == [
        f" its {kind.table.name} can't be listed" for kind in KINDS
    ]
    assert not (tmp_path / "main.yaml").exists()


@pytest.mark.thorough
def test_export_with_acls_of_a_cluster_without_authorizer_says_what_to_do(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    (problem,) = exported_to(estate, tmp_path / "main.yaml").problems
    assert "its brokers have no authorizer" in problem
    assert problem.endswith("to export the rest, omit --with-acls")


MANAGED = {"manage": ("^User:rights",), "max_acl_deletes": 10}


@pytest.mark.thorough
def test_reverting_a_run_gives_back_the_rights_that_it_took_and_takes_those_that_it_gave(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    """ACLs that another client or a later run changed since are skipped; ACLs that neither run concerns stay."""
    old = [right("User:rights-r", "READ", f"rights.old{n}") for n in range(3)]
    new = [right("User:rights-r", "WRITE", f"rights.new{n}", owner="payments") for n in range(4)]
    stranger = acl(right("User:rights-stranger", "READ", "rights.other"))
    estate = estate_of(spark, kafka_acls, tmp_path, **MANAGED)
    declare(estate, *old)
    assert estate.run().outcomes() == {"ok": 3}
    declare(estate, *new)
    assert estate.run(run_id="change").outcomes() == {"ok": 7}
    assert live(kafka_acls, "User:rights") == set(map(acl, new))
    change(kafka_acls, add=[acl(old[0]), stranger], remove=[acl(new[0])])
    # A later run took one away, and gave it again.
    declare(estate, *new[:3])
    assert estate.run(only=("acls",)).exit_code == 0
    declare(estate, *new)
    assert estate.run(run_id="later", only=("acls",)).exit_code == 0
    change(kafka_acls, add=[acl(old[0]), stranger], remove=[acl(new[0])])

    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds={"max_acl_deletes": 1}))
    stopped = estate.run("plan", "too-many", reverts="change")
    assert stopped.exit_code == 5
    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds={"max_acl_deletes": 10}))

    plan = estate.run("plan", "undo", reverts="change")
    rows = {row["resource"].split(" ")[5]: row for row in estate.rows(PLANS, "undo")}
    assert {name: row["action"] for name, row in rows.items() if row["phase"] is None} == {
        "rights.new1": "acl_delete",
        "rights.new2": "acl_delete",
        "rights.old1": "acl_add",
        "rights.old2": "acl_add",
    }
    skipped = {name: row["error_message"] for name, row in rows.items() if row["outcome"] == "skipped"}
    assert set(skipped) == {"rights.new0", "rights.new3", "rights.old0"}
    assert "it is gone already" in skipped["rights.new0"]
    assert skipped["rights.new3"].endswith("run later changed it later")
    assert "it exists again" in skipped["rights.old0"]
    warned = {each.message for each in plan.warnings}
    assert any("declare it present" in each for each in warned), warned
    before = live(kafka_acls, "User:rights")
    done = estate.run("apply", "undo")
    assert (done.exit_code, done.outcomes()) == (0, {"ok": 4, "skipped": 3})
    removed, added = set(map(acl, new[1:3])), set(map(acl, old[1:]))
    assert live(kafka_acls, "User:rights") == (before - removed) | added
    assert stranger in live(kafka_acls, "User:rights")
    again = estate.run("plan", "undo-again", reverts="change")
    assert again.outcomes() == {"skipped": 7}
    estate.check_invariant("undo")


@pytest.mark.thorough
def test_a_revert_removes_no_declared_and_no_unmanaged_acl(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = estate_of(spark, kafka_acls, tmp_path, **MANAGED)
    mine = [right("User:rights-r", "WRITE", f"rights.new{n}") for n in range(2)]
    declare(estate, *mine)
    assert estate.run(run_id="change").outcomes() == {"ok": 2}
    estate.settings = replace(estate.settings, of_kinds=Sections([AclSettings()]))
    unmanaged = estate.run("plan", "unmanaged", reverts="change")
    assert unmanaged.exit_code == 5
    assert {rows[0][1] for rows in outcomes(estate, "unmanaged").values()} == {"NOT_MANAGED"}
    estate.settings = replace(estate.settings, of_kinds=Sections([AclSettings(manage=("^User:rights",))]))
    assert estate.run("plan", "undo", reverts="change").pending_changes == 2
    declare(estate, mine[0], {**mine[1], "owner": "payments"})
    done = estate.run("apply", "undo")
    assert done.outcomes() == {"ok": 1, "refused": 1}
    assert live(kafka_acls, "User:rights") == {acl(mine[1])}
    assert all(row["error_message"] is None for row in estate.rows(PLANS, "undo")), "refused when it is applied"


@pytest.mark.thorough
def test_a_revert_takes_no_right_from_the_run_itself(
    spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path
) -> None:
    own = "User:rights-own"
    estate = estate_of(spark, kafka_acls, tmp_path, **MANAGED)
    rights = [
        right(own, "ALTER", "kafka-cluster", resource_type="CLUSTER"),
        right(own, "DESCRIBE", "kafka-cluster", resource_type="CLUSTER"),
    ]
    declare(estate, *rights)
    assert estate.run(run_id="granted").outcomes() == {"ok": 2}
    estate.settings = replace(
        estate.settings, of_kinds=Sections([AclSettings(manage=("^User:rights",), super_users=(own,))])
    )
    plan = estate.run("plan", "undo", reverts="granted")
    assert plan.exit_code == 5
    assert {rows[0][1] for rows in outcomes(estate, "undo").values()} == {"OWN_RIGHTS"}
    assert live(kafka_acls, own) == set(map(acl, rights))
