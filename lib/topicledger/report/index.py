"""A page that lists all reports of a folder, from the metadata in the head of each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from topicledger import __version__
from topicledger.errors import UsageError
from topicledger.report import page

FILE = "index.html"
"""Name of the index file in the folder."""
LISTED = 2_000
"""Most reports that an index lists; it lists the newest."""
_HEAD_CHARACTERS = 64_000
"""How much of a file is searched for its metadata, which precedes the style."""
_META = "topicledger-report"
_OLD_TIME = re.compile(r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)$")
"""Start times in the metadata of older reports, in UTC."""
_TONES = {"good": "good", "bad": "needs attention", "open": "open"}


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """A report's entry in an index."""

    href: str
    """Its file, as a relative link."""
    headline: str
    tone: str
    """good, bad or open."""
    began: str
    """When the run began, or the span; see `iso_time`."""
    about: str
    by: str
    clusters: str


def make_folder(folder: Path) -> None:
    """Create the folder if it doesn't exist; raises UsageError if it can't be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--index {folder}: can't create this folder: {error.strerror}") from None


def entries(folder: Path) -> list[IndexEntry]:
    """Read the metadata of each report in the folder, the newest first.

    Other files, and reports of versions that had no metadata, are left out; subfolders are not searched.
    """
    found = []
    for path in sorted(folder.glob("*.html")):
        if path.name != FILE and path.is_file():
            entry = _entry(path)
            if entry is not None:
                found.append(entry)
    return sorted(found, key=lambda each: (each.began, each.href), reverse=True)


def render(found: list[IndexEntry]) -> str:
    """Render the page. The same entries always give the same bytes."""
    style = page.template("page.css")
    return (
        page.environment(FILE)
        .get_template(FILE)
        .render(
            reports=found[:LISTED],
            total=len(found),
            words_of_tone=_TONES,
            version=__version__,
            style=Markup(style),
            style_hash=page.hash_of(style),
        )
    )


class _Head(HTMLParser):
    """Finds the metadata of a report."""

    found: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "meta" and named.get("name") == _META and self.found is None:
            self.found = named.get("content")


def _entry(path: Path) -> IndexEntry | None:
    head = _Head()
    try:
        with path.open(encoding="utf-8") as file:
            head.feed(file.read(_HEAD_CHARACTERS))
        said = json.loads(head.found or "")
    except (OSError, ValueError):
        return None
    names = [each.name for each in fields(IndexEntry) if each.name != "href"]
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in names):
        return None
    if said["tone"] not in _TONES:
        return None
    said["began"] = _OLD_TIME.sub(r"\1T\2Z", said["began"])
    return IndexEntry(href=quote(path.name), **{name: said[name] for name in names})
