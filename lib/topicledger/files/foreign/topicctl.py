"""topicctl's topic configs.

According to the section on topics in topicctl's README (https://github.com/segmentio/topicctl#topics), `meta` names the
topic and its cluster; `retentionMinutes` is `retention.ms` in minutes, and only one of them may be given; a list in
`settings` stands for its items joined with commas; only the placement strategy `static` determines the brokers.
topicctl's configs of clusters, users and ACLs may be in the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topicledger.files.foreign.contract import YAML_SUFFIXES, ForeignFormat
from topicledger.files.foreign.fields import Fields, TopicRow, YamlFile, document_fields, yaml_reader
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Key, Object, Value
from topicledger.text import nearest, show

_SIGN = re.compile(r"^meta:(?:.*\n){1,100}?spec:", re.MULTILINE)
_OTHER_KINDS = {
    "bootstrapAddrs": "cluster config",
    "zkAddrs": "cluster config",
    "acls": "ACL config",
    "mechanism": "user config",
}
_STRATEGIES = ("any", "balanced-leaders", "in-rack", "cross-rack", "static", "static-in-rack")


def _read(files: Sequence[YamlFile], cluster: str | None) -> None:
    for file in files:
        file.each(lambda value, line, reader: _topic(value, line, reader, cluster))


def _topic(value: Value, line: int, reader: Reader, cluster: str | None) -> None:
    fields = document_fields(value, line, reader, "a topic config with `meta` and `spec`")
    if fields is None:
        return
    row = TopicRow(reader, fields.line)
    meta, spec = fields.mapping("meta", required=True), fields.mapping("spec", required=True)
    if meta is None or spec is None:
        return
    for key, kind in _OTHER_KINDS.items():
        if key in spec:
            reader.report.skip(kind)
            return
    row.entry.topic = meta.text("name", required=True)
    own_cluster = meta.text("cluster", required=cluster is None)
    row.entry.cluster = cluster or own_cluster
    row.entry.labels = meta.texts("labels")
    row.entry.description = meta.text("description")
    meta.leave_out(("environment", "region", "shard"), "about the cluster, not the topic")
    meta.leave_out(("consumers",), "the consumers; use the table `usages` for them")
    meta.rest()
    _spec(spec, row, reader)
    fields.rest()
    row.add()


def _spec(spec: Fields, row: TopicRow, reader: Reader) -> None:
    entry = row.entry
    entry.num_partitions = spec.count("partitions", required=True)
    entry.replication_factor = spec.count("replicationFactor", required=True)
    entry.configs = _configs(spec)
    placement = spec.mapping("placement")
    if placement is not None:
        entry.assignments = _assignments(placement, row, reader)
        placement.leave_out(("picker",), "how topicctl moves replicas")
        placement.leave_out(("staticAssignments", "staticRackAssignments"), "not used by this strategy")
        placement.rest()
    if entry.assignments is not None:  # C1: they imply both
        entry.num_partitions = entry.replication_factor = None
    spec.leave_out(("migration",), "how topicctl moves replicas")
    spec.rest()


def _configs(spec: Fields) -> dict[str, str] | None:
    configs = spec.configs("settings", joins_lists=True)
    minutes = spec.count("retentionMinutes")
    if minutes is not None and minutes < 0:
        spec.error("retentionMinutes", spec.line, f"is {minutes}; it must be at least 0")
    elif minutes:  # topicctl uses 0 for none
        configs = configs or {}
        if "retention.ms" in configs:
            spec.error("retentionMinutes", spec.line, "and `settings`.`retention.ms` exclude each other; keep one")
        configs["retention.ms"] = str(minutes * 60_000)
    return configs


def _assignments(placement: Fields, row: TopicRow, reader: Reader) -> dict[int, tuple[int, ...]] | None:
    """Return the assignments of a static placement; list other strategies that differ from Kafka's own placement."""
    line = placement.line
    strategy = placement.text("strategy")
    if strategy is None or strategy == "any":
        return None
    if strategy not in _STRATEGIES:
        placement.error("strategy", line, f"is unknown: {show(strategy)}; {nearest(strategy, _STRATEGIES)}")
        return None
    if strategy != "static":
        if strategy == "static-in-rack":
            placement.leave_out(("staticRackAssignments",), "racks, not brokers: Kafka places the replicas")
        reader.report.leave_out(line, placement.name("strategy"), f"{strategy}: Kafka places the replicas by itself")
        return None
    items = placement.items("staticAssignments")
    pairs = [(Key(str(number)), item, at) for number, (item, at) in enumerate(items)]
    assignments = reader.assignments(Object(pairs=pairs, line=line), line)
    entry = row.entry
    if assignments is not None and entry.num_partitions is not None and entry.replication_factor is not None:
        if len(assignments) != entry.num_partitions:
            reason = f"has {len(assignments)} partitions, but `spec.partitions` is {entry.num_partitions}"
            placement.error("staticAssignments", line, reason)
        elif any(len(brokers) != entry.replication_factor for brokers in assignments.values()):
            reason = f"has partitions without {entry.replication_factor} brokers, as in `spec.replicationFactor`"
            placement.error("staticAssignments", line, reason)
    return assignments


TOPICCTL = ForeignFormat(
    name="topicctl", suffixes=YAML_SUFFIXES, names_cluster=True, sign=_SIGN, read=yaml_reader(_read)
)
