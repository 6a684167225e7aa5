"""Descriptors of Julie, formerly the Kafka Topology Builder.

According to its documentation (https://julieops.readthedocs.io: "Understanding the descriptor files", "Managing Topics
and their Configuration", "Use of custom configuration plans", "Out of the box topic management"), a topic's name
consists of `context`, all other top-level keys in order, the project's name, its own name and its `dataType`
(`julie_names`). `config` also contains `num.partitions` and `replication.factor`, and overrides the `plan` from the
file of plans; `special_topics` keep their own names. A descriptor doesn't name its cluster.

Files of plans and Julie's properties file must be loaded together with the descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topicledger.files.foreign.contract import YAML_SUFFIXES, ForeignFormat, Source
from topicledger.files.foreign.fields import Fields, TopicRow, YamlFile, document_fields
from topicledger.files.foreign.julie_names import NamingError
from topicledger.files.foreign.julie_properties import SUFFIX, Properties, of_topics, read_properties
from topicledger.files.foreign.of_kinds import PARTS
from topicledger.files.yaml_files import measured
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.report import weight
from topicledger.manifests.files.values import Object, Value, describe, plain_number
from topicledger.text import nearest, show

_PARTITIONS, _REPLICATION = "num.partitions", "replication.factor"
_PARTS = [part.julie for part in PARTS.values() if part.julie is not None]
_OTHER_ACCESS = ("schemas", "rbac")
_SIGN = re.compile(r"^context: (?:.*\n){1,100}?projects:", re.MULTILINE)

Plans = dict[str, dict[str, str]]
Name = Callable[[str, str | None], str]


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """The context in which a topic is read."""

    cluster: str | None
    properties: Properties
    plans: Plans
    reader: Reader


def _read(sources: Sequence[Source], cluster: str | None) -> None:
    with_properties = [source for source in sources if source.report.file.lower().endswith(SUFFIX)]
    files = [YamlFile(source) for source in sources if source not in with_properties]
    lists = [of_topics, *(part.lists for part in _PARTS if part.lists is not None)]
    properties = read_properties(with_properties, [key for part in _PARTS for key in part.follows], lists)
    plans: Plans = {}
    descriptors: list[tuple[Fields, Reader]] = []

    def sort(value: Value, line: int, reader: Reader) -> None:
        fields = document_fields(value, line, reader, "a descriptor with `context` and `projects`")
        if fields is None:
            return
        if "plans" in fields and "context" not in fields:
            _plans(fields, plans)
        else:
            descriptors.append((fields, reader))

    for file in files:
        file.each(sort)
    for fields, reader in descriptors:
        with measured(reader.report):
            _descriptor(fields, _Setting(cluster=cluster, properties=properties, plans=plans, reader=reader))


def _plans(fields: Fields, plans: Plans) -> None:
    given = fields.mapping("plans", required=True)
    fields.rest()
    if given is None:
        return
    for name, line in given.others():
        plan = given.mapping(name, required=True)
        if plan is None:
            continue
        config = plan.configs("config", also=(_PARTITIONS, _REPLICATION)) or {}
        plan.leave_out(("alias",), "a plan's other name")
        plan.rest()
        if plans.setdefault(name, config) != config:
            fields.error(f"plans.{show(name)}", line, "differs from the same plan elsewhere; keep one of them")


def _descriptor(fields: Fields, setting: _Setting) -> None:
    context = {"context": fields.text("context", required=True) or ""}
    projects = fields.items("projects")
    special = fields.items("special_topics")
    for part in _PARTS:
        if part.descriptor is not None:
            part.descriptor(fields, setting.reader, setting.cluster)
    for key, _ in fields.others():  # each is a part of topic names, in order
        context[key] = fields.scalar(key, required=True) or ""
    for value, line in projects:
        if isinstance(value, Object):
            _project(Fields(value, "projects", setting.reader, line), context, setting)
        else:
            setting.reader.report.error(line, f"each of `projects` must be a mapping, not {describe(value)}")
    for value, line in special:
        # Without their `dataType`, too: `TopologyImpl.addSpecialTopic`.
        _topic(value, line, "special_topics", setting, lambda topic, _: topic)


def _project(fields: Fields, context: dict[str, str], setting: _Setting) -> None:
    project = fields.text("name", required=True) or ""
    topics = fields.items("topics")
    fields.leave_out(("ksql",), "ksqlDB's applications, also their rights on topics and groups")
    fields.leave_out(_OTHER_ACCESS, "access control of other systems than Kafka")

    def name(topic: str, data_type: str | None) -> str:
        return setting.properties.naming.name(context, project, topic, data_type)

    names = [_topic(value, line, "projects.topics", setting, name) for value, line in topics]
    for part in _PARTS:
        if part.project is not None:
            own = [each for each in names if each]
            part.project(fields, own, setting.properties, setting.reader, setting.cluster)
    fields.leave_out([key for key, _ in fields.others()], "access control by a custom role")


def _topic(value: Value, line: int, path: str, setting: _Setting, name: Name) -> str | None:
    """Report a topic with all that its entry declares; return its name, or None if it has none."""
    reader = setting.reader
    if not isinstance(value, Object):
        reader.report.error(line, f"each of `{path}` must be a mapping with a `name`, not {describe(value)}")
        return None
    row = TopicRow(reader, value.line or line)
    fields = Fields(value, path, reader, line)
    own_name, data_type = fields.text("name", required=True), fields.text("dataType")
    row.entry.cluster = setting.cluster
    if own_name is not None:
        try:
            row.entry.topic = name(own_name, data_type)
            reader.visit(weight(row.entry.topic))
        except NamingError as error:
            reader.report.error(row.line, f"topic {show(own_name)} has no name: {error}")
    row.entry.labels = fields.texts("metadata")
    config = fields.configs("config", also=(_PARTITIONS, _REPLICATION))
    plan = fields.text("plan")
    if plan is not None and plan not in setting.plans:
        hint = nearest(plan, setting.plans) or "load the file of plans, too"
        fields.error("plan", row.line, f"is {show(plan)}, which no file here has; {hint}")
    elif plan is not None:
        reader.visit(weight(setting.plans[plan]))
        config = {**setting.plans[plan], **(config or {})}
    _counts(row, fields, config, reader)
    for part in _PARTS:
        if part.topic is not None:
            part.topic(fields, [row.entry.topic] if row.entry.topic else [], reader, setting.cluster)
    fields.leave_out(("schemas", "subject.name.strategy"), "schemas")
    fields.rest()
    row.add()
    return row.entry.topic


def _counts(row: TopicRow, fields: Fields, config: dict[str, str] | None, reader: Reader) -> None:
    """Split the config into the counts and Kafka's own configs."""
    configs = dict(config or {})
    counts: list[int | None] = []
    for key in (_PARTITIONS, _REPLICATION):
        text = configs.pop(key, None)
        if text is None:
            counts.append(None)  # Julie leaves it to the brokers, too
        else:
            name = f"`{fields.name(f'config.{key}')}`"
            counts.append(reader.integer(name, plain_number(text.strip()) or text, row.line))
    row.entry.num_partitions, row.entry.replication_factor = counts
    row.entry.configs = configs or None


JULIE = ForeignFormat(name="julie", suffixes=(*YAML_SUFFIXES, SUFFIX), names_cluster=False, sign=_SIGN, read=_read)
