"""A report as HTML: the same each time, bounded, and nothing from outside gets out of its place.

The text of pages is kept in golden_report/*.txt. To write these files again after an intended change:
    TOPICLEDGER_GOLDEN=write pytest tests/unit/test_report_page.py -k golden
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import re
import stat
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scripts.package import archive
from tests import reports
from topicledger import cli
from topicledger.config.guards import OF_KINDS, GuardSettings
from topicledger.config.reading import load_settings
from topicledger.config.settings import ChangeSettings
from topicledger.config.severities import SEVERITIES
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.kinds import NAMES
from topicledger.model import Refusal
from topicledger.model.config_texts import with_units
from topicledger.model.scope import Scope
from topicledger.report import Report, advice, charts, moment, render, require_writable, words, write
from topicledger.report.facts import (
    Changed,
    ChangedProblem,
    Compared,
    DriftFinding,
    History,
    PlannedChange,
    ShownAudit,
    ShownState,
)
from topicledger.report.scope import span
from topicledger.text import duration

GOLDEN = Path(__file__).with_name("golden_report")
SAMPLES = {
    "run": reports.run,
    "rights": reports.rights,
    "hostile": reports.hostile,
    "audit": reports.audit,
    "span": reports.span,
}
AUDITED = reports.drift_found(reports.run_facts("audit"))
_VOID = {"meta", "input", "rect", "wbr"}
_LINES = {"p", "h1", "h2", "h3", "tr", "li", "dd", "pre", "section", "title", "option"}


class Told(HTMLParser):
    """A page's text, a line for each block, and its elements and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self.elements: list[str] = []
        self.attributes: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in _VOID:
            self._open.append(tag)
        self.lines[-1] += "".join(f" [{value}] " for name, value in attrs if tag == "svg" and name == "aria-label")
        if tag in ("td", "th"):
            self.lines[-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open.pop() == tag, f"{tag} is closed out of turn"
        if tag in _LINES:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.lines[-1] += data

    def text(self) -> str:
        return "\n".join(line for each in self.lines if (line := " ".join(each.split()))) + "\n"


def told(html: str) -> Told:
    parser = Told()
    parser.feed(html)
    parser.close()
    return parser


@pytest.mark.parametrize("name", ["run", "audit", "span"])
def test_each_page_says_what_its_golden_file_says(name: str) -> None:
    report = SAMPLES[name]()
    drift = report.drift and replace(report.drift, rows=report.drift.rows[:5])
    found = told(render(replace(report, rows=report.rows[:5], drift=drift))).text()
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("TOPICLEDGER_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("sample", SAMPLES.values())
def test_the_same_report_gives_the_same_bytes(sample: Callable[[], Report]) -> None:
    assert render(sample()) == render(sample())


def test_hostile_words_add_no_element_and_no_attribute() -> None:
    hostile = told(render(reports.hostile()))
    usual = told(render(reports.run()))
    assert set(hostile.elements) <= set(usual.elements)
    assert set(hostile.attributes) <= set(usual.attributes)
    assert hostile.elements.count("script") == 1
    for text in (reports.SCRIPT, reports.CLOSING, reports.QUOTES):
        assert text in hostile.text()


def test_a_page_has_no_character_that_cannot_be_seen() -> None:
    html = render(reports.hostile())
    assert {each for each in html if not each.isprintable()} == {"\n"}


@pytest.mark.parametrize("sample", SAMPLES.values())
def test_only_its_own_style_and_script_may_act(sample: Callable[[], Report]) -> None:
    html = render(sample())
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy[0]
    assert policy[0].startswith("default-src 'none';")
    assert "unsafe" not in policy[0]
    found = told(html)
    assert not {name for name in found.attributes if name.startswith("on")} | ({"style", "src"} & set(found.attributes))
    assert "http:" not in html
    assert "https:" not in html


@pytest.mark.thorough
def test_a_page_of_the_longest_words_stays_within_a_few_megabytes() -> None:
    worst = "<" * 100_000
    rows = [replace(row, topic=worst, cluster=worst, error_message=worst) for row in reports.large().rows]
    html = render(replace(reports.large(), rows=rows))
    assert 2_000_000 < len(html) < 5_000_000
    assert "This command also prints the other" in html


@pytest.mark.thorough
def test_a_page_says_how_many_rows_it_leaves_out() -> None:
    text = told(render(reports.large())).text()
    assert "These are the first 5,000, problems first. This command also prints the other 995,000:" in text


def test_more_clusters_than_a_page_has_room_for_become_one() -> None:
    tallies = [replace(reports.run().tallies[0], cluster=f"c{n:03}", topics=200 - n) for n in range(60)]
    text = told(render(replace(reports.run(), tallies=tallies))).text()
    assert "| 20 other clusters | all phases" in text


@pytest.mark.thorough
def test_it_is_made_from_the_zip_that_spark_submit_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "topicledger.zip"
    package.write_bytes(archive())
    assert "topicledger/report/templates/page.html" in zipfile.ZipFile(package).namelist()
    expected = render(reports.run())
    report = reports.run()
    for name in [name for name in sys.modules if name.split(".")[0] == "topicledger"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(package))
    page = importlib.import_module("topicledger.report.page")
    assert page.__file__.startswith(str(package))
    assert page.render(report) == expected
    for name in [name for name in sys.modules if name.split(".")[0] == "topicledger"]:
        monkeypatch.delitem(sys.modules, name)


def of(**topics: int) -> Report:
    usual = reports.run()
    return replace(usual, tallies=[replace(usual.tallies[0], outcome=name, topics=n) for name, n in topics.items()])


def config_differs(topic: str | None, what: str, declared: str | None, live: str | None = "5") -> DriftFinding:
    return DriftFinding(
        cluster="main",
        topic=topic,
        kind="config_differs",
        what=what,
        declared=declared,
        live=live,
        severity="error",
        message=None,
        since=None,
    )


def test_advice_says_which_switch_and_guard_stand_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        '[tables]\nroot = "/tmp/ledger"\n[changes]\nconfigs = "exact"\n[guards]\nmax_losses = 3\n'
        '[clusters.a]\nbootstrap_servers = ["a:1"]\n[clusters.b]\nbootstrap_servers = ["b:1"]\n'
        '[clusters.b.changes]\nconfigs = "off"\n'
    )
    settings = load_settings(path)
    differs = advice.of_drift("config_differs", settings, ["b", "a"])
    assert differs.startswith('Run `provision` with changes.configs = "declared", within guards.max_losses and ')
    assert 'Now it is "off" on b. guards.max_losses is 3: `runs approve --allow losses=N` allows more' in differs
    assert "guards.max_disruptions is 0: `runs approve --allow disruptions=N`" in differs
    assert "Now it" not in advice.of_drift("config_differs", settings, ["a"])
    absent = advice.of_drift("should_be_absent", settings, ["a"])
    assert absent.endswith("guards.max_deletes is 0: `runs approve --allow deletes=N` allows more for one plan.")
    assert "guards.max_acl_deletes is 0: `runs approve --allow acl_deletes=N`" in advice.of_drift(
        "acl_unmanaged", settings
    )
    assert "max_deletes" not in advice.of_drift("unmanaged", settings, ["a"])
    deleting = replace(settings, changes={"a": ChangeSettings(undeclared="delete")})
    unmanaged = advice.of_drift("unmanaged", deleting, ["a", "b"])
    assert "`provision` deletes it within guards.max_deletes if this ledger created it" in unmanaged
    assert "guards.max_deletes is 0: `runs approve --allow deletes=N` allows more for one plan." in unmanaged
    audited = reports.audit().drift
    assert audited is not None
    audited = replace(audited, settings=replace(settings, changes={}))
    page = told(render(replace(reports.audit(), drift=audited))).text()
    assert "guards.max_deletes is 0" not in page, "no such finding"
    assert "guards.max_losses is 3" in page


def test_no_advice_goes_around_a_guard() -> None:
    """It names no other tool that changes a cluster, and every guard that it names is one."""
    every = [*map(advice.of_drift, advice.OF_DRIFT), *advice.OF_ERRORS.values()]
    for text in every:
        assert not re.search(r"kafka-(configs|topics|acls|delete)|by hand", text), text
        for name in re.findall(r"guards\.(max_\w+)", text):
            assert name in OF_KINDS or hasattr(GuardSettings, name), text


def test_every_refusal_and_every_kind_of_drift_has_an_advice_of_its_own() -> None:
    for refusal in (*Refusal, *(each for kind in NAMES for each in kind.refusals)):
        assert advice.of_error(refusal.value) != advice.UNKNOWN, refusal
    for kind in SEVERITIES:
        assert advice.of_drift(kind.value) != advice.UNKNOWN, kind
    assert set(advice.OF_DRIFT) == {kind.value for kind in SEVERITIES}


@pytest.mark.parametrize("kind", ["missing", "should_be_absent", "partitions_fewer", "config_undeclared", "unmanaged"])
def test_advice_names_the_command_that_helps(kind: str) -> None:
    """And the command is one that there is."""
    (named, *_) = re.findall(r"`(\w+)", advice.of_drift(kind))
    assert named in cli.main.commands


def test_durations_within_a_text_are_said_as_people_say_them() -> None:
    text = "2 partitions, retention.ms=3600000, max.message.bytes=3600000; retention.ms 86400000 -> 604800000"
    assert with_units(text) == (
        "2 partitions, retention.ms=1h (3600000), max.message.bytes=3600kB (3600000); "
        "retention.ms 1d (86400000) -> 7d (604800000)"
    )
    assert with_units("retention.ms default -> 5000") == "retention.ms default -> 5s (5000)"
    assert with_units("retention.ms 5000 -> default") == "retention.ms 5s (5000) -> default"
    assert with_units("retention.ms unknown -> 5000 can lose data") == "retention.ms unknown -> 5s (5000) can lose data"
    assert with_units("retention.ms is 5000, the broker's default; allowed is any to 2000; set it") == (
        "retention.ms is 5s (5000), the broker's default; allowed is any to 2s (2000); set it"
    )
    assert with_units("retention.ms is -1, without limit; allowed is 1 to 86400000") == (
        "retention.ms is -1, without limit; allowed is 1 to 1d (86400000)"
    )
    assert with_units("retention.ms is 5000 again: 2 runs of the last 30 days set retention.ms=60000, the last") == (
        "retention.ms is 5s (5000) again: 2 runs of the last 30 days set retention.ms=1m (60000), the last"
    )
    assert with_units("retention.ms is 5000, not so") == "retention.ms is 5s (5000), not so"
    assert (
        with_units("retention.ms is 5000x; retention.ms is unknown") == "retention.ms is 5000x; retention.ms is unknown"
    )
    assert with_units("retention.ms 5000.5, x.ms=5000a") == "retention.ms 5000.5, x.ms=5000a"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("retention.ms -1 -> 604800000", "retention.ms -1 -> 7d (604800000)"),
        ("retention.ms 604800000 -> -1", "retention.ms 7d (604800000) -> -1"),
        ("local.retention.ms -2 -> 3600000", "local.retention.ms -2 -> 1h (3600000)"),
        ("retention.ms +604800000 -> 1", "retention.ms 7d (+604800000) -> 1"),
        ("retention.bytes -1 -> 1073741824", "retention.bytes -1 -> 1GiB (1073741824)"),
        ("retention.ms: declared -1, live 604800000", "retention.ms: declared -1, live 7d (604800000)"),
        ("retention.ms: declared 604800000, live -1", "retention.ms: declared 7d (604800000), live -1"),
        ("retention.ms=-1, segment.ms=3600000", "retention.ms=-1, segment.ms=1h (3600000)"),
        ("retention.ms is -1; allowed is -1 to 3600000", "retention.ms is -1; allowed is -1 to 1h (3600000)"),
        ("retention.ms -3600000 -> 1", "retention.ms -3600000 -> 1"),
    ],
)
def test_values_beside_one_without_limit_have_their_units(text: str, shown: str) -> None:
    assert with_units(text) == shown


