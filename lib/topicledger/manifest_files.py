"""Manifest files (YAML, JSON, CSV) -> manifest rows, with the line of every row and of everything wrong.

Only what the file alone shows is judged here: syntax, names of fields, types. Whether a row makes sense (legal names,
counts above zero, C1 to C3) is decided with all other rows of the `manifests` table.

The three formats become the same few values first (`_Value`); numbers keep the text they were written as, so that a
config never changes on its way to Kafka.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

import yaml

from topicledger.hints import nearest, show

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
)
"""The columns of `manifests`, in its order."""

STDIN_NAME = "stdin"
"""What rows and errors from `-` carry as their file."""

_FORMATS: Mapping[str, Format] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}
_INT32 = range(-(2**31), 2**31)
_MAX_DEPTH = 50
_MAX_ALIASED = 5_000_000
"""Values that one YAML file may add by aliases and merge keys to those written in it."""
_MAX_CELL = 64 * 1024 * 1024


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
class ParsedManifests:
    """All that was read; the rows are complete only if there are no errors."""

    rows: list[ManifestRow]
    """In the order of files and lines."""
    errors: list[FileError]
    """Every error of every file, in the order they were met."""


def read_manifest_files(
    paths: Sequence[Path | Literal["-"]], stdin: TextIO, *, stdin_format: Format | None = None
) -> ParsedManifests:
    """Read files, folders (recursively, sorted, hidden names skipped) and `-`; never raises for what they contain.

    A file met twice is read once. ``stdin_format`` says what `-` holds; without it, JSON if it begins with [ or {,
    else YAML.
    """
    result = ParsedManifests(rows=[], errors=[])
    seen: set[str] = set()
    for path in paths:
        if str(path) == "-":
            if "-" in seen:
                continue
            seen.add("-")
            _read_stdin(stdin, stdin_format, result)
            continue
        for file in _files_of(Path(path), result):
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                _read_file(file, result)
    return result


def _files_of(path: Path, result: ParsedManifests) -> list[Path]:
    """The manifest files that a path stands for."""
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False  # a folder above it is closed: reading it tells
    if not is_folder:
        return [path]

    def unreadable(error: OSError) -> None:
        result.errors.append(FileError(str(error.filename), None, f"can't be read: {error.strerror}"))

    found: list[Path] = []
    visited: set[str] = set()
    errors_before = len(result.errors)
    for folder, folders, files in os.walk(path, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:  # a link that leads back
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(folder, name) for name in files if not name.startswith(".") and Path(name).suffix.lower() in _FORMATS
        ]
    if not found and len(result.errors) == errors_before:
        result.errors.append(FileError(str(path), None, f"no manifest files in this folder ({', '.join(_FORMATS)})"))
    return sorted(found)


def _read_file(path: Path, result: ParsedManifests) -> None:
    report = _Report(str(path), result)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        report.error(None, "no such file or folder")
        return
    except (OSError, ValueError) as error:
        report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        report.error(None, f"unknown kind of file; its name must end in {', '.join(_FORMATS)}")
        return
    _read_bytes(content, form, report)


def _read_stdin(stdin: TextIO, form: Format | None, result: ParsedManifests) -> None:
    report = _Report(STDIN_NAME, result)
    # the bytes, where there are any, since the terminal's encoding says nothing about a manifest
    buffer = getattr(stdin, "buffer", None)
    try:
        content = buffer.read() if buffer is not None else stdin.read().encode("utf-8")
    except (OSError, ValueError) as error:
        report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return
    _read_bytes(content, form, report)


def _read_bytes(content: bytes, form: Format | None, report: _Report) -> None:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        report.error(content.count(b"\n", 0, error.start) + 1, "not UTF-8")
        return
    if form is None:
        form = "json" if text.lstrip()[:1] in ("[", "{") else "yaml"
    {"csv": _read_csv, "json": _read_json, "yaml": _read_yaml}[form](text, report)


class _Report:
    """Takes the rows and errors of one file; the same error of a shared part is told once."""

    def __init__(self, file: str, result: ParsedManifests) -> None:
        self.file = file
        self._result = result
        self._told: set[FileError] = set()

    def error(self, line: int | None, message: str) -> None:
        error = FileError(self.file, line, message)
        if error not in self._told:
            self._told.add(error)
            self._result.errors.append(error)

    def row(self, entry: _Entry, line: int) -> None:
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
                file=self.file,
                line=line,
            )
        )


@dataclass(frozen=True, slots=True)
class _Number:
    """A number that has one way to be written, as it was written."""

    text: str
    integer: bool


@dataclass(frozen=True, slots=True)
class _Surprise:
    """A scalar that means something else than it seems to, and what to write instead."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Key:
    """A mapping's key: its text, and what it is if not simply text."""

    text: str
    problem: str | None = None


@functools.lru_cache(maxsize=4096)
def _text_key(text: str) -> _Key:
    """A key that is simply text; shared, since a hundred thousand topics have the same few."""
    return _Key(text)


@dataclass(slots=True)
class _Object:
    """A mapping; ``duplicates`` are keys that were written again."""

    pairs: list[tuple[_Key, _Value, int]] = field(default_factory=list)
    """Key, value, line (0 where the format doesn't tell)."""
    duplicates: list[tuple[str, int]] = field(default_factory=list)
    """Key, line of the repetition."""
    line: int = 0


_Value: TypeAlias = "str | bool | _Number | _Surprise | _Object | list[_Value] | None"

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:0|[0-9]*[1-9])")


@functools.lru_cache(maxsize=4096)
def _number(text: str) -> _Number | None:
    """A number written in the one way that says itself: no exponent, sign, separators or zeros to spare."""
    if _INTEGER.fullmatch(text):
        return _Number(text, integer=True)
    if _DECIMAL.fullmatch(text) and text != "-0.0":
        return _Number(text, integer=False)
    return None


def _kind(value: _Value) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return f'the string "{show(value)}"'
    if isinstance(value, _Number):
        return f"the number {show(value.text)}"
    if isinstance(value, _Object):
        return "a mapping"
    return "null" if value is None else "a list"


@dataclass(slots=True)
class _Entry:
    """The fields of a topic, or of defaults, that are right so far."""

    cluster: str | None = None
    topic: str | None = None
    state: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    assignments: dict[int, tuple[int, ...]] | None = None
    configs: dict[str, str] | None = None
    owner: str | None = None
    labels: dict[str, str] | None = None
    given: set[str] = field(default_factory=set)
    """Fields that are written, null included."""
    failed: set[str] = field(default_factory=set)
    """Fields that were reported."""
    wrong: bool = False
    """Something was reported."""


class _TooMuchError(Exception):
    """Aliases blow the file up beyond `_MAX_ALIASED`."""


class _Reader:
    """Checks the values of one file; every check reports what is wrong and answers None."""

    def __init__(self, report: _Report, visits: int | None = None) -> None:
        self.report = report
        self.visits = visits
        """How many values may still be looked at; None where a format has no aliases."""

    def visit(self, count: int) -> None:
        if self.visits is not None:
            self.visits -= count
            if self.visits < 0:
                raise _TooMuchError

    def duplicates(self, value: _Object, line: int) -> bool:
        for key, at in value.duplicates:
            self.report.error(at or line, f"`{show(key)}` is written twice")
        return bool(value.duplicates)

    def entry(self, value: _Object, line: int, known: Sequence[str] = FIELDS) -> _Entry:
        entry = _Entry(wrong=self.duplicates(value, line))
        self.visit(len(value.pairs))
        for key, item, at in value.pairs:
            if key.text not in known:
                self.report.error(at or line, _unknown_field(key.text, known))
                entry.wrong = True
                continue
            entry.given.add(key.text)
            if item is None:
                continue
            found = self._field(key.text, item, at or line)
            if found is None:
                entry.failed.add(key.text)
            else:
                setattr(entry, key.text, found)
        entry.wrong = entry.wrong or bool(entry.failed)
        return entry

    def row(self, entry: _Entry, line: int) -> None:
        """Report the entry as a row if nothing is wrong and nothing missing."""
        for name in ("topic", "cluster"):
            if getattr(entry, name) is None and name not in entry.failed:
                self.report.error(line, f"`{name}` is missing")
                entry.wrong = True
        if not entry.wrong:
            self.report.row(entry, line)

    def _field(self, name: str, value: _Value, line: int) -> object:
        if name in ("num_partitions", "replication_factor"):
            return self.integer(f"`{name}`", value, line)
        if name == "assignments":
            return self._assignments(value, line)
        if name in ("configs", "labels"):
            return self._texts(name, value, line)
        return self.text(name, value, line)

    def text(self, name: str, value: _Value, line: int) -> str | None:
        if isinstance(value, _Surprise):
            self.report.error(line, f"`{name}`: {value.reason}")
        elif not isinstance(value, str):
            quote = "; quote it" if isinstance(value, bool | _Number) else ""
            self.report.error(line, f"`{name}` must be a string, not {_kind(value)}{quote}")
        elif self._is_unicode(f"`{name}`", value, line):
            return value
        return None

    def integer(self, name: str, value: _Value, line: int) -> int | None:
        if isinstance(value, _Surprise):
            self.report.error(line, f"{name}: {value.reason}")
        elif not isinstance(value, _Number) or not value.integer:
            self.report.error(line, f"{name} must be an integer, not {_kind(value)}")
        elif len(value.text) > 11 or int(value.text) not in _INT32:
            self.report.error(line, f"{name} is {show(value.text)}, more than 32 bits hold")
        else:
            return int(value.text)
        return None

    def _texts(self, field_name: str, value: _Value, line: int) -> dict[str, str] | None:
        """configs or labels: numbers and booleans become the text they were written as."""
        if not isinstance(value, _Object):
            self.report.error(line, f"`{field_name}` must be a mapping, not {_describe(value)}")
            return None
        wrong = self.duplicates(value, line)
        self.visit(len(value.pairs))
        texts: dict[str, str] = {}
        for key, item, key_line in value.pairs:
            at = key_line or line
            name = f"`{field_name}`: `{show(key.text)}`"
            if key.problem is not None:
                self.report.error(at, f"`{field_name}`: {key.problem}")
                wrong = True
            elif not self._is_unicode(f"a key of `{field_name}`", key.text, at):
                wrong = True
            elif isinstance(item, str):
                if self._is_unicode(name, item, at):
                    texts[key.text] = item
                else:
                    wrong = True
            elif isinstance(item, bool):
                texts[key.text] = "true" if item else "false"
            elif isinstance(item, _Number):
                texts[key.text] = item.text
            else:
                self.report.error(at, f"{name}{_not_a_text(item)}")
                wrong = True
        return None if wrong else texts

    def _assignments(self, value: _Value, line: int) -> dict[int, tuple[int, ...]] | None:
        if not isinstance(value, _Object):
            reason = f"must map partitions to lists of broker ids, not {_describe(value)}"
            self.report.error(line, f"`assignments` {reason}")
            return None
        wrong = self.duplicates(value, line)
        self.visit(len(value.pairs))
        assignments: dict[int, tuple[int, ...]] = {}
        for key, item, key_line in value.pairs:
            at = key_line or line
            name = f"`assignments`: partition `{show(key.text)}`"
            partition = self.integer(name, _number(key.text) or key.text, at)
            if not isinstance(item, list):
                self.report.error(at, f"{name} must be a list of broker ids, not {_describe(item)}")
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
        """Half a surrogate pair, which JSON can write, has no UTF-8."""
        if text.isascii():
            return True
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self.report.error(line, f"{name} is not legal Unicode: half a surrogate pair")
            return False
        return True


def _describe(value: _Value) -> str:
    return value.reason if isinstance(value, _Surprise) else _kind(value)


def _not_a_text(value: _Value) -> str:
    if isinstance(value, _Surprise):
        return f": {value.reason}"
    if value is None:
        return " is null; to leave it to the broker's default use no key at all"
    hint = ': write a comma-separated string, "a,b"' if isinstance(value, list) else ""
    return f" must be a string, number or boolean, not {_kind(value)}{hint}"


def _unknown_field(name: str, known: Sequence[str]) -> str:
    if name in ("topics", "defaults"):
        return f"unknown field `{name}`; it belongs at the top of a YAML manifest; JSON is a list of topics"
    return f"unknown field `{show(name)}`; {nearest(name, known)}"


def _read_csv(text: str, report: _Report) -> None:
    limit = csv.field_size_limit(_MAX_CELL)  # a map of many assignments is longer than csv's own limit
    try:
        _read_csv_records(text, report)
    finally:
        csv.field_size_limit(limit)


def _read_csv_records(text: str, report: _Report) -> None:
    reader = _Reader(report)
    columns: list[str] | None = None
    for line, cells in _csv_records(text, report):
        if not cells:
            continue
        if columns is None:
            columns = [cell.strip() for cell in cells]
            if not _check_header(columns, line, report):
                return
        elif len(cells) != len(columns):
            report.error(line, f"has {len(cells)} cells, the header {len(columns)}")
        else:
            value, wrong = _csv_object(columns, cells, line, report)
            entry = reader.entry(value, line)
            entry.wrong = entry.wrong or wrong
            reader.row(entry, line)


def _csv_records(text: str, report: _Report) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it begins on."""
    records = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in records:
            yield line, cells
            line = records.line_num + 1
    except csv.Error as error:
        report.error(line, f"not valid CSV: {error}")


def _check_header(columns: list[str], line: int, report: _Report) -> bool:
    problems = [f"unknown column `{show(name)}`; {nearest(name, FIELDS)}" for name in columns if name not in FIELDS]
    problems += [f"column `{name}` is there twice" for name in FIELDS if columns.count(name) > 1]
    problems += [f"column `{name}` is missing" for name in ("cluster", "topic") if name not in columns]
    for problem in problems:
        report.error(line, problem)
    return not problems


def _csv_object(columns: list[str], cells: list[str], line: int, report: _Report) -> tuple[_Object, bool]:
    """A record as a mapping, and whether something in it is wrong already; an empty cell is null."""
    pairs: list[tuple[_Key, _Value, int]] = []
    wrong = False
    for name, cell in zip(columns, cells, strict=True):
        value: _Value = cell
        if not cell:
            value = None
        elif name in ("num_partitions", "replication_factor"):
            value = _number(cell.strip()) or cell
        elif name in ("assignments", "configs", "labels"):
            try:
                value = _JSON.decode(cell)
            except (json.JSONDecodeError, RecursionError) as error:
                report.error(line, f"`{name}` must be JSON text: {_json_reason(error)}")
                value, wrong = None, True
        pairs.append((_text_key(name), value, line))
    return _Object(pairs=pairs, line=line), wrong


def _json_number(text: str) -> _Number | _Surprise:
    reason = f"`{show(text)}` can be written in several ways; write plain digits or a string"
    return _number(text) or _Surprise(text, reason)


def _json_constant(text: str) -> _Surprise:
    return _Surprise(text, f"`{text}` is no JSON value; write a string")


def _json_object(pairs: list[tuple[str, _Value]]) -> _Object:
    value = _Object(pairs=[(_text_key(key), item, 0) for key, item in pairs])
    names = {key for key, _ in pairs}
    if len(names) != len(pairs):
        value.duplicates = [(key, 0) for key in sorted(names) if sum(key == each for each, _ in pairs) > 1]
    return value


_JSON = json.JSONDecoder(
    object_pairs_hook=_json_object, parse_float=_json_number, parse_int=_json_number, parse_constant=_json_constant
)
_JSON_BLANKS = re.compile(r"[ \t\r\n]*")


def _json_reason(error: json.JSONDecodeError | RecursionError) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else error.msg


def _read_json(text: str, report: _Report) -> None:
    reader = _Reader(report)
    entries = _json_array(text, report) if text.lstrip()[:1] == "[" else _json_lines(text, report)
    for value, line in entries:
        if isinstance(value, _Object):
            reader.row(reader.entry(value, line), line)
        else:
            report.error(line, f"must be an object with the fields of a topic, not {_describe(value)}")


def _json_lines(text: str, report: _Report) -> Iterator[tuple[_Value, int]]:
    """One value a line; a broken line doesn't stop the others."""
    for line, written in enumerate(text.split("\n"), start=1):
        written = written.strip(" \t\r")
        if not written:
            continue
        try:
            yield _JSON.decode(written), line
        except (json.JSONDecodeError, RecursionError) as error:
            reason = f"not valid JSON: {_json_reason(error)}"
            report.error(line, f"{reason} (one object a line, or all of them in one [list])")


def _json_array(text: str, report: _Report) -> Iterator[tuple[_Value, int]]:
    """The elements of the array that ``text`` is, each with its line."""
    line, counted = 1, 0

    def line_at(position: int) -> int:
        nonlocal line, counted
        line += text.count("\n", counted, position)
        counted = position
        return line

    def skip(position: int) -> int:
        match = _JSON_BLANKS.match(text, position)
        return match.end() if match else position

    position = skip(skip(0) + 1)
    while text[position : position + 1] != "]":
        begin = line_at(position)
        try:
            value, end = _JSON.raw_decode(text, position)
        except json.JSONDecodeError as error:
            report.error(error.lineno, f"not valid JSON: {error.msg}")
            return
        except RecursionError as error:
            report.error(begin, f"not valid JSON: {_json_reason(error)}")
            return
        yield value, begin
        position = skip(end)
        separator = text[position : position + 1]
        if separator == ",":
            position = skip(position + 1)
            if text[position : position + 1] != "]":
                continue
        elif separator == "]":
            continue
        what = "a comma without a topic after it" if separator == "," else "expected a comma or ]"
        report.error(line_at(position), f"not valid JSON: {what}")
        return
    position = skip(position + 1)
    if position < len(text):
        report.error(line_at(position), "not valid JSON: something follows the closing ]")


_Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_FALSE_WORDS = frozenset({"no", "off", "n"})
_TRUE_WORDS = frozenset({"yes", "on", "y"})
_OTHER_BASE = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[bB][01_]+|[oO][0-7_]+)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_LIKE_A_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9].*)?")
_TAG = "tag:yaml.org,2002:"
_MERGE_KEY = _Key("<<")


