"""Reports in a headless Chromium: Debian's, driven by Selenium, without a network.

Without a browser these tests are skipped, unless TOPICLEDGER_BROWSER=required.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.commands import REPOSITORY
from topicledger.report import Report, render

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
AXE = REPOSITORY / "build" / "browser" / "axe_playwright_python" / "axe.min.js"
PICTURES = REPOSITORY / "build" / "browser" / "pictures"
"""Folder of screenshots, for people to look at."""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


VIEWS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390},
    "print": {"media": "print"},
}
"""How people look at a page: options of `Page.open_text`."""
_BROKEN_WORDS = """
const found = [], parts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), letter = /[A-Za-z0-9]/;
while (parts.nextNode()) {
  const node = parts.currentNode, text = node.textContent, one = document.createRange();
  if (node.parentElement.closest('.unseen, thead')) continue;
  let before = null;
  for (let i = 0; i < text.length; i++) {
    one.setStart(node, i);
    one.setEnd(node, i + 1);
    const top = one.getClientRects()[0]?.top ?? null;
    if (before !== null && top > before + 3 && letter.test(text[i - 1]) && letter.test(text[i])) {
      const word = text.slice(0, i).match(/[A-Za-z0-9]+$/)[0] + '|' + text.slice(i).match(/^[A-Za-z0-9]+/)[0];
      if (word.length <= 17) found.push(word);
    }
    before = top;
  }
}
return found;
"""


def dimensions(png: bytes) -> tuple[int, int]:
    """Return width and height of a PNG: its first chunk begins with them."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver = driver
        self._folder = folder

    def open(self, report: Report, *, dark: bool = False, width: int = 1280, media: str = "screen") -> None:
        """Write the report and open it from its file, in a new document of that width."""
        self.open_text(render(report), dark=dark, width=width, media=media)

    def open_text(self, text: str, *, dark: bool = False, width: int = 1280, media: str = "screen") -> None:
        """Open a page from its HTML."""
        path = self._folder / "report.html"
        path.write_text(text, encoding="utf-8")
        self.open_file(path, dark=dark, width=width, media=media)

    def open_file(self, path: Path, *, dark: bool = False, width: int = 1280, media: str = "screen") -> None:
        """Open a page from its file."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(path.as_uri())

    def picture(self, name: str) -> tuple[int, int]:
        """Write a picture of the whole page into `PICTURES`; return its width and height."""
        data = self.image()
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / f"{name}.png").write_bytes(data)
        return dimensions(data)

    def image(self, most: int | None = None) -> bytes:
        """Return a PNG of the whole page, or of its first `most` pixels."""
        height, before = self._height(), 0
        # The layout may change while the picture is taken, since the window then has the size of the page.
        while height != before:
            shown = min(height, most or height)
            clip = {"x": 0, "y": 0, "width": self.run("return innerWidth"), "height": shown, "scale": 1}
            taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            before, height = height, self._height()
        return base64.b64decode(taken["data"])

    def _height(self) -> int:
        return int(self.run("return document.documentElement.scrollHeight"))

    def run(self, script: str, *arguments: object) -> Any:
        """Run a function body in the page, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        """Return the elements of a CSS selector."""
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """Return the only element of a CSS selector."""
        (element,) = self.all(selector)
        return element

    def requested(self) -> list[str]:
        """Return the addresses requested since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return the messages in the browser's console, including refusals by the Content-Security-Policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def broken_words(self) -> list[str]:
        """Return words that are broken within, of up to 16 letters and digits: each of them fits on a phone."""
        return list(self.run(_BROKEN_WORDS))

    def violations(self) -> list[str]:
        """Return axe's serious and critical findings, with their places."""
        self.run(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run(document, {resultTypes: ['violations']}).then(done, e => done({error: String(e)}))"
        )
        assert "violations" in found, found
        assert found["passes"], "axe looked at nothing"
        return [
            f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]} and {len(each['nodes']) - 1} more"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]


def _missing() -> str | None:
    if not (CHROMIUM.exists() and DRIVER.exists()):
        return f"there is no browser at {CHROMIUM} with its driver at {DRIVER}: `make setup-browser` installs them"
    return None if AXE.exists() else f"there is no {AXE.relative_to(REPOSITORY)}: `make setup-browser` puts it there"


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    missing = _missing()
    if missing is not None:
        if os.environ.get("TOPICLEDGER_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    started.set_script_timeout(120)
    yield started
    started.quit()


@pytest.fixture
def page(driver: Any, tmp_path: Path) -> Page:
    """Provide a browser that shows reports."""
    return Page(driver, tmp_path)


@pytest.fixture
def shown_rows(page: Page) -> Callable[[], int]:
    """Return the number of visible rows of the first listing."""
    rows = "tbody tr:not(.fold):not([hidden])"
    return lambda: int(page.run(f"return document.querySelector('.listing').querySelectorAll('{rows}').length"))
