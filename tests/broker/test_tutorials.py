"""The tutorials as a reader follows them: files are written, and commands run and print what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.invoking import invoke
from tests.broker.pages import TUTORIALS, Export, File, blocks, matches, steps
from topicledger_testing.embedded_kafka import EmbeddedKafka

ADDRESS = "localhost:9092"
"""The broker's address in the pages."""

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker without any topic."""
    with clusters.plain() as cluster:
        yield cluster


def follow(page: str, folder: Path, broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the page says in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    monkeypatch.setenv("TOPICLEDGER_CONFIG", str(folder / "my.toml"))
    done = 0
    for step in steps(blocks(page)):
        if isinstance(step, Export):
            for name, value in step.values().items():
                monkeypatch.setenv(name, value)
            continue
        if isinstance(step, File):
            path = folder / step.name
            text = step.text.replace(ADDRESS, broker.bootstrap_servers[0])
            path.write_text((path.read_text(encoding="utf-8") if step.added else "") + text, encoding="utf-8")
            continue
        result = invoke(*step.arguments)
        assert result.exit_code == step.code, f"{page}: {step.line}\n{result.output}"
        if step.output is not None:
            assert matches(step.output, result.stdout), f"{page}: {step.line}\n{result.stdout}"
        done += 1
    assert done > 3


def test_following_the_tutorials_prints_what_they_show(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second page adopts what the first one created, with a ledger of its own."""
    monkeypatch.setenv("LOGNAME", "alice")
    for page in TUTORIALS:
        folder = tmp_path / page
        folder.mkdir()
        if page != TUTORIALS[0]:
            settings = (tmp_path / TUTORIALS[0] / "my.toml").read_text(encoding="utf-8").partition("[changes]")[0]
            (folder / "my.toml").write_text(settings, encoding="utf-8")
        follow(page, folder, broker, monkeypatch)
