"""Interactive commands, from shell to exit: with a long-lived driver, without one, and by a tool without records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from uuid import uuid4

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake

from benchmarks import brokers
from benchmarks.jobs import Ground, create_plainly, ground, ledger, outcomes, read, run
from benchmarks.measure import Work, in_turns, resident_bytes
from benchmarks.report import GIB, Ratio, Result, Size
from topicledger.schemas import MANIFESTS
from topicledger_testing.embedded_kafka import EmbeddedKafka

DRIVER_MEMORY = "512m"
"""Memory of the measuring process; the server has Spark's default of 1 GB."""
CLIENT = (sys.executable, "-m", "topicledger.serving.client")
_SECONDS = 120.0


def serve(size: Size, folder: Path) -> Result:
    """Nothing to do and 1,000 creates, warm and cold; `runs show`; and many consecutive warm runs."""
    count = {Size.FULL: 1_000, Size.SMALL: 20}[size]
    warm_ups, samples, many = {Size.FULL: (3, 10, 200), Size.SMALL: (0, 1, 3)}[size]
    # A socket's path has at most about 100 characters.
    with brokers.fresh() as (kafka,), tempfile.TemporaryDirectory(prefix="tl-") as sockets:
        place = ground(folder, ledger(folder, count), kafka)
        os.environ["TOPICLEDGER_SOCKET_DIR"] = sockets
        with server(place.settings, folder) as health:

            @contextmanager
            def none_there() -> Iterator[None]:
                _delete(kafka, count)
                yield

            @contextmanager
            def all_there() -> Iterator[None]:
                _await_topics(kafka, count)
                yield

            def show(*first: str) -> Mapping[str, int]:
                shown = run([*CLIENT, *first, "runs", "show", "--config", str(place.settings), "--run-id", "shown"])
                return {"lines": len(shown.splitlines())}

            _delete(kafka, count)
            _provision(place, "--run-id", "shown")
            works = [
                Work(
                    name="warm creates",
                    what="provision, through serve",
                    do=lambda _: _provision(place),
                    around=none_there,
                ),
                Work(
                    name="warm after creates",
                    what="provision with nothing to do, which observes the created topics for the first time",
                    do=lambda _: _provision(place),
                    around=all_there,
                ),
                Work(
                    name="warm nothing",
                    what="provision, through serve",
                    do=lambda _: _provision(place),
                    around=all_there,
                ),
                Work(name="warm show", what="runs show, through serve", do=lambda _: show(), around=all_there),
                Work(
                    name="plain creates",
                    what="librdkafka: list, describe, create",
                    do=lambda _: create_plainly(kafka, count),
                    around=none_there,
                ),
                Work(
                    name="plain nothing",
                    what="librdkafka: list, describe",
                    do=lambda _: create_plainly(kafka, count),
                    around=all_there,
                ),
            ]
            warm = in_turns(works, warm_ups=warm_ups, samples=samples, elsewhere=True)
            cold = in_turns(
                [
                    Work(name="cold nothing", what="provision", do=lambda _: _cold(place), around=all_there),
                    Work(name="cold show", what="runs show", do=lambda _: show("--cold"), around=all_there),
                    Work(
                        name="session",
                        what="spark-submit of a session",
                        do=lambda _: read(place, count),
                        around=all_there,
                    ),
                ],
                warm_ups=min(1, warm_ups),
                samples=max(1, samples // 2),
                elsewhere=True,
            )
            note = _many(place, many, health)
        with server(place.settings, folder, "--every", "1d") as health:
            with _at_rest_after(health, of=0):
                pass
            declared = in_turns(
                [
                    Work(
                        name="declared",
                        what="from a commit to manifests with delta-rs until a broker lists the topic",
                        do=lambda _: _declare(place),
                        around=lambda: _at_rest_after(health),
                    )
                ],
                warm_ups=warm_ups,
                samples=samples,
                elsewhere=True,
            )
    creates, _, nothing, _, plain_creates, plain_nothing = warm
    session = cold[-1]
    pairs = (
        (creates, plain_creates),
        (nothing, plain_nothing),
        (creates, session),
        (nothing, session),
        (cold[0], session),
    )
    return Result(
        work=f"From shell to exit: {count:,} topics of one partition and one config, on one cluster.",
        series=[*warm, *cold, *declared],
        ratios=[Ratio(of=of.name, to=to.name, value=of.median / to.median) for of, to in pairs],
        notes=[note, "The plain script records, checks and recovers nothing.", "The broker shares the cores."],
    )


@contextmanager
def server(settings: Path, folder: Path, *more: str) -> Iterator[Path]:
    """Start a server, wait until it answers, and yield its health file."""
    log, health = folder / "serve.log", folder / "health.json"
    health.unlink(missing_ok=True)
    with log.open("wb") as file:
        command = [*CLIENT, "serve", "--config", str(settings), "--health-file", str(health), *more]
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        until = time.monotonic() + _SECONDS
        while b"serving" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text(encoding="utf-8"))
            time.sleep(0.2)
        yield health
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_SECONDS)


