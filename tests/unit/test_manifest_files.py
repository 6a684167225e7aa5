"""Manifest files become rows with their lines, and everything wrong with them is told at once."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.manifest_texts import ORDERS_YAML
from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.errors import ManifestFileError
from topicledger.files import yaml_files
from topicledger.files.read import read, remarks
from topicledger.files.reading import read_manifest_files
from topicledger.kafka.config_values import is_odd
from topicledger.kinds import NAMES
from topicledger.manifests import files as manifest_files
from topicledger.manifests.files import FileError, ManifestRow, ParsedManifests, yaml_values
from topicledger.text import any_of

NOTHING = io.StringIO("")
CLUSTERS = {"main": ClusterSettings(name="main", bootstrap_servers=("localhost:1",))}
SETTINGS = Settings(path=Path("run.toml"), tables=TablesSettings(root="tables"), clusters=CLUSTERS)
Parse = Callable[[str, str], ParsedManifests]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Parse text as a file of that name; errors carry the bare name."""

    def parse_text(name: str, text: str) -> ParsedManifests:
        path = tmp_path / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        parsed = read_manifest_files([path], NOTHING)
        errors = [FileError(Path(error.file).name, error.line, error.message) for error in parsed.errors]
        return ParsedManifests(rows=parsed.rows, errors=errors)

    return parse_text


def warnings_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    return [f"{each.line}: {each.message}" for each in read_manifest_files([path], NOTHING).warnings]


def texts(parsed: ParsedManifests) -> list[str]:
    return [str(error) for error in parsed.errors]


def without_place(row: ManifestRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in manifest_files.FIELDS}


def test_yaml_gives_rows_with_defaults_and_lines(parse: Parse) -> None:
    parsed = parse("m.yaml", ORDERS_YAML)
    assert parsed.errors == []
    assert [(row.topic, row.state, row.line) for row in parsed.rows] == [
        ("payments.authorised", "present", 4),
        ("payments.legacy", "absent", 5),
        ("payments.placed", "present", 7),
    ]
    first, _, placed = parsed.rows
    assert (first.cluster, first.num_partitions, first.replication_factor, first.owner) == ("orders", 12, 3, "payments")
    assert first.configs == {"retention.ms": "604800000", "cleanup.policy": "compact"}
    assert placed.assignments == {0: (1, 2), 1: (2, 1)}
    assert placed.labels == {"tier": "gold"}


def test_the_same_topics_in_every_format_are_the_same_rows(parse: Parse) -> None:
    entry = {
        "cluster": "orders",
        "topic": "a",
        "state": "present",
        "num_partitions": 3,
        "replication_factor": None,
        "assignments": None,
        "configs": {
            "retention.ms": 5,
            "preallocate": True,
            "min.cleanable.dirty.ratio": 0.5,
            "cleanup.policy": "compact,delete",
        },
        "owner": "me",
        "labels": {"tier": "gold"},
        "replaces": "an.older.one",
        "description": "Paid, or not",
    }
    placed = {"cluster": "orders", "topic": "b", "assignments": {"0": [1, 2], "1": [2, 1]}}
    forms = {
        "m.json": json.dumps([entry, placed], indent=2),
        "m.jsonl": f"{json.dumps(entry)}\n\n{json.dumps(placed)}\n",
        "m.yaml": yaml.safe_dump({"topics": [entry, placed]}),
        "m.csv": "cluster,topic,num_partitions,assignments,configs,owner,labels,replaces,description\n"
        + f'orders,a,3,,"{_cell(entry["configs"])}",me,"{_cell(entry["labels"])}",an.older.one,"Paid, or not"\n'
        + f'orders,b,,"{_cell(placed["assignments"])}",,,,,\n',
    }
    results = {name: parse(name, text) for name, text in forms.items()}
    assert {name: texts(parsed) for name, parsed in results.items()} == {name: [] for name in forms}
    rows = {name: [without_place(row) for row in parsed.rows] for name, parsed in results.items()}
    assert all(each == rows["m.json"] for each in rows.values())
    assert rows["m.json"][0]["replaces"] == "an.older.one"
    assert rows["m.json"][0]["description"] == entry["description"]
    assert rows["m.json"][0]["configs"] == {
        "retention.ms": "5",
        "preallocate": "true",
        "min.cleanable.dirty.ratio": "0.5",
        "cleanup.policy": "compact,delete",
    }


def _cell(value: object) -> str:
    return json.dumps(value).replace('"', '""')


