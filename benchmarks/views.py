"""Cost of the views over a long history, compared with reading the tables that have the history."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks import data
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.config.settings import Settings, TablesSettings
from topicledger.ledger.session import get_session
from topicledger.ledger.tables import Ledger
from topicledger.queries.asking import answered
from topicledger.queries.views import View, all_views
from topicledger.schemas import APPROVALS, AUDIT, DRIFT, OBSERVED, RUNS, USAGE

DRIVER_MEMORY = "2g"
_TOPICS = {Size.FULL: 10_000, Size.SMALL: 50}
_TIMES = {Size.FULL: 100, Size.SMALL: 3}
"""Audits with usage, and runs that changed each topic."""
_SAMPLES = {Size.FULL: 3, Size.SMALL: 1}
_READ = "read"
"""Name of the work that reads the history."""
_FROM = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


def run(size: Size, folder: Path) -> Result:
    """Ask for all rows of each view in turns, and read all of `usage` and `audit`."""
    topics, times = _TOPICS[size], _TIMES[size]
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    ledger = Ledger(spark, str(folder / "ledger"))
    data.write(spark, ledger, data.Estate(manifests=topics, live=topics))
    write_history(ledger, times)
    settings = Settings(path=Path("bench.toml"), tables=TablesSettings(root=ledger.root), clusters={})

    def asked(query: str) -> Callable[[object], Mapping[str, int]]:
        def ask(_: object) -> Mapping[str, int]:
            with answered(ledger, settings, query) as rows:
                return {"rows": _materialised(rows)}

        return ask

    # The other views have no history to read.
    history = {view: _history(view) for view in all_views()}
    works = [
        Work(name=view.name, what=view.comment, do=asked(f"SELECT * FROM {view.name}"))
        for view, tables in history.items()
        if tables
    ]
    reads = [
        Work(name=f"{_READ} {table.name}", what=f"all columns of {table.name}", do=asked(f"SELECT * FROM {table.name}"))
        for table in (USAGE, AUDIT)
    ]
    series = in_turns([*reads, *works], warm_ups=1 if size is Size.FULL else 0, samples=_SAMPLES[size])
    spark.stop()
    medians = {each.name: each.median for each in series}
    return Result(
        work=f"Views over {topics * times:,} rows each of usage and audit, for {topics:,} live topics.",
        series=series,
        ratios=[
            Ratio(of=view.name, to=f"{_READ} {table}", value=medians[view.name] / medians[f"{_READ} {table}"])
            for view, tables in history.items()
            for table in sorted(tables)
        ],
        notes=["A warm session. All rows of a view are computed; none is printed."],
    )


def _history(view: View) -> set[str]:
    """Return which of `usage` and `audit` a view reads, itself or through other views."""
    names = set(_FROM.findall(view.query))
    through = (_history(each) for each in all_views() if each.name in names)
    return (names & {USAGE.name, AUDIT.name}).union(*through)


def _materialised(rows: DataFrame) -> int:
    """Compute each column of each row and return the number of rows."""
    hashes = rows.select(F.xxhash64(F.to_json(F.struct("*"))).alias("hash"))
    # Spark would compute no hash only to count them: it is never null.
    counted = hashes.agg(F.count("hash").alias("rows"), F.bit_xor("hash").alias("of_all"))
    return int(counted.collect()[0]["rows"])


def write_history(ledger: Ledger, times: int) -> None:
    """Fill `usage`, `audit`, `runs`, `approvals` and `drift`: an audit and a run a day, each about all live topics."""
    live = ledger.read(OBSERVED).select("cluster", "cluster_id", "topic", "topic_id", "num_partitions")
    topics = live.withColumn("number", F.pmod(F.xxhash64("topic"), F.lit(1_000)))
    days = ledger.spark.range(times).withColumn("day", F.lit(data.NOW - timedelta(days=times)) + _days(F.col("id")))
    history = topics.crossJoin(days)
    audit_id, run_id = _named("audit", F.col("id")), _named("run", F.col("id"))
    # Every tenth topic is never written and has no group.
    idle = F.col("number") < 100
    reader = F.struct(
        F.lit("billing").alias("group"),
        F.lit("Stable").alias("state"),
        (F.col("number") % 4).cast("int").alias("members"),
        F.lit(0).cast("bigint").alias("lag"),
    )
    size = F.col("number") * 1_000_000
    usage = history.withColumns(
        {
            "run_id": audit_id,
            "observed_at": F.col("day"),
            "internal": F.lit(False),
            "partitions": F.col("num_partitions"),
            "replication_factor": F.lit(3),
            "bytes": 3 * size,
            "bytes_one_copy": size,
            "end_offset": F.col("id") * F.col("number"),
            "records_since": F.when(idle, 0).otherwise(F.col("number")),
            "last_record_at": F.col("day"),
            "groups": F.when(
                idle, F.array().cast("array<struct<group:string,state:string,members:int,lag:bigint>>")
            ).otherwise(F.array(reader)),
            "producers": F.lit(1),
        }
    )
    data.append(ledger, USAGE, usage)
    audit = history.withColumns(
        {
            "run_id": run_id,
            "action": F.lit("alter_configs"),
            "phase": F.lit("apply"),
            "outcome": F.when(F.col("number") == 0, "refused").otherwise("ok"),
            "violations": F.lit(None),
            "completed_at": F.col("day"),
            "resource_type": F.lit("topic"),
            "resource": F.col("topic"),
            "before": F.create_map(F.lit("retention.ms"), F.col("id").cast("string")),
            "after": F.create_map(F.lit("retention.ms"), (F.col("id") + 1).cast("string")),
        }
    )
    data.append(ledger, AUDIT, audit)
    started = {"started_at": F.col("day"), "finished_at": F.col("day"), "state": F.lit("finished"), "shard": F.lit(0)}
    for name, command in ((audit_id, "audit"), (run_id, "provision")):
        about = {"run_id": name, "requested_by": F.lit("alice")}
        command_of = F.create_map(F.lit("command"), F.lit(command), F.lit("clusters"), F.lit(""))
        data.append(ledger, RUNS, days.withColumns({**started, **about, "arguments": command_of}), part=command)
    approved = {"run_id": run_id, "by": F.lit("bob"), "at": F.col("day"), "plan_digest": F.lit("of the benchmark")}
    data.append(ledger, APPROVALS, days.withColumns(approved))
    last = topics.where("number < 50").withColumns(
        {
            "run_id": F.lit(f"audit-{times - 1}"),
            "kind": F.lit("unmanaged"),
            "severity": F.lit("info"),
            "observed_at": F.lit(data.NOW),
        }
    )
    data.append(ledger, DRIFT, last)


def _days(number: Column) -> Column:
    return F.make_dt_interval(days=number.cast("int"))


def _named(command: str, number: Column) -> Column:
    return F.concat(F.lit(f"{command}-"), number.cast("string"))
