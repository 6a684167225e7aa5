"""The page that lists reports, as people see it: in light and dark mode, on a phone and on paper."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests import reports
from tests.browser.conftest import VIEWS, Page
from topicledger.report import entries, render, render_index


@pytest.mark.parametrize(
    "view", ["light", "phone", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("dark", "print"))]
)
def test_index_is_readable_self_contained_and_links_to_reports(page: Page, tmp_path: Path, view: str) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    for number, report in enumerate((reports.run(), reports.hostile(), reports.audit(), reports.dotted())):
        (folder / f"{number} <b>.html").write_text(render(report), encoding="utf-8")
    page.open_text(render_index(entries(folder)), **VIEWS[view])
    assert len(page.requested()) == 1
    assert page.complaints() == []
    assert page.violations() == []
    assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.broken_words() == []
    narrowest = page.run(
        "return Math.min(...[...document.querySelectorAll('tbody td')].map(td => td.offsetWidth || 999))"
    )
    assert narrowest > 60, "no column of single letters"
    links = [each.get_attribute("href") for each in page.all("tbody a")]
    assert sorted(link.rpartition("/")[2] for link in links) == [f"{number}%20%3Cb%3E.html" for number in range(4)]
    kept = os.environ.get("TOPICLEDGER_SCREENSHOTS")
    if kept is not None:
        shot = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (Path(kept) / f"index-{view}.png").write_bytes(base64.b64decode(shot["data"]))
