"""Permissions of services, users and roles of kafka-gitops and Julie become ACLs; unsupported ones are listed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.foreign import PLANS, Read, errors, leftovers
from topicledger.manifests.files import ParsedManifests
from topicledger.resources.acls.entries import expansions


def rights(parsed: ParsedManifests) -> dict[str, list[str]]:
    """By principal: operation, type and name, `*` behind a prefix; a DENY and a host are said."""
    assert errors(parsed) == []
    found: dict[str, list[str]] = {}
    for row in parsed.rows_of("acls"):
        assert row.cluster == "main"
        acl = row.values
        words = [acl["operation"], acl["resource_type"], acl["resource_name"]]
        text = " ".join(map(str, words)) + ("*" if acl["pattern_type"] == "PREFIXED" else "")
        text = f"DENY {text}" if acl["permission"] == "DENY" else text
        text = text if acl["host"] == "*" else f"{text} from {acl['host']}"
        found.setdefault(str(acl["principal"]), []).append(text)
    return found


GITOPS = """\
services:
  shop:
    type: application
    principal: User:shop
    produces: [orders]
    consumes: [carts]
    group-id: shop-group
  counter:
    type: kafka-streams
    principal: User:counter
    produces: [counts]
    consumes: [orders]
  mirror:
    type: kafka-connect
    principal: User:mirror
    storage-topics: {config: mirror-configs}
    produces: [copied]
    connectors:
      sink: {consumes: [orders]}
  cloud:
    type: application
    produces: [orders]
users:
  alice: {principal: "User:alice", roles: [reader, operator]}
  bob: {roles: [writer]}
customServiceAcls:
  shop:
    read-all:
      {name: logs., type: topic, pattern: PREFIXED, host: 10.0.0.1, operation: DESCRIBE_CONFIGS, permission: ALLOW}
  cloud:
    one: {name: x, type: TOPIC, pattern: LITERAL, host: "*", operation: READ, permission: ALLOW}
customUserAcls:
  alice:
    no-writes:
      {name: "*", type: TOPIC, pattern: LITERAL, host: "*", principal: "User:a2", operation: WRITE, permission: DENY}
"""


def test_services_and_users_of_kafka_gitops_become_rights(read: Read) -> None:
    parsed = read("kafka-gitops", GITOPS)
    found = rights(parsed)
    assert found == {
        "User:shop": [
            "WRITE TOPIC orders",
            "READ TOPIC carts",
            "READ GROUP shop-group",
            "DESCRIBE_CONFIGS TOPIC logs.* from 10.0.0.1",
        ],
        "User:counter": [
            "WRITE TOPIC counts",
            "READ TOPIC orders",
            *(
                f"{operation} TOPIC counter*"
                for operation in ("READ", "WRITE", "DESCRIBE", "DELETE", "CREATE", "ALTER", "ALTER_CONFIGS")
            ),
            "DESCRIBE_CONFIGS TOPIC counter*",
            "READ GROUP counter",
            "DESCRIBE GROUP counter",
            "DELETE GROUP counter",
            "DESCRIBE_CONFIGS CLUSTER kafka-cluster",
        ],
        "User:mirror": [
            "WRITE TOPIC copied",
            *(
                f"{operation} TOPIC {topic}"
                for topic in ("mirror-configs", "connect-offsets-mirror", "connect-status-mirror")
                for operation in ("READ", "WRITE")
            ),
            "READ GROUP mirror",
            "READ TOPIC orders",
            "READ GROUP connect-sink",
        ],
        "User:alice": [
            "READ TOPIC *",
            "READ GROUP *",
            "DESCRIBE CLUSTER kafka-cluster",
            "DESCRIBE TOPIC *",
            "DESCRIBE_CONFIGS TOPIC *",
            "READ GROUP *",
            "DESCRIBE GROUP *",
        ],
        "User:a2": ["DENY WRITE TOPIC *"],
    }
    kinds = {"application", "kafka-streams", "kafka-connect", "reader", "operator", None}
    assert {row.shorthand for row in parsed.rows_of("acls")} == kinds
    left = leftovers(parsed)
    assert {"services.cloud", "users.bob", "customServiceAcls.cloud.one"} <= set(left)
    assert "principal" in parsed.not_carried_over[0].what


def test_roles_in_any_case_and_custom_rights_without_a_permission_are_as_in_kafka_gitops(read: Read) -> None:
    """There, a custom ACL allows from any host unless it says otherwise."""
    text = """\
