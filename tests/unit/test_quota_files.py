"""Quotas in manifest files, and in those of other tools: rows of `quotas`, and what is wrong with its line."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from topicledger.config.clusters import ClusterSettings
from topicledger.config.settings import Settings, TablesSettings
from topicledger.errors import ManifestFileError
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.read import Foreign, read
from topicledger.files.reading import read_foreign_files, read_manifest_files
from topicledger.manifests.files import ParsedManifests

NOTHING = io.StringIO("")
RUN = Settings(
    path=Path("run.toml"),
    tables=TablesSettings(root="tables"),
    clusters={"main": ClusterSettings(name="main", bootstrap_servers=("localhost:1",))},
)


def parse(folder: Path, name: str, text: str) -> ParsedManifests:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_manifest_files([path], NOTHING)


def foreign(folder: Path, form: str, text: str, cluster: str | None = "main") -> ParsedManifests:
    path = folder / "f"
    path.write_text(text, encoding="utf-8")
    return read_foreign_files([path], NOTHING, FOREIGN_FORMATS[form], cluster=cluster)


def said(parsed: ParsedManifests) -> list[tuple[Any, ...]]:
    """Cluster, owner, state, line, and the values that are there."""
    assert parsed.errors == []
    return [
        (row.cluster, row.owner, row.state, row.line, {k: v for k, v in row.values.items() if v is not None})
        for row in parsed.rows_of("quotas")
    ]


def told(parsed: ParsedManifests) -> list[str]:
    return [f"{error.line}: {error.message}" for error in parsed.errors]


ROWS = [
    {"cluster": "main", "user": "a", "producer_byte_rate": 1048576, "owner": "payments", "labels": {"tier": "gold"}},
    {"cluster": "main", "user": "<default>", "client_id": "b", "request_percentage": 12.5, "state": "present"},
    {"cluster": "main", "ip": "10.0.0.1", "state": "absent"},
]
SAID = [
    ("main", "payments", "present", {"user": "a", "producer_byte_rate": 1048576.0}),
    ("main", None, "present", {"user": "<default>", "client_id": "b", "request_percentage": 12.5}),
    ("main", None, "absent", {"ip": "10.0.0.1"}),
]


def test_json_has_quotas_among_topics_and_rights(tmp_path: Path) -> None:
    right = {
        "cluster": "main", "principal": "User:a", "operation": "READ", "resource_type": "TOPIC", "resource_name": "t",
    }  # fmt: skip
    entries = [{"cluster": "main", "topic": "t"}, ROWS[0], right, *ROWS[1:]]
    parsed = parse(tmp_path, "m.json", json.dumps(entries))
    assert [(*row[:3], row[4]) for row in said(parsed)] == SAID
    assert (len(parsed.rows), len(parsed.rows_of("acls"))) == (1, 1)
    assert parsed.rows_of("quotas")[0].labels == {"tier": "gold"}
    lines = parse(tmp_path, "m.jsonl", "\n".join(map(json.dumps, entries)))
    assert [row.line for row in lines.rows_of("quotas")] == [2, 4, 5]


def test_a_csv_file_whose_header_names_an_entity_has_quotas(tmp_path: Path) -> None:
    text = (
        "cluster,user,client_id,ip,producer_byte_rate,request_percentage,state,owner,labels\n"
        'main,a,,,1048576,,,payments,"{""tier"": ""gold""}"\n'
        "main,<default>,b,,,12.5,present,,\n"
        "main,,,10.0.0.1,,,absent,,\n"
    )
    parsed = parse(tmp_path, "m.csv", text)
    assert [(*row[:3], row[4]) for row in said(parsed)] == SAID
    assert parsed.rows_of("quotas")[0].labels == {"tier": "gold"}
    wrong = parse(tmp_path, "w.csv", "cluster,user,producer_byte_rate\nmain,a,fast\nmain,b,1\n,c,1\n")
    assert told(wrong) == [
        '2: producer_byte_rate must be a number, not the string "fast"; write plain digits',
        "4: `cluster` is missing",
    ]
    header = parse(tmp_path, "h.csv", "user,producer_rate\na,1\n")
    assert told(header) == [
        "1: unknown column `producer_rate`; did you mean `producer_byte_rate`?",
        "1: column `cluster` is missing",
    ]


WRONG: Mapping[str, str] = {
    "{producer_byte_rate: 5}": "it names no user, client_id or ip; write one of them",
    '{user: ""}': "user is empty; write a name, <default>, or null; it has no limit; write one, or state absent",
    "{user: a}": "it has no limit; write one, or state absent to remove all",
    "{user: a, producer_byte_rate: 0.5}": "producer_byte_rate is 0.5; it must be a whole number below 2^63",
    "{user: a, ip: 10.0.0.1, connection_creation_rate: 5}": "ip can't be combined",
    "{user: a, connection_creation_rate: 5}": "connection_creation_rate is 5.0; only an ip can have it",
    "{ip: h, request_percentage: 5}": "request_percentage is 5.0; an ip can have only connection_creation_rate",
    "{user: a, request_percentage: 0}": "request_percentage is 0.0; it must be above 0, or null for no limit",
    "{user: a, request_percentage: 0.0000000000000000001}": "request_percentage is 1.0E-19; it must be at least 1E-18",
    '{user: a, request_percentage: 1, state: " absent"}': 'state is " absent"; write present or absent',
    "{user: a, request_percentage: 1, state: gone}": "state is gone; write present or absent",
    "{user: first, request_percentage: 1}": "this entity is declared differently at",
    "{user: first, request_percentage: 2, owner: other}": "this entity is declared differently at",
    "{user: first, request_percentage: 2, labels: {tier: gold}}": "this entity is declared differently at",
    "{user: first, state: absent}": "this entity is present at",
}


def test_each_wrong_quota_is_an_error_of_its_own_before_there_is_a_session(tmp_path: Path) -> None:
    """Q2, Q3: what a run would refuse is told with its line; an entity is declared once."""
    path = tmp_path / "m.yaml"
    first = "cluster: main\nquotas:\n  - {user: first, request_percentage: 2}\n"
    path.write_text(first + "".join(f"  - {row.replace('user: a', f'user: a{n}')}\n" for n, row in enumerate(WRONG)))
    with pytest.raises(ManifestFileError) as error:
        read(RUN, [path], NOTHING)
    lines = str(error.value).split("\n")
    assert lines[-1] == f"{len(WRONG)} errors: nothing was loaded or planned"
    for number, (message, line) in enumerate(zip(WRONG.values(), lines, strict=False), start=4):
        assert line.startswith(f"{path}:{number}: "), line
        assert message in line
    path.write_text(f"{first}---\n{first}")
    assert len(read(RUN, [path], NOTHING).rows_of("quotas")) == 2, "a copy is no error"


STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: shop, labels: {strimzi.io/cluster: orders, owner: checkout}}
spec:
  authentication: {type: tls}
  quotas: {producerByteRate: 1024, consumerByteRate: 2048, requestPercentage: 55, controllerMutationRate: 0.5, other: 1}
"""


