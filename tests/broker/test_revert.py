"""`runs revert`, plans from earlier manifests, and `--only`: on a real broker, by the tables alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.broker.changes import OK, WEEK, alter, changing, ended, of_phase, set_on
from tests.broker.direct import live, make, remove
from tests.harness import Estate, policy
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import PolicySettings
from topicledger.errors import UsageError
from topicledger.model import RunState
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

MANY = GuardSettings(max_deletes=100, max_losses=100, max_disruptions=100)


def ids_of(kafka: EmbeddedKafka, *topics: str) -> dict[str, str]:
    return {name: str(info.topic_id) for name, info in live(kafka, "").items() if name in topics}


@pytest.mark.thorough
def test_reverting_a_run_restores_what_was_set_before(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Values, and the broker's default as their source, come from `audit` alone. Irrevertible changes have a reason."""
    make(kafka, "undo.a", "undo.b", "undo.grown", configs={"retention.ms": "700000000", "flush.ms": "7"})
    make(kafka, "undo.reset", configs={"segment.bytes": "20000000"})
    make(kafka, "undo.gone", "undo.foreign", "undo.already", configs={"flush.ms": "1"})
    first = set_on(kafka, "undo.a", "undo.b", "undo.grown", "undo.reset")
    estate = changing(spark, tmp_path, kafka, configs="exact", partitions="grow", guards=MANY)
    estate.declare(
        {"topic": "undo.a", "configs": {"retention.ms": "800000000", "compression.type": "zstd"}},
        {"topic": "undo.b", "configs": {"retention.ms": "700000000", "flush.ms": "8"}},
        {"topic": "undo.grown", "num_partitions": 3, "configs": {"retention.ms": "700000000"}},
        {"topic": "undo.reset", "owner": "payments"},
        {"topic": "undo.made", "num_partitions": 1, "replication_factor": 1},
        *({"topic": f"undo.{each}", "configs": {"flush.ms": "2"}} for each in ("gone", "foreign", "already")),
    )
    assert estate.run(run_id="undo").exit_code == 0
    assert set_on(kafka, "undo.reset") == {"undo.reset": {}}
    remove(kafka, ids_of(kafka, "undo.gone"))
    alter(kafka, "undo.foreign", flush_ms="3")
    alter(kafka, "undo.already", flush_ms="1")

    plan = estate.run("plan", "undo-plan", reverts="undo")
    planned = {(row["topic"], row["action"]): row for row in estate.rows(PLANS, "undo-plan")}
    assert {key: (row["before"], row["after"]) for key, row in planned.items() if row["phase"] is None} == {
        ("undo.a", "alter_configs"): (
            {"retention.ms": "800000000", "compression.type": "zstd"},
            {"retention.ms": "700000000", "flush.ms": "7"},
        ),
        ("undo.b", "alter_configs"): ({"flush.ms": "8"}, {"flush.ms": "7"}),
        ("undo.grown", "alter_configs"): ({}, {"flush.ms": "7"}),
        ("undo.reset", "alter_configs"): ({}, {"segment.bytes": "20000000"}),
    }
    refused = {key: (row["outcome"], row["error"]) for key, row in planned.items() if row["phase"] is not None}
    assert refused == {
        ("undo.grown", "add_partitions"): ("refused", "NOT_REVERTIBLE"),
        ("undo.gone", "alter_configs"): ("refused", "NOT_REVERTIBLE"),
        ("undo.foreign", "alter_configs"): ("refused", "NOT_REVERTIBLE"),
        ("undo.made", "delete"): ("skipped", None),
    }
    assert "flush.ms is 3, the run left it 2" in planned["undo.foreign", "alter_configs"]["error_message"]
    assert "1 -> 3" in planned["undo.grown", "add_partitions"]["error_message"]
    assert plan.decisions["unchanged"] == 1, "what somebody set back already"
    warned = {each.topic for each in plan.warnings}
    assert warned == {"undo.a", "undo.b"}, "what the manifests still ask for"

    done = estate.run("apply", "undo-plan")
    assert (done.exit_code, done.outcomes()) == (4, {"ok": 4, "refused": 3, "skipped": 1})
    assert set_on(kafka, *first) == first
    estate.check_invariant("undo-plan")
    again = estate.run("plan", "undo-again", reverts="undo")
    assert again.pending_changes == 0


