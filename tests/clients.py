"""Clients of a server of commands, as processes, and a folder for sockets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import REPOSITORY

CLIENT = """
import sys
from topicledger.serving.client import ask
code = ask(sys.argv[1:])
assert not {"pyspark", "pyarrow", "click"} & set(sys.modules), "a client that is answered imports little"
print("cold" if code is None else "", end="")
sys.exit(9 if code is None else code)
"""


@contextmanager
def settings_with_sockets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Context with a settings file in a folder, and a folder of sockets of its own."""
    # A socket's path has at most some 100 characters.
    sockets = Path("/tmp") / f"topicledger-test-{os.getpid()}-{folder.name[-6:]}"
    monkeypatch.setenv("TOPICLEDGER_SOCKET_DIR", str(sockets))
    path = folder / "my.toml"
    path.write_text("[tables]\n")
    yield path
    for each in sockets.glob("*"):
        each.unlink()
    if sockets.exists():
        sockets.rmdir()


def client(
    config: Path, *arguments: str, folder: Path | None = None, both: int | None = None, **more: str
) -> subprocess.Popen[str]:
    """Start a client that asks a server; exit code 9 if none answers.

    `both`: a file for stdout and stderr; `more`: variables of its environment.
    """
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, *arguments, "--config", str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if both is None else both,
        stderr=subprocess.PIPE if both is None else both,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "lib"), **more},
    )
