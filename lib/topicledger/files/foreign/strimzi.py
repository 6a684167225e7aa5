"""Strimzi's KafkaTopic and KafkaUser resources.

According to Strimzi's KafkaTopicSpec and KafkaUserSpec schema reference and its guide to the Topic Operator
(https://strimzi.io/docs/operators/latest/configuring.html, https://strimzi.io/docs/operators/latest/deploying.html),
the topic is `spec.topicName`, else `metadata.name`; `partitions` and `replicas` default to the broker's values; the
label `strimzi.io/cluster` names the cluster; a topic with the annotation `strimzi.io/managed: "false"` must not be
changed. A user's name is `CN=NAME` if it authenticates with a certificate. Kinds of resources read their parts of
its spec (`of_kinds`).
"""

from __future__ import annotations

from collections.abc import Sequence

from topicledger.files.foreign.contract import YAML_SUFFIXES, ForeignFormat, api_sign
from topicledger.files.foreign.fields import TopicRow, YamlFile, yaml_reader
from topicledger.files.foreign.of_kinds import PARTS
from topicledger.files.foreign.resources import Api, Resource, Resources, annotations_of
from topicledger.model import INTERNAL_TOPICS

_API = Api(group="kafka.strimzi.io", versions=("v1alpha1", "v1beta1", "v1beta2", "v1"))
_USER = "KafkaUser"
_USERS = {_USER: _API}
_OF_USERS = {many: part.strimzi for many, part in PARTS.items() if part.strimzi is not None}
_NOTHING = f"KafkaUser without {' and '.join(_OF_USERS)}"
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
    spec.leave_out(("template",), f"neither {' nor '.join(_OF_USERS)}")
    found = [add for read in _OF_USERS.values() if (add := read(spec, user, resource.reader)) is not None]
    spec.rest()
    if not found:
        report.skip(_NOTHING)
        return
    where = cluster or labels.get(_CLUSTER)
    if not where:
        reason = f"is missing: the label `{_CLUSTER}` names the user's cluster; add it, or use --cluster"
        metadata.error("labels", resource.line, reason)
    if report.errors == errors:
        for add in found:
            add(where, labels.get("owner"))


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
        row.entry.topic = spec.text_or("topicName", name or "")
        row.entry.num_partitions = spec.count("partitions")
        row.entry.replication_factor = spec.count("replicas")
        row.entry.configs = spec.configs("config", joins_lists=True)
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


STRIMZI = ForeignFormat(
    name="strimzi", suffixes=YAML_SUFFIXES, names_cluster=True, sign=api_sign(_API.group), read=yaml_reader(_read)
)
