"""Output that fails after the work is done changes no exit code."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from topicledger.apply.display import display_only, displayed


def test_a_failed_display_is_one_warning_line(caplog: pytest.LogCaptureFixture) -> None:
    with display_only("the result of run r1", instead="`runs show r1` shows it"):
        raise ValueError("invalid literal\nfor int")
    assert caplog.messages == [
        "the result of run r1 can't be shown: ValueError: invalid literal; the work is done: `runs show r1` shows it"
    ]


def test_a_part_that_fails_is_left_out_and_others_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert displayed(lambda: [1 // 0], [], "the first", instead="look elsewhere") == []
    assert displayed(lambda: [1], [], "the second", instead="look elsewhere") == [1]
    assert len(caplog.messages) == 1


def test_an_interrupt_is_no_failed_display() -> None:
    with pytest.raises(KeyboardInterrupt), display_only("the result", instead="look elsewhere"):
        raise KeyboardInterrupt


def test_a_full_disk_under_stdout_leaves_the_exit_code() -> None:
    """Also when Python flushes stdout at its end."""
    script = """
        import sys
        from topicledger.apply.display import display_only
        with display_only("the result", instead="look elsewhere"):
            print("x" * 10)
            sys.stdout.flush()
        sys.exit(3)
    """
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr.splitlines()) == (
        3,
        ["the result can't be shown: OSError: [Errno 28] No space left on device; the work is done: look elsewhere"],
    )
