"""Expressions over the fields of one row, written once for tables and for files.

Spark validates the rows of a table, which may be a million. The rows of a file are validated before a Spark session
starts: a wrong file's answer must not wait for one. So each expression is both: a Column, and a function in Python.

    Rule(error=..., reason=cases(
        (field("group").is_null(), "group is null"),
        (~field("state").isin("present", "absent"), concat("state is ", visible(field("state")))),
    ))

Null means what it means in SQL: a condition that is null doesn't hold. Only `exists` and `has_twice` take arrays with
nulls. `function` adds what is missing here. tests/properties/test_row_rules.py compares both forms on random rows.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

Row: TypeAlias = dict[str, Any]
Evaluate: TypeAlias = Callable[[Row], Any]

_ITEMS = itertools.count()


@dataclass(frozen=True, eq=False)
class Term:
    """An expression over the fields of a row. Write `eq`, `ne`, `&`, `|` and `~`, not `==`, `and`, `or` and `not`."""

    in_spark: Callable[[Mapping[str, Column]], Column]
    """Returns the Column. In: the Columns of items of arrays, by the names that `_item` gave them."""
    in_python: Evaluate
    """Returns the value for a row, None for null. In: the fields by name; a missing field is null. Arrays are lists or
    tuples, maps are mappings. Adds items of arrays to the row, which must be the caller's own."""

    def __bool__(self) -> bool:
        raise TypeError("a Term has no truth value before it is evaluated: write &, | and ~")

    def column(self) -> Column:
        """Return the Column of a whole expression."""
        return self.in_spark({})

    def eq(self, other: Term | float | str) -> Term:
        """Whether both are equal."""
        return _EQUAL(self, other)

    def ne(self, other: Term | float | str) -> Term:
        """Whether both differ."""
        return ~self.eq(other)

    def same_as(self, value: str) -> Term:
        """Whether it is this value; never null."""
        return Term(
            lambda items: self.in_spark(items).eqNullSafe(F.lit(value)), lambda row: bool(self.in_python(row) == value)
        )

    def __lt__(self, other: Term | float) -> Term:
        return _LESS(self, other)

    def __gt__(self, other: Term | float) -> Term:
        return _LESS(other, self)

    def __sub__(self, other: Term | float) -> Term:
        return function(lambda one, less: one - less, lambda one, less: one - less)(self, other)

    def isin(self, *values: str) -> Term:
        """Whether it is one of the values."""
        known = frozenset(values)
        return function(lambda column: column.isin(*values), lambda value: value in known)(self)

    def matches(self, pattern: str) -> Term:
        r"""Whether the regular expression matches a part of the text.

        Write `\A` and `\z` for the text's ends. `.` matches other line breaks in Java than in Python.
        """
        found = re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII).search
        return function(lambda column: column.rlike(pattern), lambda text: found(text) is not None)(self)

    def is_null(self) -> Term:
        """Whether it is null; never null itself."""
        return Term(lambda items: self.in_spark(items).isNull(), lambda row: self.in_python(row) is None)

    def is_given(self) -> Term:
        """Whether it isn't null; never null itself."""
        return Term(lambda items: self.in_spark(items).isNotNull(), lambda row: self.in_python(row) is not None)

    def __and__(self, other: Term) -> Term:
        return Term(
            lambda items: self.in_spark(items) & other.in_spark(items),
            lambda row: _unless(False, self, other, row),
        )

    def __or__(self, other: Term) -> Term:
        return Term(
            lambda items: self.in_spark(items) | other.in_spark(items),
            lambda row: _unless(True, self, other, row),
        )

    def __invert__(self) -> Term:
        return function(lambda column: ~column, lambda value: not value)(self)


def _unless(decisive: bool, one: Term, other: Term, row: Row) -> bool | None:
    """Return `decisive` if one of both is that, else null if one of both is null."""
    first: bool | None = one.in_python(row)
    if first is decisive:
        return decisive
    second: bool | None = other.in_python(row)
    if second is decisive:
        return decisive
    return None if first is None or second is None else not decisive


def field(name: str) -> Term:
    """Return a field of the row."""
    return Term(lambda _: F.col(name), lambda row: row.get(name))


def lit(value: Any) -> Term:
    """Return a value that is the same for each row."""
    return Term(lambda _: F.lit(value), lambda _: value)


def _term(value: Any) -> Term:
    return value if isinstance(value, Term) else lit(value)


def function(in_spark: str | Callable[..., Column], in_python: Callable[..., Any]) -> Callable[..., Term]:
    """Return a function of terms and of plain values that is null if one of them is null.

    `in_spark`: a function of Columns, or the name of Spark's own. `in_python`: the same function of values.
    """

    def of(*arguments: Any) -> Term:
        terms = [*map(_term, arguments)]

        def column(items: Mapping[str, Column]) -> Column:
            make = getattr(F, in_spark) if isinstance(in_spark, str) else in_spark
            return make(*(each.in_spark(items) for each in terms))

        return Term(column, _over_values(in_python, arguments))

    return of


def _over_values(make: Callable[..., Any], arguments: Sequence[Any]) -> Evaluate:
    """Return `Term.in_python` of a function. One term needs no list of values: files may have a million rows."""
    if not isinstance(arguments[0], Term) or any(isinstance(each, Term) for each in arguments[1:]):
        every = [_term(each).in_python for each in arguments]

        def of_several(row: Row) -> Any:
            values = [each(row) for each in every]
            return None if None in values else make(*values)

        return of_several
    first, rest = arguments[0].in_python, arguments[1:]
    if rest:
        return lambda row: None if (value := first(row)) is None else make(value, *rest)
    return lambda row: None if (value := first(row)) is None else make(value)


