"""JSON manifests: a list of topics and other resources, one of them per line, or a document like those of YAML.

Lists are decoded element by element, since the decoder itself doesn't report the line on which an entry begins.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import cast

from topicledger.files.documents import ENTRY_FIELDS, SECTIONS, read_document
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.overriding import Outer, on_clusters
from topicledger.manifests.files.report import Report, TooMuchError, require_few
from topicledger.manifests.files.values import (
    TEMPLATE_HINT,
    UNUSUAL_BLANK,
    Lines,
    Number,
    Object,
    Surprise,
    Value,
    plain_number,
    template_at,
    text_key,
    type_of,
    unusual_blank,
)
from topicledger.resources.registry import KINDS
from topicledger.text import any_of, show


def _json_number(text: str) -> Number | Surprise:
    reason = f"`{show(text)}` can be written in several ways; write plain digits or a string"
    return plain_number(text) or Surprise(text, reason)


def _json_constant(text: str) -> Surprise:
    return Surprise(text, f"`{text}` is not a JSON value; write a string")


def _json_object(pairs: list[tuple[str, Value]]) -> Object:
    value = Object(pairs=[(text_key(key), item, 0) for key, item in pairs])
    counts = Counter(key for key, _ in pairs)
    if len(counts) != len(pairs):
        value.duplicates = [(key, 0) for key, count in sorted(counts.items()) if count > 1]
    return value


JSON = json.JSONDecoder(
    object_pairs_hook=_json_object, parse_float=_json_number, parse_int=_json_number, parse_constant=_json_constant
)
"""Decodes JSON text to values, including maps in cells of CSV manifests."""

_BLANKS = " \t\r\n"
_JSON_BLANKS = re.compile(f"[{_BLANKS}]*")
_MAX_MADE = 5_000_000
"""Number of values that clusters, defaults and shorthands may add to those written in a JSON file."""
_ONLY_IN_DOCUMENTS = ("topics", "defaults", *SECTIONS)
_LIKE_A_DOCUMENT = re.compile(rf'"(?:{"|".join(map(re.escape, _ONLY_IN_DOCUMENTS))})"\s*:\s*[\[{{]')
"""In a text whose first object is broken; the error is then reported once, and not for each line."""


def json_reason(error: json.JSONDecodeError | RecursionError) -> str:
    """Return the description of a decoding error."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    begin, end = error.pos - error.colno + 1, error.doc.find("\n", error.pos)
    line = error.doc[begin : None if end < 0 else end]
    if template_at(line, error.colno - 1):
        return TEMPLATE_HINT
    here = error.doc[error.pos : error.pos + 1]
    return f"{error.msg}: here is {unusual_blank(here)}" if re.fullmatch(UNUSUAL_BLANK, here) else error.msg


def read_json(text: str, report: Report) -> None:
    """Report the rows and errors of a JSON manifest: a list, objects one after the other, or a document as in YAML."""
    # No value takes fewer than two characters.
    report.visits = 2 * len(text) + _MAX_MADE
    reader = Reader(report)
    try:
        require_few(most_values(text))
        if text.lstrip(_BLANKS)[:1] == "[":
            _read_entries(_Scanner(text, report).entries(), reader)
        elif _is_document(text):
            document = _Scanner(text, report).document()
            if document is not None:
                read_document(document, document.line, reader)
        else:
            _read_entries(_json_values(text, report), reader)
    except TooMuchError as error:
        made = f"its clusters, defaults and shorthands expand to more than {_MAX_MADE:,} values"
        report.error(None, str(error) or made)


def most_values(text: str) -> int:
    """Return how many values a JSON text has at most: signs in strings count, too. The decoder can't be stopped."""
    return sum(map(text.count, ",[{"))


def _read_entries(entries: Iterator[tuple[Value, int]], reader: Reader) -> None:
    outer = Outer()
    for value, line in entries:
        if not isinstance(value, Object):
            what = any_of(["a topic", *(kind.names.with_article for kind in KINDS)])
            reader.report.error(line, f"must be an object with the fields of {what}, not {type_of(value)}")
            continue
        kind = next((kind for kind in KINDS if kind.entries.is_one(value)), None)
        read = partial(reader.entry, line=line, known=ENTRY_FIELDS) if kind is None else None
        named_by = () if kind is None else kind.table.key[1:]
        for cluster, each in on_clusters(value, line, outer, reader, read=read, named_by=named_by):
            if kind is None:
                entry = reader.entry(each, line, ENTRY_FIELDS)
                if entry.cluster is None and "cluster" not in entry.failed:
                    entry.cluster = cluster
                reader.row(entry, line)
            else:
                kind.entries.read(each, line, reader, cluster)


