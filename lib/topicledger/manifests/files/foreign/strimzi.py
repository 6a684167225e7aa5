"""Strimzi's KafkaTopic resources.

After Strimzi's KafkaTopicSpec schema reference and its guide to the Topic Operator
(https://strimzi.io/docs/operators/latest/configuring.html, https://strimzi.io/docs/operators/latest/deploying.html):
the topic is `spec.topicName`, else `metadata.name`; `partitions` and `replicas` default to the broker's; the label
`strimzi.io/cluster` names the cluster; a topic that is annotated `strimzi.io/managed: "false"` is nobody's to change.
"""

from __future__ import annotations

from collections.abc import Sequence

from topicledger.manifests.files.foreign.contract import YAML_SUFFIXES, ForeignFormat
from topicledger.manifests.files.foreign.fields import TopicRow, YamlFile, yaml_reader
from topicledger.manifests.files.foreign.resources import Api, Resource, Resources, annotations_of

_API = Api(group="kafka.strimzi.io", versions=("v1alpha1", "v1beta1", "v1beta2", "v1"))
_CLUSTER, _MANAGED, _PAUSED = "strimzi.io/cluster", "strimzi.io/managed", "strimzi.io/pause-reconciliation"
_KEPT_BY_KUBERNETES = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "finalizers", "generation", "managedFields"),
    *("ownerReferences", "resourceVersion", "selfLink", "uid"),
)


def _read(files: Sequence[YamlFile], cluster: str | None) -> None:
    for file in files:
        file.each(Resources(api=_API, handle=lambda resource: _topic(resource, cluster)).document)


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
        reason = f"is missing: the label `{_CLUSTER}` names the topic's cluster; write it, or give --cluster"
        metadata.error("labels", resource.line, reason)
    spec = resource.fields.mapping("spec")
    row.entry.topic = name
    if spec is not None:
        row.entry.topic = spec.text("topicName") or name
        row.entry.num_partitions = spec.count("partitions")
        row.entry.replication_factor = spec.count("replicas")
        row.entry.configs = spec.texts("config", joins_lists=True)
        spec.rest()
    metadata.leave_out(("namespace",), "Kubernetes' own place of the resource")
    metadata.leave_out(_KEPT_BY_KUBERNETES, "kept by Kubernetes itself")
    metadata.rest()
    resource.fields.leave_out(("status",), "kept by Kubernetes itself")
    resource.fields.rest()
    row.add()


STRIMZI = ForeignFormat(name="strimzi", suffixes=YAML_SUFFIXES, names_cluster=True, read=yaml_reader(_read))
