"""Planned actions that are still declared: the manifests say the same, however they spell it, or said it before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.harness import cluster_settings
from tests.unit.frames import frame, manifest_rows
from topicledger.config.settings import Settings, TablesSettings
from topicledger.ledger.run import Run
from topicledger.model import Target, Work
from topicledger.model.scope import EVERYTHING
from topicledger.plan.resources import changed_declarations
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction
from topicledger.resources.topics.actions import alter_configs
from topicledger.resources.topics.actions.declared import declared_differently
from topicledger.resources.topics.plan import topics
from topicledger.schemas import ACLS, MANIFESTS, PLANS, Table

PLANNED = {"retention.ms": "604800000", "cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("now", "others"),
    [
        (PLANNED, None),
        ({"retention.ms": " +604800000", "cleanup.policy": "delete , compact"}, None),
        ({**PLANNED, "retention.ms": "5"}, "retention.ms"),
        ({**PLANNED, "flush.ms": "5"}, "flush.ms"),
        ({}, "cleanup.policy, retention.ms"),
        (None, "cleanup.policy, retention.ms"),
    ],
)
def test_configs_are_compared_as_brokers_read_them(
    spark: SparkSession, now: Mapping[str, str] | None, others: str | None
) -> None:
    types = ", ".join(f"{name} map<string,string>" for name in ("configs", "before", "after", "now_configs"))
    row = (PLANNED, {"flush.ms": "5"}, PLANNED, now, "present")
    rows = spark.createDataFrame([row], f"{types}, now_state string")
    created = declared_differently(("configs",)).alias("created")
    (found,) = rows.select(created, alter_configs.not_declared().alias("altered")).collect()
    assert found["created"] == (None if others is None else "declare it with other configs")
    assert found["altered"] == (None if others is None else f"declare it with other configs: {others}")


def test_plan_from_earlier_manifests_is_only_refused_for_what_changed_since(spark: SparkSession) -> None:
    """It differs from the latest manifests, and `acls`, on purpose; of these, only what came after the plan counts."""

    def stored(table: Table, version: int) -> DataFrame:
        there = ("kept", "came")[:version]
        if table is MANIFESTS:
            return manifest_rows(spark, *({"topic": each} for each in there))
        return frame(spark, ACLS.schema, [{"cluster": "main", "state": "present", **acl(each)} for each in there])

    run = SimpleNamespace(
        settings=Settings(
            path=Path("my.toml"),
            tables=TablesSettings(root=""),
            clusters={"main": cluster_settings("main", "localhost:1")},
        ),
        selected=None, scope=EVERYTHING, reverts=None, prunes=None, by_manifests=True, of_files=False,
        of_earlier_manifests=True, latest_version_then=1, latest_version_of=lambda _: 1, resources=stored,
        ledger=SimpleNamespace(exists=lambda _: True, latest_version=lambda _: 2, read=stored),
    )  # fmt: skip
    names = ("kept", "came", "undeclared")
    deletes = [{"topic": each, "resource": each, "resource_type": "topic", "action": "delete"} for each in names]
    removals = [
        {"resource": text(each), "resource_type": "acl", "action": "acl_delete", "before": acl(each), "after": {}}
        for each in names
    ]
    plans = frame(spark, PLANS.schema, [{"cluster": "main", **each} for each in (*deletes, *removals)])
    work = {"main": (0, [[Target(resource="", action=AclAction.ACL_DELETE)]])}
    refusing = [topics.changed_declarations(cast(Run, run), 2), *changed_declarations(cast(Run, run), cast(Work, work))]
    refused = [row["resource"] for each in refusing for row in plans.transform(each).collect()]
    assert set(refused) == {"came", text("came")}


def acl(user: str) -> dict[str, str]:
    of_topic = {"resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL", "host": "*"}
    return {"principal": f"User:{user}", "permission": "ALLOW", "operation": "READ", **of_topic}


def text(user: str) -> str:
    return " ".join(Acl.of(acl(user)))
