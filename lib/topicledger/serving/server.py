"""The server: does commands with a Spark session that stays, one at a time."""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from topicledger.errors import ExitCode, UsageError
from topicledger.serving import protocol, streams

log = logging.getLogger(__name__)

Command = Callable[[Sequence[str]], int]
"""Does a command with the streams and the folder of this process; returns its exit code."""
_BACKLOG = 16
_PATIENCE = 5.0
"""Seconds for a client to send its request."""
_ACCEPT_AGAIN = 0.5
"""Seconds until the next try to accept a client."""
_MOST_DOUBLINGS = 30
"""Of the pause after failures: more would only overflow."""


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

    def __init__(
        self,
        path: Path,
        command: Command,
        *,
        is_ending: Callable[[], bool] = lambda: False,
        patience: float = streams.PATIENCE,
    ) -> None:
        """`is_ending`: whether the server was asked to end; `patience`: see `streams.lent`."""
        self._path = path
        self._command = command
        self._is_ending = is_ending
        self._patience = patience
        self._free = threading.Semaphore(1)
        self._ending = threading.Lock()
        """No interrupt is on its way to a command that is over."""
        self._queue: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self.interrupted = False
        """Whether a command was interrupted: what Java still answers to it can't be told from later answers."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which clients find the server. Raises UsageError if another server has the place."""
        with _place(self._path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _bind(listener, self._path)
            threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()
            try:
                yield
            finally:
                self._path.unlink(missing_ok=True)

    def do_next(self, seconds: float) -> bool:
        """Do the next command that a client asks for within `seconds`; returns whether there was one."""
        try:
            asked = self._queue.get(timeout=seconds)
        except queue.Empty:
            return False
        code: int = ExitCode.ERROR
        try:
            code = self._carried_out(asked)
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

    def _carried_out(self, asked: _Asked) -> int:
        try:
            with streams.lent(asked.folder, asked.streams, self._is_ending, self._patience):
                return self._command(asked.arguments)
        except streams.ClientGone as error:
            _say(asked, f"error: the folder of this command can't be entered: {error}")
            return ExitCode.USAGE
        except Exception:
            # One command's fault must not end the server for all others.
            log.exception("a command ended with a fault of its own")
            _say(asked, "error: the command ended with a fault of its own; the server's log has more")
            return ExitCode.ERROR

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
            except OSError as error:
                if listener.fileno() < 0:
                    return
                # Such as too many open files: they pass.
                log.warning("a client can't be accepted: %s", error.strerror)
                time.sleep(_ACCEPT_AGAIN)
                continue
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
                try:
                    protocol.send(connection, {"accepted": True})
                    connection.settimeout(None)
                except OSError:
                    # Nothing will be done for a client that is gone already.
                    self._free.release()
                    raise
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


def _say(asked: _Asked, line: str) -> None:
    """Write a line to a client's stderr, if it takes it at once."""
    poll = select.poll()
    poll.register(asked.streams[2], select.POLLOUT)
    with suppress(OSError):
        if poll.poll(0):
            os.write(asked.streams[2], f"{line}\n".encode()[: select.PIPE_BUF])


@contextmanager
def _place(path: Path) -> Iterator[None]:
    """A context in which no other server has the socket at `path`. Raises UsageError if one does.

    The lock decides: a socket that answers to nobody may be left over, or its server may be about to listen. The kernel
    gives the lock back when its holder ends, however it ends. Its file stays: removing it would let two servers lock
    two files.
    """
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not protocol.is_ours_alone(folder):
        raise UsageError(f"{folder} is not this user's alone: make it so (chmod 700), or set TOPICLEDGER_SOCKET_DIR")
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"can't lock {path.with_suffix('.lock')}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"a server with these settings runs already: it has {path}") from None
        yield
    finally:
        os.close(lock)


def _bind(listener: socket.socket, path: Path) -> None:
    """Listen at `path`, whose place is held: a socket that is there was left behind."""
    path.unlink(missing_ok=True)
    try:
        listener.bind(str(path))
    except OSError as error:
        # A path that is too long has a text, but no number.
        hint = "set TOPICLEDGER_SOCKET_DIR to a folder with a shorter path" if error.errno is None else ""
        raise UsageError("; ".join(filter(None, [f"can't listen on {path}: {error}", hint]))) from error
    listener.listen(_BACKLOG)


@dataclass
class Pace:
    """When the server provisions on its own: every so many seconds, and when `manifests` have changed."""

    every: float
    """Seconds."""
    failures: int = 0
    """Those in a row."""
    last: float | None = None
    version: int | None = None
    _said: str | None = None
    """Why nothing is known of `manifests`, as it was logged last."""

    def is_due(self, version: int | None) -> bool:
        """Whether to begin a run now that `manifests` are at `version` (None: there is no such table)."""
        if self._said is not None:
            log.info("the declared tables can be read again")
            self._said = None
        if self.last is None:
            return True
        waited = time.monotonic() - self.last
        if self.failures:
            return waited >= min(self.every, 2.0 ** min(self.failures, _MOST_DOUBLINGS))
        return waited >= self.every or (version is not None and version != self.version)

    def unreadable(self, why: str) -> None:
        """No run begins while nothing is known of `manifests`; each reason is logged once."""
        if why != self._said:
            log.warning("%s", why)
        self._said = why

    def begun(self, version: int | None) -> None:
        """A run begins."""
        self.last, self.version = time.monotonic(), version

    def ended(self, code: int) -> None:
        """Count a run that ended with `code`: a refusal stays refused, an error may pass."""
        self.failures = self.failures + 1 if code == ExitCode.ERROR else 0
