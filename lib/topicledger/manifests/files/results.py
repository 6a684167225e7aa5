"""What reading manifest files gives: rows, and errors with their place.

Apart from the reading, since every module of the package needs them and they need none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from topicledger.text import nearest, show

Format: TypeAlias = Literal["csv", "json", "yaml"]

FIELDS = (
    "cluster",
    "topic",
    "state",
    "num_partitions",
    "replication_factor",
    "assignments",
    "configs",
    "owner",
    "labels",
    "placement",
)
"""The columns of `manifests`, in its order."""

_OTHER_WORDS = {
    "name": "topic",
    "partitions": "num_partitions",
    "replicas": "replication_factor",
    "replication": "replication_factor",
    "replicationfactor": "replication_factor",
    "rf": "replication_factor",
    "config": "configs",
    "team": "owner",
    "tags": "labels",
}
"""Of other tools, for the columns of `manifests`."""


def meant(name: str, known: Collection[str] = FIELDS) -> str:
    """What to say after an unknown field: the field that another tool's word names, or what `nearest` says."""
    other = _OTHER_WORDS.get(name.casefold())
    return f"did you mean `{other}`?" if other is not None and other in known else nearest(name, known)


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestRow:
    """One topic as a file declares it; None is the broker's or nobody's word."""

    cluster: str
    """A name from the run settings."""
    topic: str
    """The topic's name, not judged yet."""
    state: str = "present"
    """`present` or `absent`, not judged yet."""
    num_partitions: int | None = None
    """None: the broker's default."""
    replication_factor: int | None = None
    """None: the broker's default."""
    assignments: Mapping[int, tuple[int, ...]] | None = None
    """Partition -> broker ids, preferred leader first."""
    configs: Mapping[str, str] | None = None
    """Topic configs in Kafka's own notation."""
    owner: str | None = None
    """Team or service."""
    labels: Mapping[str, str] | None = None
    """For policies and reports."""
    placement: str | None = None
    """Where replicas are to be, not judged yet."""
    file: str
    """The file as it was named, `stdin` for `-`."""
    line: int
    """Where the entry begins, from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceRow:
    """A right, or an entity with its quotas, as a file declares it, or as its shorthand became."""

    cluster: str
    """A name from the run settings."""
    values: Mapping[str, object]
    """By column of its table, but for those that follow; not judged yet."""
    state: str
    """`present` or `absent`, not judged yet."""
    owner: str | None
    """Team or service."""
    labels: Mapping[str, str] | None
    """For policies and reports."""
    shorthand: str | None = None
    """What the file says instead, such as `consumer`; None where it says the right itself."""
    file: str
    """The file as it was named, `stdin` for `-`."""
    line: int
    """Where the entry begins, from 1."""


@dataclass(frozen=True, slots=True)
class FileError:
    """Something wrong in a file; str() is `file:line: message`."""

    file: str
    """The file or folder."""
    line: int | None
    """From 1; None where it is about the file as a whole."""
    message: str
    """What is wrong, and what to write instead."""

    def __str__(self) -> str:
        place = show(self.file) if self.line is None else f"{show(self.file)}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NotCarriedOver:
    """A field of another tool's file that manifests don't support."""

    file: str
    """The file as it was named, `stdin` for `-`."""
    line: int
    """From 1."""
    key: str
    """Where it stands in the file, such as `spec.placement.picker`."""
    what: str
    """What it is, or why it isn't supported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedManifests:
    """All that was read; the rows are complete only if there are no errors."""

    rows: list[ManifestRow]
    """In the order of files and lines."""
    errors: list[FileError]
    """Every error of every file, in the order they were met."""
    acls: list[ResourceRow] = field(default_factory=list)
    """Rights, in the order of files and lines."""
    quotas: list[ResourceRow] = field(default_factory=list)
    """Entities with their quotas, in the order of files and lines."""
    not_carried_over: list[NotCarriedOver] = field(default_factory=list)
    """Of other tools' files: each unsupported field."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Of other tools' files: entries that are no topics to manage, counted by kind."""
    digests: dict[str, str] = field(default_factory=dict)
    """Each file that was read, as it was named (`-` for stdin) -> SHA-256 (hex) of its bytes."""

    @property
    def resources(self) -> Mapping[str, Sequence[ResourceRow]]:
        """What is declared beside topics, by its table."""
        return {"acls": self.acls, "quotas": self.quotas}

    @property
    def resource_rows(self) -> Sequence[ResourceRow]:
        """All of it."""
        return [*self.acls, *self.quotas]
