"""The process that a server starts beside itself (`reader`): it runs commands as the server does, at its own socket.

Its arguments are the settings, its socket, the format of logs and the server's process id. It ends when its stdin does,
after the command under way; if the server is gone, at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from topicledger.config import logs
from topicledger.config.reading import load_settings
from topicledger.errors import ExitCode, TopicLedgerError
from topicledger.ledger.retries import SPARK_ERRORS
from topicledger.ledger.session import get_session, remove_warehouse
from topicledger.serving import reader
from topicledger.serving.command import carried_out
from topicledger.serving.server import Server

log = logging.getLogger(__name__)

_NO_SPARK: tuple[type[Exception], ...] = (TopicLedgerError, *SPARK_ERRORS)
_ASK_SECONDS = 0.2
"""Interval at which this process checks whether it should end."""
_IDLE_SECONDS = 600.0
"""Seconds without a command after which this process ends: it needs as much memory as the server."""


def main() -> int:
    """Run commands until the server ends, one was interrupted or has lost Spark, or none has come for long."""
    config, socket, log_format, parent = sys.argv[1:]
    lifeline, said = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    # Stdout belongs to the protocol with the server.
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    # A signal to the whole group of processes is for the server, which lets the command under way end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A shell may have started the server with Ctrl-C ignored; Spark's own handler follows.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ending = threading.Event()
    threading.Thread(target=_watch, args=(lifeline, int(parent), ending), name="lifeline", daemon=True).start()
    logs.set_up("json" if log_format == "json" else "text", verbose=False, run_id=None)
    try:
        spark = get_session("reader", remote=load_settings(Path(config)).spark.remote)
        server = Server(Path(socket), carried_out, is_ending=ending.is_set)
        with server.listening():
            os.write(said, reader.READY)
            until = time.monotonic() + _IDLE_SECONDS
            while not ending.is_set() and not server.interrupted and time.monotonic() < until:
                if server.do_next(_ASK_SECONDS):
                    until = time.monotonic() + _IDLE_SECONDS
                    # Any call notices that Java has ended: all later commands would fail.
                    spark.conf.get("spark.app.name", "")
            server.close()
    except KeyboardInterrupt:
        # A client's, right before or after its command: this process has no terminal.
        log.info("a command was interrupted")
    except _NO_SPARK as error:
        log.warning("%s", error)
        return ExitCode.ERROR
    return ExitCode.DONE


def _watch(lifeline: int, parent: int, ending: threading.Event) -> None:
    os.read(lifeline, 1)
    ending.set()
    while os.getppid() == parent:
        time.sleep(_ASK_SECONDS)
    os._exit(ExitCode.ERROR)


if __name__ == "__main__":
    # Python would wait for threads that still talk to Java, which ends with this process.
    code = main()
    remove_warehouse()
    sys.stderr.flush()
    os._exit(code)
