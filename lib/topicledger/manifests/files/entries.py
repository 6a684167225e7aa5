"""Convert values to manifest rows: the checks of a topic's fields, the same for every format.

Every check reports an error and continues, so that all errors of a file are reported at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from topicledger.manifests.file_rows import field_reason, name_reason, value_reason
from topicledger.manifests.files.report import ELSEWHERE, Entry, Report, weight
from topicledger.manifests.files.results import FIELDS, meant
from topicledger.manifests.files.values import (
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
    removes,
    template_hint,
    unset_in,
)
from topicledger.model.config_texts import ConfigTextError, stored
from topicledger.model.topic_configs import topic_configs
from topicledger.text import show, similar

_INT32 = range(-(2**31), 2**31)
_COUNTS = {"num_partitions": 2**31, "replication_factor": 2**15}
"""Counts, and the number that they are below."""


@dataclass(frozen=True, kw_only=True)
class Configs:
    """The configs of a kind of resource."""

    stored: Callable[[str, str], str]
    """Returns the value that tables have for a config's name and text; raises ConfigTextError for a wrong text."""
    known: Collection[str] = ()
    """Names, others than which may be mistakes; empty if Kafka's names aren't known."""


OF_TOPICS = Configs(stored=stored, known=topic_configs())


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
                continue
            setattr(entry, key.text, found)
            if (reason := field_reason(key.text, found)) is not None:
                entry.lines[reason] = at or line
        return entry

    def row(self, entry: Entry, line: int) -> None:
        """Report the entry as a row if it has no errors and nothing is missing."""
        for name in ("topic", "cluster"):
            if getattr(entry, name) is None and name not in entry.failed:
                self.report.error(line, f"`{name}` is missing")
                entry.failed.add(name)
        self.require_removed(entry, line)
        if not entry.wrong:
            self.report.row(entry, line)

    def _field(self, name: str, value: Value, line: int) -> object:
        if name in _COUNTS:
            return self.integer(f"`{name}`", value, line, below=_COUNTS[name])
        if name == "assignments":
            return self.assignments(value, line)
        if name == "configs":
            return self.texts(name, value, line, OF_TOPICS)
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

    def texts(self, field_name: str, value: Value, line: int, of: Configs | None = None) -> dict[str, str] | None:
        """Read configs (`of`), or labels; numbers and booleans keep the text as written."""
        if not isinstance(value, Object):
            self.report.error(line, f"`{field_name}` must be a mapping, not {describe(value)}")
            return None
        given = [(key.text, at) for key, item, at in value.pairs if not removes(item)]
        wrong = self.duplicates(value, line)
        wrong |= of is not None and self.two_spellings(field_name, given, line)
        self.visit(len(value.pairs))
        texts: dict[str, str] = {}
        for key, item, key_line in value.pairs:
            at = key_line or line
            if key.problem is not None:
                self.report.error(at, f"`{field_name}`: {key.problem}")
                wrong = True
            elif not self._is_unicode(f"a key of `{field_name}`", key.text, at) or (
                of is not None and not self._is_config(field_name, key.text, of, at)
            ):
                wrong = True
            elif not removes(item):
                text = self._text_of(field_name, key.text, item, of, at)
                if text is None:
                    wrong = True
                else:
                    texts[key.text] = text
        self.visit(weight(texts) - len(texts))
        return None if wrong else texts

    def two_spellings(self, field_name: str, names: Sequence[tuple[str, int]], line: int) -> bool:
        """Report configs that differ only in case or separators, of which a broker knows one at most."""
        if len({config_key(name) for name, _ in names}) == len(names):
            return False
        found = False
        first: dict[str, str] = {}
        for name, at in names:
            earlier = first.setdefault(config_key(name), name)
            if earlier != name:
                both = f"`{show(earlier)}` and `{show(name)}`"
                self.report.error(at or line, f"`{field_name}`: {both} are two spellings of one config; keep one")
                found = True
        return found

    def require_removed(self, entry: Entry, line: int) -> None:
        """Report nulls that remove nothing from the entry, since it has the config in another spelling."""
        if self.removes_nothing(entry.unset.get("configs", {}), entry.configs or (), line):
            entry.failed.add("configs")

    def removes_nothing(self, unset: Mapping[str, int | None], names: Collection[str], line: int) -> bool:
        """Report nulls (`unset_in`) for other spellings of the configs that are left."""
        left = {config_key(name): name for name in names} if unset else {}
        found = False
        for name, at in unset.items():
            other = left.get(config_key(name), name)
            if at is not None and other != name:
                why = f"null removes nothing, since the config is written `{show(other)}`"
                self.report.error(at or line, f"`configs`: `{show(name)}`: {why}; write that")
                found = True
        return found

    def _is_config(self, field_name: str, name: str, of: Configs, line: int) -> bool:
        """Report a name that no config can have, and warn of an unknown one."""
        if (reason := name_reason(name)) is not None:
            self.report.error(line, f"`{field_name}`: {reason}{template_hint(name)}")
            return False
        if of.known and name not in of.known:
            hint = similar(name, of.known) or "only a newer Kafka or a fork may have it"
            self.report.warn(line, f"unknown config `{show(name)}`; {hint}")
        return True

    def _text_of(self, field_name: str, key: str, item: Value, of: Configs | None, line: int) -> str | None:
        """Return the text of a config or label, of a config as tables have it; report it if it is wrong."""
        name = f"`{field_name}`: `{show(key)}`"
        if isinstance(item, str):
            text = str(item)
            if not self._is_unicode(name, text, line):
                return None
        elif isinstance(item, bool):
            text = "true" if item else "false"
        elif isinstance(item, Number):
            text = item.text
        else:
            self.report.error(line, f"{name}{_not_a_text(key, item)}")
            return None
        if of is None:
            return text
        try:
            text = of.stored(key, text)
        except ConfigTextError as error:
            self.report.error(line, f"{name} {error}{template_hint(text)}")
            return None
        if (reason := value_reason(text)) is not None:
            self.report.error(line, f"{name} {reason}")
            return None
        return text

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
