"""Commands run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from topicledger import cli


def invoke(*arguments: str | Path, text: str | None = None) -> Result:
    """Run a command; a stack trace on any stream is a failure, whatever the exit code."""
    result = CliRunner().invoke(cli.main, [str(each) for each in arguments], input=text)
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def done(*arguments: str | Path, code: int = 0) -> str:
    """Run a command that ends with this exit code; return its stdout."""
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def planned(config: Path, *more: str | Path, code: int = 0) -> dict[str, Any]:
    """Run `plan`; return its result."""
    document: dict[str, Any] = json.loads(done("plan", "--config", config, "--format", "json", *more, code=code))
    return document


MANIFEST = """
cluster: main
defaults: {num_partitions: 2, replication_factor: 1, owner: tests}
topics:
  - {topic: commands.one, configs: {retention.ms: 3600000}}
  - {topic: commands.two}
  - {topic: commands.three, replication_factor: 3}
"""


def load(config: Path, text: str = MANIFEST, *more: str) -> Result:
    file = config.with_name("manifest.yaml")
    file.write_text(text)
    return invoke("load-manifests", file, "--config", config, *more)


def error_of(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: "), result.stderr
    return result.stderr
