"""Every option of every command does something for it."""

from __future__ import annotations

import ast
import dataclasses
import runpy
import shlex
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import topicledger
from scripts import generate_reference
from tests.commands import REPOSITORY
from topicledger.cli import main
from topicledger.cli.options import ALIASES, Options

PACKAGE = Path(topicledger.__file__).parent
COMMON = {field.name for field in dataclasses.fields(Options) if field.init}
CHECKS_ONLY = {"open_settings", "_carried_out", "_failed"}
"""Functions that read options of every command, and for which these do nothing yet."""


def functions() -> dict[str, ast.FunctionDef]:
    found = {}
    for path in (*(PACKAGE / "cli").glob("*.py"), PACKAGE / "serving" / "command.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found[node.name] = node
    return found


def options_read(name: str, known: dict[str, ast.FunctionDef]) -> set[str]:
    """Options that a function reads, or a function that it gives all of them to."""
    found = {"config", "log_format", "verbose", "metrics_file"}
    for node in ast.walk(known[name]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "options":
            found.add(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            given = [*node.args, *(each.value for each in node.keywords)]
            passes = any(isinstance(each, ast.Name) and each.id == "options" for each in given)
            if passes and called in known and called not in CHECKS_ONLY | {name}:
                found |= options_read(called, known)
    return found


def test_no_command_has_an_option_that_does_nothing_for_it() -> None:
    known = functions()
    useless = [
        f"{name} --{option.replace('_', '-')}"
        for name, command in generate_reference.commands()
        if command.callback is not None and name not in ("help", "policies list", "schema manifests")
        for option in COMMON.intersection(each.name or "" for each in command.params)
        if option not in options_read(command.callback.__name__, known)
    ]
    assert sorted(useless) == []


def test_every_command_has_the_options_that_it_reads() -> None:
    known = functions()
    missing = [
        f"{name} --{option.replace('_', '-')}"
        for name, command in generate_reference.commands()
        if command.callback is not None and name not in ("help", "policies list", "schema manifests")
        for option in options_read(command.callback.__name__, known) & COMMON
        if option not in {each.name for each in command.params}
    ]
    assert sorted(missing) == []


def test_every_command_reads_its_own_options() -> None:
    known = functions()
    unread = []
    for name, command in generate_reference.commands():
        function = known[getattr(command.callback, "__name__", "")]
        read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        given = {each.arg for each in [*function.args.args, *function.args.kwonlyargs]}
        unread += [f"{name}: {each}" for each in sorted(given - read)]
        # Those of a scope are one argument, `limits`; a positional run is `options.run_id`.
        taken = {each.name or "" for each in command.params} - COMMON - {"owner", "topic", "resource", "version", "run"}
        kwargs = function.args.kwarg is not None
        unread += [f"{name}: {each} isn't taken" for each in sorted(taken - given) if not kwargs]
    assert unread == []


@pytest.mark.parametrize("option", ["--topic", "--resource", "--owner"])
def test_a_blank_limit_is_an_error_instead_of_everything(option: str) -> None:
    """Such as from a variable of a shell that isn't set."""
    done = CliRunner().invoke(main, ["plan", option, " "])
    assert done.exit_code == 2
    assert "is blank: leave the option out" in " ".join(done.output.split())


def test_each_alias_is_its_command_and_not_listed() -> None:
    run = CliRunner().invoke
    for alias, name in ALIASES.items():
        assert run(main, [alias, "-h"]).stdout.splitlines()[1:] == run(main, [name, "-h"]).stdout.splitlines()[1:]
        assert alias not in main.commands
        offered, its = (ShellComplete(main, {}, "topicledger", "_TOPICLEDGER_COMPLETE").get_completions(given, text)
                        for given, text in (([], name[:2]), ([alias], "--")))  # fmt: skip
        assert (name in {each.value for each in offered}, alias in {each.value for each in offered}) == (True, False)
        assert "--config" in {each.value for each in its}


def test_each_job_file_is_a_command_by_a_name_that_is_accepted() -> None:
    context = click.Context(main)
    jobs = {path.stem.replace("_", "-"): runpy.run_path(str(path)) for path in (REPOSITORY / "jobs").glob("*.py")}
    wrong = [name for name, its in jobs.items() if main.get_command(context, name) not in its.values()]
    assert wrong == []
    # These need no Spark.
    assert set(main.commands) - set(jobs) == {"help", "schema"}


def test_environment_names_the_settings_and_help_has_every_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOPICLEDGER_CONFIG", str(tmp_path / "none.toml"))
    run = CliRunner().invoke
    assert f"{tmp_path}/none.toml: no such file" in run(main, ["plan"]).stderr
    assert run(main, ["help", "runs", "show"]).stdout.startswith("Usage: main runs show [OPTIONS]")
    assert run(main, ["runs", "show", "-h"]).stdout == run(main, ["runs", "show", "--help"]).stdout
    assert (lost := run(main, ["help", "plam"])).exit_code == 2
    assert "there is no command plam" in lost.stderr
    versions = [part.split()[0] for part in run(main, ["--version"]).stdout.split(", ")]
    assert versions == ["topicledger", "spark", "delta", "kafka-python"]


def test_lists_of_commands_show_whole_sentences_in_80_columns() -> None:
    groups = [[]] + [[name] for name, each in main.commands.items() if isinstance(each, click.Group)]
    for path in groups:
        told = CliRunner().invoke(main, [*path, "-h"], terminal_width=80).stdout
        assert [line for line in told.partition("Commands:")[2].splitlines() if line.endswith("...")] == []


def test_each_command_shows_an_example_that_it_accepts() -> None:
    for name, command in generate_reference.commands():
        start, _, rest = (command.epilog or "").partition(f"topicledger {name}")
        assert start == "Example: ", name
        needs_settings = any(each.name == "config" for each in command.params)
        command.make_context(name, shlex.split(rest) + ["--config", __file__] * needs_settings)


def owner_options() -> list[tuple[str, str]]:
    return [
        (name, parameter.opts[0])
        for name, command in generate_reference.commands()
        for parameter in command.params
        if parameter.opts[0].endswith("owner") and parameter.metavar != "COLUMN"
    ]


@pytest.mark.parametrize(("command", "option"), owner_options())
def test_a_blank_owner_is_refused(command: str, option: str) -> None:
    """As from a variable that isn't set."""
    result = CliRunner().invoke(main, [*command.split(" "), option, " "])
    assert (result.exit_code, "a name is blank: leave the option out" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("name", ["", " ", "\u200b"])
def test_a_blank_requester_is_refused(name: str) -> None:
    """As from a variable that isn't set: the OS user would be the requester, and the author could approve."""
    result = CliRunner().invoke(main, ["plan", "--requested-by", name])
    assert (result.exit_code, "the name is blank: leave the option out" in result.stderr) == (2, True), result.output
