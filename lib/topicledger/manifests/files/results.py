"""Results of reading manifest files: rows, and errors with their place.

A separate module, since every module of the package needs these types and they need none of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from topicledger.config.ownership import owner_key
from topicledger.schemas import MANIFESTS
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
    "replaces",
    "description",
)
"""The columns of `manifests`, in the table's order."""

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
"""Other tools' names for columns of `manifests`."""


def meant(name: str, known: Collection[str] = FIELDS) -> str:
    """Return a hint for an unknown field: our name for another tool's field, or that of `nearest`."""
    other = _OTHER_WORDS.get(name.casefold())
    return f"did you mean `{other}`?" if other is not None and other in known else nearest(name, known)


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestRow:
    """One topic as a file declares it; None means the broker's default, or no value."""

    cluster: str
    """A name from the run settings."""
    topic: str
    """The topic's name, not yet validated."""
    state: str = "present"
    """`present` or `absent`, not yet validated."""
    num_partitions: int | None = None
    """None for the broker's default."""
    replication_factor: int | None = None
    """None for the broker's default."""
    assignments: Mapping[int, tuple[int, ...]] | None = None
    """Partition -> broker ids, preferred leader first."""
    configs: Mapping[str, str] | None = None
    """Topic configs in Kafka's own notation."""
    owner: str | None = None
    """Team or service."""
    labels: Mapping[str, str] | None = None
    """Labels for policies and reports."""
    placement: str | None = None
    """The rule for replicas, not yet validated."""
    replaces: str | None = None
    """The topic that this one replaces, not yet validated."""
    description: str | None = None
    """The purpose of the topic, as free text."""
    file: str
    """The file as it was named, `stdin` for `-`."""
    line: int
    """The line on which the entry begins, from 1."""
    lines: Mapping[str, int] | None = None
    """The lines of values that no row can have, such as in defaults, by reason."""

    def value(self, column: str) -> object:
        """Return the value of a column of the table, or the entry's `file` or `line`."""
        return getattr(self, column)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceRow:
    """A row of another table than `manifests`, as declared in a file or expanded from a shorthand."""

    cluster: str
    """A name from the run settings."""
    values: Mapping[str, object]
    """Values by column of its table, without the following fields; not yet validated."""
    state: str
    """`present` or `absent`, not yet validated."""
    owner: str | None
    """Team or service."""
    labels: Mapping[str, str] | None
    """Labels for policies and reports."""
    shorthand: str | None = None
    """The shorthand in the file, such as `consumer`; None if the file has the row itself."""
    file: str
    """The file as it was named, `stdin` for `-`."""
    line: int
    """The line on which the entry begins, from 1."""
    lines: Mapping[str, int] | None = None
    """The lines of values that no row can have, such as in defaults, by reason."""

    def value(self, column: str) -> object:
        """Return the value of a column of its table, or the entry's `file` or `line`."""
        return self.values[column] if column in self.values else getattr(self, column, None)


FileRow: TypeAlias = ManifestRow | ResourceRow
"""A row of any table, as a file declares it."""


_MEANT = ("cluster", "state", "owner")
_OF_TOPICS = ("topic", *_MEANT, "placement", "replaces", "configs")