def cases(*pairs: tuple[Term, Term | str], otherwise: Term | str | None = None) -> Term:
    """Return the value beside the first condition that holds, else `otherwise`."""
    terms, rest = [(condition, _term(value)) for condition, value in pairs], _term(otherwise)

    def column(items: Mapping[str, Column]) -> Column:
        (condition, value), *others = terms
        found = F.when(condition.in_spark(items), value.in_spark(items))
        for condition, value in others:
            found = found.when(condition.in_spark(items), value.in_spark(items))
        return found if otherwise is None else found.otherwise(rest.in_spark(items))

    def value(row: Row) -> Any:
        return next((found for condition, found in terms if condition.in_python(row)), rest).in_python(row)

    return Term(column, value)


def coalesce(*terms: Term | str | bool) -> Term:
    """Return the first that isn't null."""
    several = [*map(_term, terms)]

    def value(row: Row) -> Any:
        return next((found for each in several if (found := each.in_python(row)) is not None), None)

    return Term(lambda items: F.coalesce(*(each.in_spark(items) for each in several)), value)


def _item(make: Callable[[Term], Term]) -> tuple[str, Term]:
    """Return a new name for the items of an array, and the term that `make` returns for one."""
    name = f"item {next(_ITEMS)}"
    return name, make(Term(lambda items: items[name], lambda row: row[name]))


def _of_each(values: Iterable[Any], name: str, made: Term, row: Row) -> Iterator[Any]:
    """Yield the value of `made` for each item."""
    for row[name] in values:
        yield made.in_python(row)


def _of_items(
    in_spark: str, in_python: Callable[[Sequence[Any], Iterator[Any]], Any]
) -> Callable[[Term, Callable[[Term], Term]], Term]:
    """Return a function of an array, and of a function that returns a term for one of its items.

    `in_spark`: the name of Spark's function. `in_python`: a function of the items, and of the values for them.
    """

    def of(array: Term, make: Callable[[Term], Term]) -> Term:
        name, made = _item(make)

        def column(items: Mapping[str, Column]) -> Column:
            of_items: Callable[..., Column] = getattr(F, in_spark)
            return of_items(array.in_spark(items), lambda item: made.in_spark({**items, name: item}))

        def value(row: Row) -> Any:
            values = array.in_python(row)
            return None if values is None else in_python(values, _of_each(values, name, made, row))

        return Term(column, value)

    return of


def _any(values: Iterator[bool | None]) -> bool | None:
    unknown = False
    for each in values:
        if each:
            return True
        unknown = unknown or each is None
    return None if unknown else False


exists = _of_items("exists", lambda _, found: _any(found))
"""Whether a condition holds for any item of an array."""
filtered = _of_items("filter", lambda values, found: [v for v, kept in zip(values, found, strict=True) if kept])
"""The items of an array for which a condition holds."""
transform = _of_items("transform", lambda _, found: [*found])
"""An array with a term in place of each item."""


def keys_where(entries: Term, make: Callable[[Term], Term]) -> Term:
    """Return the keys of a map's entries for whose values a condition holds."""
    name, made = _item(make)

    def column(items: Mapping[str, Column]) -> Column:
        kept = F.map_filter(entries.in_spark(items), lambda _, value: made.in_spark({**items, name: value}))
        return F.map_keys(kept)

    def value(row: Row) -> Any:
        found = entries.in_python(row)
        if found is None:
            return None
        kept = _of_each(found.values(), name, made, row)
        return [key for key, each in zip(found, kept, strict=True) if each]

    return Term(column, value)


_EQUAL = function(lambda one, other: one == other, lambda one, other: one == other)
_LESS = function(lambda one, other: one < other, lambda one, other: one < other)
concat = function("concat", lambda *texts: "".join(map(str, texts)))
"""Texts and whole numbers as one text."""
length = function("length", len)
trim = function("trim", lambda text: text.strip(" "))
replace = function("replace", str.replace)
startswith = function("startswith", str.startswith)
endswith = function("endswith", str.endswith)
size = function("size", len)
map_keys = function("map_keys", list)
map_values = function("map_values", lambda entries: [*entries.values()])
array_min = function("array_min", lambda values: min(values, default=None))
array_max = function("array_max", lambda values: max(values, default=None))
array_sort = function("array_sort", sorted)
array_distinct = function("array_distinct", lambda values: [*dict.fromkeys(values)])
joined = function(lambda texts: F.array_join(texts, ", "), ", ".join)
has_twice = function(
    lambda array: F.size(F.array_distinct(array)) != F.size(array), lambda values: len({*values}) != len(values)
)
"""Whether an array has an item twice. Also a map's keys: another writer than Spark may repeat one."""


def isnan(number: Term) -> Term:
    """Whether a double is NaN; never null itself."""
    return Term(
        lambda items: F.isnan(number.in_spark(items)),
        lambda row: (value := number.in_python(row)) is not None and math.isnan(value),
    )


def visible(text: Term) -> Term:
    """Return a text for a message, in quotes if it begins or ends with a blank."""
    return cases((text.eq(trim(text)), text), otherwise=concat('"', text, '"'))


def quoted(names: Term) -> Term:
    """Return names in alphabetical order, quoted so that surrounding blanks are visible."""
    return joined(transform(array_sort(names), lambda name: concat('"', name, '"')))


def _as_spark_writes(value: float) -> str:
    """Format a double as Spark's `cast("string")` does, which uses Java's form."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


double_text = function(lambda value: value.cast("string"), _as_spark_writes)
"""A double as Spark writes it."""