def test_a_strimzi_users_quotas_get_the_name_that_brokers_know(tmp_path: Path) -> None:
    limits = {
        "producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0, "request_percentage": 55.0,
        "controller_mutation_rate": 0.5,
    }  # fmt: skip
    parsed = foreign(tmp_path, "strimzi", STRIMZI, None)
    assert said(parsed) == [("orders", "checkout", "present", 6, {"user": "CN=shop", **limits})]
    assert [(each.line, each.key) for each in parsed.not_carried_over] == [(6, "spec.quotas.other")]
    by_password = foreign(tmp_path, "strimzi", STRIMZI.replace("type: tls", "type: scram-sha-512"))
    assert [row.values["user"] for row in by_password.rows_of("quotas")] == ["shop"]
    none = foreign(tmp_path, "strimzi", STRIMZI.replace("quotas: {producer", "quotas: {} # "))
    assert (none.rows_of("quotas"), none.skipped) == ([], {"KafkaUser without ACLs and quotas": 1})
    wrong = foreign(tmp_path, "strimzi", STRIMZI.replace("producerByteRate: 1024", "producerByteRate: fast"))
    assert told(wrong) == [
        '6: `spec.quotas.producerByteRate` must be a number, not the string "fast"; write plain digits, not quoted'
    ]
    assert wrong.rows_of("quotas") == []


