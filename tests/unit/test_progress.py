"""Progress: a bar where stderr is a terminal, nothing where it isn't."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

SCRIPT = """
from topicledger.progress import Progress
with Progress().phase("apply", 3) as bar:
    bar(1)
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


def test_without_a_terminal_nothing_is_drawn() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")
