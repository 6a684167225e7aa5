"""The console script: passes the command to a running server with these settings, or else runs it itself.

It imports PySpark and other slow modules only after it knows that no server answers.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from topicledger.serving import protocol

COLD = "--cold"
"""The first argument of a command that must run in this process even if there is a server."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_NOT_ASKED = {"serve", "help", "-h", "--help", "--version"}
_PATIENCE = 15.0
"""Seconds that a server has to accept a command or to refuse it: one that is stopped does neither."""
_SPARKS = ("pyspark", "py4j")
"""Packages that a cluster brings, and topicledger doesn't install."""
_COMPLETION = "_TOPICLEDGER_COMPLETE"
"""The variable with which a shell asks for completions."""


class _ForReader(Exception):
    """The server's reader runs the command."""


def main() -> None:
    """Run the command in this process's arguments."""
    arguments = sys.argv[1:]
    if arguments[:1] == [COLD]:
        arguments = arguments[1:]
    else:
        try:
            code = ask(arguments)
        except KeyboardInterrupt:
            print("error: interrupted before a server had taken the command: nothing was done", file=sys.stderr)
            sys.exit(1)
        if code is not None:
            sys.exit(code)
    try:
        from topicledger.serving.command import main as do
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _SPARKS:
            raise
        print(
            f"error: {sys.executable} has no Spark (no module {error.name}): install 'topicledger[spark]', or pyspark "
            "in the version of your Spark, or put SPARK_HOME's python and its py4j on PYTHONPATH",
            file=sys.stderr,
        )
        sys.exit(1)
    do(arguments, prog_name="topicledger")


def ask(arguments: Sequence[str]) -> int | None:
    """Pass a command to the server and return its exit code; None if no server did anything."""
    config = _config(arguments)
    if config is None or _NOT_ASKED & set(arguments) or _COMPLETION in os.environ:
        return None
    try:
        path = protocol.socket_of(config)
        request = {
            "arguments": list(arguments),
            "folder": str(Path.cwd()),
            "config": str(config),
            "code": protocol.CODE,
        }
    except OSError:
        return None
    if not protocol.is_ours_alone(path.parent):
        return None
    try:
        return _asked(path, request)
    except _ForReader:
        return _asked(protocol.reader_of(path), request)


def _asked(path: Path, request: Mapping[str, object]) -> int | None:
    """Return the command's exit code, or None if nothing was done. Raises _ForReader."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(str(path))
            if protocol.peer_uid(connection) != os.getuid():
                return None
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            # Signals stay blocked until `_wait` can pass them on, since the server may begin before that.
            signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
            protocol.send(connection, request, protocol.STREAMS)
        except OSError:
            # A server left this socket behind, or is ending.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            return None
        return _wait(connection)


def _wait(connection: socket.socket) -> int | None:
    signals: list[int] = []

    def interrupt(number: int, _: object) -> None:
        signals.append(number)
        # The server may have ended the command, and said so.
        with suppress(OSError):
            protocol.send(connection, {"interrupt": True})

    before = signal.signal(signal.SIGINT, interrupt), signal.signal(signal.SIGTERM, interrupt)
    accepted = False
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        for message in protocol.lines(connection):
            if message.get("accepted") is False:
                # A server that ends takes it back.
                accepted = False
                if (theirs := message.get("code")) is not None:
                    print(
                        f"the server with these settings runs topicledger {theirs}, this is {protocol.CODE}: the "
                        "command starts its own Spark; restart `serve` with this topicledger",
                        file=sys.stderr,
                    )
                if message.get("reader") is True:
                    raise _ForReader
                return None
            accepted = True
            connection.settimeout(None)
            if "exit_code" in message:
                return int(message["exit_code"])
    except (OSError, protocol.ProtocolError):
        pass
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
        if signals and not accepted:
            # Nobody runs the command, so the signal isn't passed on: this process must not start it.
            signal.raise_signal(signals[0])
    if not accepted:
        return None
    print("error: the server ended during the command; run the command again with its run id", file=sys.stderr)
    return 1


def _config(arguments: Sequence[str]) -> Path | None:
    """Return the value of --config as click does: the last one counts, else TOPICLEDGER_CONFIG."""
    found = os.environ.get(protocol.CONFIG) or None
    for number, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--config" and number + 1 < len(arguments):
            found = arguments[number + 1]
        elif argument.startswith("--config="):
            found = argument.removeprefix("--config=")
    return None if found is None else Path(found)


if __name__ == "__main__":
    main()