def _plain_scalar(text: str) -> _Value:
    """What an unquoted scalar is, where YAML 1.1, YAML 1.2 and a reader agree; a surprise where they don't."""
    first = text[:1]
    if first.isdigit() or first in ("-", "+", "."):
        return _number(text) or _surprising_number(text) or text
    folded = text.lower()
    if folded in ("true", "false") and text in (folded, folded.upper(), folded.capitalize()):
        return folded == "true"
    if text in ("", "null", "Null", "NULL"):
        return None
    if text == "~":
        return _Surprise(text, "`~` means null in YAML; quote it ('~') or write null")
    if folded in _FALSE_WORDS or folded in _TRUE_WORDS:
        meant = "false" if folded in _FALSE_WORDS else "true"
        return _Surprise(text, f"`{text}` means {meant} in YAML 1.1; quote it ('{text}') or write {meant}")
    return text


def _surprising_number(text: str) -> _Surprise | None:
    """A scalar that some YAML reads as a number or date other than the text says."""
    meaning = None
    if _NO_NUMBER.fullmatch(text):
        meaning = "is a number that is none in YAML"
    elif _OTHER_BASE.fullmatch(text):
        meaning = "is a number in another base in YAML"
    elif _LEADING_ZERO.fullmatch(text):
        meaning = "starts with a zero, octal in YAML 1.1"
    elif _BASE_60.fullmatch(text):
        meaning = "is a number in base 60 in YAML 1.1"
    elif _DATE.fullmatch(text):
        meaning = "is a date in YAML"
    elif _LIKE_A_NUMBER.fullmatch(text):
        meaning = "is a number that can be written in several ways in YAML"
    if meaning is None:
        return None
    shown = show(text)
    plain = "" if "date" in meaning else " or write it in plain digits"
    return _Surprise(text, f"`{shown}` {meaning}; quote it ('{shown}'){plain}")


