"""Read mappings of another tool's file key by key, so that no key is silently dropped.

Values are checked as in native files (`entries`); errors use the file's own names.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from topicledger.files.foreign.contract import Source
from topicledger.files.yaml_files import measured, open_yaml
from topicledger.manifests.files.entries import OF_TOPICS, Configs, Reader
from topicledger.manifests.files.report import Entry
from topicledger.manifests.files.values import (
    TEMPLATE,
    Lines,
    Number,
    Object,
    Surprise,
    Value,
    describe,
    named,
    plain_number,
    type_of,
)
from topicledger.model.config_texts import stored
from topicledger.text import show

_A_SLIP = 0.8
"""Lowest similarity at which an unknown key is taken for a misspelt known key."""


def _stored(name: str, text: str) -> str:
    """Return a config's value as in native files; placeholders stay, as `Fields` reports them itself."""
    return text if TEMPLATE.search(text) else stored(name, text)


_OF_TOPICS = replace(OF_TOPICS, stored=_stored)
Handle = Callable[[Value, int, Reader], None]


class YamlFile:
    """A file's YAML documents."""

    def __init__(self, source: Source) -> None:
        self.report = source.report
        self._documents: list[tuple[Value, int]] = []
        self._reader = Reader(source.report)
        with measured(source.report):
            self._documents, self._reader = open_yaml(source.text, source.report)

    def each(self, handle: Handle) -> None:
        """Call ``handle`` with each document that isn't empty, its line, and the reader of its values."""
        with measured(self.report):
            for value, line in self._documents:
                if value is not None:
                    handle(value, line, self._reader)


class Fields:
    """The keys of a mapping: each can be taken once, and `rest` handles those not taken."""

    def __init__(self, value: Object, path: str, reader: Reader, line: int) -> None:
        self.path = path
        self.line = value.line or line
        self._reader = reader
        reader.visit(len(value.pairs))
        reader.duplicates(value, self.line)
        self._pairs = {key.text: (item, at or self.line) for key, item, at in value.pairs}
        self._known: list[str] = []

    def name(self, key: str) -> str:
        """Return a key with its path."""
        return f"{self.path}.{show(key)}" if self.path else show(key)

    def __contains__(self, key: str) -> bool:
        return key in self._pairs

    def is_mapping(self, key: str) -> bool:
        """Whether the key's value is a mapping."""
        return isinstance(self._pairs.get(key, (None, 0))[0], Object)

    def visit(self, count: int) -> None:
        """Count values made from this mapping; raises TooMuchError above the limit."""
        self._reader.visit(count)

    def error(self, key: str, line: int, reason: str) -> None:
        """Report an error in a key's value."""
        self._reader.report.error(line, f"`{self.name(key)}` {reason}")

    def take(self, key: str) -> tuple[Value, int] | None:
        """Take a key's value and its line; None if it is missing or null."""
        self._known.append(key)
        value, line = self._pairs.pop(key, (None, 0))
        if isinstance(value, list):
            self.visit(len(value))
        return None if value is None else (value, line)

    def text(self, key: str, *, required: bool = False) -> str | None:
        """Take a string; if it is required, it must not be empty."""
        found = self.take(key)
        if found is None or (required and found[0] == ""):
            if required:
                self.error(key, self.line, "is missing")
            return None
        text = self._reader.text(self.name(key), *found)
        return self._rendered(key, text, found[1])

    def text_or(self, key: str, default: str) -> str:
        """Take a string, which must not be empty; return `default` if it is missing or null."""
        line = self._pairs.get(key, (None, self.line))[1]
        text = self.text(key)
        if text == "":
            self.error(key, line, f"is empty; without it, {show(default)} is meant")
        return default if text is None else text

    def scalar(self, key: str, *, required: bool = False) -> str | None:
        """Take a string, or a number or boolean as written; if it is required, it must not be empty."""
        found = self.take(key)
        if found is None or (required and found[0] == ""):
            if required:
                self.error(key, self.line, "is missing" if found is None else "is empty")
            return None
        value, line = found
        if isinstance(value, Number):
            return value.text
        if isinstance(value, bool):
            return "true" if value else "false"
        return self._rendered(key, self._reader.text(self.name(key), value, line), line)

    def count(self, key: str, *, required: bool = False) -> int | None:
        """Take an integer, which may be quoted."""
        found = self.take(key)
        if found is None:
            if required:
                self.error(key, self.line, "is missing")
            return None
        value, line = found
        if isinstance(value, str):
            value = plain_number(value.strip()) or value
        return self._reader.integer(f"`{self.name(key)}`", value, line)

    def number(self, key: str) -> float | None:
        """Take a number, which may be quoted."""
        found = self.take(key)
        if found is None:
            return None
        value, line = found
        if isinstance(value, str):
            value = plain_number(value.strip()) or value
        return self._reader.number(f"`{self.name(key)}`", value, line)

    def configs(self, key: str, *, joins_lists: bool = False, also: Collection[str] = ()) -> dict[str, str] | None:
        """Take a mapping of configs, like `texts`, with the checks of native files. `also`: names of the tool's own."""
        of = replace(_OF_TOPICS, known=(*_OF_TOPICS.known, *also)) if also else _OF_TOPICS
        return self.texts(key, joins_lists=joins_lists, of=of)

    def texts(self, key: str, *, joins_lists: bool = False, of: Configs | None = None) -> dict[str, str] | None:
        """Take a mapping to strings; numbers and booleans keep the text as written.

        `joins_lists`: join lists of them with commas, as the tool itself does. `of`: as `Reader.texts` has it.
        """
        found = self.take(key)
        if found is None:
            return None
        value, line = found
        if joins_lists and isinstance(value, Object):
            self.visit(sum(len(item) for _, item, _ in value.pairs if isinstance(item, list)))
            pairs = [(name, _joined(item), at) for name, item, at in value.pairs]
            value = Object(pairs=pairs, duplicates=value.duplicates, line=value.line)
        texts = self._reader.texts(self.name(key), value, line, of)
        for name, text in (texts or {}).items():
            self._rendered(f"{key}`: `{name}", text, line)
        return texts

    def mapping(self, key: str, *, required: bool = False) -> Fields | None:
        """Take the fields of a mapping."""
        found = self.take(key)
        if found is None:
            if required:
                self.error(key, self.line, "is missing")
            return None
        value, line = found
        if isinstance(value, Object):
            return Fields(value, self.name(key), self._reader, line)
        self.error(key, line, f"must be a mapping, not {describe(value)}")
        return None

    def items(self, key: str) -> list[tuple[Value, int]]:
        """Take a list's items with their lines."""
        found = self.take(key)
        if found is None:
            return []
        value, line = found
        if not isinstance(value, list):
            self.error(key, line, f"must be a list, not {describe(value)}")
            return []
        return list(zip(value, value.lines if isinstance(value, Lines) else [line] * len(value), strict=True))

    def names(self, key: str, of: str = "names") -> list[str]:
        """Take a list of strings; `of` describes them in errors."""
        found = []
        for each, line in self.items(key):
            if isinstance(each, str):
                found.append(each)
            else:
                self.error(key, line, f"must hold {of}, not {describe(each)}")
        return found

    def others(self) -> list[tuple[str, int]]:
        """Return the keys that weren't taken, with their lines, in the file's order."""
        return [(key, line) for key, (_, line) in self._pairs.items()]

    def leave_out(self, keys: Iterable[str], what: str) -> None:
        """List these keys as unsupported if they are present."""
        for key in keys:
            self._known.append(key)
            if key in self._pairs:
                self._reader.report.leave_out(self._pairs.pop(key)[1], self.name(key), what)

    def rest(self) -> None:
        """List the keys that weren't taken as unsupported; a misspelt key is an error, since it has an effect."""
        for key, line in self.others():
            near = difflib.get_close_matches(key, self._known, n=1, cutoff=_A_SLIP)
            if near:
                self.error(key, line, f"is unknown; did you mean `{near[0]}`?")
            else:
                self._reader.report.leave_out(line, self.name(named(key)), "an unknown key")
        self._pairs.clear()

    def _rendered(self, key: str, text: str | None, line: int) -> str | None:
        if text is not None and TEMPLATE.search(text):
            self.error(key, line, f'is the placeholder "{show(text)}"; render the template first')
            return None
        return text


