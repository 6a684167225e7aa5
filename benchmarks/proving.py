"""Cost of the proof at the end of a run, compared with reading the rows that it covers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.config.settings import Settings, TablesSettings
from topicledger.ledger import proof, runs
from topicledger.ledger.digests import of_runs
from topicledger.ledger.run import Run
from topicledger.ledger.session import for_few_rows, get_session
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, PLANS, Table

DRIVER_MEMORY = "1g"
CONFIGS = 33
"""Number of a topic's configs, as returned by brokers of 4.3."""
_PHASES = ("validate", "apply", "verify")
_TOPICS = {Size.FULL: 1_000, Size.SMALL: 10}
_SAMPLES = {Size.FULL: 9, Size.SMALL: 1}


def run(size: Size, folder: Path) -> Result:
    """Compute the digests of a run of creates in the driver, as at a run's end, and on executors, as `runs verify`."""
    count = _TOPICS[size]
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    ledger = Ledger(spark, str(folder / "ledger"))
    ended = _with_rows(ledger, count)

    def read(_: None) -> Mapping[str, int]:
        return {table.name: _rows_of(ledger, ended, table).toArrow().num_rows for table in (PLANS, AUDIT)}

    def end(_: None) -> Mapping[str, int]:
        found = proof.ending(ended).proof
        return {table.name: int(found[f"{table.name}_rows"]) for table in (PLANS, AUDIT)}

    def verify(_: None) -> Mapping[str, int]:
        found = of_runs({table.name: _rows_of(ledger, ended, table) for table in (PLANS, AUDIT)})
        return {name: digest.rows for (name, _), digest in found.items()}

    works = [
        Work(name="proof", what="everything that the end of a run adds", do=end),
        Work(name="executors", what="the same digests, as for runs with many rows", do=verify),
        Work(name="read", what="the same rows, read by the driver", do=read),
    ]
    with for_few_rows(spark):
        warm_ups = 3 if size is Size.FULL else 0
        series = in_turns(works, warm_ups=warm_ups, samples=_SAMPLES[size])
    spark.stop()
    ended_with, by_executors, rows_read = series
    return Result(
        work=f"The proof of {count:,} creates: {count * 4:,} rows, {count * 3:,} of them with {CONFIGS} configs.",
        series=series,
        ratios=[
            Ratio(of=each.name, to=rows_read.name, value=each.median / rows_read.median)
            for each in (ended_with, by_executors)
        ],
        notes=["A warm session. Target: below a second."],
    )


def _rows_of(ledger: Ledger, ended: Run, table: Table) -> DataFrame:
    return ledger.stored(table).where(F.col("run_id") == ended.run_id)


def _with_rows(ledger: Ledger, count: int) -> Run:
    """Return an open run whose rows are committed."""
    settings = Settings(path=Path("bench.toml"), tables=TablesSettings(root=ledger.root), clusters={})
    ledger.ensure(PLANS, AUDIT)
    begun = runs.begin(ledger, settings, runs.Request(command="provision"), {"command": "provision"})
    key = {"run_id": begun.run_id, "cluster": "bench", "resource_type": "topic", "action": "create"}
    configs = {f"a.config.{number}": str(number) for number in range(5)}
    planned = [
        {**key, "topic": name, "resource": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        for name in (f"bench.{number:05}" for number in range(count))
    ]
    ledger.append(PLANS, ledger.rows(PLANS, planned), app_id="bench", version=1)
    returned = [
        {"name": f"a.config.{number}", "value": str(number), "read_only": False, "config_source": "DEFAULT_CONFIG"}
        for number in range(CONFIGS)
    ]
    for phase in _PHASES:
        outcome = {"phase": phase, "outcome": "ok", "error_code": 0, "completed_at": datetime.now(UTC)}
        begun.append_audit(ledger.rows(AUDIT, [{**each, **outcome, "configs": returned} for each in planned]))
    return begun
