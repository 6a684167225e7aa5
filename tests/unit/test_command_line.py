"""The command line says one thing by one word: names of options, what they take, and what commands print as JSON."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import topicledger
from scripts import generate_reference
from topicledger.cli.durations import Duration
from topicledger.cli.options import NEW_ID, RUN_ID, Renamed
from topicledger.serving.command import main

PACKAGE = Path(topicledger.__file__).parent
NAMES = dict(generate_reference.commands())
FORMER = {
    ("prune", "--topic"): "--topics",
    ("export", "--topic"): "--pattern",
    ("report", "--to"): "--out",
    ("runs verify", "--since-run"): "--from",
    ("access who", "--acls"): "--from",
    ("access what", "--acls"): "--from",
}
NEEDED = {"prune": ["--idle-days", "1"], "access what": ["--principal", "User:a"]}
"""Other options that a command requires."""
NEW_RUNS = {"files/load.py": "load-manifests", "ledger/maintain.py": "maintain", "cli/clusters.py": "clusters accept"}
"""Modules that refuse the id of a run that exists -> their commands."""
NO_RESULT = {"config/settings.py", "observe/cluster_queries.py", "model/prune.py", "model/scope.py"}
"""Modules whose JSON isn't a command's result: clusters for executors, and values of columns."""


def shown_options() -> Iterator[tuple[str, click.Option]]:
    for name, command in NAMES.items():
        for each in command.params:
            if isinstance(each, click.Option) and not each.hidden:
                yield name, each


def parsed(name: str, *arguments: str) -> dict[str, object]:
    """Return the values of a command's parameters."""
    return NAMES[name].make_context(name, [*arguments, "--config", __file__]).params


def test_names_have_dashes_and_no_underscores() -> None:
    names = [word for name in NAMES for word in name.split()]
    options = [each for _, option in shown_options() for each in (*option.opts, *option.secondary_opts) if each != "-f"]
    assert len(options) > 100
    wrong = [each for each in (*names, *options) if not re.fullmatch(r"(--)?[a-z]+(-[a-z]+)*", each)]
    assert wrong == []


def test_former_names_of_options_are_accepted_and_not_shown() -> None:
    renamed = {(name, each.opts[0]): each for name, each in shown_options() if isinstance(each, Renamed)}
    assert {of: each.former for of, each in renamed.items()} == {of: [name] for of, name in FORMER.items()}
    for (name, now), former in FORMER.items():
        value, needed = "declared" if now == "--acls" else "x", NEEDED.get(name, [])
        by_now, by_former = (parsed(name, each, value, *needed) for each in (now, former))
        assert by_now == by_former
        assert value in str(by_former)
        told = CliRunner().invoke(main, [*name.split(), "-h"]).stdout
        assert (f"{now} " in told, f"{former} " in told) == (True, False)


def test_options_that_are_given_again_add_to_the_first() -> None:
    """None is silently dropped."""
    of_export = parsed("export", "--topic", "^a", "--pattern", "^b", "--exclude", "^c", "--exclude", "^d")
    assert (of_export["patterns"], of_export["exclude"]) == (("^a", "^b"), ("^c", "^d"))
    assert parsed("plan", "--only", "creates", "--only", "deletes, creates")["only"] == ("creates", "deletes")
    approve = ["runs", "approve", "x", "--config", __file__, "--allow"]
    found = CliRunner().invoke(main, [*approve, "deletes=2", "--allow", "losses=1,deletes=3"])
    assert (found.exit_code, "--allow has deletes twice" in found.stderr) == (2, True), found.output


def test_an_option_takes_the_same_kind_of_value_everywhere() -> None:
    kinds: dict[str, set[str]] = {}
    for _, each in shown_options():
        text = isinstance(each.type, click.types.StringParamType)
        kind = (each.metavar or "TEXT") if text else type(each.type).__name__
        for name in each.opts:
            kinds.setdefault(name, set()).add("flag" if each.is_flag else kind)
    # One topic, or all that match.
    assert kinds.pop("--topic") == {"NAME", "PATTERN"}
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
    assert {name for name, found in kinds.items() if found & {"PATTERN", "REGEX"}} == {"--resource", "--exclude"}
    commands_with_from = [name for name, each in shown_options() if "--from" in each.opts]
    assert commands_with_from == ["load-manifests"]


