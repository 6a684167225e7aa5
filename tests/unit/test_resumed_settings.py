"""docs/settings.md lists the settings that a resumed run must have unchanged: those whose change changes a digest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.commands import REPOSITORY
from topicledger.config.reading import load_settings
from topicledger.config.settings import OwnerLine, Settings
from topicledger.naming import Sections

TOML = """
tables.root = "ledger"
changes.configs = "declared"
guards.max_deletes = 1
audit.severity.missing = "warning"
acls.manage = ["^User:a"]
clusters.main.bootstrap_servers = ["localhost:9092"]
scope.ignore_topics = ["-changelog$"]
owners.a = {topics = ["^a"], requested_by = ["ann"]}
policies.create = [{use = "num_partitions", max = 3}]
policies.delete = [{use = "in_use"}]
policies.change = [{use = "num_partitions", max = 3}]
policies.quota = [{use = "quota_range", limit = "producer_byte_rate", max = 9}]
"""
BY_NAME = ("clusters", "changes")
"""Fields of the settings that have a record for each cluster."""


class Key(NamedTuple):
    section: str
    name: str


def other(value: Any) -> Any:
    """Return another value of the same type: the last item of a list or a table is gone."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() | None:
            return f"{value}x"
        case tuple():
            return value[:-1] if value else ("x",)
        case Mapping():
            return dict(list(value.items())[:-1]) if value else {"x": "y"}
    raise AssertionError(f"no other value for {value!r}")


def changed(settings: Settings) -> Iterator[tuple[Key, Settings]]:
    """Yield each key of each section, and the settings with another value of it."""
    for section in fields(settings):
        value = getattr(settings, section.name)
        if section.name in BY_NAME:
            (name,), (record,) = value.keys(), value.values()
            table = "clusters.NAME" if section.name == "clusters" else section.name
            for key, one in changed_record(record):
                yield Key(table, key), replace(settings, **{section.name: {name: one}})
        elif section.name == "owners":
            (name,), (record,) = value.names.keys(), value.names.values()
            for key, one in changed_record(record):
                yield Key("owners", key), replace(settings, owners=replace(value, names={name: one}))
            lines = (OwnerLine("^a", ("a",), "CODEOWNERS:1"),)
            yield Key("owners", "file"), replace(settings, owners=replace(value, lines=lines))
        elif isinstance(value, Sections):
            for one in value:
                for key, each in changed_record(one):
                    yield Key(one.table, key), replace(settings, of_kinds=Sections([each]))
        elif is_dataclass(value):
            for key, one in changed_record(value):
                yield Key(section.name, key), replace(settings, **{section.name: one})
        else:
            assert section.name in ("path", "notify"), "a new kind of section: change its keys here"


def changed_record(record: Any) -> Iterator[tuple[str, Any]]:
    for each in fields(record):
        if each.name != "name":
            yield each.name, replace(record, **{each.name: other(getattr(record, each.name))})


def of_page(column: int, keys: set[Key]) -> set[Key]:
    """Return the keys that a column of the page's table names."""
    page = (
        (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8").partition("## Settings of a resumed run")[2]
    )
    found = set()
    for line in re.findall(r"^\| `\[.*$", page, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        section = cells[0].strip("`[]")
        named = {Key(section, name) for name in re.findall(r"`(\w+)`", cells[column])}
        every = {key for key in keys if key.section == section}
        assert every, f"there is no section {section}"
        assert named <= every
        found |= every - named if cells[column].startswith("all") else named
    return found


@pytest.mark.parametrize(("column", "digest"), [(1, Settings.digest), (2, Settings.audit_digest)])
def test_page_lists_the_settings_of_a_digest(tmp_path: Path, column: int, digest: Callable[[Settings], str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TOML, encoding="utf-8")
    settings = load_settings(path)
    found = list(changed(settings))
    differing = {key for key, each in found if digest(each) != digest(settings)}
    assert differing == of_page(column, {key for key, _ in found})
