"""Every command that a page shows is one that the command line accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from scripts import generate_reference
from tests.broker import pages
from tests.broker.following import LEFT_OUT, left_out, page_of
from tests.commands import REPOSITORY
from topicledger.cli.options import ALIASES, Renamed
from topicledger.serving.command import main

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
SOURCES = sorted((REPOSITORY / "lib" / "topicledger").rglob("*.py"))
OTHERS = [
    *(REPOSITORY / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "Makefile")),
    *(path for folder in ("conf", "jobs", "scripts") for path in sorted((REPOSITORY / folder).glob("*.*"))),
]
PLACEHOLDERS = {"...": "x", r"(?<=[= ])N\b": "1", r"\$PWD": "/here", r"\bFORMAT\b": "strimzi"}
"""Parts of documented commands that stand for a value -> a value."""


OTHER_TOOLS = r"kafka-|make |mkdocs|pipx? |openssl|yarn |kubectl|PYSPARK_SUBMIT_ARGS|pytest|TOPICLEDGER_GOLDEN"
OTHER_OPTIONS = {"--conf", "--files", "--jars", "--packages", "--py-files", "--describe", "--list"}
"""Options of spark-submit and of Kafka's tools."""


def blocks(page: Path) -> Iterator[str]:
    """Yield the code blocks of a page that show commands: those for bash, and those with a prompt."""
    for block in pages.blocks(page):
        if block.language == "bash":
            yield block.text
        elif block.language in ("", "text"):
            yield "\n".join(re.findall(r"^ *\$ (.*)", block.text, re.M))


def shown(page: Path) -> Iterator[str]:
    """Yield the commands of a page: those in blocks, and those within sentences that have an option with its value."""
    for block in blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.search(r"(?:^ *|[&;|] +)(topicledger [a-z].*|\./spark-submit\.sh jobs/.*)", line):
                yield found[1]
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for span in re.findall(r"`([^`\n]+)`", text):
        if re.match(rf"topicledger [a-z]|({'|'.join(main.commands)}) .*--[\w-]+ [^-]", span):
            yield span


