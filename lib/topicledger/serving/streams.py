"""A client's streams and folder, lent to this process for one command; a client that stops reading can't block."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from topicledger.serving import protocol

PATIENCE = 60.0
"""Seconds that a client may leave output unread before the rest of it is dropped."""
_ASK_SECONDS = 0.2
"""Interval at which a blocked write checks whether the server is ending."""


class ClientGone(Exception):
    """The client's folder no longer exists, or can't be entered."""


@contextmanager
def lent(
    folder: str, streams: Sequence[int], is_ending: Callable[[], bool], patience: float = PATIENCE
) -> Iterator[None]:
    """Give this process the client's stdin, stdout, stderr and folder within a context.

    If a stream stays full for `patience` seconds, or while `is_ending`, its further output is dropped. Raises
    ClientGone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    patients: Sequence[_Patient] = ()
    before, here = (sys.stdin, sys.stdout, sys.stderr), os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    own = [os.dup(number) for number in protocol.STREAMS]
    lock = threading.Lock()
    try:
        try:
            os.chdir(folder)
        except OSError as error:
            raise ClientGone(f"{folder}: {error.strerror}") from None
        for number, stream in zip(protocol.STREAMS, streams, strict=True):
            os.dup2(stream, number)
        patients = [_Patient(number, lock, is_ending, patience) for number in protocol.STREAMS[1:]]
        sys.stdout, sys.stderr = map(_text, patients)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_PatientInput(protocol.STREAMS[0], is_ending)), encoding="utf-8")
        yield
    finally:
        try:
            for text in (sys.stdout, sys.stderr):
                # A client may have closed its end.
                with suppress(OSError, ValueError):
                    text.flush()
        finally:
            # An interrupt at this point would leave the server with the client's streams.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            for each in patients:
                each.is_lent = False
            sys.stdin, sys.stdout, sys.stderr = before
            for number, saved in zip(protocol.STREAMS, own, strict=True):
                os.dup2(saved, number)
                os.close(saved)
            os.fchdir(here)
            os.close(here)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _text(raw: _Patient) -> io.TextIOWrapper:
    """Return a text stream set up like Python's own: stderr is unbuffered, a terminal is line buffered."""
    is_stderr = raw.fileno() == protocol.STREAMS[2]
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace" if is_stderr else "surrogateescape",
        line_buffering=is_stderr or raw.isatty(),
        write_through=is_stderr,
    )


class _Patient(io.RawIOBase):
    """Writes to a stream only as much as it accepts without blocking."""

    def __init__(self, number: int, lock: threading.Lock, is_ending: Callable[[], bool], patience: float) -> None:
        super().__init__()
        self._number = number
        self._lock = lock
        """Shared by both streams, which may be one pipe, so that no other write fills it after the check for room."""
        self._is_ending = is_ending
        self._patience = patience
        self.is_lent = True
        """False after the number is the server's own stream again. A log handler may still write to its stderr; output
        that an interrupted command left unwritten is dropped."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, content: io.ReadableBuffer) -> int:  # type: ignore[name-defined]
        """Write at most as much as a pipe accepts without blocking, as soon as there is room."""
        with self._lock:
            if not self.is_lent and self._number == protocol.STREAMS[1]:
                return len(content)
            if self.is_lent and not self._has_room():
                self._drop()
            return os.write(self._number, bytes(content[: select.PIPE_BUF]))

    def _has_room(self) -> bool:
        poll = select.poll()
        poll.register(self._number, select.POLLOUT)
        until = time.monotonic() + self._patience
        while not poll.poll(_ASK_SECONDS * 1000):
            if self._is_ending() or time.monotonic() >= until:
                return False
        return True

    def _drop(self) -> None:
        """Drop further output of the stream; the command continues."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._number)
        os.close(nowhere)


class _PatientInput(io.RawIOBase):
    """Reads from a stream until the server ends."""

    def __init__(self, number: int, is_ending: Callable[[], bool]) -> None:
        super().__init__()
        self._number = number
        self._is_ending = is_ending

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def readinto(self, buffer: io.WriteableBuffer) -> int:  # type: ignore[name-defined]
        """Wait for input and read what is available. Raises OSError if the server ends before the input is complete."""
        poll = select.poll()
        poll.register(self._number, select.POLLIN)
        while not poll.poll(_ASK_SECONDS * 1000):
            if self._is_ending():
                raise OSError(errno.ECANCELED, "the server ends before the input is complete")
        content = os.read(self._number, len(buffer))
        buffer[: len(content)] = content
        return len(content)
