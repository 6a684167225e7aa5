"""One file declares topics and other resources for several clusters."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.unit.manifest_texts import BAD, COMPLETED, ODD, OTHERS, PAYMENTS, VARIABLES
from topicledger.cli import main
from topicledger.config.reading import load_settings
from topicledger.errors import ManifestFileError, UsageError
from topicledger.files.read import read, remarks
from topicledger.files.reading import read_manifest_files
from topicledger.manifests.files import FIELDS, FileError, ParsedManifests
from topicledger.manifests.files.variables import variables_in

Parse = Callable[[str, str], ParsedManifests]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    def parse_text(name: str, text: str) -> ParsedManifests:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_manifest_files([path], io.StringIO(""))

    return parse_text


def errors(parsed: ParsedManifests) -> list[str]:
    return [str(FileError(Path(each.file).name, each.line, each.message)) for each in parsed.errors]


def rows(parsed: ParsedManifests) -> dict[tuple[str, str], dict[str, Any]]:
    """The fields of each topic that aren't null, by cluster and topic."""
    assert errors(parsed) == []
    found = {}
    for row in parsed.rows:
        fields = {name: getattr(row, name) for name in FIELDS if name not in ("cluster", "topic", "state")}
        found[row.cluster, row.topic] = {name: value for name, value in fields.items() if value is not None}
    return found


DAY = 86_400_000
EXPECTED = {
    ("staging", "payments.authorised"): {
        "owner": "payments",
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": {"retention.ms": str(DAY)},
    },
    ("prod", "payments.authorised"): {
        "owner": "payments",
        "num_partitions": 12,
        "replication_factor": 3,
        "configs": {"retention.ms": str(7 * DAY)},
    },
    ("prod", "payments.audit"): {
        "owner": "payments",
        "num_partitions": 6,
        "replication_factor": 3,
        "configs": {"retention.ms": str(7 * DAY), "cleanup.policy": "delete"},
    },
}


def test_one_file_declares_topics_of_two_clusters(parse: Parse) -> None:
    parsed = parse("m.yaml", PAYMENTS)
    assert rows(parsed) == EXPECTED
    assert [row.line for row in parsed.rows] == [5, 5, 6]


def test_json_document_is_read_like_yaml(parse: Parse) -> None:
    text = json.dumps(yaml.safe_load(PAYMENTS), indent=1)
    parsed = parse("m.json", text)
    assert rows(parsed) == EXPECTED
    lines = text.split("\n")
    assert [lines[row.line - 1 : row.line + 1] for row in parsed.rows][-1] == [
        "  {",
        '   "topic": "payments.audit",',
    ]


@pytest.mark.parametrize("form", ["[%s]", "%s"])
def test_json_entries_have_clusters_and_overrides(parse: Parse, form: str) -> None:
    entry = {"clusters": ["a", "b"], "topic": "t", "owner": "o", "overrides": {"b": {"num_partitions": 3}}}
    assert rows(parse("m.json", form % json.dumps(entry))) == {
        ("a", "t"): {"owner": "o"},
        ("b", "t"): {"owner": "o", "num_partitions": 3},
    }


@pytest.mark.parametrize("form", ["[%s]", "%s"])
@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"permission": "DENY", "overrides": {"b": {"permission": None}}}, "permission"),
        ({"host": "10.0.0.1", "overrides": {"b": {"host": None}}}, "host"),
    ],
)
def test_json_entries_keep_what_names_their_resource(
    parse: Parse, form: str, entry: Mapping[str, Any], name: str
) -> None:
    """Without it, an override would make another ACL: an ALLOW, or one from every host."""
    acl = {"principal": "User:u", "operation": "READ", "resource_type": "TOPIC", "resource_name": "t"}
    (error,) = errors(parse("m.json", form % json.dumps({"clusters": ["a", "b"], **acl, **entry})))
    assert error == f"m.json:1: `overrides`: cluster `b` can't remove `{name}`; write its value"


def test_stronger_levels_override_weaker_ones(parse: Parse) -> None:
    text = """\
clusters: [a]
defaults:
  configs: {one: d, two: d, three: d, four: d, five: d}
  overrides: {a: {configs: {two: do, three: do, four: do, five: do}}}
overrides: {a: {configs: {four: fo, five: fo}}}
topics:
  - topic: t
    configs: {three: t, four: t, five: t}
    overrides: {a: {configs: {five: to}}}
"""
    configs = {"one": "d", "two": "do", "three": "t", "four": "fo", "five": "to"}
    assert rows(parse("m.yaml", text)) == {("a", "t"): {"configs": configs}}


