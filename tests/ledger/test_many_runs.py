"""Many runs on one ledger at the same time: each keeps its own row of `runs`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.fault.effort import THOROUGH
from topicledger.config.settings import Owners, OwnerSettings, Settings, TablesSettings
from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.ledger import runs
from topicledger.ledger.abandoned import abandon
from topicledger.ledger.run import row_of
from topicledger.ledger.runs import Request
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.schemas import RUNS, Table

RUNS_AT_ONCE = 50 if THOROUGH else 10
STATES = (RunState.PLANNED, RunState.APPLYING, RunState.FINISHED)
SHARDLESS = replace(
    RUNS, schema=StructType([field for field in RUNS.schema if field.name != "shard"]), partitioned_by=()
)


def a_run(ledger: Ledger, run_id: str, together: Barrier) -> None:
    """Commit a run's row and three states; some runs are abandoned in the end."""
    settings = Settings(path=Path("tests.toml"), tables=TablesSettings(root=ledger.root), clusters={})
    together.wait()
    run = runs.begin(ledger, settings, Request(command="maintain", run_id=run_id), {"about": run_id})
    for state in STATES:
        run.commit_state(state, counts={"of": len(run_id)})


def check(ledger: Ledger, names: list[str], table: Table = RUNS) -> None:
    found = ledger.read(table).select("run_id", "state", "epoch", "arguments", "counts").collect()
    assert sorted(row["run_id"] for row in found) == sorted(names)
    for row in found:
        assert (row["state"], row["epoch"]) == ("finished", 1)
        assert row["arguments"] == {"command": "maintain", "about": row["run_id"]}
        assert row["counts"] == {"of": len(row["run_id"])}


@pytest.mark.thorough
def test_simultaneous_runs_each_keep_their_own_row(ledger: Ledger) -> None:
    """Fifty runs with `make test-faults`. Updates of an unpartitioned table always conflict, so 45 of 50 failed."""
    names = [f"run-{number}" for number in range(RUNS_AT_ONCE)]
    together = Barrier(RUNS_AT_ONCE)
    with ThreadPoolExecutor(RUNS_AT_ONCE) as pool:
        list(pool.map(lambda name: a_run(Ledger(ledger.spark, ledger.root), name, together), names))
    check(ledger, names)


@pytest.mark.thorough
def test_older_table_accepts_simultaneous_runs(spark: SparkSession, tmp_path: Path) -> None:
    """The table isn't partitioned, so runs wait for each other. Its existing runs can be resumed as before."""
    ledger = Ledger(spark, str(tmp_path / "ledger"))
    ledger._create_if_missing(SHARDLESS)
    earlier = [{"run_id": name, "state": "planned", "epoch": 1} for name in ("given up", "done")]
    ledger.append(SHARDLESS, ledger.rows(SHARDLESS, earlier), app_id="earlier", version=1)
    names = [f"run-{number}" for number in range(3)]
    together = Barrier(len(names))
    Ledger(spark, ledger.root).ensure(RUNS)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: a_run(Ledger(spark, ledger.root), name, together), names))

    settings = Settings(path=Path("tests.toml"), tables=TablesSettings(root=ledger.root), clusters={})
    abandon(ledger, settings, "given up")
    assert ledger.update(RUNS, row_of("done"), {"state": "'finished'"}) == 1
    with pytest.raises(UsageError, match="run done is finished"):
        abandon(ledger, settings, "done")
    states = {row["run_id"]: row["state"] for row in ledger.read(RUNS).collect()}
    assert states == {**dict.fromkeys([*names, "done"], "finished"), "given up": "abandoned"}


@pytest.mark.thorough
def test_second_start_in_a_process_takes_over_the_run(ledger: Ledger) -> None:
    """Both share Spark's application, so the row names the start that it belongs to."""
    bound = Owners(
        names={"a": OwnerSettings(topics=("^a",), requested_by=("ann",)), "b": OwnerSettings(topics=("^b",))}
    )
    settings = Settings(path=Path("tests.toml"), tables=TablesSettings(root=ledger.root), clusters={}, owners=bound)
    request = Request(command="provision", run_id="twice", requested_by="bob")
    ledger.ensure(RUNS)
    first = runs._begin(ledger, settings, request, "twice", (), {})
    with pytest.raises(UsageError, match="resumed by another start"):
        runs._begin(ledger, settings, request, "twice", (), {})
    first.require_ownership()
    later = runs.start(ledger, settings, request)
    later.require_ownership()
    assert str(later.scope) == "not owner a", "its requester may not plan what a declares"
    with pytest.raises(UsageError, match="resumed by another start"):
        first.require_ownership()
    with pytest.raises(TopicLedgerError, match="resumed by another start") as caught:
        first.commit_state(RunState.FINISHED)
    assert caught.value.exit_code == ExitCode.ERROR, "it may have changed clusters"
    assert ledger.read(RUNS).count() == 1


@pytest.mark.thorough
@pytest.mark.parametrize("ended", [RunState.FINISHED, RunState.ABANDONED])
def test_a_start_leaves_a_run_as_it_is_that_ends_meanwhile(
    ended: RunState, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the row before the end. The digest of an ended run covers its epoch: `verify` would call it changed."""
    settings = Settings(path=Path("tests.toml"), tables=TablesSettings(root=ledger.root), clusters={})
    request = Request(command="provision", run_id="ending")
    ledger.ensure(RUNS)
    runs._begin(ledger, settings, request, "ending", (), {"command": "provision", "clusters": ""})
    require_fresh = runs.require_fresh

    def ends(run_id: str, *more: Any) -> None:
        ledger.update(RUNS, row_of(run_id), {"state": f"'{ended.value}'", "exit_code": "0"})
        require_fresh(run_id, *more)

    monkeypatch.setattr(runs, "require_fresh", ends)
    if ended is RunState.ABANDONED:
        with pytest.raises(UsageError, match="run ending was resumed by another start, or abandoned"):
            runs.start(ledger, settings, request)
    else:
        found = runs.start(ledger, settings, request)
        assert (found.state, found.epoch, found.exit_code) == (RunState.FINISHED, 1, 0)
    (row,) = ledger.read(RUNS).collect()
    assert (row["state"], row["epoch"]) == (ended.value, 1)
