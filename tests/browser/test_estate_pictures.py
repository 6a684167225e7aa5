"""The page about the estate, as people see it: in light and dark mode, on a phone and on paper."""

from __future__ import annotations

from typing import Any

import pytest

from tests import reports
from tests.browser.conftest import VIEWS, Page
from topicledger.report import render_estate


@pytest.mark.parametrize(
    "view", ["light", "phone", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("dark", "print"))]
)
def test_the_estate_is_readable_and_self_contained(page: Page, view: str) -> None:
    options: dict[str, Any] = VIEWS[view]
    page.open_text(render_estate(reports.estate()), **options)
    assert len(page.requested()) == 1
    assert page.complaints() == []
    assert page.violations() == []
    assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.broken_words() == []
    heights = page.run(
        "return [...document.querySelectorAll('svg.lines')].map(svg => svg.getBoundingClientRect().height)"
    )
    assert len(heights) == 6, "three charts by owner and three by cluster"
    assert min(heights) > 60
    colours = page.run(
        "return [...new Set([...document.querySelectorAll('polyline')].map(l => getComputedStyle(l).stroke))]"
    )
    assert len(colours) == 3, "a line for each owner"
    page.picture(f"estate-{view}")
