"""Statements of pages about what the code does, which once were false, agree with it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import click
import pytest

from scripts import generate_reference
from tests.broker.pages import EXAMPLES
from tests.commands import REPOSITORY
from topicledger.config.guards import OF_KINDS
from topicledger.config.reading import read_settings
from topicledger.config.settings import OF_EVERY_POLICY
from topicledger.config.toml_table import TomlTable
from topicledger.resources import registry
from topicledger.serving.server import Pace

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def words(*path: str) -> str:
    """Return a file's text with single blanks."""
    return " ".join((REPOSITORY.joinpath(*path)).read_text(encoding="utf-8").split())


def one(pattern: str, *path: str) -> re.Match[str]:
    """Return the only match in a file."""
    (found,) = re.finditer(pattern, words(*path))
    return found


def test_serve_waits_after_errors_as_its_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = one(
        r"After exit code 1 it waits (\d+) s, (\w+) as long after each further one, at most `--every`",
        "docs",
        "serve.md",
    )
    first, factor, now = int(said[1]), {"twice": 2, "three times": 3}[said[2]], 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for every in (5.0, 300.0, 3600.0, 86_400.0):
        pace = Pace(every=every)
        for errors in range(20):
            pace.begun(1)
            pace.ended(1)
            waits = min(every, float(first * factor**errors))
            now += waits - 0.5
            assert not pace.is_due(1), (every, errors)
            now += 0.5
            assert pace.is_due(1), (every, errors)


def test_page_of_approvals_has_every_name_of_actions() -> None:
    """In its table: what `--only`, guards and `approvals_for` call each kind of action.

    Any change of a topic may be a loss or a disruption, which have guards and classes of their own.
    """
    also = {"losses", "disruptions"}
    page = (REPOSITORY / "docs" / "approvals.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [a-z].*\|$", page.partition("The names of actions in each option:")[2], re.MULTILINE)
    found = {}
    for row in rows[1:]:
        names = [set(re.findall(r"`([^`]+)`", cell)) for cell in row.strip("|").split("|")[1:]]
        found |= dict.fromkeys(names[0], (names[1] - also, names[2] - also))
    expected: dict[str, tuple[set[str], set[str]]] = {}
    for kind in registry.in_order():
        if kind.option is not None:
            guards, classes = expected.setdefault(kind.option, (set(), set()))
            guards.update([] if kind.safeguards.guard is None else [kind.safeguards.guard.allowed_as])
            classes.update(kind.safeguards.approved_as)
    assert expected
    assert found == expected


def test_page_of_settings_has_exactly_the_keys_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, set[str]] = {}
    only = TomlTable.only

    def noted(table: TomlTable, *known: str) -> None:
        where = re.sub(r"^(clusters|owners)\.a\b", r"\1.NAME", re.sub(r"\[1\]$", "", table.where))
        read.setdefault(where, set()).update(known)
        only(table, *known)

    monkeypatch.setattr(TomlTable, "only", noted)
    (tmp_path / "s.toml").write_text(
        """
        tables.root = "ledger"
        notify = [{url = "env:A"}]
        owners.a.topics = ["^a"]
        [clusters.a]
        bootstrap_servers = ["h:1"]
        changes.configs = "declared"
        oauth = {token_endpoint = "https://a/b", client_id = "a", client_secret = "env:A"}
        """
    )
    assert read_settings(tmp_path / "s.toml")[1] == []
    assert read["changes"] == read.pop("clusters.NAME.changes"), "the page has them together"
    sections = read.pop("") | {f"policies.{each}" for each in read["policies"] - {"recreated"}}
    # Values of a table that is one key.
    read = {name: set(keys) for name, keys in read.items() if name not in ("audit.severity", "guards.approvals_for")}
    read["policies"], read["policies.create"] = {"recreated"}, set(OF_EVERY_POLICY)
    read["clusters.NAME"] -= {"changes", "oauth"}
    page = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    shown: dict[str, set[str]] = {}
    named: set[str] = set()
    for head, body in re.findall(r"^### (.*)\n((?:(?!^##).*\n)*)", page, re.MULTILINE):
        heads = re.findall(r"\[\[?([\w.]+)\]", head)
        named |= set(heads)
        shown[heads[0]] = set(re.findall(r"^- `(\w+)` ", body, re.MULTILINE))
    # That one file can be named instead of tables is a rule of its own.
    assert shown.pop("owners") == {"file"}
    assert shown == read
    assert {"clusters.NAME.changes", "owners"} <= named
    assert {each for each in sections if each not in named and f"{each}.NAME" not in named} == set()


