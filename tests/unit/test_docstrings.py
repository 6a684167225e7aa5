"""Docstrings refer to names that exist."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import topicledger
from scripts import generate_docs
from topicledger.schemas import TABLES

PACKAGE = Path(topicledger.__file__).parent
DOTTED = re.compile(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
FILES = (".toml", ".log", ".html", ".css", ".js", ".py", ".sql")
OTHERS = {
    "parts.begin": "a template's block",
    "settings.topics.defaults": "a key of kafka-gitops",
    "settings.files.topics": "a key of kafka-gitops",
}


def modules() -> dict[str, list[str]]:
    """Last part of a module's name -> the modules of that name."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.glob("**/*.py")):
        name = ".".join(("topicledger", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        found.setdefault(name.rpartition(".")[2], []).append(name)
    return found


def pointers(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each dotted name in backticks, unless it begins with a parameter."""
    tree = ast.parse(source)
    parameters = {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for found in DOTTED.finditer(node.value.value):
                line = node.lineno + node.value.value.count("\n", 0, found.start())
                if found[1].split(".")[0] not in parameters:
                    yield line, found[1]


def exists(module: str, rest: Sequence[str]) -> bool:
    """Whether a module has what the other parts name: an object, a field, or a module within it."""
    value: object = importlib.import_module(module)
    for part in rest:
        if dataclasses.is_dataclass(value) and part in {field.name for field in dataclasses.fields(value)}:
            return True
        if isinstance(value, ModuleType) and not hasattr(value, part):
            try:
                value = importlib.import_module(f"{value.__name__}.{part}")
            except ModuleNotFoundError:
                return False
        elif not hasattr(value, part):
            return False
        else:
            value = getattr(value, part)
    return True


def test_names_in_docstrings_exist() -> None:
    known = modules()
    columns = {f"{table.name}.{column}" for table in TABLES.values() for column in table.schema.names}
    keys = {f"{section}.{key.name}" for section, (_, keys) in generate_docs.sections().items() for key in keys}
    wrong, right = [], 0
    for path in sorted([*PACKAGE.glob("**/*.py"), *(PACKAGE / "schemas").glob("*.py")]):
        for line, name in pointers(path.read_text(encoding="utf-8")):
            first, *rest = name.split(".")
            if first not in known or name.endswith(FILES) or name in columns | keys or name in OTHERS:
                continue
            if any(exists(module, rest) for module in known[first]):
                right += 1
            else:
                wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {name}")
    assert wrong == []
    assert right > 50
