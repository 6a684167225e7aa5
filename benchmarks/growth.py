"""Planning an estate ten times as large, B5: decide, ten policies and the plan's commit, without Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from benchmarks import data, policies
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.ledger.session import get_session
from topicledger.ledger.tables import Ledger
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.resources.building import from_settings
from topicledger.schemas import BROKERS, PLANS

DRIVER_MEMORY = "1000m"
"""With Java's memory beside the heap and Python's memory, the driver stays below 2 GB."""
REACH = 10.0

_SIZES = {Size.FULL: (100_000, 1_000_000), Size.SMALL: (500, 2_000)}
_SAMPLES = {Size.FULL: 5, Size.SMALL: 1}


def run(size: Size, folder: Path) -> Result:
    """Plan a small and a large estate in turns."""
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    for name, value in policies.SESSION[size].items():
        spark.conf.set(name, value)
    numbers = count()

    def work(manifests: int) -> Work:
        estate = data.Estate(manifests=manifests, live=manifests // 5)
        ledger = Ledger(spark, str(folder / f"ledger-{manifests}"))
        data.write(spark, ledger, estate)
        ledger.ensure(PLANS)
        settings = policies.settings_with(folder, f"growth-{manifests}", ledger, estate, policies.ten_rules(estate))
        made = from_settings(settings)

        def plan(_: object) -> Mapping[str, int]:
            # Read from the table instead of observing: B5 leaves out Kafka, but not reading the rows.
            seen = Observation(
                topics=data.observed(ledger),
                brokers=ledger.read(BROKERS),
                statuses={name: ClusterStatus(cluster_id=f"id of {name}") for name in data.CLUSTERS},
            )
            return policies.plan(ledger, settings, made, seen, f"growth {next(numbers)}")

        what = f"{manifests:,} manifest rows, {estate.live:,} live topics, ten policies"
        return Work(name=f"{manifests:,}", what=what, do=plan)

    small, large = in_turns(
        [work(each) for each in _SIZES[size]], warm_ups=1 if size is Size.FULL else 0, samples=_SAMPLES[size]
    )
    spark.stop()
    return Result(
        work="Plan an estate, and one ten times as large: decide, ten policies, and the commit of `plans`.",
        series=[small, large],
        ratios=[Ratio(of=large.name, to=small.name, value=large.median / small.median, reach=REACH)],
        notes=[
            "No Kafka: the observed side is read from the table `observed`.",
            "Limit for the driver's peak memory: 2 GB, for the Java process and Python together.",
        ],
    )
