"""The process for commands that only read, with its own Spark beside this process's."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.measure import cpu_seconds
from tests import commands
from tests.clients import client, settings_with_sockets
from tests.harness import UNREACHABLE, Estate
from tests.processes import family, is_alive
from tests.readers import pid_of
from tests.waiting import until
from topicledger.serving import protocol
from topicledger.serving.reader import Reader, command_of
from topicledger.serving.server import Server

ENDLESS = "SELECT count(*) FROM range(1000000000000) WHERE id % 7 = 3 AND id % 5 = 9"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Settings, and a folder of sockets of our own."""
    with settings_with_sockets(tmp_path, monkeypatch):
        yield commands.settings_file(tmp_path, {"main": [UNREACHABLE]})


@pytest.mark.thorough
def test_reader_answers_in_its_own_spark_which_ends_with_it(spark: SparkSession, config: Path) -> None:
    """In the same Spark, an endless query took all cores: a query of the server took 45 s, more than a lease lasts."""
    Estate(spark, config.parent / "ledger", {"main": UNREACHABLE}).declare({"topic": "one"}, {"topic": "two"})
    path = protocol.socket_of(config)
    reader = Reader(command_of(config, protocol.reader_of(path), "text"))
    server = Server(path, lambda _: 1, is_for_reader=reader.runs)
    with server.listening(), server.alone(), reader.running():
        assert not reader.runs(["sql"])
        until(lambda: reader.runs(["sql"]), seconds=120)
        with client(config, "sql", "SELECT topic FROM manifests ORDER BY topic", "--format", "json") as asking:
            output, errors = asking.communicate(timeout=120)
        assert asking.returncode == 0, output + errors
        assert json.loads(output)["rows"] == [{"topic": "one"}, {"topic": "two"}]
        first, of_first = pid_of(reader), family(pid_of(reader))
        assert len(of_first) > 1, "with its Java"
        with client(config, "sql", ENDLESS) as asking:
            started = cpu_seconds(first)
            # The query is under way while it takes CPU time.
            until(lambda: cpu_seconds(first) > started + 5, seconds=60)
            assert asking.poll() is None
            asking.send_signal(signal.SIGINT)
            assert asking.wait(60) == 1
        until(lambda: reader.runs(["sql"]) and pid_of(reader) != first, seconds=120)
        until(lambda: not any(map(is_alive, of_first)), seconds=60)
        last = family(pid_of(reader))
        os.kill(pid_of(reader), signal.SIGKILL)
        until(lambda: not any(map(is_alive, last)), seconds=60)
    assert spark.range(3).count() == 3
