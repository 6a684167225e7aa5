"""Convert YAML text to values with their lines, and refuse what YAML's versions read differently.

Safe for untrusted text: no tags, limited nesting, and a limit on values added by aliases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from topicledger.manifests.files.report import Report, TooMuchError, require_few
from topicledger.manifests.files.values import (
    TEMPLATE,
    TEMPLATE_HINT,
    UNUSUAL_BLANK,
    Filled,
    Key,
    Lines,
    Number,
    Object,
    Surprise,
    Value,
    describe,
    kind_of,
    named,
    plain_number,
    template_at,
    text_key,
    unusual_blank,
)
from topicledger.manifests.files.variables import VariableError, Variables
from topicledger.text import show

_MAX_DEPTH = 50


_Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_FALSE_WORDS = frozenset({"no", "off", "n"})
_TRUE_WORDS = frozenset({"yes", "on", "y"})
_OTHER_BASE = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[bB][01_]+|[oO][0-7_]+)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_LIKE_A_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9].*)?")
_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
"""A line break of YAML 1.1; editors, and the lines of our messages, count only line feeds."""
_OTHER_BLANK = re.compile(rf" *(\t|{UNUSUAL_BLANK})")
"""Begins a line with a blank that YAML doesn't take for one."""
_BLANK_IN_KEY = re.compile(rf"(?:\A-?|:)({UNUSUAL_BLANK})|({UNUSUAL_BLANK})\Z")
"""Matches such a blank where people separate a key from what is around it."""
_BLANK_AFTER_SIGN = re.compile(rf"[:-]({UNUSUAL_BLANK})")
_OTHER_BREAK = re.compile(r"\r(?!\n)|[\x85\u2028\u2029]")
_TAG = "tag:yaml.org,2002:"
_MERGE_KEY = Key("<<")


def _plain_scalar(text: str) -> Value:
    """Return the value of an unquoted scalar, or a surprise if YAML 1.1, YAML 1.2 and people may disagree about it."""
    first = text[:1]
    if first.isdigit() or first in ("-", "+", "."):
        return plain_number(text) or _surprising_number(text) or text
    folded = text.lower()
    if folded in ("true", "false") and text in (folded, folded.upper(), folded.capitalize()):
        return folded == "true"
    if text in ("", "null", "Null", "NULL"):
        return None
    if text == "~":
        return Surprise(text, "`~` means null in YAML; quote it ('~') or write null")
    if folded in _FALSE_WORDS or folded in _TRUE_WORDS:
        meant = "false" if folded in _FALSE_WORDS else "true"
        return Surprise(text, f"`{text}` means {meant} in YAML 1.1; quote it ('{text}') or write {meant}")
    return text


def _surprising_number(text: str) -> Surprise | None:
    """Return a surprise for a scalar that some YAML version reads as a different number or as a date."""
    meaning = None
    if _NO_NUMBER.fullmatch(text):
        meaning = "means infinity or not a number in YAML"
    elif _OTHER_BASE.fullmatch(text):
        meaning = "is a number in another base in YAML"
    elif _LEADING_ZERO.fullmatch(text):
        meaning = "starts with a zero, octal in YAML 1.1"
    elif _BASE_60.fullmatch(text):
        meaning = "is a number in base 60 in YAML 1.1"
    elif _DATE.fullmatch(text):
        meaning = "is a date in YAML"
    elif _LIKE_A_NUMBER.fullmatch(text):
        meaning = "is a number that can be written in several ways"
    if meaning is None:
        return None
    shown = show(text)
    plain = "" if "date" in meaning else " or write it in plain digits"
    return Surprise(text, f"`{shown}` {meaning}; quote it ('{shown}'){plain}")


class _BadYamlError(Exception):
    """A YAML construct that manifests can't contain; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end hasn't been read yet."""

    line: int
    anchor: str | None
    items: Lines | None = None
    object: Object | None = None
    key: Key | None = None
    key_line: int = 0
    merges: list[Value] = field(default_factory=list)


