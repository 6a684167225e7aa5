"""Errors of single rows of manifests are the same for a row of a file and, in Spark, for a row of a table."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, manifest_rows
from topicledger.manifests import rows as manifests
from topicledger.manifests.file_rows import broken
from topicledger.manifests.files import FileRow, ManifestRow, ResourceRow
from topicledger.manifests.row_rules import ROW_RULES, Rule
from topicledger.resources.acls.acl import OPERATIONS
from topicledger.resources.acls.hosts import host_reason
from topicledger.resources.kind import ResourceKind
from topicledger.resources.quotas.entity import ENTITY, LIMITS
from topicledger.resources.registry import KINDS
from topicledger.schemas import ACLS, GROUP_CONFIGS, MANIFESTS, QUOTAS, Table

ROWS = 600
"""Of one example, which is one Spark job."""

TOPICS = ("a", "orders.created", "__consumer_offsets", "__share_group_state", "._consumer_offsets",
          "_.transaction.state", "__consumer_offset", "A-_.9", "",
          ".", "..", "...", " ", "a b", "a\n", "köln", "topic\u0663", "\U0001f600" * 250, "x" * 249,
          "x" * 250, "a/b", "a\x00", "\ufeffa")  # fmt: skip
COUNTS = (None, None, 1, 3, 0, -1, 32767, 32768, 2**31 - 1)
BROKERS = ((), (0,), (1, 2), (2, 1), (1, 1), (-1,), (1, 2, 3))
PLACEMENTS = (None, None, "any", "racks", "spread", "rack:a", "rack:eu west-1", "rack:", "rack: ", "rack:a\n",
              "rack:\u00a0", "brokers:1", "brokers:1,2", "brokers:", "brokers:1,", "brokers: 1", "brokers:\u0661",
              "Racks", "", "any ", "brokers:4294967296", "racks\n")  # fmt: skip
NAMES = ("retention.ms", "retention.ms", "a", "b", "", " ", "  ", "\u00a0", "\t", "a ", " b", "c\u200b", "a b")
VALUES = ("1", "1", "0x1p-2", "0X.8P+1f", "0x10", "+NaN", "NaN", "\uff16\uff10", " -\u0666\t", "6\u0966", "\u00b2",
          "fal\u017fe", "false", "\u00a0\uff11", "k\u00f6ln", "\uff10.\uff15", "", "0x1p-2d\u0000")  # fmt: skip


def any_row(rng: random.Random) -> dict[str, Any]:
    return {
        "topic": rng.choice(TOPICS),
        "state": rng.choice(("present", "present", "absent", "Present", "", "gone")),
        "num_partitions": rng.choice(COUNTS),
        "replication_factor": rng.choice(COUNTS),
        "assignments": rng.choice((None, None, any_assignments(rng))),
        "placement": rng.choice(PLACEMENTS),
        "description": rng.choice((None, "", "What it is for")),
        "replaces": rng.choice((None, None, None, *TOPICS)),
        "configs": rng.choice((None, {rng.choice(NAMES): rng.choice(VALUES) for _ in range(rng.randrange(3))})),
    }


def plain_reasons(row: FileRow, table: Table, rules: Sequence[Rule]) -> str | None:
    return next((why for _, _, why in broken([row], table, rules)), None)


def any_assignments(rng: random.Random) -> dict[int, tuple[int, ...]]:
    alike = rng.choice((None, *BROKERS))
    return {
        rng.choice((number, number, number, number + 1, -1)): rng.choice(BROKERS) if alike is None else alike
        for number in range(rng.randrange(4))
    }


@settings(deadline=None, derandomize=True, max_examples=3, phases=[Phase.generate])
@given(st.integers())
def test_rows_of_files_and_of_tables_are_refused_for_the_same_reasons(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    rows = [any_row(rng) for _ in range(ROWS)]
    frame = manifest_rows(spark, *({**row, "owner": str(number)} for number, row in enumerate(rows)))
    validated = dicts(frame.transform(manifests.with_reasons(manifests.as_columns(ROW_RULES))))
    by_spark = {int(row["owner"]): row["error_message"] for row in validated}
    plain = {
        number: plain_reasons(ManifestRow(cluster="main", file="f", line=1, **row), MANIFESTS, ROW_RULES)
        for number, row in enumerate(rows)
    }
    assert {number: (plain[number], by_spark[number]) for number in plain if plain[number] != by_spark[number]} == {}
    assert len({*plain.values()}) > 50, "few rows are broken alike"


RIGHTS: dict[str, tuple[str | None, ...]] = {
    "principal": ("User:a", "User:*", "User:", "Group:x", "user:a", "", None, "User: "),
    "permission": ("ALLOW", "DENY", "allow", "", None),
    "operation": (*OPERATIONS["TOPIC"], *OPERATIONS["CLUSTER"], "ALL", "ANY", "UNKNOWN", "", None),
    "resource_type": (*OPERATIONS, "ANY", "topic", "", None),
    "pattern_type": ("LITERAL", "PREFIXED", "MATCH", None),
    "resource_name": ("*", "", "kafka-cluster", "orders.", "a b", "x" * 249, "x" * 250, "k\u00f6ln", "a\n", "**", None),
    "host": (
        "*",
        "10.0.0.1",
        "0:0:0:0:0:0:0:1",
        "2001:db8:0:0:0:0:0:1",
        "fe80:0:0:0:0:0:0:a%4",
        None,
        "::1",
        "::",
        ":::",
        "1::2::3",
        "::1:2:3:4:5:6:7",
        "::1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7::8",
        "FE80::1",
        "fe80::1%eth0",
        "2001:DB8:0:0:0:0:0:01",
        "2001:db8:0:0:0:0:0:1%4",
        "::ffff:10.0.0.01",
        "::ffff:a00:1",
        "0:0:0:0:0:ffff:10.0.0.1",
        "::10.0.0.1",
        "010.0.0.1",
        "10.0.0.256",
        "10.0.0.0999",
        "000.0.0.00",
        "1.2.3",
        "example.org",
        "",
        ":",
        "10.0.0.1\n",
        "0:0:0:0:0:0:0:1\n",
        "\u0661.0.0.1",
        "12345::",
        "g::1",
    ),
}
ADDRESSES = tuple(host for host in RIGHTS["host"] if host and re.fullmatch(r"[0-9A-Fa-f:.%]*[:.][0-9A-Fa-f:.%]*", host))
ENTITIES = (None, None, "a", "", "<default>")
RATES = (None, None, None, 1.0, 0.5, 0.0, -0.0, -1.0, 1e7, 123456789.0, 1e-4, 1.5e300, 1e7 + 0.5, float("nan"),
         float("inf"), float("-inf"))  # fmt: skip
STATES = ("present", "present", "absent", "gone", "")


def any_right(rng: random.Random) -> dict[str, Any]:
    # Mostly rows with one or two mistakes.
    good = {"principal": 2, "permission": 2, "pattern_type": 2}
    return {
        name: rng.choice(values[: good.get(name, len(values))] if rng.random() < 0.6 else values)
        for name, values in RIGHTS.items()
    }


def any_quota(rng: random.Random) -> dict[str, Any]:
    names = dict.fromkeys(ENTITY) | {name: rng.choice(ENTITIES) for name in ENTITY}
    return {**names, **{name: rng.choice(RATES) for name in LIMITS}}


def any_group(rng: random.Random) -> dict[str, Any]:
    configs = {rng.choice(NAMES): rng.choice(VALUES) for _ in range(rng.randrange(3))}
    return {"group": rng.choice((None, "", "a", "b c", "k\u00f6ln")), "configs": rng.choice((None, configs, configs))}


ANY_VALUES: Mapping[str, Callable[[random.Random], dict[str, Any]]] = {
    ACLS.name: any_right, QUOTAS.name: any_quota, GROUP_CONFIGS.name: any_group,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.table.name)
def test_resources_of_files_and_of_tables_are_refused_for_the_same_reasons(
    spark: SparkSession, kind: ResourceKind
) -> None:
    """A3, A4, Q2."""
    table, any_values = kind.table, ANY_VALUES[kind.table.name]
    rng = random.Random(7)
    rows = [
        ResourceRow(
            cluster="main", values=any_values(rng), state=rng.choice(STATES), owner=str(number), labels=None, file="f",
            line=1,
        )
        for number in range(ROWS)
    ]  # fmt: skip
    values = [{"cluster": "main", "state": row.state, "owner": row.owner, **row.values} for row in rows]
    ordered = [tuple(each.get(name) for name in table.schema.names) for each in values]
    validated = spark.createDataFrame(ordered, table.schema, verifySchema=False).transform(
        manifests.with_reasons(manifests.as_columns(kind.rows.rules))
    )
    by_spark = {int(row["owner"]): row["error_message"] for row in validated.collect()}
    plain = {number: plain_reasons(row, table, kind.rows.rules) for number, row in enumerate(rows)}
    assert {number: (plain[number], by_spark[number]) for number in plain if plain[number] != by_spark[number]} == {}
    assert len({*plain.values()}) > 50, "few rows are broken alike"
    assert None in plain.values(), "some are fine"


def test_hosts_of_acls_are_what_java_writes(spark: SparkSession) -> None:
    """A4: brokers compare them with `getHostAddress` as text. A reason names the form that Java writes."""
    java = spark.sparkContext._jvm
    assert java is not None
    written = {}
    for host in ADDRESSES:
        try:
            written[host] = java.java.net.InetAddress.getByName(host).getHostAddress()
        except Py4JJavaError:
            written[host] = None
    accepted = {host for host in ADDRESSES if host_reason(host) is None}
    # A client's address has the interface only where it is link-local.
    assert accepted == {host for host, text in written.items() if text == host} - {"2001:db8:0:0:0:0:0:1%4"}
    hints = {
        host: found[1] for host in ADDRESSES if (found := re.search("write ([^ ,]+), or", host_reason(host) or ""))
    }
    assert hints == {host: written[host] for host in hints}
    assert (len(accepted), len(hints)) == (4, 8)
