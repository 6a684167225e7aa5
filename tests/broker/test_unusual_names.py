"""ACLs and quotas that almost never apply, from a file to a broker with StandardAuthorizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.acls import acl, right
from tests.broker.acls import live as live_acls
from tests.broker.invoking import done, load
from tests.broker.quotas import live as live_quotas
from topicledger.resources.quotas.entity import Entity
from topicledger_testing.embedded_kafka import EmbeddedKafka

UNUSUAL = [
    right("User:rights-a*", "READ", "t"),
    right("User:rights-a,User:rights-b", "READ", "t"),
    right("User:rights-a", "READ", "app-*", resource_type="GROUP"),
]
USUAL = right("User:rights-c", "READ", "app-", resource_type="GROUP", pattern_type="PREFIXED")
QUOTA, USUAL_QUOTA = {"user": "User:bob", "producer_byte_rate": 10}, {"user": "bob", "producer_byte_rate": 10}


@pytest.mark.thorough
def test_acls_and_quotas_that_almost_never_apply_are_planned_with_warnings(
    spark: SparkSession,
    kafka_acls: EmbeddedKafka,
    kafka_quotas: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warning stops nothing: brokers accept these names."""
    guard = "[guards]\nmax_quota_changes = 10\n"
    config = commands.admins_settings(tmp_path, kafka_acls, kafka_acls.bootstrap_servers, monkeypatch, guard)
    acls = [*UNUSUAL, USUAL]
    # JSON is YAML, too.
    result = load(config, json.dumps({"cluster": "main", "acls": acls, "quotas": [QUOTA, USUAL_QUOTA]}))
    assert result.exit_code == 0, result.output

    printed = done("plan", "--run-id", "unusual", "--config", config)
    table = [line.strip("│").split("│") for line in printed.splitlines() if line.startswith("│")]
    warnings = [[each.strip() for each in row] for row in table if len(row) == 5]
    assert {row[1]: row[3] for row in warnings if row[1]} == {
        **{" ".join(acl(each)): "unusual_acl" for each in UNUSUAL},
        "user=User:bob": "unusual_quota",
    }, printed
    messages = " ".join(row[4] for row in warnings)
    for advice in ("one row per principal", "one row per name", "write PREFIXED without the *", "remove User:"):
        assert advice in messages, printed

    done("apply", "--run-id", "unusual", "--config", config)
    assert live_acls(kafka_acls, "User:rights") == set(map(acl, acls))
    limits = {entity: values for entity, values in live_quotas(kafka_quotas).items() if entity.user != "stranger"}
    assert limits == {Entity(user=name): {"producer_byte_rate": 10.0} for name in ("User:bob", "bob")}
