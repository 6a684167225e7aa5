"""Logs as JSON: one object a line, which says what it is about."""

from __future__ import annotations

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from topicledger.config import logs

log = logging.getLogger("topicledger.tests")


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_says_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", verbose=True, run_id="nightly")
    log.info("before")
    with logs.about(cluster="orders"), logs.about(batch=3):
        with logs.about(attempt=2):
            log.warning("within\nit")
        log.info("after it")
    lines = told(capsys)
    assert [(line["cluster"], line["batch"], line["attempt"]) for line in lines] == [
        (None, None, None),
        ("orders", 3, 2),
        ("orders", 3, None),
    ]
    assert list(lines[1]) == ["time", "level", "logger", "run_id", "cluster", "batch", "attempt", "message"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", str(lines[1]["time"]))
    assert (lines[1]["level"], lines[1]["run_id"], lines[1]["message"]) == ("WARNING", "nightly", "within\nit")


def test_threads_are_about_their_own_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", verbose=True)

    def one(name: str) -> None:
        with logs.about(cluster=name):
            for _ in range(50):
                log.info("%s", name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, ("a", "b", "c", "d")))
    lines = told(capsys)
    assert len(lines) == 200
    assert all(line["cluster"] == line["message"] for line in lines)


def test_without_verbose_only_warnings_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", verbose=False)
    log.info("not this")
    log.warning("this")
    assert [line["message"] for line in told(capsys)] == ["this"]