users:
  bob: {principal: "User:bob", roles: [Writer]}
customUserAcls:
  bob:
    one: {name: logs, type: TOPIC, pattern: LITERAL, operation: READ}
"""
    assert rights(read("kafka-gitops", text)) == {"User:bob": ["WRITE TOPIC *", "READ TOPIC logs"]}


def test_services_of_kafka_gitops_describe_topics_if_the_settings_say_so(read: Read) -> None:
    """Also if another file has the services."""
    state = (
        "settings:\n  services: {acls: {describeTopicEnabled: true}}\n  files: {services: services.yaml}\ntopics: {}\n"
    )
    services = GITOPS[: GITOPS.index("users:")]
    found = rights(read("kafka-gitops", state, services_yaml=services))
    plain = rights(read("kafka-gitops", services))
    added = {user: [right for right in all_rights if right not in plain[user]] for user, all_rights in found.items()}
    assert added == {
        "User:shop": ["DESCRIBE TOPIC orders", "DESCRIBE TOPIC carts"],
        "User:counter": ["DESCRIBE TOPIC counts", "DESCRIBE TOPIC orders"],
        "User:mirror": ["DESCRIBE TOPIC copied", "DESCRIBE TOPIC orders"],
    }


def test_custom_rights_of_kafka_gitops_belong_to_services_and_users_of_any_file(read: Read) -> None:
    """Those of no service or user are listed: kafka-gitops leaves them out, too."""
    state = """\
settings: {files: {users: users.yaml}}
customUserAcls:
  bob:
    one: {name: logs, type: TOPIC, pattern: LITERAL, operation: READ}
customServiceAcls:
  typo:
    two: {name: "*", type: TOPIC, pattern: LITERAL, operation: ALL, principal: "User:shop"}
"""
    parsed = read("kafka-gitops", state, users_yaml="users:\n  bob: {principal: 'User:bob'}\n")
    assert rights(parsed) == {"User:bob": ["READ TOPIC logs"]}
    assert leftovers(parsed) == {"customServiceAcls.typo.two": 7}
    others = "users:\n  bob: {principal: 'User:robert'}\n"
    parsed = read("kafka-gitops", state, users_yaml="users:\n  bob: {principal: 'User:bob'}\n", b_yaml=others)
    assert rights(parsed) == {}
    assert "without a principal" in parsed.not_carried_over[-1].what


def test_services_files_of_a_state_must_be_given_too(read: Read) -> None:
    state = "settings:\n  files: {services: services.yaml}\ntopics: {}\n"
    services = "services:\n  a: {type: application, principal: 'User:a', produces: [t]}\n"
    assert list(rights(read("kafka-gitops", state, services_yaml=services))) == ["User:a"]
    (error,) = errors(read("kafka-gitops", state))
    assert "`settings.files.services` names services.yaml, which has the services; load that file, too" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services:\n  a: {type: aplication, principal: 'User:a'}\n", "is aplication; did you mean `application`?"),
        ("services: [a]\n", "`services` must be a mapping of names, not a list"),
        ("users:\n  a: {principal: 'User:a', roles: [boss]}\n", "has boss; known: reader, writer, operator"),
        (
            "services:\n  a: {type: application}\ncustomServiceAcls:\n  a:\n    b: {type: TOPIC}\n",
            "`customServiceAcls.a.b.name` is missing",
        ),
    ],
)
def test_errors_of_services_are_reported(read: Read, text: str, message: str) -> None:
    found = errors(read("kafka-gitops", text))
    assert any(message in each for each in found), found


JULIE = """\
context: retail
projects:
  - name: shop
    consumers:
      - {principal: "User:reader", group: readers}
      - {principal: "User:anyone"}
    producers:
      - {principal: "User:writer", transactionId: shop-tx}
    streams:
      - principal: "User:counter"
        applicationId: counter-app
        topics: {read: [retail.shop.carts], write: [counts]}
      - principal: "User:nameless"
        topics: {read: [a], write: [b]}
    connectors:
      - principal: "User:mirror"
        group: mirrors
        status_topic: mirror-status
        topics: {read: [retail.shop.carts]}
    ksql: []
    topics:
      - name: carts
        config: {num.partitions: "1", replication.factor: "1"}
        consumers: [{principal: "User:auditor", group: audit}]
      - name: orders
        config: {num.partitions: "1", replication.factor: "1"}
  - name: other
    connectors:
      artifacts: [{name: x}]
      access_control: [{principal: "Group:team", topics: {write: [t]}}]
