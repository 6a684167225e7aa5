"""Files of other tools become the rows of native ones, and nothing that they say is dropped in silence."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.foreign import NOTHING, PLANS, Read, errors, leftovers
from topicledger.config.reading import load_settings
from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.errors import ManifestFileError
from topicledger.files.foreign.contract import YAML_SUFFIXES
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.foreign.of_kinds import PARTS
from topicledger.files.read import Foreign
from topicledger.files.read import read as read_checked
from topicledger.files.reading import read_foreign_files, read_manifest_files
from topicledger.manifests.files import ManifestRow, ParsedManifests


def only(parsed: ParsedManifests) -> ManifestRow:
    assert errors(parsed) == []
    (row,) = parsed.rows
    return row


def said(row: ManifestRow) -> dict[str, Any]:
    """Return the values of a row that aren't defaults."""
    fixed = ("cluster", "topic", "num_partitions", "replication_factor", "assignments", "configs")
    names = (*fixed, "owner", "labels", "description")
    found = {name: getattr(row, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


SMALLEST = {
    "strimzi": "apiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic\nmetadata: {name: t}\nspec: {partitions: 2}\n",
    "topicctl": "meta: {name: t, cluster: c}\nspec: {partitions: 2, replicationFactor: 1}\n",
    "jikkou": "apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopic\nmetadata: {name: t}\nspec: {partitions: 2}\n",
    "kafka-gitops": "topics:\n  t: {partitions: 2, replication: 1}\n",
    "julie": "context: a\nprojects:\n- name: b\n  topics:\n  - {name: t, config: {num.partitions: '2'}}\n",
    "kafka-topics": "Topic: t\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: \n",
}
_OF_OTHERS = {form.name for part in PARTS.values() for form in part.formats}
OF_TOPICS = [form for form in FOREIGN_FORMATS if form not in _OF_OTHERS]
EVERY = pytest.mark.parametrize("form", OF_TOPICS)
QUOTA_LIST = "Quota configs for user-principal 'bob' are producer_byte_rate=1024.0\n"


def test_a_file_of_another_tool_without_from_is_one_error(tmp_path: Path) -> None:
    files = {**SMALLEST, "kafka-acls": ACL_LIST, "kafka-configs": QUOTA_LIST}
    assert set(files) == set(FOREIGN_FORMATS)
    for name, text in files.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        (error,) = errors(read_manifest_files([file], NOTHING))
        assert error == f"{file}: is in the format {name}: `load-manifests --from {name}` reads it"
    in_json = tmp_path / "topic.json"
    in_json.write_text(json.dumps({"kind": "KafkaTopic", "apiVersion": "kafka.strimzi.io/v1", "spec": {}}))
    many = tmp_path / "many.yaml"
    many.write_text((SMALLEST["strimzi"] + "---\n") * 2_000)
    found = errors(read_manifest_files([in_json, many, tmp_path / "julie.yaml"], NOTHING))
    assert [each.partition(": is in the format ")[2].partition(":")[0] for each in found] == [
        *("strimzi", "strimzi", "julie")
    ]


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ("\n  - {topic: t, partitions: 2}", "unknown field `partitions`; did you mean `num_partitions`?"),
        ("\n  t: {num_partitions: 2}", "`topics` must be a list, not a mapping"),
    ],
)
def test_a_mistake_in_a_manifest_is_not_taken_for_another_format(tmp_path: Path, topics: str, message: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(f"cluster: c\ntopics:{topics}\n")
    (error,) = errors(read_manifest_files([file], NOTHING))
    assert message in error


EVERY_YAML = pytest.mark.parametrize(
    "form", [form for form in OF_TOPICS if set(YAML_SUFFIXES) <= set(FOREIGN_FORMATS[form].suffixes)]
)


@EVERY
def test_byte_order_marks_and_windows_line_ends_make_no_difference(read: Read, form: str) -> None:
    plain = only(read(form, SMALLEST[form]))
    assert plain.num_partitions == 2
    assert plain.topic in ("t", "a.b.t")
    assert only(read(form, "\ufeff" + SMALLEST[form].replace("\n", "\r\n"))) == plain


@EVERY
@pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n"])
def test_an_empty_file_is_no_rows_and_no_error(read: Read, form: str, text: str) -> None:
    parsed = read(form, text)
    assert (parsed.rows, parsed.errors, parsed.not_carried_over, parsed.skipped) == ([], [], [], {})


@EVERY
def test_a_file_that_is_not_utf8_is_an_error_with_its_line(tmp_path: Path, form: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\n\xff\xfe")
    parsed = read_foreign_files([path], NOTHING, FOREIGN_FORMATS[form], cluster="main")
    assert errors(parsed) == [f"{path}:2: not UTF-8"]


@EVERY
def test_standard_input_is_read_too(form: str) -> None:
    parsed = read_foreign_files(["-"], io.StringIO(SMALLEST[form]), FOREIGN_FORMATS[form], cluster="main")
    assert only(parsed).file == "stdin"


@EVERY
def test_only_files_with_the_formats_suffixes_are_read(tmp_path: Path, form: str) -> None:
    suffix = FOREIGN_FORMATS[form].suffixes[0]
    (tmp_path / f"a{suffix}").write_text(SMALLEST[form])
    (tmp_path / "a.md").write_text("# not a topic")
    parsed = read_foreign_files([tmp_path], NOTHING, FOREIGN_FORMATS[form], cluster="main")
    assert Path(only(parsed).file).name == f"a{suffix}"


@EVERY_YAML
def test_json_is_read_too(read: Read, form: str) -> None:
    text = json.dumps(yaml.safe_load(SMALLEST[form]), indent=2)
    assert said(only(read(form, text))) == said(only(read(form, SMALLEST[form])))


@EVERY_YAML
def test_broken_yaml_and_a_list_for_a_mapping_are_errors_with_lines(read: Read, form: str) -> None:
    (error,) = errors(read(form, "a: [\n"))
    assert error.startswith("f.yaml:2: not valid YAML")
    (error,) = errors(read(form, "\n- a\n"))
    assert error.startswith("f.yaml:2: must be a mapping, ")


@EVERY_YAML
def test_the_same_key_twice_is_an_error(read: Read, form: str) -> None:
    text = SMALLEST[form].replace("name: t", "name: t, name: u").replace("  t: {", "  t: {partitions: 2, ")
    assert any("is written twice" in error for error in errors(read(form, text)))


@EVERY_YAML
@pytest.mark.parametrize("written", ["no", "0777", "1_000", "12:30:45", "2024-01-01", "~"])
def test_a_yaml_surprise_is_an_error_that_says_to_quote_it(read: Read, form: str, written: str) -> None:
    key = {"strimzi": "spec.config", "topicctl": "spec.settings", "jikkou": "spec.configs"}.get(form)
    (error,) = errors(read(form, with_config(form, written)))
    assert "quote it" in error
    assert key is None or f"`{key}`" in error


@EVERY_YAML
@pytest.mark.parametrize("written", ["'{{ values.ms }}'", "'{% if x %}'", "'${RETENTION}'"])
def test_a_placeholder_is_no_value(read: Read, form: str, written: str) -> None:
    (error,) = errors(read(form, with_config(form, written)))
    assert "is the placeholder" in error


@EVERY_YAML
@pytest.mark.parametrize(
    "around", ["{{- range .Values.topics }}\nIT", "IT---\n{%- if x %}\n", "IT---\nx: {{ .x }}\n", "IT{{- end }}\n"]
)
def test_a_template_that_is_not_filled_in_is_named(read: Read, form: str, around: str) -> None:
    """Without quotes, YAML reads a placeholder as a mapping in a mapping."""
    text = around.replace("IT", SMALLEST[form])
    (error,) = errors(read(form, text))
    line = text.count("\n", 0, text.rindex("{{" if "{{" in around else "{%")) + 1
    assert error == f"f.yaml:{line}: contains a template placeholder; render the template first"
    (error,) = errors(read(form, with_config(form, "{{ .Values.ms }}")))
    assert error.endswith(": contains a template placeholder; render the template first")


CHART = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaTopic
metadata:
  name: {{ .Values.title }}
  labels: {strimzi.io/cluster: east}
spec:
  partitions: {{ .Values.count }}
"""
QUOTED_CHART = CHART.replace("{{ .Values.title }}", '"{{ .Values.title }}"').replace("{{ .Values.count }}", "${COUNT}")
QUOTED_CHART += '  config:\n    retention.ms: "${KEEP}"\n'
LOOP = "{{- range .Values.streams }}\n" + CHART + "---\n{{- end }}\n"
RENDER = "contains a template placeholder; render the template first"


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        (LOOP, 1, [f"1: {RENDER}"]),
        (CHART, 4, [f"4: {RENDER}"]),
        (
            QUOTED_CHART,
            None,
            [
                '4: `metadata.name` is the placeholder "{{ .Values.title }}"; render the template first',
                f'7: `spec.partitions` must be an integer, not the string "${{COUNT}}": it {RENDER}',
                '8: `spec.config`: `retention.ms` is the placeholder "${KEEP}"; render the template first',
            ],
        ),
    ],
)
def test_a_chart_of_topics_is_named_with_and_without_its_format(
    read: Read, tmp_path: Path, text: str, line: int | None, named: list[str]
) -> None:
    assert errors(read("strimzi", text)) == [f"f.yaml:{each}" for each in named]
    path = tmp_path / "m.yaml"
    path.write_text(text)
    form = f"{path}: is in the format strimzi: `load-manifests --from strimzi` reads it"
    found = errors(read_manifest_files([path], NOTHING))
    assert found == [form, *([f"{path}:{line}: {RENDER}"] if line else [])]


@EVERY_YAML
@pytest.mark.parametrize(("written", "text"), [("604800000", "604800000"), ("true", "true"), ("0.5", "0.5")])
def test_numbers_and_booleans_of_configs_become_kafkas_strings(read: Read, form: str, written: str, text: str) -> None:
    assert only(read(form, with_config(form, written))).configs == {"k": text}


def with_config(form: str, value: str) -> str:
    """The smallest file with the config `k`."""
    places = {
        "strimzi": ("spec: {", "spec: {config: {k: W}, "),
        "jikkou": ("spec: {", "spec: {configs: {k: W}, "),
        "topicctl": ("spec: {", "spec: {settings: {k: W}, "),
        "kafka-gitops": ("t: {", "t: {configs: {k: W}, "),
        "julie": ("config: {", "config: {k: W, "),
    }
    old, new = places[form]
    return SMALLEST[form].replace(old, new.replace("W", value))


@EVERY_YAML
@pytest.mark.parametrize("slip", ["partitons", "Partitions"])
def test_a_misspelt_key_is_an_error_not_a_default(read: Read, form: str, slip: str) -> None:
    if form == "julie":
        text = SMALLEST[form].replace("config: {", "confgi: {")
    else:
        text = SMALLEST[form].replace("partitions:", f"{slip}:")
    assert any("did you mean" in error for error in errors(read(form, text)))


MANY_CONFIGS = ", ".join(f"k{number}: 1" for number in range(300))
BOMBS = {
    "strimzi": "kind: List\nx: &p\n  kind: List\n  items: [{kind: A}, {kind: B}, {kind: C}, {kind: D}]\nitems: ["
    + "*p, " * 300
    + "]\n",
    "jikkou": "apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopicList\nx: &l ["
    + "a, " * 300
    + "]\nitems:\n"
    + "- {metadata: {name: t}, spec: {configMapRefs: *l}}\n" * 10,
    "kafka-gitops": f"topics:\n  a: &p {{partitions: 1, replication: 1, configs: {{{MANY_CONFIGS}}}}}\n"
    + "".join(f"  t{number}: *p\n" for number in range(30)),
    "julie": f"context: a\nprojects:\n- name: b\n  topics:\n  - &p {{name: t, config: {{{MANY_CONFIGS}}}}}\n"
    + "  - *p\n" * 30,
}


BOMBS_OF_TWO_FILES = {
    "jikkou": (
        "apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopicList\nitems:\n"
        + "- {metadata: {name: t}, spec: {configMapRefs: [m]}}\n" * 10,
        f"apiVersion: core.jikkou.io/v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{{MANY_CONFIGS}}}\n",
    ),
    "julie": (
        "context: a\nprojects:\n- name: b\n  topics:\n" + "  - {name: t, plan: p}\n" * 10,
        f"plans: {{p: {{config: {{{MANY_CONFIGS}}}}}}}\n",
    ),
}


_NAMES = ", ".join(f"n{number}" for number in range(40))
_USER = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: u, labels: {strimzi.io/cluster: c}}\n"
_JIKKOU = "apiVersion: kafka.jikkou.io/v1\nkind: KafkaPrincipal"
BOMBS_WITHOUT_TOPICS = {
    "clients of many topics": (
        "julie",
        "context: a\nprojects:\n- name: b\n  consumers: ["
        + "{principal: 'User:u'}, " * 20
        + "]\n  topics: ["
        + ", ".join(f"{{name: t{number}}}" for number in range(20))
        + "]\n",
    ),
    "a long part of names": (
        "julie",
        f"context: {'x' * 10_000}\nprojects:\n- {{name: b, topics: [" + "{name: t}, " * 100 + "]}\n",
    ),
    "aliased operations": (
        "strimzi",
        f"{_USER}x: &o [{_NAMES}]\nspec: {{authorization: {{type: simple, acls: ["
        + "{resource: {type: topic, name: t}, operations: *o}, " * 20
        + "]}}\n",
    ),
    "aliased lists of a config": (
        "strimzi",
        "apiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic\nmetadata: {name: t, labels: {strimzi.io/cluster: c}}\n"
        + f"x: &l [{_NAMES}]\nspec: {{config: {{"
        + ", ".join(f"k{number}: *l" for number in range(60))
        + "}}\n",
    ),
    "a role many times": (
        "jikkou",
        f"{_JIKKOU}Role\nmetadata: {{name: r}}\nspec: {{acls: ["
        + "{}, " * 100
        + f"]}}\n---\n{_JIKKOU}Authorization\nmetadata: {{name: 'User:u'}}\nspec: {{roles: ["
        + "r, " * 100
        + "]}\n",
    ),
    "fields left out": (
        "kafka-gitops",
        "topics:\n  a: &p {partitions: 1, replication: 1, "
        + ", ".join(f"{chr(97 + number % 26) * 9}{number}: 1" for number in range(40))
        + "}\n"
        + "".join(f"  t{number}: *p\n" for number in range(15)),
    ),
}


@pytest.mark.parametrize("name", BOMBS_WITHOUT_TOPICS)
def test_rows_and_texts_that_a_file_multiplies_are_measured(
    read: Read, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("topicledger.files.yaml_files._MAX_ALIASED", 1000)
    form, text = BOMBS_WITHOUT_TOPICS[name]
    assert any("expand to more than" in error for error in errors(read(form, text)))


@pytest.mark.parametrize("form", BOMBS_OF_TWO_FILES)
def test_shared_parts_of_many_topics_are_measured_too(read: Read, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("topicledger.files.yaml_files._MAX_ALIASED", 1000)
    text, more = BOMBS_OF_TWO_FILES[form]
    assert any("expand to more than" in error for error in errors(read(form, text, g_yaml=more)))


@pytest.mark.parametrize("form", BOMBS)
@pytest.mark.timeout(60)
def test_aliases_cannot_blow_a_file_up(read: Read, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("topicledger.files.yaml_files._MAX_ALIASED", 1000)
    assert any("expand to more than" in error for error in errors(read(form, BOMBS[form])))


@EVERY
@given(text=st.text(max_size=80))
def test_no_text_ever_raises(form: str, text: str) -> None:
    read_foreign_files(["-"], io.StringIO(text), FOREIGN_FORMATS[form], cluster="main")


WORDS = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "labels",
    "annotations",
    "spec",
    "items",
    "topics",
    "partitions",
    "replicas",
    "config",
    "configs",
    "configMapRefs",
    "settings",
    "placement",
    "strategy",
    "staticAssignments",
    "meta",
    "context",
    "projects",
    "plan",
    "plans",
    "defaults",
    "replication",
    "files",
    "data",
    "special_topics",
    "retentionMinutes",
]
SCALARS = st.sampled_from(["t", "", "{{x}}", "List", "KafkaTopic", "KafkaTopicList", "static", "kafka.strimzi.io/v1"])
YAML_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


@EVERY_YAML
@given(tree=YAML_TREES)
def test_no_tree_of_known_words_ever_raises(form: str, tree: object) -> None:
    read_foreign_files(["-"], io.StringIO(json.dumps(tree)), FOREIGN_FORMATS[form], cluster="main")


@EVERY
def test_control_characters_do_not_reach_a_message(read: Read, form: str) -> None:
    hostile = "\x1b]0;x\x07"
    name = "t" + hostile
    escaped = '"t\\u001b]0;x\\u0007"'
    text = SMALLEST[form].replace("Topic: t", f"Topic: {name}").replace("name: t", f"name: {escaped}")
    text = text.replace("  t: {", f"  {escaped}: {{").replace("partitions: 2", "partitions: []")
    text = text.replace("'2'", "[]").replace("Count: 2", "Count: two")
    found = errors(read(form, text))
    assert found
    assert all(error.isprintable() for error in found)


STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaTopic
metadata:
  name: payments-authorised
  namespace: streaming
  labels: {strimzi.io/cluster: orders, owner: payments, tier: gold}
  annotations: {argocd.argoproj.io/sync-wave: "3"}
spec:
  topicName: payments.Authorised
  partitions: 12
  replicas: 3
  config:
    retention.ms: 604800000
    cleanup.policy: [compact, delete]
    preallocate: true
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: plain, labels: {strimzi.io/cluster: orders}}
spec: {}
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: someone}
"""


def test_strimzi_topics_are_read_and_other_kinds_counted(read: Read) -> None:
    parsed = read("strimzi", STRIMZI, cluster=None)
    assert errors(parsed) == []
    first, second = parsed.rows
    assert said(first) == {
        "cluster": "orders",
        "topic": "payments.Authorised",
        "num_partitions": 12,
        "replication_factor": 3,
        "configs": {"retention.ms": "604800000", "cleanup.policy": "compact,delete", "preallocate": "true"},
        "owner": "payments",
        "labels": {"strimzi.io/cluster": "orders", "owner": "payments", "tier": "gold"},
    }
    assert (first.line, second.line) == (1, 17)
    assert said(second) == {"cluster": "orders", "topic": "plain", "labels": {"strimzi.io/cluster": "orders"}}
    assert parsed.skipped == {"KafkaUser without ACLs and quotas": 1}
    assert leftovers(parsed) == {"metadata.namespace": 5, "metadata.annotations.argocd.argoproj.io/sync-wave": 7}


def test_strimzis_resources_of_internal_topics_are_counted(read: Read) -> None:
    text = SMALLEST["strimzi"].replace("partitions: 2", "topicName: __consumer_offsets")
    parsed = read("strimzi", text)
    assert (parsed.rows, errors(parsed), parsed.skipped) == ([], [], {"internal topic": 1})


def test_strimzi_goes_to_another_cluster_where_told_so(read: Read) -> None:
    assert {row.cluster for row in read("strimzi", STRIMZI, cluster="other").rows} == {"other"}


def test_strimzi_without_a_cluster_anywhere_is_an_error(read: Read) -> None:
    (error,) = errors(read("strimzi", SMALLEST["strimzi"], cluster=None))
    assert error.startswith("f.yaml:1: ")
    assert "strimzi.io/cluster" in error
    assert "--cluster" in error


def test_a_list_of_kubectl_is_opened_and_what_kubernetes_keeps_is_listed(read: Read) -> None:
    text = """\
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: kafka.strimzi.io/v1beta2
  kind: KafkaTopic
  metadata:
    name: a
    creationTimestamp: "2026-01-02T03:04:05Z"
    generation: 4
    uid: 0a1b2c3d-0000-1111-2222-333344445555
  spec: {partitions: 1, replicas: 1}
  status: {observedGeneration: 4, conditions: [{lastTransitionTime: 2026-01-02, status: no}]}
- apiVersion: kafka.strimzi.io/v1beta2
  kind: KafkaTopic
  metadata: {name: gone, deletionTimestamp: "2026-01-02T03:04:05Z", labels: {}}
- apiVersion: kafka.strimzi.io/v1beta2
  kind: KafkaTopic
  metadata: {name: theirs, annotations: {strimzi.io/managed: "false"}}
"""
    parsed = read("strimzi", text)
    assert only(parsed).topic == "a"
    assert parsed.skipped == {
        "KafkaTopic that is being deleted": 1,
        "KafkaTopic with strimzi.io/managed: false": 1,
    }
    assert leftovers(parsed) == {
        "metadata": 3,
        "metadata.creationTimestamp": 9,
        "metadata.generation": 10,
        "metadata.uid": 11,
        "status": 13,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: KafkaTopic\nmetadata: {name: t}\n", "f.yaml:1: `apiVersion` is missing"),
        ("apiVersion: kafka.strimzi.io/v1\nmetadata: {name: t}\n", "f.yaml:1: `kind` is missing"),
        (
            SMALLEST["jikkou"],
            "f.yaml:1: `apiVersion` is kafka.jikkou.io/v1, of another tool; this format has kafka.strimzi.io/v1",
        ),
        (SMALLEST["strimzi"].replace("/v1", "/v7"), "f.yaml:1: `apiVersion` is kafka.strimzi.io/v7; known: kafka."),
        (SMALLEST["strimzi"].replace("{name: t}", "{}"), "f.yaml:3: `metadata.name` is missing"),
        (SMALLEST["strimzi"].replace("{name: t}", "[]"), "f.yaml:3: `metadata` must be a mapping, not a list"),
        (SMALLEST["strimzi"].replace("{partitions: 2}", "x"), 'f.yaml:4: `spec` must be a mapping, not the string "x"'),
        (
            SMALLEST["strimzi"].replace("2}", "two}"),
            'f.yaml:4: `spec.partitions` must be an integer, not the string "t',
        ),
        (SMALLEST["strimzi"].replace("2}", "2.5}"), "f.yaml:4: `spec.partitions` must be an integer, not the number 2"),
        (
            SMALLEST["strimzi"].replace("2}", "99999999999}"),
            "f.yaml:4: `spec.partitions` is 99999999999, which does not fit",
        ),
        (SMALLEST["strimzi"].replace("partitions: 2", "config: {k: {a: b}}"), "f.yaml:4: `spec.config`: `k` must be"),
        (
            SMALLEST["strimzi"].replace("partitions: 2", "config: {k: null}"),
            "f.yaml:4: `spec.config`: `k` is null; leave",
        ),
        (SMALLEST["strimzi"].replace("partitions: 2", "config: {k: [a, [b]]}"), "f.yaml:4: `spec.config`: `k` must be"),
        ("kind: List\nitems: [a]\n", 'f.yaml:2: each of `items` must be a mapping, not the string "a"'),
    ],
)
def test_errors_of_a_strimzi_file_have_their_line(read: Read, text: str, message: str) -> None:
    parsed = read("strimzi", text)
    (error,) = errors(parsed)
    assert error.startswith(message)
    assert parsed.rows == []


def test_an_unknown_key_is_listed(read: Read) -> None:
    parsed = read("strimzi", SMALLEST["strimzi"].replace("partitions: 2", "partitions: 2, tieredStorage: yes"))
    assert only(parsed).num_partitions == 2
    assert leftovers(parsed) == {"spec.tieredStorage": 4}


TOPICCTL = """\
meta:
  name: clicks
  cluster: orders
  environment: stage
  region: north
  description: What people click on
  labels: {tier: silver}
spec:
  partitions: 2
  replicationFactor: 2
  retentionMinutes: 360
  placement: {strategy: PLACEMENT}
  settings:
    cleanup.policy: [delete, compact]
    max.message.bytes: 5242880
"""


def test_a_topicctl_topic_is_read(read: Read) -> None:
    parsed = read("topicctl", TOPICCTL.replace("PLACEMENT", "in-rack, picker: randomized"), cluster=None)
    assert said(only(parsed)) == {
        "cluster": "orders",
        "topic": "clicks",
        "num_partitions": 2,
        "replication_factor": 2,
        "configs": {"cleanup.policy": "delete,compact", "max.message.bytes": "5242880", "retention.ms": "21600000"},
        "labels": {"tier": "silver"},
        "description": "What people click on",
    }
    assert leftovers(parsed) == {
        "meta.environment": 4,
        "meta.region": 5,
        "spec.placement.strategy": 12,
        "spec.placement.picker": 12,
    }


def test_a_static_placement_becomes_assignments(read: Read) -> None:
    static = TOPICCTL.replace("PLACEMENT", "static, staticAssignments: [[3, 4], [4, 3]]")
    row = only(read("topicctl", static))
    assert row.assignments == {0: (3, 4), 1: (4, 3)}
    assert (row.num_partitions, row.replication_factor) == (None, None)


def test_any_placement_leaves_nothing_out(read: Read) -> None:
    parsed = read("topicctl", SMALLEST["topicctl"].replace("1}", "1, placement: {strategy: any}}"))
    assert only(parsed).replication_factor == 1
    assert parsed.not_carried_over == []


def test_other_configs_of_topicctl_are_counted(read: Read) -> None:
    text = """\
meta: {name: orders}
spec: {bootstrapAddrs: ["h:9092"]}
---
meta: {name: acl}
spec: {acls: []}
---
meta: {name: someone}
spec: {name: someone, mechanism: scram-sha-256}
"""
    parsed = read("topicctl", text)
    assert (parsed.rows, parsed.errors) == ([], [])
    assert parsed.skipped == {"cluster config": 1, "ACL config": 1, "user config": 1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  cluster: orders\n", "", "f.yaml:2: `meta.cluster` is missing"),
        ("  partitions: 2\n", "", "f.yaml:9: `spec.partitions` is missing"),
        ("  replicationFactor: 2\n", "", "f.yaml:9: `spec.replicationFactor` is missing"),
        ("PLACEMENT", "everywhere", "f.yaml:12: `spec.placement.strategy` is unknown: everywhere; known: `any`"),
        (
            "PLACEMENT",
            "static",
            "f.yaml:12: `spec.placement.staticAssignments` has 0 partitions, but `spec.partitions` is",
        ),
        ("PLACEMENT", "static, staticAssignments: [[1, 2]]", "f.yaml:12: `spec.placement.staticAssignments` has 1 pa"),
        ("PLACEMENT", "static, staticAssignments: [[1], [2]]", "f.yaml:12: `spec.placement.staticAssignments` has par"),
        ("PLACEMENT", "static, staticAssignments: [[1, a], [2, 1]]", "f.yaml:12: `assignments`: partition `0`: a bro"),
        ("    max.message.bytes", "    retention.ms: 1\n    max.message.bytes", "f.yaml:9: `spec.retentionMinutes` an"),
        ("360", "-1", "f.yaml:9: `spec.retentionMinutes` is -1; it must be at least 0"),
        ("meta:", "metta:", "f.yaml:1: `meta` is missing"),
    ],
)
def test_errors_of_a_topicctl_file_have_their_line(read: Read, old: str, new: str, message: str) -> None:
    text = TOPICCTL.replace(old, new).replace("PLACEMENT", "any")
    parsed = read("topicctl", text, cluster=None)
    (error,) = errors(parsed)
    assert error.startswith(message)
    assert parsed.rows == []


