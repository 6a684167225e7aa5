"""Columns as Python functions of a row, with SQL's null: None."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]
Value: TypeAlias = Callable[[Row, Rows], Any]
"""The value of a column in a row; of an aggregate in all the rows."""


class Struct(dict[str, Any]):
    """A struct's values by name; a map is a plain dict."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(comparable(self))


class Column:
    """An expression."""

    __slots__ = ("ascending", "explodes", "name", "nulls_first", "of", "over_rows", "whens")

    def __init__(self, of: Value, name: str = "?", whens: Sequence[tuple[Value, Value]] = ()) -> None:
        self.of = of
        self.name = name
        self.whens = whens
        self.explodes: str | None = None
        self.ascending, self.nulls_first = True, True
        self.over_rows: Callable[[Rows], Any] | None = None

    def __bool__(self) -> bool:
        raise TypeError("a Column has no truth: write & and |, not `and` and `or`")

    def _with(self, of: Value, name: str | None = None) -> Column:
        return Column(of, self.name if name is None else name)

    # -- comparisons: null if one side is

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Column:
        mine, its = self.of, column_of(other).of

        def of(row: Row, rows: Rows) -> Any:
            one, two = mine(row, rows), its(row, rows)
            return None if one is None or two is None else compare(one, two)

        return Column(of)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._compared(other, lambda one, two: one == two)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._compared(other, lambda one, two: one != two)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one < two)

    def __le__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one <= two)

    def __gt__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one > two)

    def __ge__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one >= two)

    def __add__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one + two)

    def __sub__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one - two)

    def __mul__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one * two)

    def __truediv__(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: None if two == 0 else one / two)

    # -- logic of three values

    def __and__(self, other: Any) -> Column:
        mine, its = self.of, column_of(other).of

        def of(row: Row, rows: Rows) -> Any:
            one = mine(row, rows)
            if one is False:
                return False
            two = its(row, rows)
            return False if two is False else None if one is None or two is None else True

        return Column(of)

    def __or__(self, other: Any) -> Column:
        mine, its = self.of, column_of(other).of

        def of(row: Row, rows: Rows) -> Any:
            one = mine(row, rows)
            if one is True:
                return True
            two = its(row, rows)
            return True if two is True else None if one is None or two is None else False

        return Column(of)

    def __rand__(self, other: Any) -> Column:
        return column_of(other) & self

    def __ror__(self, other: Any) -> Column:
        return column_of(other) | self

    def __invert__(self) -> Column:
        mine = self.of

        def of(row: Row, rows: Rows) -> Any:
            one = mine(row, rows)
            return None if one is None else not one

        return Column(of)

    def isNull(self) -> Column:  # noqa: N802
        mine = self.of
        return Column(lambda row, rows: mine(row, rows) is None)

    def isNotNull(self) -> Column:  # noqa: N802
        mine = self.of
        return Column(lambda row, rows: mine(row, rows) is not None)

    def eqNullSafe(self, other: Any) -> Column:  # noqa: N802
        mine, its = self.of, column_of(other).of
        return Column(lambda row, rows: mine(row, rows) == its(row, rows))

    def isin(self, *values: Any) -> Column:
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset) else values
        mine, its = self.of, [column_of(each).of for each in given]

        def of(row: Row, rows: Rows) -> Any:
            one = mine(row, rows)
            if not its:
                return False
            if one is None:
                return None
            found = [each(row, rows) for each in its]
            return True if one in found else None if None in found else False

        return Column(of)

    # -- of texts, maps and structs

    def rlike(self, pattern: str) -> Column:
        compiled = _compiled(pattern)
        return self._of_value(lambda text: compiled.search(text) is not None)

    def startswith(self, other: Any) -> Column:
        return self._compared(other, lambda one, two: one.startswith(two))

    def _of_value(self, make: Callable[[Any], Any]) -> Column:
        mine = self.of

        def of(row: Row, rows: Rows) -> Any:
            one = mine(row, rows)
            return None if one is None else make(one)

        return Column(of)

    def __getitem__(self, key: Any) -> Column:
        mine, its = self.of, column_of(key).of

        def of(row: Row, rows: Rows) -> Any:
            one, its_key = mine(row, rows), its(row, rows)
            if one is None or its_key is None:
                return None
            if isinstance(one, list | tuple):
                return one[its_key] if 0 <= its_key < len(one) else None
            return one.get(its_key)

        return self._with(of, key if isinstance(key, str) else None)

    def cast(self, to: Any) -> Column:
        kind = to if isinstance(to, str) else to.simpleString()
        convert = _CASTS.get(kind)
        return self._with(self.of) if convert is None else self._with(self._of_value(convert).of)

    def alias(self, name: str) -> Column:
        found = self._with(self.of, name)
        found.explodes, found.over_rows, found.whens = self.explodes, self.over_rows, self.whens
        return found

    # -- cases

    def when(self, condition: Column, value: Any) -> Column:
        return case([*self.whens, (condition.of, column_of(value).of)])

    def otherwise(self, value: Any) -> Column:
        its = column_of(value).of
        whens = self.whens

        def of(row: Row, rows: Rows) -> Any:
            for condition, then in whens:
                if condition(row, rows) is True:
                    return then(row, rows)
            return its(row, rows)

        return Column(of)

    # -- orders and windows

    def asc(self) -> Column:
        return self.alias(self.name)

    def desc(self) -> Column:
        found = self.alias(self.name)
        found.ascending, found.nulls_first = False, False
        return found

    def over(self, window: Window) -> Column:
        aggregate = self.of
        return Column(lambda row, rows: aggregate(row, window.rows_of(row, rows)))