def test_a_topic_wins_over_the_defaults_and_maps_are_joined_key_by_key(parse: Parse) -> None:
    parsed = parse(
        "m.yaml",
        """
defaults:
  cluster: orders
  state: absent
  num_partitions: 6
  replication_factor: 3
  owner: us
  configs: {a: 1, b: 2}
  labels: {x: one}
topics:
  - {topic: t1, cluster: other, state: present, num_partitions: null, owner: them, configs: {b: 3, c: 4}}
  - {topic: t2, assignments: {0: [1]}, configs: }
""",
    )
    assert texts(parsed) == []
    one, two = parsed.rows
    assert (one.cluster, one.state, one.num_partitions, one.replication_factor) == ("other", "present", None, 3)
    assert (one.owner, one.configs, one.labels) == ("them", {"a": "1", "b": "3", "c": "4"}, {"x": "one"})
    assert (two.cluster, two.state, two.num_partitions, two.replication_factor) == ("orders", "absent", None, None)
    assert two.configs == {"a": "1", "b": "2"}


def test_counts_of_a_topic_drop_default_assignments_but_its_own_contradiction_is_kept(parse: Parse) -> None:
    """C1 is validated with the row, not here."""
    parsed = parse(
        "m.yaml",
        "cluster: c\ndefaults: {assignments: {0: [1]}}\n"
        "topics: [{topic: a}, {topic: b, num_partitions: 2}, {topic: c, num_partitions: 1, assignments: {0: [2]}}]\n",
    )
    assert [(row.num_partitions, row.assignments) for row in parsed.rows] == [
        (None, {0: (1,)}),
        (2, None),
        (1, {0: (2,)}),
    ]


def test_several_documents_each_have_their_own_cluster_and_defaults(parse: Parse) -> None:
    parsed = parse(
        "m.yaml",
        "cluster: a\ndefaults: {owner: x}\ntopics: [{topic: t}]\n---\n---\ncluster: b\ntopics: [{topic: t}]\n",
    )
    assert [(row.cluster, row.owner, row.line) for row in parsed.rows] == [("a", "x", 3), ("b", None, 7)]


def test_anchors_and_merge_keys_work(parse: Parse) -> None:
    parsed = parse(
        "m.yaml",
        """
cluster: c
topics:
  - &first
    topic: a
    num_partitions: 3
    configs: &std {retention.ms: 1, cleanup.policy: compact}
  - <<: *first
    topic: b
  - topic: c
    configs:
      <<: [*std, {retention.ms: 9, segment.ms: 2}]
      cleanup.policy: delete
""",
    )
    assert texts(parsed) == []
    assert [(row.topic, row.num_partitions) for row in parsed.rows] == [("a", 3), ("b", 3), ("c", None)]
    assert parsed.rows[1].configs == {"retention.ms": "1", "cleanup.policy": "compact"}
    assert parsed.rows[2].configs == {"retention.ms": "1", "cleanup.policy": "delete", "segment.ms": "2"}


WORDS = ("no", "yes", "on", "off", "y", "n", "No", "YES", "~")
NUMBERS = (
    "1_000",
    "0777",
    "0o17",
    "0x1F",
    "0b1",
    "1:30",
    "190:20:30",
    "6.048e8",
    "1e3",
    "1.10",
    "1.",
    ".5",
    "+5",
    "-0",
)
OTHERS = ("007", "089", "2024-01-01", "2001-12-14t21:59:43.10-05:00", ".inf", "-.INF", ".nan")


@pytest.mark.parametrize("written", WORDS + NUMBERS + OTHERS)
@pytest.mark.parametrize("place", ["configs: {k: W}", "labels: {k: W}", "owner: W", "state: W", "configs: {W: k}"])
def test_a_yaml_surprise_is_an_error_that_says_to_quote_it(parse: Parse, written: str, place: str) -> None:
    text = "cluster: c\ntopics:\n  - topic: t\n    PLACE\n"
    (error,) = parse("m.yaml", text.replace("PLACE", place.replace("W", written))).errors
    assert error.line == 4
    assert f"`{written}`" in error.message
    assert f"quote it ('{written}')" in error.message
    quoted = parse("m.yaml", text.replace("PLACE", place.replace("W", f"'{written}'")))
    assert texts(quoted) == []