JIKKOU = """\
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaTopic
metadata:
  name: billing.invoices
  labels: {environment: live}
  annotations: {team: billing}
spec:
  partitions: 6
  replicas: -1
  configMapRefs: [Common]
  configs: {max.message.bytes: 2000000}
---
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaTopicList
metadata: {labels: {x: y}}
items:
- metadata: {name: billing.old, annotations: {jikkou.io/delete: true}}
- metadata: {name: billing.foreign, annotations: {jikkou.io/ignore: "true"}}
---
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaPrincipalAuthorization
metadata: {name: "User:a"}
"""
CONFIG_MAP = """\
apiVersion: core.jikkou.io/v1beta2
kind: ConfigMap
metadata: {name: Common}
data: {min.insync.replicas: 2, cleanup.policy: delete}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: of-kubernetes}
data: {script: "echo ${HOME}"}
"""


def test_jikkou_topics_lists_and_config_maps_of_any_file_are_read(read: Read) -> None:
    parsed = read("jikkou", JIKKOU, g_yaml=CONFIG_MAP)
    assert errors(parsed) == []
    invoices, old = parsed.rows
    assert said(invoices) == {
        "cluster": "main",
        "topic": "billing.invoices",
        "num_partitions": 6,
        "configs": {"max.message.bytes": "2000000", "min.insync.replicas": "2", "cleanup.policy": "delete"},
        "labels": {"environment": "live"},
    }
    assert (old.topic, old.state, old.line) == ("billing.old", "absent", 17)
    assert parsed.skipped == {
        "KafkaTopic with jikkou.io/ignore: true": 1,
        "KafkaPrincipalAuthorization without ACLs": 1,
        "ConfigMap": 1,
    }
    assert leftovers(parsed) == {"metadata": 15, "metadata.annotations.team": 6}