JULIE = """\
context: retail
source: web
platform:
  control_center:
    instances: [{principal: "User:center", appId: center}]
  kafka:
    quotas:
      - principal: "User:shop"
        producer_byte_rate: 1024
        consumer_byte_rate: 2048
        request_percentage: 50.0
      - principal: ""
        request_percentage: 80.0
      - principal: "Group:all"
        request_percentage: 1
"""


def test_quotas_of_julies_platform_get_the_names_that_brokers_know(tmp_path: Path) -> None:
    parsed = foreign(tmp_path, "julie", JULIE)
    limits = {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0, "request_percentage": 50.0}
    assert said(parsed) == [
        ("main", None, "present", 8, {"user": "shop", **limits}),
        ("main", None, "present", 12, {"user": "<default>", "request_percentage": 80.0}),
    ]
    left = {(each.line, each.key): each.what for each in parsed.not_carried_over}
    assert set(left) == {
        (4, "platform.control_center"),
        (8, "platform.kafka.quotas.principal"),
        (14, "platform.kafka.quotas.principal"),
    }
    assert "User:shop, whom Julie limits but no broker knows" in left[8, "platform.kafka.quotas.principal"]
    assert "only User:name" in left[14, "platform.kafka.quotas.principal"]
    for old, new, message in [
        ("50.0", "half", '11: `platform.kafka.quotas.request_percentage` must be a number, not the string "half"'),
        ('"User:shop"', "null", "8: `platform.kafka.quotas.principal` is missing"),
        ('"User:shop"', '"User:"', "8: `platform.kafka.quotas.principal` has no name"),
        (
            "consumer_byte_rate",
            "consumer_bytes_rate",
            "10: `platform.kafka.quotas.consumer_bytes_rate` is unknown; did you mean `consumer_byte_rate`?",
        ),
    ]:
        (error,) = told(foreign(tmp_path, "julie", JULIE.replace(old, new)))
        assert error.startswith(message), error


def jikkou(kind: str, entity: str, more: str = "") -> str:
    return (
        "---\napiVersion: kafka.jikkou.io/v1beta2\nkind: KafkaClientQuota\n"
        f"metadata: {{labels: {{owner: shop}}{more}}}\n"
        f"spec:\n  type: {kind}\n  entity: {{{entity}}}\n"
        "  configs: {requestPercentage: 10, producerByteRate: '1024'}\n"
    )


TYPES: Sequence[tuple[str, str, Mapping[str, str]]] = [
    ("USERS_DEFAULT", "", {"user": "<default>"}),
    ("USER", "user: a", {"user": "a"}),
    ("USER_CLIENT", "user: a, clientId: c", {"user": "a", "client_id": "c"}),
    ("USER_ALL_CLIENTS", "user: a", {"user": "a", "client_id": "<default>"}),
    ("CLIENT", "clientId: <default>", {"client_id": "\\<default>"}),
    ("CLIENTS_DEFAULT", "", {"client_id": "<default>"}),
]


@pytest.mark.parametrize(("kind", "entity", "row"), TYPES)
def test_each_type_of_jikkous_quotas_is_its_entity(
    tmp_path: Path, kind: str, entity: str, row: Mapping[str, str]
) -> None:
    limits = {"request_percentage": 10.0, "producer_byte_rate": 1024.0}
    parsed = foreign(tmp_path, "jikkou", jikkou(kind, entity))
    assert said(parsed) == [("main", "shop", "present", 2, {**row, **limits})]


