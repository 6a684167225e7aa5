"""`serve`: a real server with a real session, and the console script that finds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks.measure import resident_bytes
from tests import commands
from tests.broker.direct import live
from tests.broker.served import SCRIPT, serving
from tests.processes import is_alive
from tests.receiver import receiver
from tests.waiting import until
from topicledger.serving import protocol
from topicledger.serving.reader import MODULE
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

_MANY = 600
"""Topics whose creation in requests of 20 takes longer than a dozen other commands."""


class Place:
    """Settings, and a folder for sockets of their own."""

    def __init__(self, folder: Path, sockets: Path, kafka: EmbeddedKafka) -> None:
        self.config = commands.settings_file(folder, {"main": kafka.bootstrap_servers})
        library = str(commands.REPOSITORY / "lib")
        self.environment = {**os.environ, "PYTHONPATH": library, "TOPICLEDGER_SOCKET_DIR": str(sockets)}

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SCRIPT, *map(str, arguments), "--config", str(self.config)],
            env=self.environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*SCRIPT, *map(str, arguments), "--config", str(self.config)],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def declare(self, *topics: str) -> Path:
        path = self.config.with_name(f"{topics[0]}.yaml")
        rows = [f"  - {{topic: {name}, num_partitions: 1, replication_factor: 1}}" for name in topics]
        path.write_text("\n".join(["cluster: main", "topics:", *rows]) + "\n")
        return path

    def serving(self, *more: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return serving(self.config, *more, environment=self.environment)


@pytest.fixture
def place(tmp_path: Path, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    # A socket's path has at most some 100 characters.
    with tempfile.TemporaryDirectory(prefix="tl-") as sockets:
        monkeypatch.setenv("TOPICLEDGER_SOCKET_DIR", sockets)
        yield Place(tmp_path, Path(sockets), kafka)


def test_commands_through_a_server_say_and_do_what_they_do_without_one(place: Place, kafka: EmbeddedKafka) -> None:
    """Each has its own streams, exit code and run; none starts a Spark of its own."""
    assert place.run("load_manifests", place.declare("served.one", "served.two")).returncode == 0
    with place.serving() as server:
        before = time.monotonic()
        planned = place.run("plan", "--run-id", "warm", "--detailed-exitcode")
        assert (planned.returncode, "2 changes are planned" in planned.stdout) == (3, True), planned.stderr
        assert place.run("apply", "--run-id", "warm").returncode == 0
        assert set(live(kafka, "served.")) == {"served.one", "served.two"}
        shown = place.run("runs", "show", "--run-id", "warm", "--format", "json")
        assert {each["topic"] for each in json.loads(shown.stdout)["actions"]} == {"served.one", "served.two"}
        usage = place.run("plan", "--cluster", "mian")
        assert (usage.returncode, usage.stdout) == (2, "")
        assert "did you mean `main`?" in usage.stderr
        assert place.run("plan", "--no-such-option").returncode == 2
        took = time.monotonic() - before
        runs = json.loads(place.run("runs", "list", "--format", "json").stdout)["runs"]
        assert [each["run_id"] for each in runs if each["command"] == "plan"] == ["warm"]
        # Java's processes: the server's only. A command that had started one would have left it in no time.
        assert server.poll() is None
        second = place.run("serve")
        assert (second.returncode, "is already running" in second.stderr) == (2, True)
    assert server.returncode == 0
    assert not protocol.socket_of(place.config).exists()
    print(f"six commands through a server: {took:.1f} s")


def test_two_clients_at_once_both_get_their_answer(place: Place, kafka: EmbeddedKafka) -> None:
    """The server does one command; whoever comes meanwhile starts Spark itself."""
    assert place.run("load_manifests", place.declare("both.one", "both.two")).returncode == 0
    with place.serving():
        with ThreadPoolExecutor(2) as clients:
            done = list(clients.map(lambda run_id: place.run("plan", "--run-id", run_id), ("first", "second")))
        assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
        assert all("2 changes are planned" in each.stdout for each in done)
        assert place.run("apply", "--run-id", "first").returncode == 0
        # Topics that the first run created aren't created again.
        again = place.run("apply", "--run-id", "second")
        assert again.returncode == 0, again.stdout
    assert set(live(kafka, "both.")) == {"both.one", "both.two"}


def test_commands_that_read_are_answered_beside_an_apply(place: Place, kafka: EmbeddedKafka) -> None:
    """As without a server, in seconds; neither they, their process's death, nor an unread output disturb the run.

    Small requests keep the apply under way as long as this test needs it to be.
    """
    with place.config.open("a") as settings:
        settings.write("[kafka]\nmax_batch_records = 20\n")
    names = [f"beside.{number:04}" for number in range(_MANY)]
    reads = {
        "runs": ("runs", "list", "--format", "json"),
        "show": ("runs", "show", "earlier"),
        "topic": ("topics", "show", "--topic", "earlier.one", "--cluster", "main"),
        "sql": ("sql", "SELECT 1 AS one, count(*) AS topics FROM manifests"),
    }
    sockets = Path(place.environment["TOPICLEDGER_SOCKET_DIR"])
    with place.serving() as server:
        assert place.run("load_manifests", place.declare("earlier.one")).returncode == 0
        assert place.run("provision", "--run-id", "earlier").returncode == 0
        assert place.run("load_manifests", place.declare(*names)).returncode == 0
        expected = {name: place.run(*each) for name, each in reads.items()}
        assert _readers_of(server.pid) == [], "the server had nothing else to do"
        idle = resident_bytes(server.pid) // 2**20
        applying = place.start("provision", "--run-id", "long")
        until(lambda: bool(live(kafka, "beside.")) or applying.poll() is not None, seconds=120)
        # The first one starts its own Spark, and the reader.
        began = time.monotonic()
        assert place.run(*reads["sql"]).stdout == expected["sql"].stdout
        taken = {"first": round(time.monotonic() - began, 1)}
        until(lambda: any(sockets.glob("*r.sock")), seconds=60)
        taken["reader starts"] = round(time.monotonic() - began, 1)
        (reader,) = _readers_of(server.pid)
        for number, (name, each) in enumerate([*reads.items(), *reads.items()]):
            began = time.monotonic()
            warm = place.run(*each)
            taken[f"{name} {number // len(reads) + 1}"] = round(time.monotonic() - began, 1)
            assert warm.returncode == 0, warm.stderr
            if name == "runs":
                runs = [run for run in json.loads(warm.stdout)["runs"] if run["run_id"] != "long"]
                assert runs == json.loads(expected[name].stdout)["runs"]
            else:
                assert warm.stdout == expected[name].stdout
        with_reader = resident_bytes(reader) // 2**20
        silent = place.start("sql", "SELECT repeat('x', 1000000) AS x", "--format", "csv")
        assert silent.stdout is not None
        begins = silent.stdout.read(1)
        os.kill(reader, signal.SIGKILL)
        until(lambda: not is_alive(reader), seconds=30)
        assert applying.poll() is None, "all of it was beside the apply"
        print(f"beside an apply: {taken} s; idle server {idle} MiB, reader {with_reader} MiB")
        _, errors = applying.communicate(timeout=600)
        assert applying.returncode == 0, errors
        assert set(live(kafka, "beside.")) == set(names)
        assert begins == "x"
        silent.communicate(timeout=60)


def _readers_of(server: int) -> list[int]:
    """Return the process ids of a server's readers."""
    found = subprocess.run(["pgrep", "-P", str(server), "-f", MODULE], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def test_a_server_provisions_as_soon_as_manifests_change(place: Place, kafka: EmbeddedKafka) -> None:
    """Also if there are no tables when it starts: the first load makes them."""
    health = place.config.with_name("health.json")
    with place.serving("--every", "3600", "--health-file", str(health)):
        until(lambda: json.loads(health.read_text())["doing"] is None, seconds=60)
        assert place.run("load_manifests", place.declare("prompt.one")).returncode == 0
        until(lambda: "prompt.one" in live(kafka, "prompt."), seconds=120)
        until(lambda: place.run("load_manifests", place.declare("prompt.two")).returncode == 0, seconds=120)
        until(lambda: "prompt.two" in live(kafka, "prompt."), seconds=60)
    assert not health.exists()


def test_a_server_announces_a_refused_topic_once(place: Place, tmp_path: Path) -> None:
    health = tmp_path / "health.json"

    def runs() -> int:
        return int(json.loads(health.read_text())["commands"]) if health.exists() else 0

    declared = place.declare("refused.copies")
    declared.write_text(declared.read_text().replace("replication_factor: 1", "replication_factor: 3"))
    assert place.run("load_manifests", declared).returncode == 0
    with receiver() as received:
        place.environment["HOOK"] = received.url
        with place.config.open("a") as settings:
            settings.write('\n[[notify]]\nurl = "env:HOOK"\n')
        with place.serving("--every", "1", "--health-file", str(health)):
            until(lambda: runs() >= 3, seconds=300)
    assert [event["data"]["event"] for _, event in received.posts] == ["failed"]


def test_a_run_of_a_server_that_is_killed_is_finished_without_it(place: Place, kafka: EmbeddedKafka) -> None:
    names = [f"killed.{number:03}" for number in range(300)]
    assert place.run("load_manifests", place.declare(*names)).returncode == 0
    with place.serving() as server:
        asking = place.start("provision", "--run-id", "cut")
        until(lambda: bool(live(kafka, "killed.")), seconds=120)
        server.send_signal(signal.SIGKILL)
        _, said = asking.communicate(timeout=120)
        assert (asking.returncode, "the server ended during the command" in said) == (1, True)
    finished = place.run("provision", "--run-id", "cut")
    assert finished.returncode == 0, finished.stderr
    assert set(live(kafka, "killed.")) == set(names)
    shown = json.loads(place.run("runs", "show", "--run-id", "cut", "--format", "json").stdout)["actions"]
    applied = [phase for each in shown for phase in each["phases"] if phase["phase"] == "apply"]
    assert [phase["outcome"] for phase in applied] == ["ok"] * len(names)