@pytest.mark.parametrize(
    ("more", "old", "new", "message"),
    [
        ("", "", "", "f.yaml:10: `spec.configMapRefs` names the ConfigMap Common, which no file here has; load the fi"),
        (CONFIG_MAP, "Common]", "Commmon]", "f.yaml:10: `spec.configMapRefs` names the ConfigMap Commmon, which no fi"),
        (CONFIG_MAP, "[Common]", "[1]", "f.yaml:10: `spec.configMapRefs` must hold names of ConfigMaps"),
        (CONFIG_MAP, "max.message.bytes: 2000000", "cleanup.policy: compact", "f.yaml:10: `spec.configMapRefs` names "),
        (CONFIG_MAP, "delete: true", "delete: maybe", "f.yaml:17: `metadata.annotations.jikkou.io/delete` must be tr"),
        (CONFIG_MAP, "billing.invoices", "'{{ team }}.x'", 'f.yaml:4: `metadata.name` is the placeholder "{{ team }}'),
        (CONFIG_MAP, "spec:", "template: {values: {}}\nspec:", "f.yaml:7: `template` must be rendered by Jikkou fi"),
        (CONFIG_MAP + "---\n" + CONFIG_MAP.replace("2,", "1,"), "", "", "g.yaml:11: `metadata.name` is Common, as is "),
        (CONFIG_MAP, "kafka.jikkou.io/v1beta2\nkind: KafkaTopicL", "x/v1\nkind: KafkaTopicL", "f.yaml:13: `apiVersi"),
    ],
)
def test_errors_of_a_jikkou_file_have_their_line(read: Read, more: str, old: str, new: str, message: str) -> None:
    (error,) = errors(read("jikkou", JIKKOU.replace(old, new) if old else JIKKOU, g_yaml=more))
    assert error.startswith(message)


