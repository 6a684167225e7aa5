"""The reader: a process with its own Spark, beside a server, for commands that only read while the server is busy.

A query can take all of Spark's cores until it ends. In the same Spark it would so hold up a run beyond its leases.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from topicledger.cli.options import only_reads
from topicledger.errors import ExitCode
from topicledger.ledger.session import is_given

log = logging.getLogger(__name__)

MODULE = "topicledger.serving.reading"
READY = b"ready\n"
"""The line by which a reader says that it accepts commands."""
_LAST_COMMAND = 10.0
"""Seconds that the reader's command has to end as the server ends."""


class Reader:
    """Starts a reader when the first command needs it, and again after it has ended."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command`: the reader's. Its streams, folder and environment are this process's of now, not a client's."""
        self._command = command
        self._folder = Path.cwd()
        path = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._wanted = threading.Event()
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False

    def runs(self, arguments: Sequence[str]) -> bool:
        """Return whether the reader runs this command; if it should but isn't ready, it is started for later ones."""
        if not only_reads(arguments):
            return False
        self._wanted.set()
        return self._is_ready

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the reader when it is needed within a context, and end it with the context.

        A Spark that spark-submit or a platform gave this process can't be started again.
        """
        if is_given():
            yield
            return
        errors = os.dup(2)
        self._wanted.clear()
        keeper = threading.Thread(target=self._keep, args=(errors,), name="reader", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            self._is_ready = False
            self._ending.set()
            self._wanted.set()
            self._end(keeper)
            os.close(errors)

    def _end(self, keeper: threading.Thread) -> None:
        """Close the reader's stdin, at which it ends after its command; end it if that takes long."""
        process = self._process
        if process is not None:
            with suppress(OSError):
                _open(process.stdin).close()
            keeper.join(_LAST_COMMAND)
            process.kill()
        keeper.join(_LAST_COMMAND)

    def _keep(self, errors: int) -> None:
        ready = True
        while ready:
            self._wanted.wait()
            if self._ending.is_set():
                return
            try:
                ready, code = self._run_once(errors)
            except OSError as error:
                log.warning("the process for commands that only read can't be started: %s", error.strerror)
                ready, code = False, int(ExitCode.DONE)
            self._wanted.clear()
            # The end of the server may have set `_wanted` right before.
            if self._ending.is_set():
                return
            if code != ExitCode.DONE:
                log.warning("the process for commands that only read ended (%d)", code)
        log.warning("commands that only read start their own Spark while this server is busy")

    def _run_once(self, errors: int) -> tuple[bool, int]:
        """Run a reader until it ends; return whether it accepted commands, and its exit code."""
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=self._folder,
            env=self._environment,
            # A terminal's Ctrl-C is for the server.
            start_new_session=True,
        ) as process:
            self._process = process
            if self._ending.is_set():
                # `_end` may have looked before it was started.
                _open(process.stdin).close()
            said = _open(process.stdout)
            ready = said.readline() == READY
            self._is_ready = ready and not self._ending.is_set()
            said.read()
            self._is_ready = False
        return ready, process.returncode


def command_of(config: Path, socket: Path, log_format: str) -> Sequence[str]:
    """Return the command line of this process's reader, which listens at `socket`."""
    arguments = [str(config.absolute()), str(socket), log_format, str(os.getpid())]
    return [sys.executable, "-P", "-m", MODULE, *arguments]


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "Popen was given PIPE"
    return pipe