@pytest.mark.thorough
def test_a_value_that_later_runs_set_again_is_not_reverted(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """1 -> 2 by the run, -> 3 and -> 2 by later ones: the value is as the run left it, and is another run's."""
    make(kafka, "again.one", "again.two", configs={"flush.ms": "1", "retention.ms": "700000000"})
    estate = changing(spark, tmp_path, kafka, configs="declared", guards=MANY)
    for run_id, one, retention in (("x", 2, 700000000), ("y", 3, 700000000), ("z", 2, 800000000)):
        estate.declare_anew(
            {"topic": "again.one", "configs": {"flush.ms": str(one)}},
            {"topic": "again.two", "configs": {"flush.ms": "2", "retention.ms": str(retention)}},
        )
        assert estate.run(run_id=run_id).exit_code == 0
    estate.run("plan", "back", reverts="x")
    planned = {row["topic"]: row for row in estate.rows(PLANS, "back")}
    one, two = planned["again.one"], planned["again.two"]
    assert (one["outcome"], one["error"]) == ("refused", "NOT_REVERTIBLE")
    assert "changed again since run x: flush.ms by run z" in one["error_message"]
    # Later runs altered only a different config of this topic.
    assert (two["phase"], two["before"], two["after"]) == (None, {"flush.ms": "2"}, {"flush.ms": "1"})


@pytest.mark.thorough
def test_created_topics_are_deleted_only_on_request_and_by_id(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(
        *({"topic": f"made.{each}", "num_partitions": 1, "replication_factor": 1} for each in ("one", "again", "gone"))
    )
    assert estate.run(run_id="made").exit_code == 0
    remove(kafka, ids_of(kafka, "made.gone", "made.again"))
    make(kafka, "made.again")
    stopped = estate.run("plan", "made-stopped", reverts="made", deletes=True)
    assert stopped.exit_code == 5, "guards.max_deletes is 0"
    assert ended(estate, "made-stopped")["made.one", "delete"] == ("guard", "refused", "MAX_DELETES_EXCEEDED")
    estate.settings = replace(estate.settings, guards=MANY)
    summary = estate.run("plan", "made-plan", reverts="made", deletes=True)
    assert (summary.pending_changes, summary.decisions["unchanged"]) == (1, 1)
    assert {each.topic for each in summary.warnings} == {"made.one"}
    estate.run("apply", "made-plan")
    assert ended(estate, "made-plan") == {
        ("made.one", "delete"): OK,
        ("made.again", "delete"): ("observe", "refused", "RECREATED"),
    }
    assert set(live(kafka, "made.")) == {"made.again"}


@pytest.mark.thorough
def test_policies_evaluate_what_a_revert_sets_and_deletes(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """A revert has no declared configs, and a topic without a row may have any label."""
    make(kafka, "pol.a", configs={"unclean.leader.election.enable": "true", "flush.ms": "7"})
    make(kafka, "pol.b", configs={"retention.ms": "2592000000", "flush.ms": "7"})
    make(kafka, "pol.c", configs={"segment.bytes": "20000000", "flush.ms": "7"})
    estate = changing(spark, tmp_path, kafka, configs="exact", guards=MANY)
    flush = {"configs": {"flush.ms": "7"}}
    estate.declare(
        *({"topic": f"pol.{each}", **flush} for each in "abc"),
        {"topic": "pol.made", "num_partitions": 1, "replication_factor": 1, "labels": {"tier": "gold"}},
    )
    assert estate.run(run_id="pol").exit_code == 0
    estate.declare(*({"topic": f"pol.{each}", **flush} for each in "abc"))
    create = (
        policy("configs_forbidden", names=["unclean.leader.election.enable"]),
        policy("configs_allowed", names=["flush.ms", "retention.ms", "segment.bytes"]),
        policy("config_range", config="retention.ms", max="7d"),
    )
    tier = {"tier": "gold"}
    gold = replace(policy("protected_topics", patterns=["made"]), labels=tier)
    estate.settings = replace(estate.settings, policies=PolicySettings(create=create, delete=(gold,)))
    estate.run("plan", "pol-plan", reverts="pol", deletes=True)
    rows = {(row["topic"], row["action"]): row for row in estate.rows(PLANS, "pol-plan")}
    assert {key: (row["phase"], row["error"]) for key, row in rows.items()} == {
        ("pol.a", "alter_configs"): ("policy", "POLICY_VIOLATION"),
        ("pol.b", "alter_configs"): ("policy", "POLICY_VIOLATION"),
        ("pol.c", "alter_configs"): (None, None),
        ("pol.made", "delete"): ("policy", "POLICY_VIOLATION"),
    }
    assert {each["policy"] for each in rows["pol.a", "alter_configs"]["violations"]} >= {
        "configs_forbidden",
        "configs_allowed",
    }
    assert "retention.ms is 2592000000; allowed" in rows["pol.b", "alter_configs"]["error_message"]
    assert rows["pol.c", "alter_configs"]["configs"] == {"segment.bytes": "20000000", "flush.ms": "7"}

    estate.declare_anew(*({"topic": f"pol.{each}", **flush} for each in "ab"))
    only = replace(policy("configs_allowed", names=["flush.ms"]), labels=tier)
    estate.settings = replace(estate.settings, policies=PolicySettings(create=(only,)))
    estate.run("plan", "pol-labels", reverts="pol")
    refused = {row["topic"] for row in estate.rows(PLANS, "pol-labels") if row["error"] == "POLICY_VIOLATION"}
    assert refused == {"pol.c"}, "its row is gone, so any label may have been its own"


@pytest.mark.thorough
def test_a_run_that_is_open_or_changed_no_cluster_is_not_reverted(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare({"topic": "open.one", "num_partitions": 1, "replication_factor": 1})
    estate.run("plan", "open")
    for run_id, message in (("open", "is planned: finish it"), ("nobody", "there is no run nobody")):
        with pytest.raises(UsageError, match=message):
            estate.run("plan", reverts=run_id)
    estate.run_audit("looked")
    with pytest.raises(UsageError, match="changed no cluster"):
        estate.run("plan", reverts="looked")
    assert estate.run("apply", "open", wait_visible=60.0).exit_code == 0
    estate.run("plan", reverts="open")
    rows = len(estate.rows(AUDIT, "open"))
    aged = [(AUDIT, "phase = 'verify'", f"{rows - 1} of {rows} rows of audit"), (PLANS, "true", "0 of 1 rows of plans")]
    for table, which, left in aged:
        estate.ledger.delete(table, f"run_id = 'open' AND {which}")
        with pytest.raises(UsageError, match=f"can't be reverted: .*{left}"):
            estate.run("plan", reverts="open")


@pytest.mark.thorough
def test_a_plan_from_earlier_manifests_restores_them_unless_changed(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka, "early.one", "early.two")
    estate = changing(spark, tmp_path, kafka, configs="declared", guards=MANY)
    both = ("early.one", "early.two")
    estate.declare(*({"topic": name, "configs": {"retention.ms": WEEK + "0"}} for name in both))
    version = estate.ledger.latest_version(MANIFESTS)
    at = datetime.now(UTC)
    estate.declare_anew(*({"topic": name, "configs": {"retention.ms": WEEK + "1"}} for name in both))
    assert estate.run(run_id="late").exit_code == 0
    for run_id, asked in (("by-time", {"manifests": at}), ("by-version", {"manifests": version})):
        summary = estate.run("plan", run_id, **asked)
        assert (summary.manifest_version, summary.pending_changes) == (version, 2)
    rows = of_phase(estate, "by-version", "validate")
    assert {row["manifest_version"] for row in rows.values()} == {version}
    # One topic's manifest changes between plan and apply: what the plan meant isn't known any more.
    estate.declare_anew(
        {"topic": "early.one", "configs": {"retention.ms": WEEK + "1"}},
        {"topic": "early.two", "configs": {"retention.ms": WEEK + "2"}},
    )
    assert estate.run("apply", "by-version").exit_code == 4
    assert ended(estate, "by-version") == {
        ("early.one", "alter_configs"): OK,
        ("early.two", "alter_configs"): ("apply", "refused", "CHANGED_SINCE_PLAN"),
    }
    assert set_on(kafka, *both) == {
        "early.one": {"retention.ms": WEEK + "0"},
        "early.two": {"retention.ms": WEEK + "1"},
    }
    for asked, message in (
        ({"manifests": 10_000}, "has no version 10000; the latest is"),
        ({"manifests": datetime(2020, 1, 1, tzinfo=UTC)}, "has no version of 2020-01-01"),
        ({"manifests": datetime(2999, 1, 1, tzinfo=UTC)}, "in the future"),
    ):
        with pytest.raises(UsageError, match=message):
            estate.run("plan", **asked)
    with pytest.raises(UsageError, match=f"manifest_version: {version}, not the latest"):
        estate.run("plan", "by-time")
    assert estate.ledger.read(RUNS).where(F.col("state") == RunState.PLANNING.value).count() == 0


@pytest.mark.thorough
def test_only_narrows_a_run_to_kinds_of_actions(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    make(kafka, "only.grows", "only.goes")
    estate = changing(spark, tmp_path, kafka, configs="declared", partitions="grow", guards=MANY)
    estate.declare(
        {"topic": "only.grows", "num_partitions": 2, "configs": {"flush.ms": "5"}},
        {"topic": "only.goes", "state": "absent"},
        {"topic": "only.comes", "num_partitions": 1, "replication_factor": 1},
        {"topic": "only.bad", "num_partitions": 0},
    )
    summary = estate.run(run_id="only-configs", only=("configs",))
    assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 1, "refused": 1})
    assert (summary.decisions["left_out"], summary.decisions["unchanged"]) == (2, 0)
    assert ended(estate, "only-configs")["only.grows", "alter_configs"] == OK
    assert set(live(kafka, "only.")) == {"only.grows", "only.goes"}
    estate.run("plan", "only-two", only=("creates", "partitions"))
    with pytest.raises(UsageError, match="only: creates,partitions, not all"):
        estate.run("plan", "only-two")
    estate.run("apply", "only-two")
    assert {key for key, last in ended(estate, "only-two").items() if last == OK} == {
        ("only.grows", "add_partitions"),
        ("only.comes", "create"),
    }
    last = estate.run(run_id="only-rest", only=("deletes",))
    assert (last.decisions.get("left_out", 0), last.outcomes()["ok"]) == (0, 1)


@pytest.mark.thorough
def test_a_value_changed_back_is_warned_of_the_third_time(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    make(kafka, "fight.one", "fight.calm")
    estate = changing(spark, tmp_path, kafka, configs="declared", guards=MANY)
    estate.declare(*({"topic": f"fight.{each}", "configs": {"flush.ms": "5"}} for each in ("one", "calm")))
    for time in (1, 2, 3):
        summary = estate.run(run_id=f"fight-{time}")
        assert summary.exit_code == 0
        assert [each.topic for each in summary.warnings] == (["fight.one"] if time == 3 else [])
        assert set_on(kafka, "fight.one")["fight.one"] == {"flush.ms": "5"}
        alter(kafka, "fight.one", flush_ms="6")
    (warned,) = summary.warnings
    assert warned.policy == "changed_back"
    assert (
        "flush.ms is 6 again: 2 runs of the last 30 days set flush.ms=5, the last of them fight-2 at" in warned.message
    )
    estate.check_invariant("fight-3")
    (row,) = (row for row in estate.rows(AUDIT, "fight-3") if row["phase"] == "policy")
    assert (row["action"], row["outcome"], row["error"]) == ("alter_configs", "ok", None)
