"""The site of docs/ in a browser, opened from its files: search finds what readers ask for, and pages fit phones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts import generate_docs
from tests.browser.conftest import Page
from tests.commands import REPOSITORY
from tests.waiting import until

MKDOCS = REPOSITORY / "build" / "docs-venv" / "bin" / "mkdocs"
FOUND = {
    "rollback": "undo.html",
    "import": "adopt.html",
    "rename": "rename.html",
    "Confluent Cloud": "connect.html",
    "schema registry": "words.html",
    "backup": "recovery.html",
    "multi-tenant": "words.html",
    "NOT_YOURS": "errors.html",
    "topicledger_exit_code": "metrics.html",
}
"""Words that readers search for -> a page that the search offers."""


@pytest.fixture(scope="session")
def site(driver: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; its folder."""
    if not MKDOCS.exists():
        if os.environ.get("TOPICLEDGER_BROWSER") == "required":
            pytest.fail("there is no mkdocs: `make setup-docs` installs it")
        pytest.skip("there is no mkdocs: `make setup-docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    generate_docs.make_site_sources(folder / "sources")
    settings = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    settings = settings.replace("docs_dir: build/docs-source", "docs_dir: sources")
    (folder / "mkdocs.yml").write_text(settings.replace("site_dir: build/docs", "site_dir: site"), encoding="utf-8")
    done = subprocess.run(
        [MKDOCS, "build", "--strict"],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.thorough
def test_search_works_without_a_server(page: Page, site: Path) -> None:
    missed = []
    for words, wanted in FOUND.items():
        page.open_file(site / "why.html")
        page.one("[data-md-component=search-query]").send_keys(words)
        until(lambda: page.all(".md-search-result__link"), seconds=20)
        results = [str(each.get_attribute("href")).rpartition("/")[2] for each in page.all(".md-search-result__link")]
        if not any(each.partition("#")[0].partition("?")[0] == wanted for each in results):
            missed.append(f"{words}: {results[:8]}")
    assert missed == []
    assert all(each.startswith(("file:", "data:")) for each in page.requested())


@pytest.mark.thorough
def test_every_page_fits_a_phone(page: Page, site: Path) -> None:
    wide = []
    for path in sorted(site.glob("*.html")):
        page.open_file(path, width=390)
        if page.run("return document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(path.name)
    assert wide == []