def _line(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.line + 1


class _BadYamlError(Exception):
    """A construct that a manifest can't have; ``line`` from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Lines(list["_Value"]):
    """A YAML list that knows the line of each item."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read yet."""

    line: int
    anchor: str | None
    items: _Lines | None = None
    object: _Object | None = None
    key: _Key | None = None
    key_line: int = 0
    merges: list[_Value] = field(default_factory=list)


class _YamlDocuments:
    """Builds values from the parser's events.

    From events rather than nodes: they are ten times faster to get, know every line, and leave nesting, duplicate keys,
    tags and aliases to us; nothing is constructed but text, lists and mappings.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.written = 0
        """Values written in the file, by which its aliases are measured."""
        self._aliased = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Value] = {}

    def documents(self) -> Iterator[tuple[_Value, int]]:
        """Each document's value and line; raises _BadYamlError, _TooMuchError and yaml.YAMLError."""
        root: _Value = None
        root_line = 1
        for event in yaml.parse(self.text, Loader=_Loader):
            kind = type(event)
            if isinstance(event, yaml.ScalarEvent):
                value, line = self._scalar(event), _line(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event, isinstance(event, yaml.MappingStartEvent))
                continue
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                value, line = self._end()
            elif isinstance(event, yaml.AliasEvent):
                value, line = self._alias(event), _line(event)
            else:
                if kind is yaml.DocumentStartEvent:
                    self._anchors.clear()
                    root_line = _line(event)
                elif kind is yaml.DocumentEndEvent:
                    yield root, root_line
                continue
            self.written += 1
            if self._open:
                self._add(value, event, line)
            else:
                root = value

    def _scalar(self, event: yaml.ScalarEvent) -> _Value:
        tag = event.tag
        value: _Value = event.value
        if tag is None:
            if not event.style:
                value = _plain_scalar(event.value)
        elif tag not in ("!", _TAG + "str"):
            raise _BadYamlError(_line(event), f"tags such as `{show(tag)}` have no meaning in a manifest")
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, mapping: bool) -> None:
        line = _line(event)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise _BadYamlError(line, f"tags such as `{show(str(event.tag))}` have no meaning in a manifest")
        if len(self._open) >= _MAX_DEPTH:
            raise _BadYamlError(line, "nested too deeply")
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)  # not known inside itself: nothing can contain itself
        opened = _Open(line=line, anchor=event.anchor)
        if mapping:
            opened.object = _Object(line=line)
        else:
            opened.items = _Lines()
        self._open.append(opened)

    def _end(self) -> tuple[_Value, int]:
        """The innermost open list or mapping, now complete, and the line it began on."""
        closed = self._open.pop()
        value: _Value = closed.items
        if closed.object is not None:
            self._merge(closed.object, closed)
            self._find_duplicates(closed.object)
            value = closed.object
        if closed.anchor is not None:
            self._anchors[closed.anchor] = value
        return value, closed.line

    def _alias(self, event: yaml.AliasEvent) -> _Value:
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            raise _BadYamlError(_line(event), f"`*{show(anchor)}` refers to nothing before it")
        return self._anchors[anchor]

    def _add(self, value: _Value, event: yaml.Event, line: int) -> None:
        """Put a value where it belongs in the innermost open list or mapping."""
        parent = self._open[-1]
        if parent.items is not None:
            parent.items.append(value)
            parent.items.lines.append(line)
        elif parent.key is None:
            parent.key_line = line
            parent.key = self._as_key(value, event, line)
        elif parent.object is not None:
            if parent.key is _MERGE_KEY:
                parent.merges.append(value)
            else:
                parent.object.pairs.append((parent.key, value, parent.key_line))
            parent.key = None

    def _as_key(self, value: _Value, event: yaml.Event, line: int) -> _Key:
        if isinstance(value, _Object | list):
            raise _BadYamlError(line, "a key must be plain text, not a list or mapping")
        if isinstance(value, str):
            plain = isinstance(event, yaml.ScalarEvent) and not event.style and event.tag is None
            return _MERGE_KEY if plain and value == "<<" else _text_key(value)
        if isinstance(value, _Surprise):
            return _Key(value.text, value.reason)
        if isinstance(value, _Number):
            return _Key(value.text, f"the key `{show(value.text)}` is a number in YAML; quote it ('{value.text}')")
        text = event.value if isinstance(event, yaml.ScalarEvent) else "null" if value is None else str(value).lower()
        return _Key(text, f"the key `{show(text)}` is {_kind(value)} in YAML; quote it ('{show(text)}')")

    def _merge(self, target: _Object, opened: _Open) -> None:
        """YAML's merge key: what the mapping says itself wins, then what comes first."""
        if not opened.merges:
            return
        have = {key.text for key, _, _ in target.pairs}
        for merged in opened.merges:
            for source in merged if isinstance(merged, list) else [merged]:
                if not isinstance(source, _Object):
                    raise _BadYamlError(opened.line, f"`<<` takes a mapping or a list of them, not {_describe(source)}")
                self._aliased += len(source.pairs)
                if self._aliased > _MAX_ALIASED:
                    raise _TooMuchError
                fresh = [pair for pair in source.pairs if pair[0].text not in have]
                have.update(pair[0].text for pair in fresh)
                target.pairs += fresh
                target.duplicates += source.duplicates

    def _find_duplicates(self, value: _Object) -> None:
        if len({key.text for key, _, _ in value.pairs}) == len(value.pairs):
            return
        seen: set[str] = set()
        for key, _, line in value.pairs:
            if key.text in seen:
                value.duplicates.append((key.text, line))
            seen.add(key.text)


