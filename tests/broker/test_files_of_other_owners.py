"""`plan FOLDER --owner`, and its `apply`, while another owner's file has an invalid entry: on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import live
from tests.broker.invoking import done, invoke
from tests.commands import settings_file
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS
from topicledger_testing.embedded_kafka import EmbeddedKafka


def save(folder: Path, owner: str, *topics: str) -> None:
    folder.mkdir(exist_ok=True)
    rows = "".join(f"  - {{{each}}}\n" for each in topics)
    (folder / f"{owner}.yaml").write_text(f"cluster: main\ndefaults: {{owner: {owner}}}\ntopics:\n{rows}")


@pytest.mark.thorough
@pytest.mark.parametrize("option", ["--replace", "--replace-owner=payments"])
def test_an_invalid_entry_of_another_owner_stops_no_plan_and_loses_no_row(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, option: str
) -> None:
    config = settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more="[guards]\nmax_removed_rows = 1\n")
    folder, name = tmp_path / "topics", option.strip("-").partition("=")[0]
    save(folder, "payments", f"topic: {name}.old, num_partitions: 1")
    save(folder, "orders", f"topic: {name}.theirs, num_partitions: 1")
    done("load-manifests", folder, "--config", config)
    save(folder, "payments", f"topic: {name}.new, num_partitions: 1")
    save(folder, "orders", f"topic: {name}.theirs, num_partitions: 0")
    saved = ("--config", config, "--run-id", "new")

    everything = invoke("plan", folder, "--config", config, option)
    assert everything.exit_code == 2, "without --owner, the entry would be loaded"
    plan = invoke("plan", folder, *saved, "--owner", "payments", option)
    assert plan.exit_code == 0, plan.output
    assert "(an entry outside --owner: left out)" in plan.stderr
    apply = invoke("apply", folder, *saved)
    assert apply.exit_code == 0, apply.output
    assert set(live(kafka, f"{name}.")) == {f"{name}.new"}
    rows = Ledger(spark, str(tmp_path / "ledger")).read(MANIFESTS).collect()
    assert {(row["topic"], row["num_partitions"]) for row in rows} == {(f"{name}.new", 1), (f"{name}.theirs", 1)}
