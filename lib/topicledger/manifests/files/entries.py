"""Convert values to manifest rows: the checks of a topic's fields, the same for every format.

Every check reports an error and continues, so that all errors of a file are reported at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from topicledger.manifests.files.results import (
    FIELDS,
    FileError,
    ManifestRow,
    NotCarriedOver,
    ParsedManifests,
    ResourceRow,
    meant,
)
from topicledger.manifests.files.values import (
    UNSET,
    Number,
    Object,
    Surprise,
    Value,
    advised,
    config_key,
    describe,
    filled,
    kind_of,
    named,
    plain_digits,
    plain_number,
    template_hint,
    unset_in,
)
from topicledger.manifests.files.variables import Variables
from topicledger.model.config_texts import ConfigTextError, stored
from topicledger.model.topic_configs import topic_configs
from topicledger.text import show, similar

_INT32 = range(-(2**31), 2**31)
_COUNTS = {"num_partitions": 2**31, "replication_factor": 2**15}
"""Counts, and the number that they are below."""


MAX_ERRORS = 1_000
"""Largest number of errors that a load reports: nobody reads more, and each takes time and memory."""
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
    unset: dict[str, set[str]] = field(default_factory=dict)
    """Keys of `configs` and `labels` that an override removes from the defaults."""
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
        self.unknown_configs: set[str] = set()
        """Names of configs that the file has and the catalogue lacks."""
        self.visits: int | None = None
        """Number of values that may still be read and made; None if the format has no aliases."""
        self._result = result
        self._reported: set[FileError] = set()

    def error(self, line: int | None, message: str) -> None:
        error = FileError(self.file, line, message)
        if error not in self._reported:
            if len(self._result.errors) >= MAX_ERRORS:
                raise TooManyErrorsError
            self._reported.add(error)
            self._result.errors.append(error)

    def warn(self, line: int | None, message: str) -> None:
        """Report what may be a mistake and is loaded nevertheless."""
        self._result.warnings.append(FileError(self.file, line, message))

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


class TooMuchError(Exception):
    """A file's aliases expand to too many values."""