def test_jikkous_lists_and_annotations_count_and_errors_have_lines(tmp_path: Path) -> None:
    listed = (
        "apiVersion: kafka.jikkou.io/v1beta2\nkind: KafkaClientQuotaList\nitems:\n"
        "  - spec: {type: USER, entity: {user: a}, configs: {consumerByteRate: 5}}\n"
        "  - {metadata: {name: x}, spec: {type: CLIENTS_DEFAULT, configs: {consumerByteRate: 5}}}\n"
    )
    parsed = foreign(tmp_path, "jikkou", listed)
    assert [row[4] for row in said(parsed)] == [
        {"user": "a", "consumer_byte_rate": 5.0},
        {"client_id": "<default>", "consumer_byte_rate": 5.0},
    ]
    assert [each.key for each in parsed.not_carried_over] == ["metadata.name"]
    gone = jikkou("USER", "user: a", ", annotations: {jikkou.io/delete: true}")
    assert said(foreign(tmp_path, "jikkou", gone)) == [("main", "shop", "absent", 2, {"user": "a"})]
    ignored = foreign(tmp_path, "jikkou", gone.replace("delete", "ignore"))
    assert (ignored.rows_of("quotas"), ignored.skipped) == ([], {"KafkaClientQuota with jikkou.io/ignore: true": 1})
    wrong = {
        jikkou("USERS", "user: a"): "`spec.type` is USERS",
        jikkou("USER", ""): "`spec.entity.user` is missing: type USER needs it",
        jikkou("USERS_DEFAULT", "user: a"): "`spec.entity.user` is a, and type USERS_DEFAULT has none",
    }
    for text, message in wrong.items():
        parsed = foreign(tmp_path, "jikkou", text)
        assert (len(parsed.errors), parsed.rows_of("quotas")) == (1, [])
        assert message in str(parsed.errors[0])


DESCRIBED = """\
Quota configs for user-principal 'CN=b, O=x' are consumer_byte_rate=20000.0, producer_byte_rate=1.0E9
SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192
Quota configs for the default user-principal are request_percentage=12.5

Quota configs for user-principal 'a', client-id 'c' are producer_byte_rate=1.0
Quota configs for user-principal 'a', the default client-id are producer_byte_rate=2.0
Quota configs for client-id '<default>' are producer_byte_rate=3.0, new_limit=1.0
Quota configs for ip '10.0.0.1' are connection_creation_rate=9.0
Quota configs for the default ip are connection_creation_rate=90.0
Quota configs for user-principal 'nothing' are
"""


def test_the_output_of_kafka_configs_about_quotas_is_read(tmp_path: Path) -> None:
    parsed = foreign(tmp_path, "kafka-configs", DESCRIBED)
    assert [(row[3], row[4]) for row in said(parsed)] == [
        (1, {"user": "CN=b, O=x", "consumer_byte_rate": 20000.0, "producer_byte_rate": 1e9}),
        (3, {"user": "<default>", "request_percentage": 12.5}),
        (5, {"user": "a", "client_id": "c", "producer_byte_rate": 1.0}),
        (6, {"user": "a", "client_id": "<default>", "producer_byte_rate": 2.0}),
        (7, {"client_id": "\\<default>", "producer_byte_rate": 3.0}),
        (8, {"ip": "10.0.0.1", "connection_creation_rate": 9.0}),
        (9, {"ip": "<default>", "connection_creation_rate": 90.0}),
    ]
    left = [(each.line, each.key) for each in parsed.not_carried_over]
    assert left == [(2, "SCRAM credential configs"), (7, "new_limit")]
    (error,) = told(foreign(tmp_path, "kafka-configs", "Dynamic things of broker 1 are:\n" + DESCRIBED))
    assert error.startswith("1: is not a line of `kafka-configs.sh --describe` about users, clients or ips; keep its")


