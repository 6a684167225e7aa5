"""`access who` and `access what`: what they say is what brokers let their users do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests import clusters, commands
from tests.broker.direct import admin_of, make
from tests.broker.invoking import done
from tests.waiting import until
from topicledger.cli.access import access_group
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import OPERATIONS, Acl
from topicledger.resources.acls.names import AclAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

TOPICS = ("access.a", "access.ab", "access.b")
GRANTED = [
    Acl("User:creator", "ALLOW", "ALL", "TOPIC", "PREFIXED", "access.a", "*"),
    Acl("User:creator", "DENY", "DELETE", "TOPIC", "LITERAL", "access.ab", "*"),
    Acl("User:creator", "ALLOW", "READ", "TOPIC", "LITERAL", "access.b", "*"),
    Acl("User:creator", "ALLOW", "ALTER", "TOPIC", "LITERAL", "access.b", "10.9.9.9"),
    Acl("User:describer", "ALLOW", "ALTER_CONFIGS", "TOPIC", "PREFIXED", "access.", "*"),
    Acl("User:describer", "ALLOW", "WRITE", "TOPIC", "LITERAL", "access.ab", "*"),
    Acl("User:*", "ALLOW", "DESCRIBE", "TOPIC", "PREFIXED", "access.", "*"),
    Acl("User:*", "DENY", "WRITE", "TOPIC", "PREFIXED", "access.b", "*"),
]


@pytest.fixture(scope="module")
def granted(kafka_sasl: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The broker with `TOPICS` and the ACLs of `GRANTED`."""
    targets = [
        Target(resource=str(n), action=AclAction.ACL_ADD, after=each._asdict()) for n, each in enumerate(GRANTED)
    ]
    gone = [
        Target(resource=str(n), action=AclAction.ACL_DELETE, before=each._asdict()) for n, each in enumerate(GRANTED)
    ]
    make(kafka_sasl, *TOPICS)
    with admin_of(kafka_sasl) as admin:
        acl_requests.create_acls(admin, targets)
        until(lambda: set(GRANTED) <= set(acl_requests.describe_acls(admin)), seconds=30)
        yield kafka_sasl
        acl_requests.delete_acls(admin, gone)
        until(lambda: not set(GRANTED) & set(acl_requests.describe_acls(admin)), seconds=30)


def asked(kafka: EmbeddedKafka, folder: Path, *arguments: str, user: str = "admin", more: str = "") -> Result:
    """What `access` says to a user of the broker."""
    config = folder / "settings.toml"
    secret = folder / "password"
    secret.write_text(f"{user}-secret", encoding="utf-8")
    config.write_text(
        f'[tables]\nroot = "{folder}/ledger"\n{more}\n'
        f"[clusters.main]\nbootstrap_servers = {json.dumps(kafka.bootstrap_servers)}\n"
        + commands.sasl_client(user, f"file:{secret}"),
        encoding="utf-8",
    )
    return CliRunner().invoke(access_group, [*arguments, "--config", str(config), "--cluster", "main"])


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def allowed(found: dict[str, Any], principal: str, host: str = "*") -> dict[str, set[str]]:
    """By resource, what a principal, one that the ACLs name or not, is said to be allowed."""
    named = {each["principal"] for each in found["rights"]}
    principal = principal if principal in named else "User:*"
    by_topic: dict[str, set[str]] = {}
    for each in found["rights"]:
        if (each["principal"], each["host"], each["result"]) == (principal, host, "allowed"):
            by_topic.setdefault(each["resource_name"], set()).add(each["operation"])
    return by_topic


