"""`runs revert` of actions that failed and may have had an effect, compared with a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.changes import OK, alter, changing, ended, set_on
from tests.broker.direct import live, make, remove
from tests.harness import Estate
from topicledger.config.guards import GuardSettings
from topicledger.schemas import AUDIT, PLANS, RUNS, Table
from topicledger_testing.embedded_kafka import EmbeddedKafka

MANY = GuardSettings(max_deletes=100, max_losses=100, max_disruptions=100)


def ids_of(kafka: EmbeddedKafka, *topics: str) -> dict[str, str]:
    return {name: str(info.topic_id) for name, info in live(kafka, "").items() if name in topics}


def rewritable(estate: Estate, table: Table) -> str:
    """Return the SQL name of a table that takes only appends, and let this test rewrite its rows."""
    name = estate.ledger.sql_name(table)
    estate.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    return name


def fail_all(estate: Estate, run_id: str, resource: str | None = None, **columns: str) -> None:
    """Write into `audit` that all actions of a run failed without an answer; `columns`: SQL of further columns."""
    lost = {
        "outcome": "'failed'",
        "error_code": "-1",
        "error": "'NO_ANSWER'",
        "error_message": "'lost 8 times'",
        "before": "NULL",
        "after": "NULL",
        "topic_id": "NULL",
        **columns,
    }
    table = rewritable(estate, AUDIT)
    only = f"run_id = '{run_id}'" + (f" AND resource = '{resource}'" if resource else "")
    sets = ", ".join(f"{name} = {value}" for name, value in lost.items())
    estate.spark.sql(f"UPDATE {table} SET {sets} WHERE {only} AND phase = 'apply'")
    estate.spark.sql(f"DELETE FROM {table} WHERE {only} AND phase = 'verify'")
    # A run that lacks rows of its proof isn't reverted.
    estate.ledger.update(RUNS, f"run_id = '{run_id}'", {"proof": "NULL"})


@pytest.mark.thorough
def test_a_revert_compares_failed_actions_with_the_cluster(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Configs that have the run's values are reset. An action that changed nothing needs nothing, and has no row."""
    make(kafka, "half.done", "half.not", "half.other", "half.part", "half.refused", configs={"flush.ms": "1"})
    make(kafka, "half.grown", "half.same")
    estate = changing(spark, tmp_path, kafka, configs="declared", partitions="grow", guards=MANY)
    both = {"flush.ms": "2", "max.message.bytes": "2000000"}
    estate.declare(
        *({"topic": f"half.{each}", "configs": {"flush.ms": "2"}} for each in ("done", "not", "other", "refused")),
        {"topic": "half.part", "configs": both},
        *({"topic": f"half.{each}", "num_partitions": 2} for each in ("grown", "same")),
        *({"topic": f"half.{each}", "num_partitions": 1, "replication_factor": 1} for each in ("made", "unmade")),
    )
    assert estate.run(run_id="half").exit_code == 0
    fail_all(estate, "half")
    fail_all(estate, "half", "half.refused", error_code="40", error="'INVALID_CONFIG'")
    alter(kafka, "half.not", flush_ms="1")
    alter(kafka, "half.other", flush_ms="3")
    alter(kafka, "half.part", flush_ms="1")
    remove(kafka, ids_of(kafka, "half.unmade", "half.same"))
    make(kafka, "half.same")

    plan = estate.run("plan", "back", reverts="half", deletes=True)
    planned = {(row["topic"], row["action"]): row for row in estate.rows(PLANS, "back")}
    assert {key: (row["before"], row["after"]) for key, row in planned.items() if row["phase"] is None} == {
        ("half.done", "alter_configs"): ({"flush.ms": "2"}, {"flush.ms": "1"}),
        ("half.part", "alter_configs"): ({"max.message.bytes": "2000000"}, {}),
    }
    assert {key: row["error"] for key, row in planned.items() if row["phase"] is not None} == {
        ("half.other", "alter_configs"): "NOT_REVERTIBLE",
        ("half.grown", "add_partitions"): "NOT_REVERTIBLE",
        ("half.made", "delete"): "NOT_REVERTIBLE",
    }
    assert "may have created it, and failed: lost 8 times" in planned["half.made", "delete"]["error_message"]
    assert "may have added partitions" in planned["half.grown", "add_partitions"]["error_message"]
    unsure = {each.topic for each in plan.warnings if "it is unknown whether run half set" in each.message}
    assert unsure == {"half.done", "half.part"}
    estate.run("apply", "back")
    assert ended(estate, "back")["half.done", "alter_configs"] == OK
    assert set_on(kafka, "half.done", "half.part") == {each: {"flush.ms": "1"} for each in ("half.done", "half.part")}