def _joined(value: Value) -> Value:
    """Join a list of strings, numbers and booleans into one string; other values stay unchanged, to be refused."""
    if not isinstance(value, list) or any(isinstance(each, Object | list | Surprise) or each is None for each in value):
        return value
    texts = [each.text if isinstance(each, Number) else each for each in value]
    return ",".join(("true" if each else "false") if isinstance(each, bool) else str(each) for each in texts)


def document_fields(value: Value, line: int, reader: Reader, what: str) -> Fields | None:
    """Return the fields of a document, which must be a mapping; ``what`` describes it in errors."""
    if isinstance(value, Object):
        return Fields(value, "", reader, line)
    reader.report.error(line, f"must be a mapping, {what}, not {type_of(value)}")
    return None


class TopicRow:
    """A topic that becomes a row if no errors were reported since it was begun."""

    def __init__(self, reader: Reader, line: int) -> None:
        self.entry = Entry()
        self.line = line
        self._report = reader.report
        self._errors = reader.report.errors

    def add(self) -> None:
        """Report the row; without an owner, a label `owner` is its owner."""
        entry = self.entry
        if entry.owner is None and entry.labels:
            entry.owner = entry.labels.get("owner")
        if self._report.errors == self._errors:
            self._report.row(entry, self.line)


def yaml_reader(handle_all: Callable[[Sequence[YamlFile], str | None], None]) -> Callable[..., None]:
    """Return a format's `read` for a function of parsed YAML files."""

    def read(sources: Sequence[Source], cluster: str | None) -> None:
        handle_all([YamlFile(source) for source in sources], cluster)

    return read
