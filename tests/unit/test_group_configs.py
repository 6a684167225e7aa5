"""Group configs: entries of files, brokers that are too old for them, and comparisons of values."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from topicledger.files.reading import read_manifest_files
from topicledger.kafka.connection import Connection, TooOld
from topicledger.manifests.files import ParsedManifests
from topicledger.resources.group_configs import requests
from topicledger.resources.group_configs.actions import same_config

FILES = {
    "yaml": "cluster: main\ndefaults: {owner: a}\ngroups:\n- {group: g 1, configs: {"
    "share.isolation.level: read_committed, consumer.session.timeout.ms: 46000}}\n- {group: gone, state: absent}\n",
    "json": '[{"cluster": "main", "owner": "a", "group": "g 1", "configs": {"share.isolation.level": "read_committed",'
    ' "consumer.session.timeout.ms": 46000}},\n{"cluster": "main", "owner": "a", "group": "gone", "state": "absent"}]',
    "csv": "cluster,owner,group,configs,state\n"
    'main,a,g 1,"{""share.isolation.level"": ""read_committed"", ""consumer.session.timeout.ms"": 46000}",\n'
    "main,a,gone,,absent\n",
}


def parse(folder: Path, suffix: str, text: str) -> ParsedManifests:
    path = folder / f"f.{suffix}"
    path.write_text(text, encoding="utf-8")
    return read_manifest_files([path], io.StringIO(""))


@pytest.mark.parametrize("suffix", FILES)
def test_every_format_of_files_declares_groups(tmp_path: Path, suffix: str) -> None:
    parsed = parse(tmp_path, suffix, FILES[suffix])
    assert parsed.errors == []
    assert [(row.cluster, row.owner, row.state, row.values) for row in parsed.rows_of("group_configs")] == [
        (
            "main",
            "a",
            "present",
            {
                "group": "g 1",
                "configs": {"share.isolation.level": "read_committed", "consumer.session.timeout.ms": "46000"},
            },
        ),
        ("main", "a", "absent", {"group": "gone", "configs": None}),
    ]


def test_wrong_entries_are_named_with_their_lines(tmp_path: Path) -> None:
    entries = ("{group: a, config: {x: 1}}", "{group: 1, configs: {x: 1}}", "{group: b, configs: [x]}")
    text = "\n- ".join(("cluster: main\ngroups:", *entries))
    assert [f"{each.line}: {each.message}" for each in parse(tmp_path, "yaml", text).errors] == [
        "3: unknown field `config`; did you mean `configs`?",
        "4: `group` must be a string, not the number 1; quote it",
        "5: `configs` must be a mapping, not a list",
    ]


@pytest.mark.parametrize("ask", [requests.list_groups, lambda admin: requests.describe_groups(admin, ["a"])])
def test_brokers_before_4_1_are_not_asked(ask: Any) -> None:
    """They list config resources only for client metrics, if at all."""
    old = create_autospec(Connection, instance=True)
    old.name = "main"
    old.supports.return_value = False
    with pytest.raises(TooOld, match=r"main: its brokers are too old for group configs \(before Kafka 4\.1\)"):
        ask(old)
    old.ask.assert_not_called()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("46000", " 46000 ", True), ("true", "TRUE", True), ("a", "A", False), (None, None, True), ("1", None, False)],
)
def test_values_that_a_broker_reads_alike_are_the_same(one: str | None, other: str | None, same: bool) -> None:
    assert same_config("n", one, other) is same
