"""A server and its clients: real processes, sockets and streams; the commands are small ones."""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from click.testing import CliRunner
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from tests.clients import client, settings_with_sockets
from tests.commands import REPOSITORY
from tests.waiting import until
from topicledger.apply.dispatch import Stop
from topicledger.cli.options import Options
from topicledger.config import logs
from topicledger.errors import TableError, UsageError
from topicledger.serving import client as of_clients
from topicledger.serving import command as served
from topicledger.serving import protocol, streams
from topicledger.serving.client import ask
from topicledger.serving.command import OwnInterrupt, SessionIsGone, are_edited, provisioned_if_due, serve
from topicledger.serving.health import Health, memory_bytes
from topicledger.serving.server import Pace, Server

NOBODY = 65_534


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A settings file, and a folder of sockets of our own."""
    with settings_with_sockets(tmp_path, monkeypatch) as path:
        yield path


@contextmanager
def serving(config: Path, command: Callable[[Sequence[str]], int]) -> Iterator[Server]:
    server = Server(protocol.socket_of(config), command)
    with server.listening():
        yield server


def test_a_command_has_the_streams_and_the_folder_of_whoever_asked(config: Path, tmp_path: Path) -> None:
    def command(arguments: Sequence[str]) -> int:
        # Not by `print`: pytest has its own sys.stdout.
        os.write(1, f"{arguments[0]} in {Path.cwd()}: {os.read(0, 100).decode()}\n".encode())
        os.write(2, b"progress")
        return 4

    here = Path.cwd()
    with serving(config, command) as server, client(config, "plan", folder=tmp_path) as asking:
        assert asking.stdin is not None
        asking.stdin.write("said")
        asking.stdin.close()
        assert server.do_next(30.0)
        assert asking.wait(30) == 4
        assert asking.stdout is not None
        assert asking.stderr is not None
        assert asking.stdout.read() == f"plan in {tmp_path}: said\n"
        assert asking.stderr.read() == "progress"
    assert Path.cwd() == here
    assert not server.interrupted


@pytest.mark.parametrize("ends", [False, True])
def test_client_that_stops_reading_blocks_neither_command_nor_end(config: Path, ends: bool) -> None:
    """Unread output is dropped after a while, and at once if the server ends; the exit code still arrives."""
    done: list[str] = []

    def command(_: Sequence[str]) -> int:
        # A pipe takes 64 kB.
        for _ in range(1_000):
            sys.stdout.write("x" * 999 + "\n")
        sys.stdout.flush()
        print("and an error", file=sys.stderr)
        done.append("all")
        return 4

    server = Server(protocol.socket_of(config), command, is_ending=lambda: ends, patience=600.0 if ends else 0.5)
    with server.listening(), client(config, "plan") as asking:
        assert server.do_next(30.0)
        assert done == ["all"]
        assert asking.wait(30) == 4
        assert asking.stdout is not None
        assert asking.stderr is not None
        assert len(asking.stdout.read()) < 1_000_000
        assert asking.stderr.read() == "and an error\n"


@pytest.mark.parametrize("can_open", [True, False])
def test_terminal_that_nobody_reads_blocks_neither_command_nor_end(
    config: Path, monkeypatch: pytest.MonkeyPatch, can_open: bool
) -> None:
    """A terminal has room for a byte, says poll(2), also if a longer write blocks; the client's own still blocks."""
    if not can_open:
        monkeypatch.setattr(streams, "_opened_again", lambda _: None)
    reads, terminal = os.openpty()

    def let_go() -> None:
        # A server that is blocked fails this test, and doesn't hold up all others.
        while select.select([reads], [], [], 1.0)[0]:
            os.read(reads, 65_536)

    def command(_: Sequence[str]) -> int:
        for _ in range(10_000):
            sys.stdout.write("x" * 99 + "\n")
        sys.stdout.flush()
        return 4

    server = Server(protocol.socket_of(config), command, patience=0.5)
    guard = threading.Timer(30.0, let_go)
    guard.start()
    began = time.monotonic()
    with server.listening(), client(config, "plan", both=terminal) as asking:
        assert server.do_next(30.0)
        assert asking.wait(30) == 4
        assert time.monotonic() - began < 30.0
        assert os.get_blocking(terminal)
    guard.cancel()
    guard.join()
    os.close(terminal)
    os.close(reads)


