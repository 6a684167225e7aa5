"""The tutorials as a reader follows them: files are written, and commands run and print what the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters
from tests.broker.invoking import invoke
from tests.commands import REPOSITORY
from topicledger_testing.embedded_kafka import EmbeddedKafka

ADDRESS = "localhost:9092"
"""The broker's address in the pages."""
FENCE = re.compile(r'^( *)```(\w*)(?: title="([\w.]+)(, added)?")?\n(.*?)^\1```', re.M | re.S)
VARIABLE = (
    (r"\n\.\.\.\n", r"\n(?s:.*)"),
    (r"\.\.\.", r".*"),
    (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z",) * 2,
    (r"\d{8}T\d{12}Z-[0-9a-f]{8}",) * 2,
)
"""Parts of documented output that differ from run to run, and what they match: a line `...` stands for any lines."""

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file that the page tells the reader to write, or to add to."""

    name: str
    text: str
    added: bool


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, its exit code, and what the page shows of its output, if anything."""

    line: str
    code: int
    output: str | None


def steps(page: str) -> Iterator[File | Command]:
    """Yield what a page tells its reader to do, in order."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        indent, language, name, added, block = fence.groups()
        block = re.sub(f"^{indent}", "", block, flags=re.M)
        if name is not None:
            yield File(name=name, text=block, added=added is not None)
        elif language == "bash":
            yield from (_command(line, None) for line in block.splitlines() if line.startswith("topicledger "))
        elif block.startswith("$ "):
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                line, _, output = part.partition("\n")
                yield _command(line, output)


def _command(line: str, output: str | None) -> Command:
    code = re.search(r"# exit code (\d)$", line)
    return Command(line=line, code=int(code[1]) if code else 0, output=output)


def matches(shown: str, printed: str) -> bool:
    """Whether output is what a page shows."""
    pattern = ""
    for part in re.split(f"({'|'.join(variable for variable, _ in VARIABLE)})", shown.rstrip("\n") + "\n"):
        found = [matching for variable, matching in VARIABLE if re.fullmatch(variable, part)]
        pattern += found[0] if found else re.escape(part)
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker without any topic."""
    with clusters.plain() as cluster:
        yield cluster


def follow(page: str, folder: Path, broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the page says in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOPICLEDGER_CONFIG", str(folder / "my.toml"))
    done = 0
    for step in steps(page):
        if isinstance(step, File):
            path = folder / step.name
            text = step.text.replace(ADDRESS, broker.bootstrap_servers[0])
            path.write_text((path.read_text(encoding="utf-8") if step.added else "") + text, encoding="utf-8")
            continue
        result = invoke(*shlex.split(step.line, comments=True)[1:])
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
    for page in ("tutorial.md", "adopt.md"):
        folder = tmp_path / page
        folder.mkdir()
        if page == "adopt.md":
            settings = (tmp_path / "tutorial.md" / "my.toml").read_text(encoding="utf-8").partition("[changes]")[0]
            (folder / "my.toml").write_text(settings, encoding="utf-8")
        follow(page, folder, broker, monkeypatch)