class YamlDocuments:
    """Builds values from the parser's events.

    Events are ten times faster than nodes, have all lines, and leave nesting, duplicate keys, tags and aliases to us.
    Only text, lists and mappings are constructed.
    """

    def __init__(self, text: str, *, max_aliased: int, variables: Variables | None = None) -> None:
        self.text = text
        self._variables = variables
        self.written = 0
        """Number of values written in the file, which limits the values added by aliases."""
        self._keys = 0
        """Number of those that are keys."""
        self._max_aliased = max_aliased
        self._aliased = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, Value] = {}
        self._lines: list[int] | None = None
        """The file's line of each of YAML's lines, if they differ."""
        if _OTHER_BREAK.search(text):
            self._lines = [1]
            for each in _BREAK.finditer(text):
                self._lines.append(self._lines[-1] + each[0].endswith("\n"))

    def line_at(self, line: int) -> int:
        """Return the file's line, from 1, of one of YAML's lines, from 0."""
        return line + 1 if self._lines is None else self._lines[min(line, len(self._lines) - 1)]

    def _line(self, event: yaml.Event) -> int:
        return 0 if event.start_mark is None else self.line_at(event.start_mark.line)

    def documents(self) -> Iterator[tuple[Value, int]]:
        """Yield each document's value and line; raises _BadYamlError, TooMuchError and yaml.YAMLError."""
        root: Value = None
        root_line = 1
        for event in yaml.parse(self.text, Loader=_Loader):
            kind = type(event)
            if isinstance(event, yaml.ScalarEvent):
                value, line = self._scalar(event), self._line(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event, isinstance(event, yaml.MappingStartEvent))
                continue
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                value, line = self._end()
            elif isinstance(event, yaml.AliasEvent):
                value, line = self._alias(event), self._line(event)
            else:
                if kind is yaml.DocumentStartEvent:
                    self._anchors.clear()
                    root_line = self._line(event)
                elif kind is yaml.DocumentEndEvent:
                    yield root, root_line
                continue
            self.written += 1
            require_few(self.written - self._keys)
            if self._open:
                self._add(value, event, line)
            else:
                root = value

    def _scalar(self, event: yaml.ScalarEvent) -> Value:
        tag = event.tag
        value: Value = event.value
        if tag is None:
            if not event.style:
                value = self._plain(event.value)
        elif tag not in ("!", _TAG + "str"):
            raise _BadYamlError(
                self._line(event), "a tag (`!name`) is not allowed in a manifest; quote text that begins with !"
            )
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _plain(self, text: str) -> Value:
        if self._variables is None or "${" not in text:
            return _plain_scalar(text)
        try:
            return Filled(self._variables.replaced(text))
        except VariableError as error:
            return Surprise(text, str(error))

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, mapping: bool) -> None:
        line = self._line(event)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise _BadYamlError(line, "a tag (`!name`) is not allowed in a manifest")
        if len(self._open) >= _MAX_DEPTH:
            raise _BadYamlError(line, "nested too deeply")
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)  # unknown inside itself, so that nothing can contain itself
        opened = _Open(line=line, anchor=event.anchor)
        if mapping:
            opened.object = Object(line=line)
        else:
            opened.items = Lines()
        self._open.append(opened)

    def _end(self) -> tuple[Value, int]:
        """Close the innermost open list or mapping; return it and the line on which it began."""
        closed = self._open.pop()
        value: Value = closed.items
        if closed.object is not None:
            self._merge(closed.object, closed)
            self._find_duplicates(closed.object)
            value = closed.object
        if closed.anchor is not None:
            self._anchors[closed.anchor] = value
        return value, closed.line

    def _alias(self, event: yaml.AliasEvent) -> Value:
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            raise _BadYamlError(self._line(event), f"`*{named(anchor)}` is an alias without an anchor before it")
        return self._anchors[anchor]

    def _add(self, value: Value, event: yaml.Event, line: int) -> None:
        """Add a value to the innermost open list or mapping."""
        parent = self._open[-1]
        if parent.items is not None:
            parent.items.append(value)
            parent.items.lines.append(line)
        elif parent.key is None:
            self._keys += 1
            parent.key_line = line
            parent.key = self._as_key(value, event, line)
        elif parent.object is not None:
            if parent.key is _MERGE_KEY:
                parent.merges.append(value)
            else:
                parent.object.pairs.append((parent.key, value, parent.key_line))
            parent.key = None

    def _as_key(self, value: Value, event: yaml.Event, line: int) -> Key:
        text = event.value if isinstance(event, yaml.ScalarEvent) and not event.style else ""
        if self._variables is not None and "${" in text:
            return Key(text, f"the key `{show(text)}` has a variable; only values can have one")
        if isinstance(value, Object | list):
            raise _BadYamlError(line, "a key must be plain text, not a list or mapping")
        if isinstance(value, str):
            plain = isinstance(event, yaml.ScalarEvent) and not event.style and event.tag is None
            if plain and not value.isascii() and (found := _BLANK_IN_KEY.search(value)):
                raise _BadYamlError(line, _no_blank(found[1] or found[2]))
            return _MERGE_KEY if plain and value == "<<" else text_key(value)
        if isinstance(value, Surprise):
            return Key(value.text, value.reason)
        if isinstance(value, Number):
            return Key(value.text, f"the key `{show(value.text)}` is a number in YAML; quote it ('{value.text}')")
        text = event.value if isinstance(event, yaml.ScalarEvent) else "null" if value is None else str(value).lower()
        return Key(text, f"the key `{show(text)}` is {kind_of(value)} in YAML; quote it ('{show(text)}')")

    def _merge(self, target: Object, opened: _Open) -> None:
        """Apply YAML's merge key: the mapping's own keys take precedence, then earlier sources."""
        if not opened.merges:
            return
        have = target.names
        for merged in opened.merges:
            for source in merged if isinstance(merged, list) else [merged]:
                if not isinstance(source, Object):
                    raise _BadYamlError(opened.line, f"`<<` takes a mapping or a list of them, not {describe(source)}")
                # One is for the mapping itself, since many empty mappings take time, too.
                self._aliased += 1 + len(source.pairs) + len(source.duplicates)
                if self._aliased > self._max_aliased + self.written:
                    raise TooMuchError
                if not source.pairs:
                    continue
                fresh = [pair for pair in source.pairs if pair[0].text not in have]
                have.update(pair[0].text for pair in fresh)
                target.pairs += fresh
                target.duplicates += source.duplicates

    def _find_duplicates(self, value: Object) -> None:
        if len(value.names) == len(value.pairs):
            return
        seen: set[str] = set()
        for key, _, line in value.pairs:
            if key.text in seen:
                value.duplicates.append((key.text, line))
            seen.add(key.text)


