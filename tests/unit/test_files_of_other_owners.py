"""`plan FILES --owner`: what is wrong with other owners' entries stops no owner's plan."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.harness import cluster_settings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.errors import ManifestFileError
from topicledger.files.read import read
from topicledger.manifests.files import ParsedManifests

SETTINGS = Settings(
    path=Path("my.toml"),
    tables=TablesSettings(root=""),
    clusters={"main": cluster_settings("main", "localhost:1")},
)
MINE = "cluster: main\ndefaults: {owner: Payments}\ntopics: [{topic: pay.a, num_partitions: 2}]\n"
WRONG = {
    "a rule": ("cluster: main\ntopics: [{topic: ord.a, owner: orders, replication_factor: 0}]\n", "replication_factor"),
    "a cluster": ("cluster: gone\ndefaults: {owner: orders}\ntopics: [{topic: ord.a}]\n", "unknown cluster `gone`"),
    "a copy": (
        "cluster: main\ndefaults: {owner: orders}\ntopics: [{topic: ord.a}, {topic: ord.a, num_partitions: 3}]\n",
        "topic ord.a is declared differently",
    ),
    "a quota": ("cluster: main\nquotas: [{user: o, owner: orders, producer_byte_rate: -1}]\n", "producer_byte_rate"),
}


def read_all(folder: Path, other: str, *owners: str) -> ParsedManifests:
    (folder / "payments.yaml").write_text(MINE)
    (folder / "orders.yaml").write_text(other)
    return read(SETTINGS, [folder], io.StringIO(""), owners=owners)


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_wrong_entries_of_other_owners_are_warnings(tmp_path: Path, text: str, why: str) -> None:
    """Their rows are kept, so that `--replace` takes no row for one that no file has."""
    parsed = read_all(tmp_path, text, " payments")
    (warning,) = parsed.warnings
    assert warning.file.endswith("orders.yaml")
    assert why in warning.message
    assert warning.message.endswith("(an entry outside --owner: left out)")
    assert {row.owner for row in parsed.every_row} == {"Payments", "orders"}
    for owners in ((), ("orders",), ("payments", "orders")):
        with pytest.raises(ManifestFileError, match=r"orders\.yaml"):
            read_all(tmp_path, text, *owners)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("topics: [{topic: ord.a\n", "orders.yaml"),
        ("cluster: main\ntopics: [{topic: ord.a, owner: orders, partitons: 2}]\n", "partitons"),
        (
            "cluster: main\ntopics: [{topic: pay.a, owner: orders, num_partitions: 3}]\n",
            "pay.a is declared differently",
        ),
    ],
    ids=["a file that can't be read", "an entry that can't be read", "the owner's own topic, declared differently"],
)
def test_errors_that_may_be_about_the_owner_s_own_rows_stay_errors(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ManifestFileError, match=why):
        read_all(tmp_path, text, "payments")
