"""The server: runs commands one at a time in one long-lived Spark session.

While it is busy, commands that only read go to a process beside it (`reader`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
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
"""Runs a command with the streams and the folder of this process; returns its exit code."""
_BACKLOG = 16
_PATIENCE = 5.0
"""Seconds that a client has to send its request."""
_ACCEPT_AGAIN = 0.5
"""Seconds until the next attempt to accept a client."""
_FAREWELL = 2.0
"""Seconds in which the last clients get their exit codes as the server ends."""
_FAREWELL_STEP = 0.02
"""Seconds between looks whether they have them."""
_MOST_DOUBLINGS = 30
"""Largest number of times that the pause after failures doubles; more would overflow."""


@dataclass
class _Asked:
    """A command that a client sent."""

    arguments: Sequence[str]
    folder: str
    config: str
    files: Sequence[int]
    connection: socket.socket
    outputs: Sequence[streams.Output] = ()
    over: threading.Event = field(default_factory=threading.Event)

    def finish(self, code: int) -> None:
        """Send the exit code after all output."""
        for each in self.outputs:
            each.finish()
        self._answer({"exit_code": code})

    def take_back(self) -> None:
        """Tell the client that its command, which was accepted, isn't run."""
        self.over.set()
        self._answer({"accepted": False, "why": "ending"})

    def _answer(self, message: Mapping[str, object]) -> None:
        with suppress(OSError):
            protocol.send(self.connection, message)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Runs commands in this process's main thread, the only thread in which Python handles signals."""

    def __init__(
        self,
        path: Path,
        command: Command,
        *,
        is_ending: Callable[[], bool] = lambda: False,
        is_for_reader: Callable[[Sequence[str]], bool] = lambda _: False,
        patience: float = streams.PATIENCE,
    ) -> None:
        """`is_ending`: whether the server was asked to end; `is_for_reader`: whether the reader runs these arguments.

        It is asked while this server is busy. `patience`: seconds that a client may leave output unread.
        """
        self._path = path
        self._command = command
        self._is_for_reader = is_for_reader
        self._patience = patience
        self._is_closed = False
        self._is_over = False
        self._is_ending = lambda: is_ending() or self._is_over
        self._clients: set[threading.Thread] = set()
        self._free = threading.Semaphore(1)
        self._ending = threading.Lock()
        """Held so that no interrupt is sent to a command that is over."""
        self._queue: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self.interrupted = False
        """Whether a command was interrupted, and no other is accepted; Java's late answers to it can't be told from
        answers to later calls."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Accept clients within a context. Raises UsageError if another server has the socket."""
        with _place(self._path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _bind(listener, self._path)
            threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()
            try:
                yield
            finally:
                self._path.unlink(missing_ok=True)
                self._is_closed = self._is_over = True
                until = time.monotonic() + _FAREWELL
                while self._clients and time.monotonic() < until:
                    # A client may have been accepted after the last command.
                    with suppress(queue.Empty):
                        self._queue.get(timeout=_FAREWELL_STEP).take_back()

    def close(self) -> None:
        """Refuse all further clients."""
        self._is_closed = True

    def do_next(self, seconds: float) -> bool:
        """Run the next command that a client sends within `seconds`; return whether there was one."""
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
            # The interrupt arrived after the command had ended.
            asked.over.set()
        finally:
            if all(each.is_delivered() for each in asked.outputs):
                asked.finish(code)
            else:
                threading.Thread(target=asked.finish, args=(code,), name="finish", daemon=True).start()
            self._free.release()
        return True

    def _carried_out(self, asked: _Asked) -> int:
        try:
            with (
                streams.lent(asked.folder, asked.files, asked.outputs, self._is_ending),
                _config_of_client(asked.config),
            ):
                return self._command(asked.arguments)
        except streams.ClientGone as error:
            _say(asked, f"error: the server can't enter the folder of this command: {error}")
            return ExitCode.USAGE
        except Exception:
            # A bug in one command must not end the server for all others.
            log.exception("a command failed unexpectedly")
            _say(asked, "error: the command failed unexpectedly; see the server's log")
            return ExitCode.ERROR

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Refuse clients within a context, for the server's own work; yields False if a client is being served."""
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
                # Such errors are temporary, for example too many open files.
                log.warning("a client can't be accepted: %s", error.strerror)
                time.sleep(_ACCEPT_AGAIN)
                continue
            client = threading.Thread(target=self._receive, args=(connection,), name="client", daemon=True)
            self._clients.add(client)
            try:
                client.start()
            except RuntimeError as error:
                log.warning("a client can't be accepted: %s", error)
                self._clients.discard(client)
                connection.close()

    def _receive(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
        finally:
            self._clients.discard(threading.current_thread())

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                if protocol.peer_uid(connection) != os.getuid():
                    return
                message, files = protocol.receive(connection)
            except (OSError, protocol.ProtocolError) as error:
                log.info("a client's request was not understood: %s", error)
                return
            asked = None
            try:
                asked = self._understood(message, files, connection)
                refusal = self._refusal(asked, message)
                if asked is None or refusal:
                    protocol.send(connection, {"accepted": False, **refusal})
                    return
                try:
                    protocol.send(connection, {"accepted": True})
                    connection.settimeout(None)
                except OSError:
                    # A client that is already gone gets no work done.
                    self._free.release()
                    raise
                self._queue.put(asked)
                self._follow(asked)
                asked.over.wait()
                for each in asked.outputs:
                    each.finish()
            except OSError:
                pass
            finally:
                for each in () if asked is None else asked.outputs:
                    each.close()
                protocol.close(files)

    def _refusal(self, asked: _Asked | None, message: Mapping[str, object]) -> Mapping[str, object]:
        """Return why a request is refused; empty if it is accepted: then the server is no longer free."""
        if message.get("code") != protocol.CODE:
            return {"why": "other code", "code": protocol.CODE}
        if asked is None:
            return {"why": "not understood"}
        if self._is_closed or self.interrupted:
            return {"why": "ending"}
        if self._free.acquire(blocking=False):
            return {}
        return {"why": "busy", "reader": self._is_for_reader(asked.arguments)}

    def _understood(
        self, message: Mapping[str, object], files: Sequence[int], connection: socket.socket
    ) -> _Asked | None:
        arguments, folder, config = message.get("arguments"), message.get("folder"), message.get("config")
        if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
            return None
        if not isinstance(folder, str) or not isinstance(config, str) or len(files) != len(protocol.STREAMS):
            return None
        outputs = streams.outputs(files[1:], self._is_ending, self._patience)
        return _Asked(
            arguments=arguments, folder=folder, config=config, files=files, connection=connection, outputs=outputs
        )

    def _follow(self, asked: _Asked) -> None:
        """Pass on each Ctrl-C; a client that disconnects counts as one."""
        with suppress(OSError, protocol.ProtocolError):
            for message in protocol.lines(asked.connection):
                if message.get("interrupt") is True:
                    self._interrupt(asked)
        self._interrupt(asked)

    def _interrupt(self, asked: _Asked) -> None:
        with self._ending:
            if asked.over.is_set():
                for each in asked.outputs:
                    each.drop()
            else:
                self.interrupted = True
                os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def _config_of_client(config: str) -> Iterator[None]:
    """Context in which the settings are those of the client, whose environment may name them."""
    before = os.environ.get(protocol.CONFIG)
    os.environ[protocol.CONFIG] = config
    try:
        yield
    finally:
        if before is None:
            del os.environ[protocol.CONFIG]
        else:
            os.environ[protocol.CONFIG] = before


def _say(asked: _Asked, line: str) -> None:
    """Write a line to a client's stderr, after its other output."""
    content = f"{line}\n".encode()
    with suppress(OSError):
        while content:
            content = content[asked.outputs[1].write(content) :]


@contextmanager
def _place(path: Path) -> Iterator[None]:
    """Reserve the socket at `path` within a context. Raises UsageError if another server has it.

    A lock decides, since a socket that doesn't answer may be left over, or its server may be about to listen. The
    kernel releases the lock when its holder ends, however it ends. The lock file stays: after its removal, two servers
    could lock two different files.
    """
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not protocol.is_ours_alone(folder):
        raise UsageError(f"{folder} must belong to this user only: run chmod 700 on it, or set TOPICLEDGER_SOCKET_DIR")
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"can't lock {path.with_suffix('.lock')}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"a server with these settings is already running: it uses {path}") from None
        yield
    finally:
        os.close(lock)


def _bind(listener: socket.socket, path: Path) -> None:
    """Listen at `path`, which is reserved, so that an existing socket is a leftover."""
    path.unlink(missing_ok=True)
    try:
        listener.bind(str(path))
    except OSError as error:
        # The error for a path that is too long has a text, but no number.
        hint = "set TOPICLEDGER_SOCKET_DIR to a folder with a shorter path" if error.errno is None else ""
        raise UsageError("; ".join(filter(None, [f"can't listen on {path}: {error}", hint]))) from error
    listener.listen(_BACKLOG)


@dataclass
class Pace:
    """When the server provisions on its own: at an interval, and when `manifests` have changed."""

    every: float
    """Interval in seconds."""
    failures: int = 0
    """Number of consecutive failures."""
    last: float | None = None
    version: int | None = None
    _said: str | None = None
    """The last logged reason why no run begins."""

    def is_due(self, version: int | None) -> bool:
        """Whether to begin a run, now that `manifests` are at `version` (None: there is no such table)."""
        if self._said is not None:
            log.info("runs begin again")
            self._said = None
        if self.last is None:
            return True
        waited = time.monotonic() - self.last
        if self.failures:
            return waited >= min(self.every, 2.0 ** min(self.failures, _MOST_DOUBLINGS))
        return waited >= self.every or (version is not None and version != self.version)

    def held_up(self, why: str) -> None:
        """Note that no run begins; log each reason once."""
        if why != self._said:
            log.warning("%s", why)
        self._said = why

    def begun(self, version: int | None) -> None:
        """Note that a run begins."""
        self.last, self.version = time.monotonic(), version

    def ended(self, code: int) -> None:
        """Note a run that ended with `code`; only errors count as failures, since a refusal would be repeated."""
        self.failures = self.failures + 1 if code == ExitCode.ERROR else 0