@pytest.mark.parametrize("level", ["defaults", "file", "entry"])
@pytest.mark.parametrize("name", ["configs", "labels"])
def test_an_empty_mapping_in_an_override_changes_nothing(parse: Parse, level: str, name: str) -> None:
    empty = {"overrides": {"b": {name: None}}}
    own = {name: {"cleanup.policy": "compact"}}
    in_defaults = level == "defaults"
    document = {
        "clusters": ["a", "b"],
        "defaults": {**(own if in_defaults else {}), **(empty if in_defaults else {})},
        **(empty if level == "file" else {}),
        "topics": [{"topic": "t", **({} if in_defaults else own), **(empty if level == "entry" else {})}],
    }
    assert rows(parse("m.yaml", yaml.safe_dump(document))) == {("a", "t"): own, ("b", "t"): own}


def test_override_of_one_kind_of_counts_removes_the_other(parse: Parse) -> None:
    text = """\
clusters: [a, b, c]
defaults: {replication_factor: 3}
topics:
  - topic: t
    num_partitions: 2
    overrides: {b: {assignments: {0: [1], 1: [2]}}, c: {num_partitions: null, owner: o}}
"""
    assert rows(parse("m.yaml", text)) == {
        ("a", "t"): {"num_partitions": 2, "replication_factor": 3},
        ("b", "t"): {"assignments": {0: (1,), 1: (2,)}},
        ("c", "t"): {"replication_factor": 3, "owner": "o"},
    }


@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_other_kinds_have_clusters_and_overrides(parse: Parse, name: str) -> None:
    text = OTHERS if name == "m.yaml" else json.dumps(yaml.safe_load(OTHERS))
    parsed = parse(name, text)
    assert errors(parsed) == []
    principals = {(row.cluster, row.values["principal"]) for row in parsed.rows_of("acls")}
    assert principals == {("a", "User:app"), ("b", "User:app-test"), ("a", "User:x")}
    rates = {row.cluster: row.values["producer_byte_rate"] for row in parsed.rows_of("quotas")}
    assert rates == {"a": 1000, "b": 10}
    assert {row.cluster: row.state for row in parsed.rows_of("group_configs")} == {"a": "absent", "b": "present"}
    labels = {row.cluster: row.labels for row in parsed.rows_of("quotas")}
    assert labels == {"a": {"tier": "gold"}, "b": {"tier": "gold", "env": "test"}}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_wrong_files_for_clusters_are_refused(parse: Parse, text: str, message: str) -> None:
    assert errors(parse("m.yaml", text)) == [f"m.yaml:{message}"]


