"""What a format of another tool is to the rest: a name, and a function that reports what texts hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topicledger.manifests.files.entries import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One file of another tool."""

    text: str
    report: Report
    """Takes the file's rows, errors, unsupported fields, and what is skipped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignFormat:
    """How one tool's files are read."""

    name: str
    """What `--from` calls it."""
    suffixes: tuple[str, ...]
    """Which files of a folder are read; a file that is named may end in anything."""
    names_cluster: bool
    """Whether its files can say which cluster a topic is on."""
    is_listing: bool = False
    """Whether its files list what lives on a cluster: what a run would refuse there is left out, not an error."""
    read: Callable[[Sequence[Source], str | None], None]
    """Reads all files at once, since one may refer to another. The string is the cluster of every topic, None where
    the files are to say. Never raises for what a file contains."""


def no_line_of(command: str) -> str:
    """What is wrong with a line that did not parse. It isn't shown: the file may be anything, a secret too."""
    return f"is no line of `{command}`; keep what it prints on stdout"


YAML_SUFFIXES = (".yaml", ".yml", ".json")
"""JSON too, which is read as the YAML that it is."""
