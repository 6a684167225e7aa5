"""Topic names in Julie: by default the path to the topic joined with dots, else as configured in its properties file.

According to its documentation (https://julieops.readthedocs.io, "Managing Topics and their Configuration" and
"Important configuration values"). A format is `default`, `name` (the topic's own name), or a template with plain names
in `{{ }}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from topicledger.text import show

SEPARATOR, TOPIC = "topology.topic.prefix.separator", "topology.topic.prefix.format"
PROJECT = "topology.project.prefix.format"
"""The properties that affect names."""
_NAME = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
DEFAULT = "default"


class NamingError(Exception):
    """A topic's name can't be built; the text gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Naming:
    """The properties that affect names."""

    separator: str = "."
    topic_format: str = DEFAULT
    project_format: str = DEFAULT

    def name(self, context: Mapping[str, str], project: str, topic: str, data_type: str | None) -> str:
        """Return a topic's name; ``context`` has the levels above the project, in order. Raises NamingError."""
        if self.topic_format == "name":
            return topic
        above = {**context, "project": project}
        if self.topic_format != DEFAULT:
            own = {"topic": topic} if data_type is None else {"topic": topic, "dataType": data_type}
            return _filled_in(self.topic_format, TOPIC, {**above, **own})
        if self.project_format == DEFAULT:
            prefix = self.separator.join(above.values())
        else:
            prefix = _filled_in(self.project_format, PROJECT, above)
        return self.separator.join([prefix, topic] if data_type is None else [prefix, topic, data_type])


def _filled_in(template: str, key: str, names: Mapping[str, str]) -> str:
    rest = _NAME.sub("", template)
    if "{" in rest or "}" in rest:
        raise NamingError(f"{key} is {show(template)}; templates may contain only plain {{{{names}}}}")

    def value(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise NamingError(f"{key} is {show(template)}, but there is no value named {show(match[1])}")
        return names[match[1]]

    return _NAME.sub(value, template)