def texts_of(row: FileRow) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each value, except labels and the description, which are for people."""
    for name in _OF_TOPICS if isinstance(row, ManifestRow) else (*row.values, *_MEANT):
        value = row.value(name)
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, Mapping):
            yield from value.items()


def _named(row: FileRow) -> str:
    """Return what a row is about, in words."""
    if isinstance(row, ManifestRow):
        return row.topic
    return " ".join(f"{name}={value}" for name, value in row.values.items() if value is not None)


@dataclass(frozen=True, slots=True)
class FileError:
    """An error in a file; str() is `file:line: message`."""

    file: str
    """The file or folder."""
    line: int | None
    """The line, from 1; None if the error is about the whole file."""
    message: str
    """The error, and how to correct it."""

    def __str__(self) -> str:
        place = show(self.file) if self.line is None else f"{show(self.file)}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NotCarriedOver:
    """A field of another tool's file that manifests don't support."""

    file: str
    """The file as it was named, `stdin` for `-`."""
    line: int
    """The line, from 1."""
    key: str
    """Path of the field in the file, such as `spec.placement.picker`."""
    what: str
    """Description of the field, or why it isn't supported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedManifests:
    """Everything that was read; the rows are complete only if there are no errors."""

    rows: list[ManifestRow]
    """Topics, in the order of files and lines."""
    errors: list[FileError]
    """Every error of every file, in the order in which they were found."""
    warnings: list[FileError] = field(default_factory=list)
    """Possible mistakes that are loaded nevertheless, in the order in which they were found."""
    resources: dict[str, list[ResourceRow]] = field(default_factory=dict)
    """Rows beside topics by table, in the order of files and lines."""
    not_carried_over: list[NotCarriedOver] = field(default_factory=list)
    """In files of other tools, each unsupported field."""
    skipped: dict[str, int] = field(default_factory=dict)
    """In files of other tools, counts by kind of entries that aren't topics to manage."""
    digests: dict[str, str] = field(default_factory=dict)
    """Name of each file that was read (`-` for stdin) -> SHA-256 (hex) of its bytes, and of its variables' values."""
    variables: dict[str, str] = field(default_factory=dict)
    """Values of the variables that the files have, by name."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of rows left out by cluster, because only other clusters were asked for."""
    listed: dict[str, list[FileRow]] = field(default_factory=dict)
    """In listings of a cluster, rows by table that aren't loaded: what they name is there, and `--replace` keeps it."""
    documents: dict[tuple[str, str], list[int | None]] = field(default_factory=dict)
    """The clusters of whole documents, which may have no entry there: file and cluster -> the lines with it."""

    @property
    def clusters(self) -> Sequence[str]:
        """Clusters that the files name, for entries or whole documents."""
        return sorted({*(row.cluster for row in self.every_row), *(cluster for _, cluster in self.documents)})

    @property
    def tables(self) -> Mapping[str, Sequence[FileRow]]:
        """Rows by table."""
        return {MANIFESTS.name: self.rows, **self.resources}

    @property
    def every_row(self) -> Sequence[FileRow]:
        """Rows of all tables."""
        return [row for rows in self.tables.values() for row in rows]

    def on(self, clusters: Collection[str]) -> ParsedManifests:
        """Leave out the rows of all other clusters, and count them; without `clusters` nothing is left out."""
        if not clusters:
            return self
        others = [row.cluster for row in self.every_row if row.cluster not in clusters]
        kept = self.only(lambda row: row.cluster in clusters)
        documents = {place: lines for place, lines in self.documents.items() if place[1] in clusters}
        return replace(kept, left_out=dict(sorted(Counter(others).items())), documents=documents)

    def only(self, wanted: Callable[[FileRow], bool]) -> ParsedManifests:
        """Leave out all rows that aren't `wanted`."""
        kept = {table: [row for row in rows if wanted(row)] for table, rows in self.resources.items()}
        return replace(
            self,
            rows=[row for row in self.rows if wanted(row)],
            resources={table: rows for table, rows in kept.items() if rows},
        )

    def without(self, reasons: Sequence[tuple[FileRow, str]]) -> ParsedManifests:
        """Leave out rows of a listing, each with the reasons why it is not carried over."""
        gone = {id(row) for row, _ in reasons}
        listed = {
            table: [*self.listed.get(table, ()), *(row for row in rows if id(row) in gone)]
            for table, rows in self.tables.items()
        }
        left_out = (
            NotCarriedOver(file=row.file, line=row.line, key=show(_named(row)), what=why) for row, why in reasons
        )
        return replace(
            self,
            rows=[row for row in self.rows if id(row) not in gone],
            resources={table: [row for row in rows if id(row) not in gone] for table, rows in self.resources.items()},
            not_carried_over=sorted([*self.not_carried_over, *left_out], key=lambda each: (each.file, each.line)),
            listed={**self.listed, **listed},
        )

    def without_owners(self, owners: Collection[str]) -> ParsedManifests:
        """Leave out the rows of these owners."""
        theirs = set(map(owner_key, owners))
        return self.only(lambda row: owner_key(row.owner or "") not in theirs)

    def rows_of(self, table: str) -> Sequence[ResourceRow]:
        """Rows of a table beside `manifests`."""
        return self.resources.get(table, [])