"""


def test_roles_of_julie_become_rights(read: Read) -> None:
    parsed = read("julie", JULIE)
    carts, orders = "retail.shop.carts", "retail.shop.orders"
    of_both = [f"{operation} TOPIC {topic}" for topic in (carts, orders) for operation in ("READ", "DESCRIBE")]
    assert rights(parsed) == {
        "User:auditor": [f"READ TOPIC {carts}", f"DESCRIBE TOPIC {carts}", "READ GROUP audit"],
        "User:reader": [*of_both, "READ GROUP readers"],
        "User:anyone": [*of_both, "READ GROUP *"],
        "User:writer": [
            *(each.replace("READ", "WRITE") for each in of_both),
            "WRITE TRANSACTIONAL_ID shop-tx",
            "DESCRIBE TRANSACTIONAL_ID shop-tx",
            "IDEMPOTENT_WRITE CLUSTER kafka-cluster",
        ],
        "User:counter": [
            f"READ TOPIC {carts}",
            "WRITE TOPIC counts",
            "ALL TOPIC counter-app*",
            "READ GROUP counter-app*",
        ],
        "User:nameless": ["READ TOPIC a", "WRITE TOPIC b"],
        "User:mirror": [
            *(
                f"{operation} TOPIC {topic}"
                for topic in ("mirror-status", "connect-offsets", "connect-configs")
                for operation in ("READ", "WRITE")
            ),
            "READ GROUP mirrors",
            "CREATE CLUSTER kafka-cluster",
            f"READ TOPIC {carts}",
        ],
    }
    left = {each.key: each.what for each in parsed.not_carried_over}
    assert "applicationId" in left["projects.streams"]
    assert "only User:name" in left["connect"]
    assert "projects.connectors.artifacts" in left
    assert "rights on topics and groups" in left["projects.ksql"]


def test_connectors_and_idempotence_are_read_as_in_julies_examples(read: Read) -> None:
    text = """\
context: retail
projects:
  - name: shop
    producers:
      - {principal: "User:writer", idempotence: "true"}
      - {principal: "User:other", idempotence: false}
      - {principal: "User:plain"}
    connectors:
      artefacts:
        - {path: connectors/source.json, server: connector0, name: source}
      access_control:
        - principal: "User:mirror"
          cluster_id: one
          group: mirrors
          status_topic: status
          offset_topic: offset
          configs_topic: configs
          topics: {write: [copied]}
    topics:
      - name: carts
        config: {num.partitions: "1", replication.factor: "1"}
"""
    parsed = read("julie", text)
    found = rights(parsed)
    assert found["User:writer"][-1] == found["User:other"][-1] == "IDEMPOTENT_WRITE CLUSTER kafka-cluster"
    assert found["User:plain"] == ["WRITE TOPIC retail.shop.carts", "DESCRIBE TOPIC retail.shop.carts"]
    assert {"READ GROUP mirrors", "WRITE TOPIC configs", "WRITE TOPIC copied"} <= set(found["User:mirror"])
    assert {"projects.connectors.artefacts", "projects.connectors.connectors.cluster_id"} == set(leftovers(parsed))


def test_names_of_kafka_gitops_that_end_with_a_star_are_literal(read: Read) -> None:
    """As is a group in one of its own tests; and a service may have no rights but custom ones, of another principal."""
    text = """\
settings:
  services: {acls: {describeTopicEnabled: true}}
  topics: {blacklist: {prefixed: [_schemas]}}
services:
  shop: {type: application, group-id: shop-*, principal: "User:shop", consumes: [carts, logs.*], produces: ["*"]}
  bare: {type: application, principal: "User:bare"}
customServiceAcls:
  bare:
    one:
      {name: logs., type: TOPIC, pattern: PREFIXED, host: "*", principal: "User:x", operation: READ, permission: ALLOW}