SEVERAL = "can be written in several ways"
ADVICE = {
    ("m.yaml", "preallocate", "no"): "`no` means false in YAML 1.1; write true or false",
    ("m.yaml", "retention.ms", "1e6"): f"`1e6` is a number that {SEVERAL}; write a whole number or a duration such as",
    ("m.yaml", "retention.bytes", "0x10"): "is a number in another base in YAML; write a whole number in the digits 0",
    ("m.yaml", "min.cleanable.dirty.ratio", ".inf"): "means infinity or not a number in YAML; write a number",
    ("m.yaml", "min.cleanable.dirty.ratio", "1e6"): f"`1e6` is a number that {SEVERAL}; Kafka accepts 0 to 1",
    ("m.yaml", "min.cleanable.dirty.ratio", "1e-1"): "; quote it ('1e-1') or write it in plain digits",
    ("m.yaml", "unknown", "1e6"): "; quote it ('1e6') or write it in plain digits",
    ("m.json", "retention.ms", "1e6"): f"`1e6` {SEVERAL}; write a whole number or a duration such as",
    ("m.json", "unknown", "1e6"): f"`1e6` {SEVERAL}; write plain digits or a string",
    ("m.yaml", "retention.ms", "${X}"): "`${X}` has no value; give --var X=VALUE",
}
"""By file, config and value: what to write. Quoted, some of them are wrong, too."""


@pytest.mark.parametrize(("file", "config", "written"), ADVICE)
def test_nobody_is_told_to_quote_what_is_wrong_quoted(parse: Parse, file: str, config: str, written: str) -> None:
    text = f'[{{"cluster": "c", "topic": "t", "configs": {{"{config}": {written}}}}}]'
    if file == "m.yaml":
        text = f"cluster: c\ntopics:\n  - topic: t\n    configs:\n      {config}: {written}\n"
    (error,) = parse(file, text).errors
    assert f"`configs`: `{config}`: " in str(error)
    assert ADVICE[file, config, written] in str(error)


@pytest.mark.parametrize("written", ["2.8-IV1", "10.0.0.1", "a:b", "1a", "-", "12h", "producer", "none", "noon", "1,2"])
def test_plain_text_that_only_looks_odd_stays_text(parse: Parse, written: str) -> None:
    parsed = parse("m.yaml", f"cluster: c\ntopics:\n  - topic: t\n    configs:\n      k: {written} \n      j: x\n")
    if written == "-":
        assert parsed.errors
    else:
        assert texts(parsed) == []
        assert parsed.rows[0].configs == {"k": written, "j": "x"}


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_integers_keep_their_digits(number: int) -> None:
    text = f"cluster: c\ntopics: [{{topic: t, configs: {{k: {number}}}}}]"
    parsed = read_manifest_files(["-"], io.StringIO(text))
    assert parsed.rows[0].configs == {"k": str(number)}


@given(st.text(max_size=8), st.text(max_size=8))
def test_json_values_are_read_unchanged(key: str, value: str) -> None:
    assume(not is_odd(value))
    fields = {"cluster": "c", "topic": "t", "configs": {"k": value}, "labels": {key: value}, "description": value}
    (row,) = read_manifest_files(["-"], io.StringIO(json.dumps([fields]))).rows
    assert (row.configs, row.labels, row.description) == ({"k": value}, {key: value}, value)


@given(st.text(max_size=60), st.sampled_from(["csv", "json", "yaml"]))
def test_no_text_ever_raises(text: str, form: manifest_files.Format) -> None:
    parsed = read_manifest_files(["-"], io.StringIO(text), stdin_format=form)
    assert parsed.rows == []