def test_a_change_says_durations_as_the_list_of_findings_does() -> None:
    sides = "config_differs retention.ms: declared 604800000, live 3600000"
    change = ChangedProblem(change=Changed.NEW, cluster="main", topic="orders", before=None, now=sides)
    report = reports.audit()
    assert report.drift is not None
    compared = Compared(last="audit 1", counts={Changed.NEW: 1}, rows=[change])
    page = told(render(replace(report, drift=replace(report.drift, compared=compared)))).text()
    assert "config_differs retention.ms: declared 7d (604800000), live 1h (3600000)" in page


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("shop.orders_eu-1", "shop.<wbr>orders_<wbr>eu-1"),
        ("a..b. <c.d>", "a..<wbr>b. &lt;c.<wbr>d&gt;"),
        (
            "at 2026-11-21T14:15:00Z",
            'at <span class="whole">2026-11-21T</span><wbr><span class="whole">14:15:00Z</span>',
        ),
        ("x=7d (604800000)", 'x=<span class="whole">7d</span> (604800000)'),
        ("run 20261121T141500000000Z-1f2e3d4c", "run 20261121T<wbr>141500000000Z-1f2e3d4c"),
    ],
)
def test_lines_end_at_dots_and_before_a_time(text: str, html: str) -> None:
    assert words.breaks(text) == html