"""
    parsed = read("kafka-gitops", text)
    assert rights(parsed) == {
        "User:shop": [
            "WRITE TOPIC *",
            "DESCRIBE TOPIC *",
            "READ TOPIC carts",
            "DESCRIBE TOPIC carts",
            "READ GROUP shop-*",
        ],
        "User:x": ["READ TOPIC logs.*"],
    }
    patterns = {acl.values["resource_name"]: acl.values["pattern_type"] for acl in parsed.rows_of("acls")}
    assert (patterns["shop-*"], patterns["*"], patterns["logs."]) == ("LITERAL", "LITERAL", "PREFIXED")
    (shown,) = [line for line in expansions(parsed.rows_of("acls")) if "READ GROUP" in line]
    assert "WRITE TOPIC *, " in shown
    assert shown.endswith("READ GROUP shop-* (LITERAL)")
    left = [(each.line, each.key, each.what) for each in parsed.not_carried_over if each.key == "application"]
    assert left == [
        (5, "application", f"{operation} on logs.*: no topic's name has a *, and the tool makes no prefix of it")
        for operation in ("READ", "DESCRIBE")
    ]


def test_only_a_consumers_group_and_a_producers_transactional_id_may_be_prefixes_in_julie(read: Read) -> None:
    """Other names that end with a star are literal: no topic has such a name, so these rights are listed."""
    text = """\
context: retail
projects:
  - name: shop
    consumers: [{principal: "User:reader", group: readers-*}]
    producers: [{principal: "User:writer", transactionId: tx-*}]
    streams: [{principal: "User:counter", applicationId: app, exactlyOnce: true, topics: {read: [a.*], write: [b]}}]
    connectors: [{principal: "User:mirror", group: mirrors-*, topics: {write: [c.*]}}]
    topics:
      - {name: carts, config: {num.partitions: "1", replication.factor: "1"}}
"""
    parsed = read("julie", text)
    found = rights(parsed)
    prefixes = {
        acl.values["resource_name"] for acl in parsed.rows_of("acls") if acl.values["pattern_type"] == "PREFIXED"
    }
    assert prefixes == {"readers-", "tx-", "app"}
    assert found["User:counter"] == [
        "WRITE TOPIC b",
        "ALL TOPIC app*",
        "READ GROUP app*",
        "WRITE TRANSACTIONAL_ID app*",
        "DESCRIBE TRANSACTIONAL_ID app*",
    ]
    assert "READ GROUP mirrors-*" in found["User:mirror"]
    left = {each.key: each.what for each in parsed.not_carried_over}
    assert left["streams"].startswith("READ on a.*: no topic")
    assert left["connect"].startswith("WRITE on c.*: no topic")


def test_patterns_that_jikkou_matches_when_it_runs_are_listed(read: Read) -> None:
    """Kafka has no such ACLs: a role's and a principal's own, beside what is carried over."""
    text = """\
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaPrincipalRole
metadata: {name: public}
spec:
  acls:
    - {type: ALLOW, operations: [READ], resource: {type: topic, pattern: "/public-([.-])*/", patternType: MATCH}}
---
apiVersion: kafka.jikkou.io/v1beta2
kind: KafkaPrincipalAuthorization
metadata: {name: "User:ANONYMOUS"}
spec:
  roles: [public]
  acls:
    - {resource: {type: topic, pattern: "*", patternType: LITERAL}, type: ALLOW, operations: [ALL], host: "*"}
    - {resource: {type: topic, pattern: "other-.*", patternType: MATCH}, type: ALLOW, operations: [READ], host: "*"}
---
apiVersion: kafka.jikkou.io/v1
kind: KafkaUser
metadata: {name: shop}
spec: {authentications: [{type: scram-sha-512}]}
"""
    parsed = read("jikkou", text)
    assert rights(parsed) == {"User:ANONYMOUS": ["ALL TOPIC *"]}
    assert [each.line for each in parsed.not_carried_over] == [15, 6]
    assert {each.key for each in parsed.not_carried_over} == {"spec.acls.resource.pattern"}
    assert parsed.skipped == {"KafkaUser": 1}


def test_connectors_of_julie_create_no_topics_if_its_properties_forbid_it(read: Read) -> None:
    forbidden = "topology.connector.allow.topic.create=false\n"
    found = rights(read("julie", JULIE, julie_properties=forbidden))
    assert "CREATE CLUSTER kafka-cluster" not in found["User:mirror"]
    assert "READ GROUP mirrors" in found["User:mirror"]


def test_clients_of_a_project_of_julie_without_topics_get_no_rights(read: Read) -> None:
    """Julie grants on one topic after the other: without topics, its consumers don't get every group either."""
    text = """\
context: retail
projects:
  - name: shop
    consumers: [{principal: "User:reader"}]
    producers: [{principal: "User:writer", transactionId: tx}]
    streams: [{principal: "User:counter", applicationId: app, topics: {read: [a]}}]
"""
    parsed = read("julie", text)
    assert list(rights(parsed)) == ["User:counter"]
    assert leftovers(parsed) == {"projects.consumers": 4, "projects.producers": 5}