@given(st.text(alphabet="tcopic: {}[]&*<,-'\"\n!#|>?%@0~", max_size=80))
def test_no_yaml_ever_raises(text: str) -> None:
    read_manifest_files(["-"], io.StringIO("cluster: c\ntopics:\n" + text), stdin_format="yaml")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('num_partitions: "12"', '`num_partitions` must be an integer, not the string "12"'),
        ("num_partitions: 1.5", "`num_partitions` must be an integer, not the number 1.5"),
        ("num_partitions: true", "`num_partitions` must be an integer, not the boolean true"),
        ("num_partitions: 1_000", "must be an integer, not `1_000`; write plain digits"),
        ("num_partitions: 2147483648", "`num_partitions` is 2147483648, which does not fit into 32 bits"),
        ("num_partitions: " + "9" * 9000, "which does not fit into 32 bits"),
        ("replication_factor: [3]", "`replication_factor` must be an integer, not a list"),
        ("partitions: 3", "unknown field `partitions`; did you mean `num_partitions`?"),
        ("replicas: 3", "unknown field `replicas`; did you mean `replication_factor`?"),
        ("acls: 3", "unknown field `acls`; known: `assignments`, `cluster`, `clusters`,"),
        ("owner: 12", "`owner` must be a string, not the number 12; quote it"),
        ("owner: true", "`owner` must be a string, not the boolean true; quote it"),
        ("owner: {a: b}", "`owner` must be a string, not a mapping"),
        ("configs: [a]", "`configs` must be a mapping, not a list"),
        ("configs: {a: null}", "`configs`: `a` is null; leave the key out (of configs, for the broker's default)"),
        ("configs: {a: [compact, delete]}", 'write a comma-separated string, "a,b"'),
        ("configs: {a: {b: c}}", "not a mapping"),
        ("configs: {a: 1, a: 2}", "`a` is written twice"),
        ("configs: {1: x}", "the key `1` is a number in YAML; quote it"),
        ("configs: {true: x}", "the key `true` is the boolean true in YAML; quote it"),
        ("configs: {null: x}", "the key `null` is null in YAML; quote it"),
        ("configs: {[a]: x}", "a key must be plain text"),
        ("labels: {a: }", "`labels`: `a` is null"),
        ("assignments: [[1]]", "`assignments` must map partitions to lists of broker ids, not a list"),
        ("assignments: {0: 1}", "partition `0` must be a list of broker ids, not the number 1"),
        ("assignments: {x: [1]}", 'partition `x` must be an integer, not the string "x"; write plain digits'),
        ('assignments: {0: ["1"]}', 'a broker id must be an integer, not the string "1"'),
        ("assignments: {0: [1], '0': [2]}", "`0` is written twice"),
        ("assignments: {0: [99999999999]}", "which does not fit into 32 bits"),
        ("topic: again", "`topic` is written twice"),
        (
            "owner: !!python/object/apply:os.system [x]",
            "a tag (`!name`) is not allowed in a manifest",
        ),
        ("owner: !env NAME", "a tag (`!name`) is not allowed in a manifest; quote text"),
        ("owner: *nowhere", "`*nowhere` is an alias without an anchor before it"),
        ("configs: &c {a: *c}", "`*c` is an alias without an anchor before it"),
        ("configs: {<<: 5}", "`<<` takes a mapping or a list of them"),
        ("configs: " + "[" * 200 + "]" * 200, "nested too deeply"),
        ("owner: 'open", "not valid YAML: found unexpected end of stream"),
        ('owner: "\x07"', "not valid YAML: unacceptable character"),
    ],
)
def test_errors_in_yaml_have_their_line(parse: Parse, field: str, message: str) -> None:
    parsed = parse("m.yaml", f"cluster: c\ntopics:\n  - topic: t\n    {field}\n")
    (error,) = parsed.errors
    assert message in error.message
    assert error.line in (4, 5)
    assert parsed.rows == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topics: [{topic: t}]", "m.yaml:1: `cluster` is missing"),
        ("cluster: c\ntopics: [{owner: x}]", "m.yaml:2: `topic` is missing"),
        ("cluster: c\ntopics: [{topic: null}]", "m.yaml:2: `topic` is missing"),
        (
            "cluster: c\ntopics:\n- a\n",
            'm.yaml:3: each of `topics` must be a mapping with a `topic`, not the string "a"',
        ),
        ("cluster: c\ntopics:\n\n-\n", "m.yaml:4: each of `topics` must be a mapping with a `topic`"),
        ("cluster: c\ntopics: {topic: t}", "m.yaml:2: `topics` must be a list, not a mapping"),
        ("cluster: c\n", "m.yaml:1: `topics` is missing"),
        ("- topic: t\n", "m.yaml:1: must be a mapping with `topics`"),
        ("hello", "m.yaml:1: must be a mapping with `topics`"),
        ("cluster: c\ndefault: {}\ntopics: []", "m.yaml:2: unknown key `default`; did you mean `defaults`?"),
        ("cluster: c\ndefaults: {topic: t}\ntopics: []", "m.yaml:2: unknown field `topic`"),
        ("cluster: c\ndefaults: {replaces: t}\ntopics: []", "m.yaml:2: unknown field `replaces`"),
        ("cluster: c\ndefaults: {description: t}\ntopics: []", "m.yaml:2: unknown field `description`"),
        (
            "cluster: c\ntopics: [{topic: t, description: 1}]",
            "m.yaml:2: `description` must be a string, not the number",
        ),
        ("cluster: c\ndefaults: []\ntopics: []", "m.yaml:2: `defaults` must be a mapping, not a list"),
        ("cluster: c\ndefaults: {cluster: d}\ntopics: []", "m.yaml:1: `cluster` is given here and in `defaults`"),
        ("cluster: 1\ntopics: [{topic: t}]", "m.yaml:1: `cluster` must be a string, not the number 1; quote it"),
        ("cluster: c\ncluster: d\ntopics: []", "m.yaml:2: `cluster` is written twice"),
        ("cluster: c\n\ttopics: []", "m.yaml:2: not valid YAML"),
    ],
)
def test_a_wrong_document_is_one_error_with_its_line(parse: Parse, text: str, message: str) -> None:
    parsed = parse("m.yaml", text)
    (found,) = texts(parsed)
    assert found.startswith(message)
    assert parsed.rows == []


