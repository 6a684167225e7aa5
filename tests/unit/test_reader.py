"""The process for commands that only read: a real one without Spark, and the server beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients import client, settings_with_sockets
from tests.commands import REPOSITORY
from tests.processes import is_alive
from tests.readers import beside, pid_of
from tests.waiting import until
from topicledger.cli.options import only_reads
from topicledger.serving import protocol
from topicledger.serving.reader import Reader
from topicledger.serving.server import Server

SERVER = """
import sys, time
from pathlib import Path
from tests.readers import beside, pid_of
with beside(Path(sys.argv[1])) as reader:
    print(pid_of(reader), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A settings file, and a folder of sockets of our own."""
    with settings_with_sockets(tmp_path, monkeypatch) as path:
        yield path


Shared = tuple[Path, Reader]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A settings file and its reader, for tests that leave the reader as it is."""
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        settings_with_sockets(tmp_path_factory.mktemp("shared"), monkeypatch) as config,
        beside(config) as reader,
    ):
        yield config, reader


@contextmanager
def busy(config: Path, reader: Reader) -> Iterator[Server]:
    """Context with a server that has work of its own."""

    def command(arguments: Sequence[str]) -> int:
        os.write(1, f"server: {' '.join(arguments[:2])}\n".encode())
        return 0

    server = Server(protocol.socket_of(config), command, is_for_reader=reader.runs)
    with server.listening(), server.alone() as free:
        assert free
        yield server


def test_commands_that_read_are_known_by_their_definition() -> None:
    reads = (
        "runs list --limit 3",
        "runs show R",
        "topics show --topic t",
        "access who",
        "access what",
        "sql x",
        "report",
    )
    writes = (
        "plan",
        "apply --run-id R",
        "provision",
        "runs approve R",
        "runs revert R",
        "maintain",
        "load_manifests f",
    )
    others = ("", "runs", "--help", "runs --config x list", "no such", "sql-x", "clusters accept sql", "help sql")
    assert [line for line in reads if not only_reads(line.split())] == []
    assert [line for line in (*writes, *others) if only_reads(line.split())] == []


def test_commands_that_read_are_answered_beside_one_that_runs(shared: Shared, tmp_path: Path) -> None:
    config, reader = shared
    with busy(config, reader):
        with client(config, "runs", "list", folder=tmp_path) as asking:
            assert asking.communicate(timeout=30) == (f"reader: runs list in {tmp_path}\n", "")
            assert asking.returncode == 0
        with client(config, "apply", "--run-id", "R") as asking:
            assert asking.communicate(timeout=30)[0] == "cold", "changes stay one at a time"


@pytest.mark.thorough
def test_commands_that_read_run_in_the_server_that_has_nothing_else_to_do(config: Path) -> None:
    with beside(config) as reader, busy(config, reader) as server:
        server._free.release()
        with client(config, "runs", "list") as asking:
            assert server.do_next(30.0)
            assert asking.communicate(timeout=30)[0] == "server: runs list\n"
        server.close()
        with client(config, "runs", "list") as asking:
            assert asking.communicate(timeout=30)[0] == "cold", "an ending server accepts nothing"
        assert server._free.acquire(blocking=False)


