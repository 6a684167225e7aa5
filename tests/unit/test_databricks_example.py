"""examples/databricks: what may be checked of the bundle without Databricks."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import click
import pytest
import yaml

from tests.commands import REPOSITORY
from topicledger import cli
from topicledger.cli import main

EXAMPLE = REPOSITORY / "examples" / "databricks"
BUNDLE = EXAMPLE / "databricks.yml"
CHECKER = REPOSITORY / "build" / "ci" / "bin" / "python"
VALIDATE = """
import sys
import yaml
from databricks.bundles.jobs import Job
for job in yaml.safe_load(sys.stdin)["resources"]["jobs"].values():
    Job.from_dict(job)
"""


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(BUNDLE.read_text())["resources"]["jobs"]
    return found


def require_options(arguments: Sequence[str]) -> None:
    """Raise click's error unless the command has these options."""
    command = main.get_command(click.Context(main), arguments[0])
    assert command is not None
    command.make_context(arguments[0], list(arguments[1:]))


def test_wheel_task_uses_options_that_exist() -> None:
    (task,) = jobs()["classic"]["tasks"]
    require_options(task["python_wheel_task"]["parameters"])


@pytest.mark.parametrize("code", [0, 4])
def test_notebook_gives_its_task_the_exit_code_and_the_result(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    (task,) = jobs()["serverless"]["tasks"]
    widgets = dict(task["notebook_task"]["base_parameters"])
    dbutils = MagicMock()
    dbutils.widgets.get.side_effect = widgets.__getitem__
    dbutils.secrets.get.side_effect = lambda scope, secret: f"{scope}/{secret}"
    monkeypatch.setenv("KAFKA_PASSWORD", "")
    passwords: list[str] = []

    def provision(arguments: Sequence[str]) -> None:
        require_options(arguments)
        assert widgets["settings"] in arguments
        passwords.append(os.environ["KAFKA_PASSWORD"])
        found = {"state": "finished", "failure_count": 2, "outcomes": {"ok": 1, "failed": 2}, "stopped": ["x"] * 9}
        Path(arguments[arguments.index("--result-file") + 1]).write_text(json.dumps(found), encoding="utf-8")
        raise SystemExit(code)

    monkeypatch.setattr(cli, "main", provision)
    notebook = EXAMPLE / task["notebook_task"]["notebook_path"]
    assert notebook.read_text().startswith("# Databricks notebook source\n")
    with pytest.raises(RuntimeError, match="ended with exit code 4") if code else nullcontext():
        runpy.run_path(str(notebook), {"dbutils": dbutils})
    assert passwords == ["topicledger/kafka-password"]
    assert {call.args[0] for call in dbutils.widgets.text.call_args_list} == set(widgets)
    assert dict(call.args for call in dbutils.jobs.taskValues.set.call_args_list) == {
        "exit_code": code,
        "state": "finished",
        "failure_count": 2,
        "outcomes": {"ok": 1, "failed": 2},
    }


def test_jobs_are_what_the_published_models_of_bundles_allow() -> None:
    if not CHECKER.exists():
        assert os.environ.get("TOPICLEDGER_CI_EXAMPLES") != "required", "make setup-ci installs what checks them"
        pytest.skip("make setup-ci installs what checks them")

    def checked(bundle: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([CHECKER, "-c", VALIDATE], input=bundle, capture_output=True, text=True, check=False)

    bundle = BUNDLE.read_text()
    assert checked(bundle).stderr == ""
    wrong = checked(bundle.replace("quartz_cron_expression", "cron"))
    assert "Unexpected field 'cron' for class CronSchedule" in wrong.stderr