GITOPS = """\
settings:
  confluent: {enabled: true}
  topics:
    defaults: {replication: 3}
    blacklist: {prefixed: [_confluent]}
topics:
  orders.placed:
    partitions: 6
    configs: {cleanup.policy: compact, segment.bytes: 1000000}
  orders.failed: {partitions: "1", replication: 2}
services:
  app: {type: application, produces: [orders.placed]}
  other: {type: application}
users:
  someone: {principal: "User:someone"}
"""


def test_a_kafka_gitops_state_is_read(read: Read) -> None:
    parsed = read("kafka-gitops", GITOPS)
    assert errors(parsed) == []
    assert [(row.line, said(row)) for row in parsed.rows] == [
        (
            7,
            {
                "cluster": "main",
                "topic": "orders.placed",
                "num_partitions": 6,
                "replication_factor": 3,
                "configs": {"cleanup.policy": "compact", "segment.bytes": "1000000"},
            },
        ),
        (10, {"cluster": "main", "topic": "orders.failed", "num_partitions": 1, "replication_factor": 2}),
    ]
    without = {"services.app": 12, "services.app.type": 12, "services.app.produces": 12}
    without |= {"services.other": 13, "services.other.type": 13}
    assert leftovers(parsed) == {"settings.confluent": 2, "settings.topics.blacklist": 5, **without}


def test_the_defaults_of_a_state_go_to_the_file_that_it_names(read: Read) -> None:
    state = "settings:\n  topics: {defaults: {replication: 3}}\n  files: {topics: topics.yaml}\n"
    parsed = read("kafka-gitops", state, topics_yaml="topics:\n  a: {partitions: 1}\n")
    assert (only(parsed).replication_factor, only(parsed).file) == (3, "topics.yaml")
    (error,) = errors(read("kafka-gitops", state))
    assert "settings.files.topics` names topics.yaml" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topics:\n  a: {replication: 1}\n", "f.yaml:2: `topics.a.partitions` is missing"),
        ("topics:\n  a: {partitions: 1}\n", "f.yaml:2: `topics.a.replication` is missing"),
        ("topics:\n  a:\n", "f.yaml:2: `topics.a` must be a mapping, not null"),
        ("topics: [a]\n", "f.yaml:1: `topics` must be a mapping of names to topics, not a list"),
        ("topics:\n  1: {partitions: 1, replication: 1}\n", "f.yaml:2: `topics`: the key `1` is a number in YAML; quo"),
        ("topics:\n  a: {partitions: many, replication: 1}\n", "f.yaml:2: `topics.a.partitions` must be an integer,"),
        ("topic:\n  a: {partitions: 1, replication: 1}\n", "f.yaml:1: `topic` is unknown; did you mean `topics`?"),
    ],
)
def test_errors_of_a_state_have_their_line(read: Read, text: str, message: str) -> None:
    (error,) = errors(read("kafka-gitops", text))
    assert error.startswith(message)


