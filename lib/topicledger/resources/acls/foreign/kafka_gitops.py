"""Services, users and custom ACLs of kafka-gitops' desired state files.

According to the project's pages "Desired State Specification" and "Services"
(https://github.com/devshawn/kafka-gitops/docs) and its classes of services. All names are literal, except those of
the internal topics of Kafka Streams, which begin with its application id.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from topicledger.files.foreign.fields import Fields
from topicledger.files.foreign.parts import GitopsState
from topicledger.files.yaml_files import measured
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, describe
from topicledger.resources.acls.acl import ALLOW, CLUSTER_NAME, LITERAL, PREFIXED, WILDCARD, Acl
from topicledger.resources.acls.foreign.rows import Client, Right, add_right, kafka_name, pattern_type_of, rights
from topicledger.text import nearest, show

_NO_PRINCIPAL = "without a principal (Confluent Cloud's service accounts): write the `principal`"


@dataclass(frozen=True, kw_only=True)
class _Service:
    """A service whose ACLs are reported."""

    name: str
    fields: Fields
    client: Client
    beside: Sequence[str]
    """Operations on topics beside READ and WRITE."""

    def produces(self, fields: Fields) -> Iterator[Right]:
        """Return the rights on topics to which the service, or its connector with these fields, writes."""
        return rights("TOPIC", fields.names("produces"), "WRITE", *self.beside)

    def consumes(self, fields: Fields, group: str | None) -> Iterator[Right]:
        """Return the rights on topics that are read, and on the group that reads them, if it needs any."""
        consumes = fields.names("consumes")
        groups = [group] if consumes and group is not None else []
        return itertools.chain(rights("TOPIC", consumes, "READ", *self.beside), rights("GROUP", groups, "READ"))


def beside(services: Fields) -> Sequence[str]:
    """See `GitopsPart.beside`."""
    acls = services.mapping("acls")
    if acls is None:
        return ()
    describes = acls.scalar("describeTopicEnabled") == "true"
    acls.rest()
    return ("DESCRIBE",) if describes else ()


_Principals = dict[str, str | None]
"""By the name of a service or user: its principal, if it has one."""


def read_rights(states: Sequence[GitopsState], cluster: str | None) -> None:
    """Report the rows of states' `services`, `users`, `customServiceAcls` and `customUserAcls`."""
    found: list[tuple[_Principals, _Principals]] = []
    for state in states:
        services: _Principals = {}
        users: _Principals = {}
        found.append((services, users))
        with measured(state.reader.report):
            _own("services", partial(_service, state.beside), services, state, cluster)
            _own("users", _user, users, state, cluster)
    all_services, all_users = (_merged(each) for each in zip(*found, strict=True)) if found else ({}, {})
    for state, (services, users) in zip(states, found, strict=True):
        with measured(state.reader.report):
            _customs("customServiceAcls", all_services | services, state, cluster)
            _customs("customUserAcls", all_users | users, state, cluster)


def _merged(of_states: Iterable[_Principals]) -> _Principals:
    """Return the principals of all states; None if states differ."""
    found: _Principals = {}
    for principals in of_states:
        for name, principal in principals.items():
            if found.setdefault(name, principal) != principal:
                found[name] = None
    return found


def _own(
    key: str,
    grant: Callable[[str, Fields, Client], None],
    principals: _Principals,
    state: GitopsState,
    cluster: str | None,
) -> None:
    report = state.reader.report
    for name, each in _named(state.fields, key, state.reader):
        principals[name] = principal = each.text("principal")
        if principal is None:
            report.leave_out(each.line, each.path, _NO_PRINCIPAL)
            each.leave_out([left for left, _ in each.others()], "of a service or user without a principal")
            continue
        grant(name, each, Client(report=report, cluster=cluster, principal=principal, line=each.line))
        each.rest()


def _customs(key: str, principals: _Principals, state: GitopsState, cluster: str | None) -> None:
    for name, acls in _named(state.fields, key, state.reader):
        if name not in principals:
            left = [each for each, _ in acls.others()]
            acls.leave_out(left, "of no service or user: kafka-gitops leaves it out, too")
        for one, line in acls.others():
            acl = acls.mapping(one)
            if acl is not None:
                _custom(acl, line, principals[name], state.reader, cluster)


