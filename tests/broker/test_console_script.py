"""The console script: what spark-submit does for the jobs, it does by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import commands
from tests.harness import UNREACHABLE


@pytest.mark.thorough
def test_it_is_as_quiet_as_a_submitted_job(tmp_path: Path) -> None:
    config = commands.settings_file(tmp_path, {"main": [UNREACHABLE]})
    (tmp_path / "ledger").mkdir()
    arguments = commands.command("runs", "list", "--config", str(config), "--format", "json")
    done = commands.run(arguments, TOPICLEDGER_LOG_DIR=str(tmp_path / "logs"))
    assert (done.returncode, json.loads(done.stdout)["runs"], done.stderr) == (0, [], "")
    assert (tmp_path / "logs" / "spark.log").read_text()