def test_owners_may_be_a_file_as_the_page_of_settings_says(tmp_path: Path) -> None:
    (tmp_path / "CODEOWNERS").write_text("main/a @team\n")
    (tmp_path / "s.toml").write_text(
        'tables.root = "t"\nclusters.main.bootstrap_servers = ["h:1"]\nowners.file = "CODEOWNERS"\n'
    )
    settings, problems = read_settings(tmp_path / "s.toml")
    assert (problems, [each.owners for each in settings.owners.lines]) == ([], [("team",)])


def test_pages_name_every_kind_of_action_that_policies_evaluate() -> None:
    kinds = [*generate_reference._SECTIONS]
    assert len(kinds) > 5
    assert [each for each in kinds if f"[[policies.{each}]]" not in words("docs", "policies.md")] == []
    said = one(r"Policies for (.*?) refuse or warn", "CHANGELOG.md")[1]
    of_kinds = {"acl": "ACLs", "quota": "quotas", "group_config": "group configs"}
    assert re.split(r", | and ", said) == [of_kinds.get(each, f"{each}s") for each in kinds]


def test_pages_count_kinds_as_there_are() -> None:
    """`two kinds of` and the like; one of these counts was out of date for long."""
    pages = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    found = [
        (page.name, number)
        for page in pages
        for number in re.findall(rf"\b({'|'.join(NUMBERS)}|\d+) kinds\b", page.read_text(encoding="utf-8"))
    ]
    tree = ast.parse((REPOSITORY / "tests" / "broker" / "test_action_kinds.py").read_text(encoding="utf-8"))
    (fixture,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "kinds")
    own = [each for each in ast.walk(fixture) if isinstance(each, ast.Call) and ast.unparse(each.func) == "sets_config"]
    assert found == [("CONTRIBUTING.md", NUMBERS[len(own) - 1])]