def test_a_wrong_default_is_told_once_and_keeps_its_topics_back(parse: Parse) -> None:
    parsed = parse("m.yaml", "cluster: c\ndefaults: {configs: {a: no}}\ntopics: [{topic: a}, {topic: b}]\n")
    assert len(parsed.errors) == 1
    assert parsed.rows == []


def test_documents_before_a_syntax_error_are_checked_too(parse: Parse) -> None:
    parsed = parse("m.yaml", "cluster: c\ntopics: [{topik: a}]\n---\ncluster: [\n")
    assert [error.line for error in parsed.errors] == [5, 2, 2]


def test_json_rows_and_errors_have_real_lines(parse: Parse) -> None:
    parsed = parse(
        "m.json",
        """[
  {"cluster": "c", "topic": "a"},

  {"cluster": "c",
   "topic": "b", "configs": {"x": "1\\n2"}}, {"cluster": "c", "topic": "c", "cluster": "d"},
  {"cluster": "c", "topic": "d", "topik": 1}, 5,
  {"cluster": "c", "topic": "e"}
]
""",
    )
    assert [(row.topic, row.line) for row in parsed.rows] == [("a", 2), ("b", 4), ("e", 7)]
    every_kind = any_of(["a topic", *(kind.with_article for kind in NAMES)])
    assert texts(parsed) == [
        "m.json:5: `cluster` is written twice",
        "m.json:6: unknown field `topik`; did you mean `topic`?",
        f"m.json:6: must be an object with the fields of {every_kind}, not a number",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"topic": "a" "b"}]', "m.json:2: not valid JSON: Expecting ',' delimiter"),
        ('[{"cluster":"c","topic":"a"},\n]', "m.json:2: not valid JSON: a comma without a topic after it"),
        ('[{"cluster":"c","topic":"a"}\n{}]', "m.json:2: not valid JSON: expected a comma or ]"),
        ('[{"cluster":"c","topic":"a"}\n', "m.json:2: not valid JSON: expected a comma or ]"),
        ("[]\nx", "m.json:2: not valid JSON: something follows the closing ]"),
        ("[" * 100_000, "m.json:1: not valid JSON: nested too deeply"),
        ('[{"cluster":"c","topic":"a","configs":{"x":6.048e8}}]', "m.json:1: `configs`: `x`: `6.048e8` can be written"),
        ('[{"cluster":"c","topic":"a","configs":{"x":NaN}}]', "m.json:1: `configs`: `x`: `NaN` is not a JSON value"),
        ('[{"cluster":"c","topic":"a","configs":{"x":1,"x":2}}]', "m.json:1: `x` is written twice"),
        ('[{"cluster":"c","topic":"a","num_partitions":"12"}]', "m.json:1: `num_partitions` must be an integer"),
        (
            '[{"cluster":"c","topic":"a","num_partitions":1e1}]',
            "m.json:1: `num_partitions` must be an integer, not `1e1`",
        ),
        ('[{"cluster":"c","topic":"\\ud800"}]', "m.json:1: `topic` is not legal Unicode"),
        ('[{"cluster":"c","topic":"a","configs":{"\\ud800":""}}]', "m.json:1: a key of `configs` is not legal Unicode"),
        ('[{"cluster":"c","topics":[]}]', "m.json:1: unknown field `topics`; it belongs at the top of a file"),
    ],
)
def test_errors_in_json_have_their_line(parse: Parse, text: str, message: str) -> None:
    found = texts(parse("m.json", text))
    assert found[0].startswith(message)


def test_a_broken_json_line_does_not_hide_the_next(parse: Parse) -> None:
    parsed = parse("m.jsonl", '{"cluster": "c", "topic": "a"}\n{"cluster"\n\n{"topic": "\u2028"}\r\n{}x\n')
    assert [error.line for error in parsed.errors] == [2, 4, 5]
    assert len(parsed.rows) == 1


