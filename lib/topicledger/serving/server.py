"""The server: does commands with a Spark session that stays, one at a time."""

from __future__ import annotations

import errno
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from topicledger.errors import UsageError
from topicledger.serving import protocol

log = logging.getLogger(__name__)

Command = Callable[[Sequence[str]], int]
"""Does a command with the streams and the folder of this process; returns its exit code."""
_BACKLOG = 16
_PATIENCE = 5.0
"""Seconds for a client to send its request."""


@dataclass
class _Asked:
    """A command that a client wants to have done."""

    arguments: Sequence[str]
    folder: str
    streams: Sequence[int]
    connection: socket.socket
    over: threading.Event = field(default_factory=threading.Event)


class Server:
    """Does commands in this process's main thread: Python gives signals to no other one."""

    def __init__(self, path: Path, command: Command) -> None:
        self._path = path
        self._command = command
        self._free = threading.Semaphore(1)
        self._ending = threading.Lock()
        """No interrupt is on its way to a command that is over."""
        self._queue: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self.interrupted = False
        """Whether a command was interrupted: what Java still answers to it can't be told from later answers."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which clients find the server. Raises UsageError where another one has the place."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _bind(listener, self._path)
            inode = self._path.stat().st_ino
            threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()
            try:
                yield
            finally:
                # A later server may have taken the place.
                with suppress(OSError):
                    if self._path.stat().st_ino == inode:
                        self._path.unlink()

    def do_next(self, seconds: float) -> bool:
        """Do the next command that a client asks for within `seconds`; returns whether there was one."""
        try:
            asked = self._queue.get(timeout=seconds)
        except queue.Empty:
            return False
        code = 1
        try:
            with _streams_and_folder(asked):
                code = self._command(asked.arguments)
            with self._ending:
                asked.over.set()
        except KeyboardInterrupt:
            # It came when the command had ended already.
            asked.over.set()
        finally:
            with suppress(OSError):
                protocol.send(asked.connection, {"exit_code": code})
            with suppress(OSError):
                asked.connection.shutdown(socket.SHUT_RDWR)
            self._free.release()
        return True

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """A context in which clients are sent away, for what the server does on its own; False where one is served."""
        mine = self._free.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                self._free.release()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._receive, args=(connection,), name="client", daemon=True).start()

    def _receive(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                if protocol.peer_uid(connection) != os.getuid():
                    return
                message, streams = protocol.receive(connection)
            except (OSError, protocol.ProtocolError) as error:
                log.info("a client's request was not understood: %s", error)
                return
            try:
                asked = _asked(message, streams, connection)
                if asked is None or not self._free.acquire(blocking=False):
                    protocol.send(connection, {"accepted": False, "why": "busy" if asked else "not understood"})
                    return
                connection.settimeout(None)
                protocol.send(connection, {"accepted": True})
                self._queue.put(asked)
                self._follow(asked)
                asked.over.wait()
            except OSError:
                pass
            finally:
                protocol.close(streams)

    def _follow(self, asked: _Asked) -> None:
        """Pass on each Ctrl-C; a client that is gone without one is taken for one."""
        with suppress(OSError, protocol.ProtocolError):
            for message in protocol.lines(asked.connection):
                if message.get("interrupt") is True:
                    self._interrupt(asked)
        self._interrupt(asked)

    def _interrupt(self, asked: _Asked) -> None:
        with self._ending:
            if not asked.over.is_set():
                self.interrupted = True
                os.kill(os.getpid(), signal.SIGINT)


def _asked(message: Mapping[str, object], streams: Sequence[int], connection: socket.socket) -> _Asked | None:
    arguments, folder = message.get("arguments"), message.get("folder")
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        return None
    if not isinstance(folder, str) or len(streams) != len(protocol.STREAMS):
        return None
    return _Asked(arguments=arguments, folder=folder, streams=streams, connection=connection)


def _bind(listener: socket.socket, path: Path) -> None:
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not protocol.is_ours_alone(folder):
        raise UsageError(f"{folder} is not this user's alone: make it so (chmod 700), or set TOPICLEDGER_SOCKET_DIR")
    try:
        listener.bind(str(path))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            # A path that is too long has a text, but no number.
            hint = "set TOPICLEDGER_SOCKET_DIR to a folder with a shorter path" if error.errno is None else ""
            raise UsageError("; ".join(filter(None, [f"can't listen on {path}: {error}", hint]))) from error
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(str(path))
            except OSError:
                # Left behind by a server that was killed.
                path.unlink()
                listener.bind(str(path))
            else:
                raise UsageError(f"a server with these settings runs already: it has {path}") from None
    listener.listen(_BACKLOG)


@contextmanager
def _streams_and_folder(asked: _Asked) -> Iterator[None]:
    """A context in which this process has the client's streams and is in its folder."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    own = [os.dup(number) for number in protocol.STREAMS]
    folder = Path.cwd()
    try:
        for number, stream in zip(protocol.STREAMS, asked.streams, strict=True):
            os.dup2(stream, number)
        os.chdir(asked.folder)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            # A client may have closed its end.
            with suppress(OSError):
                stream.flush()
        for number, stream in zip(protocol.STREAMS, own, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)


@dataclass
class Pace:
    """When the server provisions on its own: every so many seconds, and when `manifests` have changed."""

    every: float
    """Seconds."""
    failures: int = 0
    """One after the other."""
    last: float | None = None
    version: int | None = None

    def is_due(self, version: int | None) -> bool:
        """Whether to begin a run now that `manifests` are at `version` (None: not known)."""
        if self.last is None:
            return True
        waited = time.monotonic() - self.last
        if self.failures:
            return waited >= min(self.every, 2.0**self.failures)
        return waited >= self.every or (version is not None and version != self.version)

    def begun(self, version: int | None) -> None:
        """A run begins."""
        self.last, self.version = time.monotonic(), version

    def ended(self, code: int) -> None:
        """It ended so: what is refused stays refused, an error may pass."""
        self.failures = self.failures + 1 if code == 1 else 0
