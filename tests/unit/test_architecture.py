"""The section "Architecture" of CONTRIBUTING.md: it has every package, and the names that it gives exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from pathlib import Path

from scripts import generate_docs
from tests.commands import REPOSITORY

PACKAGE = REPOSITORY / "lib" / "topicledger"
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Architecture\n")[2].partition("\n## ")[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the only table below a heading of the section."""
    part = SECTION.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def linked(text: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield each linked file of the code, with the names that follow the link."""
    for match in re.finditer(rf"(?:{generate_docs.LINK.pattern})(?P<names>(?:,? `[\w.]+`)*)", text):
        path = REPOSITORY / match["target"].partition("#")[0]
        if path.suffix == ".py":
            yield path, tuple(re.findall(r"`([\w.]+)`", match["names"]))


def defined(path: Path) -> Set[str]:
    """The names that a module defines at its top, and in its classes as `Class.name`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= _names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for each in node.body for name in _names(each)}
    return found


def _names(node: ast.stmt) -> Set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_each_room_links_to_a_module_of_its_own() -> None:
    found = {room: re.search(r"\]\((?:lib/topicledger/)?(\w+)[/.]", first) for room, first, _ in rows("Rooms")}
    assert len(found) > 20
    assert [room for room, match in found.items() if match is None or match[1] != room] == []


def test_each_package_is_listed() -> None:
    packages = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")} - {Path()}
    # A kind's part about files of other tools is a module or a package.
    packages = {each for each in packages if each.name != "foreign" or len(each.parts) == 2}
    targets = re.findall(r"\]\((?:lib/topicledger/)?([\w/.]+)\)", SECTION)
    assert len(packages) > 20
    assert packages <= {Path(target).parent for target in targets}


def test_the_named_files_define_the_named_functions() -> None:
    found = [(path, name) for path, names in linked(SECTION) for name in names]
    assert len(found) > 60
    assert [f"{path.name}: {name}" for path, name in found if name not in defined(path)] == []


def test_each_question_is_answered_by_files_that_exist() -> None:
    unanswered = [question for question, where in rows("Where is ...?") if "](lib/topicledger/" not in where]
    assert len(rows("Where is ...?")) > 25
    assert unanswered == []


def test_each_function_of_a_question_is_code_with_a_link() -> None:
    """A name without a link would not be checked, unless it is said to be one `of the kind`, say."""
    wrong = []
    for question, where in rows("Where is ...?"):
        checked = {name for _, names in linked(where) for name in names}
        named = re.findall(r"(?<!\[)`([\w.]+)`(?! of )", where)
        wrong += [f"{question}: {name}" for name in named if name not in checked]
    assert wrong == []


def test_a_kind_has_the_modules_that_the_page_lists() -> None:
    table = SECTION.partition("The modules of the package:")[2].partition("\n\n**")[0]
    listed = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    assert len(listed) > 10
    packages = [each for each in (PACKAGE / "resources").iterdir() if (each / "kind.py").exists()]
    missing = {each.name: listed - {path.stem for path in each.iterdir()} for each in packages}
    # The kinds of names with values share both modules.
    assert {name: found for name, found in missing.items() if found} == {
        "quotas": {"decide", "drift"},
        "group_configs": {"decide", "drift"},
    }
