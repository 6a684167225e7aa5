"""The JSON Schema of manifest files accepts what a load accepts, and refuses what it can see is wrong."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from tests.unit.manifest_texts import BAD, COMPLETED, ODD, ORDERS_YAML, OTHERS, PAYMENTS, SCALARS, VARIABLES
from topicledger.cli import main
from topicledger.files.reading import read_manifest_files
from topicledger.model.config_texts import ConfigTextError, stored
from topicledger.model.topic_configs import topic_configs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    printed = CliRunner().invoke(main, ["schema", "manifests"])
    assert printed.exit_code == 0
    schema = json.loads(printed.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def as_json(text: str) -> Iterator[Any]:
    """The documents of a YAML text, with keys as JSON has them."""
    for document in yaml.safe_load_all(text):
        yield json.loads(json.dumps(document))


def documented() -> Iterator[tuple[str, str]]:
    """YAML of the documentation that is a manifest."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)):
            if re.search(r"^(topics|acls|quotas|groups):", block, re.MULTILINE) and "apiVersion" not in block:
                yield f"{page.name} {number}", block


VALID = {
    **dict(documented()),
    **{path.name: path.read_text() for path in sorted((ROOT / "examples" / "manifests").glob("*.[yj]*"))},
    "orders": ORDERS_YAML,
    "payments": PAYMENTS,
    "others": OTHERS,
    "variables": VARIABLES,
    "odd": ODD,
    "completed": COMPLETED,
    "scalars": SCALARS,
}


def test_there_are_documented_and_example_files() -> None:
    assert {"payments.yaml", "observability.json", "declare.md 0"} < VALID.keys()
    assert len(VALID) > 10


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_schema_accepts_valid_files(validator: jsonschema.Draft202012Validator, text: str) -> None:
    for document in as_json(text):
        assert [each.message for each in validator.iter_errors(document)] == []
        for entry in document if isinstance(document, list) else ():
            validator.validate(entry)


