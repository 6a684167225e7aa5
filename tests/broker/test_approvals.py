"""A plan waits until people other than its requester have approved it; then it is applied, and the run is proven."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import live, make
from tests.harness import Estate
from topicledger.config.guards import GuardSettings
from topicledger.errors import GuardStopped, UsageError
from topicledger.ledger.abandoned import abandon
from topicledger.ledger.run import require_run
from topicledger.ledger.verifying import verify
from topicledger.plan.approvals import SHOWN_DIGEST, classes_of, digest_of, needed
from topicledger.schemas import APPROVALS, PLANS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


def test_an_approved_plan_is_applied_and_the_approval_is_proven(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    # Deletes that a guard stops wait for an approval that allows them; they are applied with the rest of the plan.
    make(kafka, "approvals.old")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    settings = estate.settings = replace(estate.settings, guards=GuardSettings(approvals=1))
    estate.declare({"topic": "approvals.a", "num_partitions": 1}, {"topic": "approvals.old", "state": "absent"})
    summary = estate.run("provision", "r", requested_by="ann")
    assert (summary.exit_code, summary.state, summary.pending_changes) == (5, "planned", 1)
    assert "the approval of 1 person other than ann" in str(summary.waits_for)
    assert [(each.cluster, each.needs) for each in summary.pending.stopped] == [("main", {"deletes": 1})]
    assert json.loads(summary.to_json())["plan_digest"] == digest_of(estate.ledger, require_run(estate.ledger, "r"))
    with pytest.raises(UsageError, match=r"Ann  requested run r: another person must approve it"):
        estate.approve("r", by="Ann ")
    assert set(live(kafka, "approvals.")) == {"approvals.old"}

    with pytest.raises(UsageError, match="more than needed: deletes=1"):
        estate.approve("r", by="bob", allow={"deletes": 2})
    with pytest.raises(GuardStopped, match=rf"run r has another digest than {'0' * 16}: nothing was approved"):
        estate.approve("r", by="bob", allow={"deletes": 1}, digest="0" * 16)
    assert estate.rows(APPROVALS) == []
    shown = digest_of(estate.ledger, require_run(estate.ledger, "r"))[:SHOWN_DIGEST]
    found = estate.approve("r", by="bob", note="ticket 17", allow={"deletes": 1}, digest=shown)
    assert (found.missing, found.allowed_by) == (0, {"deletes": 1})
    assert estate.approve("r", by="BOB").by == ("bob",)
    summary = estate.run("apply", "r")
    assert (summary.exit_code, summary.state, summary.waits_for, summary.failures) == (0, "finished", None, [])
    assert set(live(kafka, "approvals.")) == {"approvals.a"}
    ((by, note),) = [(row["by"], row["note"]) for row in estate.rows(APPROVALS)]
    assert (by, note) == ("bob", "ticket 17")
    with pytest.raises(UsageError, match="run r is finished"):
        estate.approve("r", by="carol")

    verified = verify(estate.ledger, settings)
    assert (verified.findings, verified.runs) == ([], 1)
    estate.ledger.spark.sql(
        f"ALTER TABLE {estate.ledger.sql_name(APPROVALS)} SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    )
    estate.ledger.update(APPROVALS, "by = 'bob'", {"by": "'mallory'"})
    assert [(each.run_id, each.table) for each in verify(estate.ledger, settings).findings] == [("r", "approvals")]


@pytest.mark.thorough
def test_approvals_lapse_with_the_plan_and_need_a_plan(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka}, max_deletes=5)
    guards = GuardSettings(max_deletes=5, approvals_for={"deletes": 2, "rights": 1})
    estate.settings = replace(estate.settings, guards=guards)
    estate.declare({"topic": "approvals-lapse.a", "num_partitions": 1})
    summary = estate.run("provision", "creates", requested_by="ann")
    assert (summary.exit_code, summary.waits_for) == (0, None)

    estate.declare_anew({"topic": "approvals-lapse.a", "state": "absent"})
    assert estate.run("plan", "deletes", requested_by="ann").waits_for is not None
    found = estate.approve("deletes", by="bob")
    assert (found.needed, found.missing) == (2, 1)
    assert "1 person in addition to bob other than ann" in str(found)
    assert estate.approve("deletes", by="carol").missing == 0
    estate.ledger.update(PLANS, "run_id = 'deletes'", {"topic_id": "'another'"})
    assert estate.run("apply", "deletes").exit_code == 5
    assert set(live(kafka, "approvals-lapse.")) == {"approvals-lapse.a"}
    abandon(estate.ledger, estate.settings, "deletes")
    with pytest.raises(UsageError, match="run deletes was abandoned: plan again"):
        estate.approve("deletes", by="bob")
    with pytest.raises(UsageError, match="there is no run nobody"):
        estate.approve("nobody", by="bob")
    (row,) = estate.rows(RUNS, "creates")
    assert row["digest"]


def test_the_class_that_asks_for_most_approvals_decides() -> None:
    guards = GuardSettings(approvals=1, approvals_for={"deletes": 3, "rights": 2})
    assert [needed(guards, classes) for classes in ((), ("losses",), ("rights",), ("rights", "deletes"))] == [
        1,
        1,
        2,
        3,
    ]


def test_kind_of_action_that_is_not_known_needs_every_approval() -> None:
    every = {"deletes", "losses", "disruptions", "moves", "rights", "groups"}
    assert set(classes_of({"alter_anything": []})) == every
    assert set(classes_of({"create": [], "add_partitions": [], "elect_leaders": []})) == set()
    assert set(classes_of({"alter_configs": ["losses"], "reassign": []})) == {"losses", "moves"}
    assert set(classes_of({"acl_add": [], "delete": []})) == {"rights", "deletes"}
    assert set(classes_of({"alter_quota": []})) == {"rights"}
