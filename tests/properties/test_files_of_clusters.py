"""One file for several clusters declares exactly what a file for each of them would."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from topicledger.files.reading import read_manifest_files
from topicledger.manifests.files import FIELDS, ParsedManifests

CLUSTERS = ("a", "b", "c")
COUNTS = ("num_partitions", "replication_factor")
MAPS = ("configs", "labels")
Fields = Mapping[str, Any]

_configs = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy", "segment.ms"]),
    st.sampled_from(["7d", "86400000", "1000"]),
    max_size=2,
).map(lambda made: {name: "compact" if name == "cleanup.policy" else text for name, text in made.items()})
_shared = {
    "owner": st.sampled_from(["payments", "search", None]),
    "labels": st.dictionaries(st.sampled_from(["tier", "env"]), st.sampled_from(["gold", "low"]), max_size=2),
    "state": st.sampled_from(["present", "absent"]),
}
_counts = {"num_partitions": st.sampled_from([1, 2, 12, None]), "replication_factor": st.sampled_from([1, 3, None])}
_assignments = {"assignments": st.sampled_from([{0: [1]}, {0: [1, 2], 1: [2, 1]}])}
_inherited = st.one_of(
    st.fixed_dictionaries({}, optional={**_shared, **counts, "configs": _configs}) for counts in (_counts, _assignments)
)
_of_topic = st.tuples(
    _inherited, st.fixed_dictionaries({}, optional={"description": st.sampled_from(["Money", "None of it", None])})
).map(lambda both: both[0] | both[1])
_of_quota = st.fixed_dictionaries({}, optional={**_shared, "producer_byte_rate": st.sampled_from([1.0, 2.5])})


def _by_cluster(fields: st.SearchStrategy[Fields]) -> st.SearchStrategy[dict[str, Fields]]:
    return st.dictionaries(st.sampled_from(CLUSTERS), fields, max_size=3)


@st.composite
def _entries(draw: st.DrawFn, name: str, fields: st.SearchStrategy[Fields], needed: Fields) -> list[dict[str, Any]]:
    made = []
    for number in range(draw(st.integers(0, 3))):
        entry = {name: f"{name}-{number}", **needed, **draw(fields)}
        on: Collection[str] = draw(st.sampled_from([CLUSTERS, ("a",), ("c", "b")]))
        if on != CLUSTERS:
            entry["clusters"] = list(on)
        if overrides := {each: its for each, its in draw(_by_cluster(fields)).items() if each in on}:
            entry["overrides"] = overrides
        made.append(entry)
    return made


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "clusters": list(CLUSTERS),
        "defaults": {**draw(_inherited), "overrides": draw(_by_cluster(_inherited))},
        "overrides": draw(_by_cluster(_of_topic)),
        "topics": draw(_entries("topic", _of_topic, {})),
        "quotas": draw(_entries("user", _of_quota, {"producer_byte_rate": 7.0})),
    }


def merged(levels: Sequence[Fields]) -> dict[str, Any]:
    """The fields of all levels: the last one decides, maps are joined, counts and assignments exclude each other.

    A count that removes assignments keeps the other count that they imply.
    """
    found: dict[str, Any] = {}
    for level in levels:
        if any(level.get(name) is not None for name in COUNTS) and (removed := found.pop("assignments", None)):
            found = {"num_partitions": len(removed), "replication_factor": len(removed[0]), **found}
        if level.get("assignments") is not None:
            for name in COUNTS:
                found.pop(name, None)
        for name, value in level.items():
            found[name] = {**(found.get(name) or {}), **value} if name in MAPS else value
    return found


def by_hand(document: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The same entries in a file of one cluster alone, without defaults and overrides."""
    given_defaults = document["defaults"]
    own = {name: value for name, value in given_defaults.items() if name != "overrides"}
    defaults = merged([own, given_defaults["overrides"].get(cluster, {})])
    of_file = document["overrides"].get(cluster, {})
    found: dict[str, Any] = {"cluster": cluster, "topics": [], "quotas": []}
    for section, taken in (("topics", None), ("quotas", tuple(_shared))):
        for entry in document[section]:
            if cluster not in entry.get("clusters", CLUSTERS):
                continue
            fields = {name: value for name, value in entry.items() if name not in ("clusters", "overrides")}
            limited = {name: value for name, value in of_file.items() if taken is None or name in taken}
            alone = merged([fields, limited, entry.get("overrides", {}).get(cluster, {})])
            weaker = {name: value for name, value in defaults.items() if taken is None or name in taken}
            found[section].append(merged([weaker, alone]))
    return found


def declared(*parsed: ParsedManifests) -> tuple[list[dict[str, Any]], list[Any]]:
    for each in parsed:
        assert each.errors == []
    topics = [{name: getattr(row, name) for name in FIELDS} for each in parsed for row in each.rows]
    others = [
        (row.cluster, row.state, row.owner, sorted((row.labels or {}).items()), sorted(row.values.items(), key=str))
        for each in parsed
        for row in each.rows_of("quotas")
    ]
    for row in topics:
        row.update({name: row[name] or None for name in MAPS})
    return sorted(topics, key=lambda row: (row["cluster"], row["topic"])), sorted(others, key=str)


@given(documents(), st.sampled_from(["yaml", "json"]))
def test_one_file_declares_what_a_file_for_each_cluster_does(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any], suffix: str
) -> None:
    folder: Path = tmp_path_factory.mktemp("files")

    def parse(name: str, made: Mapping[str, Any]) -> ParsedManifests:
        path = folder / f"{name}.{suffix}"
        path.write_text(yaml.safe_dump(made) if suffix == "yaml" else json.dumps(made))
        return read_manifest_files([path], io.StringIO(""))

    one = parse("one", document)
    assert declared(one) == declared(*(parse(cluster, by_hand(document, cluster)) for cluster in CLUSTERS))
