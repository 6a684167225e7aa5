"""Reports as people see and use them: on paper, on a phone, in dark mode, with hostile text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests import reports
from tests.browser.conftest import Page
from topicledger.report import Report
from topicledger.text import show

SAMPLES = [reports.run, reports.rights, reports.hostile, reports.audit, reports.span]
RUN_FIRST = [reports.run, *(pytest.param(each, marks=pytest.mark.thorough) for each in SAMPLES[1:])]
"""The same for what looks alike on all pages: `make test` opens that of a run."""


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the page has reacted to the input."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the page did not follow"
        time.sleep(0.05)


def choose(page: Page, label: str, value: str) -> None:
    """Choose a value in the first listing's filter with that label."""
    page.run(
        "const s = document.querySelector(`.listing select[data-label=${arguments[0]}]`);"
        "s.value = arguments[1]; s.dispatchEvent(new Event('change', {bubbles: true}))",
        label,
        value,
    )


def colour(page: Page, selector: str, name: str) -> str:
    return str(page.run(f"return getComputedStyle(document.querySelector('{selector}'))['{name}']"))


@pytest.mark.parametrize("sample", SAMPLES)
def test_page_sends_no_requests_and_logs_no_errors(page: Page, sample: Callable[[], Report]) -> None:
    page.open(sample())
    page.run("return document.querySelector('h1').textContent")
    (asked_for,) = page.requested()
    assert asked_for.startswith("file://")
    assert asked_for.endswith("/report.html")
    assert page.complaints() == []


def test_browser_reports_requests_and_refused_scripts(page: Page) -> None:
    """The test above relies on this."""
    page.open(reports.run())
    page.run("const i = new Image(); i.src = 'x.png'; document.body.append(i); i.setAttribute('onclick', '1')")
    eventually(lambda: any("Content Security Policy" in each for each in page.complaints()))


def test_hostile_text_is_shown_unchanged_and_never_runs(page: Page) -> None:
    page.open(reports.hostile())
    assert page.run("return window.taken") is None
    assert page.driver.title.startswith("7 of 7 topics failed")
    names = [cell.text for cell in page.all("[data-listing=topics] td:nth-child(2) > bdi")][: len(reports.HOSTILE)]
    assert names == [" ".join(show(text, 300).split()) for text in reports.HOSTILE]
    assert page.run("return document.scripts.length") == 1
    assert page.all("img") == []
    assert page.one(".about").text.endswith(reports.CLOSING)


def test_rows_can_be_filtered_by_each_hostile_text(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.hostile())
    for text in reports.HOSTILE:
        choose(page, "cluster", show(text, 300))
        assert shown_rows() == 1, text


def test_direction_marks_do_not_reverse_text(page: Page) -> None:
    page.open(reports.hostile())
    body = page.run("return document.documentElement.textContent")
    assert not set(body) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\x00\x07\x1b")
    assert "orders.\\u202egpj.exe" in body


