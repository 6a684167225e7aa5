"""A client's streams and folder, lent to this process for one command; a client that stops reading can't block."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from topicledger.serving import protocol

PATIENCE = 60.0
"""Seconds that a client may leave output unread before the rest of it is dropped."""
MOST_KEPT = 16 * 1024 * 1024
"""Most bytes of unread output for which a command doesn't wait."""
_MOST_AT_ONCE = 65_536
"""Most bytes of one write."""
_ASK_SECONDS = 0.2
"""Interval at which a blocked write checks whether the server is ending."""
_ALIASES = 5
"""Linux's major number of /dev/tty and /dev/ptmx, by which each process opens a terminal of its own."""


class ClientGone(Exception):
    """The client's folder no longer exists, or can't be entered."""


class Output:
    """Output for one of a client's files: what the client doesn't read at once is kept, and delivered by a thread.

    Even if poll(2) promises room, a write can block: on a terminal if the room is smaller than the write, on a pipe if
    another process fills it first. So terminals and pipes are opened again where that is possible, not to block.
    """

    def __init__(self, file: int, is_ending: Callable[[], bool], patience: float) -> None:
        self._own = _opened_again(file)
        self._file = file if self._own is None else self._own
        self._most = select.PIPE_BUF if self._own is not None or not os.isatty(file) else 1
        """Most bytes of one write; where a terminal would block, one, which fits if there is any room."""
        self._is_ending = is_ending
        self._patience = patience
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._failure: OSError | None = None
        self._dropped = False
        self._is_delivering = False

    def write(self, content: bytes) -> int:
        """Write the part of the content that is accepted without blocking, or keep all of it.

        Raises the OSError of an earlier part that was kept, for example if the client has closed the file.
        """
        with self._changed:
            if self._failure is None and not self._dropped and not self._kept and _has_room(self._file, 0.0):
                with suppress(BlockingIOError):
                    return os.write(self._file, content[: self._most])
            self._changed.wait_for(lambda: self._size < MOST_KEPT)
            if self._failure is not None:
                raise self._failure
            if not self._dropped:
                self._keep(content)
            return len(content)

    def drop(self) -> None:
        """Drop the output that is left; the command continues."""
        with self._changed:
            self._dropped = True
            self._kept.clear()
            self._size = 0
            self._changed.notify_all()

    def is_delivered(self) -> bool:
        """Whether no output is left."""
        with self._changed:
            return not self._kept

    def finish(self) -> None:
        """Wait until no output is left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._kept)

    def close(self) -> None:
        """Drop the output that is left, and close the file if it was opened here."""
        self.drop()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _keep(self, content: bytes) -> None:
        self._kept.extend(content[at : at + select.PIPE_BUF] for at in range(0, len(content), select.PIPE_BUF))
        self._size += len(content)
        if not self._is_delivering:
            self._is_delivering = True
            threading.Thread(target=self._deliver, name="output", daemon=True).start()

    def _deliver(self) -> None:
        until = time.monotonic() + self._patience
        while True:
            has_room, accepted = _has_room(self._file, _ASK_SECONDS), False
            # Locked, so that no other output overtakes a part.
            with self._changed:
                if has_room and self._kept:
                    accepted = self._deliver_part(self._kept.popleft())
                self._changed.notify_all()
                if not self._kept:
                    self._is_delivering = False
                    return
            if accepted:
                until = time.monotonic() + self._patience
            elif self._is_ending() or time.monotonic() >= until:
                break
            elif has_room:
                # Less than a terminal needs for a line's end, or another process took it.
                time.sleep(_ASK_SECONDS)
        self.drop()

    def _deliver_part(self, part: bytes) -> bool:
        """Write some of a part, and keep the rest; return whether the client's file accepted anything."""
        written = 0
        try:
            written = os.write(self._file, part[: self._most])
        except BlockingIOError:
            pass
        except OSError as error:
            self._failure = error
            self._kept.clear()
            self._size = 0
            return False
        self._size -= written
        if written < len(part):
            self._kept.appendleft(part[written:])
        return written > 0


def _opened_again(file: int) -> int | None:
    """Open a client's terminal or pipe again, so that writes to it don't block; None if that isn't possible.

    Not to block is a property of an open file, which a duplicate would share with the client and its shell.
    """
    status = os.fstat(file)
    # Other files don't block, and would be written from another place. Some terminals differ for each who opens them.
    if not (stat.S_ISFIFO(status.st_mode) or (os.isatty(file) and os.major(status.st_rdev) != _ALIASES)):
        return None
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        # Another user's, or there is no /proc.
        return None


def _has_room(file: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def outputs(files: Sequence[int], is_ending: Callable[[], bool], patience: float) -> Sequence[Output]:
    """Return the output of each of a client's files: one for two files that are the same, which keeps the order."""
    same = [(status.st_dev, status.st_ino) for status in map(os.fstat, files)]
    found = {key: Output(file, is_ending, patience) for key, file in dict(zip(same, files, strict=True)).items()}
    return [found[key] for key in same]


@contextmanager
def lent(folder: str, files: Sequence[int], outputs: Sequence[Output], is_ending: Callable[[], bool]) -> Iterator[None]:
    """Give this process the client's stdin, stdout, stderr and folder within a context.

    `outputs`: those of stdout and stderr. Raises ClientGone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    patients: Sequence[_Patient] = ()
    before, here = (sys.stdin, sys.stdout, sys.stderr), os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    own = [os.dup(number) for number in protocol.STREAMS]
    try:
        try:
            os.chdir(folder)
        except OSError as error:
            raise ClientGone(f"{folder}: {error.strerror}") from None
        for number, file in zip(protocol.STREAMS, files, strict=True):
            os.dup2(file, number)
        patients = [_Patient(number, output) for number, output in zip(protocol.STREAMS[1:], outputs, strict=True)]
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
            with _interrupts_later():
                for each in patients:
                    each.is_lent = False
                sys.stdin, sys.stdout, sys.stderr = before
                for number, saved in zip(protocol.STREAMS, own, strict=True):
                    os.dup2(saved, number)
                    os.close(saved)
                os.fchdir(here)
                os.close(here)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Context after which an interrupt that arrived in it takes effect.

    A mask of signals doesn't do: the kernel delivers the signal to another thread, for which Python runs the handler
    in this one.
    """
    arrived: list[int] = []
    pending: KeyboardInterrupt | None = None
    while True:
        try:
            # It raises a pending interrupt before it sets anything.
            handler = signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
            break
        except KeyboardInterrupt as error:
            pending = error
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived:
        signal.raise_signal(arrived[0])
    if pending is not None:
        raise pending


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
    """Writes a stream's output to the client while the stream is lent."""

    def __init__(self, number: int, output: Output) -> None:
        super().__init__()
        self._number = number
        self._output = output
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
        """Write some of the content, without waiting for the client."""
        if self.is_lent:
            return self._output.write(bytes(content[:_MOST_AT_ONCE]))
        return len(content) if self._number == protocol.STREAMS[1] else os.write(self._number, bytes(content))


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