def fill(file: int) -> None:
    """Fill a pipe or a terminal; the kernel takes more from a terminal a moment later."""
    before, size = -1, 0
    while before != size:
        before = size
        for part in (b"x" * 1_000, b"x"):
            with suppress(BlockingIOError):
                while True:
                    size += os.write(file, part)
        time.sleep(0.2)


@pytest.mark.parametrize("make", [os.openpty, os.pipe])
def test_room_that_is_gone_before_the_write_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], tuple[int, int]]
) -> None:
    reads, file = make()
    full = os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    fill(full)
    monkeypatch.setattr(streams, "_has_room", lambda *_: True)
    output = streams.Output(file, lambda: False, 30.0)
    with ThreadPoolExecutor(1) as pool:
        try:
            assert pool.submit(output.write, b"the last").result(30) == len(b"the last")
            assert not output.is_delivered()
        finally:
            content = b""
            while select.select([reads], [], [], 1.0)[0]:
                content += os.read(reads, 65_536)
    assert content.endswith(b"xthe last")
    output.finish()
    output.close()
    for each in (full, file, reads):
        os.close(each)


@pytest.mark.parametrize("path", ["/dev/ptmx", "file"])
def test_file_whose_path_leads_to_another_is_not_opened_again(tmp_path: Path, path: str) -> None:
    file = os.open(tmp_path / path, os.O_RDWR | os.O_CREAT | os.O_NOCTTY)
    assert streams._opened_again(file) is None
    os.close(file)


def test_command_is_over_before_its_output_is_read(config: Path) -> None:
    """The output arrives later, in order and complete, also if both streams are one pipe; then comes the exit code."""

    def command(_: Sequence[str]) -> int:
        for number in range(10_000):
            print(f"{number:09}", file=(sys.stdout, sys.stderr)[number % 2], flush=True)
        return 4

    read, write = os.pipe()
    with serving(config, command) as server, client(config, "plan", both=write) as asking:
        os.close(write)
        assert server.do_next(30.0)
        with client(config, "audit", both=os.open(os.devnull, os.O_WRONLY)) as another:
            assert server.do_next(30.0)
            assert another.wait(30) == 4
        assert asking.poll() is None
        with os.fdopen(read) as output:
            assert output.read() == "".join(f"{number:09}\n" for number in range(10_000))
        assert asking.wait(30) == 4


