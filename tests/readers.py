"""A reader (`topicledger.serving.reader`) whose process runs small commands, without Spark."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until
from topicledger.serving import protocol
from topicledger.serving.reader import Reader

PROCESS = """
import os, sys, time
from topicledger.serving import reading
def command(arguments):
    print("reader:", *arguments[:2], "in", os.getcwd(), flush=True)
    if arguments[0] == "sql":
        print("x" * 300_000)
    if arguments[1] == "verify":
        time.sleep(60)
    if arguments[1] == "show":
        time.sleep(1)
        print("done")
    return 0
class Spark:
    remote = None
class Settings:
    spark = Spark()
class Session:
    conf = {}
def session(*_, **__):
    LINE
    return Session()
reading.carried_out, reading.get_session, reading.load_settings = command, session, lambda _: Settings()
code = reading.main(); sys.stderr.flush(); os._exit(code)
"""
"""The reader's process with small commands, and without Spark."""


@contextmanager
def beside(config: Path, line: str = "pass") -> Iterator[Reader]:
    """Context with a reader, which is ready unless it runs a `line` as it starts Spark."""
    code, socket = PROCESS.replace("LINE", line), protocol.reader_of(protocol.socket_of(config))
    others = _keepers()
    reader = Reader([sys.executable, "-c", code, str(config), str(socket), "text", str(os.getpid())])
    with reader.running():
        assert reader._process is None, "nothing needs it yet"
        assert not reader.runs(["sql"])
        if line == "pass":
            until(lambda: reader.runs(["sql"]), seconds=60)
        yield reader
    assert _keepers() <= others, "the server waits in vain for it"


def _keepers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "reader"}


def pid_of(reader: Reader) -> int:
    assert reader._process is not None
    return reader._process.pid
