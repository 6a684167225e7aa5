"""`make broker` says what it does before it waits: its first start archives Java's classes, which takes minutes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import REPOSITORY
from topicledger_testing import embedded_kafka
from topicledger_testing.options import EmbeddedKafkaError


def test_the_archive_of_classes_is_announced_before_it_is_made(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "archive_classes.sh"
    script.parent.mkdir()
    script.write_text((REPOSITORY / "scripts" / "archive_classes.sh").read_text(encoding="utf-8"))
    submit = tmp_path / "spark-submit.sh"
    # The script prints the output of a failing job after its own line.
    submit.write_text("#!/bin/bash\necho submitted\nexit 1\n")
    submit.chmod(0o755)
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=30)
    first, second, _ = done.stderr.splitlines()
    assert re.fullmatch(r"setup: archiving Java's classes, once, .* minutes", first)
    assert second == "submitted"


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
