"""`prune` plans to delete unused topics that no manifest names; a topic in doubt stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.broker.changes import OK, ended
from tests.broker.direct import live, make, remove
from tests.broker.invoking import invoke
from tests.broker.records import commit, drop_records, write
from tests.harness import UNREACHABLE, Estate, cluster_settings, policy
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings
from topicledger.ledger.tables import Ledger
from topicledger.model.prune import Prune
from topicledger.plan import approvals
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, USAGES
from topicledger_testing.embedded_kafka import EmbeddedKafka

FOREVER = {"retention.ms": "-1"}
LONG_AGO = datetime.now(UTC).replace(microsecond=0) - timedelta(days=40)
TEN = GuardSettings(max_deletes=10)


def estate_of(spark: SparkSession, tmp_path: Path, kafka: EmbeddedKafka, guards: GuardSettings = TEN) -> Estate:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.settings = replace(estate.settings, guards=guards)
    return estate


def idle(kafka: EmbeddedKafka, *names: str) -> None:
    """Create topics whose last record is 40 days old."""
    make(kafka, *names, configs=FOREVER)
    for name in names:
        write(kafka, name, at=LONG_AGO)


def prune(*patterns: str, days: int = 30) -> Prune:
    return Prune(patterns=patterns, idle_days=days)


def earlier(estate: Estate, run_id: str, days: int) -> None:
    """Make a plan as old as if it had been made some days ago."""
    estate.ledger.update(PLANS, f"run_id = '{run_id}'", {"planned_at": f"planned_at - INTERVAL {days} DAYS"})


def planned(estate: Estate, run_id: str) -> dict[str, tuple[str | None, str | None, str | None]]:
    """Return topic -> phase, outcome and error in the plan; None if it will be deleted."""
    rows = estate.rows(PLANS, run_id)
    assert {row["action"] for row in rows} == {"delete"}
    return {row["topic"]: (row["phase"], row["outcome"], row["error"]) for row in rows}


DELETE = (None, None, None)
USED = ("policy", "skipped", None)
UNKNOWN = ("policy", "refused", "UNJUDGEABLE")


@pytest.mark.thorough
def test_topics_that_no_manifest_names_and_nobody_uses_are_deleted(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    idle(kafka, "pr.old", "pr.late.manifest", "pr.late.record", "pr.late.group", "pr.late.again")
    idle(kafka, "pr.declared", "pr.absent", "pr.usages", "pr.group", "_pr.tool", "kept.pr")
    make(kafka, "pr.new", "pr.empty", "pr.emptied", configs=FOREVER)
    write(kafka, "pr.new", at=datetime.now(UTC))
    write(kafka, "pr.emptied", at=LONG_AGO)
    drop_records(kafka, "pr.emptied")
    commit(kafka, "pr-readers", "pr.group")
    estate = estate_of(spark, tmp_path, kafka)
    estate.declare(
        {"topic": "pr.declared", "num_partitions": -1},
        {"topic": "pr.absent", "state": "absent"},
        {"topic": "pr.missing"},
    )
    estate.ledger.append(
        USAGES,
        spark.createDataFrame([("main", "pr.usages", "billing", None, None)], USAGES.schema),
        app_id="usages",
        version=1,
    )

    plan = estate.run("plan", "pr", instead=prune(r"^_?pr\.", r"^nothing-has-this-name$"))
    late = ("pr.late.manifest", "pr.late.record", "pr.late.group", "pr.late.again")
    assert planned(estate, "pr") == {
        **dict.fromkeys(("pr.old", *late), DELETE),
        **dict.fromkeys(("pr.usages", "pr.group", "pr.new"), USED),
        "_pr.tool": ("observe", "skipped", None),
        **dict.fromkeys(("pr.empty", "pr.emptied"), UNKNOWN),
    }
    messages = {row["topic"]: row["error_message"] for row in estate.rows(PLANS, "pr")}
    assert "in use by billing" in messages["pr.usages"]
    assert "pr-readers (no members, but committed offsets)" in messages["pr.group"]
    assert "its last record is from " in messages["pr.new"]
    assert "it keeps no records, so Kafka doesn't report when the last one came" in messages["pr.empty"]
    assert (plan.exit_code, plan.pending_changes) == (4, 5)
    assert plan.decisions["declared"] == 2, "topics that manifests name, and that live"

    estate.declare({"topic": "pr.late.manifest"})
    write(kafka, "pr.late.record", at=LONG_AGO)
    commit(kafka, "pr-late", "pr.late.group")
    remove(kafka, {"pr.late.again": str(live(kafka, "pr.late.again")["pr.late.again"].topic_id)})
    idle(kafka, "pr.late.again")
    assert estate.run("apply", "pr").exit_code == 4
    by_topic = {topic: last for (topic, _), last in ended(estate, "pr").items()}
    assert {topic: by_topic[topic] for topic in ("pr.old", *late)} == {
        "pr.old": OK,
        "pr.late.manifest": ("apply", "refused", "CHANGED_SINCE_PLAN"),
        "pr.late.record": ("apply", "refused", "POLICY_VIOLATION"),
        "pr.late.group": ("apply", "refused", "POLICY_VIOLATION"),
        "pr.late.again": ("apply", "refused", "RECREATED"),
    }
    (row,) = (row for row in estate.rows(AUDIT, "pr") if row["topic"] == "pr.late.record" and row["phase"] == "apply")
    assert "records came since it was planned: its end offset was 1, now it is 2" in row["error_message"]
    assert "pr.old" not in live(kafka, "pr.")
    assert len(live(kafka, "pr.")) == 11
    estate.check_invariant("pr")


@pytest.mark.thorough
def test_an_empty_topic_is_pruned_once_its_end_offset_stayed_the_same(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    names = ("em.never", "em.emptied", "em.written", "em.again")
    make(kafka, *names, configs=FOREVER)
    write(kafka, "em.emptied", at=LONG_AGO)
    drop_records(kafka, "em.emptied")
    estate = estate_of(spark, tmp_path, kafka)
    estate.run("plan", "em-first", instead=prune("^em[.]"))
    estate.run("plan", "em-too-early", instead=prune("^em[.]"))
    assert planned(estate, "em-first") == planned(estate, "em-too-early") == dict.fromkeys(names, UNKNOWN)
    earlier(estate, "em-first", 31)
    write(kafka, "em.written", at=LONG_AGO)
    drop_records(kafka, "em.written")
    remove(kafka, {"em.again": str(live(kafka, "em.again")["em.again"].topic_id)})
    make(kafka, "em.again", configs=FOREVER)
    estate.run("plan", "em-longer", instead=prune("^em[.]", days=32))
    assert planned(estate, "em-longer") == {**dict.fromkeys(names, UNKNOWN), "em.written": USED}
    plan = estate.run("plan", "em", instead=prune("^em[.]"))
    assert planned(estate, "em") == {
        **dict.fromkeys(("em.never", "em.emptied"), DELETE),
        "em.written": USED,
        "em.again": UNKNOWN,
    }
    assert plan.pending_changes == 2
    # A record that came and went since the plan leaves its end offset.
    write(kafka, "em.emptied", at=LONG_AGO)
    drop_records(kafka, "em.emptied")
    estate.run("apply", "em")
    assert ended(estate, "em")["em.never", "delete"] == OK
    assert ended(estate, "em")["em.emptied", "delete"] == ("apply", "refused", "POLICY_VIOLATION")
    assert set(live(kafka, "em.")) == set(names) - {"em.never"}


@pytest.mark.thorough
def test_guards_policies_and_approvals_hold_for_a_prune(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    idle(kafka, "gu.one", "gu.two", "gu.three")
    estate = estate_of(spark, tmp_path, kafka, GuardSettings(max_deletes=1))
    protected = PolicySettings(
        delete=(replace(policy("protected_topics", patterns=["three"]), labels={"tier": "gold"}, owners=("a",)),)
    )
    estate.settings = replace(estate.settings, policies=protected)
    assert estate.run("plan", "gu-many", instead=prune("^gu[.]")).exit_code == 5
    stopped = ("guard", "refused", "MAX_DELETES_EXCEEDED")
    refused = {"gu.three": ("policy", "refused", "POLICY_VIOLATION")}
    assert planned(estate, "gu-many") == {**dict.fromkeys(("gu.one", "gu.two"), stopped), **refused}
    estate.settings = replace(estate.settings, guards=GuardSettings(max_deletes=2, approvals_for={"deletes": 1}))
    plan = estate.run("plan", "gu", instead=prune("^gu[.]"), requested_by="ann")
    assert planned(estate, "gu") == {**dict.fromkeys(("gu.one", "gu.two"), DELETE), **refused}
    assert plan.pending.waits_for is not None
    assert estate.run("apply", "gu").exit_code == 5
    assert len(live(kafka, "gu.")) == 3
    approvals.approve(estate.ledger, estate.settings, "gu", by="bob", note=None)
    assert estate.run("apply", "gu").exit_code == 4
    assert set(live(kafka, "gu.")) == {"gu.three"}


@pytest.mark.thorough
def test_an_unreachable_cluster_is_pruned_later_by_the_same_run(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    idle(kafka, "un.one")
    estate = estate_of(spark, tmp_path, kafka)
    estate.settings = replace(
        estate.settings, clusters={**estate.settings.clusters, "far": cluster_settings("far", UNREACHABLE)}
    )
    estate.declare({"topic": "un.declared"}, cluster="far")
    first = estate.run("plan", "un", instead=prune("^un[.]"))
    assert first.exit_code == 1
    rows = {(row["cluster"], row["topic"]): row["error"] for row in estate.rows(PLANS, "un")}
    assert rows == {("main", "un.one"): None, ("far", None): "CLUSTER_UNREACHABLE"}
    with clusters.plain() as other:
        idle(other, "un.two")
        estate.settings = replace(
            estate.settings, clusters={**estate.settings.clusters, "far": cluster_settings("far", other)}
        )
        assert estate.run("plan", "un", instead=prune("^un[.]")).exit_code == 0
        assert estate.run("apply", "un").exit_code == 0
        assert not live(other, "un.")
    assert not live(kafka, "un.")
    assert ended(estate, "un")["un.two", "delete"] == OK


@pytest.mark.thorough
def test_another_cluster_behind_a_name_is_not_pruned(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    idle(kafka, "an.one")
    estate = estate_of(spark, tmp_path, kafka)
    meant = cluster_settings("main", kafka, "it-is-another-one-AAAA")
    estate.settings = replace(estate.settings, clusters={"main": meant})
    assert estate.run("plan", "an", instead=prune("^an[.]")).exit_code == 5
    (row,) = estate.rows(PLANS, "an")
    assert (row["topic"], row["phase"], row["error"]) == (None, "guard", "CLUSTER_ID_MISMATCH")


@pytest.mark.thorough
def test_a_prune_is_planned_and_applied_by_command(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    idle(kafka, "by.one")
    make(kafka, "by.new")
    write(kafka, "by.new", at=datetime.now(UTC))
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more="[guards]\nmax_deletes = 1\n")
    Ledger(spark, str(tmp_path / "ledger")).ensure(MANIFESTS)
    asked = ("--topics", "^by[.]", "--idle-days", "30", "--config", config)
    answer = invoke("prune", *asked, "--run-id", "by", "--detailed-exitcode")
    assert answer.exit_code == 3, answer.output
    assert "1 skipped on main: its last record is from " in answer.stdout
    assert "apply --run-id by" in answer.stdout
    assert "prunes: " in invoke("plan", "--config", config, "--run-id", "by").stderr
    assert invoke("apply", "--config", config, "--run-id", "by").exit_code == 0
    assert set(live(kafka, "by.")) == {"by.new"}
    again = invoke("prune", *asked, "--topics", "^other$", "--run-id", "by")
    assert (again.exit_code, "the same id needs the same arguments" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--topics", "^x", "--idle-days", "0"), "0 is not a duration of at least 1 and at most 36500 (in whole days"),
        (("--topics", "(x", "--idle-days", "7"), "pattern '(x' is not valid in RE2"),
        (("--idle-days", "7"), "Missing option '--topic'"),
        (("--topics", "^x"), "Missing option '--idle-days'"),
    ],
)
def test_a_prune_needs_a_pattern_and_a_number_of_days(asked: Sequence[str], message: str, tmp_path: Path) -> None:
    answer = invoke("prune", *asked, "--config", tmp_path / "none.toml")
    assert answer.exit_code == 2
    assert message in answer.stderr
