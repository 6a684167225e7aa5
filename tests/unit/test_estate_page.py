"""The page about the estate: its numbers, its charts, and texts from outside."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import reports
from topicledger.cli import main
from topicledger.report import render_estate
from topicledger.report.estate import size


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Cells of the table under a heading, as text."""
    body = page[page.index(f'<h2 id="{heading}"') :]
    table = body[body.index("<tbody>") : body.index("</tbody>")]
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    cells = (
        [re.sub("<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    )
    return [[" ".join(cell.split()) for cell in row] for row in cells]


def test_owners_are_added_over_clusters_and_unknown_sizes_are_told() -> None:
    page = render_estate(reports.estate())
    assert page == render_estate(reports.estate())
    assert rows_of(page, "owners") == [
        ["payments", "eu, us", "30", "300", "5 GB", "12.50 EUR", ""],
        ["search", "eu", "4", "8", "at least 2 MB", "unknown", ""],
        ["no owner", "eu", "2", "2", "unknown", "unknown", ""],
        ["All owners", "eu, us", "36", "310", "at least 5 GB", "unknown", ""],
    ]
    assert "The size of 3 topics is unknown" in page
    assert "<h1>36 topics: 1 unused, 1 over-partitioned, 2 at risk</h1>" in page


def test_a_cluster_without_an_audit_on_a_day_keeps_its_numbers() -> None:
    """eu was audited on the first and the last day, us on the second one only."""
    page = render_estate(reports.estate())
    first, *_ = re.findall(r'<polyline class="line-1" points="([^"]+)"', page)
    # 1, 1 + 2 and 3 + 2 GB; the highest is 5 GB.
    assert first == "0.00,80.00 50.00,40.00 100.00,0.00"
    assert "Cluster <bdi>us</bdi> is in the charts, and in the sums of owners, from 2026-11-02 on." in page
    assert rows_of(page, "growth-owner")[0] == ["payments", "1 GB → 5 GB", "200 → 300", "20 → 30"]


def test_growth_is_drawn_by_cluster_too_if_there_are_several() -> None:
    estate = reports.estate()
    page = render_estate(estate)
    found = page[page.index('id="growth-cluster"') :]
    first, second, *_ = re.findall(r'<polyline class="line-\d" points="([^"]+)"', found)
    # eu grows from 1 to 3 GB, us has 2 GB from the second day on; the highest is that of eu.
    assert re.findall(r'<li class="line-key-\d"><bdi>([^<]+)', found) == ["eu", "us"]
    assert first.split()[-1] == "100.00,0.00"
    assert second.split()[0] == "50.00,33.38", "no audit had read us on the first day"
    eu = [each for each in estate.growth if each.cluster == "eu"]
    assert "growth-cluster" not in render_estate(replace(estate, growth=eu))


def test_one_day_makes_no_chart_and_more_owners_than_colours_share_a_line() -> None:
    estate = reports.estate()
    one_day = replace(estate, growth=[each for each in estate.growth if each.day == estate.growth[0].day])
    page = render_estate(one_day)
    assert "<polyline" not in page
    assert "Growth is drawn once audits of two days have read usage." in page
    many = [replace(estate.owners[0], owner=f"team-{number}", bytes=1_000 - number) for number in range(9)]
    grown = [replace(each, owner=owner.owner) for each in estate.growth for owner in many]
    page = render_estate(replace(estate, owners=many, growth=grown))
    names = re.findall(r'<li class="line-key-\d"><bdi>([^<]+)', page)
    assert names == [*(f"team-{number}" for number in range(6)), "other owners", "eu", "us"]
    *_, bytes_of_others = re.findall(r'<polyline class="line-7" points="([^"]+)"', page)[:1]
    assert bytes_of_others.endswith("100.00,0.00"), "three owners share the highest line"


def test_sizes_that_are_unknown_are_no_points_of_a_line() -> None:
    """The last size of search on eu is a lower limit, and nothing is known of its first one."""
    estate = reports.estate()
    first, of_search, *_, last = estate.growth
    partly = replace(last, topics_of_unknown_size=1, bytes=5)
    page = render_estate(replace(estate, growth=[first, of_search, *estate.growth[2:-1], partly]))
    assert rows_of(page, "growth-owner")[1] == ["search", "2 MB → 2 MB", "8 → 8", "4 → 4"]
    nothing = [replace(each, topics_of_unknown_size=each.topics, bytes=None) for each in estate.growth]
    page = render_estate(replace(estate, growth=nothing))
    assert rows_of(page, "growth-owner")[0] == ["payments", "unknown → unknown", "200 → 300", "20 → 30"]
    assert rows_of(page, "growth-cluster")[0][1] == "unknown → unknown"


def test_owners_without_topics_by_now_are_in_the_charts() -> None:
    estate = reports.estate()
    gone = replace(estate, owners=[each for each in estate.owners if each.owner != "payments"])
    page = render_estate(gone)
    names = re.findall(r'<li class="line-key-\d"><bdi>([^<]+)', page)
    assert names == ["search", "no owner", "payments", "eu", "us"]
    assert '<polyline class="line-3" points="0.00,80.00' in page
    assert "<polyline" in render_estate(replace(estate, owners=()))


def test_use_and_configs_that_no_audit_has_read_are_unknown() -> None:
    page = render_estate(replace(reports.estate(), usage_at=None, unknown_use=36, unknown_configs=1))
    assert "2 at risk; use of 36 topics unknown; configs of 1 topic unknown</h1>" in page
    assert "Audits with usage don't tell whether 36 topics are used" in page
    assert "<dt>Usage read</dt><dd>never</dd>" in page


def test_texts_from_outside_are_escaped() -> None:
    text = "<script>alert(1)</script>"
    estate = reports.estate()
    row = {**estate.risks.rows[0], "topic": text, "owner": text, "cluster": text, "risk": text}
    hostile = replace(
        estate,
        owners=[replace(each, owner=text, clusters=(text,), currency=text) for each in estate.owners],
        growth=[replace(each, owner=text, cluster=text) for each in estate.growth],
        risks=replace(estate.risks, rows=[row], query=text),
    )
    page = render_estate(hostile)
    assert page.count("<script") == 1
    assert "&lt;script&gt;" in page


def test_an_estate_that_nobody_observed_says_what_observes_it() -> None:
    nothing = replace(reports.estate().risks, total=0, rows=())
    empty = replace(
        reports.estate(),
        usage_at=None,
        owners=(),
        growth=(),
        unused=nothing,
        over_partitioned=nothing,
        risks=nothing,
    )
    page = render_estate(empty)
    assert "<h1>No topic was observed</h1>" in page
    assert "<code>drift</code> observe topics" in page


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (999, "999 B"),
        (1_234_567, "1.23 MB"),
        (999_600_000, "1,000 MB"),
        (7e15, "7,000 TB"),
    ],
)
def test_sizes_have_three_digits(count: float | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--estate", "r"], "report needs one of RUN_ID"),
        (["--estate", "--topic", "a"], "--estate counts by owner: leave out --topic"),
        ([], "report needs one of RUN_ID"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path: Path, options: list[str], reason: str) -> None:
    out = str(tmp_path / "page.html")
    result = CliRunner().invoke(main, ["report", "--config", "none.toml", "--to", out, *options])
    assert result.exit_code == 2
    assert reason in result.output
