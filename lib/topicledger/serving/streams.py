"""A client's streams and folder, lent to this process for one command; a client that stops reading can't block it."""

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
"""How often a blocked write asks whether the server ends."""


class ClientGone(Exception):
    """The client's folder does not exist any more, or can't be entered."""


@contextmanager
def lent(
    folder: str, streams: Sequence[int], is_ending: Callable[[], bool], patience: float = PATIENCE
) -> Iterator[None]:
    """A context in which this process has the client's stdin, stdout and stderr, and is in its folder.

    A stream that stays full for `patience` seconds, or while `is_ending`, leads nowhere from then on. Raises
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
            # An interrupt that came amid this would leave the server with the client's streams.
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
    """A text stream as Python sets up its own: stderr passes everything on at once, a terminal each line."""
    is_stderr = raw.fileno() == protocol.STREAMS[2]
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace" if is_stderr else "surrogateescape",
        line_buffering=is_stderr or raw.isatty(),
        write_through=is_stderr,
    )


class _Patient(io.RawIOBase):
    """Writes to a stream only as much as it takes at once."""

    def __init__(self, number: int, lock: threading.Lock, is_ending: Callable[[], bool], patience: float) -> None:
        super().__init__()
        self._number = number
        self._lock = lock
        """Shared by both streams, which may be one pipe: another write must not fill it after it was asked."""
        self._is_ending = is_ending
        self._patience = patience
        self.is_lent = True
        """False: the number is the server's own stream again. A log handler may still write to its stderr; output that
        an interrupted command left unwritten is dropped."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, content: io.ReadableBuffer) -> int:  # type: ignore[name-defined]
        """Write at most what a pipe takes without blocking, once there is room for it."""
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
        """Lead the stream nowhere; the command's work goes on."""
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
        """Read what there is, once there is any. Raises OSError if the server ends first: half an input is none."""
        poll = select.poll()
        poll.register(self._number, select.POLLIN)
        while not poll.poll(_ASK_SECONDS * 1000):
            if self._is_ending():
                raise OSError(errno.ECANCELED, "the server ends before all of it has come")
        content = os.read(self._number, len(buffer))
        buffer[: len(content)] = content
        return len(content)