@lru_cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of Java's, by the names that Python has for the same."""
    return re.compile(pattern.removeprefix("(?U)").replace(r"\z", r"\Z").replace(r"\p{Nd}", r"\d"))


class Window:
    """Rows that have the same values of some columns, in an order, up to some row of it."""

    unboundedPreceding = -(2**63)  # noqa: N815
    currentRow = 0  # noqa: N815

    def __init__(self, by: Sequence[Column] = (), order: Sequence[Column] = (), end: int | None = None) -> None:
        self.by, self.order, self.end = by, order, end
        self._of: Rows = ()
        self._groups: dict[tuple[Any, ...], list[Row]] = {}
        """The rows of each group of `_of`, in order."""

    @staticmethod
    def partitionBy(*by: Any) -> Window:  # noqa: N802
        return Window([named(each) for each in by])

    def orderBy(self, *order: Any) -> Window:  # noqa: N802
        # Up to the current row, as Spark has it by default.
        return Window(self.by, [named(each) for each in order], 0)

    def rowsBetween(self, start: int, end: int) -> Window:  # noqa: N802
        assert start == Window.unboundedPreceding, "other frames aren't needed"
        return Window(self.by, self.order, end)

    def rows_of(self, row: Row, rows: Rows) -> Rows:
        if self._of is not rows:
            self._of, self._groups = rows, {}
            for each in rows:
                self._groups.setdefault(key_of(self.by, each, rows), []).append(each)
            for each in self._groups.values() if self.order else ():
                each.sort(key=lambda one: order_of(self.order, one, rows))
        alike = self._groups[key_of(self.by, row, rows)]
        if not self.order:
            return alike
        place = next(number for number, each in enumerate(alike) if each is row)
        return alike[: place + 1 + (self.end or 0)]


def key_of(by: Sequence[Column], row: Row, rows: Rows) -> tuple[Any, ...]:
    """Return the values that the rows of a group have in common."""
    return tuple(comparable(each.of(row, rows)) for each in by)


def order_of(order: Sequence[Column], row: Row, rows: Rows) -> tuple[Any, ...]:
    """Return the key by which rows are sorted."""
    return tuple(_Place(comparable(each.of(row, rows)), each) for each in order)


class _Place:
    def __init__(self, value: Any, column: Column) -> None:
        self.value, self.column = value, column

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self.value == other.value

    def __lt__(self, other: _Place) -> bool:
        if self.value is None or other.value is None:
            return (other.value is not None) if self.column.nulls_first else (self.value is not None)
        return bool(self.value < other.value if self.column.ascending else self.value > other.value)


def comparable(value: Any) -> Any:
    """A value that can be compared and hashed."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Struct):
        return tuple(_or_least(each) for each in value.values())
    if isinstance(value, dict):
        return tuple(sorted((comparable(key), comparable(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(comparable, value))
    return value


_PLAIN = frozenset({str, int, bool, type(None), datetime})


def _or_least(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, comparable(value))


def case(whens: Sequence[tuple[Value, Value]]) -> Column:
    """The value of the first condition that holds, else null."""

    def of(row: Row, rows: Rows) -> Any:
        for condition, then in whens:
            if condition(row, rows) is True:
                return then(row, rows)
        return None

    return Column(of, whens=whens)


def literal(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(lambda row, rows: value, str(value))


column_of = literal
"""Converts a method's argument: a text is a value."""


def named(name: Any) -> Column:
    """Convert a function's argument: a text is a column's name."""
    return name if isinstance(name, Column) else _named(name)


@lru_cache(10_000)
def _named(name: str) -> Column:
    def of(row: Row, _: Rows) -> Any:
        try:
            return row[name]
        except KeyError:
            return value_of(row, name)

    return Column(of, name.rpartition(".")[2])


def value_of(row: Row, name: str) -> Any:
    """A column's value, or that of a struct's field (`column.field`)."""
    if name in row:
        return row[name]
    head, _, field = name.rpartition(".")
    if not head:
        raise KeyError(f"no column {name} among {sorted(row)}")
    struct = value_of(row, head)
    return None if struct is None else struct[field]


def text_of(value: Any) -> str:
    """A value cast to a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return str(value)


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "string": text_of,
    "int": _number,
    "bigint": _number,
    "array<int>": lambda values: [None if each is None else _number(each) for each in values],
    "array<string>": lambda values: [None if each is None else text_of(each) for each in values],
}
