"""A small process that owns other processes and a folder, and removes them when it ends.

`embedded_kafka` runs this file as a separate script. A broker must not outlive the Python process that started it,
however that process ends. The keeper notices the end of its standard input (the kernel closes it even after SIGKILL) or
a new parent, kills the processes that it started and removes the folder. On Linux, its children are also killed if the
keeper itself dies.

Messages are one JSON object per line. Requests: `{"start": name, "argv": [...], "log": path}`,
`{"signal": name, "number": n}`, `{"poll": name}`. Answers: `{"pid": n}`, `{"returncode": n or null}`,
`{"error": text}`. The first line of output is `{"folder": path}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LOOK_FOR_PARENT_SECONDS = 0.5


def bound_to_this_process() -> Callable[[], None] | None:
    """Return a function for a child to call between fork and exec, so that it is killed when the keeper dies.

    None if the kernel doesn't support it. Safe only here: the keeper has one thread, so no lock can be held across the
    fork, and the death signal, which depends on the thread that forked, depends on the process.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    keeper = os.getpid()

    def bind() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)

    return bind


def requests(parent: int) -> Iterator[dict[str, Any]]:
    """Yield each request until standard input ends or `parent` is no longer this process's parent."""
    pending = b""
    # The pipe alone is not enough: a process forked by the parent may have a copy of its other end.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_FOR_PARENT_SECONDS)
        if not readable:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from map(json.loads, lines)


def answer(request: dict[str, Any], processes: dict[str, subprocess.Popen[bytes]]) -> dict[str, Any]:
    """Carry out one request, and return the answer."""
    if "start" in request:
        with Path(request["log"]).open("ab") as log:
            process = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=bound_to_this_process(),
            )
        processes[request["start"]] = process
        return {"pid": process.pid}
    if "signal" in request:
        process = processes[request["signal"]]
        process.send_signal(request["number"])
        return {"returncode": process.poll()}
    return {"returncode": processes[request["poll"]].poll()}


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def main() -> None:
    """Serve until the parent ends. Arguments: its process id, and a folder to keep, by default a temporary one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    parent, *kept = sys.argv[1:]
    folder = Path(kept[0]) if kept else Path(tempfile.mkdtemp(prefix="topicledger-kafka-"))
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        _say({"folder": str(folder)})
        for request in requests(int(parent)):
            try:
                _say(answer(request, processes))
            except OSError as error:
                _say({"error": str(error)})
    except BrokenPipeError:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for process in processes.values():
            process.kill()
        for process in processes.values():
            process.wait()
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
        # Buffered standard output has no reader, so skip the interpreter's flush.
        os._exit(0)


if __name__ == "__main__":
    main()
