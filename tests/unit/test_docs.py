"""The docs: links lead somewhere, names of the code exist, and what is generated is up to date."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import generate_docs, generate_reference
from tests.commands import REPOSITORY
from topicledger import __version__
from topicledger.cli import exits
from topicledger.config.severities import SEVERITIES
from topicledger.errors import ExitCode
from topicledger.report.advice import OF_DRIFT
from topicledger.schemas import TABLES

DOCS = sorted((REPOSITORY / "docs").glob("*.md"))
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *DOCS]
OTHERS = [*sorted((REPOSITORY / "examples").glob("*/README.md")), REPOSITORY / "tests" / "FACTS.md"]
"""Pages that aren't part of the site."""
WRITE = ".venv/bin/python -m scripts.generate_docs"


def text(path: Path) -> str:
    """A page without its code blocks, which have neither links nor headings."""
    return re.sub(r"^( *)```.*?^\1```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings: lower case, blanks as hyphens, no other signs."""
    headings = re.findall(r"^#+ (.+)$", text(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the text, the file and the anchor of each relative link."""
    for match in generate_docs.LINK.finditer(text(path)):
        if not re.match("[a-z]+:", match["target"]):
            name, _, anchor = match["target"].partition("#")
            yield match["text"], path.parent / name if name else path, anchor


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    dead = [
        f"{target}#{anchor}"
        for _, target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_code_shows_a_name_that_is_defined_there(page: Path) -> None:
    missing = [
        f"{shown} in {target}"
        for shown, target, _ in links(page)
        if target.suffix == ".py" and (name := re.fullmatch(r"`(\w+)`", shown))
        and not re.search(rf"^ *(?:def |class )?{name[1]}\b[(:\[ ]", target.read_text(encoding="utf-8"), re.MULTILINE)
    ]  # fmt: skip
    assert missing == []


def test_the_page_about_performance_and_the_estimate_use_measured_seconds() -> None:
    notes = (REPOSITORY / "benchmarks" / "NOTES.md").read_text(encoding="utf-8")
    measured, _, estimate = notes.partition("## Compared with lower bounds")[2].partition("\n## 500 clusters")
    page = (REPOSITORY / "docs" / "performance.md").read_text(encoding="utf-8")
    (figures,) = re.findall(r"\*\*Decisions\*\* .*?take (\d+ s), or (\d+ s)", page)
    seconds = [*re.findall(r"`make bench`.*?([\d.]+ s)\b", estimate), *figures]
    assert len(seconds) > len(figures)
    assert [each for each in seconds if f"({each}, " not in measured and f", {each})" not in measured] == []


def test_the_readme_is_one_that_a_stranger_reads_in_minutes() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    assert len(readme.split()) <= 900
    assert [
        each for each in ("\nmake demo\n", "\nmake test\n", "No licence has been chosen yet") if each not in readme
    ] == []


def test_the_plan_in_the_readme_is_real() -> None:
    """It begins like one that a test compares with the output."""
    (shown,) = re.findall(
        r"```\n\$ topicledger runs show .*\n(.*?)```", PAGES[0].read_text(encoding="utf-8"), re.DOTALL
    )
    golden = (REPOSITORY / "tests" / "unit" / "golden_diff" / "several.txt").read_text(encoding="utf-8")
    assert golden.startswith(shown.removesuffix("...\n"))


def test_the_pages_are_short_enough_to_be_read() -> None:
    """Signs of tables aren't words."""
    words = [word for page in DOCS for word in page.read_text(encoding="utf-8").split()]
    assert sum(re.fullmatch(r"[|:-]+", word) is None for word in words) <= 33_000


def test_every_command_that_can_exit_3_documents_it() -> None:
    detailed = {
        name
        for name, command in generate_reference.commands()
        if any({"--detailed-exitcode", "--fail-on"} & set(each.opts) for each in command.params)
    }
    assert detailed
    documented = {name for name, codes in exits.OF_COMMANDS.items() if ExitCode.CHANGES_PENDING in codes}
    assert documented == detailed | {"runs verify"}


def test_exit_codes_are_those_of_commands() -> None:
    assert set(exits.OF_COMMANDS) <= {name for name, _ in generate_reference.commands()}


def test_the_tables_of_users_are_those_that_may_have_their_columns() -> None:
    (listed,) = re.findall(
        r"^(.*) are yours: ", (REPOSITORY / "docs" / "tables.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(re.findall(r"`(\w+)`", listed)) == {table.name for table in TABLES.values() if table.shared}


def test_no_message_or_help_shows_an_internal_id() -> None:
    """Ids of rules, such as (C12), are for docstrings and comments."""
    shown = []
    for path in sorted((REPOSITORY / "lib").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        shown += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
            and re.search(r"\([A-Z]\d+\)", node.value)
        ]  # fmt: skip
    assert shown == []


def test_the_readme_leads_to_every_page() -> None:
    assert {page.resolve() for page in DOCS} <= {target.resolve() for _, target, _ in links(PAGES[0])}


def test_the_site_has_every_page_and_checks_links() -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert "anchors: warn" in text
    assert [page.name for page in DOCS if f": {page.name}\n" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_list_or_a_table_has_an_empty_line_before_it(page: Path) -> None:
    """Without it some renderers take it for the paragraph's text."""
    lines = text(page).splitlines()
    starts = [
        after
        for before, after in itertools.pairwise(lines)
        if re.match(r"(- |\d+\. |\|)", after) and before and not re.match(r"(- |\d+\. |\|| )", before)
    ]
    assert starts == []


@pytest.mark.parametrize("name", generate_docs.GENERATED)
def test_generated_parts_are_up_to_date(name: str) -> None:
    committed = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    assert committed == generate_docs.page(name), f"docs/{name} is out of date; write it with: {WRITE}"


def test_each_page_of_the_site_has_its_version(tmp_path: Path) -> None:
    generate_docs.make_site_sources(tmp_path / "site")
    pages = sorted((tmp_path / "site").glob("*.md"))
    assert len(pages) == len(PAGES)
    assert {each.read_text(encoding="utf-8").splitlines()[-1] for each in pages} == {
        f"This page describes topicledger {__version__}."
    }


def keys_of_example() -> dict[str, dict[str, str]]:
    """The keys of the example settings with their values, by table; those in comments count, too."""
    found: dict[str, dict[str, str]] = {"": {}}
    table = ""
    for line in (REPOSITORY / "conf" / "topicledger.toml").read_text(encoding="utf-8").splitlines():
        if head := re.fullmatch(r"(?:# )?\[\[?([\w.]+)\]\]?", line):
            table = re.sub(r"^(clusters|owners)\.\w+", r"\1.NAME", head[1])
            table = re.sub(r"^policies\.\w+", "policies.create", table)
            found.setdefault(table, {})
        elif key := re.fullmatch(r"(?:# )?(\w+) = (.+)", line):
            found[table][key[1]] = key[2]
    return found


def test_the_example_settings_have_every_key() -> None:
    example = keys_of_example()
    missing = [
        f"{table}.{key.name}"
        for table, (_, keys) in generate_docs.sections().items()
        for key in keys
        if key.name not in example[table] and f"{table}.{key.name}" not in example
    ]
    assert missing == []


def test_the_example_settings_have_every_severity() -> None:
    severities = {kind: value.strip('"') for kind, value in keys_of_example()["audit.severity"].items()}
    assert severities == {kind.value: SEVERITIES[kind].value for kind in SEVERITIES}


def test_every_kind_of_drift_is_documented_with_its_severity() -> None:
    page = (REPOSITORY / "docs" / "audit-and-drift.md").read_text(encoding="utf-8")
    found = {}
    for kinds, severities in re.findall(r"^- (`\w+`(?:, `\w+`)*) \(([a-z, ]+)\): ", page, flags=re.MULTILINE):
        found |= dict(zip(re.findall(r"\w+", kinds), severities.split(", "), strict=True))
    assert found == {kind.value: SEVERITIES[kind].value for kind in SEVERITIES}


def test_reports_say_what_to_do_about_every_kind_of_drift() -> None:
    assert set(OF_DRIFT) == {each.value for each in SEVERITIES}


def test_each_claim_about_proof_links_to_its_test() -> None:
    """The links themselves are checked above."""
    page = REPOSITORY / "examples" / "proof" / "README.md"
    _, _, rows = text(page).partition("| change | with a key | without | test |\n")
    claims = list(itertools.takewhile(lambda line: line.startswith("|"), rows.splitlines()))[1:]
    assert len(claims) > 10
    assert [each for each in claims if not re.search(r"\| \[`test_\w+`\]\(\S+\.py\) \|$", each)] == []


def test_messages_of_the_page_about_troubles_are_those_of_the_code() -> None:
    page = text(REPOSITORY / "docs" / "troubleshoot.md").partition("## A job ended with")[2].partition("\n## ")[0]
    messages = re.findall(r"^- `([^`]+)`: ", page, re.MULTILINE)
    code = ""
    for path in sorted((REPOSITORY / "lib").rglob("*.py")):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        code += "\n".join(node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str))
    parts = [part for each in messages for part in re.split(r"\.\.\.|\([^)]*\)|[;:]", each) if len(part.strip()) > 4]
    assert len(messages) > 10
    assert [part for part in map(str.strip, parts) if part not in code] == []


def test_each_fact_that_a_docstring_cites_is_explained() -> None:
    package = REPOSITORY / "lib" / "topicledger"
    cited = {
        fact
        for path in package.rglob("*.py")
        for fact in re.findall(r"(?<![\w-])[CDMPKNRAQI]\d{1,2}(?![\w-])", path.read_text(encoding="utf-8"))
    }
    page = (REPOSITORY / "tests" / "FACTS.md").read_text(encoding="utf-8")
    explained = re.findall(r"^- ([A-Z]\d+): ", page, re.MULTILINE)
    assert len(set(explained)) == len(explained)
    assert len(cited) > 50
    assert cited <= set(explained)
