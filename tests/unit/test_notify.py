"""Announcements: which there are, what they look like, and that no address stops or delays a run."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.receiver import receiver
from tests.unit.announcements import DONE, REFUSED, drifted
from topicledger import notify, pipeline
from topicledger.apply.dispatch import Stop, Stopped
from topicledger.apply.planned import Pending
from topicledger.apply.summary import ClusterCounts, Summary
from topicledger.cli import provisioning
from topicledger.cli.options import Options
from topicledger.config.notify import Event, NotifySettings
from topicledger.config.reading import read_settings
from topicledger.config.severities import Severity
from topicledger.errors import ExitCode, GuardStopped, TableError, TopicLedgerError, UsageError
from topicledger.ledger import runs
from topicledger.ledger.leases import LeaseHeld, LeaseLost
from topicledger.ledger.run import Run
from topicledger.model import RunState
from topicledger.notify import Announced, announce
from topicledger.notify.announcement import Announcement, of_audit, of_error, of_run
from topicledger.notify.sending import post_all
from topicledger.plan.allowing import StoppedActions
from topicledger.plan.lines import PlannedAction

AT = datetime(2026, 11, 24, 2, 0, 7, tzinfo=UTC)


ACTION = PlannedAction(owner=None, cluster="main", topic="a", resource="a", action="create", what="1 partition")


def planned(count: int) -> Summary:
    return replace(DONE, state="planned", pending=Pending(count=count, first=[ACTION]))


@pytest.mark.parametrize(
    ("summary", "event", "says"),
    [
        (REFUSED, Event.FAILED, "1 topic, ACL, quota or group config failed or refused"),
        (replace(REFUSED, exit_code=5, pending=Pending(guarded=1)), Event.GUARD_STOPPED, "a guard stopped something"),
        (replace(DONE, exit_code=1, problems=["cluster main can't be reached"]), Event.FAILED, "not finished"),
        (planned(1), Event.APPROVAL_WANTED, "1 change waits to be applied"),
        (planned(3), Event.APPROVAL_WANTED, "3 changes wait to be applied"),
    ],
)
def test_a_run_announces_what_somebody_has_to_do_something_about(summary: Summary, event: Event, says: str) -> None:
    (found,) = of_run(summary, "alice", AT)
    assert (found.event, found.requested_by) == (event, "alice")
    assert says in found.headline


def test_a_run_in_which_all_went_well_announces_nothing() -> None:
    assert of_run(DONE, "alice", AT) == []
    assert of_run(planned(0), "alice", AT) == []
    assert of_audit(drifted(), "alice", AT) == []


WAITS = Pending(count=50, first=[ACTION])
TWO_REFUSED = [ClusterCounts(cluster="main", outcomes={"refused": 2})]
STOPPED_LOAD = StoppedActions(cluster="", needs={"removed_rows": 3}, actions=3)


@pytest.mark.parametrize(
    ("summary", "events"),
    [
        (replace(REFUSED, state="planned", pending=WAITS), ["failed", "approval_wanted"]),
        (replace(REFUSED, state="planned", exit_code=5, pending=replace(WAITS, waits_for="bob")),
         ["failed", "approval_wanted"]),
        (replace(REFUSED, state="planned", exit_code=5, pending=replace(WAITS, guarded=1)),
         ["guard_stopped", "approval_wanted"]),
        (replace(REFUSED, exit_code=5, clusters=TWO_REFUSED, pending=Pending(guarded=1)), ["failed", "guard_stopped"]),
        (replace(REFUSED, exit_code=1, pending=Pending(guarded=1)), ["failed", "guard_stopped"]),
        (replace(DONE, state="planned", exit_code=5, pending=Pending(stopped=[STOPPED_LOAD])), ["guard_stopped"]),
        (replace(DONE, state="planned", exit_code=1, pending=WAITS), ["failed", "approval_wanted"]),
    ],
    ids=["refused", "unapproved", "guarded", "both", "unfinished", "load", "not sent"],
)  # fmt: skip
def test_a_run_announces_everything_that_happened(summary: Summary, events: Sequence[str]) -> None:
    """Its exit code is that of the worst: a plan with one refused topic still waits for its approval."""
    assert [each.event for each in of_run(summary, "alice", AT)] == events


def test_a_server_announces_a_state_once_until_it_changes() -> None:
    announced, to = Announced(), [NotifySettings(url="env:HOOK"), NotifySettings(url="env:HOOK", events=(Event.DRIFT,))]

    def posts(summary: Summary, *, arrives: bool = True) -> list[int]:
        due = announced.due(to, of_run(summary, None, AT))
        announced.arrived(due, [number for number, _, _ in due] if arrives else [])
        return [number for number, _, _ in due]

    other = replace(REFUSED, failures=[replace(REFUSED.failures[0], resource="another")])
    more = replace(REFUSED, clusters=[ClusterCounts(cluster="main", outcomes={"refused": 2})])
    assert posts(REFUSED, arrives=False) == [1]
    assert posts(REFUSED) == [1]
    again = replace(REFUSED.failures[0], error_message="refused at 2026-11-24T02:01:07Z")
    assert posts(replace(REFUSED, run_id="the next", failures=[again])) == []
    assert posts(other) == [1]
    assert posts(more) == [1]
    assert posts(DONE) == []
    assert posts(more) == [1]


def test_a_server_knows_the_state_of_each_event_of_a_run() -> None:
    announced, to = Announced(), [NotifySettings(url="env:HOOK")]

    def posts(summary: Summary) -> list[str]:
        due = announced.due(to, of_run(summary, None, AT))
        announced.arrived(due, [1])
        return [each.event for _, _, each in due]

    both = replace(REFUSED, state="planned", pending=WAITS)
    assert posts(both) == ["failed", "approval_wanted"]
    assert posts(both) == []
    assert posts(replace(both, pending=replace(WAITS, count=51))) == ["approval_wanted"]
    assert posts(replace(both, clusters=TWO_REFUSED)) == ["failed", "approval_wanted"]
    assert posts(replace(both, failures=[])) == ["failed"]
    assert posts(planned(50)) == []
    assert posts(both) == ["failed"]


def test_a_state_belongs_to_its_address_wherever_the_settings_have_it() -> None:
    announced, first, other = Announced(), NotifySettings(url="env:A"), NotifySettings(url="env:B")
    found = of_run(REFUSED, None, AT)
    due = announced.due([first], found)
    announced.arrived(due, [1])
    assert [to.url for _, to, _ in announced.due([other, first], found)] == ["env:B"]


def test_a_server_that_starts_itself_again_knows_what_it_announced() -> None:
    """The states pass through the environment, and only once."""
    announced, to = Announced(), NotifySettings(url="env:A")
    announced.arrived(announced.due([to], of_run(REFUSED, None, AT)), [1])
    announced.hand_over()
    again = Announced.taken_over()
    assert again.due([to], of_run(REFUSED, None, AT)) == []
    assert Announced.taken_over().states == {}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("refused (node_id=bootstrap-0 gone)", "refused (node_id=bootstrap-1 gone)", True),
        ("no answer after 5m30s", "no answer after 6m2s", True),
        ("no answer after 30.25 s, 1,234 left", "no answer after 31 s, 999 left", True),
        ("no answer after 500ms", "no answer after 499ms", True),
        ("<Connection at 0x7f12>", "<Connection at 0x7fab>", True),
        ("broker b-1.kafka:9092 gone", "broker b-2.kafka:9092 gone", False),
        ("cluster eu1", "cluster eu2", False),
        ("topic 2a", "topic 3a", False),
    ],
)
def test_a_problem_is_the_same_if_only_passing_values_differ(one: str, other: str, same: bool) -> None:
    states = {of_run(replace(DONE, exit_code=1, problems=[each]), None, AT)[0].state for each in (one, other)}
    assert (len(states) == 1) == same


def test_a_problem_is_the_same_at_another_time_and_for_another_run() -> None:
    def state(problem: str) -> str:
        (found,) = of_run(replace(DONE, exit_code=1, problems=[problem]), None, AT)
        return found.state

    held = "cluster main-1: run {} has it since 2026-11-24T02:{}:07Z; no answer after {} s"
    first = held.format("20261124T020007123456Z-0a1b2c3d", "00", "30.2")
    assert state(first) == state(held.format("20261124T020107123456Z-9f8e7d6c", "01", "31"))
    assert state(first) != state(first.replace("main-1", "main-2"))


def test_drift_is_announced_from_its_severity_on() -> None:
    (found,) = of_audit(drifted(warning=2, info=1), None, AT)
    assert found.headline == "topicledger audit audit-1: 2 warnings of drift, 1 info of drift"
    to = NotifySettings(url="env:HOOK")
    assert not found.concerns(to)
    assert found.concerns(replace(to, severity=Severity.WARNING))
    assert found.concerns(replace(to, severity=Severity.INFO))
    assert not found.concerns(replace(to, severity=Severity.INFO, events=(Event.FAILED,)))


def test_drift_without_a_topic_is_announced_by_what_it_is_about() -> None:
    summary = drifted(error=1)
    (row,) = summary.drift
    quota = replace(row, topic=None, kind="quota_differs", what="user=ann producer_byte_rate")
    (found,) = of_audit(replace(summary, drift=[row, quota]), None, AT)
    assert found.lines == [
        "error main orders: config_differs retention.ms",
        "error main: quota_differs user=ann producer_byte_rate",
    ]


def test_an_audit_that_is_not_finished_announces_that_beside_its_drift() -> None:
    summary = replace(drifted(error=1), problems=["cluster main can't be reached"])
    found = of_audit(summary, None, AT)
    assert [each.event for each in found] == [Event.DRIFT, Event.FAILED]
    assert found[1].worst is None


def body(found: Announcement, **settings: Any) -> tuple[str, dict[str, Any]]:
    content_type, text = found.body(NotifySettings(url="env:HOOK", report="https://r/{run_id}.html", **settings))
    return content_type, json.loads(text)


def test_a_cloud_event_has_required_fields_and_the_result_document() -> None:
    (found,) = of_run(REFUSED, "alice", AT)
    content_type, event = body(found)
    assert content_type == "application/cloudevents+json"
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": "nightly/failed",
        "source": "urn:topicledger",
        "type": "topicledger.run.failed",
        "subject": "nightly",
        "time": "2026-11-24T02:00:07Z",
        "datacontenttype": "application/json",
    }
    assert (data["event"], data["requested_by"], data["report"]) == ("failed", "alice", "https://r/nightly.html")
    assert data["result"] == json.loads(REFUSED.to_json())


def test_names_from_outside_are_plain_text_in_messages() -> None:
    (found,) = of_run(REFUSED, "alice", AT)
    _, slack = body(found, format="slack")
    assert slack["mrkdwn"] is False
    assert "&lt;!channel&gt;" in slack["text"]
    assert "<" not in slack["text"]
    assert "\x1b" not in slack["text"]
    assert slack["text"].splitlines()[-1] == "https://r/nightly.html"
    _, teams = body(found, format="teams")
    card = teams["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["actions"][0]["url"] == "https://r/nightly.html"


def wrong(tmp_path: Path, more: str) -> str:
    path = tmp_path / "run.toml"
    path.write_text(f'[tables]\nroot = "x"\n[clusters.a]\nbootstrap_servers = ["h:1"]\n{more}\n')
    return "\n".join(read_settings(path)[1])


def test_settings_say_what_is_wrong_with_an_address_without_repeating_it(tmp_path: Path) -> None:
    problems = wrong(
        tmp_path, '[[notify]]\nurl = "https://hooks.example.com/s3cret"\nevents = ["faild"]\nformat = "irc"'
    )
    assert "`notify[1].url` holds a secret: give it as env:NAME or file:PATH" in problems
    assert "`notify[1].events` must contain only failed, guard_stopped, approval_wanted, drift" in problems
    assert "`notify[1].format` must be one of cloudevents, slack, teams" in problems
    assert "s3cret" not in problems
    assert "`notify[1].url` is missing" in wrong(tmp_path, "[[notify]]")
    assert "`notify` must be a list of tables" in wrong(tmp_path, "[notify]\nurl = 'env:A'")
    assert wrong(tmp_path, '[[notify]]\nurl = "env:HOOK"\nevents = ["drift"]') == ""


def test_each_address_gets_the_post_and_none_stops_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fine, refused, redirected, not there, not set, no address: one answers, the others are warnings without a URL."""

    def answer(status: int, **headers: str) -> Any:
        def answered(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()

        return answered

    with (
        receiver() as fine,
        receiver(answer(500)) as failing,
        receiver(answer(302, Location=fine.url + "-other")) as moved,
    ):
        for name, url in (
            ("FINE", fine.url), ("FAILING", failing.url), ("MOVED", moved.url),
            ("GONE", "http://127.0.0.1:1/hook-s3cret"), ("FTP", "file:///etc/hook-s3cret"),
        ):  # fmt: skip
            monkeypatch.setenv(name, url)
        names = ("FINE", "FAILING", "MOVED", "GONE", "FTP", "NOT_SET")
        with caplog.at_level(logging.INFO, "topicledger"):
            posts = [(n, f"env:{name}", "application/json", b"{}") for n, name in enumerate(names, start=1)]
            assert post_all(posts) == {1}
        assert [len(each.posts) for each in (fine, failing, moved)] == [1, 1, 1]
    said = sorted(record.getMessage() for record in caplog.records)
    assert said == [
        "notify[1]: answered 204",
        "notify[2]: refused with HTTP status 500",
        "notify[3]: refused with HTTP status 302",
        "notify[4]: can't be reached (ConnectionRefusedError)",
        "notify[5].url: the value of env:FTP is not an http:// or https:// address",
        "notify[6].url: environment variable NOT_SET is not set",
    ]


def test_an_address_that_never_answers_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One accepts and sends no answer; one sends single bytes for as long as it may."""
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        while not over.wait(0.05):
            handler.wfile.write(b"H")

    with receiver(drip) as dripping, socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DRIPPING", dripping.url)
        monkeypatch.setenv("SILENT", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        began = time.monotonic()
        posts = [(1, "env:DRIPPING", "text/plain", b"{}"), (2, "env:SILENT", "text/plain", b"{}")]
        post_all(posts, seconds=0.5)
        took = time.monotonic() - began
        said = [record.getMessage() for record in caplog.records]
        over.set()
    assert took < 4
    assert said == [
        "notify[1]: no answer within 0.5 s; the run continues",
        "notify[2]: no answer within 0.5 s; the run continues",
    ]


def test_an_announcement_that_goes_wrong_fails_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """Wherever it goes wrong: as it is made, as the run is marked, as the threads start."""
    run = cast(Run, SimpleNamespace(run_id="nightly", ledger="no ledger"))

    def never_made() -> Sequence[Announcement]:
        raise ValueError("https://hooks.example.com/s3cret")

    for make in (never_made, lambda: of_run(REFUSED, "alice", AT)):
        announce(run, [NotifySettings(url="env:HOOK")], make)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "run nightly ended, but couldn't be announced (ValueError)",
        "run nightly ended, but couldn't be announced (AttributeError)",
    ]


def test_an_event_that_another_start_announced_is_not_announced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's row is marked first; of two starts that mark it at once, one announces it."""
    posted: list[Sequence[object]] = []
    monkeypatch.setattr(notify, "post_all", lambda posts: posted.append(posts) or {1})
    for notified, marked in ((None, 1), ("failed", 0), ("failed:0a1b", 0), (None, 0)):
        monkeypatch.setattr(notify, "find_run", lambda *_, before=notified: {"notified": before})
        ledger = SimpleNamespace(update=lambda *_, rows=marked: rows)
        run = cast(Run, SimpleNamespace(run_id="nightly", ledger=ledger))
        announce(run, [NotifySettings(url="env:HOOK")], lambda: of_run(REFUSED, "alice", AT))
    assert [len(each) for each in posted] == [1, 0, 0, 0]


@dataclass
class Cell:
    """The column `notified` of a run's row, in a ledger whose answers may be lost."""

    notified: str | None = None
    fails: bool = False
    is_written: bool = True
    """Whether the commit succeeds."""

    def update(self, _table: object, _condition: str, values: Mapping[str, str]) -> int:
        if self.is_written:
            self.notified = values["notified"].strip("'")
        if self.fails:
            raise TableError("table runs can't be updated: tried 5 times in 30 s")
        return 0


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_written", [False, True])
def test_mark_whose_answer_was_lost_is_known_as_ones_own(
    monkeypatch: pytest.MonkeyPatch, fails: bool, is_written: bool
) -> None:
    """A repeated commit changes no row, or all tries failed; if the mark is there, nobody else announces the event."""
    posted: list[Sequence[object]] = []
    monkeypatch.setattr(notify, "post_all", lambda posts: posted.append(posts) or {1})
    cell = Cell(fails=fails, is_written=is_written)
    monkeypatch.setattr(notify, "find_run", lambda *_: {"notified": cell.notified})
    run = cast(Run, SimpleNamespace(run_id="nightly", ledger=cell))
    for _ in range(2):
        announce(run, [NotifySettings(url="env:HOOK")], lambda: of_run(REFUSED, "alice", AT))
    assert sum(len(each) for each in posted) == is_written
    if is_written:
        assert re.fullmatch("failed:[0-9a-f]{16}", cell.notified or "")


def test_without_an_address_no_announcement_is_made() -> None:
    announce(cast(Run, None), [], lambda: pytest.fail("nobody asked for it"))


class EndedRun:
    """A run in `runs`, or not, that an error ends."""

    def __init__(self, *, in_runs: bool = True, taken: bool = False) -> None:
        self.run_id, self.in_runs, self.taken = "nightly", in_runs, taken
        self.settings = SimpleNamespace(notify=[NotifySettings(url="env:HOOK")])
        self.row = {"requested_by": "alice"}
        self.state = RunState.APPLYING
        self.cell = self.ledger = Cell()

    def own_row(self) -> object:
        return None if self.taken else self.row


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, Any]]]:
    """Event and body of each announcement that is posted."""
    found: list[tuple[str, Mapping[str, Any]]] = []

    def post_all(posts: Sequence[tuple[int, str, str, bytes]]) -> set[int]:
        found.extend((json.loads(body)["data"]["event"], json.loads(body)["data"]) for *_, body in posts)
        return {number for number, *_ in posts}

    monkeypatch.setattr(notify, "post_all", post_all)
    return found