JULIE = """\
context: retail
company: acme
env: 1
source: web
projects:
  - name: shop
    consumers: [{principal: "User:a"}]
    my_role: [{principal: "User:b"}]
    topics:
      - name: carts
        metadata: {owner: checkout, domain: sales}
        config: {num.partitions: "4", replication.factor: "2", cleanup.policy: compact}
      - name: orders
        dataType: avro
        plan: gold
        schemas: {value.schema.file: a.avsc}
        config: {replication.factor: 1, retention.ms: 1}
special_topics:
  - {name: _heartbeat, dataType: avro}
platform: {schema_registry: {}}
"""


def test_julie_topics_are_named_by_what_stands_above_them(read: Read) -> None:
    parsed = read("julie", JULIE, plans_yaml=PLANS)
    assert errors(parsed) == []
    carts, orders, special = parsed.rows
    assert said(carts) == {
        "cluster": "main",
        "topic": "retail.acme.1.web.shop.carts",
        "num_partitions": 4,
        "replication_factor": 2,
        "configs": {"cleanup.policy": "compact"},
        "owner": "checkout",
        "labels": {"owner": "checkout", "domain": "sales"},
    }
    assert orders.topic == "retail.acme.1.web.shop.orders.avro"
    assert (orders.num_partitions, orders.configs) == (8, {"retention.ms": "1"})
    assert said(special) == {"cluster": "main", "topic": "_heartbeat"}
    assert leftovers(parsed) == {
        "plans.gold.alias": 2,
        "platform.schema_registry": 20,
        "projects.my_role": 8,
        "projects.topics.schemas": 16,
    }


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ("topology.topic.prefix.separator=_\n", "retail_acme_1_web_shop_carts"),
        ("topology.topic.prefix.format = {{context}}-{{ topic }}\r\n", "retail-carts"),
        ("topology.project.prefix.format={{project}}\nsasl.password=x\n", "shop.carts"),
        ("topology.topic.prefix.format=name", "carts"),
        ("topology.topic.prefix.format name", "carts"),
        ("#topology.topic.prefix.format=name", "retail.acme.1.web.shop.carts"),
    ],
)
def test_julies_properties_say_how_topics_are_named(read: Read, properties: str, name: str) -> None:
    parsed = read("julie", JULIE, plans_yaml=PLANS, julie_properties=properties)
    assert errors(parsed) == []
    assert parsed.rows[0].topic == name


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("{{ context | upper }}.{{topic}}", "templates may contain only plain {{names}}"),
        ("{{ kontext }}.{{topic}}", "but there is no value named kontext"),
    ],
)
def test_a_name_that_cannot_be_made_is_an_error(read: Read, format: str, message: str) -> None:
    properties = f"topology.topic.prefix.format={format}"
    found = errors(read("julie", JULIE, plans_yaml=PLANS, julie_properties=properties))
    assert found[0].startswith("f.yaml:10: topic carts has no name: topology.topic.prefix.format is ")
    assert all(message in error for error in found)


def test_the_properties_in_a_folder_of_julie_are_read_too(tmp_path: Path) -> None:
    """Else all topics would get other names, without a word."""
    (tmp_path / "shop.yaml").write_text(SMALLEST["julie"])
    (tmp_path / "julie.properties").write_text("topology.topic.prefix.separator=_\nsasl.password=x\n")
    parsed = read_foreign_files([tmp_path], NOTHING, FOREIGN_FORMATS["julie"], cluster="main")
    assert only(parsed).topic == "a_b_t"


def test_properties_that_change_what_julie_makes_are_listed(read: Read) -> None:
    properties = """\
topology.acls.optimized=true
topology.dlq.topics.generate = true
topology.dlq.topics.allow.list=x
topology.translation.principal.enabled:true
topology.builder.access.control.class = com.purbon.kafka.topology.roles.RBACProvider
topology.topic.managed.prefixes.0=retail
topology.service.accounts.managed.prefixes.0=User:App
topology.connector.allow.topic.create=false
bootstrap.servers=localhost:9092
"""
    parsed = read("julie", "", julie_properties=properties)
    assert (errors(parsed), list(leftovers(parsed).values())) == ([], [1, 2, 4, 5, 6, 7])
    defaults = """\
topology.acls.optimized=false
topology.dlq.topics.generate=false
topology.builder.access.control.class=com.purbon.kafka.topology.roles.SimpleAclsProvider
"""
    assert leftovers(read("julie", "", julie_properties=defaults)) == {}


def test_two_properties_files_that_differ_are_an_error(read: Read) -> None:
    key = "topology.topic.prefix.separator"
    (error,) = errors(read("julie", "", a_properties=f"{key}=-", b_properties=f"\n{key}=_"))
    assert error.startswith(f"b.properties:2: `{key}` is _ here and - elsewhere")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("context: retail\n", "", "f.yaml:1: `context` is missing"),
        ("env: 1", "env: [a]", "f.yaml:3: `env` must be a string, not a list"),
        ("env: 1", "env:", "f.yaml:1: `env` is missing"),
        ("  - name: shop\n    consumers", "  - consumers", "f.yaml:6: `projects.name` is missing"),
        ("- name: carts\n        metadata", "- metadata", "f.yaml:10: `projects.topics.name` is missing"),
        ("plan: gold", "plan: godl", "f.yaml:13: `projects.topics.plan` is godl, which no file here has; did you mea"),
        ('"4"', "four", "f.yaml:10: `projects.topics.config.num.partitions` must be an integer, not the string"),
        (
            "- {name: _heartbeat, dataType: avro}",
            "- _heartbeat",
            "f.yaml:19: each of `special_topics` must be a mapping with a `name",
        ),
    ],
)
def test_errors_of_a_descriptor_have_their_line(read: Read, old: str, new: str, message: str) -> None:
    (error,) = errors(read("julie", JULIE.replace(old, new), plans_yaml=PLANS))
    assert error.startswith(message)


DESCRIBED = (
    "Topic: clicks\tTopicId: 6rr8b3BBReqphM95p_-9Ig\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: "
    "cleanup.policy=compact,delete,leader.replication.throttled.replicas=0:1,1:2,retention.ms=3600000\n"
    "\tTopic: clicks\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: \tLastKnownElr: \n"
    "\tTopic: clicks\tPartition: 1\tLeader: none\tReplicas: 2,1\tIsr: 2\tElr: N/A\tLastKnownElr: N/A\n"
    "\n"
    "Topic: __consumer_offsets\tTopicId: aaaa\tPartitionCount: 50\tReplicationFactor: 1\tConfigs: segment.bytes=1\n"
    "\tTopic: __consumer_offsets\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
)


def test_described_topics_are_read_without_the_internal_ones(read: Read) -> None:
    parsed = read("kafka-topics", DESCRIBED)
    assert said(only(parsed)) == {
        "cluster": "main",
        "topic": "clicks",
        "num_partitions": 2,
        "replication_factor": 2,
        "configs": {
            "cleanup.policy": "compact,delete",
            "leader.replication.throttled.replicas": "0:1,1:2",
            "retention.ms": "3600000",
        },
    }
    assert parsed.skipped == {"internal topic": 1}
    assert leftovers(parsed) == {"TopicId, Leader, Replicas, Isr, Elr": 1, "Configs": 1}


def test_blanks_for_tabs_and_the_older_form_are_read_the_same(read: Read) -> None:
    row = only(read("kafka-topics", DESCRIBED))
    assert only(read("kafka-topics", DESCRIBED.replace("\t", "   "))) == row
    older = DESCRIBED.replace("TopicId: 6rr8b3BBReqphM95p_-9Ig\t", "")
    for name in ("Topic", "PartitionCount", "ReplicationFactor", "Configs"):
        older = older.replace(f"{name}: ", f"{name}:") if name != "Topic" else older
    assert only(read("kafka-topics", older.replace("Topic: clicks\tPartitionC", "Topic:clicks\tPartitionC"))) == row


def test_a_value_may_hold_blanks_and_a_topic_may_be_on_its_way_out(read: Read) -> None:
    head = "Topic: {}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: {}\n"
    text = head.format("a", "cleanup.policy=compact, delete") + head.format("b", "x=1\tMarkedForDeletion: true")
    parsed = read("kafka-topics", text)
    assert only(parsed).configs == {"cleanup.policy": "compact, delete"}
    assert parsed.skipped == {"topic marked for deletion": 1}


