"""Owners and replaced topics of rows that are gone, from the changes of `manifests` and earlier plans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from tests.unit.frames import MANIFEST_ROWS, dicts, frame, manifest_rows, plain, validated_rows
from topicledger.config.settings import Owners, OwnerSettings
from topicledger.drift.scoping import compared_with, configs_to_keep, on_topics
from topicledger.ledger.unloaded import Unloaded
from topicledger.model.renames import UNDECLARED
from topicledger.model.scope import Scope
from topicledger.report.limits import of_rows
from topicledger.resources.topics.drift.find import Estate
from topicledger.resources.topics.plan.former import former
from topicledger.schemas import ACLS, AUDIT, DRIFT, MANIFESTS, OBSERVED_CONFIGS, PLANS

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOPIC = {"cluster": "main", "resource_type": "topic"}
FEED = StructType(
    [*MANIFEST_ROWS, StructField("_change_type", StringType()), StructField("_commit_timestamp", TimestampType())]
)


def change(kind: str, topic: str, hour: int = 0, **values: Any) -> dict[str, Any]:
    at = NOON + timedelta(hours=hour)
    return {"cluster": "main", "topic": topic, "_change_type": kind, "_commit_timestamp": at, **values}


def run_of(spark: SparkSession, changes: Any, *plans: dict[str, Any], **more: Any) -> Any:
    made = {**TOPIC, "run_id": "made", "action": "create", "topic": "C", "resource": "C"}
    applied = {"phase": "apply", "outcome": "ok", "completed_at": NOON}
    tables = {
        PLANS.name: frame(spark, plain(PLANS.schema), plans),
        AUDIT.name: frame(spark, plain(AUDIT.schema), [{**made, **applied}]),
        MANIFESTS.name: manifest_rows(spark, {"topic": "file.gone", "owner": "f", "replaces": "file.old"}),
    }
    ledger = SimpleNamespace(
        read=lambda table, _=None: tables[table.name],
        read_if_exists=lambda table: tables[table.name],
        oldest_changes=lambda *_: 3,
        changes=changes,
        rows=lambda table, rows: frame(spark, plain(table.schema), rows),
    )
    owners = Owners(names={"pay": OwnerSettings(topics=("^pay[.]",))})
    settings = SimpleNamespace(owners=owners)
    return SimpleNamespace(**{"ledger": ledger, "settings": settings, "unloaded": {}, "manifest_version": 7, **more})


def test_former_rows_tell_owners_and_replaced_topics(spark: SparkSession) -> None:
    """Never the owner in a row that [owners] refuses, nor a topic that only an unapplied plan replaces."""
    feed = [
        change("update_preimage", "moved", owner="a"),
        change("delete", "moved", 1, owner="b"),
        change("delete", "pay.x", owner="pay"),
        change("delete", "pay.x", 1, owner="z"),
        change("delete", "new", owner="a", replaces="old"),
        change("update_preimage", "stays", owner="a", replaces="older"),
        change("delete", "ownerless"),
        change("insert", "declared", owner="a", replaces="current"),
    ]
    deleted = {**TOPIC, "run_id": "nightly", "action": "delete", "planned_at": NOON}
    made = {**TOPIC, "run_id": "made", "action": "create", "topic": "C", "resource": "C", "planned_at": NOON}
    gone = manifest_rows(spark, {"topic": "file.gone", "owner": "f", "replaces": "file.old"})
    run = run_of(
        spark,
        lambda *_: frame(spark, FEED, feed),
        {**deleted, "topic": "vacuumed", "owner": "v", "before": {UNDECLARED: "first"}},
        {**deleted, "topic": "moved", "owner": "a", "before": {UNDECLARED: "first"}},
        {**deleted, "topic": "A", "owner": "a", "before": {"replaced_by": "B"}},
        {**deleted, "topic": "absent", "owner": "w", "before": {}},
        {**made, "before": {"replaces": "B"}},
        {**made, "run_id": "never applied", "before": {"replaces": "thought of"}},
        unloaded={MANIFESTS.name: Unloaded(rows=gone.limit(0), removed=gone)},
    )
    found = former(run)
    assert {row["topic"]: row["_owner_then"] for row in dicts(found.owners)} == {
        "moved": "b",
        "pay.x": "pay",
        "new": "a",
        "ownerless": None,
        "file.gone": "f",
        "vacuumed": "v",
        "A": "a",
    }
    assert {row["topic"]: row["_replaced_by"] for row in dicts(found.replaced)} == {
        "old": "new",
        "older": "stays",
        "file.old": "file.gone",
        "A": "B",
        "B": "C",
    }


def test_changes_that_can_no_longer_be_read_leave_owners_unknown(spark: SparkSession) -> None:
    def vacuumed(*_: Any) -> DataFrame:
        raise PySparkException("no such file")

    found = former(run_of(spark, vacuumed, deleted("planned")))
    assert found.owners.isEmpty()
    assert found.known.isEmpty()


def deleted(topic: str, **more: Any) -> dict[str, Any]:
    """Return a planned delete of a topic whose row was removed."""
    row = {**TOPIC, "action": "delete", "planned_at": NOON, "run_id": "nightly", "before": {UNDECLARED: "first"}}
    return {**row, "topic": topic, "manifest_version": 2, **more}


def test_whether_a_topic_was_replaced_is_known_only_if_all_changes_since_its_row_are(spark: SparkSession) -> None:
    """The changes begin with version 3."""
    feed = [
        change("delete", "removed", owner="a"),
        change("delete", "pay.x", owner="z"),
        change("update_preimage", "new", owner="a", replaces="old"),
    ]
    plans = [
        deleted("planned"),
        deleted("planned.long.ago", manifest_version=1),
        deleted("unknown.then", phase="observe", outcome="skipped"),
        deleted("stopped", phase="guard", outcome="refused"),
        deleted("replaced.then", before={UNDECLARED: "first", "replaced_by": "x"}, manifest_version=1),
    ]
    run = run_of(spark, lambda *_: frame(spark, FEED, feed), *plans)
    known = {"removed", "pay.x", "new", "old", "planned", "stopped", "replaced.then"}
    assert {row["topic"] for row in dicts(former(run).known)} == known

    # Since version 7, from which the run plans, nothing has changed.
    run.ledger.oldest_changes = lambda _, since=None: 3 if since is None else None
    plans = [deleted("planned", manifest_version=7), deleted("planned.before", manifest_version=6)]
    quiet = run_of(spark, None, *plans)
    quiet.ledger.oldest_changes = run.ledger.oldest_changes
    assert {row["topic"] for row in dicts(former(quiet).known)} == {"planned"}
    quiet.ledger.oldest_changes = lambda *_: None
    assert former(quiet).known.isEmpty(), "the writer of manifests records no changes"


def ledger_of(tables: Mapping[str, DataFrame]) -> Any:
    return SimpleNamespace(
        exists=lambda table: table.name in tables,
        read=lambda table: tables[table.name],
        read_if_exists=lambda table: tables[table.name],
    )


def test_a_report_of_an_owner_has_what_denies_its_acls(spark: SparkSession) -> None:
    """Findings about its principals, too."""
    acl = {"cluster": "main", "resource_type": "TOPIC", "operation": "READ", "resource_name": "t", "state": "present"}
    more = {"permission": "ALLOW", "pattern_type": "LITERAL", "host": "*"}
    acls = [{**acl, **more, "principal": f"User:{who}", "owner": who} for who in ("mine", "theirs")]
    deny, allow = "User:* DENY READ TOPIC LITERAL * *", "User:mine ALLOW READ TOPIC LITERAL t *"
    found = {"cluster": "main", "run_id": "audit", "severity": "error"}
    lost = {**found, "kind": "acl_principal_without_topics"}
    drift = frame(
        spark,
        plain(DRIFT.schema),
        [
            {**found, "kind": "acl_denied", "what": deny, "live": deny, "declared": allow},
            {**lost, "what": "User:mine"},
            {**lost, "what": "User:theirs"},
            {**found, "kind": "config_differs", "topic": "x", "what": "User:mine"},
        ],
    )
    tables = {ACLS.name: frame(spark, plain(ACLS.schema), acls), MANIFESTS.name: manifest_rows(spark)}
    ledger = ledger_of(tables)

    def kinds(**limits: Any) -> list[tuple[str, str]]:
        rows = drift.transform(of_rows(ledger, Owners(), Scope(**limits)))
        return sorted((row["kind"], row["what"]) for row in dicts(rows))

    of_mine = ("acl_principal_without_topics", "User:mine")
    assert kinds(owners=("MINE",)) == [("acl_denied", deny), of_mine]
    assert kinds(topics=("^t$",)) == [("acl_denied", deny), of_mine, ("acl_principal_without_topics", "User:theirs")]
    assert drift.where(compared_with().isNotNull()).count() == 1


def test_a_report_of_an_owner_has_its_rows_without_a_cluster(spark: SparkSession) -> None:
    """A run refuses them, since they don't say where they belong."""
    row = {"run_id": "r", "cluster": None, "resource_type": "acl", "resource": "x", "phase": "manifest"}
    names = ("mine", "theirs")
    planned = [{**row, "resource": owner, "owner": owner} for owner in names]
    told = [{**row, "resource": owner} for owner in names]
    tables = {table.name: frame(spark, plain(table.schema), rows) for table, rows in ((PLANS, planned), (AUDIT, told))}
    tables[MANIFESTS.name] = manifest_rows(spark)
    ledger = ledger_of(tables)
    found = dicts(tables[AUDIT.name].transform(of_rows(ledger, Owners(), Scope(owners=("MINE",)))))
    assert [row["resource"] for row in found] == ["mine"]


