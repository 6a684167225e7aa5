"""`make broker` says what it does before it waits: its first start archives Java's classes, which takes minutes."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from tests.commands import REPOSITORY
from topicledger_testing import embedded_kafka
from topicledger_testing.options import EmbeddedKafkaError


def test_the_archive_of_classes_is_announced_before_it_is_made() -> None:
    """Make only prints what it would do if the script were new."""
    asked = [
        "make",
        "--no-print-directory",
        "--dry-run",
        "--what-if=scripts/archive_classes.sh",
        "build/classes/.complete",
    ]
    done = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    *_, says, does = done.stdout.splitlines()
    assert re.fullmatch(r"echo \"setup: archiving Java's classes, once, .* minutes\" >&2", says)
    assert does == "scripts/archive_classes.sh"


def test_a_broker_is_announced_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def start(*_: Any) -> Any:
        said.append(capsys.readouterr().err)
        raise EmbeddedKafkaError("not here")

    monkeypatch.setattr(embedded_kafka, "EmbeddedKafka", start)
    monkeypatch.setattr(embedded_kafka.signal, "signal", lambda *_: None)
    assert embedded_kafka.main(["--jars", "none"]) != 0
    assert said == ["Starting Kafka; its address follows.\n"]
    assert capsys.readouterr().out == "", "only the address, by which scripts find the broker"
