"""JSON manifests: a list of topics and other resources, or one of them per line.

The list is decoded element by element, since the decoder itself doesn't report the line on which an entry begins.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from topicledger.manifests.files.entries import Reader, Report
from topicledger.manifests.files.values import Number, Object, Surprise, Value, plain_number, text_key, type_of
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

_JSON_BLANKS = re.compile(r"[ \t\r\n]*")


def json_reason(error: json.JSONDecodeError | RecursionError) -> str:
    """Return the description of a decoding error."""
    return "nested too deeply" if isinstance(error, RecursionError) else error.msg


def read_json(text: str, report: Report) -> None:
    """Report the rows and errors of a JSON manifest, which is a list or has one object per line."""
    reader = Reader(report)
    entries = _json_array(text, report) if text.lstrip()[:1] == "[" else _json_lines(text, report)
    for value, line in entries:
        if not isinstance(value, Object):
            what = any_of(["a topic", *(kind.names.with_article for kind in KINDS)])
            report.error(line, f"must be an object with the fields of {what}, not {type_of(value)}")
            continue
        kind = next((kind for kind in KINDS if kind.entries.is_one(value)), None)
        if kind is None:
            reader.row(reader.entry(value, line), line)
        else:
            kind.entries.read(value, line, reader)


def _json_lines(text: str, report: Report) -> Iterator[tuple[Value, int]]:
    """Yield one value per line; a broken line doesn't stop the others."""
    for line, written in enumerate(text.split("\n"), start=1):
        written = written.strip(" \t\r")
        if not written:
            continue
        try:
            yield JSON.decode(written), line
        except (json.JSONDecodeError, RecursionError) as error:
            reason = f"not valid JSON: {json_reason(error)}"
            report.error(line, f"{reason} (one object per line, or all objects in one [list])")


def _json_array(text: str, report: Report) -> Iterator[tuple[Value, int]]:
    """Yield the elements of the JSON array ``text``, each with its line."""
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
            value, end = JSON.raw_decode(text, position)
        except json.JSONDecodeError as error:
            report.error(error.lineno, f"not valid JSON: {error.msg}")
            return
        except RecursionError as error:
            report.error(begin, f"not valid JSON: {json_reason(error)}")
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