def _provision(place: Ground, *more: str) -> Mapping[str, int]:
    return outcomes(run([*CLIENT, "provision", "--config", str(place.settings), "--format", "json", *more]))


def _cold(place: Ground) -> Mapping[str, int]:
    command = [*CLIENT, "--cold", "provision", "--config", str(place.settings), "--format", "json"]
    return outcomes(run(command))


def _declare(place: Ground) -> Mapping[str, int]:
    """Declare one more topic, as another tool would, and wait until the server has created it."""
    topic = f"declared-{uuid4().hex}"
    path = str(place.root / MANIFESTS.name)
    row = {"cluster": brokers.NAME, "topic": topic, "state": "present", "num_partitions": 1, "replication_factor": 1}
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    write_deltalake(path, pa.Table.from_pylist([row], schema=schema), mode="append")
    client = AdminClient({"bootstrap.servers": ",".join(place.kafka.bootstrap_servers)})
    until = time.monotonic() + _SECONDS
    while topic not in client.list_topics(timeout=_SECONDS).topics:
        if time.monotonic() > until:
            raise AssertionError(f"{topic} was declared, but doesn't exist after {_SECONDS:.0f} s")
        time.sleep(0.05)
    return {"topics": 1}


@contextmanager
def _at_rest_after(health: Path, of: int | None = None) -> Iterator[None]:
    """Wait, after the context, until the server has ended another command (more than `of`) and is idle."""

    def said() -> tuple[int, bool]:
        if not health.exists():
            return 0, False
        facts = json.loads(health.read_text(encoding="utf-8"))
        return int(facts["commands"]), facts["doing"] is None

    before = said()[0] if of is None else of
    yield
    until = time.monotonic() + _SECONDS
    while (now := said())[0] <= before or not now[1]:
        if time.monotonic() > until:
            raise AssertionError(f"the server is still busy after {_SECONDS:.0f} s")
        time.sleep(0.05)


def _many(place: Ground, count: int, health: Path) -> str:
    """Do `count` runs with nothing to do; describe their times, and the server's memory before and after."""
    pid = int(json.loads(health.read_text(encoding="utf-8"))["pid"])
    before, taken = resident_bytes(pid), []
    for _ in range(count):
        start = time.monotonic()
        _provision(place)
        taken.append(time.monotonic() - start)
    after = resident_bytes(pid)
    now = int(json.loads(health.read_text(encoding="utf-8"))["pid"])
    if now != pid:
        raise AssertionError("the server restarted")
    tenth = max(1, count // 10)
    return (
        f"{count} consecutive runs with nothing to do: first {taken[0]:.1f} s, median {median(taken):.1f} s, "
        f"median of the last {tenth} {median(taken[-tenth:]):.1f} s; memory {before / GIB:.2f} GiB before, "
        f"{after / GIB:.2f} GiB after."
    )


def _listed(client: AdminClient, count: int) -> list[str]:
    """Return the topics that a broker lists, which lag behind the controller's acknowledgements."""
    names = set(brokers.names(count))
    return [name for name in client.list_topics(timeout=_SECONDS).topics if name in names]


def _await_topics(kafka: EmbeddedKafka, count: int) -> None:
    """Wait until all topics are listed."""
    client = AdminClient({"bootstrap.servers": ",".join(kafka.bootstrap_servers)})
    while len(_listed(client, count)) < count:
        time.sleep(0.1)


def _delete(kafka: EmbeddedKafka, count: int) -> None:
    """Delete the existing topics, and wait until none is listed."""
    client = AdminClient({"bootstrap.servers": ",".join(kafka.bootstrap_servers)})
    found = _listed(client, count)
    if found:
        for future in client.delete_topics(found, operation_timeout=_SECONDS, request_timeout=_SECONDS).values():
            future.result(timeout=_SECONDS)
    while _listed(client, count):
        time.sleep(0.1)