_TOP_KEYS = ("cluster", "defaults", "topics")
_DEFAULT_FIELDS = tuple(name for name in FIELDS if name != "topic")


def _read_yaml(text: str, report: _Report) -> None:
    source = _YamlDocuments(text)
    documents: list[tuple[_Value, int]] = []
    try:
        _parse_yaml(source, documents, report)
        reader = _Reader(report, visits=source.written + _MAX_ALIASED)
        for value, line in documents:
            _yaml_document(value, line, reader)
    except _TooMuchError:
        report.error(None, f"its aliases, merge keys and defaults stand for more than {_MAX_ALIASED:,} values")


def _parse_yaml(source: _YamlDocuments, documents: list[tuple[_Value, int]], report: _Report) -> None:
    """Add what ``source`` holds to ``documents``, up to the first error, which is reported."""
    try:
        for document in source.documents():
            documents.append(document)
    except _BadYamlError as error:
        report.error(error.line, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        report.error(mark.line + 1 if mark else None, f"not valid YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        report.error(_line_of_bad_character(source.text), f"not valid YAML: {_reason_of_bad_character(error)}")


def _line_of_bad_character(text: str) -> int | None:
    match = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return None if match is None else text.count("\n", 0, match.start()) + 1


def _reason_of_bad_character(error: yaml.YAMLError) -> str:
    return show(str(error).split("\n", maxsplit=1)[0])


def _yaml_document(value: _Value, line: int, reader: _Reader) -> None:
    if value is None:
        return
    if not isinstance(value, _Object):
        message = f"must be a mapping with `topics` and perhaps `cluster` and `defaults`, not {_describe(value)}"
        reader.report.error(line, message)
        return
    reader.duplicates(value, value.line)
    top = {key.text: (item, at) for key, item, at in value.pairs}
    for name, (_, at) in top.items():
        if name not in _TOP_KEYS:
            reader.report.error(at, f"unknown key `{show(name)}`; {nearest(name, _TOP_KEYS)}")
    defaults = _yaml_defaults(top, reader)
    if "topics" not in top:
        reader.report.error(value.line, "`topics` is missing")
        return
    topics, at = top["topics"]
    if topics is not None and not isinstance(topics, list):
        reader.report.error(at, f"`topics` must be a list, not {_describe(topics)}")
        return
    lines = topics.lines if isinstance(topics, _Lines) else []
    for item, at in zip(topics or [], lines, strict=True):
        reader.visit(1)
        if isinstance(item, _Object):
            entry = reader.entry(item, item.line)
            _inherit(entry, defaults, reader)
            reader.row(entry, item.line)
        else:
            reader.report.error(at, f"each of `topics` must be a mapping with a `topic`, not {_describe(item)}")


def _yaml_defaults(top: Mapping[str, tuple[_Value, int]], reader: _Reader) -> _Entry:
    """`defaults` and the document's `cluster` as one entry."""
    defaults = _Entry()
    value, line = top.get("defaults", (None, 0))
    if isinstance(value, _Object):
        defaults = reader.entry(value, line, _DEFAULT_FIELDS)
    elif value is not None:
        reader.report.error(line, f"`defaults` must be a mapping, not {_describe(value)}")
    cluster, line = top.get("cluster", (None, 0))
    if cluster is not None:
        if "cluster" in defaults.given:
            reader.report.error(line, "`cluster` is given here and in `defaults`; say it once")
        defaults.given.add("cluster")
        defaults.cluster = reader.text("cluster", cluster, line)
        if defaults.cluster is None:
            defaults.failed.add("cluster")
            defaults.wrong = True
    return defaults


def _inherit(entry: _Entry, defaults: _Entry, reader: _Reader) -> None:
    """Fill what the entry doesn't say from the defaults.

    A null of its own takes a default count or owner away; configs and labels are joined key by key; counts and
    assignments exclude each other (C1), so that one given by the topic drops the default of the other.
    """
    counts = ("num_partitions", "replication_factor")
    own_counts = any(getattr(entry, name) is not None for name in counts)
    for name in ("state", "owner", *counts, "assignments"):
        excluded = (name in counts and entry.assignments is not None) or (name == "assignments" and own_counts)
        if name not in entry.given and not excluded:
            setattr(entry, name, getattr(defaults, name))
    if entry.cluster is None and "cluster" not in entry.failed:
        entry.cluster = defaults.cluster
        entry.failed |= defaults.failed & {"cluster"}
    # a wrong default was reported where it stands, not at each topic
    entry.wrong = entry.wrong or defaults.wrong
    entry.configs = _joined(defaults.configs, entry.configs, reader)
    entry.labels = _joined(defaults.labels, entry.labels, reader)


def _joined(defaults: dict[str, str] | None, own: dict[str, str] | None, reader: _Reader) -> dict[str, str] | None:
    if not own:
        return own if defaults is None else defaults
    if not defaults:
        return own
    reader.visit(len(defaults))
    return {**defaults, **own}
