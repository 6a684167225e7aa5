"""Creates by spark-submit, compared with tools that keep no records: many topics per request, and one per request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.jobs import Ground, create_plainly, fresh_ground, ledger, provision
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size

DRIVER_MEMORY = "512m"
"""Memory of the measuring process; the jobs have Spark's default of 1 GB."""


def run(size: Size, folder: Path) -> Result:
    """10,000 creates, from shell to exit, each sample on a fresh broker."""
    count, samples = {Size.FULL: (10_000, 3), Size.SMALL: (20, 1)}[size]
    ready = partial(fresh_ground, folder, ledger(folder, count))

    def plainly(most: int, ground: Ground) -> Mapping[str, int]:
        counts = create_plainly(ground.kafka, count, most)
        if counts["created"] != count:
            raise AssertionError(counts)
        return counts

    works = [
        Work(name="provision", what="spark-submit: every phase, every table", do=provision, around=ready),
        Work(
            name="batches",
            what="librdkafka: list, describe, create the missing, 2,000 per request",
            do=partial(plainly, 2_000),
            around=ready,
        ),
        Work(
            name="one by one",
            what="librdkafka: the same, one request for each topic",
            do=partial(plainly, 1),
            around=ready,
        ),
    ]
    ours, batched, single = in_turns(works, warm_ups=0, samples=samples, elsewhere=True)
    return Result(
        work=f"Create {count:,} topics of one partition and one config, from shell to exit, fresh broker.",
        series=[ours, batched, single],
        ratios=[
            Ratio(of="one by one", to="provision", value=single.median / ours.median),
            Ratio(of="provision", to="batches", value=ours.median / batched.median),
        ],
        notes=["Both scripts record, check and recover nothing.", "The broker shares the cores."],
    )
