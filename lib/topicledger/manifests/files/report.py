"""Rows, errors and warnings of one file, which may be many: what is beyond their limits ends the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topicledger.manifests.files.results import FileError, ManifestRow, NotCarriedOver, ParsedManifests, ResourceRow
from topicledger.manifests.files.variables import Variables

MAX_ERRORS = 1_000
"""Largest number of errors that a load reports: nobody reads more, and each takes time and memory."""
MAX_VALUES = 20_000_000
"""Largest number of values written in a file. Two bytes may be one value, which takes up to 300 bytes of memory. Files
that anybody needs have fewer: 100,000 topics with 33 configs have 5 million."""
_ROW, _LEFT_OUT = 16, 4
"""Memory of a row beside topics, and of an omitted field, in units of values."""
_CHARACTERS = 64
"""Characters of a text that take the memory of one value."""
ELSEWHERE = ""
"""Marks an error of an entry that isn't about the value of a field."""


@dataclass(slots=True)
class Entry:
    """The valid fields of a topic or of defaults, collected so far."""

    cluster: str | None = None
    topic: str | None = None
    state: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    assignments: dict[int, tuple[int, ...]] | None = None
    configs: dict[str, str] | None = None
    owner: str | None = None
    labels: dict[str, str] | None = None
    placement: str | None = None
    replaces: str | None = None
    description: str | None = None
    given: set[str] = field(default_factory=set)
    """Fields that are present, including nulls."""
    unset: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """Keys of `configs` and `labels` that an override removes, by field, as `values.unset_in` returns them."""
    lines: dict[str, int] = field(default_factory=dict)
    """The lines of values that no row can have, by reason."""
    failed: set[str] = field(default_factory=set)
    """Fields with a reported error, and `ELSEWHERE`."""

    @property
    def wrong(self) -> bool:
        """Whether an error was reported."""
        return bool(self.failed)


class Report:
    """Collects the rows and errors of one file; an error of a shared part is reported only once."""

    def __init__(self, file: str, result: ParsedManifests) -> None:
        self.file = file
        self.variables: Variables | None = None
        """Values for variables in the file; None if it can't have any."""
        self.visits: int | None = None
        """Number of values that may still be read and made; None if the format has no aliases."""
        self._result = result
        self._reported: set[FileError] = set()
        self._warned: set[FileError] = set()

    def error(self, line: int | None, message: str) -> None:
        error = FileError(self.file, line, message)
        if error not in self._reported:
            if len(self._result.errors) >= MAX_ERRORS:
                raise TooManyErrorsError
            self._reported.add(error)
            self._result.errors.append(error)

    def warn(self, line: int | None, message: str) -> None:
        """Report what may be a mistake and is loaded nevertheless; warnings beyond `MAX_ERRORS` are dropped."""
        warning = FileError(self.file, line, message)
        if warning not in self._warned and len(self._warned) < MAX_ERRORS:
            self._warned.add(warning)
            self._result.warnings.append(warning)

    def of_document(self, clusters: Sequence[str], line: int | None) -> None:
        """Keep the clusters of a whole document."""
        for cluster in clusters:
            self._result.documents.setdefault((self.file, cluster), []).append(line)

    def visit(self, count: int) -> None:
        """Count values that are read or made; raises TooMuchError above the limit."""
        if self.visits is not None:
            self.visits -= count
            if self.visits < 0:
                raise TooMuchError

    @property
    def errors(self) -> int:
        """Number of errors reported."""
        return len(self._reported)

    def leave_out(self, line: int, key: str, what: str) -> None:
        """List an unsupported field of another tool's file."""
        self.visit(_LEFT_OUT)
        self._result.not_carried_over.append(NotCarriedOver(file=self.file, line=line, key=key, what=what))

    def skip(self, kind: str, count: int = 1) -> None:
        """Count entries of another tool's file that aren't topics to manage."""
        if count:
            self._result.skipped[kind] = self._result.skipped.get(kind, 0) + count

    def resource(self, table: str, row: ResourceRow) -> None:
        """Add a row of a table beside `manifests`."""
        # Shorthands make many rows, and rows copy shared values and defaults.
        if self.visits is not None:
            texts = [each for each in (*row.values.values(), row.owner) if isinstance(each, str)]
            self.visit(_ROW + weight(row.labels) + sum(map(len, texts)) // _CHARACTERS)
        self._result.resources.setdefault(table, []).append(row)

    def row(self, entry: Entry, line: int) -> None:
        self._result.rows.append(
            ManifestRow(
                cluster=entry.cluster or "",
                topic=entry.topic or "",
                state="present" if entry.state is None else entry.state,
                num_partitions=entry.num_partitions,
                replication_factor=entry.replication_factor,
                assignments=entry.assignments,
                configs=entry.configs,
                owner=entry.owner,
                labels=entry.labels,
                placement=entry.placement,
                replaces=entry.replaces,
                description=entry.description,
                file=self.file,
                line=line,
                lines=entry.lines or None,
            )
        )


def weight(texts: Mapping[str, str] | str | None) -> int:
    """Return the number of values that a text or a mapping of texts counts as."""
    if texts is None:
        return 0
    if isinstance(texts, str):
        return len(texts) // _CHARACTERS
    return len(texts) + sum(len(name) + len(text) for name, text in texts.items()) // _CHARACTERS


class TooManyErrorsError(Exception):
    """There are more than `MAX_ERRORS` errors; the rest isn't read."""


def require_few(values: int) -> None:
    """Raise TooMuchError if a file has more values than `MAX_VALUES`: called before these are in memory."""
    if values > MAX_VALUES:
        raise TooMuchError(f"it has more than {MAX_VALUES:,} values: split it into several files")


class TooMuchError(Exception):
    """A file has too many values, as str() says, or its aliases expand to too many: str() is empty."""
