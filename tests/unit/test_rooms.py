"""The packages of the product, in the order in which data passes through them: each imports from earlier ones only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import topicledger
from tests.commands import REPOSITORY
from topicledger.kinds import NAMES

PACKAGE = Path(topicledger.__file__).parent
TESTS = Path(__file__).parents[1]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n### Rooms\n")[2].partition("\n### ")[0]
ROOMS = re.findall(r"^\| (\w+) \| \[", PAGE, re.MULTILINE)
TESTING = PACKAGE.with_name("topicledger_testing")
"""An embedded broker for tests, a user's too: no room needs it."""
MOST_LINES = 400
MOST_FIELDS = 12


def modules() -> Iterator[tuple[str, Path]]:
    # `schemas` is a link to the folder of that name at the top.
    for path in sorted([*PACKAGE.glob("**/*.py"), *(PACKAGE / "schemas").glob("*.py")]):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"), path


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    """Return the nodes of a module's tree; several tests look at each module."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def room_of(module: str) -> str:
    """A kind's package has modules for other rooms: names that settings need, foreign files; topics, for each step."""
    found = re.match(r"resources\.(?:topics\.(\w+)|\w+\.(names|foreign)\b)", module)
    if found is None:
        return module.split(".")[0]
    return found[1] or {"names": "kinds", "foreign": "files"}[found[2]]


def rooms_imported_by(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of each import of the package's own, those within functions too."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module == "topicledger":
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("topicledger."):
            yield node.lineno, room_of(str(node.module).removeprefix("topicledger."))
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            yield from ((node.lineno, name[1]) for name in names if name[0] == "topicledger" and len(name) > 1)


def test_every_module_is_in_a_room_that_has_its_place() -> None:
    found = {name.split(".")[0] for name, _ in modules()} - {"__init__"}
    assert sorted(ROOMS) == sorted(found)


def test_no_room_imports_from_a_later_one() -> None:
    place = {room: number for number, room in enumerate(ROOMS)}
    wrong = []
    for name, path in modules():
        room = room_of(name)
        for line, imported in rooms_imported_by(path):
            if place.get(imported, 99) > place.get(room, -1):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {room} imports {imported}")
    assert wrong == []


def test_the_embedded_broker_needs_only_errors_and_no_room_needs_it() -> None:
    imported = {room for path in TESTING.glob("*.py") for _, room in rooms_imported_by(path)}
    assert imported == {"errors"}
    assert [name for name, path in modules() if "topicledger_testing" in path.read_text(encoding="utf-8")] == []


def test_no_class_has_more_than_a_dozen_fields() -> None:
    large = {
        f"{name}.{each.name}"
        for name, path in modules()
        for each in nodes(path)
        if isinstance(each, ast.ClassDef) and sum(isinstance(line, ast.AnnAssign) for line in each.body) > MOST_FIELDS
    }
    # Settings has a field per section of the file: a reader finds `settings.guards` where it has [guards].
    # A topic of a file has a field per column of `manifests`, and its place.
    as_columns = {"manifests.files.results.ManifestRow", "manifests.files.report.Entry"}
    grown = {"kafka.sending.Sender"}
    assert large <= {"config.settings.Settings", *as_columns, *grown}


OF_OTHERS = {
    # The standard library's and kafka-python's own objects have no method for it.
    "apply/dispatch.py": {"timer.daemon"},
    "config/logs.py": {"logger.handlers", "logger.propagate"},
    "kafka/__init__.py": {"self._admin._controller_id"},
    "kafka/connection.py": {"_kafka_log.propagate", "record.args", "self._admin._controller_id"},
    "serving/streams.py": {"sys.stdin", "sys.stdout", "sys.stderr", "each.is_lent"},
    # Objects of a class in the same module.
    "resources/topics/actions/throttling.py": {"without.refused", "without.silent"},
    "kafka/sending.py": {"self._signs.targets", "self._signs.answered"},
    "ledger/leases.py": {"leases.contended"},
}
"""Assignments to attributes of another object, by module; each needs a reason."""
FILL_ENTRIES = ("manifests/files/", "files/")
"""Parsers, as the `entries` of each kind: each fills a file's entry field by field, and hands it on when complete."""


def test_objects_change_their_attributes_themselves() -> None:
    """A value that other modules assign to is a global by another name."""
    found: dict[str, set[str]] = {}
    for _, path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        for node in nodes(path):
            assigned = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
            fills = name.startswith(FILL_ENTRIES) or name.endswith("/entries.py")
            if assigned and ast.unparse(node.value) not in ("self", "cls") and not fills:
                found.setdefault(name, set()).add(ast.unparse(node))
    assert found == OF_OTHERS


def test_no_test_imports_from_another_test() -> None:
    """Code that several tests share is in a module beside them, or a fixture."""
    wrong = []
    for path in TESTS.glob("**/*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
                names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
                modules = names[: len(str(node.module).split("."))]
                from_package = (TESTS.parent / Path(*modules)).is_dir()
                if any(name.startswith("test_") for name in (names if from_package else modules)):
                    wrong.append(f"{path.relative_to(TESTS)}:{node.lineno} imports {'.'.join(names)}")
    assert wrong == []


def test_modules_are_short_enough_to_read() -> None:
    long = {name for name, path in modules() if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES}
    assert long == set()


NAMED_IN = {"acl": 4, "quota": 5, "group_config": 1}
"""Number of modules outside a kind's package that name it: each belongs into the package. Lower it when it falls."""


@pytest.mark.parametrize("kind", NAMED_IN)
def test_no_more_modules_name_a_kind_of_resource_than_before(kind: str) -> None:
    word = re.compile(rf"\b{kind}s?\b", re.IGNORECASE)
    # `schemas` is a link to a folder outside the package; kinds may name each other, as a quota needs ACLs.
    packages = tuple(f"resources.{each.package}" for each in NAMES)
    found = [
        name
        for name, path in modules()
        if not name.startswith((*packages, "schemas")) and word.search(path.read_text(encoding="utf-8"))
    ]
    assert len(found) == NAMED_IN[kind], found


IMPORT_TOPICS = 26
"""Number of modules outside `resources.topics` that import from it. Lower it when it falls."""


def test_no_more_modules_import_what_is_only_about_topics_than_before() -> None:
    found = [
        name
        for name, path in modules()
        if not name.startswith("resources.topics")
        and "topicledger.resources.topics" in path.read_text(encoding="utf-8")
    ]
    assert len(found) == IMPORT_TOPICS, found
