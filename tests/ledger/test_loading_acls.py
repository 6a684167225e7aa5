"""Loading ACLs from manifest files into `acls`: all of their rows, or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.ledger.loading import load_files, put, run_rows
from topicledger.cli.access import access_group
from topicledger.errors import GuardStopped, ManifestFileError, TableError
from topicledger.files.load import Replace
from topicledger.ledger.tables import Ledger
from topicledger.schemas import ACLS, MANIFESTS

TEAM = """\
cluster: orders
defaults: {owner: payments}
acls:
  - consumer: {principal: "User:p", topics: [orders], groups: [p]}
"""
MORE = """\
  - {principal: "User:q", operation: WRITE, resource_type: TOPIC, resource_name: orders, owner: other}
"""


@pytest.mark.thorough
def test_load_removes_acls_only_with_replace(ledger: Ledger, tmp_path: Path) -> None:
    both, one = put(tmp_path, "both.yaml", TEAM + MORE), put(tmp_path, "one.yaml", TEAM)
    assert load_files(ledger, both).resources["acls"] == {"added": 4, "changed": 0, "unchanged": 0, "removed": 0}
    version = ledger.latest_version(ACLS)
    assert load_files(ledger, one).resources["acls"] == {"added": 0, "changed": 0, "unchanged": 3, "removed": 0}
    assert ledger.latest_version(ACLS) == version
    renamed = put(tmp_path, "renamed.yaml", TEAM.replace("payments", "billing"))
    assert load_files(ledger, renamed).resources["acls"] == {"added": 0, "changed": 3, "unchanged": 0, "removed": 0}
    with pytest.raises(GuardStopped, match=r"rows of acls: 1\n1 row in all, and guards\.max_removed_rows is 0"):
        load_files(ledger, one, replace=Replace())
    assert load_files(ledger, one, replace=Replace(owners=("nobody",)), may_remove=9).resources["acls"]["removed"] == 0
    assert load_files(ledger, one, replace=Replace(), may_remove=1).resources["acls"]["removed"] == 1
    rows = ledger.read(ACLS).select("principal", "owner", "state").distinct().collect()
    assert [tuple(row) for row in rows] == [("User:p", "payments", "present")]
    assert run_rows(ledger)[-1]["counts"]["acls_removed"] == 1


@pytest.mark.thorough
def test_a_file_changes_and_keeps_acls_that_other_writers_left_short(ledger: Ledger, tmp_path: Path) -> None:
    """The merge tells ACLs by what null stands for: two rows of one ACL are changed or removed together."""
    acl = {"cluster": "orders", "operation": "WRITE", "resource_type": "TOPIC", "resource_name": "orders"}
    named = {name: {**acl, "principal": f"User:{name}", "owner": "other"} for name in ("q", "both", "left")}
    rows = [*named.values(), *({**named[name], **ACLS.key_defaults} for name in ("both", "left"))]
    ledger.ensure(ACLS)
    ledger.append(ACLS, ledger.rows(ACLS, rows), app_id="other tool", version=1)
    entry = MORE.replace("owner: other", "state: absent, owner: other")
    file = put(tmp_path, "absent.yaml", TEAM + entry + entry.replace("User:q", "User:both"))
    compared = {ACLS.name: ledger.read(ACLS, ledger.latest_version(ACLS))}
    loaded = load_files(ledger, file, replace=Replace(), may_remove=2, compared=compared)
    assert loaded.resources["acls"] == {"added": 3, "changed": 3, "unchanged": 0, "removed": 2}
    found = ledger.read(ACLS).where("owner = 'other'").select("principal", "state").orderBy("principal").collect()
    assert [tuple(row) for row in found] == [("User:both", "absent")] * 2 + [("User:q", "absent")]
    assert load_files(ledger, file).resources["acls"] == {"added": 0, "changed": 0, "unchanged": 6, "removed": 0}


def test_invalid_acl_refuses_the_whole_load(ledger: Ledger, tmp_path: Path) -> None:
    topics = "topics: [{topic: fine}]\n"
    wrong = put(tmp_path, "wrong.yaml", TEAM + MORE.replace("WRITE", "CLUSTER_ACTION") + topics)
    with pytest.raises(
        ManifestFileError, match=r"wrong\.yaml:5: acl: operation CLUSTER_ACTION does not apply to a TOPIC"
    ):
        load_files(ledger, wrong)
    twice = put(tmp_path, "twice.yaml", TEAM + MORE + MORE.replace("owner: other", "state: absent"))
    with pytest.raises(ManifestFileError, match=r"twice\.yaml:6: this ACL is present at .*twice\.yaml:5"):
        load_files(ledger, twice)
    assert ledger.read(ACLS).isEmpty()


@pytest.mark.thorough
def test_a_load_that_fails_at_acls_counts_and_names_what_is_loaded(ledger: Ledger, tmp_path: Path) -> None:
    ledger.ensure(MANIFESTS, ACLS)
    ledger.spark.sql(f"ALTER TABLE {ledger.sql_name(ACLS)} ADD CONSTRAINT none CHECK (principal <> 'User:q')")
    both = put(tmp_path, "both.yaml", TEAM + MORE + "topics: [{topic: orders}]\n")
    with pytest.raises(TableError, match=r"acls.*; but `manifests` is loaded: load the files again$") as caught:
        load_files(ledger, both, run_id="failed")
    assert caught.value.run_id == "failed"
    assert run_rows(ledger)[-1]["counts"] == {"added": 1, "changed": 0, "unchanged": 0, "removed": 0}
    with pytest.raises(TableError) as again:
        load_files(ledger, both)
    assert "is loaded" not in str(again.value), "the second load changed nothing"
    ledger.spark.sql(f"ALTER TABLE {ledger.sql_name(ACLS)} DROP CONSTRAINT none")
    assert load_files(ledger, both).unchanged == 1
    assert ledger.read(ACLS).count() == 4


@pytest.mark.thorough
def test_effective_permissions_come_from_declared_acls(ledger: Ledger, tmp_path: Path) -> None:
    """Absent ACLs and refused rows don't count, and the number of refused rows is reported."""
    gone = '  - {principal: "User:gone", operation: READ, resource_type: TOPIC, resource_name: orders, state: absent}\n'
    denied = (
        '  - {principal: "User:q", permission: DENY, operation: ALTER, resource_type: TOPIC, resource_name: orders}\n'
    )
    load_files(ledger, put(tmp_path, "rights.yaml", TEAM + MORE + gone + denied))
    ledger.append(
        ACLS, ledger.rows(ACLS, [{"cluster": "orders", "principal": "nobody"}]), app_id="other tool", version=1
    )
    config = put(
        tmp_path,
        "settings.toml",
        f'[tables]\nroot = "{ledger.root}"\n[clusters.orders]\nbootstrap_servers = ["nowhere.invalid:9092"]\n',
    )
    asked = ("who", "--topic", "orders", "--from", "declared", "--cluster", "orders")
    result = CliRunner().invoke(access_group, [*asked, "--config", str(config), "--format", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["source"] == "declared"
    told = {(each["principal"], each["operation"]): each["result"] for each in found["rights"]}
    assert (told["User:p", "READ"], told["User:q", "WRITE"], told["User:q", "ALTER"]) == (
        "allowed",
        "allowed",
        "denied",
    )
    assert {principal for (principal, _), is_so in told.items() if is_so == "allowed"} == {"User:p", "User:q"}
    assert "User:gone" not in {principal for principal, _ in told}
    assert any(note.startswith("1 invalid rows of acls don't count") for note in found["notes"])
