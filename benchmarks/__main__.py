"""python -m benchmarks [--size full|small] [NAME...]: run benchmarks, each in its own process, and write a report."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import (
    asking,
    auditing,
    growth,
    jobs,
    kafka_part,
    large,
    measure,
    observing,
    peers,
    policies,
    proving,
    quota,
    replicas,
    report,
    rights,
    serving,
    views,
)
from benchmarks.report import Result, Size

BUILD = Path(__file__).resolve().parent.parent / "build" / "bench"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark of the suite."""

    run: Callable[[Size, Path], Result]
    """Measures in this process; gets its own empty folder, which is removed afterwards."""
    driver_memory: str
    """spark.driver.memory of the process."""


JAVA: Mapping[Size, str] = {
    Size.FULL: "",
    # A short run ends before better compilation would pay off.
    Size.SMALL: "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
}


SUITE: Mapping[str, Benchmark] = {
    "creates": Benchmark(run=kafka_part.creates, driver_memory=kafka_part.DRIVER_MEMORY),
    "whole": Benchmark(run=jobs.whole, driver_memory=jobs.DRIVER_MEMORY),
    "cold": Benchmark(run=jobs.cold, driver_memory=jobs.DRIVER_MEMORY),
    "growth": Benchmark(run=growth.run, driver_memory=growth.DRIVER_MEMORY),
    "peers": Benchmark(run=peers.run, driver_memory=peers.DRIVER_MEMORY),
    "observe": Benchmark(run=observing.run, driver_memory=observing.DRIVER_MEMORY),
    "audit": Benchmark(run=auditing.run, driver_memory=auditing.DRIVER_MEMORY),
    "deletes": Benchmark(run=kafka_part.deletes, driver_memory=kafka_part.DRIVER_MEMORY),
    "alters": Benchmark(run=kafka_part.alters, driver_memory=kafka_part.DRIVER_MEMORY),
    "exact": Benchmark(run=jobs.exact, driver_memory=jobs.DRIVER_MEMORY),
    "serve": Benchmark(run=serving.serve, driver_memory=serving.DRIVER_MEMORY),
    "large": Benchmark(run=large.run_large, driver_memory=large.DRIVER_MEMORY),
    "sql": Benchmark(run=asking.run, driver_memory=asking.DRIVER_MEMORY),
    "policies": Benchmark(run=policies.run, driver_memory=policies.DRIVER_MEMORY),
    "replicas": Benchmark(run=replicas.run, driver_memory=replicas.DRIVER_MEMORY),
    "quota": Benchmark(run=quota.run, driver_memory=quota.DRIVER_MEMORY),
    "acls": Benchmark(run=rights.run, driver_memory=rights.DRIVER_MEMORY),
    "proof": Benchmark(run=proving.run, driver_memory=proving.DRIVER_MEMORY),
    "views": Benchmark(run=views.run, driver_memory=views.DRIVER_MEMORY),
}


def main() -> int:
    """Run the named benchmarks; return 1 if one of them failed."""
    arguments = _arguments()
    if arguments.within is not None:
        (name,) = arguments.names
        result = SUITE[name].run(arguments.size, arguments.within)
        (arguments.within / "result.json").write_text(json.dumps(report.as_json(result)), encoding="utf-8")
        return 0
    results: dict[str, Any] = {
        "size": arguments.size.value,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": measure.machine(),
        "versions": measure.versions(),
        "benchmarks": {},
    }
    failed = []
    for name in arguments.names or SUITE:
        print(f"-- {name}, size {arguments.size}", flush=True)
        try:
            results["benchmarks"][name] = _in_own_process(name, arguments.size)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"benchmark {name} failed with exit code {error.returncode}", file=sys.stderr)
    _, to_read = report.write(results, arguments.out)
    print(to_read.read_text(encoding="utf-8"))
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and write a report.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SUITE)} (default: all)")
    parser.add_argument("--size", type=Size, choices=list(Size), default=Size.FULL)
    parser.add_argument("--out", type=Path, default=BUILD, help="folder for the report (build/bench)")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SUITE]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SUITE)}")
    return arguments


def _in_own_process(name: str, size: Size) -> dict[str, Any]:
    """Measure in a fresh process, whose memory is measured from outside."""
    BUILD.mkdir(parents=True, exist_ok=True)
    driver_memory = SUITE[name].driver_memory
    with tempfile.TemporaryDirectory(dir=BUILD, prefix=f"{name}-") as folder:
        command = [sys.executable, "-m", "benchmarks", name, "--size", size.value, "--within", folder]
        options = ["--driver-memory", driver_memory, "--driver-java-options", JAVA[size], "pyspark-shell"]
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": shlex.join(options)}
        with subprocess.Popen(command, env=environment) as process, measure.MemoryWatch(process.pid) as memory:
            code = process.wait()
        if code != 0:
            raise subprocess.CalledProcessError(code, command)
        result: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    result["memory"] = asdict(
        report.Memory(java_heap=driver_memory, processes=memory.processes, peak_bytes=memory.peak_bytes)
    )
    return result


if __name__ == "__main__":
    sys.exit(main())