def test_a_secret_value_and_a_reassignment_are_listed(read: Read) -> None:
    text = DESCRIBED.replace("retention.ms=3600000", "secret=null").replace("Replicas: 2,1", "Replicas: 2,1,3")
    parsed = read("kafka-topics", text)
    assert "secret" not in (only(parsed).configs or {})
    assert {"clicks: Configs: secret", "clicks: ReplicationFactor"} <= set(leftovers(parsed))
    assert only(parsed).replication_factor is None


@pytest.mark.parametrize(
    ("form", "key"),
    [("strimzi", "config"), ("topicctl", "settings"), ("jikkou", "configs"), ("kafka-gitops", "configs")],
)
def test_configs_of_other_tools_are_checked_like_our_own(read: Read, form: str, key: str) -> None:
    configs = f"{key}: {{retention.ms: 7d, segment.bytes: 1024}}"
    given = SMALLEST[form].replace("partitions: 2", f"partitions: 2, {configs}")
    assert only(read(form, given)).configs == {"retention.ms": "604800000", "segment.bytes": "1024"}
    (error,) = errors(read(form, given.replace("1024", "x")))
    assert '`segment.bytes` is "x"; write a whole number' in error


@pytest.mark.parametrize(
    ("moves", "factor"),
    [
        (["Adding Replicas: 3,4\tRemoving Replicas: 1,2"] * 2, 2),
        (["Adding Replicas: 3,4\tRemoving Replicas: 1,2", ""], None),
        (["Adding Replicas: 3,4\tRemoving Replicas: "] * 2, None),
        (["Adding Replicas: \tRemoving Replicas: 3,4"] * 2, None),
    ],
)
def test_a_move_under_way_never_inflates_the_replication_factor(read: Read, moves: list[str], factor: int) -> None:
    """`ReplicationFactor` and `Replicas` count old and new replicas."""
    lines = ["Topic: a\tTopicId: x\tPartitionCount: 2\tReplicationFactor: 4\tConfigs: "]
    for number, move in enumerate(moves):
        lines.append(f"\tTopic: a\tPartition: {number}\tLeader: 1\tReplicas: 3,4,1,2\tIsr: 1,2\tElr: \t{move}")
    parsed = read("kafka-topics", "\n".join(lines))
    assert only(parsed).replication_factor == factor
    assert ("a: ReplicationFactor" in leftovers(parsed)) == (factor is None)


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (
            "\tTopic: clicks\tPartition: 1",
            "#",
            ["f.yaml:3: is not a line of", "f.yaml:1: only 1 of topic clicks's 2 partitions"],
        ),
        (
            DESCRIBED.split("\n")[0] + "\n",
            "",
            ["f.yaml:1: a partition of topic clicks", "f.yaml:2: a partition of to"],
        ),
        ("cleanup.policy=", "", ["f.yaml:1: `Configs` must be name=value,..."]),
        ("retention.ms=", "cleanup.policy=", ["f.yaml:1: `Configs` has cleanup.policy twice"]),
        ("Factor: 2", "Factor: 3000000000", ["f.yaml:1: topic clicks: 3000000000 does not fit into 32 bits"]),
        ("\n\n", "\nError while executing topic command : x\n", ["f.yaml:4: is not a line of"]),
        ("\n\n", "\n[1] WARN a\n[2] WARN b\n", ["f.yaml:4: is not a line of", "f.yaml: 2 lines are not lines of"]),
    ],
)
def test_invalid_descriptions_are_reported_with_their_line(read: Read, old: str, new: str, messages: list[str]) -> None:
    found = errors(read("kafka-topics", DESCRIBED.replace(old, new)))
    assert len(found) == len(messages)
    assert all(error.startswith(message) for error, message in zip(found, messages, strict=True)), found


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("compression.type=none", 'compression.type is "none"; Kafka accepts uncompressed'),
        ("message.format.version=4.0", 'message.format.version is "4.0"; write a version'),
        ("min.insync.replicas=0", 'min.insync.replicas is "0"; Kafka accepts 1 to'),
        ("vendor.ratio=0x1p-2", "configs have values that brokers return in another form"),
        ("vendor.secret=null", "a value that the brokers hide"),
    ],
)
def test_a_live_config_that_can_not_be_declared_leaves_the_rest_of_a_listing(
    tmp_path: Path, config: str, reason: str
) -> None:
    """A fork or a newer Kafka may have it."""
    line = "Topic: {}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: {}\n"
    file = tmp_path / "live.txt"
    file.write_text(line.format("t", f"{config},flush.ms=1") + line.format("u", "flush.ms=1, segment.ms=5"))
    parsed = read_checked(RUN, [file], NOTHING, foreign=Foreign(form="kafka-topics", cluster="main"))
    assert [(row.topic, row.configs) for row in parsed.rows] == [
        ("t", {"flush.ms": "1"}),
        ("u", {"flush.ms": "1", "segment.ms": "5"}),
    ]
    (left,) = [each for each in parsed.not_carried_over if each.key.startswith("t: ")]
    assert (left.key, left.what[: len(reason)]) == (f"t: Configs: {config.partition('=')[0]}", reason)


LINES = st.lists(
    st.sampled_from(DESCRIBED.split("\n"))
    | st.text(alphabet="Topic: \tPartionCunlsRgF0123456789,=.-_", max_size=60)
    | st.builds(lambda line, cut: line[:cut], st.sampled_from(DESCRIBED.split("\n")), st.integers(0, 200)),
    max_size=8,
)


@given(LINES)
@example(DESCRIBED.split("\n"))
def test_pieces_of_descriptions_give_rows_as_their_lines_say_or_an_error(lines: list[str]) -> None:
    parsed = read_foreign_files(["-"], io.StringIO("\n".join(lines)), FOREIGN_FORMATS["kafka-topics"], cluster="main")
    for row in parsed.rows:
        assert lines[row.line - 1].startswith("Topic:")
        assert f"PartitionCount: {row.num_partitions}" in lines[row.line - 1]
    skipped = any("__consumer_offsets" in line for line in lines)
    assert parsed.rows or parsed.errors or skipped or not any(line.strip() for line in lines)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]+(\.[a-z]+){0,3}", fullmatch=True),
        st.from_regex(r"[a-zA-Z0-9:.,-]{0,20}", fullmatch=True).filter(lambda value: value != "null"),
        max_size=5,
    )
)
def test_configs_come_back_as_they_were_printed(configs: dict[str, str]) -> None:
    text = ",".join(f"{name}={value}" for name, value in configs.items())
    line = f"Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: {text}\n"
    parsed = read_foreign_files(["-"], io.StringIO(line), FOREIGN_FORMATS["kafka-topics"], cluster="main")
    assert (only(parsed).configs or {}) == configs


def rights(parsed: ParsedManifests) -> list[str]:
    """Each right as its cluster, owner, state, line and values."""
    assert errors(parsed) == []
    return [
        " ".join(map(str, (row.cluster, row.owner, row.state, row.line, *row.values.values())))
        for row in parsed.rows_of("acls")
    ]


ACL_LIST = """\
Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=pay., patternType=PREFIXED)`:
\t(principal=User:CN=a,OU=b, host=*, operation=DESCRIBE_CONFIGS, permissionType=ALLOW)
\t(principal=Group:g, host=*, operation=READ, permissionType=ALLOW)

ACLs for principal `User:c`
Current ACLs for resource `ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)`:
\t(principal=User:c, host=10.0.0.1, operation=ALTER, permissionType=DENY)
"""


def test_the_output_of_kafka_acls_becomes_acls(read: Read) -> None:
    parsed = read("kafka-acls", ACL_LIST)
    assert rights(parsed) == [
        "main None present 2 User:CN=a,OU=b ALLOW DESCRIBE_CONFIGS TOPIC PREFIXED pay. *",
        "main None present 7 User:c DENY ALTER CLUSTER LITERAL kafka-cluster 10.0.0.1",
    ]
    assert leftovers(parsed) == {"Group:g ALLOW READ TOPIC PREFIXED pay. *": 3}
    (error,) = errors(read("kafka-acls", ACL_LIST + "Picked up JAVA_TOOL_OPTIONS\n"))
    assert error.startswith("f.yaml:8: is not a line of `kafka-acls.sh --list`")
    (error,) = errors(read("kafka-acls", ACL_LIST.partition("\n")[2]))
    assert error.startswith("f.yaml:1: ")
    (error,) = errors(read("kafka-acls", ACL_LIST.replace("ALLOW)\n\t", "ALLOW), ")))
    assert error.startswith("f.yaml:2: has more than one ACL; keep the line breaks")