UNKNOWN = {
    "an entry's override": "cluster: a\ntopics:\n- {topic: t, overrides: {a: {configs: {\n  retention.mss: null}}}}\n",
    "the file's override": "cluster: a\ntopics: [{topic: t}]\noverrides: {a: {configs: {\n  retention.mss: null}}}\n",
    "the defaults' override": "cluster: a\ntopics:\ndefaults: {overrides: {a: {configs: {\n  retention.mss: null}}}}\n",
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_null_for_an_unknown_config_is_a_warning_as_a_value_is(parse: Parse, text: str) -> None:
    """It removes nothing, while its author takes the cluster for one with the broker's default."""
    parsed = parse("m.yaml", text)
    assert errors(parsed) == []
    assert [f"{each.line}: {each.message}" for each in parsed.warnings] == [
        "4: unknown config `retention.mss`; did you mean `retention.ms`?"
    ]


def test_an_override_may_replace_a_wrong_spelling(parse: Parse) -> None:
    wrong, override = (
        "configs: {Retention.ms: '1'}",
        "overrides: {a: {configs: {Retention.ms: null, retention.ms: 1d}}}",
    )
    of_entry = f"clusters: [a, b]\ntopics: [{{topic: t, {wrong}, {override}}}]\n"
    of_defaults = f"clusters: [a, b]\ndefaults: {{{wrong}, {override}}}\ntopics: [{{topic: t}}]\n"
    of_file = f"clusters: [a, b]\ndefaults: {{{wrong}}}\n{override}\ntopics: [{{topic: t}}]\n"
    in_json = json.dumps([yaml.safe_load(of_entry)["topics"][0] | {"clusters": ["a", "b"]}])
    for name, text in (("m.yaml", of_entry), ("m.yaml", of_defaults), ("m.yaml", of_file), ("m.json", in_json)):
        found = {cluster: row["configs"] for (cluster, _), row in rows(parse(name, text)).items()}
        assert found == {"a": {"retention.ms": str(DAY)}, "b": {"Retention.ms": "1"}}


SHARED_ERRORS = """\
clusters: [prod, staging]
defaults:
  num_partitions: 0
topics:
  - {topic: t}
  - topic: u
    overrides:
      staging:
        replication_factor: 0
  - topic: v
    overrides:
      staging: {configs: {min.compaction.lag.ms: 5, max.compaction.lag.ms: 1}}
---
clusters: [nope, staging]
defaults:
  state: gone
  configs: {cleanup.policy: compact, remote.storage.enable: true}
overrides:
  staging:
    state: never
topics: [{topic: w}, {topic: x}]
quotas:
  - {user: u, producer_byte_rate: 1}
  - {user: v, producer_byte_rate: 1}
  - {user: w, producer_byte_rate: 1, state: own}
---
cluster: nope
topics:
"""


def test_overrides_complete_entries_beside_topics(parse: Parse) -> None:
    parsed = parse("m.yaml", COMPLETED)
    assert errors(parsed) == []
    acls, quotas, groups = (parsed.rows_of(name) for name in ("acls", "quotas", "group_configs"))
    assert [row.values["principal"] for row in acls if row.values["operation"] == "READ"][:2] == ["User:x", "User:y"]
    assert [row.values["user"] for row in quotas] == ["u"]
    assert [row.values["group"] for row in groups] == ["h"]


def test_errors_of_rows_have_the_line_of_the_value_and_the_cluster(tmp_path: Path, settings_file: Path) -> None:
    """A default is one error for all that inherit it; an unknown cluster is one for each document."""
    path = tmp_path / "m.yaml"
    path.write_text(SHARED_ERRORS)
    with pytest.raises(ManifestFileError) as raised:
        read(load_settings(settings_file), [path], io.StringIO(""))
    none = "it must be at least 1, or null for the broker's default"
    nope = "unknown cluster `nope`; known: `a`, `b`, `prod`, `staging`"
    assert str(raised.value).replace(str(path), "m.yaml").split("\n")[:-1] == [
        f"m.yaml:3: topics t, u, v: num_partitions is 0; {none}",
        f"m.yaml:9: topic u on staging: replication_factor is 0; {none}",
        "m.yaml:12: topic v on staging: configs: min.compaction.lag.ms is 5, more than max.compaction.lag.ms, 1",
        f"m.yaml:14: {nope}",
        "m.yaml:16: topics w, x: state is gone; write present or absent",
        "m.yaml:16: quota: state is gone; write present or absent",
        "m.yaml:17: topics w, x: configs: remote.storage.enable is true, with which brokers refuse compact in "
        "cleanup.policy",
        "m.yaml:20: topics w, x: state is never; write present or absent",
        "m.yaml:20: quota: state is never; write present or absent",
        "m.yaml:25: quota: state is own; write present or absent",
        f"m.yaml:27: {nope}",
    ]


def test_an_unknown_cluster_without_entries_is_an_error(tmp_path: Path, settings_file: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("topics: [{topic: t, clusters: [prod]}]\nclusters: [prod, nope]\n")
    with pytest.raises(ManifestFileError, match=r"m\.yaml:2: unknown cluster `nope`; known: "):
        read(load_settings(settings_file), [path], io.StringIO(""))
    path.write_text("topics: [{topic: t, clusters: [prod]}]\nclusters: [prod, staging]\n")
    found = read(load_settings(settings_file), [path], io.StringIO(""))
    assert found.clusters == ["prod", "staging"]
    assert found.on(["prod"]).clusters == ["prod"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"clusters": ["a"],\n "topics": [{"topic": "t"}\n {"topic": "u"}]}',
            "3: not valid JSON: expected a comma or ]",
        ),
        ('{"clusters": ["a"],\n "topics": [],\n}', "3: not valid JSON: a comma without a field after it"),
        ('{"topics": [],\n "topics" []}', "2: not valid JSON: expected a name, a colon and a value"),
        ('{"cluster": "a",\n "topics": []} 5', "2: not valid JSON: something follows the closing }"),
        ('{"cluster": "a", "topics": [],\n "topics": []}', "2: `topics` is written twice"),
        (
            '{"cluster": "a", "topics": [\n{"topic": "t"},\n{"topic": 5}]}',
            "3: `topic` must be a string, not the number 5; quote it",
        ),
        ('{"topics": [],\n "quota": []}', "2: unknown key `quota`; did you mean `quotas`?"),
        (
            '{"clusters": ["a"], "topics": [\n{"topic": "t", "overrides": {"b": {}}}]}',
            "2: `overrides`: `b` isn't a cluster of this entry; known: `a`",
        ),
    ],
)
def test_errors_in_json_documents_have_their_line(parse: Parse, text: str, message: str) -> None:
    assert errors(parse("m.json", text)) == [f"m.json:{message}"]


