"""Pages of the docs as steps: files to write, commands to run, and the output that they show."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.commands import REPOSITORY

DOCS = REPOSITORY / "docs"
_FILES = sorted((REPOSITORY / "examples").rglob("*"))
EXAMPLES = [path for path in _FILES if path.is_file() and path.suffix != ".pyc"]
"""Files of examples, without those that Python leaves when a test imports one."""
TUTORIALS = ("tutorial.md", "adopt.md")
FENCE = re.compile(r'^( *)```(\w*)(?: title="([\w.]+)(, added)?")?\n(.*?)^\1```', re.M | re.S)
VARIABLE = (
    (r"\n\.\.\.\n", r"\n(?s:.*)"),
    (r"\.\.\.", r".*"),
    (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z",) * 2,
    (r"\d{8}T\d{12}Z-[0-9a-f]{8}",) * 2,
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"[\w-]{22}|[0-9a-f-]{36}"),
)
"""Parts of documented output that differ from run to run, and what they match: a line `...` stands for any lines."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page; `name` is that of the file which the block is, or is `added` to."""

    language: str
    name: str | None
    added: bool
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines but for empty ones; a command of several lines is one."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file that the page tells the reader to write, or to add to."""

    name: str
    text: str
    added: bool


@dataclass(frozen=True, kw_only=True)
class Export:
    """Variables of the environment that the page tells the reader to set."""

    line: str

    def values(self) -> dict[str, str]:
        """Return name -> value, with the variables that a value names."""
        named = (word.partition("=") for word in shlex.split(self.line, comments=True)[1:])
        return {name: os.path.expandvars(value) for name, _, value in named}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, its exit code, and what the page shows of its output, if anything."""

    line: str
    code: int
    output: str | None

    @property
    def arguments(self) -> list[str]:
        """The words after `topicledger`."""
        return shlex.split(self.line, comments=True)[1:]


def blocks(page: str | Path) -> Iterator[Block]:
    """Yield the blocks of a page: a name in docs/, or the path of another file."""
    for fence in FENCE.finditer((DOCS / page).read_text(encoding="utf-8")):
        indent, language, name, added, text = fence.groups()
        text = re.sub(f"^{indent}", "", text, flags=re.M)
        yield Block(language=language, name=name, added=added is not None, text=text)


def steps(found: Iterator[Block]) -> Iterator[File | Export | Command]:
    """Yield what blocks tell a reader to do, in order."""
    for block in found:
        if block.name is not None:
            yield File(name=block.name, text=block.text, added=block.added)
        elif block.language == "bash":
            for line in block.lines:
                if line.startswith("export "):
                    yield Export(line=line)
                elif line.startswith("topicledger "):
                    yield _command(line, None)
        elif block.text.startswith("$ "):
            for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
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
        pattern += f"(?:{found[0]})" if found else re.escape(part)
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None
