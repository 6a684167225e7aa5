"""Jikkou's KafkaTopic and KafkaTopicList resources, and the ConfigMaps that they refer to.

According to Jikkou's reference of these resources and its pages on annotations and templates
(https://www.jikkou.io/docs/providers/kafka/resources/topics/, https://www.jikkou.io/docs/concepts/), -1 partitions or
replicas mean the broker's default, `configMapRefs` name ConfigMaps of any file that is loaded together,
`jikkou.io/delete: true` deletes the topic, and `jikkou.io/ignore: true` ignores it. A resource doesn't name its
cluster. Templates must be rendered by Jikkou first.

Kinds of resources beside topics read their own (`of_kinds`).
"""

from __future__ import annotations

from collections.abc import Sequence

from topicledger.files.foreign.contract import YAML_SUFFIXES, ForeignFormat, api_sign
from topicledger.files.foreign.fields import Fields, TopicRow, YamlFile, yaml_reader
from topicledger.files.foreign.of_kinds import PARTS
from topicledger.files.foreign.resources import TOPIC, Api, Resource, Resources, annotations_of
from topicledger.files.yaml_files import measured
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.report import weight
from topicledger.text import nearest, show

_API = Api(group="kafka.jikkou.io", versions=("v1beta1", "v1beta2", "v1"))
_CONFIG_MAPS = {"ConfigMap": Api(group="core.jikkou.io", versions=("v1beta2", "v1"))}
_PARTS = [part.jikkou for part in PARTS.values() if part.jikkou is not None]
_OTHERS = {**_CONFIG_MAPS, **{kind: _API for part in _PARTS for kind in part.kinds}}
_LISTS = {of_list: kind for part in _PARTS for of_list, kind in part.lists.items()}
_DELETE, _IGNORE = "jikkou.io/delete", "jikkou.io/ignore"

ConfigMaps = dict[str, dict[str, str]]


def _read(files: Sequence[YamlFile], cluster: str | None) -> None:
    maps: ConfigMaps = {}
    topics: list[Resource] = []
    others: list[Resource] = []

    def sort(resource: Resource) -> None:
        if resource.kind == TOPIC:
            topics.append(resource)
        elif resource.kind in _CONFIG_MAPS:
            _config_map(resource, maps)
        else:
            others.append(resource)

    found = Resources(api=_API, handle=sort, others=_OTHERS, unnamed=_LISTS)
    for file in files:
        file.each(found.document)
    for resource in topics:
        with measured(resource.reader.report):
            _topic(resource, cluster, maps)
    for part in _PARTS:
        part.read([resource for resource in others if resource.kind in part.kinds], cluster)


def _config_map(resource: Resource, maps: ConfigMaps) -> None:
    name = resource.metadata.text("name", required=True)
    data = resource.fields.configs("data") or {}
    _no_template(resource.fields)
    resource.metadata.leave_out([key for key, _ in resource.metadata.others()], "a ConfigMap's own metadata")
    resource.fields.rest()
    if name is not None and maps.setdefault(name, data) != data:
        resource.metadata.error("name", resource.line, f"is {show(name)}, as is another ConfigMap's; keep one of them")


def _topic(resource: Resource, cluster: str | None, maps: ConfigMaps) -> None:
    metadata = resource.metadata
    row = TopicRow(resource.reader, resource.line)
    row.entry.cluster = cluster
    row.entry.topic = metadata.text("name", required=True)
    row.entry.labels = metadata.texts("labels")
    annotations = annotations_of(metadata, (_DELETE, _IGNORE))
    if annotations.get(_IGNORE):
        resource.reader.report.skip(f"KafkaTopic with {_IGNORE}: true")
        return
    if annotations.get(_DELETE):
        row.entry.state = "absent"
    _no_template(resource.fields)
    spec = resource.fields.mapping("spec")
    if spec is not None:
        row.entry.num_partitions = _own(spec.count("partitions"))
        row.entry.replication_factor = _own(spec.count("replicas"))
        row.entry.configs = _configs(spec, maps, resource.reader)
        spec.rest()
    metadata.rest()
    resource.fields.leave_out(("status",), "the state that Jikkou last saw")
    resource.fields.rest()
    row.add()


def _no_template(fields: Fields) -> None:
    found = fields.take("template")
    if found is not None:
        fields.error("template", found[1], "must be rendered by Jikkou first")


def _own(count: int | None) -> int | None:
    return None if count == -1 else count


def _configs(spec: Fields, maps: ConfigMaps, reader: Reader) -> dict[str, str] | None:
    """Return the topic's configs merged with its ConfigMaps; they must not differ, as precedence isn't documented."""
    configs = spec.configs("configs")
    for item, line in spec.items("configMapRefs"):
        if not isinstance(item, str):
            spec.error("configMapRefs", line, "must hold names of ConfigMaps")
        elif item not in maps:
            hint = nearest(item, maps)
            found = f"; {hint}" if hint else "; load the file that has it, too"
            spec.error("configMapRefs", line, f"names the ConfigMap {show(item)}, which no file here has{found}")
        else:
            configs = configs or {}
            reader.visit(weight(maps[item]))
            for key, value in maps[item].items():
                if configs.setdefault(key, value) != value:
                    reason = f"names the ConfigMap {show(item)}, whose `{show(key)}` differs from the topic's own"
                    spec.error("configMapRefs", line, f"{reason} value; keep one of them")
    return configs


JIKKOU = ForeignFormat(
    name="jikkou", suffixes=YAML_SUFFIXES, names_cluster=False, sign=api_sign(_API.group), read=yaml_reader(_read)
)