def test_a_day_is_drawn_by_the_hour() -> None:
    day = reports.NOW.replace(hour=0, minute=0)
    hours = [(day + timedelta(hours=hour), {"ok": hour + 1}) for hour in range(3)]
    history = History(run_count=3, periods=hours, unit="hour")
    text = told(render(replace(reports.run(), run=None, span=(day, reports.NOW), history=history))).text()
    assert "Results by hour" in text
    assert "at most 3 results" in text
    assert "2026-11-21T00:00Z" in text
    assert "2026-11-21T02:00Z" in text


def test_empty_parts_and_parts_without_waiting_are_left_out() -> None:
    usual = reports.run()
    idle = replace(usual.requests.waiting[2], between_seconds=0.001, longest_seconds=0.001)
    assert "Quota and other waits" not in render(replace(usual, requests=replace(usual.requests, waiting=[idle])))
    again = replace(idle, sent_again=1)
    assert "Quota and other waits" in render(replace(usual, requests=replace(usual.requests, waiting=[again])))
    nothing = replace(of(), run=reports.run_facts(counts={"unchanged": 0, "drifted": 0, "unmanaged": 4}))
    text = told(render(nothing)).text()
    assert "0 unchanged" not in text
    assert "4 unmanaged, left alone" in text


def test_findings_and_the_exit_codes_words_do_not_contradict() -> None:
    drifted = replace(reports.audit(), run=reports.run_facts("audit", exit_code=0, counts={}))
    text = told(render(drifted)).text()
    assert "audit is finished, exit code 0." in text
    clean = told(render(replace(drifted, drift=None))).text()
    assert "exit code 0: done." in clean


