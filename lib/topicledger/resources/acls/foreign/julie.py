"""ACLs of Julie's descriptors: for consumers, producers, streams and connectors of projects, and of single topics.

According to its documentation (https://julieops.readthedocs.io, "Understanding the descriptor files"). Each client gets
the ACLs of our corresponding shorthand, on all topics of its project or on its own topic. As in Julie, a consumer
without a group may use every group. Access to ksqlDB, the schema registry and RBAC has no corresponding Kafka ACLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topicledger.files.foreign.fields import Fields
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, describe
from topicledger.resources.acls.acl import WILDCARD
from topicledger.resources.acls.foreign.rows import Client

_OF_TOPICS = ("consumers", "producers")
"""Kinds of clients that a single topic may have."""
_OF_PROJECTS = (*_OF_TOPICS, "streams", "connectors")


def read_project(fields: Fields, topics: Sequence[str], reader: Reader, cluster: str | None) -> None:
    """Report the rows of a project with these topics."""
    _read(_OF_PROJECTS, fields, topics, reader, cluster)


def read_topic(fields: Fields, topics: Sequence[str], reader: Reader, cluster: str | None) -> None:
    """Report the rows of a topic; `topics` is its name."""
    _read(_OF_TOPICS, fields, topics, reader, cluster)


def _read(keys: Sequence[str], fields: Fields, topics: Sequence[str], reader: Reader, cluster: str | None) -> None:
    for key in keys:
        where = fields.mapping(key) if key == "connectors" and fields.is_mapping(key) else None
        if where is not None:
            where.leave_out(("artifacts", "artefacts", "connectors"), "the connectors' tasks; no ACLs")
        for each, client in _clients(fields if where is None else where, key, reader, cluster):
            if key == "consumers":
                client.grant("consumer", topics=topics, groups=(each.text("group") or WILDCARD,))
            elif key == "producers":
                transaction = each.text("transactionId")
                idempotent = each.scalar("idempotence") == "true" or transaction is not None
                transactions = () if transaction is None else (transaction,)
                flags = ("idempotent",) if idempotent else ()
                client.grant("producer", *flags, topics=topics, transactional_id=transactions)
            else:
                _with_topics(key, each, client)
            each.rest()
        if where is not None:
            where.rest()


def _clients(fields: Fields, key: str, reader: Reader, cluster: str | None) -> Iterator[tuple[Fields, Client]]:
    for value, line in fields.items("access_control" if fields.path.endswith(key) else key):
        if not isinstance(value, Object):
            fields.error(key, line, f"must hold mappings with a `principal`, not {describe(value)}")
            continue
        each = Fields(value, fields.name(key), reader, line)
        principal = each.text("principal", required=True)
        if principal is not None:
            yield each, Client(report=reader.report, cluster=cluster, principal=principal, line=each.line)


def _with_topics(key: str, fields: Fields, client: Client) -> None:
    topics = fields.mapping("topics")
    reads, writes = ([] if topics is None else topics.names(each, "names of topics") for each in ("read", "write"))
    if topics is not None:
        topics.rest()
    if key == "connectors":
        internal = [fields.text(f"{kind}_topic") or f"connect-{kind}" for kind in ("status", "offset", "configs")]
        group = fields.text("group") or "connect-cluster"
        fields.leave_out(("connectors", "cluster_id"), "RBAC, not a Kafka ACL")
        client.grant("connect", group=(group,), internal=internal, reads=reads, writes=writes)
        return
    application = fields.text("applicationId")
    if application is None:
        what = "without an `applicationId`: ACLs for its internal topics and its group are left out"
        client.report.leave_out(fields.line, fields.path, what)
        client.grant("producer", topics=writes)
        client.grant("consumer", topics=reads, groups=())
    else:
        client.grant("streams", application_id=(application,), inputs=reads, outputs=writes)