def test_many_clusters_are_too_much(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topicledger.files.yaml_files._MAX_ALIASED", 1_000)
    monkeypatch.setattr("topicledger.files.json_files._MAX_MADE", 1_000)
    document = {"clusters": [str(n) for n in range(100)], "topics": [{"topic": f"t{n}"} for n in range(100)]}
    for name in ("m.yaml", "m.json"):
        (error,) = parse(name, json.dumps(document)).errors
        assert "expand to more than 1,000 values" in error.message


def test_null_in_an_override_removes_a_config_or_label_and_no_state(parse: Parse) -> None:
    parsed = parse("m.yaml", ODD)
    assert {row.state for row in parsed.rows} == {"absent"}
    assert rows(parsed) == {
        ("a", "t"): {"description": "only here", "replaces": "old", "configs": {"preallocate": "true"}},
        ("b", "t"): {"labels": {"x": "gold"}},
    }
    quotas = {row.cluster: (row.state, row.labels) for row in parsed.rows_of("quotas")}
    assert quotas == {"a": ("absent", {"z": "w"}), "b": ("absent", {"x": "gold", "z": "w"})}
    groups = {row.cluster: (row.labels, row.values["configs"]) for row in parsed.rows_of("group_configs")}
    assert groups == {"a": (None, {"c": "1"}), "b": ({"x": "gold"}, {"d": "2"})}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cluster: a\ntopics: [{topic: t, assignments: {0: [1, 2]}, overrides: {a: {replication_factor: 1}}}]",
            {"num_partitions": 1, "replication_factor": 1},
        ),
        (
            "cluster: a\ntopics: [{topic: t, assignments: {0: [1, 2], 1: [3]}, overrides: {a: {placement: any}}}]",
            {"num_partitions": 2, "placement": "any"},
        ),
        (
            "cluster: a\ndefaults: {num_partitions: 3, overrides: {a: {assignments: {0: [1]}}}}\n"
            "topics: [{topic: t, replication_factor: 2}]",
            {"num_partitions": 1, "replication_factor": 2},
        ),
    ],
)
def test_counts_of_removed_assignments_stay(parse: Parse, text: str, expected: dict[str, object]) -> None:
    assert rows(parse("m.yaml", text)) == {("a", "t"): expected}


VALUES = {"CLUSTER": "prod", "PREFIX": "eu", "COUNT": "12", "DAYS": "7"}


def test_variables_have_the_values_of_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(VARIABLES)
    parsed = read_manifest_files([path], io.StringIO(""), variables={**VALUES, "OTHER": "x"})
    expected = {"num_partitions": 12, "owner": "${PREFIX}", "configs": {"retention.ms": str(7 * DAY)}}
    assert rows(parsed) == {("prod", "eu.orders"): expected}
    assert parsed.variables == VALUES
    # A plan from the file is about these values.
    others = read_manifest_files([path], io.StringIO(""), variables={**VALUES, "COUNT": "13"})
    assert others.digests != parsed.digests
    monkeypatch.setenv("COUNT", "12")
    without = {name: value for name, value in VALUES.items() if name != "COUNT"}
    assert errors(read_manifest_files([path], io.StringIO(""), variables={**without, "COUNTS": "1"})) == [
        "m.yaml:4: `num_partitions` must be an integer, not `${COUNT}`: `${COUNT}` has no value (did you mean "
        "`COUNTS`?); give --var COUNT=VALUE, or quote "
        "the text if it is meant as it is"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "cluster: c\ntopics:\n  - topic: ${a-b}\n",
            "3: `topic`: `${a-b}` is no variable such as ${NAME}; quote the text if it is meant as it is",
        ),
        (
            "cluster: c\ntopics:\n  - topic: ${A\n",
            "3: `topic`: `${A` is no variable such as ${NAME}; quote the text if it is meant as it is",
        ),
        (
            "cluster: c\ntopics:\n  - topic: t\n    configs:\n      ${A}: x\n",
            "5: `configs`: the key `${A}` has a variable; only values can have one",
        ),
        (
            "cluster: c\ntopics:\n  - {topic: ${A}.b}\n",
            "3: not valid YAML: in { } and [ ], no text can have a variable; write each field on its own line",
        ),
    ],
)
def test_wrong_variables_are_errors_with_their_line(parse: Parse, text: str, message: str) -> None:
    assert errors(parse("m.yaml", text)) == [f"m.yaml:{message}"]