def test_each_row_has_its_owner_and_can_be_filtered_by_it() -> None:
    html = render(reports.run())
    assert 'data-label="owner"' in html
    assert '<option value="no owner">no owner (77)</option>' in html
    assert "12 partitions, replication factor 3, retention.ms=7d (604800000)" in told(html).text()


def test_acls_and_quotas_are_listed_by_owner_with_each_change() -> None:
    found = told(render(reports.rights())).text()
    assert "ACLs by owner, and changes by this run" in found
    assert "ACL changes by this run" in found
    assert "User:payments ALLOW READ TOPIC PREFIXED orders. *" in found
    assert "Client quotas by owner, and changes by this run" in found
    assert "user=payments client-id=<default>" in found
    assert "producer_byte_rate 1000000 -> 2000000, request_percentage none -> 0.5" in found
    without = told(render(reports.run())).text()
    assert "ACLs by owner" not in without
    assert "quotas" not in without


def test_destructive_lines_come_first_in_a_diff_and_are_never_folded() -> None:
    """Also an owner whose change destroys something, after more other owners than a page shows."""
    usual = reports.run()
    (row,) = [each for each in usual.rows if each.outcome == "ok"][:1]
    gone = [replace(row, topic=f"gone-{n}", action="delete", change=PlannedChange(destroys=True)) for n in range(8)]
    others = [replace(row, topic=f"other-{n}", owner=f"a-{n:02}") for n in range(60)]
    rows = [replace(row, topic=f"new-{n}", owner="z") for n in range(8)]
    rows += [*(replace(each, owner="z") for each in gone), *others]
    page = render(replace(usual, rows=rows))
    diff = page[page.index('id="diff"') : page.index("left out. ")]
    assert diff.index("gone-7") < diff.index("other-0") < diff.index("other-38")
    assert "8 can lose data or access" in diff
    assert "other-39" not in diff
    before_fold, folded = diff.split("<details>")
    assert all(f"gone-{n}" in before_fold for n in range(8))
    assert all(f"new-{n}" in folded for n in range(8))


