"""The processes of an embedded cluster, owned by `process_keeper`, which ends them when this process ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TextIO

from topicledger_testing import process_keeper
from topicledger_testing.options import EmbeddedKafkaError


class Keeper:
    """This side of the conversation with `process_keeper`; any thread may use it."""

    def __init__(self, folder: Path | None) -> None:
        self._lock = threading.Lock()
        arguments = [str(os.getpid()), *([str(folder)] if folder is not None else [])]
        # -I and -S leave out the package, the environment and site-packages, so that it starts in milliseconds.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(process_keeper.__file__)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # Ctrl-C in a terminal reaches only this process; the keeper ends after it by itself.
            start_new_session=True,
        )
        self.folder = Path(self._answer()["folder"])

    def start(self, name: str, argv: Sequence[str], log: Path) -> int:
        """Start a process and return its id."""
        return int(self._ask(start=name, argv=list(argv), log=str(log))["pid"])

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process that this keeper started, unless it has ended."""
        self._ask(signal=name, number=int(number))

    def poll(self, name: str) -> int | None:
        """Return a process's exit code; None while it runs."""
        code = self._ask(poll=name)["returncode"]
        return None if code is None else int(code)

    def close(self) -> None:
        """Make the keeper kill its processes, remove its folder and end."""
        with closing(self._pipe(self._process.stdout)), self._lock:
            with suppress(BrokenPipeError):
                self._pipe(self._process.stdin).close()
            self._process.wait()

    def _ask(self, **request: object) -> dict[str, Any]:
        with self._lock:
            requests = self._pipe(self._process.stdin)
            try:
                requests.write(json.dumps(request) + "\n")
                requests.flush()
            except BrokenPipeError:
                raise EmbeddedKafkaError("The embedded Kafka's keeper has ended, and the brokers with it.") from None
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise EmbeddedKafkaError("The embedded Kafka's keeper has ended, and the brokers with it.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EmbeddedKafkaError(f"The embedded Kafka's keeper reports: {answer['error']}")
        return answer

    @staticmethod
    def _pipe(pipe: Any) -> TextIO:
        assert pipe is not None, "opened with PIPE"
        opened: TextIO = pipe
        return opened