def parse_yaml(source: YamlDocuments, documents: list[tuple[Value, int]], report: Report) -> None:
    """Add the documents of ``source`` to ``documents``, up to the first error, which is reported."""
    try:
        for document in source.documents():
            documents.append(document)
    except _BadYamlError as error:
        written = source.text.split("\n", error.line)[error.line - 1]
        report.error(error.line, _template_hint(written) or str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            report.error(None, f"not valid YAML: {error.problem or error.context}")
            return
        begun = error.context_mark or mark
        # YAML may report the line after the last one.
        lines = [*_BREAK.split(source.text, mark.line + 1), "", ""]
        hint = (
            _template_hint(lines[mark.line], mark.column)
            or _blank_hint(lines[mark.line], mark.column)
            or _character_hint(lines[begun.line], begun.column, begins=error.context)
            or _character_hint(lines[mark.line], mark.column)
        )
        if hint is None and begun.line < mark.line and (hint := _template_hint(lines[begun.line])):
            # YAML finds out at the end of what it takes for a mapping.
            mark = begun
        elif hint is None and mark.line and lines[mark.line - 1].startswith("<%"):
            # YAML takes both lines for one text.
            report.error(source.line_at(mark.line) - 1, TEMPLATE_HINT)
            return
        elif hint is None:
            # YAML has taken the key, the blank and the value for one text, and finds out after it.
            for number in range(max(begun.line - 1, 0), mark.line + 1):
                if (found := _BLANK_AFTER_SIGN.search(lines[number])) is not None:
                    report.error(source.line_at(number), _no_blank(found[1]))
                    return
        report.error(source.line_at(mark.line), hint or f"not valid YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        report.error(_line_of_bad_character(source.text), f"not valid YAML: {_reason_of_bad_character(error)}")


def _template_hint(line: str, column: int = 0) -> str | None:
    if "${" in line and "{{" not in line and "{%" not in line:
        return "not valid YAML: in { } and [ ], no text can have a variable; write each field on its own line"
    return TEMPLATE_HINT if TEMPLATE.search(line) or template_at(line, column) else None


def _blank_hint(line: str, column: int) -> str | None:
    """Return a hint for a blank other than U+0020 before or at a column at which YAML expects something else."""
    found = _OTHER_BLANK.match(line)
    if found is None or (found.start(1) > column and not line[:column].isspace()):
        return None
    if found[1] == "\t":
        return "not valid YAML: a tab; write blanks"
    return _no_blank(found[1])


def _no_blank(blank: str) -> str:
    return f"not valid YAML: {unusual_blank(blank)}; write ordinary blanks"


def _character_hint(line: str, column: int, begins: str | None = None) -> str | None:
    """Return a hint for a character that has a special meaning in YAML; `begins` is what YAML takes it for."""
    character, before = line[column : column + 1], line[:column].strip()
    if character == "\t":
        return "not valid YAML: a tab; write blanks"
    scanned = begins in ("while scanning an alias", "while scanning an anchor", "while scanning a block scalar")
    if character in ("@", "`") or (character in ("%", "?", "-") and before) or (character and scanned):
        return f"not valid YAML: text that begins with {character}; quote it"
    if character == ":" and ": " in before:
        return "not valid YAML: text with a colon and a blank; quote it"
    return None


def _line_of_bad_character(text: str) -> int | None:
    match = yaml.reader.Reader.NON_PRINTABLE.search(text)
    return None if match is None else text.count("\n", 0, match.start()) + 1


def _reason_of_bad_character(error: yaml.YAMLError) -> str:
    return show(str(error).split("\n", maxsplit=1)[0])
