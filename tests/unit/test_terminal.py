"""Tables on a terminal of 80 and 120 columns: they fit, say the same once, and names from outside can't act."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import Row
from rich.console import Console

from tests.unit.announcements import DONE, REFUSED, drifted
from topicledger.apply.rendering import render
from topicledger.apply.summary import ClusterCounts, Summary, Warned
from topicledger.cli.show import runs_grid
from topicledger.drift import summary as drift_summary
from topicledger.drift.summary import ClusterDrift
from topicledger.files.exported import ClusterExport, Exported, TopicMessage
from topicledger.files.exported import render as render_export
from topicledger.text import alike, cell, console

LONG = "payments." * 27 + "events"
HOSTILE = "\x1b[31m[bold]red[/bold] [/] :smile: \u202e"
WIDTHS = pytest.mark.parametrize("width", [80, 120])


def terminal(width: int) -> Console:
    return Console(width=width, file=io.StringIO(), force_terminal=True, no_color=True, color_system=None)


def printed(console: Console) -> str:
    """Return the output; no line is wider than the terminal, except those that a terminal wraps itself."""
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    tables = [line for line in text.splitlines() if line and line[0] in "┏┃┡│└"]
    assert all(len(line) <= console.width for line in tables)
    return text


def failing(count: int) -> Summary:
    names = [f"new.{number:03}" for number in range(count)]
    failed = replace(REFUSED.failures[0], phase="validate", error="INVALID_REPLICATION_FACTOR")
    failures = [replace(failed, topic=each, resource=each, error_message=f"{each} can't have 3") for each in names]
    odd = [replace(failed, topic=each, resource=each, error="UNJUDGEABLE") for each in (LONG, HOSTILE)]
    counts = ClusterCounts(cluster=HOSTILE, outcomes={"refused": count + 2}, skipped={"x" * 300: 2})
    return replace(REFUSED, clusters=[counts], failures=[*failures, *odd])


@WIDTHS
def test_failures_for_the_same_reason_are_one_row(width: int) -> None:
    screen = terminal(width)
    named = {"topic": "new.000", "resource": "new.000"}
    warning = Warned(cluster="main", **named, action="create", policy="num_partitions", message="new.000 has 4")
    warnings = [
        replace(warning, topic=each, resource=each, message=f"{each} has 4") for each in ("new.000", "new.001", LONG)
    ]
    render(replace(failing(18), warnings=warnings, warning_count=3), screen)
    text = printed(screen)
    assert "".join(text.split()).count("can't") + text.count("legal") >= 2
    assert text.count("new.000") <= 4
    assert "new.004" not in text
    assert "15 more" in " ".join(text.replace("│", " ").split())
    assert text.count("num_partitions") == 1, "warnings whose messages differ only in the topic"


def test_each_warning_has_its_own_message_though_others_read_alike() -> None:
    screen = terminal(200)
    found = [("c1", "orders.v1", "naming"), ("c2", "billing.v9", "naming"), ("c2", "zeta.x", "other")]
    warnings = [
        Warned(cluster=cluster, topic=name, resource=name, action="create", policy=policy, message=f"{name} lacks it")
        for cluster, name, policy in found
    ]
    render(replace(REFUSED, warnings=warnings, warning_count=3), screen)
    text = printed(screen)
    assert [text.count(f"{name} lacks it") for _, name, _ in found] == [1, 1, 1]


@pytest.mark.parametrize(
    ("problem", "line"),
    [("; start run R again", "not finished: start run R again\n"), ("", None), (None, "not finished: another\n")],
)
def test_a_reason_in_the_table_of_failures_is_not_repeated(problem: str | None, line: str | None) -> None:
    screen, why = terminal(120), "cluster dark can't be reached"
    failed = [replace(each, error_message=why) for each in REFUSED.failures]
    render(replace(REFUSED, failures=failed, problems=["another" if problem is None else why + problem]), screen)
    text = printed(screen)
    assert text.count(why) == 1
    assert "".join(text.partition("not finished")[1:]) == (line or "")


def test_only_whole_names_make_messages_alike() -> None:
    assert alike("orders.a can't have 3, orders.a.b can", "orders.a") == "# can't have 3, orders.a.b can"
    assert alike("cluster dark can't be reached", "a") == "cluster dark can't be reached"
    assert alike("it is declared by team-a, not by a.", "a") == "it is declared by team-a, not by #."


@WIDTHS
def test_findings_alike_are_one_row_with_the_first_topics(width: int) -> None:
    screen = terminal(width)
    found = drifted(error=1)
    one = found.drift[0]
    topics = [*(f"orders.{number}" for number in range(6)), LONG, HOSTILE]
    kinds = [ClusterDrift(cluster="main", kinds={"config_differs": 8})]
    drift_summary.render(replace(found, clusters=kinds, drift=[replace(one, topic=each) for each in topics]), screen)
    text = printed(screen)
    assert text.count("2026-11-23T02:00:00Z") == 1
    assert "more" in text
    assert "orders.4" not in text


@pytest.mark.parametrize("drift", [0, 1])
def test_an_audit_beside_a_dead_cluster_says_what_it_compared(drift: int) -> None:
    screen, why = terminal(200), "cluster dark can't be reached"
    compared = [ClusterDrift(cluster=each, kinds={"unmanaged": drift} if drift else {}) for each in ("eu", "main")]
    found = replace(drifted(error=drift), clusters=compared, state="planning", exit_code=1, problems=[why])
    drift_summary.render(found, screen)
    text = printed(screen)
    assert f"audit {found.run_id}: not finished, " in text
    assert ("no drift on eu, main\n" in text) == (drift == 0)
    assert text.endswith(f"not compared: {why}\ncompared: eu, main; to audit only these: --cluster NAME for each\n")


def test_findings_without_rows_are_never_told_as_no_drift() -> None:
    screen, found = terminal(200), replace(drifted(error=1), clusters=[], severities={"error": 0}, drift=[])
    drift_summary.render(found, screen)
    assert printed(screen).splitlines()[1:] == [
        "found then: config_differs 1; rows of 1 were removed by age (maintain)",
    ]
    assert json.loads(found.to_json())["removed"] == 1


def test_drift_shows_values_with_their_units() -> None:
    screen, found = terminal(200), drifted(error=1)
    one = replace(found.drift[0], what="retention.ms", declared="604800000", live="3600000")
    kinds = [ClusterDrift(cluster="main", kinds={"config_differs": 1})]
    drift_summary.render(replace(found, clusters=kinds, drift=[one]), screen)
    assert "retention.ms: declared 7d (604800000), live 1h (3600000)" in printed(screen)


@WIDTHS
def test_runs_fit_a_terminal_with_whole_ids_and_times(width: int) -> None:
    began = datetime(2026, 11, 24, 2, 0, 7, tzinfo=UTC)
    row = Row(
        run_id="20261124T020007123456Z-0a1b2c3d",
        command="provision",
        state="finished",
        started_at=began,
        finished_at=began + timedelta(hours=3),
        exit_code=4,
        manifest_version=118,
        requested_by=HOSTILE,
        counts={"ok": 12, "refused": 3},
    )
    screen = terminal(width)
    screen.print(runs_grid([row], narrow=True))
    text = printed(screen)
    assert row["run_id"] in text
    assert "2026-11-24T02:00:07Z" in text


@WIDTHS
def test_notes_of_an_export_are_said_once(width: int) -> None:
    notes = [TopicMessage(cluster="main", topic=f"t.{n}", message="owner a is proposed") for n in range(138)]
    notes += [TopicMessage(cluster=HOSTILE, topic=LONG, message=HOSTILE)]
    done = [ClusterExport(cluster=HOSTILE, topics=139, file=f"/tmp/{LONG}.yaml")]
    screen = terminal(width)
    render_export(Exported(clusters=done, not_exported=[], notes=notes), screen)
    assert printed(screen).count("owner a is proposed") == 1


def test_a_code_of_an_emoji_in_a_name_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console(80).print(cell("owner:smile:"))
    assert capsys.readouterr().out == "owner:smile:\n"


def test_a_prune_says_how_many_topics_are_declared() -> None:
    counts = {"unchanged": 1, "drifted": 0, "unmanaged": 4, "declared": 2}
    screen = terminal(120)
    render(replace(DONE, clusters=[], decisions=counts), screen)
    text = printed(screen)
    assert "nothing to delete: no topic without a manifest matches\n" in text
    assert "prune keeps 2 matching topics because manifests declare them\n" in text
    assert "run topicledger drift" not in text
    assert "left alone: 1 unchanged, 0 drifted, 4 unmanaged\n" in text
