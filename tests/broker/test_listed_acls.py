"""What Kafka's own `kafka-acls --list` prints is read back as the ACLs that are there."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.acls import acl, change, estate_of, live, right
from tests.broker.direct import TOOLS, admin_of
from tests.waiting import until
from topicledger.files.load import load
from topicledger.files.read import Foreign, read
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.schemas import ACLS
from topicledger_testing.embedded_kafka import EmbeddedKafka


def listed(kafka: EmbeddedKafka, folder: Path, *more: str) -> str:
    """Return the tool's output, as the super user."""
    options = kafka.client_options()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    user, password = options["sasl_plain_username"], options["sasl_plain_password"]
    properties = folder / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={login} username="{user}" password="{password}";\n'
    )
    classpath = os.pathsep.join([f"{clusters.JARS}/*", f"{TOOLS}/*"])
    tool = ["java", "-cp", classpath, "org.apache.kafka.tools.AclCommand", "--list", *more]
    server = ["--bootstrap-server", kafka.bootstrap_servers[0], "--command-config", str(properties)]
    done = subprocess.run([*tool, *server], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return done.stdout


@pytest.fixture
def odd(kafka_acls: EmbeddedKafka) -> list[Acl]:
    """ACLs of each type, pattern and permission, with words that the tool's lines are made of."""
    acls = [
        acl(right("User:rights-a", "READ", "orders.", pattern_type="PREFIXED")),
        acl(right("User:rights-a", "DESCRIBE_CONFIGS", "orders.one", host="10.0.0.1")),
        acl(right("User:rights-CN=a, OU=b", "WRITE", "*", permission="DENY")),
        acl(right("User:rights-b", "READ", "a group, name=x, patternType=LITERAL)", resource_type="GROUP")),
        acl(right("User:rights-b", "IDEMPOTENT_WRITE", "kafka-cluster", resource_type="CLUSTER")),
        acl(right("User:rights-c", "ALL", "tx-", resource_type="TRANSACTIONAL_ID", pattern_type="PREFIXED")),
        acl(right("User:rights-c", "DESCRIBE", "token", resource_type="DELEGATION_TOKEN")),
        acl(right("User:rights-c", "CREATE_TOKENS", "alice", resource_type="USER")),
    ]
    change(kafka_acls, add=acls)
    until(lambda: live(kafka_acls, "User:rights") == set(acls), seconds=30)
    return acls


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("by_principal", [False, True], ids=["by_resource", "by_principal"])
def test_acls_that_the_tool_lists_are_loaded_as_they_are(
    spark: SparkSession, kafka_acls: EmbeddedKafka, odd: list[Acl], tmp_path: Path, by_principal: bool
) -> None:
    """And then the plan finds nothing to do."""
    each = [part for who in sorted({acl.principal for acl in odd}) for part in ("--principal", who)]
    printed = listed(kafka_acls, tmp_path, *(each if by_principal else ()))
    file = tmp_path / "acls.txt"
    file.write_text(printed)
    estate = estate_of(spark, kafka_acls, tmp_path)
    foreign = Foreign(form="kafka-acls", cluster="main")
    loaded = load(estate.ledger, estate.settings, read(estate.settings, [file], io.StringIO(), foreign=foreign))
    assert loaded.not_carried_over == ()
    with admin_of(kafka_acls) as admin:
        there = set(acl_requests.describe_acls(admin))
    declared = {Acl.of(row) for row in estate.rows(ACLS)}
    assert set(odd) <= declared <= there
    assert by_principal or declared == there
    again = estate.run("plan", only=("acls",))
    assert (again.outcomes(), again.pending_changes) == ({}, 0)