def test_only_the_first_producer_of_a_principal_counts_as_in_julie(read: Read) -> None:
    text = """\
context: retail
projects:
  - name: shop
    producers: [{principal: "User:a", transactionId: one}, {principal: "User:a", transactionId: two}]
    topics:
      - {name: t, config: {num.partitions: "1", replication.factor: "1"}}
"""
    parsed = read("julie", text)
    names = {acl.values["resource_name"] for acl in parsed.rows_of("acls")}
    assert names == {"retail.shop.t", "one", "kafka-cluster"}
    assert leftovers(parsed) == {"projects.producers": 4}


def test_an_empty_group_of_julie_is_not_every_group(read: Read) -> None:
    parsed = read("julie", JULIE.replace("group: readers", 'group: ""'))
    groups = [acl.values["resource_name"] for acl in parsed.rows_of("acls") if acl.values["principal"] == "User:reader"]
    assert groups == ["retail.shop.carts", "retail.shop.carts", "retail.shop.orders", "retail.shop.orders", ""]


def test_a_role_without_a_principal_is_an_error(read: Read) -> None:
    (error,) = errors(read("julie", JULIE.replace('principal: "User:reader", ', ""), plans_yaml=PLANS))
    assert error == "f.yaml:5: `projects.consumers.principal` is missing"


def strimzi_user(rule: str) -> str:
    head = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: u, labels: {strimzi.io/cluster: main}}\n"
    return f"{head}spec: {{authorization: {{type: simple, acls: [{rule}]}}}}\n"


def jikkou_user(rule: str) -> str:
    head = "apiVersion: kafka.jikkou.io/v1\nkind: KafkaPrincipalAuthorization\nmetadata: {name: 'User:u'}\n"
    return f"{head}spec: {{acls: [{rule.replace('name:', 'pattern:')}]}}\n"


EMPTY = {
    "{type: '', host: 10.0.0.1, operations: [READ], resource: {type: topic, name: t}}": ("type", "ALLOW"),
    "{type: deny, host: '', operations: [READ], resource: {type: topic, name: t}}": ("host", "*"),
    "{operations: [READ], resource: {type: topic, name: t, patternType: ''}}": ("patternType", "LITERAL"),
}


@pytest.mark.parametrize("rule", EMPTY)
@pytest.mark.parametrize(("tool", "user"), [("strimzi", strimzi_user), ("jikkou", jikkou_user)])
def test_an_empty_field_is_no_default(read: Read, tool: str, user: Callable[[str], str], rule: str) -> None:
    """Else an empty `type` would make an ALLOW of a DENY, and an empty host mean any host."""
    field, default = EMPTY[rule]
    (error,) = errors(read(tool, user(rule)))
    assert error.endswith(f".{field}` is empty; without it, {default} is meant")
    without = "{operations: [READ], resource: {type: topic, name: t}}"
    assert rights(read(tool, user(without))) == {"User:u": ["READ TOPIC t"]}


@pytest.mark.parametrize(("tool", "user"), [("strimzi", strimzi_user), ("jikkou", jikkou_user)])
def test_an_empty_name_is_not_that_of_the_cluster(read: Read, tool: str, user: Callable[[str], str]) -> None:
    (error,) = errors(read(tool, user("{operations: [READ], resource: {type: topic, name: ''}}")))
    assert error.endswith("` is empty")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("group-id: shop-group", "group-id: ''"),
        ("config: mirror-configs", "config: ''"),
        ("type: kafka-streams", "type: kafka-streams\n    application-id: ''"),
        ("host: 10.0.0.1", "host: ''"),
        ("DESCRIBE_CONFIGS, permission: ALLOW", "DESCRIBE_CONFIGS, permission: ''"),
    ],
)
def test_empty_names_of_kafka_gitops_are_errors(read: Read, old: str, new: str) -> None:
    assert old in GITOPS
    (error,) = errors(read("kafka-gitops", GITOPS.replace(old, new)))
    assert "` is empty; without it, " in error
