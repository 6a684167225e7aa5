"""The ACLs of Strimzi's KafkaUser resources: `spec.authorization` of type `simple`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from topicledger.files.foreign.fields import Fields
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, Value, describe
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.foreign.rows import acls_of, add_right
from topicledger.text import show


def read_user(spec: Fields, user: str, reader: Reader) -> Callable[[str | None, str | None], None] | None:
    """See `parts.ReadUser`."""
    authorization = spec.mapping("authorization")
    if authorization is None:
        return None
    found = list(_acls(authorization, f"User:{user}", reader))

    def add(cluster: str | None, owner: str | None) -> None:
        for acl, line in found:
            add_right(reader.report, cluster, acl, line, owner)

    return add


def _acls(authorization: Fields, principal: str, reader: Reader) -> Iterator[tuple[Acl, int]]:
    kind = authorization.text("type", required=True)
    if kind not in (None, "simple"):
        authorization.error("type", authorization.line, f"is {show(kind)}; only simple has ACLs")
        return
    for each in authorization.items("acls"):
        yield from _rights(*each, principal, reader)
    authorization.rest()


def _rights(value: Value, line: int, principal: str, reader: Reader) -> Iterator[tuple[Acl, int]]:
    if not isinstance(value, Object):
        reader.report.error(line, f"each of `acls` must be a mapping, not {describe(value)}")
        return
    rule = Fields(value, "spec.authorization.acls", reader, line)
    yield from acls_of(rule, principal, name="name", operations=("operations", "operation"))
