"""Audits of one cluster with and without usage, in a warm session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks import brokers
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.apply.progress import Progress
from topicledger.config.settings import Settings, TablesSettings
from topicledger.drift.audit import audit
from topicledger.ledger import runs
from topicledger.ledger.session import get_session
from topicledger.ledger.tables import Ledger
from topicledger.schemas import USAGE

DRIVER_MEMORY = "1g"
_TOPICS = {Size.FULL: 10_000, Size.SMALL: 20}
_SAMPLES = {Size.FULL: 3, Size.SMALL: 1}


def run(size: Size, folder: Path) -> Result:
    """Audit a cluster whose topics no manifest names: every topic is drift, which both works write."""
    count = _TOPICS[size]
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    with brokers.fresh() as (kafka,):
        brokers.with_topics(kafka, count)
        ledger = Ledger(spark, str(folder / "ledger"))
        own = brokers.cluster_settings(kafka)
        settings = Settings(path=Path("bench.toml"), tables=TablesSettings(root=ledger.root), clusters={own.name: own})

        def audited(*, usage: bool) -> Mapping[str, int]:
            begun = runs.start(ledger, settings, runs.Request(command=runs.AUDIT_COMMAND, usage=usage))
            summary = audit(begun, Progress(shown=False))
            rows = ledger.read(USAGE).where(f"run_id = '{begun.run_id}'").count() if usage else 0
            return {"drift": summary.drift_count, "usage": rows}

        works = [
            Work(name="audit", what="drift", do=lambda _: audited(usage=False)),
            Work(name="usage", what="drift --usage", do=lambda _: audited(usage=True)),
        ]
        without, with_usage = in_turns(works, warm_ups=1 if size is Size.FULL else 0, samples=_SAMPLES[size])
    spark.stop()
    return Result(
        work=f"Audit of one cluster with {count:,} topics of one partition, with and without their usage.",
        series=[without, with_usage],
        ratios=[Ratio(of=with_usage.name, to=without.name, value=with_usage.median / without.median)],
        notes=["A warm session. The broker runs on the same cores."],
    )
