"""Output of Kafka's own tools beside the tables: what it can't say stays as it is declared."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import frame, manifest_rows, plain
from topicledger.files.listings import with_declared
from topicledger.files.load import Replace, removals_of
from topicledger.manifests.files import ManifestRow, ParsedManifests, ResourceRow
from topicledger.model.scope import Scope
from topicledger.plan.scoping import declarations
from topicledger.schemas import ACL_KEY, ACLS, MANIFESTS

SAID = {"owner": "a", "labels": {"tier": "gold"}, "placement": "racks", "replaces": "old", "description": "clicks"}
PLACE: dict[str, Any] = {"file": "live.txt", "line": 1}


def row(topic: str, **said: Any) -> ManifestRow:
    return ManifestRow(
        **{"cluster": "main", "topic": topic, "num_partitions": 1, "replication_factor": 2, **said, **PLACE}
    )


def test_rows_of_a_listing_keep_what_only_the_tables_say(spark: SparkSession) -> None:
    acl = {**dict.fromkeys(ACL_KEY, "x"), **ACLS.key_defaults}
    acls = [
        ResourceRow(
            cluster="main", state="present", owner=None, labels=None, values={**acl, "operation": name}, **PLACE
        )
        for name in ("kept", "gone", "new")
    ]
    short = {"cluster": "main", **dict.fromkeys(ACL_KEY, "x"), **dict.fromkeys(ACLS.key_defaults), "owner": "a"}
    there = {
        MANIFESTS.name: manifest_rows(
            spark,
            {"topic": "kept", "num_partitions": 9, "replication_factor": 9, **SAID},
            {"topic": "gone", "state": "absent", "owner": "a"},
            {"topic": "kept", "cluster": "other", "owner": "b"},
        ),
        ACLS.name: frame(
            spark,
            plain(ACLS.schema),
            [
                {**short, "operation": "kept", "labels": {"tier": "gold"}},
                {**short, "operation": "gone", "state": "absent"},
                {**short, "operation": "gone"},
            ],
        ),
    }
    topics = [row("kept"), row("gone"), row("new", owner="settings"), row("old")]
    parsed = ParsedManifests(rows=topics, errors=[], resources={ACLS.name: acls})
    found = with_declared(parsed, there)
    assert found.rows == [row("kept", **SAID), row("new", owner="settings")]
    rights = [(each.values["operation"], each.owner, each.labels) for each in found.rows_of(ACLS.name)]
    assert rights == [("kept", "a", {"tier": "gold"}), ("new", None, None)]
    assert {each.key: each.what.split(",")[0] for each in found.not_carried_over if "=" not in each.key} == {
        "gone": "a row declares it absent",
        "old": "replaced by kept",
    }
    assert {name: len(rows) for name, rows in found.listed.items()} == {MANIFESTS.name: 2, ACLS.name: 1}


@pytest.mark.parametrize(
    ("listed", "declared", "kept"),
    [
        ({"replication_factor": None}, {"replication_factor": 3}, {"replication_factor": 3}),
        (
            {},
            {"assignments": {0: [1, 2]}},
            {"assignments": {0: [1, 2]}, "num_partitions": None, "replication_factor": None},
        ),
        ({}, {"assignments": {0: [1]}}, {}),
        ({}, {"assignments": {0: [1, 2], 1: [1, 2]}}, {}),
        (
            {"replication_factor": None},
            {"assignments": {0: [1]}},
            {"assignments": {0: [1]}, "num_partitions": None},
        ),
    ],
)
def test_a_listing_takes_no_counts_away(
    spark: SparkSession, listed: dict[str, Any], declared: dict[str, Any], kept: dict[str, Any]
) -> None:
    """It never has assignments, and no replication factor where a move may change it."""
    there = {MANIFESTS.name: manifest_rows(spark, {"topic": "t", **declared})}
    found = with_declared(ParsedManifests(rows=[row("t", **listed)], errors=[]), there)
    assert found.rows == [row("t", **{**listed, **kept})]


def test_replace_keeps_rows_of_what_a_listing_has_and_does_not_load(spark: SparkSession) -> None:
    """Two teams may own it by [owners], so its row isn't loaded: that is no reason to remove the declaration."""
    table = manifest_rows(spark, *({"topic": name, "owner": "a"} for name in ("listed", "shared", "gone")))
    ledger: Any = SimpleNamespace(spark=spark, read_if_exists=lambda _: table)
    listed, shared = row("listed"), row("shared")
    parsed = ParsedManifests(rows=[listed, shared], errors=[]).without([(shared, "not yours")])
    removed = removals_of(ledger, parsed, Replace(), partial(declarations, Scope()))
    assert [each["topic"] for each in removed.rows[MANIFESTS.name].collect()] == ["gone"]