@pytest.mark.thorough
def test_killed_reader_is_started_again(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    with beside(config) as reader, busy(config, reader):
        first = pid_of(reader)
        with client(config, "runs", "verify") as asking:
            assert asking.stdout is not None
            assert asking.stdout.readline()
            os.kill(first, signal.SIGKILL)
            _, said = asking.communicate(timeout=30)
            assert (asking.returncode, "the server ended during the command" in said) == (1, True)
        until(lambda: not reader._is_ready, seconds=10)
        with client(config, "runs", "list") as asking:
            assert asking.communicate(timeout=30)[0] == "cold", "it isn't ready again"
        until(lambda: reader.runs(["sql"]) and pid_of(reader) != first, seconds=60)
        with client(config, "runs", "list") as asking:
            assert asking.communicate(timeout=30)[0].startswith("reader: runs list")
        # The server doesn't know yet that its reader doesn't answer.
        protocol.reader_of(protocol.socket_of(config)).unlink()
        with client(config, "runs", "list") as asking:
            assert asking.communicate(timeout=30)[0] == "cold"
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the process for commands that only read ended (-9)"]


@pytest.mark.thorough
def test_ctrl_c_ends_only_the_command_of_the_reader(config: Path) -> None:
    with beside(config) as reader, busy(config, reader) as server:
        first = pid_of(reader)
        with client(config, "runs", "verify") as asking:
            assert asking.stdout is not None
            assert asking.stdout.readline()
            asking.send_signal(signal.SIGINT)
            assert asking.wait(30) == 1
        until(lambda: reader.runs(["sql"]) and pid_of(reader) != first, seconds=60)
        assert not server.interrupted


def test_reader_ends_with_its_server(config: Path) -> None:
    """Killed or asked to, with a command under way or without one."""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'lib'}:{REPOSITORY}"}
    started = [sys.executable, "-c", SERVER, str(config)]
    with subprocess.Popen(started, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert is_alive(pid)
        server.kill()
        until(lambda: not is_alive(pid), seconds=10)
    with beside(config) as reader:
        pid = pid_of(reader)
    assert not is_alive(pid)


@pytest.mark.thorough
def test_reader_that_cannot_start_spark_is_given_up_once(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    with beside(config, "raise reading.TopicLedgerError('no Java')") as reader:
        until(lambda: len(caplog.records) == 2, seconds=60)
        pid = pid_of(reader)
        assert not reader.runs(["sql"])
        time.sleep(0.5)
        assert (pid_of(reader), len(caplog.records)) == (pid, 2)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the process for commands that only read ended (1)",
        "commands that only read start their own Spark while this server is busy",
    ]


@pytest.mark.thorough
def test_reader_without_commands_ends_until_one_needs_it(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    with beside(config, "reading._IDLE_SECONDS = 2.0") as reader:
        until(lambda: reader.runs(["sql"]), seconds=60)
        first = pid_of(reader)
        until(lambda: not is_alive(first), seconds=30)
        until(lambda: not reader._is_ready, seconds=10)
        time.sleep(0.5)
        assert pid_of(reader) == first
        until(lambda: reader.runs(["sql"]) and pid_of(reader) != first, seconds=60)
    assert caplog.records == []


def test_no_reader_beside_a_spark_that_was_given(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """spark-submit's Spark can't be started again; the reader would stop it as it tries."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    reader = Reader([sys.executable, "-c", "raise SystemExit"])
    with reader.running():
        assert not reader.runs(["sql"])
        time.sleep(0.3)
        assert reader._process is None


def test_reader_that_is_started_as_the_server_ends_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real, started = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def slow(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))
        time.sleep(0.3)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", slow)
    reader = Reader([sys.executable, "-c", "import sys; sys.stdin.read()"])
    with reader.running():
        assert not reader.runs(["sql"])
        until(lambda: bool(started), seconds=30)
    assert [each.returncode for each in started] == [0]


@pytest.mark.thorough
def test_reader_has_the_streams_and_the_folder_of_the_server_not_of_a_client(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It may be started while a client's streams are lent."""
    away = tmp_path / "away"
    away.mkdir()
    with beside(config) as reader:
        first = pid_of(reader)
        own, here = os.dup(2), Path.cwd()
        with (tmp_path / "client").open("wb") as file:
            os.dup2(file.fileno(), 2)
            os.chdir(away)
            try:
                os.kill(first, signal.SIGKILL)
                until(lambda: reader.runs(["sql"]) and pid_of(reader) != first, seconds=60)
            finally:
                os.chdir(here)
                os.dup2(own, 2)
                os.close(own)
        proc = Path(f"/proc/{pid_of(reader)}")
        assert (proc / "cwd").resolve() == here
        assert (proc / "fd" / "2").resolve() != tmp_path / "client"


@pytest.mark.thorough
def test_client_that_never_reads_holds_up_nobody(shared: Shared) -> None:
    """Its output is kept until it reads; the reader takes the next command meanwhile."""
    config, reader = shared
    with busy(config, reader), client(config, "sql", "x") as silent:
        assert silent.stdout is not None
        assert silent.stdout.read(8) == "reader: "
        began = time.monotonic()
        with client(config, "runs", "list") as asking:
            assert asking.communicate(timeout=30)[0].startswith("reader: runs list")
        assert time.monotonic() - began < 20.0, "not the minute for which output is kept"
        assert silent.poll() is None
        # `communicate` would leave out what this stream has buffered.
        assert silent.stdout.read().endswith("x" * 300_000 + "\n")
        assert silent.wait(30) == 0


@pytest.mark.thorough
def test_server_that_ends_waits_for_the_command_of_its_reader(config: Path) -> None:
    with beside(config) as reader, busy(config, reader):
        asking = client(config, "runs", "show")
        assert asking.stdout is not None
        assert asking.stdout.readline().startswith("reader: runs show")
        # As systemd does it: all processes are asked.
        os.kill(pid_of(reader), signal.SIGTERM)
    assert asking.communicate(timeout=30) == ("done\n", "")
    assert asking.returncode == 0