def test_old_kafkas_acl_listings_are_read(read: Read) -> None:
    """As Kafka 1.x and 2.0 to 2.4 print them."""
    parsed = read(
        "kafka-acls",
        "Current ACLs for resource `Topic:LITERAL:shop.orders`: \n"
        " \tUser:CN=a,OU=b has Allow permission for operations: DescribeConfigs from hosts: * \n\n"
        "Current ACLs for resource `Group:PREFIXED:shop`: \n"
        " \tUser:c has Deny permission for operations: All from hosts: 10.0.0.1 \n"
        "\tGroup:g has Allow permission for operations: Read from hosts: * \n"
        "Current ACLs for resource `TransactionalId:shop.tx`: \n"
        " \tUser:c has Allow permission for operations: Write from hosts: * \n",
    )
    assert rights(parsed) == [
        "main None present 2 User:CN=a,OU=b ALLOW DESCRIBE_CONFIGS TOPIC LITERAL shop.orders *",
        "main None present 5 User:c DENY ALL GROUP PREFIXED shop 10.0.0.1",
        "main None present 8 User:c ALLOW WRITE TRANSACTIONAL_ID LITERAL shop.tx *",
    ]
    assert leftovers(parsed) == {"Group:g ALLOW READ GROUP PREFIXED shop *": 6}


DEAD_ACLS = """\
Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=*, patternType=PREFIXED)`:
\t(principal=User:dead, host=*, operation=READ, permissionType=ALLOW)

Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=two
lines)
more, patternType=LITERAL)`:
\t(principal=User:dead, host=*, operation=READ, permissionType=ALLOW)
\t(principal=User:a
b)
c, host=*, operation=READ, permissionType=ALLOW)

Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=good, patternType=LITERAL)`:
\t(principal=User:a, host=, host=app.example.org, operation=READ, permissionType=ALLOW)
\t(principal=User:two
lines, host=*, operation=READ, permissionType=ALLOW)
\t(principal=User:a, host=2001:db8::1, operation=READ, permissionType=ALLOW)
\t(principal=User:good, host=*, operation=READ, permissionType=ALLOW)
\t(principal=user:lower, host=*, operation=READ, permissionType=ALLOW)

Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=.*, patternType=LITERAL)`:
\t(principal=User:dead, host=*, operation=READ, permissionType=ALLOW)
"""


MAIN = ClusterSettings(name="main", bootstrap_servers=("localhost:1",))
RUN = Settings(path=Path("run.toml"), tables=TablesSettings(root="tables"), clusters={"main": MAIN})


def test_acls_that_never_apply_are_listed_as_not_carried_over(tmp_path: Path) -> None:
    file = tmp_path / "live.txt"
    file.write_text(DEAD_ACLS)
    parsed = read_checked(RUN, [file], NOTHING, foreign=Foreign(form="kafka-acls", cluster="main"))
    assert rights(parsed) == ["main None present 17 User:good ALLOW READ GROUP LITERAL good *"]
    assert [(each.line, each.what.split(";")[0]) for each in parsed.not_carried_over] == [
        (2, "resource_name * with PREFIXED matches only names that begin with a *"),
        (7, "a line break in a name"),
        (8, "a line break in a name"),
        (13, "host is app.example.org"),
        (14, "a line break in a name"),
        (16, "host is 2001:db8::1"),
        (18, "principal user:lower: Kafka's authorizer knows only User:name"),
        (21, "resource_name is .*, which is not a legal topic name or prefix"),
    ]


@pytest.mark.parametrize(
    ("lines", "line", "key"),
    [
        (["\tUser:x", "y has Allow permission for operations: Read from hosts: *"], 2, "User:x\\ny ALLOW READ TOPIC"),
        (["\t(principal=User:x" + "\n" * 300 + "y, host=*, operation=READ, permissionType=ALLOW)"], 2, "User:x\\n"),
        (["ACLs for principal `User:x", "y`"], None, ""),
        *(
            (
                [
                    f"Current ACLs for resource `Group:LITERAL:a\n{more}`:",
                    "\t(principal=User:b, host=*, operation=READ, permissionType=ALLOW)",
                    "",
                ],
                2,
                "Current ACLs for resource `Group:LITERAL:a",
            )
            for more in (
                "  User: b",
                "\tUser:b has",
                "\t(principal=User:evil, host=*, operation=ALL, permissionType=ALLOW)",
                "Current ACLs for resource `y",
            )
        ),
        (["\t(principal=User:a", "\tUser:b, host=*, operation=READ, permissionType=ALLOW)"], 2, "(principal=User:a"),
    ],
)
def test_names_with_line_breaks_leave_the_rest_of_a_listing(
    read: Read, lines: list[str], line: int | None, key: str
) -> None:
    heading = "Current ACLs for resource `Topic:LITERAL:a`:"
    good = "\tUser:z has Allow permission for operations: Read from hosts: *"
    parsed = read("kafka-acls", "\n".join([heading, *lines, heading, good]))
    assert [each.values["principal"] for each in parsed.rows_of("acls")] == ["User:z"]
    assert errors(parsed) == []
    assert [(each.line, each.key[: len(key)]) for each in parsed.not_carried_over] == ([(line, key)] if line else [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (DEAD_ACLS + "\t(principal=User:a, host=", 22),
        (DEAD_ACLS + "Current ACLs for resource `Resource", 22),
        ("Current ACLs for resource `Group:LITERAL:a\n  User: b\n  User: c has\n", 3),
        ("\t(principal=User:a, host=*, operation=READ, permissionType=ALLOW)\n", 1),
    ],
)
def test_a_listing_that_is_cut_off_is_an_error(read: Read, text: str, line: int) -> None:
    (error,) = errors(read("kafka-acls", text))
    assert error.startswith(f"f.yaml:{line}: is not a line of `kafka-acls.sh --list`")


def test_a_principal_may_have_words_of_the_listing_in_its_name(read: Read) -> None:
    entry = "\t(principal=User:a, permissionType=b, host=*, operation=READ, permissionType=ALLOW)"
    heading = "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`:"
    (row,) = read("kafka-acls", f"{heading}\n{entry}").rows_of("acls")
    assert row.values["principal"] == "User:a, permissionType=b"


def test_rows_of_a_listing_that_can_not_be_declared_are_left_out(tmp_path: Path) -> None:
    """The settings leave it to others, or Kafka's internal topics have its name."""
    settings = tmp_path / "settings.toml"
    settings.write_text(
        '[tables]\nroot = "x"\n[clusters.main]\nbootstrap_servers = ["a:1"]\n[owners.payments]\ntopics = ["^pay"]\n'
        '[owners.first]\ntopics = ["^both"]\n[owners.second]\ntopics = ["^both"]\n'
        '[scope]\nignore_topics = ["^_"]\nignore_principals = ["^User:admin"]\nignore_users = ["^admin"]\n'
    )
    topic = "Topic: {}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n"
    listings = {
        "kafka-topics": "".join(map(topic.format, ("pay.a", "_schemas", "__consumer.offsets", "both", "free"))),
        "kafka-acls": ACL_LIST.replace("User:CN=a,OU=b", "User:admin"),
        "kafka-configs": "".join(
            f"Quota configs for user-principal '{user}' are producer_byte_rate=1.0\n" for user in ("admin", "b")
        ),
    }
    found = {}
    for form, text in listings.items():
        file = tmp_path / "live.txt"
        file.write_text(text)
        found[form] = read_checked(load_settings(settings), [file], NOTHING, foreign=Foreign(form=form, cluster="main"))
    topics = found["kafka-topics"]
    assert [(row.topic, row.owner) for row in topics.rows] == [("pay.a", "payments"), ("free", None)]
    assert {"_schemas": 2, "__consumer.offsets": 3, "both": 4}.items() <= leftovers(topics).items()
    assert [row.value("topic") for row in topics.listed["manifests"]] == ["_schemas", "__consumer.offsets", "both"]
    assert [row.line for row in found["kafka-acls"].rows_of("acls")] == [7]
    assert [row.line for row in found["kafka-configs"].rows_of("quotas")] == [2]
    for form, lines in {"kafka-acls": [2, 3], "kafka-configs": [1]}.items():
        assert [each.line for each in found[form].not_carried_over] == lines


INTERNAL = {
    ("m.yaml", None): "cluster: main\ntopics:\n- {topic: __transaction_state}\n",
    ("m.json", None): '[\n\n{"cluster": "main", "topic": "__transaction_state"}]',
    ("m.jsonl", None): '\n\n{"cluster": "main", "topic": "__transaction_state", "state": "absent"}',
    ("m.csv", None): "cluster,topic\n\nmain,__transaction_state\n",
    ("f.yaml", "topicctl"): "\n\n" + SMALLEST["topicctl"].replace("name: t,", "name: __transaction_state,"),
    ("f.yaml", "jikkou"): "\n\n" + SMALLEST["jikkou"].replace("name: t}", "name: __transaction_state}"),
    ("f.yaml", "kafka-gitops"): "topics:\n\n  __transaction_state: {partitions: 2, replication: 1}\n",
}