@pytest.mark.parametrize(
    ("odd", "key", "what"),
    [
        ("Quota configs for user-principal 'a\n\nb' are producer_byte_rate=1.0", "a\\n\\nb", "a line break in a name"),
        ("Quota configs for client-id 'a\nb' are producer_byte_rate=1.0", "a\\nb", "a line break in a name"),
        (
            "SCRAM credential configs for user-principal 'a\nb' are SCRAM-SHA-256=iterations=4096",
            "SCRAM credential configs",
            "the user's authentication",
        ),
        ("Quota configs for user-principal 'a' are odd.limit=1.0", "odd.limit", "a limit without a column"),
        (
            "Dynamic configs for topic t are:\n"
            "  retention.ms=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1}",
            "topic configs",
            "kafka-configs is read for quotas only",
        ),
        ("Default configs for brokers in the cluster are:", "broker configs", "kafka-configs is read for quotas only"),
        (
            f"Quota configs for user-principal '{'a' * 5_000}' are producer_byte_rate=1.0",
            "Quota configs",
            "longer than",
        ),
    ],
)
def test_an_odd_quota_leaves_the_rest_of_its_listing(tmp_path: Path, odd: str, key: str, what: str) -> None:
    good = "Quota configs for ip '10.0.0.1' are connection_creation_rate=9.0\n"
    parsed = foreign(tmp_path, "kafka-configs", f"{good}{odd}\n{good.replace('0.1', '0.2')}")
    assert [row[4]["ip"] for row in said(parsed)] == ["10.0.0.1", "10.0.0.2"]
    (left,) = parsed.not_carried_over
    assert (left.line, left.key) == (2, key)
    assert left.what.startswith(what)


def test_limits_that_limit_nothing_are_left_out_of_a_listing(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text(
        "Quota configs for user-principal 'a' are producer_byte_rate=Infinity\n"
        "Quota configs for user-principal 'b' are request_percentage=NaN\n"
        "Quota configs for user-principal 'c' are request_percentage=1.0\n"
    )
    parsed = read(RUN, [path], NOTHING, foreign=Foreign(form="kafka-configs", cluster="main"))
    assert [row.line for row in parsed.rows_of("quotas")] == [3]
    assert [each.line for each in parsed.not_carried_over] == [1, 2]


OLD = """\
Configs for user-principal 'CN=b, O=x' are consumer_byte_rate=20000,producer_byte_rate=1024.5
Configs for default user-principal are request_percentage=12.5
Configs for user-principal 'a', default client-id are producer_byte_rate=2
Configs for user-principal 's' are producer_byte_rate=1,SCRAM-SHA-256=salt=x,stored_key=y,server_key=z,iterations=1
Configs for user-principal 't' are SCRAM-SHA-512=salt=x=,stored_key=y=,server_key=z=,iterations=4096
"""


def test_the_output_of_kafka_configs_before_2_6_is_read(tmp_path: Path) -> None:
    parsed = foreign(tmp_path, "kafka-configs", OLD)
    assert [(row[3], row[4]) for row in said(parsed)] == [
        (1, {"user": "CN=b, O=x", "consumer_byte_rate": 20000.0, "producer_byte_rate": 1024.5}),
        (2, {"user": "<default>", "request_percentage": 12.5}),
        (3, {"user": "a", "client_id": "<default>", "producer_byte_rate": 2.0}),
        (4, {"user": "s", "producer_byte_rate": 1.0}),
    ]
    assert [(each.line, each.key) for each in parsed.not_carried_over] == [
        (4, "SCRAM credential configs"),
        (5, "SCRAM credential configs"),
    ]
    (error,) = told(foreign(tmp_path, "kafka-configs", OLD.replace("=1024.5", " 1-2")))
    assert error.startswith("1: is not a line of")


@pytest.mark.parametrize(
    ("limit", "what"),
    [("future.limit=abc", "a limit without a column"), ("consumer_byte_rate=1-2", "1-2 is no number")],
)
def test_an_odd_limit_leaves_the_other_limits_of_its_entity(tmp_path: Path, limit: str, what: str) -> None:
    line = f"Quota configs for user-principal 'a' are producer_byte_rate=1.0, {limit}\n"
    parsed = foreign(tmp_path, "kafka-configs", line)
    assert [row[4] for row in said(parsed)] == [{"user": "a", "producer_byte_rate": 1.0}]
    assert [(each.key, each.what) for each in parsed.not_carried_over] == [(limit.partition("=")[0], what)]
