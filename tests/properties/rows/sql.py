"""Conditions and values in SQL, as far as the ledger writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.properties.rows.columns import Column, case, literal, named

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\]|\\.)*')|(?P<number>-?\d+)|(?P<word>[A-Za-z_][\w.]*)|(?P<sign><=>|<>|<=|>=|[()=<>,+-]))"
)


@lru_cache(10_000)
def parse(text: str) -> Column:
    """The column that an expression describes."""
    found = _Parser(text)
    column = found.any_of()
    assert found.kind is None, f"not understood: {text}"
    return column


class _Parser:
    """Recursive descent: OR, AND, NOT, comparisons, values."""

    def __init__(self, text: str) -> None:
        self._source = text
        self._tokens: list[tuple[str, str, str]] = []
        place = 0
        text = text.strip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            assert match is not None, f"not understood: {text[place:]}"
            assert match.lastgroup is not None
            word = match[match.lastgroup]
            self._tokens.append((match.lastgroup, word, word.upper()))
            place = match.end()
        self._next = 0

    @property
    def kind(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def _is(self, *words: str) -> bool:
        """Whether these come next, and then takes them."""
        place = self._next
        if place + len(words) > len(self._tokens) or self._tokens[place][2] != words[0]:
            return False
        if any(self._tokens[place + n][2] != word for n, word in enumerate(words)):
            return False
        self._next += len(words)
        return True

    def _take(self) -> tuple[str, str]:
        self._next += 1
        return self._tokens[self._next - 1][:2]

    def any_of(self) -> Column:
        found = self._all_of()
        while self._is("OR"):
            found = found | self._all_of()
        return found

    def _all_of(self) -> Column:
        found = self._condition()
        while self._is("AND"):
            found = found & self._condition()
        return found

    def _condition(self) -> Column:
        if self._is("NOT"):
            return ~self._condition()
        found = self._sum()
        if self._is("IS", "NOT", "NULL"):
            return found.isNotNull()
        if self._is("IS", "NULL"):
            return found.isNull()
        if self._is("IN"):
            return found.isin(*self._list())
        for sign, compare in _SIGNS.items():
            if self._is(sign):
                return compare(found, self._sum())
        return found

    def _sum(self) -> Column:
        found = self._value()
        while True:
            if self._is("+"):
                found = found + self._value()
            elif self._is("-"):
                found = found - self._value()
            else:
                return found

    def _list(self) -> list[Column]:
        assert self._is("(")
        found = [self.any_of()]
        while self._is(","):
            found.append(self.any_of())
        assert self._is(")")
        return found

    def _value(self) -> Column:
        if self._is("("):
            found = self.any_of()
            assert self._is(")"), self._source
            return found
        if self._is("CASE"):
            return self._cases()
        kind, text = self._take()
        if kind == "text":
            return literal(_unquoted(text))
        if kind == "number":
            return literal(int(text))
        upper = text.upper()
        if upper == "NULL":
            return literal(None)
        if upper in ("TRUE", "FALSE"):
            return literal(upper == "TRUE")
        if upper == "TIMESTAMP":
            moment = _unquoted(self._take()[1]).removesuffix(" UTC")
            return literal(datetime.fromisoformat(moment).replace(tzinfo=UTC))
        if upper == "MAP" and self._is("("):
            parts: list[Column] = []
            while not self._is(")"):
                parts.append(self.any_of())
                self._is(",")
            return _map(parts)
        return named(text)

    def _cases(self) -> Column:
        whens: list[Any] = []
        while self._is("WHEN"):
            condition = self.any_of()
            assert self._is("THEN")
            whens.append((condition.of, self.any_of().of))
        found = case(whens)
        if self._is("ELSE"):
            found = found.otherwise(self.any_of())
        assert self._is("END")
        return found


def _map(parts: list[Column]) -> Column:
    return Column(
        lambda row, rows: {
            key.of(row, rows): value.of(row, rows) for key, value in zip(parts[::2], parts[1::2], strict=True)
        }
    )


def _unquoted(text: str) -> str:
    text = text[1:-1].replace("\\u0024", "$")
    return re.sub(r"\\(.)", r"\1", text)


_SIGNS = {
    "<=>": lambda one, two: one.eqNullSafe(two),
    "<>": lambda one, two: one != two,
    "<=": lambda one, two: one <= two,
    ">=": lambda one, two: one >= two,
    "=": lambda one, two: one == two,
    "<": lambda one, two: one < two,
    ">": lambda one, two: one > two,
}
