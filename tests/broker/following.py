"""A page of the docs that a test follows, command by command, on an estate that it prepares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.broker.invoking import done, invoke
from tests.broker.pages import Block, Command, Export, blocks, matches, steps
from tests.commands import sasl_client
from topicledger_testing.embedded_kafka import EmbeddedKafka

LEFT_OUT: Mapping[tuple[str, str], str] = {
    ("clusters.md", "export HADOOP_CONF_DIR="): "needs a YARN: tests/yarn submits such a job",
    ("installation.md", "make setup"): "makes what this test runs in",
    ("installation.md", "make wheel"): "makes a wheel: scripts/test_spark.sh installs it",
    ("installation.md", "export SPARK_MASTER="): "needs a Spark cluster: test_standalone_cluster.py has one",
    ("installation.md", "spark-submit --master "): "needs a Spark cluster: test_standalone_cluster.py has one",
    ("installation.md", 'eval "$(_TOPICLEDGER_COMPLETE='): "needs an interactive shell: test_options.py completes",
    ("serve.md", "topicledger serve "): "starts a process that stays: test_serving.py does",
    ("storage.md", "make setup-s3"): "needs an S3: tests/s3 has one",
    ("storage.md", 'settings="--conf spark.hadoop.fs.s3a'): "needs an S3: tests/s3 has one",
}
"""(page, beginning of a block) -> why no test here runs the block."""


def page_of(test: str) -> str:
    """Return the page that a test is named for."""
    return f"{test.removeprefix('test_').replace('_', '-')}.md"


def left_out(page: str, block: Block) -> bool:
    """Whether a block is in LEFT_OUT."""
    return any(page == name and block.text.startswith(start) for name, start in LEFT_OUT)


class Page:
    """A page, in a folder where its readers would be; `values` are what its placeholders stand for, by placeholder."""

    def __init__(self, name: str, folder: Path, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.kafka = kafka
        self.values = {"SOMEBODY-ELSE": "bob"}
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._blocks = [block for block in blocks(name) if not left_out(name, block)]
        self._left = list(steps(iter(self._blocks)))
        options = kafka.client_options()
        self._client = sasl_client(options["sasl_plain_username"], "env:ORDERS_PASSWORD", "orders")
        monkeypatch.setenv("ORDERS_PASSWORD", options["sasl_plain_password"])
        monkeypatch.setenv("LOGNAME", "alice")
        monkeypatch.setenv("COLUMNS", "300")
        monkeypatch.setenv("PWD", str(folder))
        monkeypatch.chdir(folder)
        self.settings()

    def settings(self, more: str = "", name: str = "my.toml", tables: str = "ledger") -> None:
        """Write settings, of tables in a folder of that name."""
        servers = str(self.kafka.bootstrap_servers).replace("'", '"')
        cluster = f"[clusters.orders]\nbootstrap_servers = {servers}\n{self._client}"
        (self._folder / tables).mkdir(exist_ok=True)
        self.write(name, f'[tables]\nroot = "{self._folder / tables}"\n{cluster}{more}')

    def write(self, name: str, text: str) -> Path:
        """Write a file that the page takes for granted."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def block(self, start: str) -> str:
        """Return the block that begins like this: the test has to do with it what its reader would."""
        (found,) = (block.text for block in self._blocks if block.text.startswith(start))
        return found

    def do(self, *arguments: str, code: int = 0) -> str:
        """Run a command that the page takes for granted; return its stdout."""
        return done(*arguments, "--config", "my.toml", code=code)

    def declare(self, text: str, *more: str) -> None:
        """Load rows of cluster `orders` that the page takes for granted."""
        self.do("load-manifests", str(self.write("loaded.yaml", f"cluster: orders\n{text}")), *more)

    def run(self, start: str, code: int | None = None, **values: str) -> Result:
        """Run the page's next command, which begins like this, and compare what it prints; `values` as those of all.

        The code is that of the page, if it shows one.
        """
        step = self._left.pop(0)
        while isinstance(step, Export):
            for name, value in step.values().items():
                self._monkeypatch.setenv(name, value)
            step = self._left.pop(0)
        assert isinstance(step, Command), step
        assert step.line.startswith(f"topicledger {start}"), step.line
        given = {**self.values, **values}
        result = invoke(*(_filled(word, given) for word in step.arguments))
        assert result.exit_code == (step.code if code is None else code), f"{self.name}: {step.line}\n{result.output}"
        if step.output is not None:
            shown = _filled(step.output, given)
            assert matches(shown, result.output), f"{self.name}: {step.line}\n{shown}\n--- printed:\n{result.output}"
        return result

    def left(self) -> list[Any]:
        """Return the steps that were not followed, but for exports: those need no command after them."""
        return [step for step in self._left if not isinstance(step, Export)]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        text = re.sub(rf"(?<![\w-]){re.escape(placeholder)}(?![\w-])", lambda _, value=value: value, text)
    return text
