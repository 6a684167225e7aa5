"""What is printed of a plan that waits for approval."""

from __future__ import annotations

import io

from rich.console import Console

from topicledger.apply.planned import Pending
from topicledger.apply.rendering import render_waiting
from topicledger.apply.summary import Summary


def test_an_unapproved_apply_prints_one_line() -> None:
    out = io.StringIO()
    summary = Summary(
        run_id="R",
        state="planned",
        exit_code=5,
        manifest_version=1,
        clusters=(),
        decisions={"unchanged": 3},
        pending=Pending(count=2, waits_for="it needs the approval of 1 person other than ann, who asked for it"),
        failures=(),
        query="",
    )
    render_waiting(summary, Console(file=out, width=200))
    assert out.getvalue() == "not approved: it needs the approval of 1 person other than ann, who asked for it\n"
