"""Jikkou's KafkaClientQuota and KafkaClientQuotaList resources.

According to Jikkou's reference of these resources (https://www.jikkou.io/docs/, "Kafka Quotas"), `spec.type` determines
whether a user, a client id or both have the limits of `spec.configs`, and which of them is the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicledger.files.foreign.resources import Resource, annotations_of
from topicledger.files.yaml_files import measured
from topicledger.resources.quotas.entity import DEFAULT, Entity, written
from topicledger.resources.quotas.foreign.rows import add_quota, limits_of
from topicledger.text import nearest, show

QUOTA, QUOTA_LIST = "KafkaClientQuota", "KafkaClientQuotaList"
_DELETE, _IGNORE = "jikkou.io/delete", "jikkou.io/ignore"
_NAMED = "named"
_TYPES: Mapping[str, tuple[str | None, str | None]] = {
    "USERS_DEFAULT": (DEFAULT, None),
    "USER": (_NAMED, None),
    "USER_CLIENT": (_NAMED, _NAMED),
    "USER_ALL_CLIENTS": (_NAMED, DEFAULT),
    "CLIENT": (None, _NAMED),
    "CLIENTS_DEFAULT": (None, DEFAULT),
}
"""(user, client id) of an entity, by type: a name, the default, or none."""


def read_quotas(resources: Sequence[Resource], cluster: str | None) -> None:
    """Report the rows of all quota resources."""
    for each in resources:
        with measured(each.reader.report):
            _quota(each, cluster)


def _quota(resource: Resource, cluster: str | None) -> None:
    metadata, report = resource.metadata, resource.reader.report
    errors = report.errors
    labels = metadata.texts("labels") or {}
    annotations = annotations_of(metadata, (_DELETE, _IGNORE))
    metadata.leave_out(("name",), "a quota's own name")
    metadata.rest()
    if annotations.get(_IGNORE):
        report.skip(f"{QUOTA} with {_IGNORE}: true")
        return
    spec = resource.fields.mapping("spec", required=True)
    resource.fields.leave_out(("status",), "the state that Jikkou last saw")
    resource.fields.rest()
    if spec is None:
        return
    kind = spec.text("type", required=True) or ""
    names, configs = spec.mapping("entity"), spec.mapping("configs")
    limits = {} if configs is None else limits_of(configs)
    spec.rest()
    if kind and kind not in _TYPES:
        spec.error("type", spec.line, f"is {show(kind)}; {nearest(kind, _TYPES)}")
    found = []
    for key, has in zip(("user", "clientId"), _TYPES.get(kind, (None, None)), strict=True):
        name = None if names is None else names.text(key)
        if has == _NAMED and not name:
            spec.error(f"entity.{key}", spec.line, f"is missing: type {kind} needs it")
        elif has != _NAMED and name and kind in _TYPES:
            spec.error(f"entity.{key}", spec.line, f"is {show(name)}, and type {kind} has none")
        found.append(written(name) if has == _NAMED and name else has)
    if names is not None:
        names.rest()
    if report.errors == errors:
        gone = bool(annotations.get(_DELETE))
        entity = Entity(user=found[0], client_id=found[1])
        state = "absent" if gone else "present"
        add_quota(report, cluster, entity, {} if gone else limits, resource.line, labels.get("owner"), state=state)
