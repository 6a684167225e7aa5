"""Output that fails after the work is done changes no exit code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import REPOSITORY
from topicledger.apply.display import display_only, displayed

READS = {
    "_answered",
    "_show_expanded",
    "audit_policies",
    "audit_upgrade",
    "clusters_check",
    "clusters_list",
    "runs_verify",
    "topics_show",
}
"""Functions of commands whose only work is their output."""


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


def test_results_of_commands_that_do_work_are_display_only() -> None:
    """So that such a command never ends as failed because its result can't be shown."""
    found = set[str]()
    for path in (REPOSITORY / "lib" / "topicledger" / "cli").glob("*.py"):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef) and path.name != "options.py":
                found |= {function.name for _ in _unguarded(function)}
    assert found == READS


def test_totals_of_moves_are_display_only_wherever_they_are_shown() -> None:
    """An odd text in a row of `plans` must not keep a run from ever being shown."""
    bare = [
        f"{path.name}: {line.strip()}"
        for path in (REPOSITORY / "lib" / "topicledger").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"(?<!def )\bplanned_moves\(", line) and "lambda: planned_moves(" not in line
    ]
    assert bare == []


def _unguarded(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `print_result` outside of `display_only`."""
    for each in ast.iter_child_nodes(node):
        called = [item.context_expr for item in each.items] if isinstance(each, ast.With) else []
        if not any("display_only" in ast.unparse(call) for call in called):
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "print_result":
                yield each
            yield from _unguarded(each)
