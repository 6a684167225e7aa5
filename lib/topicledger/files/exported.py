"""Request and result of an export, and its printed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Literal

from rich.console import Console

from topicledger.errors import ExitCode, exit_code
from topicledger.files.load import Loaded
from topicledger.resources.kind import ResourceKind
from topicledger.text import SHOWN_FAILURES, alike, cell, counted, document, grid_of, listed, plain, show


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """What to export, and its destination."""

    to: Path | None
    """A file, or a folder that gets a file for each cluster; None merges into `manifests`."""
    patterns: Sequence[str] = ()
    """RE2 patterns; topics to export match at least one. All topics are taken without any."""
    exclude: Sequence[str] = ()
    """RE2 patterns of topics to leave out."""
    with_assignments: bool = False
    """Whether to export current assignments instead of counts."""
    owner: str | None = None
    """Owner to set for everything that is exported."""
    overwrite: bool = False
    """Whether to replace existing files."""
    unmanaged: bool = False
    """Only topics that no row of `manifests` names."""
    units: bool = False
    """Whether files have units in configs (`7d`) in place of Kafka's plain numbers."""
    split: Literal["owner"] | None = None
    """`owner` writes a folder for each owner into the folder `to`, with a file for each cluster."""
    resources: Sequence[ResourceKind] = ()
    """Kinds of resources to export beside topics."""


@dataclass(frozen=True, kw_only=True)
class TopicMessage:
    """A message about one topic, or about the resource that `resource_type` and `resource` name."""

    cluster: str
    topic: str | None
    message: str
    resource_type: str = "topic"
    resource: str | None = None

    @property
    def name(self) -> str | None:
        """Name of the topic or resource; None for a message about the cluster."""
        if self.topic is None:
            return None if self.resource is None else f"{self.resource_type} {self.resource}"
        return str(self.topic)

    @property
    def form(self) -> str:
        """The message without the values that name its topic or resource."""
        return reduce(alike, (self.topic or self.resource or "").split(" "), self.message)


@dataclass(frozen=True, kw_only=True)
class ClusterExport:
    """One cluster's export."""

    cluster: str
    topics: int
    """Number of exported topics."""
    file: str | None
    """None for an export into the table. If split by owner, the cluster has one ClusterExport for each file."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Numbers of exported resources beside topics, by table."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Result of an export."""

    clusters: Sequence[ClusterExport]
    not_exported: Sequence[TopicMessage]
    """Topics that can't be described."""
    notes: Sequence[TopicMessage]
    """Notes about exported topics: what a manifest can't express, and why an owner is proposed."""
    loaded: Loaded | None = None
    """Result of merging into the tables."""
    problems: Sequence[str] = field(default_factory=list)
    """Reasons why clusters could not be exported."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code as for a run: topics that can't be described count as failed."""
        return exit_code({ExitCode.ERROR: bool(self.problems), ExitCode.TOPICS_FAILED: bool(self.not_exported)})

    def to_json(self) -> str:
        """Return the versioned result document."""
        return document(self.exit_code, asdict(self))


def render(exported: Exported, console: Console) -> None:
    """Print an export's result for people."""
    others = list(dict.fromkeys(name for each in exported.clusters for name in each.resources))
    grid = grid_of("cluster", "topics", *others, "to", title="Exported")
    for each in exported.clusters:
        counts = (str(each.resources.get(name, "")) for name in others)
        grid.add_row(cell(each.cluster), str(each.topics), *counts, cell(each.file or "manifests"))
    console.print(grid)
    if exported.loaded is not None:
        loaded = exported.loaded
        console.print(f"{loaded.added} added, {loaded.changed} changed, {loaded.unchanged} unchanged in manifests")
        for table, of_table in loaded.resources.items():
            counts_of = ", ".join(f"{of_table[name]} {name}" for name in ("added", "changed", "unchanged"))
            console.print(f"{counts_of} in {table}")
    for title, messages in (("Not exported", exported.not_exported), ("Note", exported.notes)):
        lines = folded(messages)
        for cluster, text in lines[:SHOWN_FAILURES]:
            console.print(f"{title}: {cell(cluster)}: {cell(text)}", soft_wrap=True)
        if len(lines) > SHOWN_FAILURES:
            console.print(f"{title}: {SHOWN_FAILURES} of {len(lines)} lines; all are in --format json")
    for problem in exported.problems:
        console.print(f"not exported: {plain(problem)}", soft_wrap=True)


def folded(messages: Sequence[TopicMessage]) -> list[tuple[str, str]]:
    """Return cluster and text of the first of messages alike, with the first names that they concern and their number.

    Messages are alike if they differ only in values of their own topic or resource.
    """
    same: dict[tuple[str, str], list[TopicMessage]] = {}
    for each in messages:
        same.setdefault((each.cluster, each.form), []).append(each)
    lines = []
    for (cluster, _), those in same.items():
        names, message = [show(each.name) for each in those if each.name is not None], those[0].message
        lines.append((cluster, f"{listed(names)}: {message}" if names else message))
    return lines


def top_notes(messages: Sequence[TopicMessage], cluster: str) -> list[str]:
    """Return the comments at the top of a cluster's file."""
    lines = [text for _, text in folded([each for each in messages if each.cluster == cluster])]
    more = len(lines) - SHOWN_FAILURES
    rest = [f"and {counted(more, 'more line')}; `export --format json` has all of them"] if more > 0 else []
    return lines[:SHOWN_FAILURES] + rest
