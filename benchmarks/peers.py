"""Creates by spark-submit, compared with tools that keep no records: many topics per request, and one per request."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import brokers
from benchmarks.jobs import PLAIN, Ground, ground, ledger, provision
from benchmarks.jobs import run as output_of
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size

DRIVER_MEMORY = "512m"
"""Memory of the measuring process; the jobs have Spark's default of 1 GB."""


def run(size: Size, folder: Path) -> Result:
    """10,000 creates, from shell to exit, each sample on a fresh broker."""
    count, samples = {Size.FULL: (10_000, 3), Size.SMALL: (20, 1)}[size]
    template = ledger(folder, count)

    @contextmanager
    def ready() -> Iterator[Ground]:
        with brokers.fresh() as (kafka,):
            yield ground(folder, template, kafka)

    def script(name: str, ground: Ground) -> Mapping[str, int]:
        output = output_of([sys.executable, str(PLAIN / name), ",".join(ground.kafka.bootstrap_servers), str(count)])
        created = int(output.split("created: ")[1].split()[0].rstrip(","))
        if created != count:
            raise AssertionError(output)
        return {"created": created}

    works = [
        Work(name="provision", what="spark-submit: every phase, every table", do=provision, around=ready),
        Work(
            name="batches",
            what="librdkafka: list, describe, create the missing, 2,000 per request",
            do=lambda ground: script("list_and_create.py", ground),
            around=ready,
        ),
        Work(
            name="one by one",
            what="librdkafka: one request for each topic",
            do=lambda ground: script("one_by_one.py", ground),
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
