"""The protocol between the console script and a server: lines of JSON over a Unix socket. Standard library only.

The client sends its request as one line, together with its stdin, stdout and stderr:

    {"arguments": ["plan"], "folder": "/home/me", "config": "my.toml", "code": "0.1.0 in /opt/topicledger"}

`config` is what --config or TOPICLEDGER_CONFIG names, `code` is `CODE`.

The server answers `{"accepted": true}`, or false with `why`; if its code differs from the client's, also with its
`code`. When the command has ended it sends `{"exit_code": 0}`. In between, the client may send `{"interrupt": true}`
for each Ctrl-C.

With `{"accepted": false, "reader": true}`, the client sends the same request to the server's reader (`reader_of`).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topicledger import __version__

_MOST_BYTES = 1_000_000
"""Largest size of a line; each argument has at most about 128 kB."""
CONFIG = "TOPICLEDGER_CONFIG"
"""The environment variable that stands in for --config."""
CODE = f"{__version__} in {Path(__file__).resolve().parents[1]}"
"""The version and the folder of this code: a wheel and a checkout of one version may still differ."""
STREAMS = (0, 1, 2)
"""Stdin, stdout and stderr."""


class ProtocolError(Exception):
    """The data received is not a line of this protocol."""


def socket_folder() -> Path:
    """Return the folder of sockets.

    TOPICLEDGER_SOCKET_DIR, else one in the user's runtime folder, else one in the temporary folder.
    """
    named = os.environ.get("TOPICLEDGER_SOCKET_DIR")
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "topicledger"
    return Path(tempfile.gettempdir()) / f"topicledger-{os.getuid()}"


def socket_of(config: Path) -> Path:
    """Return the socket path of a server for these settings; it depends on the file's content.

    Raises OSError if the settings can't be read.
    """
    path = config.resolve()
    named = b"\0".join((os.fsencode(path), path.read_bytes()))
    return socket_folder() / f"{hashlib.sha256(named).hexdigest()[:32]}.sock"


def reader_of(path: Path) -> Path:
    """Return the socket path of the reader of the server at `path`; it is as long, since a socket's path is limited."""
    return path.with_stem(f"{path.stem[:-1]}r")


def is_ours_alone(folder: Path) -> bool:
    """Whether a folder belongs to this user and nobody else may enter it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def peer_uid(connection: socket.socket) -> int:
    """Return the user id at the other end, as the kernel reports it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def send(connection: socket.socket, message: Mapping[str, Any], streams: Sequence[int] = ()) -> None:
    """Send a line, together with open files."""
    line = json.dumps(message).encode() + b"\n"
    if streams:
        sent = socket.send_fds(connection, [line], list(streams))
        line = line[sent:]
    if line:
        # Sending an empty rest would fail if the other end has already answered and closed.
        connection.sendall(line)


def receive(connection: socket.socket) -> tuple[Mapping[str, Any], list[int]]:
    """Return the first line, and the open files received with it. Raises ProtocolError."""
    streams: list[int] = []
    content = b""
    try:
        while not content.endswith(b"\n"):
            part, files, _, _ = socket.recv_fds(connection, 65_536, len(STREAMS))
            streams += files
            for file in files:
                # A server that restarts itself would keep the client's pipe open.
                os.set_inheritable(file, False)
            content += part
            if not part or len(content) > _MOST_BYTES:
                raise ProtocolError("the request is not a line" if content else "there was no request")
        return _message(content), streams
    except BaseException:
        close(streams)
        raise


def lines(connection: socket.socket) -> Iterator[Mapping[str, Any]]:
    """Yield lines as they arrive, until the other end closes. Raises ProtocolError."""
    with connection.makefile("rb") as file:
        while line := file.readline(_MOST_BYTES):
            yield _message(line)


def close(streams: Sequence[int]) -> None:
    """Close open files."""
    for stream in streams:
        os.close(stream)


def _message(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProtocolError("not a JSON object")
    return found
