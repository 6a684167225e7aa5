"""One file for three clusters gives them exactly what a file for each of them gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests import clusters, commands, other_tools
from tests.broker.changes import set_on
from tests.broker.direct import make
from tests.broker.invoking import done, planned
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS, QUOTAS, Table
from topicledger_testing.embedded_kafka import EmbeddedKafka

NAMES = ("staging", "prod", "dr")

ONE_FILE = """
clusters: [staging, prod, dr]
defaults: {owner: payments, replication_factor: 1, num_partitions: 3, configs: {retention.ms: 7d}}
overrides:
  staging: {num_partitions: 1, configs: {retention.ms: 1d}}
  dr: {configs: {compression.type: zstd}}
topics:
  - {topic: payments.authorised, num_partitions: 6, description: Authorised payments}
  - {topic: payments.audit, clusters: [prod, dr], overrides: {prod: {configs: {cleanup.policy: compact}}}}
  - {topic: payments.raw, configs: {segment.bytes: 16MiB}, overrides: {staging: {num_partitions: 2}}}
  - {topic: payments.old, state: absent}
quotas:
  - {client_id: payments, producer_byte_rate: 1048576, overrides: {staging: {producer_byte_rate: 1024}}}
"""

BY_HAND = {
    "staging": """
cluster: staging
topics:
  - {topic: payments.authorised, owner: payments, num_partitions: 1, replication_factor: 1,
     configs: {retention.ms: 86400000}, description: Authorised payments}
  - {topic: payments.raw, owner: payments, num_partitions: 2, replication_factor: 1,
     configs: {retention.ms: 86400000, segment.bytes: 16777216}}
  - {topic: payments.old, owner: payments, state: absent, num_partitions: 1, replication_factor: 1,
     configs: {retention.ms: 86400000}}
quotas:
  - {client_id: payments, owner: payments, producer_byte_rate: 1024}
""",
    "prod": """
cluster: prod
topics:
  - {topic: payments.authorised, owner: payments, num_partitions: 6, replication_factor: 1,
     configs: {retention.ms: 604800000}, description: Authorised payments}
  - {topic: payments.audit, owner: payments, num_partitions: 3, replication_factor: 1,
     configs: {retention.ms: 604800000, cleanup.policy: compact}}
  - {topic: payments.raw, owner: payments, num_partitions: 3, replication_factor: 1,
     configs: {retention.ms: 604800000, segment.bytes: 16777216}}
  - {topic: payments.old, owner: payments, state: absent, num_partitions: 3, replication_factor: 1,
     configs: {retention.ms: 604800000}}
quotas:
  - {client_id: payments, owner: payments, producer_byte_rate: 1048576}
""",
    "dr": """
cluster: dr
topics:
  - {topic: payments.authorised, owner: payments, num_partitions: 6, replication_factor: 1,
     configs: {retention.ms: 604800000, compression.type: zstd}, description: Authorised payments}
  - {topic: payments.audit, owner: payments, num_partitions: 3, replication_factor: 1,
     configs: {retention.ms: 604800000, compression.type: zstd}}
  - {topic: payments.raw, owner: payments, num_partitions: 3, replication_factor: 1,
     configs: {retention.ms: 604800000, compression.type: zstd, segment.bytes: 16777216}}
  - {topic: payments.old, owner: payments, state: absent, num_partitions: 3, replication_factor: 1,
     configs: {retention.ms: 604800000, compression.type: zstd}}
quotas:
  - {client_id: payments, owner: payments, producer_byte_rate: 1048576}
""",
}

WEEK, DAY, SEGMENT = {"retention.ms": "604800000"}, {"retention.ms": "86400000"}, {"segment.bytes": "16777216"}
ZSTD, COMPACT = {"compression.type": "zstd"}, {"cleanup.policy": "compact"}
LIVE: Mapping[str, Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "staging": {"payments.authorised": (1, DAY), "payments.raw": (2, DAY | SEGMENT)},
    "prod": {
        "payments.authorised": (6, WEEK),
        "payments.audit": (3, WEEK | COMPACT),
        "payments.raw": (3, WEEK | SEGMENT),
    },
    "dr": {
        "payments.authorised": (6, WEEK | ZSTD),
        "payments.audit": (3, WEEK | ZSTD),
        "payments.raw": (3, WEEK | ZSTD | SEGMENT),
    },
}
"""By cluster and topic, its partitions and the configs that are set."""


@pytest.fixture(scope="module")
def estate() -> Iterator[Mapping[str, EmbeddedKafka]]:
    """Three clusters."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(clusters.plain()) for name in NAMES}


def ledger(folder: Path, estate: Mapping[str, EmbeddedKafka]) -> Path:
    """Settings with a ledger of their own."""
    folder.mkdir()
    more = '[changes]\nconfigs = "declared"\npartitions = "grow"\n[guards]\nmax_quota_changes = 9\n'
    more += other_tools.documented_scope()
    return commands.settings_file(folder, {name: each.bootstrap_servers for name, each in estate.items()}, more=more)


def live(kafka: EmbeddedKafka) -> dict[str, tuple[int, Mapping[str, str]]]:
    """Return a cluster's topics, as another client describes them, in the form of `LIVE`."""
    listed = AdminClient({"bootstrap.servers": ",".join(kafka.bootstrap_servers)}).list_topics(timeout=30).topics
    names = [name for name in listed if not name.startswith("__")]
    configs = set_on(kafka, *names)
    return {name: (len(listed[name].partitions), configs[name]) for name in names}


def declared(spark: SparkSession, config: Path, table: Table) -> list[dict[str, Any]]:
    """The rows of a ledger's table, in the order of its key."""
    rows = Ledger(spark, str(config.parent / "ledger")).read(table).orderBy(*table.key).collect()
    return [row.asDict(recursive=True) for row in rows]


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_one_file_gives_three_clusters_what_three_files_give(
    estate: Mapping[str, EmbeddedKafka], spark: SparkSession, tmp_path: Path
) -> None:
    """Topics of other tools are neither exported nor unmanaged, with the documented patterns."""
    one, three, exported = (ledger(tmp_path / name, estate) for name in ("one", "three", "exported"))
    one.with_name("all.yaml").write_text(ONE_FILE)
    done("load-manifests", one.with_name("all.yaml"), "--config", one)
    done("provision", "--config", one, "--wait-visible", "60s")
    assert {name: live(each) for name, each in estate.items()} == LIVE

    files = [three.with_name(f"{name}.yaml") for name in NAMES]
    for file, text in zip(files, BY_HAND.values(), strict=True):
        file.write_text(text)
    done("load-manifests", *files, "--config", three)
    for table in (MANIFESTS, QUOTAS):
        assert declared(spark, one, table) == declared(spark, three, table)

    make(estate["dr"], *other_tools.TOPICS)
    made = tmp_path / "made"
    chosen = (option for name in NAMES for option in ("--cluster", name))
    done("export", "--config", one, *chosen, "--with-quotas", "--to", made)
    done("load-manifests", *(made / f"{name}.yaml" for name in NAMES), "--config", exported)
    present = [row for row in declared(spark, one, MANIFESTS) if row["state"] == "present"]
    assert declared(spark, exported, MANIFESTS) == present
    assert declared(spark, exported, QUOTAS) == declared(spark, one, QUOTAS)
    assert planned(exported)["pending_changes"] == 0
    found: dict[str, Any] = json.loads(done("drift", "--config", exported, "--format", "json"))
    assert found["drift"] == []
