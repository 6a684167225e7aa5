"""Topic names in Julie: by default the path to the topic joined with dots, else as configured in its properties file.

According to its documentation (https://julieops.readthedocs.io, "Managing Topics and their Configuration" and
"Important configuration values"). Three keys of a properties file are read: `topology.topic.prefix.separator`,
`topology.topic.prefix.format` and `topology.project.prefix.format`. A format is `default`, `name` (the topic's own
name), or a template with plain names in `{{ }}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topicledger.files.foreign.contract import Source
from topicledger.text import show

_PREFIX = "topology."
_SEPARATOR, _TOPIC, _PROJECT = "topic.prefix.separator", "topic.prefix.format", "project.prefix.format"
_PROPERTY = re.compile(r"[ \t]*topology\.(topic\.prefix\.(?:separator|format)|project\.prefix\.format)[ \t]*[=:](.*)")
_NAME = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_DEFAULT = "default"


class NamingError(Exception):
    """A topic's name can't be built; the text gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Naming:
    """The properties that affect names."""

    separator: str = "."
    topic_format: str = _DEFAULT
    project_format: str = _DEFAULT

    def name(self, context: Mapping[str, str], project: str, topic: str, data_type: str | None) -> str:
        """Return a topic's name; ``context`` has the levels above the project, in order. Raises NamingError."""
        if self.topic_format == "name":
            return topic
        above = {**context, "project": project}
        if self.topic_format != _DEFAULT:
            own = {"topic": topic} if data_type is None else {"topic": topic, "dataType": data_type}
            return _filled_in(self.topic_format, _TOPIC, {**above, **own})
        if self.project_format == _DEFAULT:
            prefix = self.separator.join(above.values())
        else:
            prefix = _filled_in(self.project_format, _PROJECT, above)
        return self.separator.join([prefix, topic] if data_type is None else [prefix, topic, data_type])


def _filled_in(template: str, key: str, names: Mapping[str, str]) -> str:
    rest = _NAME.sub("", template)
    if "{" in rest or "}" in rest:
        raise NamingError(f"{_PREFIX}{key} is {show(template)}; templates may contain only plain {{{{names}}}}")

    def value(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise NamingError(f"{_PREFIX}{key} is {show(template)}, but there is no value named {show(match[1])}")
        return names[match[1]]

    return _NAME.sub(value, template)


def read_naming(files: Sequence[Source]) -> Naming:
    """Read the naming properties of the files; report an error if two files differ."""
    found: dict[str, str] = {}
    for file in files:
        for number, line in enumerate(file.text.split("\n"), start=1):
            match = _PROPERTY.fullmatch(line.rstrip("\r"))
            if match is None:
                continue
            key, value = match[1], match[2].strip()
            if found.setdefault(key, value) != value:
                reason = f"`{_PREFIX}{key}` is {show(value)} here and {show(found[key])} elsewhere"
                file.report.error(number, f"{reason}; load the descriptors of each separately")
    return Naming(
        separator=found.get(_SEPARATOR, "."),
        topic_format=found.get(_TOPIC, _DEFAULT),
        project_format=found.get(_PROJECT, _DEFAULT),
    )