def with_variable(tmp_path: Path, text: str, value: str) -> ParsedManifests:
    """Read an entry with the variable A, whose default state is absent."""
    path = tmp_path / "m.yaml"
    path.write_text(f"cluster: c\ndefaults: {{owner: o, state: absent}}\ntopics:\n  - topic: t\n    {text}\n")
    return read_manifest_files([path], io.StringIO(""), variables={"A": value})


@pytest.mark.parametrize("name", ["num_partitions", "owner", "state", "configs", "overrides", "cluster"])
def test_an_empty_variable_is_an_error_in_every_field(tmp_path: Path, name: str) -> None:
    (error,) = errors(with_variable(tmp_path, f"{name}: ${{A}}", ""))
    assert error.endswith("`${A}` is empty; give --var a value")


def test_an_empty_variable_is_no_empty_list_of_topics(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("cluster: c\ntopics: ${A}\n")
    (error,) = errors(read_manifest_files([path], io.StringIO(""), variables={"A": ""}))
    assert error.endswith("`${A}` is empty; give --var a value")


@pytest.mark.parametrize("value", ["2026", "yes", "true", "007", "~", "1e3", "2026-01-01", "null"])
def test_a_value_that_looks_like_a_number_or_boolean_is_a_text(tmp_path: Path, value: str) -> None:
    (row,) = with_variable(tmp_path, "owner: ${A}\n    labels:\n      a: ${A}", value).rows
    assert (row.owner, row.labels) == (value, {"a": value})
    assert {type(row.owner), *map(type, (row.labels or {}).values())} == {str}
    counts = with_variable(tmp_path, "num_partitions: ${A}", value)
    assert [row.num_partitions for row in counts.rows] == ([2026] if value == "2026" else [])


def test_variables_in_json_are_ordinary_text(parse: Parse) -> None:
    parsed = parse("m.json", '[{"cluster": "c", "topic": "t", "owner": "${A}"}]')
    assert rows(parsed) == {("c", "t"): {"owner": "${A}"}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["A"], "--var A: write NAME=VALUE"),
        (["1=x"], "--var 1=x: write NAME=VALUE"),
        (["A=1", "A=2"], "--var gives A twice"),
        (["A=${B}", "B=${A}"], "--var A: a value can't have variables"),
        (["A="], "--var A has no value"),
        (["A= \t"], "--var A has no value"),
    ],
)
def test_wrong_values_of_variables_are_refused(given: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        variables_in(given)


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "topicledger.toml"
    path.write_text(
        f'[tables]\nroot = "{tmp_path / "tables"}"\n'
        + "".join(f'[clusters.{name}]\nbootstrap_servers = ["localhost:1"]\n' for name in ("staging", "prod", "a", "b"))
    )
    return path


def test_show_prints_what_files_expand_to(tmp_path: Path, settings_file: Path, parse: Parse) -> None:
    (tmp_path / "m.yaml").write_text(PAYMENTS)
    (tmp_path / "others.yaml").write_text(OTHERS)
    arguments = ["load-manifests", "--config", str(settings_file), "--dry-run", "--show"]
    files = [str(tmp_path / name) for name in ("m.yaml", "others.yaml")]
    shown = CliRunner().invoke(main, [*arguments, *files])
    assert shown.exit_code == 0, shown.output
    assert f'  - topic: "payments.audit"  # {tmp_path}/m.yaml:6\n' in shown.stdout
    again = parse("again.yaml", shown.stdout)
    assert rows(again) == EXPECTED
    first = parse("others.yaml", OTHERS)
    for table in ("acls", "quotas", "group_configs"):
        have = [(row.cluster, row.state, row.owner, row.labels, row.values) for row in again.rows_of(table)]
        for row in first.rows_of(table):
            assert (row.cluster, row.state, row.owner, row.labels, row.values) in have
    document = CliRunner().invoke(main, [*arguments, "--format", "json", *files])
    assert [row["line"] for row in json.loads(document.stdout)["rows"]["manifests"]] == [5, 5, 6]


def test_show_tells_what_is_not_carried_over(tmp_path: Path, settings_file: Path) -> None:
    counts = "PartitionCount: 1\tReplicationFactor: 1\tConfigs: "
    lines = [
        f"Topic: a\t{counts}leader.replication.throttled.replicas=0:1",
        "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
        f"Topic: __consumer_offsets\t{counts}",
        "\tTopic: __consumer_offsets\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
    ]
    (tmp_path / "topics.txt").write_text("\n".join(lines))
    arguments = ["load-manifests", "--config", str(settings_file), "--dry-run", "--show", "--from", "kafka-topics"]
    file = str(tmp_path / "topics.txt")
    shown = CliRunner().invoke(main, [*arguments, "--cluster", "prod", file])
    assert shown.exit_code == 0, shown.output
    assert "(ignored because of changes.ignore in the settings)" in shown.stderr
    assert "skipped: 1 internal topic\n" in shown.stderr
    document = json.loads(CliRunner().invoke(main, [*arguments, "--cluster", "prod", "--format", "json", file]).stdout)
    assert any("throttled.replicas" in each["key"] for each in document["not_carried_over"])
    assert document["skipped"] == {"internal topic": 1}


def test_a_config_that_runs_ignore_is_a_warning(tmp_path: Path, settings_file: Path) -> None:
    name = "leader.replication.throttled.replicas"
    (tmp_path / "m.yaml").write_text(f"cluster: prod\ntopics: [{{topic: t, configs: {{{name}: '0:1'}}}}]\n")
    arguments = ["load-manifests", "--config", str(settings_file), "--dry-run", "--show", str(tmp_path / "m.yaml")]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    said = f"m.yaml:2: topic t: {name} is ignored because of changes.ignore in the settings, and is never set"
    assert said in shown.stderr
    (warning,) = json.loads(CliRunner().invoke(main, [*arguments, "--format", "json"]).stdout)["warnings"]
    assert said == f"{Path(warning['file']).name}:{warning['line']}: {warning['message']}"
    assert CliRunner().invoke(main, [*arguments, "--strict"]).exit_code == 2


def test_entries_of_other_clusters_are_left_out_and_counted(tmp_path: Path, settings_file: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "cluster: prod\ntopics: [{topic: live}, {topic: no name}]\n---\ncluster: staging\ntopics: [{topic: tried}]\n"
    )

    def shown(cluster: str) -> Result:
        arguments = ["load-manifests", "--config", str(settings_file), "--dry-run", "--show", "--cluster", cluster]
        return CliRunner().invoke(main, [*arguments, str(tmp_path / "m.yaml")])

    staging, none = shown("staging"), shown("a")
    assert ('topic: "tried"' in staging.stdout, "live" in staging.stdout) == (True, False)
    assert staging.stderr == "left out by --cluster: 2 entries of cluster prod\n"
    assert none.exit_code == 2
    assert none.stderr == (
        "error: left out by --cluster: 2 entries of cluster prod; left out by --cluster: 1 entry of cluster staging; "
        "the files have no entry of the clusters that --cluster names: name a cluster that they have; nothing was "
        "loaded\n"
    )
    assert shown("prod").exit_code == 2, "its own rows are checked"


def test_an_error_on_several_clusters_is_reported_once(tmp_path: Path, settings_file: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("clusters: [staging, prod]\ntopics: [{topic: t, num_partitions: 0}]\n")
    with pytest.raises(ManifestFileError) as caught:
        read(load_settings(settings_file), [path], io.StringIO(""))
    assert str(caught.value).count("num_partitions is 0") == 1
    assert str(caught.value).endswith("1 error: nothing was loaded or planned")


def test_a_warning_on_several_clusters_names_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("clusters: [a, b]\ntopics:\n  - {topic: t, owner: '{{ x }}'}\n")
    config = tmp_path / "s.toml"
    brokers = 'bootstrap_servers = ["localhost:9"]\n'
    config.write_text(f'[tables]\nroot = "{tmp_path}"\n[clusters.a]\n{brokers}[clusters.b]\n{brokers}')
    (warning,) = remarks(read(load_settings(config), [path], io.StringIO("")))
    assert warning.endswith("render the template first")
