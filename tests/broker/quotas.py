"""Rows of `quotas`, and the limits a broker has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.direct import TOOLS, admin_of, settings_for
from tests.harness import Estate
from tests.waiting import until
from topicledger.config.guards import GuardSettings
from topicledger.kafka import ClusterAdmin
from topicledger.resources.quotas import requests as quota_requests
from topicledger.resources.quotas.entity import KAFKA_TYPES, Entity
from topicledger.schemas import QUOTAS
from topicledger_testing.embedded_kafka import EmbeddedKafka

Limits = Mapping[str, float]


def estate_of(
    spark: SparkSession, kafka: EmbeddedKafka, root: Path, user: str | None = None, most: int = 100
) -> Estate:
    """An estate whose run is `user`, the super user where none is named."""
    estate = Estate(spark, root / "ledger", {"main": settings_for("main", kafka, user)})
    estate.settings = replace(estate.settings, guards=GuardSettings(of_kinds={"max_quota_changes": most}))
    return estate


def declare(estate: Estate, *rows: Mapping[str, Any]) -> None:
    """Make `quotas` say these rows and nothing else."""
    estate.ledger.ensure(QUOTAS)
    frame = estate.ledger.rows(QUOTAS, [{"cluster": "main", **row} for row in rows])
    frame.write.format("delta").mode("overwrite").save(estate.ledger.location(QUOTAS))


def live(kafka: EmbeddedKafka) -> Mapping[Entity, Limits]:
    with admin_of(kafka) as admin:
        return quota_requests.describe_quotas(admin)


def alter(kafka: EmbeddedKafka, entity: Entity, **limits: float | None) -> None:
    """Change an entity's limits by hand; None removes one."""
    with admin_of(kafka) as admin:
        assert {code for _, code in entries(admin, [(entity, list(limits.items()))])} == {0}
    wanted = {name: value for name, value in limits.items() if value is not None}
    until(lambda: all(live(kafka).get(entity, {}).get(name) == wanted.get(name) for name in limits), seconds=20)


def entries(
    admin: ClusterAdmin, wanted: Sequence[tuple[Entity, Sequence[tuple[str, float | None]]]], **request: bool
) -> list[tuple[str, int]]:
    """A request as it is, and what the broker answers: the name of each entity's first part, and its code."""
    entry = AlterClientQuotasRequest.EntryData
    response = admin.change(
        AlterClientQuotasRequest(
            entries=[
                entry(
                    entity=[
                        entry.EntityData(entity_type=KAFKA_TYPES[part], entity_name=name)
                        for part, name in entity._asdict().items()
                        if name is not None
                    ],
                    ops=[entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits],
                )
                for entity, limits in wanted
            ],
            validate_only=request.get("validate_only", False),
        )
    )
    return [(each.entity[0].entity_name, each.error_code) for each in response.entries]


def described(kafka: EmbeddedKafka, folder: Path, *kinds: str) -> str:
    """What Kafka's own tool prints of the quotas of entities of these kinds."""
    options = kafka.client_options()
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{options["sasl_plain_username"]}" password="{options["sasl_plain_password"]}";'
    )
    client = folder / "client.properties"
    client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    classpath = os.pathsep.join([f"{clusters.JARS}/*", f"{TOOLS}/*"])
    tool = ["java", "-cp", classpath, "kafka.admin.ConfigCommand", "--command-config", str(client), "--describe"]
    named = [part for kind in kinds for part in ("--entity-type", kind)]
    done = subprocess.run(
        [*tool, *named, "--bootstrap-server", kafka.bootstrap_servers[0]],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    return done.stdout


def text(entity: Entity) -> str:
    named = zip(KAFKA_TYPES.values(), entity, strict=True)
    escaped = ((kind, name.replace("\\", "\\\\").replace(" ", "\\ ")) for kind, name in named if name is not None)
    return " ".join(f"{kind}={name}" for kind, name in escaped)
