"""Julie's properties file: how it names topics, and what else it makes of descriptors.

According to its documentation (https://julieops.readthedocs.io, "Important configuration values") and its class
Configuration. Properties that change what Julie makes, and that a load can't follow, are listed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from topicledger.files.foreign.contract import Source
from topicledger.files.foreign.julie_names import DEFAULT, PROJECT, SEPARATOR, TOPIC, Naming
from topicledger.files.yaml_files import measured
from topicledger.text import show

SUFFIX = ".properties"
_PROPERTY = re.compile(r"[ \t\f]*(topology\.[\w.-]+)(?:[ \t\f]*[=:]|[ \t\f])(.*)")
_CREATE = "topology.connector.allow.topic.create"
_READ = (SEPARATOR, TOPIC, PROJECT, _CREATE)
_TRUE = ("true", "yes", "on")
_ACCESS = "topology.builder.access.control.class"
_IF_TRUE = {
    "topology.acls.optimized": "Julie grants consumers and producers a project's prefix; here, each of its topics",
    "topology.dlq.topics.generate": "Julie's topics for dead letters, and their ACLs, aren't loaded",
    "topology.translation.principal.enabled": "Julie's other names of principals aren't loaded",
}
_PREFIXES = re.compile(r"topology\.(?:topic|group|service\.accounts)\.managed\.prefixes(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Properties:
    """The properties that a load follows."""

    naming: Naming
    connectors_create: bool
    """Whether connectors may create topics."""


def read_properties(files: Sequence[Source]) -> Properties:
    """Read the properties of the files; report an error if two files differ."""
    found: dict[str, str] = {}
    for file in files:
        with measured(file.report):
            _read(file, found)
    return Properties(
        naming=Naming(
            separator=found.get(SEPARATOR, "."),
            topic_format=found.get(TOPIC, DEFAULT),
            project_format=found.get(PROJECT, DEFAULT),
        ),
        connectors_create=found.get(_CREATE, "true") in _TRUE,
    )


def _read(file: Source, found: dict[str, str]) -> None:
    for number, line in enumerate(file.text.split("\n"), start=1):
        match = _PROPERTY.fullmatch(line.rstrip("\r"))
        if match is None:
            continue
        key, value = match[1], match[2].strip()
        if key in _READ:
            if found.setdefault(key, value) != value:
                reason = f"`{key}` is {show(value)} here and {show(found[key])} elsewhere"
                file.report.error(number, f"{reason}; load the descriptors of each separately")
        elif value in _TRUE and key in _IF_TRUE:
            file.report.leave_out(number, key, _IF_TRUE[key])
        elif key == _ACCESS and not value.endswith(".SimpleAclsProvider"):
            file.report.leave_out(number, key, f"access control by {show(value)}; here, by Kafka's ACLs")
        elif value and _PREFIXES.fullmatch(key):
            file.report.leave_out(number, key, "Julie leaves other names alone; here, all are loaded")