@pytest.mark.thorough
def test_an_audit_of_an_owner_has_its_removed_topics(spark: SparkSession) -> None:
    """The plan of the same owner deletes them; one whose last owner is unknown belongs to its owner by the settings."""
    feed = [change("delete", "removed", owner="A"), change("delete", "pay.removed", owner="pay")]
    feed += [change("delete", "declared", owner="a")]
    topics = ("removed", "pay.removed", "pay.unknown", "declared", "never")
    found = frame(
        spark,
        StructType([StructField(name, StringType()) for name in ("cluster", "topic", "kind")]),
        [{"cluster": "main", "topic": name, "kind": "unmanaged"} for name in topics],
    )
    declared = validated_rows(spark, {"topic": "declared", "owner": "b"})

    def inside(owner: str) -> set[str]:
        scope = Scope(owners=(owner,))
        run = run_of(spark, lambda *_: frame(spark, FEED, feed), scope=scope, prunes=None)
        return {row["topic"] for row in dicts(found.transform(on_topics(run, declared)))}

    assert inside("a") == {"removed"}
    assert inside("b") == {"declared"}
    assert inside("pay") == {"pay.removed", "pay.unknown"}


def test_an_audit_of_an_owner_leaves_the_recorded_configs_of_other_topics(spark: SparkSession) -> None:
    """The next whole audit compares them with these, and reports a broker's default that changed meanwhile."""

    def configs(value: str, *topics: str, cluster: str = "main") -> DataFrame:
        entry = {"name": "retention.ms", "value": value}
        rows = [{"cluster": cluster, "topic": name, "configs": [entry], "run_id": "earlier"} for name in topics]
        return frame(spark, plain(OBSERVED_CONFIGS.schema), rows)

    declared = validated_rows(spark, {"topic": "mine", "owner": "a"}, {"topic": "new", "owner": "a"}, {"topic": "b"})
    recorded = configs("1", "mine", "theirs", "b", "mine.gone").unionByName(configs("1", "mine", cluster="lost"))
    gone = frame(spark, FEED, [change("delete", "mine.gone", owner="a")])
    run = run_of(spark, lambda *_: gone, scope=Scope(owners=("a",)), prunes=None)
    earlier, tables = run.ledger.read, {OBSERVED_CONFIGS.name: recorded}
    run.ledger.read = lambda table, _=None: tables[table.name] if table.name in tables else earlier(table)
    seen = configs("2", "mine", "new", "theirs", "b", "stranger").unionByName(configs("2", "mine", cluster="lost"))
    none = spark.createDataFrame([], "cluster string")
    estate = Estate(
        cluster_ids={"main": "id"}, topics=none, configs=seen.drop("run_id"), earlier_configs=none, audit=none
    )

    def kept() -> dict[tuple[str, str], str]:
        rows = dicts(configs_to_keep(run, estate, declared))
        assert len(rows) == len({(row["cluster"], row["topic"]) for row in rows})
        return {(row["cluster"], row["topic"]): row["configs"][0]["value"] for row in rows}

    assert kept() == {
        ("main", name): value for name, value in (("mine", "2"), ("new", "2"), ("theirs", "1"), ("b", "1"))
    }
    run.scope = Scope()
    assert kept() == {("main", name): "2" for name in ("mine", "new", "theirs", "b", "stranger")}