def test_headline_says_that_rows_were_removed_by_age() -> None:
    report = of(ok=3, unknown=2)
    assert words.headline(report).text == "What became of 2 topics was removed by age"
    assert "open" not in words.headline(report).text


def test_headline_speaks_of_actions_if_acls_are_among_them() -> None:
    usual = of(ok=3)
    acl = replace(usual.tallies[0], resource_type="acl", action="acl_add", topics=2)
    report = replace(usual, tallies=[*usual.tallies, acl])
    assert words.headline(report).text == "All succeeded: 5 actions"
    text = told(render(report)).text()
    assert "All actions" in text
    assert "All topics" not in text


def test_header_names_the_requester_and_the_approvers() -> None:
    history = History(approved_by=["bob", "beyond guards: deletes=2"])
    text = told(
        render(replace(reports.run(), history=history, limits=Scope(owners=("payments",), topics=("^pay",))))
    ).text()
    assert "Requested byalice" in text
    assert "Approved bybob, beyond guards: deletes=2" in text
    assert "Onlyowner payments; topic ^pay" in text
    assert "left alone" not in text, "the run's own counts are about everything"
    assert "also those of other owners and topics" in text


def test_an_audit_of_a_part_says_its_scope_and_its_clusters() -> None:
    arguments = {"command": "audit", "clusters": "", "audited": "eu,us"}
    facts = reports.run_facts("audit", state="planning", arguments=arguments, scope=Scope(owners=("payments",)))
    text = told(render(replace(reports.audit(), run=facts, drift=None))).text()
    assert "No drift in its scope; the audit is planning" in text
    assert "Scopeowner payments" in text
    assert "Comparedeu, us" in text


def test_a_span_says_which_audit_has_the_findings_of_which_cluster() -> None:
    report = reports.span()
    assert report.drift is not None
    audits = [ShownAudit(run=reports.run_facts("audit", run_id=f"a-{each}"), clusters=[each]) for each in ("eu", "us")]
    text = told(render(replace(report, drift=replace(report.drift, audits=audits)))).text()
    at = "2026-11-21T14:15:00Z"
    assert f"Found by audit a-eu of {at} on eu, audit a-us of {at} on us, the last ones of these clusters in" in text
    assert "; the last audits have 1,498 findings" in text


def test_findings_with_the_same_message_are_folded() -> None:
    finding = config_differs("a", "retention.ms", "1")
    rows = [replace(finding, topic=f"t-{n}", message=f"retention.ms of t-{n} differs") for n in range(9)]
    report = reports.audit()
    assert report.drift is not None
    page = told(render(replace(report, drift=replace(report.drift, rows=rows)))).text()
    assert "Show 6 more with the same reason" in page


def test_an_audit_with_findings_is_not_called_nothing_to_do() -> None:
    assert "nothing to do" not in render(reports.audit()).lower()