UNSEEN = {
    "a cluster of the entry that isn't listed",
    "a cluster of the file that isn't listed",
    "a cluster of the defaults that isn't listed",
    "a cluster overridden twice",
    "no cluster",
    "a unit of a group's config",
    "an ACL without its permission",
    "a shorthand without its host",
    "a quota without its user",
    *(name for name in BAD if name.startswith("null for another spelling")),
    "two spellings of one config",
    "two spellings, one in an override",
    "two spellings, one in the defaults",
}
"""Errors that only a load can find."""
WRONG = {
    **{name: text for name, (text, _) in BAD.items() if name not in UNSEEN and name != "a number as cluster"},
    "no topics": "cluster: a\n",
    "no topic": "cluster: a\ntopics: [{num_partitions: 1}]\n",
    "another key": "cluster: a\ntopic: []\n",
    "a count as text": "cluster: a\ntopics: [{topic: t, num_partitions: '3'}]\n",
    "a count of zero": "cluster: a\ntopics: [{topic: t, num_partitions: 0}]\n",
    "an unknown state": "cluster: a\ntopics: [{topic: t, state: gone}]\n",
    "a config that is a list": "cluster: a\ntopics: [{topic: t, configs: {cleanup.policy: [compact]}}]\n",
    "an owner that is a number": "cluster: a\ntopics: [{topic: t, owner: 12}]\n",
    "an unknown operation": "cluster: a\nacls: [{operation: LOOK, resource_type: TOPIC, resource_name: t}]\n",
    "an ACL without a name": "cluster: a\nacls: [{principal: 'User:a', operation: READ, resource_type: TOPIC}]\n",
    "an ACL without a principal": "cluster: a\nacls: [{operation: READ, resource_type: TOPIC, resource_name: t}]\n",
    "a quota of nobody": "cluster: a\nquotas: [{user: null, producer_byte_rate: 1}]\n",
    "a group whose name is empty": "cluster: a\ngroups: [{group: '', configs: {a: b}}]\n",
    "a partition with a zero before it": "cluster: a\ntopics: [{topic: t, assignments: {'00': [1]}}]\n",
    "a broker that is too high": "cluster: a\ntopics: [{topic: t, assignments: {'0': [2147483648]}}]\n",
    "a field that a shorthand lacks": "cluster: a\nacls: [{consumer: {principal: 'User:a', topic: t, groups: g}}]\n",
    "a rate as text": "cluster: a\nquotas: [{user: u, producer_byte_rate: much}]\n",
    "a rate of zero": "cluster: a\nquotas: [{user: u, producer_byte_rate: 0}]\n",
    "a part of a byte": "cluster: a\nquotas: [{user: u, producer_byte_rate: 2.5}]\n",
    "a group without a name": "cluster: a\ngroups: [{configs: {a: b}}]\n",
    "an entry without a cluster": "- {topic: t}\n",
    "an entry whose cluster is null": "- {cluster: null, topic: t}\n",
    "a topic with a blank": "cluster: a\ntopics: [{topic: a b}]\n",
    "a topic of Kafka": "cluster: a\ntopics: [{topic: __consumer_offsets}]\n",
    "an unknown placement": "cluster: a\ntopics: [{topic: t, placement: foo}]\n",
    "a topic without a name before": "cluster: a\ntopics: [{topic: t, replaces: ''}]\n",
    "a config with a blank": "cluster: a\ntopics: [{topic: t, configs: {'a b': 1}}]\n",
    "a broker below 0": "cluster: a\ntopics: [{topic: t, assignments: {0: [-1]}}]\n",
    "no assignments": "cluster: a\ntopics: [{topic: t, assignments: {}}]\n",
    "a partition without brokers": "cluster: a\ntopics: [{topic: t, assignments: {0: []}}]\n",
    "a cluster twice": "cluster: a\ndefaults: {cluster: a}\ntopics: [{topic: t}]\n",
    "a consumer of nothing": "cluster: a\nacls: [{consumer: {principal: 'User:a'}}]\n",
    "two shorthands": (
        "cluster: a\nacls: [{consumer: {principal: 'User:a', topics: t, groups: g}, "
        "producer: {principal: 'User:a', topics: t}}]\n"
    ),
    "a time below its limit": "cluster: a\ntopics: [{topic: t, configs: {retention.ms: '-5'}}]\n",
    "a config that is null": "cluster: a\ntopics: [{topic: t, configs: {retention.ms: null}}]\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_schema_refuses_wrong_files(validator: jsonschema.Draft202012Validator, text: str, tmp_path: Path) -> None:
    (document,) = as_json(text)
    assert not validator.is_valid(document)


TEXTS = (
    "7d", " 7d ", "1.5h", "12h", "1GiB", "500MB", "7 days", "604800000", "+5", "-1", "-2", "0", "1", "100",
    "true", "True", "yes", "false", "0.5", "0.5d", "1e9", "5.0e-1", "nan", "compact", "delete", "compact,delete",
    "compact, delete", "", " ", "zstd", "producer", "uncompressed", "CreateTime", "LogAppendTime", "1:2", "3.0-IV1",
    "99999999999999999999", "1MB", "7D", "-00", "-01", "+-1", "0:1,x", "0:1 , 2:3", "*", "2.8", "banana",
)  # fmt: skip


@pytest.mark.parametrize("name", topic_configs())
def test_schema_accepts_the_texts_that_a_load_accepts(validator: jsonschema.Draft202012Validator, name: str) -> None:
    differ = []
    for text in TEXTS:
        try:
            stored(name, text)
            accepted = True
        except ConfigTextError:
            accepted = False
        valid = validator.is_valid({"cluster": "a", "topics": [{"topic": "t", "configs": {name: text}}]})
        if valid != accepted and not _out_of_limits(name, text):
            differ.append((text, accepted))
    assert differ == []


def _out_of_limits(name: str, text: str) -> bool:
    """Whether a text has the form of a number, whose limits a pattern can't check but for negative numbers."""
    sign = "[+-]" if topic_configs()[name].type == "double" else "[+]"
    return topic_configs()[name].type in ("int", "long", "double") and bool(re.match(rf"\s*{sign}?[0-9.]", text))


@pytest.mark.parametrize("value", [1, 0, -1, -2, 2**63, 0.5, True])
@pytest.mark.parametrize("name", ["retention.ms", "min.insync.replicas", "min.cleanable.dirty.ratio", "preallocate"])
def test_schema_knows_the_limits_of_numbers(
    validator: jsonschema.Draft202012Validator, name: str, value: object, tmp_path: Path
) -> None:
    document = {"cluster": "a", "topics": [{"topic": "t", "configs": {name: value}}]}
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert validator.is_valid(document) == (not read_manifest_files([path], io.StringIO("")).errors)
