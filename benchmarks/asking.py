"""`sql` from shell to exit, through a server and without one: who changed a topic, what is unused, what changed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from benchmarks import data
from benchmarks.jobs import run as output_of
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Series, Size
from benchmarks.serving import CLIENT, server
from benchmarks.views import write_history
from topicledger.ledger.session import get_session
from topicledger.ledger.tables import Ledger
from topicledger.schemas import OBSERVED

DRIVER_MEMORY = "2g"
_TOPICS = {Size.FULL: (1_000, 10_000), Size.SMALL: (20,)}
_TIMES = {Size.FULL: 100, Size.SMALL: 3}
"""Audits with usage, and runs that changed each topic."""
_SAMPLES = {Size.FULL: 5, Size.SMALL: 1}
_WEEK = (data.NOW - timedelta(days=7)).strftime("%Y-%m-%d")


def run(size: Size, folder: Path) -> Result:
    """Ask the three queries of docs/queries.md about ledgers of several sizes."""
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    asked: dict[int, Mapping[str, str]] = {}
    for count in _TOPICS[size]:
        ledger = Ledger(spark, str(folder / f"ledger-{count}"))
        data.write(spark, ledger, data.Estate(manifests=count, live=count))
        write_history(ledger, _TIMES[size])
        topic = ledger.read(OBSERVED).select("topic").orderBy("topic").collect()[0]["topic"]
        asked[count] = {
            "who": f"SELECT * FROM changes WHERE topic = '{topic}' ORDER BY changed_at",
            "unused": "SELECT * FROM unused_topics ORDER BY bytes DESC",
            "week": f"SELECT * FROM changes WHERE changed_at >= '{_WEEK}'",
        }
    # The server, and the processes without it, need the memory.
    spark.stop()
    series: list[Series] = []
    for count, queries in asked.items():
        series += _measured(size, folder, count, queries)
    medians = {each.name: each.median for each in series}
    return Result(
        work=f"From shell to exit: queries of ledgers with {_TIMES[size]} audits and runs about "
        f"{' and '.join(f'{count:,}' for count in _TOPICS[size])} topics.",
        series=series,
        ratios=[
            Ratio(
                of=f"warm who {count}",
                to=f"cold who {count}",
                value=medians[f"warm who {count}"] / medians[f"cold who {count}"],
            )
            for count in _TOPICS[size]
        ],
        notes=["The server has Spark's default of 1 GB."],
    )


def _measured(size: Size, folder: Path, count: int, queries: Mapping[str, str]) -> list[Series]:
    settings = folder / f"{count}.toml"
    # No broker is there: queries need none.
    settings.write_text(
        f'[tables]\nroot = "{folder}/ledger-{count}"\n[clusters.{data.CLUSTERS[0]}]\n'
        'bootstrap_servers = ["127.0.0.1:9"]\n',
        encoding="utf-8",
    )

    def asking(name: str, *first: str) -> Callable[[object], Mapping[str, int]]:
        command = [*CLIENT, *first, "sql", "--config", str(settings), queries[name]]
        return lambda _: {"lines": len(output_of(command).splitlines())}

    warm = [Work(name=f"warm {name} {count}", what=query, do=asking(name)) for name, query in queries.items()]
    cold = [Work(name=f"cold who {count}", what=queries["who"], do=asking("who", "--cold"))]
    warm_ups, samples = 1 if size is Size.FULL else 0, _SAMPLES[size]
    # A socket's path has at most about 100 characters.
    with tempfile.TemporaryDirectory(prefix="tl-") as sockets:
        os.environ["TOPICLEDGER_SOCKET_DIR"] = sockets
        with server(settings, folder):
            served = in_turns(warm, warm_ups=warm_ups, samples=samples, elsewhere=True)
    return [*served, *in_turns(cold, warm_ups=warm_ups, samples=samples, elsewhere=True)]