@pytest.mark.parametrize(
    ("report", "text", "tone"),
    [
        (of(ok=3), "All succeeded: 3 topics", "good"),
        (of(ok=1), "All succeeded: 1 topic", "good"),
        (of(ok=3, failed=1), "1 of 4 topics failed or was refused", "bad"),
        (of(failed=2, refused=1), "3 of 3 topics failed or were refused", "bad"),
        (of(failed=2, open=1), "2 of 3 topics failed or were refused, and 1 is open", "bad"),
        (of(ok=2, open=5), "Not finished: 5 topics are open", "open"),
        (of(planned=7), "7 changes planned, none applied yet", "open"),
        (
            of(),
            "Nothing was planned; 12 topics differ in partitions, replication factor or placement",
            "open",
        ),
        (
            replace(of(), run=reports.run_facts(counts={"drifted": 0})),
            "Nothing was planned",
            "good",
        ),
        (replace(of(), run=reports.run_facts(state="planning")), "No results yet: the run is planning", "open"),
        (
            replace(of(failed=1), run=reports.run_facts(state="abandoned")),
            "The run was abandoned; before that 1 topic failed or was refused",
            "bad",
        ),
        (replace(of(), run=None), "No runs in this time", "open"),
        (
            replace(of(), run=None, history=History(run_count=1)),
            "No run created, deleted, changed or refused anything",
            "good",
        ),
        (reports.audit(), "1,498 findings of drift, including 36 errors", "bad"),
        (replace(reports.audit(), drift=None), "No drift", "good"),
        (
            replace(reports.audit(), drift=replace(AUDITED, tallies=[], removed={"a": 3})),
            "Rows of 3 findings were removed by age",
            "open",
        ),
        (
            replace(reports.audit(), drift=None, tallies=of(failed=2).tallies),
            "No drift; 2 topics could not be observed",
            "open",
        ),
    ],
)
def test_the_answer_comes_first(report: Report, text: str, tone: str) -> None:
    found = words.headline(report)
    assert (found.text, found.tone) == (text, tone)


def test_reasons_are_told_once_for_all_clusters_the_worst_first() -> None:
    found = words.reasons([*reports.run().tallies, *reports.large().tallies])
    assert [(each.outcome, each.error, each.topics) for each in found][:3] == [
        ("failed", "INVALID_CONFIG", 2500),
        ("failed", "INVALID_REPLICATION_FACTOR", 9),
        ("refused", "POLICY_VIOLATION", 31),
    ]
    assert len(found[0].clusters) == 20


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0.40 s"),
        (5, "5 s"),
        (9.999, "10.00 s"),
        (12.4, "12 s"),
        (59.7, "1 min 0 s"),
        (83, "1 min 23 s"),
        (7260, "2 h 1 min"),
        (864_000, "10 days"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_pieces_of_a_bar_lie_side_by_side() -> None:
    pieces = charts.bar({"ok": 3, "failed": 1}, list(ShownState))
    assert [(each.name, each.start, each.size) for each in pieces] == [("failed", 0, 25), ("ok", 25, 75)]


def test_a_bar_is_as_long_as_its_share_and_shows_one_of_a_million() -> None:
    (piece,) = charts.bar({"failed": 1}, list(ShownState), 1_000_000)
    assert piece.size == 0.5
    assert sum(each.size for each in charts.bar({"failed": 1, "ok": 999_999}, list(ShownState))) <= 100


def test_empty_counts_have_no_bar() -> None:
    assert charts.bar({}, list(ShownState)) == []
    assert charts.columns([], list(ShownState)) == []


def test_a_page_replaces_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write(out, "before")
    write(out, "after ü")
    assert out.read_text(encoding="utf-8") == "after ü"
    assert list(tmp_path.iterdir()) == [out]
    assert out.stat().st_mode & stat.S_IRUSR


def test_an_existing_file_stays_if_a_page_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(TopicLedgerError, match=r"the report can't be written to .*report\.html: Is a directory"):
        write(tmp_path / "report.html", "page")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_takes_no_file_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        require_writable(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        require_writable(tmp_path / "missing" / "report.html")


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-01", "2026-11-01 00:00:00+00:00"),
        ("2026-11-01T08:00", "2026-11-01 08:00:00+00:00"),
        ("2026-11-01T08:00+01:00", "2026-11-01 07:00:00+00:00"),
        ("2026-11-01T08:00:00Z", "2026-11-01 08:00:00+00:00"),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, utc: str) -> None:
    assert str(moment(text, "--since")) == utc


def test_a_span_of_everything_has_a_span_of_the_same_length_before_it() -> None:
    since, until = span(moment("0001-01-01", "--since"), moment("2026-11-01", "--until"), ()).span or ()
    assert (since.year, (since - (until - since)).year) == (1970, 1913)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "0001-01-01T00:00+10:00"])
def test_an_invalid_time_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match=r"--since .*is not a time: give a date"):
        moment(text, "--since")
