"""Helpers of an embedded cluster for this machine: find java and free ports, probe brokers, read logs."""

from __future__ import annotations

import base64
import os
import random
import shutil
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from topicledger_testing.options import HOST, EmbeddedKafkaError

_POLL_SECONDS = 0.05
# Below Linux's ephemeral range, so that no outgoing connection can take a stopped broker's port before its restart.
_PORTS = range(20000, 32000)


def random_kafka_uuid() -> str:
    """Return a random id in Kafka's form; like Kafka, none that looks like a command line option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise EmbeddedKafkaError(f"There is no java {where}: install Java 17 or newer, e.g. openjdk-17-jre-headless.")
    return java


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Yield `count` ports that nothing else can bind while the context is open."""
    held: list[socket.socket] = []
    try:
        for port in random.sample(_PORTS, len(_PORTS)):
            candidate = socket.socket()
            held.append(candidate)
            try:
                candidate.bind((HOST, port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                break
        else:
            raise EmbeddedKafkaError(f"Fewer than {count} ports from {_PORTS.start} to {_PORTS.stop - 1} are free.")
        yield [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def answers(port: int) -> bool:
    """Whether a broker answers ApiVersions (version 0, which every broker supports, even before authentication)."""
    api_key, version, correlation_id, client = 18, 0, 1, b"probe"
    request = struct.pack(">hhih", api_key, version, correlation_id, len(client)) + client
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(10)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (correlation_id, 0)


def awaited(condition: Callable[[], bool], deadline: float) -> bool:
    """Wait until `condition` holds; return False if it doesn't by `deadline` on the monotonic clock."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def tail(log: Path, lines: int = 25) -> str:
    """Return the end of a broker's log, to append to an error message."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = ""
    last = text.splitlines()[-lines:]
    return "\n".join([" Its log ends:", *(f"    {line}" for line in last)]) if last else " Its log is empty."