def test_all_guards_but_one_are_0_by_default_as_the_changelog_says(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('tables.root = "t"\nclusters.main.bootstrap_servers = ["h:1"]\n')
    guards = read_settings(tmp_path / "s.toml")[0].guards
    limits = {each.name for each in fields(guards) if each.name.startswith("max_")} - {"max_plan_age"}
    assert len(limits) > 5
    other = {name for name in limits if getattr(guards, name) != 0}
    assert {one(r"All guards but `(\w+)` are 0 by default", "CHANGELOG.md")[1]} == other
    assert {name for name in OF_KINDS if guards.of_kinds.get(name, 0) != 0} == set()
    assert "whatever the settings say" not in words("CHANGELOG.md")


def test_pages_say_that_a_skew_must_be_above_its_limit() -> None:
    """`test_drift` has a topic that is as uneven as is allowed."""
    assert "on two brokers differ by more than this" in one(r"`max_replica_skew` .*?default", "docs", "settings.md")[0]
    assert "differ by more than `audit.max_replica_skew`" in words("docs", "audit-and-drift.md")


def java(folder: Path, version: str) -> Mapping[str, str]:
    """Return an environment whose `java` is of this version."""
    folder.mkdir()
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("page", [("README.md",), ("docs", "installation.md")])
def test_setup_accepts_every_java_that_pages_promise(tmp_path: Path, page: tuple[str, ...]) -> None:
    least = int(one(r"Java (\d+) or newer", *page)[1])
    script = (REPOSITORY / "scripts" / "setup.sh").read_text(encoding="utf-8")
    check = "\n".join(re.findall(r"^(?:fail|check_java)\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL))
    for version, code in (("1.8", 1), (str(least - 1), 1), (str(least), 0), (str(least + 4), 0), (str(least + 8), 0)):
        environment = java(tmp_path / version, version)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{check}\ncheck_java"], env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, (version, done.stderr)
    assert f"--release {least}" in words("scripts", "compile_java.sh")


def test_readme_says_how_both_runs_of_the_demo_end() -> None:
    code = one(r"only this topic fails, so both runs end with exit code (\d)", "README.md")[1]
    script = (REPOSITORY / "scripts" / "demo.sh").read_text(encoding="utf-8")
    assert len(re.findall(r"^run_with_one_bad_topic jobs/provision\.py ", script, re.MULTILINE)) == 2
    assert "run jobs/provision.py" not in script
    assert f"if ((code != {code})); then" in script


def test_the_first_run_of_the_readme_leaves_the_tutorial_to_do() -> None:
    """A reader who did the one would see that the other plans nothing."""
    pages = [(REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tutorial.md")]
    for pattern in (r"--run-id (\S+)", r'^ *root = "(.*?)"', r"\{topic: (\S+),"):
        first, second = (set(re.findall(pattern, page, re.MULTILINE)) for page in pages)
        assert first
        assert second
        assert first & second == set()


def test_no_page_shows_an_internal_id() -> None:
    """Ids of facts, such as (C12), are for docstrings and tests/FACTS.md, which explains them."""
    pages = [REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", REPOSITORY / "conf" / "topicledger.toml"]
    pages += [*sorted((REPOSITORY / "docs").glob("*.md")), *EXAMPLES]
    ids = r"\((?:[A-Z]\d+)(?:, [A-Z]\d+)*\)"
    assert [each.name for each in pages if re.search(ids, each.read_text(encoding="utf-8"))] == []


def test_the_seconds_of_the_page_about_performance_are_measured() -> None:
    """Each figure of its table is one of benchmarks/NOTES.md."""
    page = (REPOSITORY / "docs" / "performance.md").read_text(encoding="utf-8")
    figures = re.findall(r"(?<=\| )[\d.]+ s\b", page)
    assert len(figures) > 8
    measured = set(re.findall(r"(?<![\d.-])[\d.]+ s\b", words("benchmarks", "NOTES.md")))
    assert [each for each in figures if each not in measured] == []


def test_common_options_are_those_that_most_commands_have_or_name_theirs() -> None:
    """A command that lists its options doesn't list these."""
    page = (REPOSITORY / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.partition("Most commands have these.")[2].partition("\n## ")[0]
    lines = {re.findall("`(--[a-z-]+)`", line)[0]: line for line in section.splitlines() if line.startswith("- ")}
    commands = dict(generate_reference.commands())
    assert len(lines) > 5
    for option, line in lines.items():
        has = {
            name
            for name, command in commands.items()
            for each in command.params
            if option in each.opts and isinstance(each, click.Option) and not each.hidden and (each.help or "?") in line
        }
        only = re.search(r" Only (`.*)$", line)
        named = set(re.findall(r"`([a-z -]+)`", only[1])) if only else set()
        assert named == has if named else len(has) > len(commands) / 2, option


SUBMITTED = """#!/bin/bash
echo "$SAYS" >&2
exit "$CODE"
"""


@pytest.mark.parametrize(
    ("master", "mode", "says", "code", "expected"),
    [
        ("local[*]", "client", "", 4, 4),
        ("yarn", "client", "", 3, 3),
        ("yarn", "cluster", "Exception: User application exited with status 4", 1, 4),
        ("yarn", "cluster", "User application exited with 5", 1, 5),
        ("yarn", "cluster", "", 0, 0),
        ("yarn", "cluster", "User application exited with status 137", 1, 1),
        ("k8s://https://h:1", "cluster", "exit code: 4", 0, 4),
        ("k8s://https://h:1", "cluster", "exit code: 0", 0, 0),
        ("spark://h:7077", "cluster", "", 0, 2),
    ],
)  # fmt: skip
def test_spark_submit_passes_the_exit_code_of_the_job_on(
    tmp_path: Path, master: str, mode: str, says: str, code: int, expected: int
) -> None:
    """As the page says, in both deploy modes; the tests with real clusters need these."""
    page = words("docs", "clusters.md")
    assert "passes the driver's exit code on" in page
    assert "`spark-submit.sh` finds the job's exit code in Spark's output" in page
    script = tmp_path / "spark-submit.sh"
    script.write_text((REPOSITORY / "spark-submit.sh").read_text(encoding="utf-8"))
    for name, text in (
        ("scripts/package.py", ""),
        ("jobs/plan.py", ""),
        ("build/jars/delta/delta-1.jar", ""),
        ("spark/bin/spark-submit", SUBMITTED),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    environment = {
        **os.environ, "SPARK_HOME": str(tmp_path / "spark"), "PYSPARK_PYTHON": sys.executable, "SPARK_MASTER": master,
        "TOPICLEDGER_SUBMIT_ARGS": f"--deploy-mode {mode}", "TOPICLEDGER_LOG_DIR": str(tmp_path / "logs"),
        "SAYS": says, "CODE": str(code),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", str(script), "jobs/plan.py"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == expected, done.stderr