def test_every_file_that_a_command_writes_is_named_by_to() -> None:
    """Beside results, metrics and states, which are other files than what the command makes."""
    others = {"--config", "--result-file", "--metrics-file", "--health-file", "--file", "--index"}
    found = {each.opts[-1] for _, each in shown_options() if isinstance(each.type, click.Path)}
    assert found == others | {"--to"}


def test_every_length_of_time_takes_units() -> None:
    timely = re.compile(r"second|minute|hour|\bdays?\b|interval|how long|this long|older than")
    options = {(name, each.opts[0]): each for name, each in shown_options()}
    about_time = {of for of, each in options.items() if not each.is_flag and timely.search(each.help or "")}
    assert len(about_time) > 10
    assert about_time == {of for of, each in options.items() if isinstance(each.type, Duration)}


def test_a_command_that_only_does_something_when_asked_takes_dry_run_too() -> None:
    found = 0
    for name, each in shown_options():
        if "--execute" in each.opts:
            found += 1
            assert "--dry-run" in each.secondary_opts
            given = ([], ["--dry-run"], ["--execute"])
            assert [parsed(name, *options)["execute"] for options in given] == [False, False, True]
    assert found == 1


def test_run_id_is_for_new_and_open_runs_and_others_are_arguments() -> None:
    helps = {name: each.help for name, each in shown_options() if "--run-id" in each.opts}
    new = {
        NEW_RUNS[str(path.relative_to(PACKAGE))]
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^ +require_new\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {name for name, text in helps.items() if text == NEW_ID} == new == set(NEW_RUNS.values())
    assert {name for name, text in helps.items() if text == RUN_ID} == {
        "plan",
        "provision",
        "prune",
        "rebalance",
        "drift",
    }
    assert set(helps) - new - {name for name, text in helps.items() if text == RUN_ID} == {"apply"}
    context = click.Context(click.Command(None))
    for name, command in NAMES.items():
        hidden = [each for each in command.params if "--run-id" in each.opts and getattr(each, "hidden", False)]
        takes_run = any(each.make_metavar(context) in ("RUN_ID", "[RUN_ID]") for each in command.params)
        assert bool(hidden) == takes_run, name
        assert not takes_run or name not in helps


@pytest.mark.parametrize("command", [*NAMES.values(), *main.commands.values()], ids=lambda each: each.name)
def test_h_is_an_option_of_a_command_alone(command: click.Command) -> None:
    """As spark-submit runs it."""
    context = click.Context(command, **command.context_settings)
    assert command.get_help_option_names(context) == ["-h", "--help"]


@pytest.mark.parametrize("name", NAMES)
def test_h_shows_the_help_of_every_command(name: str) -> None:
    done = CliRunner().invoke(main, [*name.split(), "-h"])
    assert (done.exit_code, done.stdout.split("\n")[0].startswith(f"Usage: main {name}")) == (0, True)
    assert "-h, --help" in done.stdout


def results(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that a module of the command line prints as JSON."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print_result":
            yield node.args[0]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dumps":
            yield node


def is_document(value: ast.expr | None) -> bool:
    """Whether an expression is a call of `document`, or of a method `to_json`, which is checked by itself."""
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    return (isinstance(called, ast.Name) and called.id == "document") or (
        isinstance(called, ast.Attribute) and called.attr == "to_json"
    )


def test_every_json_result_is_a_document_with_its_version_and_exit_code() -> None:
    """The JSON Schema, and values within a line of text, are no results."""
    wrong, right = [], 0
    for path in [*(PACKAGE / "cli").glob("*.py"), PACKAGE / "serving" / "command.py"]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for value in results(tree):
            found = named.get(value.id) if isinstance(value, ast.Name) else value
            right += is_document(found)
            if not is_document(found) and path.name not in (
                "schema.py",
                "explain.py",
                "loading.py",
                "live_policies.py",
            ):
                wrong.append(f"{path.name}:{value.lineno}")
    assert wrong == []
    assert right > 15


def test_every_to_json_of_a_result_returns_a_document() -> None:
    wrong, right = [], 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "to_json":
                ends = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
                right += all(map(is_document, ends))
                if not all(map(is_document, ends)) and str(path.relative_to(PACKAGE)) not in NO_RESULT:
                    wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []
    assert right > 5
