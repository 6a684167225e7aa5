"""The contract of another tool's format: a name, and a function that reports the content of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topicledger.manifests.files.report import Report
from topicledger.text import show


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One file of another tool."""

    text: str
    report: Report
    """Collects the file's rows, errors, unsupported fields and skipped entries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignFormat:
    """How one tool's files are read."""

    name: str
    """The format's name for `--from`."""
    suffixes: tuple[str, ...]
    """Suffixes of the files to read in folders; a file that is named explicitly may have any suffix."""
    names_cluster: bool
    """Whether the files can name a topic's cluster."""
    sign: re.Pattern[str]
    """Found in files of the format and in no manifest. Repetitions have limits: searching takes linear time."""
    is_listing: bool = False
    """Whether the files list a cluster's live resources. Then those that a run would refuse are left out, and are not
    an error."""
    read: Callable[[Sequence[Source], str | None], None]
    """Reads all files at once, since one may refer to another. The string is the cluster of every topic, or None for
    the clusters that the files name. Never raises because of a file's content."""


def no_line_of(command: str, about: str = "") -> str:
    """Return the error for a line that can't be parsed, without its text, since the file may contain secrets."""
    return f"is not a line of `{command}`{about}; keep its output on stdout only"


def unknown_principal(principal: str) -> str:
    """Return why what a file says about a principal can't be carried over."""
    return f"principal {show(principal)}: Kafka's authorizer knows only User:name"


def api_sign(group: str) -> re.Pattern[str]:
    """Return the sign of files with resources of an API, such as kafka.strimzi.io; JSON is YAML, too."""
    return re.compile(rf"""apiVersion["']?: *["']?{re.escape(group)}/""")


YAML_SUFFIXES = (".yaml", ".yml", ".json")
"""Suffixes of YAML files; JSON is read as YAML, too."""