def test_csv_rows_have_the_line_they_begin_on(parse: Parse) -> None:
    parsed = parse(
        "m.csv",
        "\ufeffcluster, topic ,num_partitions,owner,configs\r\n"
        'c,a,3,"two\nlines","{""k"": ""v""}"\r\n'
        "\r\n"
        "c,b, 12 ,,\r\n",
    )
    assert texts(parsed) == []
    assert [(row.topic, row.line, row.num_partitions) for row in parsed.rows] == [("a", 2, 3), ("b", 5, 12)]
    assert (parsed.rows[0].owner, parsed.rows[1].owner) == ("two\nlines", None)
    assert parsed.rows[0].configs == {"k": "v"}


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("cluster,topik\nc,a\n", ["m.csv:1: unknown column `topik`; did you mean `topic`?", "`topic` is missing"]),
        ("cluster,topic,topic\nc,a,a\n", ["m.csv:1: column `topic` appears twice"]),
        ("topic\na\n", ["m.csv:1: column `cluster` is missing"]),
        (
            "cluster,topic\nc\nc,a,b\n",
            ["m.csv:2: has 1 cell, but the header has 2", "m.csv:3: has 3 cells, but the header has 2"],
        ),
        ("cluster,topic\n,a\nc,\n", ["m.csv:2: `cluster` is missing", "m.csv:3: `topic` is missing"]),
        ("cluster,topic,num_partitions\nc,a,x\n", ['m.csv:2: `num_partitions` must be an integer, not the string "x"']),
        ("cluster,topic,num_partitions\nc,a,1e3\n", ["m.csv:2: `num_partitions` must be an integer"]),
        ("cluster,topic,configs\nc,a,k=v\n", ["m.csv:2: `configs` must be JSON text: Expecting value"]),
        ("cluster,topic,configs\nc,a,[1]\n", ["m.csv:2: `configs` must be a mapping, not a list"]),
        ('cluster,topic,configs\nc,a,"{""k"":1,""k"":2}"\n', ["m.csv:2: `k` is written twice"]),
        ('cluster,topic\nc,"a\n', ["m.csv:2: not valid CSV: unexpected end of data"]),
        ('cluster,topic\nc,"a"b\n', ["m.csv:2: not valid CSV"]),
    ],
)
def test_errors_in_csv_have_their_line(parse: Parse, text: str, messages: list[str]) -> None:
    parsed = parse("m.csv", text)
    assert len(parsed.errors) == len(messages)
    assert all(message in found for message, found in zip(messages, texts(parsed), strict=True))
    assert parsed.rows == []


def test_a_csv_cell_may_hold_a_large_assignment(parse: Parse) -> None:
    assignments = {str(partition): [1, 2, 3] for partition in range(20_000)}
    parsed = parse("m.csv", f'cluster,topic,assignments\nc,a,"{_cell(assignments)}"\n')
    assert texts(parsed) == []
    assert len(parsed.rows[0].assignments or {}) == 20_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.yaml", ""),
        ("m.yaml", "# nothing\n"),
        ("m.yaml", "topics:\n"),
        ("m.yaml", "\ufeffcluster: c\ntopics: []\n"),
        ("m.json", ""),
        ("m.json", "\ufeff[ ]\n"),
        ("m.jsonl", "\n"),
        ("m.csv", ""),
        ("m.csv", "cluster,topic\n"),
    ],
)
def test_a_file_without_topics_is_no_rows_and_no_error(parse: Parse, name: str, text: str) -> None:
    parsed = parse(name, text)
    assert (parsed.rows, texts(parsed)) == ([], [])


def test_a_folder_is_read_recursively_in_sorted_order_without_hidden_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ["z.jsonl", "b/a.YML", "a.json", ".hidden.json", ".git/c.json", "notes.txt"]:
        if name.endswith("YML"):
            (tmp_path / name).write_text(f"cluster: c\ntopics: [{{topic: '{name}'}}]\n")
        else:
            (tmp_path / name).write_text(json.dumps({"cluster": "c", "topic": name}))
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    parsed = read_manifest_files([tmp_path, tmp_path / "a.json"], NOTHING)
    assert texts(parsed) == []
    assert [row.topic for row in parsed.rows] == ["a.json", "b/a.YML", "z.jsonl"]
    assert parsed.rows[0].file == str(tmp_path / "a.json")


def test_paths_that_cannot_be_read_are_errors_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "m.txt").write_text("")
    (tmp_path / "latin1.yaml").write_bytes(b"a: b\n# caf\xe9\n")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone")
    (tmp_path / "good.json").write_text('[{"cluster": "c", "topic": "t"}]')
    names = ["empty", "m.txt", "latin1.yaml", "dangling.json", "absent.yaml", "absent", "good.json"]
    parsed = read_manifest_files([tmp_path / name for name in names], NOTHING)
    assert [text.removeprefix(f"{tmp_path}/").split(" (", maxsplit=1)[0] for text in texts(parsed)] == [
        "empty: no manifest files in this folder",
        "m.txt: unknown kind of file; its name must end in .yaml, .yml, .json, .jsonl, .ndjson, .csv; `load-manifests "
        "--from FORMAT` reads other tools' files",
        "latin1.yaml:2: not UTF-8",
        "dangling.json: no such file or folder",
        "absent.yaml: no such file or folder",
        "absent: no such file or folder",
    ]
    assert len(parsed.rows) == 1