def test_search_shows_rows_that_contain_every_word(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    assert shown_rows() == 192
    page.one("[data-listing=topics] input[type=search]").send_keys("AUTHORISED-0012 policy")
    eventually(lambda: shown_rows() == 1)
    assert page.one("[data-listing=topics] .status").text == "1 of 230 rows"
    page.one("[data-listing=topics] button[type=reset]").click()
    eventually(lambda: shown_rows() == 192)


def test_equal_rows_are_folded_until_expanded(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    assert page.one("[data-listing=topics] .status").text == "230 rows, 38 of them folded"
    folds = [each for each in page.all("[data-listing=topics] .fold button") if each.is_displayed()]
    assert [each.text for each in folds] == [f"Show {count} more with the same reason" for count in (6, 28, 4)]
    folds[1].click()
    # All two hundred rows are shown at once.
    assert shown_rows() == 200
    assert not folds[1].is_displayed()
    assert page.run("return document.activeElement.textContent").startswith("refused")
    choose(page, "outcome", "refused")
    folds = page.all("[data-listing=topics] .fold button")
    assert not any(each.is_displayed() for each in folds), "a filter unfolds"


def test_click_on_a_topic_shows_its_history(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    history = page.one(".listing details.history")
    assert not page.one(".history ol").is_displayed()
    history.find_element("css selector", "summary").click()
    told = [each.text.replace("\n", " ") for each in page.all(".history li")]
    assert told[2] == "2026-11-14T14:30:00Z approved ticket 17 run plan-1 by bob"
    # Events in other runs aren't searched.
    page.one("[data-listing=topics] input[type=search]").send_keys("ticket 17")
    eventually(lambda: shown_rows() == 0)


def test_parts_of_a_reason_are_shown_separately(page: Page) -> None:
    usual = reports.run()
    both = [replace(each, error="INVALID_CONFIG", outcome="failed") for each in usual.tallies[2:4]]
    page.open(replace(usual, tallies=both))
    details = page.one(".reasons details")
    assert not page.one(".reasons .parts").is_displayed()
    details.find_element("css selector", "summary").click()
    assert page.one(".reasons .parts").is_displayed()
    assert "Orders.Legacy" in page.one(".reasons .parts").text


def test_run_report_shows_its_plan_as_a_diff(page: Page) -> None:
    page.open(reports.run())
    first = page.all("#diff ~ ul.diff")[0]
    assert first.find_element("css selector", "li").text == (
        "+\ncreate payments.authorised-0047 12 partitions, replication factor 3, retention.ms=7d (604800000)"
    )
    assert [each.text for each in page.all("#diff ~ h3")] == [
        "payments\non orders, 122 listed changes",
        "no owner\non orders, 61 listed changes",
    ]
    hidden = page.all("#diff ~ details ul")[-1]
    assert not hidden.is_displayed()
    page.all("#diff ~ details summary")[-1].click()
    assert hidden.is_displayed()


def test_duration_of_each_phase_is_a_bar_on_a_time_axis(page: Page) -> None:
    page.open(reports.run())
    rows = page.all("[aria-labelledby=phases] tbody tr")
    assert [each.find_element("css selector", "th").text for each in rows] == [
        "observe, decide, plan",
        "validate",
        "waited for apply",
        "apply",
        "verify",
        "close",
    ]
    places = page.run(
        "return [...document.querySelectorAll('[aria-labelledby=phases] rect:not(.track)')]"
        ".map(e => [Number(e.getAttribute('x')), Number(e.getAttribute('width'))])"
    )
    assert len(places) == 5, "the wait is as long as it is, and would leave nothing to see of the others"
    assert places[2][1] > 85
    assert all(at + size <= 100 for at, size in places)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("look", "how"),
    [
        ("light", {}),
        ("dark", {"dark": True}),
        ("phone", {"width": 390}),
        ("print", {"media": "print", "width": 800}),
    ],
)
@pytest.mark.parametrize("sample", RUN_FIRST)
def test_picture_contains_the_whole_page(
    page: Page, sample: Callable[[], Report], look: str, how: dict[str, Any]
) -> None:
    """The pictures are in build/browser/pictures, for people to look at."""
    page.open(sample(), **how)
    width, height = page.picture(f"{sample.__name__}-{look}")
    assert width == how.get("width", 1280)
    # The layout of the picture may be slightly longer.
    assert height >= page.run("return document.querySelector('footer').getBoundingClientRect().bottom + scrollY") - 1


def test_search_without_results_says_so(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    page.one("[data-listing=topics] input[type=search]").send_keys("no such topic")
    eventually(lambda: shown_rows() == 0)
    assert page.one("[data-listing=topics] .status").text.startswith("No row matches")


def test_filters_can_be_combined(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    choose(page, "outcome", "refused")
    assert shown_rows() == 38
    choose(page, "cluster", "payments")
    assert shown_rows() == 7
    choose(page, "outcome", "failed")
    assert shown_rows() == 0


def test_reason_links_to_its_topics(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    page.all(".reasons a")[0].click()
    assert shown_rows() == 9
    assert page.run("return document.activeElement.id") == "topics"


def test_kind_of_drift_links_to_its_findings(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.audit())
    page.one("a[data-kind=missing]").click()
    assert shown_rows() == 6


@pytest.mark.thorough
def test_large_page_shows_more_rows_on_demand(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.large())
    assert shown_rows() == 200
    page.one("[data-listing=topics] [data-more='200']").click()
    assert shown_rows() == 400
    page.one("[data-listing=topics] [data-more=all]").click()
    assert shown_rows() == 2503
    page.one("[data-listing=topics] .fold button").click()
    assert shown_rows() == 5000
    assert "This command also prints the other 995,000" in page.one("[data-listing=topics]").text


def test_page_without_javascript_shows_every_row(page: Page, shown_rows: Callable[[], int]) -> None:
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.open(reports.run())
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert shown_rows() == 230


def test_dark_mode_follows_the_browser_setting(page: Page) -> None:
    page.open(reports.run())
    light = colour(page, "body", "backgroundColor"), colour(page, "body", "color")
    page.open(reports.run(), dark=True)
    dark = colour(page, "body", "backgroundColor"), colour(page, "body", "color")
    assert light == ("rgb(244, 245, 246)", "rgb(27, 33, 38)")
    assert dark == ("rgb(20, 24, 28)", "rgb(230, 233, 236)")


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("width", [320, pytest.param(390, marks=pytest.mark.thorough)])
def test_pages_do_not_scroll_sideways_on_a_phone(page: Page, sample: Callable[[], Report], width: int) -> None:
    page.open(sample(), width=width)
    assert page.run("return document.documentElement.scrollWidth") == width
    wider = page.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .unseen, thead')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"
    )
    assert wider == []


@pytest.mark.parametrize("sample", [reports.dotted, reports.run, reports.rights, reports.audit, reports.span])
def test_names_wrap_at_dots_and_not_within_words_on_a_phone(page: Page, sample: Callable[[], Report]) -> None:
    page.open(sample(), width=390)
    assert page.broken_words() == []


def test_words_that_are_broken_on_a_phone_are_found(page: Page) -> None:
    """The test above relies on this."""
    page.open(reports.dotted(), width=390)
    page.run("document.querySelectorAll('wbr').forEach(each => each.remove()); document.body.normalize()")
    assert len(page.broken_words()) > 50


@pytest.mark.parametrize("width", [320, 390])
def test_advice_for_each_kind_of_drift_fits_on_a_phone(page: Page, width: int) -> None:
    """The advice must be within the screen, since nobody scrolls a table sideways to find it."""
    page.open(reports.audit(), width=width)
    advices = page.run(
        "return [...document.querySelectorAll('.kinds td.words')].map(e => [e.textContent,"
        " e.getBoundingClientRect().left, e.getBoundingClientRect().right])"
    )
    assert len(advices) == 8
    for text, left, right in advices:
        assert text.strip()
        assert 0 <= left < right <= width


def test_rows_can_be_filtered_by_owner(page: Page, shown_rows: Callable[[], int]) -> None:
    page.open(reports.run())
    choose(page, "owner", "no owner")
    assert shown_rows() == 77


def test_printed_page_is_light_and_has_no_controls(page: Page) -> None:
    page.open(reports.run(), dark=True, media="print")
    assert colour(page, "body", "backgroundColor") == "rgb(255, 255, 255)"
    assert not page.one("[data-listing=topics] form").is_displayed()
    assert page.one("[data-listing=topics] table").is_displayed()
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert len(printed["data"]) > 10_000


@pytest.mark.parametrize(
    "dark", [pytest.param(False, id="light"), pytest.param(True, id="dark", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("sample", RUN_FIRST)
def test_axe_finds_no_serious_violations(page: Page, sample: Callable[[], Report], dark: bool) -> None:
    page.open(sample(), dark=dark)
    assert page.violations() == []


@pytest.mark.thorough
def test_axe_finds_no_serious_violations_on_a_phone(page: Page) -> None:
    page.open(reports.run(), width=390)
    assert page.violations() == []


def test_axe_detects_text_with_low_contrast(page: Page) -> None:
    """The tests above rely on this."""
    page.open(reports.run())
    page.run("document.querySelector('.lead').style.color = 'rgb(230, 230, 230)'")
    assert [each.split(":")[0] for each in page.violations()] == ["color-contrast"]
