"""Progress: a bar where stderr is a terminal, nothing where it isn't."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
import threading

import pytest

from topicledger.apply.progress import Progress
from topicledger.kafka.sending import QuotaWait

SCRIPT = """
import time
from topicledger.apply.progress import Progress
from topicledger.kafka.sending import QuotaWait
progress = Progress()
with progress.phase("apply", 3) as bar:
    bar(1)
    progress.wait("orders", QuotaWait(seconds=1.0, rate=20.0, left=2, eta=65.0))
    time.sleep(0.5)
    progress.wait("orders", None)
    bar(2)
print("done")
"""


def test_on_a_terminal_a_bar_shows_the_phase_and_how_far_it_is() -> None:
    ours, theirs = pty.openpty()
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            read = os.read(ours, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not read:
            break
        shown += read
    os.close(ours)
    assert job.communicate()[0] == b"done\n"
    assert job.returncode == 0
    assert b"apply" in shown
    assert b"3/3" in shown
    assert b"orders waits for its quota: 20 partitions/s, 2 topics left, about 1 min 5 s" in shown


def test_without_a_terminal_nothing_is_drawn() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")


def quota_wait(left: int, rate: float | None = 20.0) -> QuotaWait:
    return QuotaWait(seconds=1.0, rate=rate, left=left, eta=None if rate is None else left / rate)


def test_without_a_terminal_a_wait_for_a_quota_is_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """C17"""
    now = 0.0
    progress = Progress(shown=False, every=30.0, clock=lambda: now)
    with caplog.at_level(logging.INFO):
        progress.wait("main", quota_wait(900, rate=None))
        for now in range(2, 65, 2):
            progress.wait("main", quota_wait(900 - now))
        progress.wait("other", quota_wait(7))
        progress.wait("main", None)
    assert [record.getMessage() for record in caplog.records] == [
        "cluster main waits for its quota: 900 topics left",
        "cluster main waits for its quota: 20 partitions/s, 898 topics left, about 45 s",
        "cluster main waits for its quota: 20 partitions/s, 868 topics left, about 43 s",
        "cluster main waits for its quota: 20 partitions/s, 838 topics left, about 42 s",
        "cluster other waits for its quota: 20 partitions/s, 7 topics left, about 0 s",
    ]


@pytest.mark.parametrize("shown", [True, False])
def test_clusters_side_by_side_may_tell_of_their_waits_at_once(shown: bool) -> None:
    progress = Progress(shown=shown)
    failed: list[BaseException] = []

    def cluster(name: str) -> None:
        try:
            for left in range(200, 0, -1):
                progress.wait(name, quota_wait(left))
                if left % 10 == 0:
                    progress.wait(name, None)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=cluster, args=(f"cluster-{number}",)) for number in range(8)]
    with progress.phase("apply", 8) as bar:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
            bar(1)
    assert failed == []