def parsed(line: str) -> click.Context:
    """Return the context of the command of a line. Raises click's errors if the command line is wrong."""
    line = re.sub(r"^\./spark-submit\.sh jobs/(\w+)\.py", lambda name: f"topicledger {name[1].replace('_', '-')}", line)
    for pattern, value in PLACEHOLDERS.items():
        line = re.sub(re.escape(pattern) if pattern == "..." else pattern, value, line)
    words = shlex.split(line, comments=True)
    words = words[1:] if words[0] == "topicledger" else words
    ends = [at for at, word in enumerate(words) if word in ("&", ">", "|")]
    words = words[: ends[0]] if ends else words
    command: click.Command = main
    context: click.Context | None = None
    while isinstance(command, click.Group):
        # With its settings: a command keeps the names of its help option from the first context that it gets.
        context = click.Context(command, context, info_name=command.name, **command.context_settings)
        inner = command.get_command(context, words[0])
        if inner is None:
            raise click.UsageError(f"no command {words[0]}", context)
        command, words = inner, words[1:]
    return command.make_context(command.name, words, context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_commands_are_accepted(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICLEDGER_CONFIG", "settings.toml")
    wrong = []
    for line in shown(page):
        try:
            context = parsed(line)
        except click.ClickException as error:
            wrong.append(f"{line}: {error.format_message()}")
        else:
            words = [word.partition("=")[0] for word in line.split()]
            wrong += [f"{line}: {name} isn't in its help" for name in unshown(context.command) if name in words]
    assert wrong == []


def unshown(command: click.Command) -> set[str]:
    """The names of options that the command accepts and its help doesn't show."""
    chosen = [each for each in command.params if isinstance(each, click.Option)]
    return {name for each in chosen for name in (each.opts if each.hidden else getattr(each, "former", []))}


def former_options() -> dict[str, tuple[set[str], set[str]]]:
    """Former names of options -> the commands that had them, and those that have an option of that name now."""
    commands = dict(generate_reference.commands())
    found: dict[str, tuple[set[str], set[str]]] = {}
    for name, command in commands.items():
        for each in command.params:
            for former in each.former if isinstance(each, Renamed) else ():
                now = {other for other, that in commands.items() if any(former in one.opts for one in that.params)}
                found.setdefault(former, (set(), now))[0].add(name)
    return found


# The generated page of commands has the options that help shows, each below its command.
OF_OPTIONS = [page for page in (*PAGES, *pages.EXAMPLES, *OTHERS) if page.name != "command-line.md"]


@pytest.mark.parametrize("page", OF_OPTIONS, ids=lambda page: page.name)
def test_pages_call_each_option_by_its_name(page: Path) -> None:
    """A line with a former name is about a command that has an option of this name now."""
    wrong = []
    for former, (_, now) in former_options().items():
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.search(rf"(?<![\w-]){former}(?![\w=-])", line) and not any(command in line for command in now):
                wrong.append(line)
    assert wrong == []


def test_messages_call_each_option_by_its_name() -> None:
    """A sentence that names a command and then a former name of its option gives advice that no help explains."""
    wrong = []
    for path in SOURCES:
        # A literal in several parts is one text.
        text = re.sub(r'"\n\s*f?"', "", path.read_text(encoding="utf-8"))
        for former, (had, now) in former_options().items():
            named = "|".join(command.split()[-1] for command in had)
            found = re.findall(rf"\b(?:{named})\b[^.;\n]*(?<![\w-]){former}(?![\w-])[^\n]*", text)
            wrong += [f"{path.name}: {each}" for each in found if not any(command in each for command in now)]
    assert wrong == []


@pytest.mark.parametrize("page", [*PAGES, *pages.EXAMPLES], ids=lambda page: page.name)
def test_pages_call_each_command_by_its_name(page: Path) -> None:
    former = "|".join(ALIASES)
    text = page.read_text(encoding="utf-8")
    assert re.findall(rf"(?:topicledger |jobs/|job=\")(?:{former})\b|`(?:{former}) -", text) == []


def options(group: click.Group = main) -> set[str]:
    """All options of all commands."""
    found = {"--cold", "--help"}
    for command in group.commands.values():
        found |= options(command) if isinstance(command, click.Group) else set()
        found |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_options_exist(page: Path) -> None:
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    spans = [each for each in re.findall(r"`([^`\n]+)`", text) if not re.match(OTHER_TOOLS, each)]
    named = {name for each in spans for name in re.findall(r"(?<!\S)--[a-z][a-z-]+", each)}
    assert sorted(named - options() - OTHER_OPTIONS) == []


def test_commands_of_pages_are_found() -> None:
    assert sum(len(list(shown(page))) for page in PAGES) > 80


def unfollowed(page: str, tests: str) -> Iterator[str]:
    """Yield what the tests of how-tos don't run of a page's commands, and don't leave out for a reason either."""
    for block in pages.blocks(page):
        shows = block.language in ("bash", "sh") or re.search(r"^(\$ )?topicledger ", block.text, re.M)
        if not shows or left_out(page, block):
            continue
        if page not in map(page_of, re.findall(r"^def (test_\w+)\(page:", tests, re.M)):
            yield f"no test is named for its page: {block.lines[0]}"
        if block.language == "bash":
            yield from (line for line in block.lines if not re.match(r"topicledger .*[^&]$|export ", line))
        elif not block.text.startswith("$ "):
            yield f"neither bash nor $: {block.lines[0]}"


def test_each_block_of_commands_is_followed_or_left_out_for_a_reason() -> None:
    """The test is named for its page, and fails if commands are left."""
    tests = (REPOSITORY / "tests" / "broker" / "test_how_tos.py").read_text(encoding="utf-8")
    names = sorted({path.name for path in pages.DOCS.glob("*.md")} - {*pages.TUTORIALS})
    assert {name: found for name in names if (found := list(unfollowed(name, tests)))} == {}
    used = [key for key in LEFT_OUT if any(each.text.startswith(key[1]) for each in pages.blocks(key[0]))]
    assert used == list(LEFT_OUT)