def only_error_of(path: Path, text: str, form: str | None) -> str:
    """Write a file of a form, or of manifests, and return the only error of reading it."""
    path.write_text(text)
    foreign = None if form is None else Foreign(form=form, cluster="main")
    with pytest.raises(ManifestFileError) as raised:
        read_checked(RUN, [path], NOTHING, foreign=foreign)
    first, total = [line for line in str(raised.value).split("\n") if not line.startswith("warning: ")]
    assert total == "1 error: nothing was loaded or planned"
    return first


@pytest.mark.parametrize(("name", "form"), INTERNAL)
def test_internal_topics_in_files_of_any_format_are_refused(tmp_path: Path, name: str, form: str | None) -> None:
    """I1"""
    first = only_error_of(tmp_path / name, INTERNAL[name, form], form)
    assert first.startswith(f"{tmp_path / name}:3: topic __transaction_state: __transaction_state is internal to Kafka")


BLANK = {
    ("m.yaml", None): "cluster: main\ntopics:\n- topic: t\n  configs: {'retention.ms ': 1}\n",
    ("d.yaml", None): "cluster: main\ndefaults: {configs: {'retention.ms ': 1}}\ntopics: [{topic: t}]\n",
    ("m.csv", None): 'cluster,topic,configs\n\nmain,t,"{""retention.ms "": ""1""}"\n',
    ("g.yaml", None): "cluster: main\ngroups:\n- group: g\n  configs: {'retention.ms ': 1}\n",
    ("f.yaml", "strimzi"): SMALLEST["strimzi"].replace("{partitions: 2}", "{config: {'retention.ms ': 1}}"),
}


LINES = {"d.yaml": 2, "m.csv": 3}


@pytest.mark.parametrize(("name", "form"), BLANK)
def test_a_blank_after_a_config_name_is_an_error_at_load(tmp_path: Path, name: str, form: str | None) -> None:
    """The broker's own error about an unknown name doesn't show the blank."""
    first = only_error_of(tmp_path / name, BLANK[name, form], form)
    assert first.startswith(f"{tmp_path / name}:{LINES.get(name, 4)}: ")
    assert first.endswith(': config names contain blanks or other illegal characters: "retention.ms "')


CONFIGS = {
    "strimzi": ("{partitions: 2}", "{config: CONFIGS}"),
    "topicctl": ("replicationFactor: 1", "replicationFactor: 1, settings: CONFIGS"),
    "jikkou": ("{partitions: 2}", "{configs: CONFIGS}"),
    "kafka-gitops": ("replication: 1", "replication: 1, configs: CONFIGS"),
    "julie": ("{num.partitions: '2'}", "CONFIGS"),
}


@pytest.mark.parametrize("form", CONFIGS)
def test_names_of_configs_are_checked_in_every_format(tmp_path: Path, form: str) -> None:
    """Else only a broker finds them, in a plan."""

    def text(configs: str) -> str:
        old, new = CONFIGS[form]
        return SMALLEST[form].replace(old, new.replace("CONFIGS", configs))

    first = only_error_of(tmp_path / "two", text("{retention.ms: '7', retention_ms: '8'}"), form)
    assert first.endswith("`retention.ms` and `retention_ms` are two spellings of one config; keep one")
    path = tmp_path / "unknown"
    path.write_text(text("{retention.mss: '7', num.partitions: '2'}" if form == "julie" else "{retention.mss: '7'}"))
    parsed = read_checked(RUN, [path], NOTHING, foreign=Foreign(form=form, cluster="main"))
    (warning,) = parsed.warnings
    assert warning.message == "unknown config `retention.mss`; did you mean `retention.ms`?"


def test_a_topic_that_collides_with_an_internal_one_can_only_be_absent(tmp_path: Path) -> None:
    """I1: Kafka can't create __consumer_offsets beside ._consumer_offsets; deleting that one is the cure."""
    path = tmp_path / "m.yaml"
    path.write_text("cluster: main\ntopics: [{topic: ._consumer_offsets}, {topic: _.transaction.state}]\n")
    with pytest.raises(ManifestFileError, match="collides with __consumer_offsets") as raised:
        read_checked(RUN, [path], NOTHING)
    assert "_.transaction.state collides with __transaction_state" in str(raised.value)
    path.write_text("cluster: main\ntopics: [{topic: ._consumer_offsets, state: absent}, {topic: _consumer_offsets}]\n")
    assert len(read_checked(RUN, [path], NOTHING).rows) == 2


STRIMZI_USER = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: shop, labels: {strimzi.io/cluster: orders, owner: checkout}}
spec:
  authentication: {type: tls}
  template: {secret: {}}
  authorization:
    type: simple
    acls:
      - {resource: {type: topic, name: shop., patternType: prefix}, operations: [Read, DescribeConfigs], host: 10.0.0.1}
      - {type: deny, resource: {type: transactionalId, name: t}, operation: Write}
      - {resource: {type: cluster}, operations: [IdempotentWrite]}
"""


def test_the_acls_of_a_strimzi_user_become_rights(read: Read) -> None:
    parsed = read("strimzi", STRIMZI_USER, cluster=None)
    assert rights(parsed) == [
        "orders checkout present 10 User:CN=shop ALLOW READ TOPIC PREFIXED shop. 10.0.0.1",
        "orders checkout present 10 User:CN=shop ALLOW DESCRIBE_CONFIGS TOPIC PREFIXED shop. 10.0.0.1",
        "orders checkout present 11 User:CN=shop DENY WRITE TRANSACTIONAL_ID LITERAL t *",
        "orders checkout present 12 User:CN=shop ALLOW IDEMPOTENT_WRITE CLUSTER LITERAL kafka-cluster *",
    ]
    assert leftovers(parsed) == {"spec.template": 6}
    by_password = read("strimzi", STRIMZI_USER.replace("type: tls", "type: scram-sha-512"), cluster="other")
    assert {(row.cluster, row.values["principal"]) for row in by_password.rows_of("acls")} == {("other", "User:shop")}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type: simple", "type: opa", "`spec.authorization.type` is opa; only simple has ACLs"),
        ("name: shop., ", "", "`spec.authorization.acls.resource.name` is missing"),
        ("operation: Write", "host: x", "`spec.authorization.acls.operations` is missing"),
        ("strimzi.io/cluster: orders, ", "", "the label `strimzi.io/cluster` names the user's cluster"),
    ],
)
def test_errors_of_a_strimzi_user_are_reported(read: Read, old: str, new: str, message: str) -> None:
    parsed = read("strimzi", STRIMZI_USER.replace(old, new), cluster=None)
    assert any(message in error for error in errors(parsed))
    assert parsed.rows_of("acls") == []


JIKKOU_RIGHTS = """\
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaPrincipalAuthorization
metadata: {name: "User:shop", labels: {owner: checkout}}
spec:
  roles: [reads]
  acls:
    - {resource: {type: topic, pattern: shop-, patternType: PREFIXED}, type: ALLOW, operations: [WRITE], host: "*"}
---
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaPrincipalRole
metadata: {name: reads}
spec:
  acls:
    - {resource: {type: group, pattern: g, patternType: LITERAL}, type: DENY, operations: [READ], host: 10.0.0.1}
"""


def test_jikkous_authorizations_and_roles_become_acls(read: Read) -> None:
    assert rights(read("jikkou", JIKKOU_RIGHTS)) == [
        "main checkout present 7 User:shop ALLOW WRITE TOPIC PREFIXED shop- *",
        "main checkout present 14 User:shop DENY READ GROUP LITERAL g 10.0.0.1",
    ]
    gone = JIKKOU_RIGHTS.replace("owner: checkout}", "owner: checkout}, annotations: {jikkou.io/delete: true}", 1)
    assert {row.state for row in read("jikkou", gone).rows_of("acls")} == {"absent"}
    (error,) = errors(read("jikkou", JIKKOU_RIGHTS.replace("roles: [reads]", "roles: [read]")))
    assert "f.yaml:5: `spec.roles` names the role read, which no file here has; did you mean `reads`?" in error
    other = read("jikkou", JIKKOU_RIGHTS.replace("User:shop", "Group:shop"))
    assert (other.rows_of("acls"), leftovers(other)) == ([], {"metadata.name": 1})
