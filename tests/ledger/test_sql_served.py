"""`sql` through `serve`: the answers of a process of its own, from a session that is warm."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import commands
from tests.broker.served import SCRIPT, serving
from tests.ledger.asked import write_ledger
from topicledger.queries.views import all_views

pytestmark = pytest.mark.thorough

CHANGES = "SELECT topic, action, what, before, after, requested_by FROM changes ORDER BY topic, what"


class Asking:
    """A ledger with rows for every view, and the console script that asks it."""

    def __init__(self, folder: Path, sockets: str) -> None:
        # No broker is there: a query needs none.
        self.config = commands.settings_file(folder, {"main": ["127.0.0.1:9"]}, root=write_ledger(folder / "ledger"))
        self.health = folder / "health.json"
        library = str(commands.REPOSITORY / "lib")
        self.environment = {**os.environ, "PYTHONPATH": library, "TOPICLEDGER_SOCKET_DIR": sockets}

    def sql(self, *arguments: str, cold: bool = False, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [*SCRIPT, *(["--cold"] if cold else []), "sql", *arguments, "--config", str(self.config)]
        return subprocess.run(
            command, env=self.environment, input=text, capture_output=True, text=True, timeout=300, check=False
        )

    def served(self) -> int:
        """The number of commands that the server has done."""
        return int(json.loads(self.health.read_text())["commands"])


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    # A socket's path has at most some 100 characters.
    with tempfile.TemporaryDirectory(prefix="tl-") as sockets:
        yield Asking(tmp_path, sockets)


def test_sql_through_a_server_answers_as_without_one(asking: Asking) -> None:
    """In each format, from a file and from stdin, and with the same errors and exit codes."""
    questions = [
        (CHANGES,),
        (CHANGES, "--format", "json"),
        (CHANGES, "--format", "csv"),
        ("DELETE FROM audit",),
        ("SELECT nothing FROM audit",),
    ]
    cold = [asking.sql(*each, cold=True) for each in questions]
    assert [each.returncode for each in cold] == [0, 0, 0, 2, 2], [each.stderr for each in cold]
    assert "retention.ms" in cold[0].stdout
    refused = [each.stderr for each in cold[3:]]
    assert [(each[:7], each.count("\n")) for each in refused] == [("error: ", 1)] * 2, "a message without a stack trace"
    with serving(asking.config, "--health-file", str(asking.health), environment=asking.environment):
        warm, taken = [], []
        for each in questions:
            began = time.monotonic()
            warm.append(asking.sql(*each))
            taken.append(time.monotonic() - began)
        of_views = [asking.sql(f"SELECT * FROM {view.name}", "--format", "json") for view in all_views()]
        piped = asking.sql("-f", "-", text=CHANGES)
        assert asking.served() == len(questions) + len(of_views) + 1, "one of them started Spark itself"
    streams = [[(each.returncode, each.stdout, each.stderr) for each in answers] for answers in (warm, cold)]
    assert streams[0] == streams[1]
    assert (piped.returncode, piped.stdout) == (0, cold[0].stdout)
    assert [each.returncode for each in of_views] == [0] * len(all_views()), [each.stderr for each in of_views]
    print("seconds:", *(f"{each:.1f}" for each in taken))
