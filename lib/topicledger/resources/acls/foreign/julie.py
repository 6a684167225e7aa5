"""ACLs of Julie's descriptors: for consumers, producers, streams and connectors of projects, and of single topics.

According to its documentation (https://julieops.readthedocs.io, "Understanding the descriptor files") and its class
AclsBindingsBuilder. As in Julie, a consumer without a group may use every group, and only the group of a consumer and
the transactional id of a producer may be `prefix*`. ACLs of ksqlDB's applications aren't read; access to the schema
registry and RBAC has no corresponding Kafka ACLs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from topicledger.files.foreign.fields import Fields
from topicledger.files.foreign.julie_properties import TRUE, Properties
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, describe
from topicledger.resources.acls.acl import CLUSTER_NAME, PREFIXED, WILDCARD
from topicledger.resources.acls.entries import pattern_of
from topicledger.resources.acls.foreign.rows import Client, Right, rights
from topicledger.text import show

CREATE = "topology.connector.allow.topic.create"
"""The property that connectors may create topics; true by default."""
_ACCESS = "topology.builder.access.control.class"
_IF_TRUE = {
    "topology.acls.optimized": "Julie grants consumers and producers a project's prefix; here, each of its topics",
    "topology.translation.principal.enabled": "Julie's other names of principals",
}
_PREFIXES = re.compile(r"topology\.(?:topic|group|service\.accounts)\.managed\.prefixes(?:\.\d+)?")


def unfollowed(key: str, value: str) -> str | None:
    """See `julie_properties.Lists`."""
    if key in _IF_TRUE and value in TRUE:
        return _IF_TRUE[key]
    if key == _ACCESS and not value.endswith(".SimpleAclsProvider"):
        return f"access control by {show(value)}; here, by Kafka's ACLs"
    if _PREFIXES.fullmatch(key) and value:
        return "Julie leaves ACLs on other names alone; here, all are loaded"
    return None


def read_project(
    fields: Fields, topics: Sequence[str], properties: Properties, reader: Reader, cluster: str | None
) -> None:
    """Report the rows of a project with these topics."""
    if not topics:
        fields.leave_out(("consumers", "producers"), "of a project without topics, to whom Julie grants nothing")
    read_topic(fields, topics, reader, cluster)
    for each, client in _clients(fields, "streams", reader, cluster):
        _streams(each, client)
        each.rest()
    where = fields.mapping("connectors") if fields.is_mapping("connectors") else None
    if where is not None:
        where.leave_out(("artifacts", "artefacts", "connectors"), "the connectors' tasks; no ACLs")
    of = fields if where is None else where
    for each, client in _clients(of, "connectors", reader, cluster):
        _connector(each, client, properties)
        each.rest()
    if where is not None:
        where.rest()


def read_topic(fields: Fields, topics: Sequence[str], reader: Reader, cluster: str | None) -> None:
    """Report the rows of consumers and producers of these topics."""
    for each, client in _clients(fields, "consumers", reader, cluster):
        group = each.text("group")
        of_group = _name_or_prefix("GROUP", WILDCARD if group is None else group, "READ")
        client.grant("consumer", rights("TOPIC", topics, "READ", "DESCRIBE"), of_group)
        each.rest()
    found: set[str] = set()
    for each, client in _clients(fields, "producers", reader, cluster):
        if client.principal in found:
            # Julie has producers in a set, in which those of the same principal are equal.
            reader.report.leave_out(each.line, each.path, "another producer of a principal: Julie takes the first")
            continue
        found.add(client.principal)
        _producer(each, topics, client)
        each.rest()


def _name_or_prefix(resource_type: str, name: str, *operations: str) -> Iterator[Right]:
    of = pattern_of(name)
    return rights(resource_type, [of["resource_name"]], *operations, pattern_type=of["pattern_type"])


def _clients(fields: Fields, key: str, reader: Reader, cluster: str | None) -> Iterator[tuple[Fields, Client]]:
    for value, line in fields.items("access_control" if fields.path.endswith(key) else key):
        if not isinstance(value, Object):
            fields.error(key, line, f"must hold mappings with a `principal`, not {describe(value)}")
            continue
        each = Fields(value, fields.name(key), reader, line)
        principal = each.text("principal", required=True)
        if principal is not None:
            yield each, Client(report=reader.report, cluster=cluster, principal=principal, line=each.line)


def _producer(fields: Fields, topics: Sequence[str], client: Client) -> None:
    transaction = fields.text("transactionId")
    # Julie only asks whether `idempotence` is there: false grants the right, too.
    idempotent = fields.scalar("idempotence") is not None or transaction is not None
    client.grant(
        "producer",
        rights("TOPIC", topics, "WRITE", "DESCRIBE"),
        () if transaction is None else _name_or_prefix("TRANSACTIONAL_ID", transaction, "WRITE", "DESCRIBE"),
        rights("CLUSTER", [CLUSTER_NAME] if idempotent else [], "IDEMPOTENT_WRITE"),
    )


def _topics(fields: Fields) -> Iterator[Right]:
    """Return the rights on the topics that are read and written."""
    topics = fields.mapping("topics")
    reads, writes = ([] if topics is None else topics.names(each, "names of topics") for each in ("read", "write"))
    if topics is not None:
        topics.rest()
    return itertools.chain(rights("TOPIC", reads, "READ"), rights("TOPIC", writes, "WRITE"))


def _streams(fields: Fields, client: Client) -> None:
    application = fields.text("applicationId")
    if application is None:
        what = "without an `applicationId`: ACLs for its internal topics and its group are left out"
        client.report.leave_out(fields.line, fields.path, what)
    own = [] if application is None else [application]
    exactly_once = own if fields.scalar("exactlyOnce") == "true" else []
    client.grant(
        "streams",
        _topics(fields),
        rights("TOPIC", own, "ALL", pattern_type=PREFIXED),
        rights("GROUP", own, "READ", pattern_type=PREFIXED),
        rights("TRANSACTIONAL_ID", exactly_once, "WRITE", "DESCRIBE", pattern_type=PREFIXED),
    )


_INTERNAL = {"status": "connect-status", "offset": "connect-offsets", "configs": "connect-configs"}


def _connector(fields: Fields, client: Client, properties: Properties) -> None:
    internal = [fields.text_or(f"{kind}_topic", topic) for kind, topic in _INTERNAL.items()]
    fields.leave_out(("connectors", "cluster_id"), "RBAC, not a Kafka ACL")
    client.grant(
        "connect",
        rights("TOPIC", internal, "READ", "WRITE"),
        rights("GROUP", [fields.text_or("group", "connect-cluster")], "READ"),
        rights("CLUSTER", [CLUSTER_NAME] if properties.texts.get(CREATE, "true") in TRUE else [], "CREATE"),
        _topics(fields),
    )