def test_command_waits_for_the_reader_of_more_output_than_is_kept(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_KEPT", 100_000)
    with serving(config, lambda _: print("x" * 2_000_000) or 0) as server, client(config, "plan") as asking:
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(asking.communicate, timeout=30)
            assert server.do_next(30.0)
            assert done.result(30) == ("x" * 2_000_000 + "\n", "")
        assert asking.returncode == 0


def test_interrupt_amid_the_last_output_gives_the_streams_back(config: Path) -> None:
    """A client whose pipe is full goes away: the server keeps neither its streams nor its folder."""
    here, own = Path.cwd(), os.fstat(1)

    def command(_: Sequence[str]) -> int:
        # More than a pipe takes, and less than Python writes before the command is over.
        sys.stdout.write("x" * 80_000)
        asking.kill()
        return 0

    server = Server(protocol.socket_of(config), command)
    with server.listening(), client(config, "plan", folder=config.parent) as asking:
        assert server.do_next(30.0)
        assert Path.cwd() == here
        assert (os.fstat(1).st_dev, os.fstat(1).st_ino) == (own.st_dev, own.st_ino)


def test_client_that_leaves_before_it_is_answered_keeps_no_place(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = protocol.send, threading.Event()

    def send(connection: socket.socket, message: Mapping[str, Any], streams: Sequence[int] = ()) -> None:
        if message == {"accepted": True} and not lost.is_set():
            lost.set()
            raise BrokenPipeError
        real(connection, message, streams)

    monkeypatch.setattr(protocol, "send", send)
    with serving(config, lambda _: 0) as server:
        with client(config, "plan") as gone:
            assert gone.wait(30) == 9
        assert lost.is_set()
        with client(config, "plan") as asking:
            assert server.do_next(30.0)
            assert asking.wait(30) == 0


def test_failed_accept_does_not_end_the_server(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = socket.socket.accept, [OSError(24, "Too many open files")] * 2

    def accept(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with serving(config, lambda _: 0) as server, client(config, "plan") as asking:
        assert server.do_next(30.0)
        assert asking.wait(30) == 0


def test_command_that_waits_for_input_ends_with_the_server(config: Path) -> None:
    """Half an input is none: the read fails, it doesn't end."""
    found: list[str] = []

    def command(_: Sequence[str]) -> int:
        try:
            sys.stdin.read()
        except OSError as error:
            found.append(str(error.strerror))
        return 2

    server = Server(protocol.socket_of(config), command, is_ending=lambda: True)
    with server.listening(), client(config, "load-manifests", "-") as asking:
        assert server.do_next(30.0)
        assert asking.wait(30) == 2
    assert found == ["the server ends before the input is complete"]


def test_slow_reader_gets_all_of_the_output(config: Path) -> None:
    def command(_: Sequence[str]) -> int:
        for number in range(20_000):
            print(number, "é")
        return 0

    with serving(config, command) as server, client(config, "plan") as asking:
        with ThreadPoolExecutor(1) as pool:
            assert asking.stdout is not None
            reading = pool.submit(lambda: (time.sleep(0.5), asking.stdout.read())[1])  # type: ignore[union-attr]
            assert server.do_next(30.0)
            assert reading.result(30) == "".join(f"{number} é\n" for number in range(20_000))
        assert asking.wait(30) == 0


def test_client_whose_folder_is_gone_gets_an_error(config: Path, tmp_path: Path) -> None:
    here, gone = Path.cwd(), tmp_path / "gone"
    gone.mkdir()
    with serving(config, lambda _: 0) as server:
        with client(config, "plan", folder=gone) as asking:
            until(lambda: not server._queue.empty(), seconds=30)
            gone.rmdir()
            assert server.do_next(0.0)
            assert asking.wait(30) == 2
            assert asking.stderr is not None
            assert f"the server can't enter the folder of this command: {gone}" in asking.stderr.read()
        with client(config, "plan") as asking:
            assert server.do_next(30.0)
            assert asking.wait(30) == 0
    assert Path.cwd() == here


def test_fault_of_a_command_does_not_end_the_server(config: Path) -> None:
    def command(arguments: Sequence[str]) -> int:
        if arguments[0] == "plan":
            raise ZeroDivisionError
        return 0

    with serving(config, command) as server:
        for name, code in (("plan", 1), ("audit", 0)):
            with client(config, name) as asking:
                assert server.do_next(30.0)
                assert asking.wait(30) == code


def test_log_of_the_server_is_its_own_again_after_a_command(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A client's command chose another form and level, and its stderr."""
    logs.set_up("json", verbose=False)
    with serving(config, served.carried_out) as server:
        with client(config, "plan", "--verbose", "--log-format", "text") as asking:
            assert server.do_next(30.0)
            assert asking.wait(30) == 2
            assert asking.stderr is not None
            assert "error: " in asking.stderr.read()
        capfd.readouterr()
        log = logging.getLogger("topicledger.serving.server")
        log.info("done")
        log.warning("a client can't be accepted")
    assert [json.loads(line)["message"] for line in capfd.readouterr().err.splitlines()] == [
        "a client can't be accepted"
    ]


def test_one_of_many_starts_gets_the_socket(config: Path) -> None:
    """All find a socket that a killed server left; each either serves, or reports that there is a server."""
    code = (
        "import sys; from pathlib import Path; from topicledger.serving import protocol\n"
        "from topicledger.errors import UsageError; from topicledger.serving.server import Server\n"
        "server = Server(protocol.socket_of(Path(sys.argv[1])), lambda _: 0)\n"
        "sys.stdin.read(1)\n"
        "try:\n"
        "    with server.listening(): print('serves', flush=True); sys.stdin.read()\n"
        "except UsageError as error: print(error, flush=True)"
    )
    path = protocol.socket_of(config)
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "lib")},
        )
        for _ in range(6)
    ]
    for each in started:
        assert each.stdin is not None
        each.stdin.write("go")
        each.stdin.flush()
    said = sorted(each.stdout.readline() for each in started if each.stdout is not None)
    assert [line.startswith("a server with these settings is already running") for line in said] == [True] * 5 + [False]
    assert said[-1] == "serves\n"
    for each in started:
        each.communicate()
    assert not path.exists()


def test_a_server_that_is_busy_sends_clients_away(config: Path) -> None:
    def command(_: Sequence[str]) -> int:
        with client(config, "second") as second:
            assert second.wait(30) == 9
        return 0

    with serving(config, command) as server, client(config, "first") as first:
        assert server.do_next(30.0)
        assert first.wait(30) == 0
        with server.alone() as free, client(config, "third") as third:
            assert free
            assert third.wait(30) == 9


def test_ctrl_c_and_a_client_that_is_gone_interrupt_the_command(config: Path) -> None:
    for how in (signal.SIGINT, signal.SIGKILL):
        found: list[str] = []

        def command(_: Sequence[str], how: signal.Signals = how, found: list[str] = found) -> int:
            asking.send_signal(how)
            try:
                # Ended by the signal. One that arrives just before a sleep is noticed only after it.
                for _ in range(300):
                    time.sleep(0.1)
            except KeyboardInterrupt:
                found.append("interrupted")
            return 1

        with serving(config, command) as server, client(config, "plan") as asking:
            assert server.do_next(30.0)
            assert found == ["interrupted"]
            assert asking.wait(30) == (1 if how == signal.SIGINT else -signal.SIGKILL)
            assert server.interrupted


def test_a_server_that_is_killed_amid_a_command_is_an_error(config: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from topicledger.serving import protocol\n"
        "from topicledger.serving.server import Server\n"
        "server = Server(protocol.socket_of(Path(sys.argv[1])), lambda _: os.kill(os.getpid(), signal.SIGKILL))\n"
        "with server.listening(): server.do_next(30.0)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(config)], env={**os.environ, "PYTHONPATH": str(REPOSITORY / "lib")}
    )
    path = protocol.socket_of(config)
    until(path.exists, seconds=30)
    with client(config, "plan") as asking:
        assert asking.wait(30) == 1
        assert asking.stderr is not None
        assert "the server ended during the command" in asking.stderr.read()
    assert server.wait(30) == -signal.SIGKILL
    # Its leftovers don't disturb a new server.
    with client(config, "plan") as asking:
        assert asking.wait(30) == 9
    with serving(config, lambda _: 0) as another, client(config, "plan") as asking:
        assert another.do_next(30.0)
        assert asking.wait(30) == 0
        with pytest.raises(UsageError, match="is already running"), serving(config, lambda _: 0):
            pass
    assert not path.exists()


def test_servers_of_other_settings_and_users_are_not_asked(config: Path) -> None:
    with serving(config, lambda _: 0):
        path = protocol.socket_of(config)
        assert ask(["plan"]) is None
        assert ask(["plan", "--config", str(config.with_name("none.toml"))]) is None
        assert ask(["serve", "--config", str(config)]) is None
        path.parent.chmod(0o755)
        assert ask(["plan", "--config", str(config)]) is None
        path.parent.chmod(0o700)
        config.write_text("[tables] # changed\n")
        assert protocol.socket_of(config) != path
        config.write_text("[tables]\n")
    path.parent.chmod(0o755)
    with pytest.raises(UsageError, match="must belong to this user only"), serving(config, lambda _: 0):
        pass


def test_a_server_runs_no_command_of_another_installation(config: Path, tmp_path: Path) -> None:
    """A wheel and a checkout may have the same version and different code."""
    site = tmp_path / "site"
    shutil.copytree(REPOSITORY / "lib" / "topicledger", site / "topicledger")

    def command(_: Sequence[str]) -> int:
        raise AssertionError("of another installation")

    with serving(config, command) as server, client(config, "plan", PYTHONPATH=str(site)) as asking:
        said, why = asking.communicate(timeout=30)
        assert not server.do_next(0.0)
    assert (asking.returncode, said) == (9, "cold"), why
    (line,) = why.splitlines()
    assert f"runs topicledger {protocol.CODE}, this is 0.1.0 in {site}/topicledger: the command starts its own" in line
    assert line.endswith("restart `serve` with this topicledger")


def test_a_path_that_is_too_long_for_a_socket_is_refused_with_what_to_set(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 100)
    monkeypatch.setenv("TOPICLEDGER_SOCKET_DIR", str(folder))
    assert ask(["plan", "--config", str(config)]) is None
    with (
        pytest.raises(UsageError, match=r"can't listen on .*too long; set TOPICLEDGER_SOCKET_DIR"),
        serving(config, lambda _: 0),
    ):
        pass
    assert ask(["plan", "--config", str(config)]) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_neither_answers_nor_is_answered(config: Path) -> None:
    """Even if the folder is open to all users, their clients and servers don't talk to each other."""
    asking = (
        "connection = socket.socket(socket.AF_UNIX)\n"
        "try: connection.connect(sys.argv[1])\n"
        "except PermissionError: sys.exit(13)\n"
        "try:\n"
        '    connection.sendall(b\'{"arguments": [], "folder": "/", "config": "x"}\\n\')\n'
        "    sys.exit(len(connection.recv(100)))\n"
        # It may be closed before anything is sent, or after.
        "except (BrokenPipeError, ConnectionResetError): pass"
    )
    path = protocol.socket_of(config)

    become = f"import os, socket, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"

    def as_another(code: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", become + code, str(path)], stdout=subprocess.PIPE)

    with serving(config, lambda _: 0) as server:
        assert as_another(asking).wait(30) == 13
        path.parent.chmod(0o711)
        path.chmod(0o777)
        assert as_another(asking).wait(30) == 0
        assert not server.do_next(0.0)

    path.parent.chmod(0o777)
    listening = (
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[1]); listener.listen(); print(flush=True); connection, _ = listener.accept()\n"
        "sys.exit(1 if connection.recv(100) else 0)"
    )
    with as_another(listening) as theirs:
        assert theirs.stdout is not None
        assert theirs.stdout.readline()
        path.parent.chmod(0o700)
        assert ask(["plan", "--config", str(config)]) is None
        assert theirs.wait(30) == 0, "nothing was sent to it"


@pytest.mark.parametrize("line", [b"", b"hello\n", b"[]\n", b'{"arguments": "plan", "folder": "/"}\n', b"{}\n"])
def test_invalid_requests_are_not_carried_out(config: Path, line: bytes) -> None:
    def command(_: Sequence[str]) -> int:
        raise AssertionError("nobody asked for anything")

    with serving(config, command) as server, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(protocol.socket_of(config)))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        assert b"true" not in connection.makefile("rb").read()
        assert not server.do_next(0.0)