class Reader:
    """Checks the values of one file; every check reports errors and then returns None."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._twice: dict[int, Object] = {}
        """Mappings whose duplicates are reported, by id; they are kept so that their ids stay unique."""

    def visit(self, count: int) -> None:
        """Count values that are read; raises TooMuchError above the limit."""
        self.report.visit(count)

    def duplicates(self, value: Object, line: int) -> bool:
        """Report duplicate keys, at ``line`` if their own line is unknown; return whether there are any."""
        if value.duplicates and id(value) not in self._twice:
            self._twice[id(value)] = value  # an alias refers to the same mapping again
            for key, at in value.duplicates:
                self.report.error(at or line, f"`{named(key)}` is written twice")
        return bool(value.duplicates)

    def entry(self, value: Object, line: int, known: Sequence[str] = FIELDS) -> Entry:
        """Return the valid fields of a mapping; report the others, and mark them in `Entry.failed`."""
        entry = Entry(failed={ELSEWHERE} if self.duplicates(value, line) else set())
        self.visit(len(value.pairs))
        for key, item, at in value.pairs:
            if key.text not in known:
                self.report.error(at or line, _unknown_field(key.text, known))
                entry.failed.add(ELSEWHERE)
                continue
            entry.given.add(key.text)
            if item is None:
                continue
            entry.unset[key.text] = unset_in(item)
            found = self._field(key.text, item, at or line)
            if found is None:
                entry.failed.add(key.text)
            else:
                setattr(entry, key.text, found)
        return entry

    def row(self, entry: Entry, line: int) -> None:
        """Report the entry as a row if it has no errors and nothing is missing."""
        for name in ("topic", "cluster"):
            if getattr(entry, name) is None and name not in entry.failed:
                self.report.error(line, f"`{name}` is missing")
                entry.failed.add(name)
        if not entry.wrong:
            self.report.row(entry, line)

    def _field(self, name: str, value: Value, line: int) -> object:
        if name in _COUNTS:
            return self.integer(f"`{name}`", value, line, below=_COUNTS[name])
        if name == "assignments":
            return self.assignments(value, line)
        if name == "configs":
            return self.texts(name, value, line, self._stored)
        if name == "labels":
            return self.texts(name, value, line)
        return self.text(name, value, line)

    def text(self, name: str, value: Value, line: int) -> str | None:
        if isinstance(value, Surprise):
            self.report.error(line, f"`{name}`: {value.reason}")
        elif not isinstance(value, str):
            hint = template_hint(value, "; quote it" if isinstance(value, bool | Number) else "")
            self.report.error(line, f"`{name}` must be a string, not {kind_of(value)}{hint}")
        elif self._is_unicode(f"`{name}`", value, line):
            self.visit(weight(value))
            return str(value)
        return None

    def integer(self, name: str, value: Value, line: int, hint: str | None = None, *, below: int = 2**31) -> int | None:
        value = filled(value)
        if not isinstance(value, Number) or not value.integer:
            hint = plain_digits(value, below) if hint is None else hint
            self.report.error(line, f"{name} must be an integer, not {kind_of(value)}{hint}")
        elif len(value.text) > 11 or int(value.text) not in _INT32:
            self.report.error(line, f"{name} is {show(value.text)}, which does not fit into 32 bits")
        else:
            return int(value.text)
        return None

    def number(self, name: str, value: Value, line: int) -> float | None:
        value = filled(value)
        if not isinstance(value, Number):
            self.report.error(line, f"{name} must be a number, not {kind_of(value)}{plain_digits(value, 2**63)}")
        elif not math.isfinite(number := float(value.text)):
            self.report.error(line, f"{name} is {show(value.text)}, which does not fit into 64 bits")
        else:
            return number
        return None

    def texts(
        self, field_name: str, value: Value, line: int, stored: Callable[[str, str, int], str | None] | None = None
    ) -> dict[str, str] | None:
        """Read configs or labels; numbers and booleans keep the text as written.

        `stored` returns what to store for a name and its text, or reports an error at the line and returns None.
        """
        if not isinstance(value, Object):
            self.report.error(line, f"`{field_name}` must be a mapping, not {describe(value)}")
            return None
        wrong = self.duplicates(value, line) | (
            field_name == "configs" and self.two_spellings([(key.text, at) for key, _, at in value.pairs], line)
        )
        self.visit(len(value.pairs))
        texts: dict[str, str] = {}
        for key, item, key_line in value.pairs:
            if item is UNSET:
                continue
            at = key_line or line
            name = f"`{field_name}`: `{show(key.text)}`"
            if key.problem is not None:
                self.report.error(at, f"`{field_name}`: {key.problem}")
                wrong = True
            elif not self._is_unicode(f"a key of `{field_name}`", key.text, at):
                wrong = True
            else:
                text = self._text_of(name, key.text, item, at)
                if text is not None and stored is not None:
                    text = stored(key.text, text, at)
                if text is None:
                    wrong = True
                else:
                    texts[key.text] = text
        self.visit(weight(texts) - len(texts))
        return None if wrong else texts

    def two_spellings(self, names: Sequence[tuple[str, int]], line: int) -> bool:
        """Report configs that differ only in case or separators, of which a broker knows one at most."""
        if len({config_key(name) for name, _ in names}) == len(names):
            return False
        found = False
        first: dict[str, str] = {}
        for name, at in names:
            earlier = first.setdefault(config_key(name), name)
            if earlier != name:
                both = f"`{show(earlier)}` and `{show(name)}`"
                self.report.error(at or line, f"`configs`: {both} are two spellings of one config; keep one")
                found = True
        return found

    def _text_of(self, name: str, key: str, item: Value, line: int) -> str | None:
        if isinstance(item, str):
            return str(item) if self._is_unicode(name, item, line) else None
        if isinstance(item, bool):
            return "true" if item else "false"
        if isinstance(item, Number):
            return item.text
        self.report.error(line, f"{name}{_not_a_text(key, item)}")
        return None

    def _stored(self, name: str, text: str, line: int) -> str | None:
        """Return a config's value as tables have it; report a value that no Kafka accepts, and an unknown name."""
        if name not in topic_configs() and name not in self.report.unknown_configs:
            self.report.unknown_configs.add(name)
            if name.isprintable() and " " not in name:
                hint = similar(name, topic_configs()) or "only a newer Kafka or a fork may have it"
                self.report.warn(line, f"unknown config `{show(name)}`; {hint}")
        try:
            return stored(name, text)
        except ConfigTextError as error:
            self.report.error(line, f"`configs`: `{show(name)}` {error}{template_hint(text)}")
            return None

    def assignments(self, value: Value, line: int) -> dict[int, tuple[int, ...]] | None:
        if not isinstance(value, Object):
            reason = f"must map partitions to lists of broker ids, not {describe(value)}"
            self.report.error(line, f"`assignments` {reason}")
            return None
        wrong = self.duplicates(value, line)
        self.visit(len(value.pairs))
        assignments: dict[int, tuple[int, ...]] = {}
        for key, item, key_line in value.pairs:
            at = key_line or line
            name = f"`assignments`: partition `{show(key.text)}`"
            partition = self.integer(name, plain_number(key.text) or key.text, at, "; write plain digits")
            if not isinstance(item, list):
                self.report.error(at, f"{name} must be a list of broker ids, not {describe(item)}")
                wrong = True
                continue
            self.visit(len(item))
            brokers = [self.integer(f"{name}: a broker id", each, at) for each in item]
            known = [each for each in brokers if each is not None]
            if partition is None or len(known) != len(brokers):
                wrong = True
            else:
                assignments[partition] = tuple(known)
        return None if wrong else assignments

    def _is_unicode(self, name: str, text: str, line: int) -> bool:
        """Report half a surrogate pair, which JSON can contain but UTF-8 can't."""
        if text.isascii():
            return True
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self.report.error(line, f"{name} is not legal Unicode: half a surrogate pair")
            return False
        return True


def _not_a_text(key: str, value: Value) -> str:
    if isinstance(value, Surprise):
        return f": {advised(key, value)}"
    if value is None:
        return " is null; leave the key out (of configs, for the broker's default)"
    config = topic_configs().get(key)
    joins = isinstance(value, list) and (config is None or config.type == "list")
    hint = template_hint(value, ': write a comma-separated string, "a,b"' if joins else "")
    return f" must be a string, number or boolean, not {kind_of(value)}{hint}"


def _unknown_field(name: str, known: Sequence[str]) -> str:
    if name in ("topics", "defaults"):
        return f"unknown field `{name}`; it belongs at the top of a file, not into an entry"
    return f"unknown field `{named(name)}`; {meant(name, known)}"