def _is_document(text: str) -> bool:
    """Whether the first object of a text is a document rather than an entry."""
    try:
        value, _ = JSON.raw_decode(text.lstrip(_BLANKS))
    except (json.JSONDecodeError, RecursionError):
        return bool(_LIKE_A_DOCUMENT.search(text))
    return isinstance(value, Object) and any(key.text in _ONLY_IN_DOCUMENTS for key, _, _ in value.pairs)


def _json_values(text: str, report: Report) -> Iterator[tuple[Value, int]]:
    """Yield each value with its line; a broken line doesn't stop the others, if each value has its own line."""
    begin, line, sound = 0, 1, True
    while begin < len(text):
        value, end, error = _decoded(text, begin, several_lines=sound)
        if error is not None:
            sound = False
            report.error(line, f"not valid JSON: {error} (one object per line, or all objects in one [list])")
        elif value is not _NOTHING:
            yield cast(Value, value), line
        begin, line = end + 1, line + text.count("\n", begin, end) + 1


_NOTHING = object()


def _decoded(text: str, begin: int, *, several_lines: bool) -> tuple[object, int, str | None]:
    """Return the value that begins on the line at `begin`, the end of its last line, and the error in the first one."""
    end = _end_of_line(text, begin)
    written = text[begin:end].strip(" \t\r")
    if not written:
        return _NOTHING, end, None
    try:
        return JSON.decode(written), end, None
    except (json.JSONDecodeError, RecursionError) as error:
        reason = json_reason(error)
    if several_lines:
        with suppress(json.JSONDecodeError, RecursionError):
            value, stop = JSON.raw_decode(text, text.index(written, begin))
            last = _end_of_line(text, stop)
            if not text[stop:last].strip(" \t\r"):
                return value, last, None
    return None, end, reason


def _end_of_line(text: str, begin: int) -> int:
    end = text.find("\n", begin)
    return len(text) if end < 0 else end


class _Scanner:
    """Decodes JSON text part by part, since the decoder doesn't report lines."""

    def __init__(self, text: str, report: Report) -> None:
        self._text, self._report = text, report
        self._position, self._line, self._counted = 0, 1, 0
        self._broken = False

    def entries(self) -> Iterator[tuple[Value, int]]:
        """Yield the elements of the array that the text is, each with its line."""
        self._skip()
        yield from self._array()
        self._end("]")

    def document(self) -> Object | None:
        """Return the object that the text is, with lines of fields and of elements in lists; None if it is broken."""
        self._skip()
        document = Object(line=self._line_here())
        seen: set[str] = set()
        for _ in self._parts("}"):
            line, key = self._line_here(), self._value()
            self._skip()
            if self._broken or not isinstance(key, str) or not self._take(":"):
                self._fail("expected a name, a colon and a value")
                break
            self._skip()
            value = self._list() if self._here() == "[" else self._value()
            if key in seen:
                document.duplicates.append((key, line))
            seen.add(key)
            document.pairs.append((text_key(key), value, line))
        self._end("}")
        return None if self._broken else document

    def _list(self) -> Lines:
        """Return the array here, with the lines of its elements."""
        values = Lines()
        for value, line in self._array():
            if isinstance(value, Object):
                value.line = line
            values.append(value)
            values.lines.append(line)
        return values

    def _array(self) -> Iterator[tuple[Value, int]]:
        for _ in self._parts("]"):
            line, value = self._line_here(), self._value()
            if not self._broken:
                yield value, line

    def _parts(self, close: str) -> Iterator[None]:
        """Step over the bracket here, the commas, and the bracket that closes it; the caller takes each part."""
        self._position += 1
        self._skip()
        if self._take(close):
            return
        while not self._broken:
            yield
            self._skip()
            if self._broken or self._take(close):
                return
            if not self._take(","):
                self._fail(f"expected a comma or {close}")
                return
            self._skip()
            if self._here() == close:
                self._fail(f"a comma without {'a topic' if close == ']' else 'a field'} after it")

    def _value(self) -> Value:
        try:
            value, self._position = JSON.raw_decode(self._text, self._position)
        except json.JSONDecodeError as error:
            self._fail(json_reason(error), error.lineno)
            return None
        except RecursionError as error:
            self._fail(json_reason(error))
            return None
        return cast(Value, value)

    def _end(self, close: str) -> None:
        self._skip()
        if not self._broken and self._position < len(self._text):
            self._fail(f"something follows the closing {close}")

    def _fail(self, what: str, line: int | None = None) -> None:
        """Report the first error; what follows it can't be read."""
        if not self._broken:
            self._report.error(self._line_here() if line is None else line, f"not valid JSON: {what}")
        self._broken = True

    def _here(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self, character: str) -> bool:
        found = self._here() == character
        self._position += found
        return found

    def _skip(self) -> None:
        match = _JSON_BLANKS.match(self._text, self._position)
        self._position = match.end() if match else self._position

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        return self._line