def test_a_path_below_a_closed_folder_is_an_error_not_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", denied)
    monkeypatch.setattr(os, "stat", denied)
    parsed = read_manifest_files([tmp_path / "m.yaml"], NOTHING)
    assert texts(parsed) == [f"{tmp_path / 'm.yaml'}: can't be read: Permission denied"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('\n [{"cluster": "c", "topic": "t"}]', None),
        ('\ufeff{"cluster": "c", "topic": "t"}', None),
        ("cluster: c\ntopics: [{topic: t}]", None),
        ("{cluster: c, topics: [{topic: t}]}", "yaml"),
        ("cluster,topic\nc,t\n", "csv"),
    ],
)
def test_stdin_is_sniffed_unless_told(text: str, form: manifest_files.Format | None) -> None:
    for stdin in (io.StringIO(text), io.TextIOWrapper(io.BytesIO(text.encode()), encoding="latin-1")):
        parsed = read_manifest_files(["-", "-"], stdin, stdin_format=form)
        assert texts(parsed) == []
        assert [(row.topic, row.file) for row in parsed.rows] == [("t", "stdin")]


def test_stdin_that_is_not_utf8_is_an_error() -> None:
    parsed = read_manifest_files(["-"], io.TextIOWrapper(io.BytesIO(b"\n\xff")))
    assert texts(parsed) == ["stdin:2: not UTF-8"]


def test_control_characters_do_not_reach_a_message(parse: Parse) -> None:
    (error,) = parse("m.json", '[{"cluster":"c","topic":"t","a\\u001b[31m\\nb":1}]').errors
    assert str(error).isprintable()
    assert str(FileError("a\nb", 3, "x")) == "a\\nb:3: x"


