"""The quotas of Julie's descriptors: those of users, below `platform.kafka.quotas`.

According to its documentation ("Use of Quotas") and descriptors in its own tests. Julie sets the limits for a user with
the principal's whole text as its name, including `User:`. Brokers know users only by name, so here the limits are set
for the name. An empty principal means everyone without own quotas.
"""

from __future__ import annotations

from topicledger.files.foreign.contract import unknown_principal
from topicledger.files.foreign.fields import Fields
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, describe
from topicledger.resources.quotas.entity import DEFAULT, Entity, written
from topicledger.resources.quotas.foreign.rows import KAFKAS_NAMES, add_quota, limits_of
from topicledger.text import show

_USER = "User:"
_INSTEAD = "the limits are loaded for the user without `User:`"


def read_quotas(fields: Fields, reader: Reader, cluster: str | None) -> None:
    """Report the rows of a descriptor's `platform`, and list its other fields."""
    if not fields.is_mapping("platform"):
        fields.leave_out(("platform",), "no quotas")
        return
    platform = fields.mapping("platform")
    kafka = None if platform is None else platform.mapping("kafka")
    if platform is not None:
        platform.leave_out([key for key, _ in platform.others()], "access control of the platform; no topics")
    if kafka is None:
        return
    for value, line in kafka.items("quotas"):
        if isinstance(value, Object):
            _quota(Fields(value, kafka.name("quotas"), reader, line), reader, cluster)
        else:
            kafka.error("quotas", line, f"must hold mappings with a `principal`, not {describe(value)}")
    kafka.leave_out([key for key, _ in kafka.others()], "no quotas")


def _quota(fields: Fields, reader: Reader, cluster: str | None) -> None:
    report = reader.report
    errors = report.errors
    principal = fields.scalar("principal")
    limits = limits_of(fields, KAFKAS_NAMES)
    if principal is None or principal == _USER:
        fields.error("principal", fields.line, "is missing" if principal is None else "has no name")
    if report.errors != errors or principal is None:
        return
    if principal and not principal.startswith(_USER):
        report.leave_out(fields.line, fields.name("principal"), unknown_principal(principal))
        return
    if principal:
        what = f"the user {show(principal)}, whom Julie limits but no broker knows: {_INSTEAD}"
        report.leave_out(fields.line, fields.name("principal"), what)
    entity = Entity(user=written(principal.removeprefix(_USER)) if principal else DEFAULT)
    add_quota(report, cluster, entity, limits, fields.line)