@pytest.mark.thorough
def test_access_who_agrees_with_each_users_authorized_operations(granted: EmbeddedKafka, tmp_path: Path) -> None:
    """A1: each user of the broker asks it for its own authorized operations."""
    of_topics = [part for name in TOPICS for part in ("--topic", name)]
    found = document(asked(granted, tmp_path, "who", *of_topics, "--format", "json"))
    assert found["rights"] == document(asked(granted, tmp_path, "who", *of_topics, "--format", "json"))["rights"]
    for user in ("creator", "describer", "nobody"):
        with admin_of(granted, user) as admin:
            told = {each.topic: {*(each.authorized_operations or ())} for each in admin.describe_topics(TOPICS)}
        ours = allowed(found, f"User:{user}")
        assert {name: ours[name] for name in TOPICS} == {
            name: each & {*OPERATIONS["TOPIC"]} for name, each in told.items()
        }
    denied = [each for each in found["rights"] if each["result"] == "denied" and each["principal"] == "User:creator"]
    assert [(each["resource_name"], each["operation"], each["acls"]) for each in denied] == [
        ("access.ab", "DELETE", ["User:creator DENY DELETE TOPIC LITERAL access.ab *"]),
        ("access.b", "WRITE", ["User:* DENY WRITE TOPIC PREFIXED access.b *"]),
    ]
    assert allowed(found, "User:creator", "10.9.9.9") == {"access.b": {"ALTER"}}


@pytest.mark.thorough
def test_access_what_lists_patterns_and_their_exceptions(granted: EmbeddedKafka, tmp_path: Path) -> None:
    found = document(
        asked(granted, tmp_path, "what", "--principal", "User:creator", "--operation", "DELETE", "--format", "json")
    )
    assert [
        (each["pattern_type"], each["resource_name"], each["result"], each["exceptions"]) for each in found["rights"]
    ] == [
        ("PREFIXED", "access.a", "allowed", ["User:creator DENY DELETE TOPIC LITERAL access.ab *"]),
        ("LITERAL", "access.ab", "denied", []),
    ]
    shown = asked(granted, tmp_path, "what", "--principal", "User:creator")
    assert shown.exit_code == 0
    assert "access.a" in shown.stdout
    assert "super.users may do everything, and brokers hide who they are" in shown.stdout
    assert "allow.everyone" not in shown.stdout
    told = document(
        asked(granted, tmp_path, "who", "--group", "g", "--format", "json", more='[acls]\nsuper_users = ["User:root"]')
    )
    assert {each["principal"] for each in told["rights"]} == {"User:root"}
    assert not any("super.users" in each for each in told["notes"])


@pytest.mark.thorough
def test_a_user_who_cannot_list_acls_learns_what_to_grant(granted: EmbeddedKafka, tmp_path: Path) -> None:
    refused = asked(granted, tmp_path, "who", "--topic", "access.a", user="nobody")
    assert refused.exit_code == 1
    assert "needs the ACL Describe on the cluster" in refused.stderr
    for arguments in (["who"], ["who", "--topic", "t", "--operation", "REED"], ["what", "--principal", "Group:x"]):
        assert asked(granted, tmp_path, *arguments).exit_code == 2


def test_clusters_check_names_what_a_weak_principal_lacks(
    granted: EmbeddedKafka, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    settings = '[guards]\nmax_deletes = 5\n[changes]\nconfigs = "declared"\n'
    plain = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=settings)
    found = json.loads(done("clusters", "check", "main", "--config", plain, "--format", "json"))
    assert (found["cluster_id"], found["version"]) == (kafka.cluster_id, ".".join(map(str, clusters.VERSION[:2])))
    assert {each["status"] for each in found["findings"]} <= {"ok", "unknown"}

    secret = tmp_path / "password"
    secret.write_text(clusters.SASL_USERS["describer"], encoding="utf-8")
    client = commands.sasl_client("describer", f"file:{secret}")
    weak = commands.settings_file(tmp_path, {"main": granted.bootstrap_servers}, more=client + settings)
    found = json.loads(done("clusters", "check", "main", "--config", weak, "--format", "json", code=1))
    statuses = {each["about"]: each["status"] for each in found["findings"]}
    assert found["cluster_operations"] == []
    assert statuses["operations on the cluster"] == statuses["create topics"] == "unknown"
    assert (statuses["alter configs"], statuses["delete topics"]) == ("ok", "fails")
    assert statuses["ACLs"] == statuses["move replicas"] == "possible"
    assert statuses["add partitions"] == "unused"
    lines = done("clusters", "check", "main", "--config", weak, code=1)
    assert "not allowed on any of 3 visible topics: grant this principal Delete on them" in lines
    assert secret.read_text() not in lines