BOMBS = {
    "merge keys": "\n".join(
        [
            "cluster: c",
            "topics:",
            "- &a0 {" + ", ".join(f"k{i}: x" for i in range(3000)) + "}",
            *(f"- {{<<: [{', '.join(['*a0'] * 1000)}]}}" for _ in range(20)),
        ]
    ),
    "aliased topics": "cluster: c\ntopics:\n- &t\n  topic: t\n  configs: {"
    + ", ".join(f"k{i}: x" for i in range(5000))
    + "}\n"
    + "- *t\n" * 5000,
    "defaults": "cluster: c\ndefaults: {configs: {"
    + ", ".join(f"k{i}: x" for i in range(5000))
    + "}}\ntopics:\n"
    + "- {topic: t, configs: {a: b}}\n" * 5000,
    "merged empty mappings": "x: &l [" + "{}," * 500 + "]\ny: [" + "{<<: *l}," * 500 + "]\ntopics: []\n",
    "aliased shorthands": "cluster: c\nacls:\n- &e {connect: {principal: 'User:a', group: g, internal: ["
    + ", ".join(f"t{i}" for i in range(100))
    + "]}}\n"
    + "- *e\n" * 20,
    "labels of shorthands": "cluster: c\ndefaults: {labels: {"
    + ", ".join(f"k{i}: x" for i in range(500))
    + "}}\nacls:\n- connect: {principal: 'User:a', group: g, internal: ["
    + ", ".join(f"t{i}" for i in range(100))
    + "]}\n",
    "default labels of quotas": "cluster: c\ndefaults: {labels: {"
    + ", ".join(f"k{i}: x" for i in range(500))
    + "}}\nquotas:\n"
    + "- {user: a, producer_byte_rate: 1}\n" * 300,
    "a long default owner": f"cluster: c\ndefaults: {{owner: {'x' * 100_000}}}\ntopics:\n" + "- {topic: t}\n" * 200,
    "a long default label": f"cluster: c\ndefaults: {{labels: {{a: {'x' * 100_000}}}}}\ntopics:\n"
    + "- {topic: t}\n" * 200,
    "an aliased long text": f"cluster: c\nx: &x {'x' * 100_000}\ntopics:\n" + "- {topic: t, configs: {a: *x}}\n" * 200,
    "a long principal": f"cluster: c\nacls:\n- connect: {{principal: 'User:{'x' * 100_000}', group: g, internal: ["
    + ", ".join(f"t{i}" for i in range(100))
    + "]}\n",
    "nested lists": "a: &a [x]\nb: &b [" + "*a," * 999 + "]\nc: &c [" + "*b," * 999 + "]\ntopics: [*c]\ncluster: c\n",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.timeout(60)
def test_aliases_cannot_blow_a_file_up(parse: Parse, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(yaml_files, "_MAX_ALIASED", 100_000)
    parsed = parse("m.yaml", BOMBS[name])
    assert parsed.errors
    if name != "nested lists":
        assert "expand to more than" in parsed.errors[-1].message


def test_yaml_is_read_the_same_without_libyaml(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    with_libyaml = parse("m.yaml", ORDERS_YAML)
    monkeypatch.setattr(yaml_values, "_Loader", yaml.SafeLoader)
    assert parse("m.yaml", ORDERS_YAML) == with_libyaml
    for text in ["a: 'open", "a: \x07", "a: *b", "a: [", "? [a]\n: b"]:
        assert parse("m.yaml", text).errors


def test_errors_of_all_files_are_collected(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("cluster: c\ntopics:\n- {topic: t, owner: no}\n- {tpc: t}\n")
    parsed = read_manifest_files([tmp_path], NOTHING)
    assert [(os.path.basename(error.file), error.line) for error in parsed.errors] == [  # noqa: PTH119
        ("a.yaml", 3),
        ("a.yaml", 4),
        ("a.yaml", 4),
        ("b.yaml", 3),
        ("b.yaml", 4),
        ("b.yaml", 4),
    ]


def test_units_of_configs_become_kafkas_numbers_in_every_format(parse: Parse) -> None:
    configs = {"retention.ms": "7d", "segment.bytes": "1GiB", "flush.messages": 5}
    entry = {"cluster": "orders", "topic": "a", "configs": configs}
    defaults = {"cluster": "orders", "defaults": {"configs": configs}, "topics": [{"topic": "a"}]}
    forms = {
        "m.json": json.dumps([entry]),
        "m.yaml": yaml.safe_dump({"topics": [entry]}),
        "defaults.yaml": yaml.safe_dump(defaults),
        "m.csv": f'cluster,topic,configs\norders,a,"{_cell(configs)}"\n',
    }
    stored = {"retention.ms": "604800000", "segment.bytes": "1073741824", "flush.messages": "5"}
    for name, text in forms.items():
        parsed = parse(name, text)
        assert texts(parsed) == []
        assert [row.configs for row in parsed.rows] == [stored], name


def test_a_config_that_no_kafka_accepts_is_an_error_at_its_line(parse: Parse) -> None:
    text = """\
cluster: orders
topics:
  - topic: a
    configs:
      retention.ms: 7 days
      cleanup.policy: compacted
      segment.bytes: "${SIZE}"
  - {topic: b, configs: {retention.ms: 5}}
"""
    parsed = parse("m.yaml", text)
    assert texts(parsed) == [
        'm.yaml:5: `configs`: `retention.ms` is "7 days"; write a whole number or a duration such as 7d or 12h',
        'm.yaml:6: `configs`: `cleanup.policy` is "compacted"; Kafka accepts compact, delete',
        'm.yaml:7: `configs`: `segment.bytes` is "${SIZE}"; write a whole number or a size such as 1GiB or 500MB: it '
        "contains a template placeholder; render the template first",
    ]
    assert [row.topic for row in parsed.rows] == ["b"]


def test_an_unknown_config_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    text = """\
cluster: orders
topics:
  - {topic: a, configs: {retention.mss: 5, flush.ms: 1, zzz: 1}}
  - {topic: b, clusters: [orders, other], configs: {retention.mss: 5}}
"""
    assert warnings_of(tmp_path / "m.yaml", text) == [
        "3: unknown config `retention.mss`; did you mean `retention.ms`?",
        "3: unknown config `zzz`; only a newer Kafka or a fork may have it",
        "4: unknown config `retention.mss`; did you mean `retention.ms`?",
    ]


def test_warnings_of_a_file_are_one_line_each_and_errors_have_them_below(tmp_path: Path) -> None:
    """Else a name with 50 places would hide the others, and whoever mends the errors would meet the warnings next."""
    path = tmp_path / "m.yaml"
    path.write_text("cluster: main\ntopics:\n" + "- {topic: t, configs: {retention.mss: 5}}\n" * 50)
    unknown = "unknown config `retention.mss`; did you mean `retention.ms`?"
    assert remarks(read(SETTINGS, [path], NOTHING)) == [f"warning: {path}:3: {unknown}; other lines of the file, too"]
    with pytest.raises(ManifestFileError) as strict:
        read(SETTINGS, [path], NOTHING, strict=True)
    assert str(strict.value).split("\n")[:50] == [f"{path}:{line}: {unknown}" for line in range(3, 53)]
    path.write_text("cluster: main\ntopics:\n- {topic: t, configs: {retention.mss: 5, segment.ms: x}}\n")
    with pytest.raises(ManifestFileError) as wrong:
        read(SETTINGS, [path], NOTHING)
    _, warning, total = str(wrong.value).split("\n")
    assert (warning, total) == (f"warning: {path}:3: {unknown}", "1 error: nothing was loaded or planned")
