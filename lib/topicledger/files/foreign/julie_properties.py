"""Julie's properties file: how it names topics, and what else it makes of descriptors.

According to its documentation (https://julieops.readthedocs.io, "Important configuration values") and its class
Configuration. Properties that change what Julie makes, and that a load can't follow, are listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from topicledger.files.foreign.contract import Source
from topicledger.files.foreign.julie_names import DEFAULT, PROJECT, SEPARATOR, TOPIC, Naming
from topicledger.files.yaml_files import measured
from topicledger.text import show

SUFFIX = ".properties"
TRUE = ("true", "yes", "on")
_PROPERTY = re.compile(r"[ \t\f]*(topology\.[\w.-]+)(?:[ \t\f]*[=:]|[ \t\f])(.*)")

Lists = Callable[[str, str], str | None]
"""Returns what a load leaves out because of a property with this name and value; None if it changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Properties:
    """The properties that a load follows."""

    texts: Mapping[str, str]

    @property
    def naming(self) -> Naming:
        """How topics are named."""
        return Naming(
            separator=self.texts.get(SEPARATOR, "."),
            topic_format=self.texts.get(TOPIC, DEFAULT),
            project_format=self.texts.get(PROJECT, DEFAULT),
        )


def of_topics(key: str, value: str) -> str | None:
    """See `Lists`."""
    if key == "topology.dlq.topics.generate" and value in TRUE:
        return "Julie's topics for dead letters: declare them, and who may use them"
    if re.fullmatch(r"topology\.topic\.managed\.prefixes(?:\.\d+)?", key) and value:
        return "Julie leaves other topics alone; here, all are loaded"
    return None


def read_properties(files: Sequence[Source], follows: Collection[str], lists: Sequence[Lists]) -> Properties:
    """Read the properties of the files, also those named in `follows`; report an error if two files differ."""
    found: dict[str, str] = {}
    known = (SEPARATOR, TOPIC, PROJECT, *follows)
    for file in files:
        with measured(file.report):
            for number, line in enumerate(file.text.split("\n"), start=1):
                match = _PROPERTY.fullmatch(line.rstrip("\r"))
                if match is None:
                    continue
                key, value = match[1], match[2].strip()
                if key in known and found.setdefault(key, value) != value:
                    reason = f"`{key}` is {show(value)} here and {show(found[key])} elsewhere"
                    file.report.error(number, f"{reason}; load the descriptors of each separately")
                for what in filter(None, (each(key, value) for each in lists)):
                    file.report.leave_out(number, key, what)
    return Properties(texts=found)
