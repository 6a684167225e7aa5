"""Whole jobs, B2 to B4: processes as a scheduler starts them, compared with the simplest Spark scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import brokers
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Sample, Series, Size
from topicledger_testing.embedded_kafka import EmbeddedKafka

DRIVER_MEMORY = "512m"
"""Memory of the measuring process; the jobs have Spark's default of 1 GB."""

_REPOSITORY = Path(__file__).resolve().parent.parent
SUBMIT = _REPOSITORY / "spark-submit.sh"
_PLAIN = Path(__file__).resolve().parent / "plain"
_READY = re.compile(r"^from session ready to exit: ([0-9.]+) s$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A cluster, tables and settings for a job."""

    kafka: EmbeddedKafka
    root: Path
    settings: Path


def whole(size: Size, folder: Path) -> Result:
    """B2: creates, from session ready to exit."""
    count = {Size.FULL: 10_000, Size.SMALL: 50}[size]
    ready = partial(fresh_ground, folder, ledger(folder, count))
    times: dict[str, list[float]] = {"plain": [], "provision": []}

    def plain(ground: Ground) -> Mapping[str, int]:
        given = [str(ground.root / "manifests"), ",".join(ground.kafka.bootstrap_servers), str(ground.root / "plain")]
        output = run(_spark_submit(_PLAIN / "create_topics.py", *given))
        times["plain"].append(_from_ready(output))
        return {"created": int(output.split("created: ")[1].split()[0])}

    def timed(ground: Ground) -> Mapping[str, int]:
        output = run([str(SUBMIT), "benchmarks/provision_timed.py", str(ground.settings)])
        times["provision"].append(_from_ready(output))
        return outcomes(output)

    works = [
        Work(
            name="plain", what="anti-join, create_topics twice in mapInPandas, two Delta tables", do=plain, around=ready
        ),
        Work(name="provision", what="provision: every phase, every table", do=timed, around=ready),
    ]
    measured = in_turns(works, warm_ups=0, samples={Size.FULL: 5, Size.SMALL: 1}[size], elsewhere=True)
    plainest, ours = (_timed_within(series, times[series.name]) for series in measured)
    return Result(
        work=f"Create {count:,} topics of one partition and one config, from session ready to exit, fresh broker.",
        series=[plainest, ours],
        ratios=[Ratio(of="provision", to="plain", value=ours.median / plainest.median, reach=1.0)],
        notes=[
            "Each sample is a separate process, so both include a young JVM's compilation.",
            "The plain script checks, records and recovers nothing; it only reads, sends two requests and writes.",
        ],
    )


def cold(size: Size, folder: Path) -> Result:
    """B3 and B4: 1,000 creates, and nothing to do for 20,000 topics, from shell to exit."""
    creates, unchanged = {Size.FULL: (1_000, 20_000), Size.SMALL: (20, 40)}[size]
    samples = {Size.FULL: 5, Size.SMALL: 1}[size]
    ready = partial(fresh_ground, folder, ledger(folder, creates))
    with brokers.fresh() as (full,):
        brokers.with_topics(full, unchanged)
        many = ground(folder, ledger(folder, unchanged), full)

        @contextmanager
        def all_there() -> Iterator[Ground]:
            yield many

        works = [
            Work(
                name="session",
                what=f"spark-submit of a script that starts a Delta session and reads `manifests` ({creates:,} rows)",
                do=lambda ground: read(ground, creates),
                around=ready,
            ),
            Work(name="creates", what=f"provision, {creates:,} creates", do=provision, around=ready),
            Work(name="nothing", what=f"provision, {unchanged:,} topics unchanged", do=provision, around=all_there),
        ]
        session, some, none = in_turns(works, warm_ups=1 if size is Size.FULL else 0, samples=samples, elsewhere=True)
    return Result(
        work=f"From shell to exit: {creates:,} creates, and {unchanged:,} manifests that match {unchanged:,} topics.",
        series=[session, some, none],
        ratios=[
            Ratio(of="creates", to="session", value=some.median / session.median, reach=2.5),
            Ratio(of="nothing", to="session", value=none.median / session.median, reach=3.0),
        ],
        notes=[
            "The ledger's tables exist, as from the second run on; files are in the page cache.",
            "The brokers share the cores.",
        ],
    )


def exact(size: Size, folder: Path) -> Result:
    """Nothing to change, from shell to exit: a run with `[changes] configs = "exact"` compared with one without."""
    count = {Size.FULL: 10_000, Size.SMALL: 40}[size]
    with brokers.fresh() as (kafka,):
        brokers.with_topics(kafka, count)
        without = ground(folder, ledger(folder, count), kafka)
        settings = folder / "exact.toml"
        settings.write_text(
            without.settings.read_text(encoding="utf-8") + '[changes]\nconfigs = "exact"\n', encoding="utf-8"
        )
        asking = replace(without, settings=settings)

        @contextmanager
        def on(ground: Ground) -> Iterator[Ground]:
            yield ground

        works = [
            Work(name="without", what="provision without [changes]", do=provision, around=lambda: on(without)),
            Work(name="exact", what="provision that compares every config", do=provision, around=lambda: on(asking)),
        ]
        warm_ups, samples = {Size.FULL: (1, 5), Size.SMALL: (0, 1)}[size]
        plain, compared = in_turns(works, warm_ups=warm_ups, samples=samples, elsewhere=True)
    return Result(
        work=f"From shell to exit: {count:,} manifests that match {count:,} topics.",
        series=[plain, compared],
        ratios=[Ratio(of="exact", to="without", value=compared.median / plain.median, reach=1.6)],
        notes=["Every config of every topic is described, on the executors; the broker shares the cores."],
    )


def ledger(folder: Path, count: int, retention: str = brokers.RETENTION) -> Path:
    """Make a ledger with all its tables; only `manifests` has rows, of topics with this `retention.ms`."""
    root = folder / f"ledger-{count}-{retention}"
    run([sys.executable, "-m", "benchmarks.ledger", str(root), str(count), retention])
    return root


def ground(folder: Path, template: Path, kafka: EmbeddedKafka) -> Ground:
    root = folder / f"{template.name}-at-{kafka.cluster_id}"
    shutil.copytree(template, root)
    settings = root.with_suffix(".toml")
    servers = json.dumps(kafka.bootstrap_servers)
    settings.write_text(
        f'[tables]\nroot = "{root}"\n[clusters.{brokers.NAME}]\nbootstrap_servers = {servers}\n', encoding="utf-8"
    )
    return Ground(kafka=kafka, root=root, settings=settings)


@contextmanager
def fresh_ground(folder: Path, template: Path) -> Iterator[Ground]:
    """Provide a copy of the ledger `template`, and an empty cluster."""
    with brokers.fresh() as (kafka,):
        yield ground(folder, template, kafka)


def provision(ground: Ground) -> Mapping[str, int]:
    output = run([str(SUBMIT), "jobs/provision.py", "--config", str(ground.settings), "--format", "json"])
    return outcomes(output)


def outcomes(output: str) -> Mapping[str, int]:
    found = document(output)
    return {**found["decisions"], **found["outcomes"]}


def document(output: str) -> Mapping[str, Any]:
    """Return the result document of a job, which may print other lines around it."""
    found: Mapping[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
    return found


def create_plainly(kafka: EmbeddedKafka, count: int, most: int = 2_000) -> Mapping[str, int]:
    """Do the work of a tool without records; return what it counted.

    `most`: topics per request. Brokers refuse more than 3,300 with one partition and one config.
    """
    script = str(_PLAIN / "list_and_create.py")
    output = run([sys.executable, script, ",".join(kafka.bootstrap_servers), str(count), str(most)])
    return {name: int(number) for name, number in re.findall(r"(\w+): (\d+)", output)}


def read(ground: Ground, count: int) -> Mapping[str, int]:
    output = run(_spark_submit(_PLAIN / "read_manifests.py", str(ground.root / "manifests")))
    if int(output.split("rows: ")[1]) != count:
        raise AssertionError(output)
    return {"rows": count}


def _spark_submit(script: Path, *arguments: str) -> list[str]:
    """Return the command of Delta's quick start: Spark's own defaults, and the two settings that Delta needs."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    jars = ",".join(map(str, sorted((brokers.JARS / "delta").glob("delta-*.jar"))))
    return [
        str(Path(spec.submodule_search_locations[0]) / "bin" / "spark-submit"),
        *("--master", "local[*]", "--jars", jars),
        *("--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"),
        *("--conf", "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        str(script),
        *arguments,
    ]


def run(command: Sequence[str]) -> str:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(command, capture_output=True, text=True, cwd=_REPOSITORY, env=environment, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr[-5_000:]}")
    return done.stdout


def _from_ready(output: str) -> float:
    found = _READY.search(output)
    if found is None:
        raise AssertionError(f"no time in {output}")
    return float(found[1])


def _timed_within(series: Series, seconds: Sequence[float]) -> Series:
    """Return a series with the times that its processes measured themselves."""
    samples = [Sample(seconds=each, others=sample.others) for each, sample in zip(seconds, series.samples, strict=True)]
    return replace(series, samples=samples)
