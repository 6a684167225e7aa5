"""kafka-gitops' desired state files.

According to the project's specification (https://github.com/devshawn/kafka-gitops/blob/main/docs/specification.md),
`topics` maps names to partitions, replication and configs; `settings.topics.defaults` has the defaults of topics;
`settings.files.topics` names the file that has the topics instead, and likewise for `services` and `users`. A state
file doesn't name its cluster. Kinds of resources read their own parts of a state (`of_kinds`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from topicledger.files.foreign.contract import YAML_SUFFIXES, ForeignFormat
from topicledger.files.foreign.fields import Fields, TopicRow, YamlFile, document_fields, yaml_reader
from topicledger.files.foreign.of_kinds import PARTS
from topicledger.files.foreign.parts import GitopsState
from topicledger.files.yaml_files import measured
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, Value, describe
from topicledger.text import show

_SIGN = re.compile(
    r"^topics: *\n +[^\s#-](?:.*\n){0,20}?.*(?<![\w.])(?:partitions|replication): |"
    r"^services: *\n +[^\s#-].*: *\n +(?:type|principal): ",
    re.MULTILINE,
)
_PARTS = [part.kafka_gitops for part in PARTS.values() if part.kafka_gitops is not None]
_ELSEWHERE = ("services", "users")


@dataclass(frozen=True)
class _Defaults:
    """Default counts of topics, and operations on topics that services get beside READ and WRITE."""

    partitions: int | None = None
    replication: int | None = None
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class _State:
    """One document whose topics haven't been read yet."""

    fields: Fields
    reader: Reader
    defaults: _Defaults


def _read(files: Sequence[YamlFile], cluster: str | None) -> None:
    given = {_absolute(file.report.file) for file in files}
    states: list[_State] = []
    elsewhere: dict[str, _Defaults] = {}
    """Defaults for topics and services in other files, by file."""

    def state(value: Value, line: int, reader: Reader) -> None:
        fields = document_fields(value, line, reader, "a desired state with `topics`")
        if fields is None:
            return
        defaults, others = _settings(fields)
        states.append(_State(fields, reader, defaults))
        for what, name in others.items():
            path = _absolute(Path(reader.report.file).parent / name)
            elsewhere[path] = defaults
            if path not in given:
                reason = f"names {show(name)}, which has the {what}; load that file, too"
                fields.error(f"settings.files.{what}", line, reason)

    for file in files:
        file.each(state)
    states = [
        replace(each, defaults=elsewhere.get(_absolute(each.reader.report.file), each.defaults)) for each in states
    ]
    of_parts = [GitopsState(fields=each.fields, reader=each.reader, beside=each.defaults.beside) for each in states]
    for part in _PARTS:
        part.read(of_parts, cluster)
    for each in states:
        with measured(each.reader.report):
            _topics(each, cluster)


def _absolute(path: str | Path) -> str:
    return os.path.normpath(Path(path).absolute())


def _settings(fields: Fields) -> tuple[_Defaults, dict[str, str]]:
    """Return the defaults, and the files with the topics, services and users."""
    defaults, others = _Defaults(), dict[str, str]()
    settings = fields.mapping("settings")
    if settings is None:
        return defaults, others
    defaults = replace(defaults, beside=_beside(settings))
    topics = settings.mapping("topics")
    if topics is not None:
        given = topics.mapping("defaults")
        if given is not None:
            defaults = replace(defaults, partitions=given.count("partitions"), replication=given.count("replication"))
            given.rest()
        topics.leave_out(("blacklist", "whitelist"), "topics that kafka-gitops doesn't delete; see [guards]")
        topics.rest()
    files = settings.mapping("files")
    if files is not None:
        named = {what: files.text(what) for what in ("topics", *_ELSEWHERE)}
        others = {what: name for what, name in named.items() if name is not None}
        files.leave_out(("schemas",), "no topics")
        files.rest()
    settings.leave_out([key for key, _ in settings.others()], "a setting of kafka-gitops itself")
    return defaults, others


def _beside(settings: Fields) -> tuple[str, ...]:
    services = settings.mapping("services")
    if services is None:
        return ()
    found = [each for part in _PARTS for each in part.beside(services)]
    services.rest()
    return tuple(found)


def _topics(state: _State, cluster: str | None) -> None:
    fields, reader = state.fields, state.reader
    schemas = fields.take("schemas")
    if schemas is not None:
        value = schemas[0]
        reader.report.skip("schemas", len(value.pairs) if isinstance(value, Object) else 1)
    found = fields.take("topics")
    fields.rest()
    if found is None:
        return
    topics, line = found
    if not isinstance(topics, Object):
        fields.error("topics", line, f"must be a mapping of names to topics, not {describe(topics)}")
        return
    reader.visit(len(topics.pairs))
    reader.duplicates(topics, line)
    for name, value, at in topics.pairs:
        if name.problem is not None:
            reader.report.error(at, f"`topics`: {name.problem}")
        elif not isinstance(value, Object):
            fields.error(f"topics.{show(name.text)}", at, f"must be a mapping, not {describe(value)}")
        else:
            _topic(name.text, Fields(value, f"topics.{show(name.text)}", reader, at), at, state, cluster)


def _topic(name: str, fields: Fields, line: int, state: _State, cluster: str | None) -> None:
    defaults = state.defaults
    row = TopicRow(state.reader, line)
    entry = row.entry
    entry.cluster, entry.topic = cluster, name
    entry.num_partitions = fields.count("partitions", required=defaults.partitions is None)
    if entry.num_partitions is None:
        entry.num_partitions = defaults.partitions
    entry.replication_factor = fields.count("replication", required=defaults.replication is None)
    if entry.replication_factor is None:
        entry.replication_factor = defaults.replication
    entry.configs = fields.configs("configs")
    fields.rest()
    row.add()


KAFKA_GITOPS = ForeignFormat(
    name="kafka-gitops", suffixes=YAML_SUFFIXES, names_cluster=False, sign=_SIGN, read=yaml_reader(_read)
)