def provisioned(run: EndedRun, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the pipeline of a run end by an error, which must reach the caller."""
    monkeypatch.setattr(pipeline, "provision", Mock(side_effect=error))
    monkeypatch.setattr(notify, "find_run", lambda *_: {"notified": run.cell.notified})
    request = runs.Request(command="provision")
    with pytest.raises(type(error)) as raised:
        provisioning._provisioned(cast(Run, run), request, (), Options(config=Path("s.toml")), Stop(), ())
    assert raised.value is error


@pytest.mark.parametrize("error", [Stopped("reached its deadline"), LeaseHeld("held"), LeaseLost("lost")])
def test_run_that_an_error_ends_announces_it_once(
    monkeypatch: pytest.MonkeyPatch, posted: list[tuple[str, Mapping[str, Any]]], error: TopicLedgerError
) -> None:
    run = EndedRun()
    for _ in range(2):
        provisioned(run, monkeypatch, error)
    ((event, data),) = posted
    assert event == "failed"
    assert data["headline"] == "topicledger run nightly: not finished; start it again with its id"
    assert data["requested_by"] == "alice"
    assert (data["result"]["exit_code"], data["result"]["error"]) == (1, str(error))


def test_run_that_a_guard_ends_announces_the_guard(
    monkeypatch: pytest.MonkeyPatch, posted: list[tuple[str, Mapping[str, Any]]]
) -> None:
    provisioned(EndedRun(), monkeypatch, GuardStopped("too many rows"))
    assert [event for event, _ in posted] == ["guard_stopped"]


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (EndedRun(in_runs=False), Stopped("stopped")),
        (EndedRun(taken=True), LeaseLost("lost")),
        (EndedRun(), UsageError("wrong")),
        (EndedRun(), KeyboardInterrupt()),
    ],
    ids=["without a row", "taken by another start", "wrong use", "Ctrl-C"],
)
def test_these_ends_of_a_run_are_not_announced(
    monkeypatch: pytest.MonkeyPatch,
    posted: list[tuple[str, Mapping[str, Any]]],
    run: EndedRun,
    error: BaseException,
) -> None:
    provisioned(run, monkeypatch, error)
    assert posted == []


def test_error_stays_the_same_if_the_announcement_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = EndedRun()
    run.own_row = Mock(side_effect=TableError("runs can't be read"))  # type: ignore[method-assign]
    provisioned(run, monkeypatch, Stopped("stopped"))
    assert "run nightly ended, but couldn't be announced (TableError)" in caplog.text


def test_server_announces_an_error_once_although_run_ids_differ() -> None:
    announced, to = Announced(), [NotifySettings(url="env:HOOK")]
    posts = []
    for run_id in ("one", "two"):
        text = f"run {run_id}: cluster main is being changed by run 20261129T221500Z-0a1b2c"
        found = of_error(text, ExitCode.ERROR, what="run", run_id=run_id, requested_by=None, at=AT)
        due = announced.due(to, [found])
        announced.arrived(due, [1])
        posts.append(len(due))
    assert posts == [1, 0]