def test_it_provisions_on_changes_and_later_after_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = Pace(every=60.0)
    assert pace.is_due(None)
    pace.begun(7)
    pace.ended(0)
    assert not pace.is_due(7)
    assert pace.is_due(8)
    now += 60
    assert pace.is_due(7)
    for failures, waits in ((1, 2), (2, 4), (3, 8), (10, 60)):
        pace.begun(8)
        pace.failures = failures - 1
        pace.ended(1)
        now += waits - 1
        assert not pace.is_due(9), "a new version is no reason to hurry after an error"
        now += 1
        assert pace.is_due(9)
    pace.ended(4)
    assert pace.failures == 0


def test_metrics_of_the_last_run_outlive_the_server(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts are about `provision`. Here the settings can't be used."""
    monkeypatch.setattr(served.signal, "signal", lambda *_: None)
    file = tmp_path / "provision.prom"
    file.write_text("of provision\n")
    asked = ["serve", "--config", str(config), "--metrics-file", str(file)]
    assert CliRunner().invoke(served.main, [*asked, "--every", "5m"]).exit_code == 2
    assert file.read_text() == "of provision\n"
    assert CliRunner().invoke(served.main, asked).exit_code == 2
    assert 'topicledger_exit_code{command="serve"} 2.0' in file.read_text()


def test_pause_after_thousands_of_failures_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    pace = Pace(every=60.0)
    pace.begun(1)
    for _ in range(5_000):
        pace.ended(1)
    assert not pace.is_due(2)
    monkeypatch.setattr(time, "monotonic", lambda: 1060.0)
    assert pace.is_due(2)


def options_of(config: Path) -> Options:
    return Options(
        config=config, run_id=None, cluster=(), format="table", result_file=None, log_format="text", verbose=False,
        metrics_file=None,
    )  # fmt: skip


class Tables:
    """A ledger whose storage fails at times."""

    root = "/ledger"
    spark = MagicMock()

    def __init__(self, *versions: int | Exception | None) -> None:
        self.versions = list(versions)

    def exists(self, _: object) -> bool:
        if isinstance(self.versions[0], Exception):
            raise self.versions.pop(0)
        return self.versions[0] is not None

    def latest_version(self, _: object) -> int:
        found = self.versions.pop(0)
        assert isinstance(found, int)
        return found


def test_server_outlives_tables_that_can_not_be_read(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failed poll begins no run and ends nothing; each reason is logged once; the next commit is provisioned."""
    options = options_of(config)
    tables = Tables(*[TableError("storage is away")] * 3, OSError("no route"), 7, 7, 8)
    pace, did, read = Pace(every=60.0), list[Sequence[str]](), config.read_bytes()

    def do(arguments: Sequence[str]) -> int:
        did.append(arguments)
        return 0

    polls = [provisioned_if_due(pace, tables, options, read, do) for _ in range(7)]  # type: ignore[arg-type]
    assert polls == [False] * 4 + [True, False, True]
    assert [each[0] for each in did] == ["provision", "provision"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "manifests can't be read, trying again: storage is away",
        "manifests can't be read, trying again: no route",
    ]
    away = Tables(Py4JNetworkError("Answer from Java side is empty"))
    with pytest.raises(Py4JNetworkError):
        provisioned_if_due(pace, away, options, read, do)  # type: ignore[arg-type]
    lost = Tables(TableError("table manifests can't be read"))
    lost.spark = MagicMock(**{"range.side_effect": PySparkException("[SESSION_CHANGED] gone")})
    with pytest.raises(SessionIsGone, match="gone"):
        provisioned_if_due(pace, lost, options, read, do)  # type: ignore[arg-type]


def test_server_outlives_a_bug_in_its_own_run(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As it outlives one in a client's command. Without Java it starts again."""
    options, pace, read = options_of(config), Pace(every=60.0), config.read_bytes()

    def failing(error: Exception) -> Callable[[Sequence[str]], int]:
        def do(_: Sequence[str]) -> int:
            raise error

        return do

    assert provisioned_if_due(pace, Tables(7), options, read, failing(KeyError("bug")))  # type: ignore[arg-type]
    assert pace.failures == 1
    assert not pace.is_due(7), "the next run waits as after any error"
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert (record.getMessage(), record.exc_info is not None) == ("a run failed unexpectedly", True)
    gone = failing(Py4JNetworkError("Answer from Java side is empty"))
    with pytest.raises(Py4JNetworkError):
        provisioned_if_due(Pace(every=60.0), Tables(7), options, read, gone)  # type: ignore[arg-type]


@pytest.mark.parametrize("of_client", [True, False])
def test_ctrl_c_of_the_server_itself_ends_it(config: Path, of_client: bool) -> None:
    """Also amid a run, which stops first: after 2 s another would begin."""
    server, ending, stop = Server(protocol.socket_of(config), lambda _: 0), Stop(), Stop()
    server.interrupted = of_client
    before = signal.signal(signal.SIGINT, OwnInterrupt(server, ending))
    try:
        with stop.at_interrupt():
            signal.raise_signal(signal.SIGINT)
        assert (stop.is_set(), ending.is_set()) == (True, not of_client)
        ending.clear()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert ending.is_set() == (not of_client)
    finally:
        signal.signal(signal.SIGINT, before)


def test_server_that_is_stopped_holds_up_no_client(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_clients, "_PATIENCE", 0.2)
    path = protocol.socket_of(config)
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(path))
        stopped.listen(1)
        assert ask(["plan", "--config", str(config)]) is None


def test_client_that_was_interrupted_before_an_answer_starts_nothing(config: Path) -> None:
    path = protocol.socket_of(config)
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen(1)
        with client(config, "provision") as asking:
            connection, _ = silent.accept()
            with connection:
                request, files = protocol.receive(connection)
                assert request["arguments"][0] == "provision"
                protocol.close(files)
                asking.send_signal(signal.SIGINT)
                assert connection.recv(100) == b'{"interrupt": true}\n'
            assert (asking.communicate(timeout=30)[0], asking.returncode) == ("", -signal.SIGINT)


def test_client_that_was_accepted_by_an_ending_server_runs_its_command(config: Path) -> None:
    with ExitStack() as clients, serving(config, lambda _: 0) as server:
        asking = clients.enter_context(client(config, "plan"))
        until(lambda: not server._queue.empty(), seconds=30)
        asked = server._queue.get()
        assert [os.get_inheritable(each) for each in asked.files] == [False] * 3, "a restarted server would have them"
        server._queue.put(asked)
        server.close()
    assert asking.returncode == 9


def test_interrupt_while_streams_are_given_back_leaves_the_server_its_own(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives the signal to the thread that sends it."""
    own, here, back = os.fstat(1), Path.cwd(), os.fchdir

    def interrupted(folder: int) -> None:
        sender = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
        sender.start()
        sender.join()
        time.sleep(0.01)
        back(folder)

    monkeypatch.setattr(os, "fchdir", interrupted)
    with serving(config, lambda _: 0) as server, client(config, "plan", folder=tmp_path) as asking:
        assert server.do_next(30.0)
        assert asking.wait(30) == 1
    assert (os.fstat(1), Path.cwd()) == (own, here)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_server_without_room_for_a_thread_sends_clients_away(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def start(thread: threading.Thread) -> None:
        if thread.name == "client" and failures:
            raise failures.pop()
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with serving(config, lambda _: 0) as server:
        with client(config, "plan") as gone:
            assert gone.wait(30) == 9
        with client(config, "plan") as asked:
            assert server.do_next(30.0)
            assert asked.wait(30) == 0


def test_server_provisions_nothing_by_edited_settings(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its run would read them, but the server watches the tables that it was started with."""
    before, did = config.read_bytes(), list[Sequence[str]]()
    pace, tables = Pace(every=0.0), Tables(*range(9))
    caplog.set_level("INFO")

    def polls(times: int) -> Sequence[bool]:
        def do(arguments: Sequence[str]) -> int:
            did.append(arguments)
            return 0

        return [provisioned_if_due(pace, tables, options_of(config), before, do) for _ in range(times)]  # type: ignore[arg-type]

    assert polls(1) == [True]
    config.write_bytes(before + b'[tables]\nroot = "/elsewhere"\n')
    assert polls(3) == [False] * 3
    config.unlink()
    assert polls(2) == [False] * 2
    config.write_bytes(before)
    assert polls(1) == [True]
    assert len(did) == 2
    changed = f"the settings in {config} changed, and can't be used: no run begins until they can"
    assert [record.getMessage() for record in caplog.records] == [changed, "runs begin again"]


def test_edited_settings_restart_the_server_if_they_can_be_read(config: Path) -> None:
    """A link to the same content is no edit: a mounted volume replaces it whenever another of its files changes."""
    valid = f'[tables]\nroot = "{config.parent}"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n'
    config.write_text(valid)
    before, options = config.read_bytes(), options_of(config)
    copy = config.with_name("copy.toml")
    copy.write_bytes(before)
    config.unlink()
    config.symlink_to(copy)
    assert not are_edited(options, before)
    copy.write_text(valid + "[nonsense]\n")
    assert not are_edited(options, before)
    copy.write_text(valid + "[guards]\nmax_deletes = 1\n")
    assert are_edited(options, before)
    copy.unlink()
    assert not are_edited(options, before)


def test_server_says_that_it_starts_spark(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting takes half a minute. The tables need not exist yet."""
    config.write_text(f'[tables]\nroot = "{config.parent}"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n')
    asked: list[bool] = []

    def no_spark(*_: object, new: bool) -> None:
        asked.append(new)
        raise UsageError("no Spark here")

    monkeypatch.setattr(served, "open_ledger", no_spark)
    monkeypatch.setattr(served.signal, "signal", lambda *_: None)
    started = CliRunner().invoke(served.main, ["serve", "--config", str(config)])
    said = f"starting Spark for {config}; commands start their own until it is ready\nerror: no Spark here\n"
    assert (started.exit_code, started.stderr, asked) == (2, said, [True])


def test_server_without_java_starts_again(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that provisions nothing by itself: each of its commands would fail."""
    config.write_text(f'[tables]\nroot = "{config.parent}"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n')
    ledger, again, polls = MagicMock(), list[str](), iter([False, True])
    ledger.spark.conf.get.side_effect = Py4JNetworkError("Answer from Java side is empty")
    for where, name, what in (
        (served, "open_ledger", lambda *_, new: ledger),
        (served, "_warm_up", lambda *_: None),
        (served.signal, "signal", lambda *_: None),
        (served.os, "execv", lambda program, _: again.append(program)),
        (Server, "do_next", lambda *_: next(polls)),
    ):
        monkeypatch.setattr(where, name, what)
    assert CliRunner().invoke(served.main, ["serve", "--config", str(config)]).exit_code == 0
    assert again == [sys.executable]


def test_processes_that_ended_before_a_restart_are_reaped() -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        served._reap()
        with pytest.raises(ChildProcessError):
            os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOHANG)


@pytest.mark.parametrize("of_client", [True, False])
@pytest.mark.parametrize("amid", ["do_next", "conf"])
def test_ctrl_c_of_a_client_restarts_the_server_also_outside_its_command(
    config: Path, monkeypatch: pytest.MonkeyPatch, amid: str, of_client: bool
) -> None:
    """It may arrive before the server has taken the command, or once it has ended; the server's own ends it."""
    config.write_text(f'[tables]\nroot = "{config.parent}"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n')
    ledger, again, servers = MagicMock(), list[str](), list[Server]()

    def interrupted(*_: object) -> str:
        servers[0].interrupted = of_client
        raise KeyboardInterrupt

    def do_next(server: Server, _: float) -> bool:
        servers.append(server)
        return amid == "conf" or bool(interrupted())

    ledger.spark.conf.get.side_effect = interrupted
    for where, name, what in (
        (served, "open_ledger", lambda *_, new: ledger),
        (served, "_warm_up", lambda *_: None),
        (served.signal, "signal", lambda *_: None),
        (served.os, "execv", lambda program, _: again.append(program)),
        (Server, "do_next", do_next),
    ):
        monkeypatch.setattr(where, name, what)
    assert CliRunner().invoke(served.main, ["serve", "--config", str(config)]).exit_code == 0
    assert again == ([sys.executable] if of_client else [])


def test_server_waits_for_the_first_load(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = options_of(config)
    pace, nothing, read = Pace(every=60.0), Tables(None), config.read_bytes()

    def do(_: Sequence[str]) -> int:
        raise AssertionError("nothing is declared")

    assert not any(provisioned_if_due(pace, nothing, options, read, do) for _ in range(3))  # type: ignore[arg-type]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "nothing is declared in /ledger yet: waiting for the first load"


def test_a_file_says_what_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its path is relative: commands run in the folders of their clients."""
    path, client = tmp_path / "health.json", tmp_path.parent / f"{tmp_path.name}-client"
    client.mkdir()
    monkeypatch.chdir(tmp_path)
    health = Health(Path("health.json"))
    monkeypatch.chdir(client)
    health.waiting()
    assert json.loads(path.read_text())["doing"] is None
    with health.during(["--cluster=x", "plan", "--config", "my.toml"]) as code:
        busy = json.loads(path.read_text())
        assert (busy["doing"], busy["commands"], busy["pid"]) == ("plan", 0, os.getpid())
        code.append(3)
    done = json.loads(path.read_text())
    assert (done["doing"], done["commands"], done["last_exit_code"]) == (None, 1, 3)
    with pytest.raises(RuntimeError), health.during(["audit"]):
        raise RuntimeError
    assert json.loads(path.read_text())["last_exit_code"] is None
    assert list(tmp_path.iterdir()) == [path]
    assert list(client.iterdir()) == []


def test_health_file_lives_as_long_as_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "health.json"
    health = Health(path)
    with health.kept():
        assert json.loads(path.read_text())["doing"] == "serve"
        health.ready()
        assert json.loads(path.read_text())["doing"] is None
    assert list(tmp_path.iterdir()) == []
    away = Health(tmp_path / "none" / "health.json")
    with away.kept():
        away.ready()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("can't write the health file"), "once, and nothing ended"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_the_memory_of_what_it_started_counts() -> None:
    before = memory_bytes()
    hoard = (
        "data = bytearray(200_000_000); data[::4096] = b'x' * len(data[::4096]); print('ready', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", hoard], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert 180_000_000 < memory_bytes() - before < 400_000_000
        child.communicate(b"\n")


def test_the_examples_give_serve_options_that_it_has() -> None:
    folder = Path(__file__).parents[2] / "examples" / "serve"
    deployment = yaml.safe_load((folder / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    unit = (folder / "topicledger.service").read_text()
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    for command, *arguments in (container["args"], line.split()[1:]):
        assert command == "serve"
        with serve.make_context(command, list(arguments)) as context:
            assert context.params["every"] == 300.0
    volumes = {each["name"] for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
