"""A server that runs the commands of the console script."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

SCRIPT = (sys.executable, "-c", "from topicledger.serving.client import main; main()")
"""As the console script has it."""


@contextmanager
def serving(config: Path, *more: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `serve` until the context ends. `environment`: with `TOPICLEDGER_SOCKET_DIR`, as for the commands."""
    log = config.with_name("serve.log")
    with log.open("wb") as file:
        server = subprocess.Popen([*SCRIPT, "serve", "--config", str(config), *more], env=environment, stderr=file)
        try:
            until(lambda: b"serving" in log.read_bytes() or server.poll() is not None, seconds=600)
            assert server.poll() is None, log.read_text()
            yield server
        finally:
            if server.poll() is None:
                server.terminate()
            server.wait(120)
