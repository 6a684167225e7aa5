"""Strimzi's KafkaTopic and KafkaUser resources.

According to Strimzi's KafkaTopicSpec and KafkaUserSpec schema reference and its guide to the Topic Operator
(https://strimzi.io/docs/operators/latest/configuring.html, https://strimzi.io/docs/operators/latest/deploying.html),
the topic is `spec.topicName`, else `metadata.name`; `partitions` and `replicas` default to the broker's values; the
label `strimzi.io/cluster` names the cluster; a topic with the annotation `strimzi.io/managed: "false"` must not be
changed. A user's principal is `User:NAME`, or `User:CN=NAME` if it authenticates with a certificate. Its ACLs are in
`spec.authorization` of type `simple`, its quotas in `spec.quotas`, under the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topicledger.files.foreign.contract import YAML_SUFFIXES, ForeignFormat
from topicledger.files.foreign.fields import Fields, TopicRow, YamlFile, yaml_reader
from topicledger.files.foreign.limits import add_quota, limits_of
from topicledger.files.foreign.resources import Api, Resource, Resources, annotations_of
from topicledger.files.foreign.rights import acls_of, add_right
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, Value, describe
from topicledger.model import INTERNAL_TOPICS
from topicledger.resources.acls.acl import Acl
from topicledger.resources.quotas.entity import Entity, written
from topicledger.text import show

_API = Api(group="kafka.strimzi.io", versions=("v1alpha1", "v1beta1", "v1beta2", "v1"))
_USER = "KafkaUser"
_USERS = {_USER: _API}
_NOTHING = "KafkaUser without ACLs and quotas"
_CLUSTER, _MANAGED, _PAUSED = "strimzi.io/cluster", "strimzi.io/managed", "strimzi.io/pause-reconciliation"
_KEPT_BY_KUBERNETES = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "finalizers", "generation", "managedFields"),
    *("ownerReferences", "resourceVersion", "selfLink", "uid"),
)


def _read(files: Sequence[YamlFile], cluster: str | None) -> None:
    for file in files:
        file.each(Resources(api=_API, handle=lambda resource: _resource(resource, cluster), others=_USERS).document)


def _resource(resource: Resource, cluster: str | None) -> None:
    if resource.kind == _USER:
        _user(resource, cluster)
    else:
        _topic(resource, cluster)


def _user(resource: Resource, cluster: str | None) -> None:
    metadata, report = resource.metadata, resource.reader.report
    errors = report.errors
    name = metadata.text("name", required=True)
    labels = metadata.texts("labels") or {}
    if metadata.take("deletionTimestamp") is not None:
        report.skip("KafkaUser that is being deleted")
        return
    metadata.leave_out([key for key, _ in metadata.others()], "a user's own metadata")
    spec = resource.fields.mapping("spec")
    resource.fields.leave_out(("status",), "kept by Kubernetes itself")
    resource.fields.rest()
    if spec is None:
        report.skip(_NOTHING)
        return
    authentication = spec.mapping("authentication")
    kind = None if authentication is None else authentication.text("type")
    if authentication is not None:
        authentication.leave_out([key for key, _ in authentication.others()], "the user's authentication")
    user = f"CN={name}" if kind in ("tls", "tls-external") else str(name)
    spec.leave_out(("template",), "neither ACLs nor quotas")
    authorization, quotas = spec.mapping("authorization"), spec.mapping("quotas")
    spec.rest()
    limits = {} if quotas is None else limits_of(quotas)
    if authorization is None and not limits:
        report.skip(_NOTHING)
        return
    where = cluster or labels.get(_CLUSTER)
    if not where:
        reason = f"is missing: the label `{_CLUSTER}` names the user's cluster; add it, or use --cluster"
        metadata.error("labels", resource.line, reason)
    rights = [] if authorization is None else list(_acls(authorization, f"User:{user}", resource.reader))
    if report.errors == errors:
        if quotas is not None and limits:
            add_quota(report, where, Entity(user=written(user)), limits, quotas.line, labels.get("owner"))
        for acl, line in rights:
            add_right(report, where, acl, line, labels.get("owner"))


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


def _topic(resource: Resource, cluster: str | None) -> None:
    metadata, report = resource.metadata, resource.reader.report
    row = TopicRow(resource.reader, resource.line)
    name = metadata.text("name", required=True)
    annotations = annotations_of(metadata, (_MANAGED, _PAUSED))
    if metadata.take("deletionTimestamp") is not None:
        report.skip("KafkaTopic that is being deleted")
        return
    if annotations.get(_MANAGED) is False:
        report.skip(f"KafkaTopic with {_MANAGED}: false")
        return
    if annotations.get(_PAUSED):
        report.leave_out(resource.line, f"metadata.annotations.{_PAUSED}", "a pause")
    row.entry.labels = metadata.texts("labels")
    row.entry.cluster = cluster or (row.entry.labels or {}).get(_CLUSTER)
    if not row.entry.cluster:
        reason = f"is missing: the label `{_CLUSTER}` names the topic's cluster; add it, or use --cluster"
        metadata.error("labels", resource.line, reason)
    spec = resource.fields.mapping("spec")
    row.entry.topic = name
    if spec is not None:
        row.entry.topic = spec.text("topicName") or name
        row.entry.num_partitions = spec.count("partitions")
        row.entry.replication_factor = spec.count("replicas")
        row.entry.configs = spec.texts("config", joins_lists=True)
        spec.rest()
    metadata.leave_out(("namespace",), "the resource's place in Kubernetes")
    metadata.leave_out(_KEPT_BY_KUBERNETES, "kept by Kubernetes itself")
    metadata.rest()
    resource.fields.leave_out(("status",), "kept by Kubernetes itself")
    resource.fields.rest()
    if row.entry.topic in INTERNAL_TOPICS:
        # Older Topic Operators create a resource for each topic that they find.
        report.skip("internal topic")
    else:
        row.add()


STRIMZI = ForeignFormat(name="strimzi", suffixes=YAML_SUFFIXES, names_cluster=True, read=yaml_reader(_read))
