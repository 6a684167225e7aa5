"""The pictures in docs/pictures: `make pictures` takes them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests import reports
from tests.browser.conftest import Page, dimensions
from tests.commands import REPOSITORY
from topicledger.report import render, render_estate

FOLDER = REPOSITORY / "docs" / "pictures"
PAGES: dict[str, tuple[Callable[[], str], int | None]] = {
    "run": (lambda: render(reports.run()), 1_000),
    "estate": (lambda: render_estate(reports.estate()), 1_340),
}
"""Name -> the page, and how many pixels from its top are shown."""

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", PAGES)
def test_pictures_of_the_docs_have_the_layout_of_the_pages(page: Page, name: str) -> None:
    """Fonts differ between machines, so the pixels aren't compared."""
    text, most = PAGES[name]
    page.open_text(text())
    taken = page.image(most)
    kept = FOLDER / f"{name}.png"
    if os.environ.get("TOPICLEDGER_PICTURES") == "write":
        FOLDER.mkdir(exist_ok=True)
        kept.write_bytes(taken)
    assert dimensions(kept.read_bytes()) == dimensions(taken)
    assert len(kept.read_bytes()) < 200_000, "pages load fast"


def test_each_picture_is_shown_with_a_description() -> None:
    docs = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md"))
    for path in FOLDER.glob("*.png"):
        described, found, _ = docs.partition(f"](pictures/{path.name})")
        assert found, f"no page shows {path.name}"
        assert len(described.rpartition("![")[2]) > 20, "people who don't see it can read what it shows"