def _named(fields: Fields, key: str, reader: Reader) -> Iterator[tuple[str, Fields]]:
    found = fields.take(key)
    if found is None:
        return
    value, line = found
    if not isinstance(value, Object):
        fields.error(key, line, f"must be a mapping of names, not {describe(value)}")
        return
    reader.duplicates(value, line)
    for name, each, at in value.pairs:
        if isinstance(each, Object):
            yield name.text, Fields(each, f"{key}.{show(name.text)}", reader, at)
        else:
            fields.error(f"{key}.{show(name.text)}", at, f"must be a mapping, not {describe(each)}")


def _service(beside: Sequence[str], name: str, fields: Fields, client: Client) -> None:
    kind = fields.text("type", required=True)
    if kind is None:
        return
    if kind not in _SERVICES:
        fields.error("type", fields.line, f"is {show(kind)}; {nearest(kind, _SERVICES)}")
        return
    _SERVICES[kind](_Service(name=name, fields=fields, client=client, beside=beside))


def _application(of: _Service) -> None:
    group = of.fields.text_or("group-id", of.name)
    of.client.grant("application", of.produces(of.fields), of.consumes(of.fields, group))


def _streams(of: _Service) -> None:
    own = [of.fields.text_or("application-id", of.name)]
    of.client.grant(
        "kafka-streams",
        of.produces(of.fields),
        of.consumes(of.fields, None),
        rights("TOPIC", own, *_OWN_TOPICS, pattern_type=PREFIXED),
        rights("GROUP", own, "READ", "DESCRIBE", "DELETE"),
        rights("CLUSTER", [CLUSTER_NAME], "DESCRIBE_CONFIGS"),
    )


_OWN_TOPICS = ("READ", "WRITE", "DESCRIBE", "DELETE", "CREATE", "ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")


def _connect(of: _Service) -> None:
    storage = of.fields.mapping("storage-topics")
    kinds = {"config": "configs", "offset": "offsets", "status": "status"}
    names = {kind: f"connect-{word}-{of.name}" for kind, word in kinds.items()}
    internal = [name if storage is None else storage.text_or(kind, name) for kind, name in names.items()]
    if storage is not None:
        storage.rest()
    group = [of.fields.text_or("group-id", of.name)]
    workers = rights("TOPIC", internal, "READ", "WRITE"), rights("GROUP", group, "READ")
    of.client.grant("kafka-connect", of.produces(of.fields), *workers)
    connectors = of.fields.mapping("connectors")
    for connector, _ in [] if connectors is None else connectors.others():
        each = connectors.mapping(connector) if connectors is not None else None
        if each is not None:
            of.client.grant("kafka-connect", of.produces(each), of.consumes(each, f"connect-{connector}"))
            each.rest()


_SERVICES: Mapping[str, Callable[[_Service], None]] = {
    "application": _application,
    "kafka-streams": _streams,
    "kafka-connect": _connect,
}


def _user(name: str, fields: Fields, client: Client) -> None:
    for role, line in fields.items("roles"):
        if isinstance(role, str) and role.lower() in _ROLES:
            client.grant(role.lower(), _ROLES[role.lower()])
        else:
            found = show(role) if isinstance(role, str) else describe(role)
            fields.error("roles", line, f"has {found}; known: {', '.join(_ROLES)}")


_ROLES: Mapping[str, Sequence[Right]] = {
    "reader": (Right("READ", "TOPIC", WILDCARD), Right("READ", "GROUP", WILDCARD)),
    "writer": (Right("WRITE", "TOPIC", WILDCARD),),
    "operator": (
        Right("DESCRIBE", "CLUSTER", CLUSTER_NAME),
        Right("DESCRIBE", "TOPIC", WILDCARD),
        Right("DESCRIBE_CONFIGS", "TOPIC", WILDCARD),
        Right("READ", "GROUP", WILDCARD),
        Right("DESCRIBE", "GROUP", WILDCARD),
    ),
}


def _custom(fields: Fields, line: int, principal: str | None, reader: Reader, cluster: str | None) -> None:
    own = fields.text("principal")
    own = principal if own is None else own
    name = fields.text("name", required=True)
    operation, kind = (fields.text(key, required=True) for key in ("operation", "type"))
    permission, host = fields.text_or("permission", ALLOW), fields.text_or("host", WILDCARD)
    pattern = pattern_type_of(fields.text_or("pattern", LITERAL))
    fields.rest()
    if own is None:
        reader.report.leave_out(line, fields.path, _NO_PRINCIPAL)
    elif name is not None and operation is not None and kind is not None:
        acl = Acl(
            principal=own,
            permission=kafka_name(permission),
            operation=kafka_name(operation),
            resource_type=kafka_name(kind),
            pattern_type=pattern,
            resource_name=name,
            host=host,
        )
        add_right(reader.report, cluster, acl, line)
