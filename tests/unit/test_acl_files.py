"""Rights in manifest files: entries as the table has them, and shorthands that expand before they are stored."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from topicledger.files.reading import read_manifest_files
from topicledger.manifests.files import ParsedManifests
from topicledger.resources.acls.entries import expansions

RIGHTS = """\
cluster: orders
defaults: {owner: payments, labels: {tier: gold}, replication_factor: 3}
topics:
  - {topic: payments.authorised}
acls:
  - {principal: "User:a", operation: READ, resource_type: TOPIC, resource_name: orders., pattern_type: PREFIXED}
  - {principal: "User:a", operation: ALL, resource_type: GROUP, resource_name: g, host: 10.0.0.1, permission: DENY,
     state: absent, owner: null, cluster: billing}
"""


def parse(folder: Path, text: str) -> ParsedManifests:
    path = folder / "m.yaml"
    path.write_text(text, encoding="utf-8")
    return read_manifest_files([path], io.StringIO(""))


def test_rights_stand_beside_topics_and_inherit_what_topics_do(tmp_path: Path) -> None:
    parsed = parse(tmp_path, RIGHTS)
    assert parsed.errors == []
    assert [row.topic for row in parsed.rows] == ["payments.authorised"]
    first, second = parsed.rows_of("acls")
    assert (first.cluster, first.state, first.owner, first.labels) == (
        "orders",
        "present",
        "payments",
        {"tier": "gold"},
    )
    assert first.values == {
        "principal": "User:a",
        "permission": "ALLOW",
        "operation": "READ",
        "resource_type": "TOPIC",
        "pattern_type": "PREFIXED",
        "resource_name": "orders.",
        "host": "*",
    }
    assert (second.cluster, second.state, second.line) == ("billing", "absent", 7)
    assert (second.values["host"], second.values["permission"]) == ("10.0.0.1", "DENY")


SHORTHANDS = {
    "consumer: {principal: P, topics: [orders, 'pay.*'], groups: g}": {
        "READ TOPIC orders", "DESCRIBE TOPIC orders", "READ TOPIC pay.*", "DESCRIBE TOPIC pay.*", "READ GROUP g",
    },
    "producer: {principal: P, topics: '*', transactional_id: tx-*, idempotent: true}": {
        "WRITE TOPIC *", "DESCRIBE TOPIC *", "WRITE TRANSACTIONAL_ID tx-*", "DESCRIBE TRANSACTIONAL_ID tx-*",
        "IDEMPOTENT_WRITE CLUSTER kafka-cluster",
    },
    "streams: {principal: P, application_id: app, inputs: a, outputs: [b]}": {
        "READ TOPIC a", "DESCRIBE TOPIC a", "WRITE TOPIC b", "DESCRIBE TOPIC b", "ALL TOPIC app*",
        "READ GROUP app*", "DESCRIBE GROUP app*", "DELETE GROUP app*",
        "WRITE TRANSACTIONAL_ID app*", "DESCRIBE TRANSACTIONAL_ID app*",
    },
    "connect: {principal: P, group: c, internal: c-configs, reads: a, writes: b}": {
        "READ GROUP c", "DESCRIBE GROUP c", "READ TOPIC c-configs", "WRITE TOPIC c-configs", "DESCRIBE TOPIC c-configs",
        "DESCRIBE_CONFIGS TOPIC c-configs", "READ TOPIC a", "DESCRIBE TOPIC a", "READ GROUP connect-*",
        "DESCRIBE GROUP connect-*", "WRITE TOPIC b", "DESCRIBE TOPIC b",
    },
}  # fmt: skip


@pytest.mark.parametrize("shorthand", SHORTHANDS)
def test_a_shorthand_becomes_the_rights_that_such_a_client_needs(tmp_path: Path, shorthand: str) -> None:
    text = shorthand.replace("P", '"User:a"')
    parsed = parse(tmp_path, f"cluster: orders\nacls:\n  - {{{text}, owner: team}}\n")
    assert parsed.errors == []
    found = {
        f"{row.values['operation']} {row.values['resource_type']} {row.values['resource_name']}"
        + ("*" if row.values["pattern_type"] == "PREFIXED" else "")
        for row in parsed.rows_of("acls")
    }
    assert found == SHORTHANDS[shorthand]
    assert {(row.values["principal"], row.owner, row.line) for row in parsed.rows_of("acls")} == {("User:a", "team", 3)}
    (line,) = expansions(parsed.rows_of("acls"))
    assert line.startswith(f"{parsed.rows_of('acls')[0].file}:3: {shorthand.partition(':')[0]} User:a: ")


WRONG = {
    "acls: 3": "1: `acls` must be a list, not the number 3",
    "acls: [x]": '1: each of `acls` must be a mapping, not the string "x"',
    "acls: [{principal: a, operation: READ, resource_type: TOPIC}]": "1: `resource_name` is missing",
    "acls: [{principal: a, operaton: READ}]": "1: unknown field `operaton`; did you mean `operation`?",
    "acls: [{consumer: {principal: a, topics: x}}]": "1: `consumer` needs `groups`",
    "acls: [{consumer: {topics: x, groups: g}}]": "1: `consumer` needs `principal`",
    "acls: [{consumer: {principal: a, topic: x}}]": "1: unknown field `topic` of `consumer`; did you mean `topics`?",
    "acls: [{consumer: x}]": '1: `consumer` must be a mapping with principal, host, topics, groups, not the string "x"',
    "acls: [{consumer: {principal: a, topics: [1], groups: g}}]": "1: `topics` must be a string, not the number 1",
    "acls: [{producer: {principal: a, topics: x, idempotent: 1}}]": "1: `idempotent` must be true or false",
    "acls: [{consumer: {principal: a, topics: x, groups: g}, producer: {principal: a, topics: x}}]": (
        "1: `consumer` and `producer` exclude each other; write two entries"
    ),
    "acls: [{principal: a, consumer: {}}]": "1: unknown field `principal`",
    "acls: [{streams: {principal: a, application_id: ''}}]": "1: `application_id` has an empty name",
    "acls: [{streams: {principal: a, application_id: ['', x]}}]": "1: `application_id` has an empty name",
    "acls: [{streams: {principal: a, application_id: '*'}}]": "1: `application_id` is *, which stands for every name",
    "acls: [{streams: {principal: a, application_id: x, inputs: ['']}}]": "1: `inputs` has an empty name",
    "acls: [{consumer: {principal: a, topics: x, groups: ['']}}]": "1: `groups` has an empty name",
    "acls: [{connect: {principal: a, group: x, internal: y, reads: ''}}]": "1: `reads` has an empty name",
}


@pytest.mark.parametrize("text", WRONG)
def test_errors_are_reported_with_their_line(tmp_path: Path, text: str) -> None:
    parsed = parse(tmp_path, f"{text}\ncluster: orders\n")
    messages = [str(error).partition("m.yaml:")[2] for error in parsed.errors]
    assert any(message.startswith(WRONG[text]) for message in messages), messages
    assert parsed.rows_of("acls") == []


def test_a_flag_and_names_can_be_variables(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "cluster: c\nacls:\n- producer:\n    principal: ${P}\n    topics: ${T}\n    idempotent: ${I}\n",
        encoding="utf-8",
    )
    parsed = {
        flag: read_manifest_files([path], io.StringIO(""), variables={"P": "User:1", "T": "2026", "I": flag})
        for flag in ("true", "false", "1")
    }
    assert [bool(each.errors) for each in parsed.values()] == [False, False, True]
    (more, fewer, _) = (len(each.rows_of("acls")) for each in parsed.values())
    assert more > fewer > 0
    assert {row.values["resource_name"] for row in parsed["false"].rows_of("acls")} == {"2026"}


def read_as(folder: Path, name: str, text: str) -> ParsedManifests:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_manifest_files([path], io.StringIO(""))


def test_json_has_rights_and_shorthands_among_its_topics(tmp_path: Path) -> None:
    text = """[
  {"cluster": "orders", "topic": "t"},
  {"cluster": "orders", "principal": "User:a", "operation": "READ", "resource_type": "TOPIC",
   "resource_name": "t", "labels": {"a": "b"}},
  {"cluster": "orders", "owner": "o", "consumer": {"principal": "User:b", "topics": ["t"], "groups": "g*"}}
]"""
    parsed = read_as(tmp_path, "m.json", text)
    assert parsed.errors == []
    assert [row.topic for row in parsed.rows] == ["t"]
    assert [
        (row.line, row.owner, row.values["operation"], row.values["resource_name"]) for row in parsed.rows_of("acls")
    ] == [
        (3, None, "READ", "t"),
        (5, "o", "READ", "t"),
        (5, "o", "DESCRIBE", "t"),
        (5, "o", "READ", "g"),
    ]
    wrong = read_as(tmp_path, "w.jsonl", '{"cluster": "orders", "principal": "User:a", "operatoin": "READ"}')
    assert str(wrong.errors[0]).endswith("w.jsonl:1: unknown field `operatoin`; did you mean `operation`?")


def test_a_csv_file_whose_header_names_a_principal_has_rights(tmp_path: Path) -> None:
    head = "cluster,principal,operation,resource_type,pattern_type,resource_name,host,owner,labels\n"
    parsed = read_as(tmp_path, "m.csv", head + 'orders,User:a,READ,TOPIC,PREFIXED,t.,,payments,"{""a"": ""b""}"\n')
    assert parsed.errors == []
    (row,) = parsed.rows_of("acls")
    assert (row.cluster, row.owner, row.labels, row.line) == ("orders", "payments", {"a": "b"}, 2)
    assert (row.values["pattern_type"], row.values["resource_name"], row.values["host"]) == ("PREFIXED", "t.", "*")
    wrong = read_as(tmp_path, "w.csv", "cluster,principal,operation,resource_name,topics\n")
    assert [error.message.partition(";")[0] for error in wrong.errors] == [
        "unknown column `topics`",
        "column `resource_type` is missing",
    ]
