"""What `pyspark.sql.functions` has, as far as the phases of a run use it."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cmp_to_key
from typing import Any

from tests.properties.rows.columns import (
    Column,
    Row,
    Rows,
    Struct,
    case,
    comparable,
    literal,
    named,
    text_of,
)
from tests.properties.rows.sql import parse
from topicledger.kafka import config_values

lit, col = literal, named
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def broadcast(rows: Any) -> Any:
    return rows


def expr(text: str) -> Column:
    return parse(text)


def when(condition: Column, value: Any) -> Column:
    return case([(condition.of, literal(value).of)])


# -- functions of values: null if an argument is null


def _of(make: Callable[..., Any], *columns: Any) -> Column:
    parts = [named(each).of for each in columns]

    def of(row: Row, rows: Rows) -> Any:
        values = [part(row, rows) for part in parts]
        return None if any(value is None for value in values) else make(*values)

    if len(parts) == 1:
        (only,) = parts

        def of_one(row: Row, rows: Rows) -> Any:
            value = only(row, rows)
            return None if value is None else make(value)

        return Column(of_one)
    return Column(of)


def concat(*columns: Any) -> Column:
    def make(*values: Any) -> Any:
        if isinstance(values[0], list):
            return [each for value in values for each in value]
        return "".join(map(text_of, values))

    return _of(make, *columns)


def length(column: Any) -> Column:
    return _of(len, column)


def trim(column: Any) -> Column:
    return _of(lambda text: text.strip(" "), column)


def lower(column: Any) -> Column:
    return _of(str.lower, column)


def substring(column: Any, start: Any, count: Any) -> Column:
    return _of(lambda text, at, many: text[at - 1 : at - 1 + many], column, literal(start), literal(count))


def regexp_replace(column: Any, pattern: str, new: str) -> Column:
    compiled, ours = re.compile(pattern), new.replace("\\\\", "\0").replace("$1", r"\1").replace("\0", r"\\")
    return _of(lambda text: compiled.sub(ours, text), column)


def replace(column: Any, old: Any, new: Any) -> Column:
    return _of(str.replace, column, old, new)


def startswith(column: Any, other: Any) -> Column:
    return named(column).startswith(named(other))


def endswith(column: Any, other: Any) -> Column:
    return _of(str.endswith, column, other)


def contains(column: Any, other: Any) -> Column:
    return _of(lambda text, part: part in text, column, other)


def nullif(column: Any, other: Any) -> Column:
    same, its = (named(column) == named(other)).of, named(column).of
    return Column(lambda row, rows: None if same(row, rows) is True else its(row, rows))


def split(column: Any, separator: str, limit: int = -1) -> Column:
    assert limit == -1, "only the default is known here"
    return _of(lambda text: re.split(separator, text), column)


def regexp_extract(column: Any, pattern: str, group: int) -> Column:
    compiled = re.compile(pattern)
    return _of(lambda text: found[group] if (found := compiled.search(text)) else "", column)


def substring_index(column: Any, separator: str, count: int) -> Column:
    def make(text: str) -> str:
        parts = text.split(separator)
        return separator.join(parts[:count] if count > 0 else parts[count:])

    return _of(make, column)


def date_format(column: Any, pattern: str) -> Column:
    ours = pattern.replace("'", "")
    for java, python in (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S")):
        ours = ours.replace(java, python)
    return _of(lambda moment: moment.astimezone(UTC).strftime(ours), column)


def unix_micros(column: Any) -> Column:
    return _of(lambda moment: (moment - _EPOCH) // timedelta(microseconds=1), column)


def timestamp_micros(column: Any) -> Column:
    return _of(lambda micros: _EPOCH + timedelta(microseconds=micros), column)


def current_timezone() -> Column:
    return literal("UTC")


def to_utc_timestamp(column: Any, timezone: Any) -> Column:
    # Moments in memory have a zone of their own.
    return _of(lambda moment, _: moment, column, timezone)


def to_json(column: Any) -> Column:
    return _of(lambda value: json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False), column)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def floor(column: Any) -> Column:
    return _of(lambda number: int(number // 1), column)


def is_odd_column(value: Any) -> Column:
    """`config_values.is_odd_column`, whose numbers only Spark knows."""
    return _of(config_values.is_odd, value)


def same_value_column(name: Any, one: Any, other: Any) -> Column:
    """`config_values.same_value_column`, likewise."""
    return _of(config_values.same_value, name, one, other)


# -- of which null is one value


def coalesce(*columns: Any) -> Column:
    parts = [named(each) for each in columns]

    def of(row: Row, rows: Rows) -> Any:
        return next((value for part in parts if (value := part.of(row, rows)) is not None), None)

    return Column(of)


def greatest(*columns: Any) -> Column:
    parts = [named(each).of for each in columns]

    def of(row: Row, rows: Rows) -> Any:
        return builtins.max((value for part in parts if (value := part(row, rows)) is not None), default=None)

    return Column(of)


def concat_ws(separator: str, *columns: Any) -> Column:
    parts = [named(each).of for each in columns]

    def of(row: Row, rows: Rows) -> Any:
        texts: list[str] = []
        for part in parts:
            value = part(row, rows)
            texts += [text_of(each) for each in (value if isinstance(value, list) else [value]) if each is not None]
        return separator.join(texts)

    return Column(of)


def struct(*columns: Any) -> Column:
    parts = [named(each.removesuffix(".*") if isinstance(each, str) else each) for each in columns]
    spread = [isinstance(each, str) and each.endswith(".*") for each in columns]

    def of(row: Row, rows: Rows) -> Any:
        found = Struct()
        for part, all_of_it in zip(parts, spread, strict=True):
            value = part.of(row, rows)
            found |= (value or {}) if all_of_it else {part.name: value}
        return found

    return Column(of)


def array(*columns: Any) -> Column:
    parts = [named(each).of for each in columns]
    return Column(lambda row, rows: [part(row, rows) for part in parts])


def create_map(*columns: Any) -> Column:
    parts = [named(each).of for each in columns]

    def of(row: Row, rows: Rows) -> Any:
        values = [part(row, rows) for part in parts]
        return dict(zip(values[::2], values[1::2], strict=True))

    return Column(of)


def monotonically_increasing_id() -> Column:
    return Column(lambda row, rows: id(row))


# -- arrays and maps


def size(column: Any) -> Column:
    part = named(column).of

    def of(row: Row, rows: Rows) -> Any:
        value = part(row, rows)
        return -1 if value is None else len(value)

    return Column(of)


def map_keys(column: Any) -> Column:
    return _of(lambda value: list(value), column)


def map_values(column: Any) -> Column:
    return _of(lambda value: list(value.values()), column)


def map_entries(column: Any) -> Column:
    return _of(lambda value: [Struct(key=key, value=each) for key, each in value.items()], column)


def map_from_entries(column: Any) -> Column:
    return _of(lambda entries: dict(each.values() for each in entries), column)


def try_element_at(column: Any, key: Any) -> Column:
    """The value of a key in a map, or the element at a place in an array; places count from 1."""

    def make(found: Any, at: Any) -> Any:
        if isinstance(found, dict):
            return found.get(at)
        return found[at - 1] if 0 < at <= len(found) else None

    return _of(make, column, key)


def map_concat(*columns: Any) -> Column:
    return _of(lambda *maps: {key: value for each in maps for key, value in each.items()}, *columns)


def array_sort(column: Any) -> Column:
    return _of(lambda values: sorted(values, key=cmp_to_key(_compare)), column)


def _compare(one: Any, two: Any) -> int:
    """Nulls come last."""
    if one is None or two is None:
        return (one is None) - (two is None)
    left, right = comparable(one), comparable(two)
    return (left > right) - (left < right)


def array_distinct(column: Any) -> Column:
    return _of(_distinct, column)


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for each in values:
        found.setdefault(comparable(each), each)
    return list(found.values())


def array_union(one: Any, two: Any) -> Column:
    return _of(lambda left, right: _distinct([*left, *right]), one, two)


def array_except(one: Any, two: Any) -> Column:
    def make(left: list[Any], right: list[Any]) -> list[Any]:
        others = {comparable(each) for each in right}
        return [each for each in _distinct(left) if comparable(each) not in others]

    return _of(make, one, two)


def array_compact(column: Any) -> Column:
    return _of(lambda values: [each for each in values if each is not None], column)


def array_contains(column: Any, value: Any) -> Column:
    return _of(lambda values, its: its in values, column, literal(value))


def arrays_overlap(one: Any, two: Any) -> Column:
    def make(left: list[Any], right: list[Any]) -> bool | None:
        if {each for each in left if each is not None} & set(right):
            return True
        return None if left and right and None in (*left, *right) else False

    return _of(make, one, two)


def get(column: Any, index: Any) -> Column:
    return _of(lambda values, at: values[at] if 0 <= at < len(values) else None, column, index)


def array_repeat(value: Any, count: Any) -> Column:
    return _of(lambda one, many: [one] * many, value, count)


def array_join(column: Any, separator: str) -> Column:
    return _of(lambda values: separator.join(text_of(each) for each in values if each is not None), column)


def array_position(column: Any, value: Any) -> Column:
    return _of(lambda values, its: values.index(its) + 1 if its in values else 0, column, literal(value))


def array_min(column: Any) -> Column:
    return _of(lambda values: builtins.min((each for each in values if each is not None), default=None), column)


def array_max(column: Any) -> Column:
    return _of(lambda values: builtins.max((each for each in values if each is not None), default=None), column)


def _of_each(make: Callable[[list[Any], Callable[..., Any]], Any], column: Any, each: Callable[..., Column]) -> Column:
    """Higher-order functions: `each` gets the columns `_0`, `_1`."""
    part, count = named(column).of, 2 if each.__code__.co_argcount == 2 else 1
    result = each(*(Column(lambda row, rows, n=n: row[f"#{n}"]) for n in range(count))).of

    def of(row: Row, rows: Rows) -> Any:
        value = part(row, rows)
        if value is None:
            return None
        return make(value, lambda *given: result({**row, **{f"#{n}": one for n, one in enumerate(given)}}, rows))

    return Column(of)


def transform(column: Any, each: Callable[..., Any]) -> Column:
    if each is size:
        return _of(lambda values: [-1 if one is None else len(one) for one in values], column)
    return _of_each(lambda values, of: [of(one) for one in values], column, each)


def filter(column: Any, each: Callable[..., Column]) -> Column:
    return _of_each(lambda values, of: [one for one in values if of(one) is True], column, each)


def exists(column: Any, each: Callable[..., Column]) -> Column:
    return _of_each(lambda values, of: any(of(one) is True for one in values), column, each)


def forall(column: Any, each: Callable[..., Column]) -> Column:
    return _of_each(lambda values, of: all(of(one) is True for one in values), column, each)


def map_filter(column: Any, each: Callable[..., Column]) -> Column:
    return _of_each(lambda values, of: {key: one for key, one in values.items() if of(key, one) is True}, column, each)


def explode(column: Any) -> Column:
    found = named(column).alias("col")
    found.explodes = "inner"
    return found


def explode_outer(column: Any) -> Column:
    found = named(column).alias("col")
    found.explodes = "outer"
    return found


# -- of many rows


def _aggregate(column: Any, make: Callable[[list[Any]], Any]) -> Column:
    part = named(column).of
    return Column(lambda _, rows: make([value for row in rows if (value := part(row, rows)) is not None]))


def bool_or(column: Any) -> Column:
    return _aggregate(column, lambda values: any(values) if values else None)


def count(column: Any) -> Column:
    return _aggregate(column, len)


def count_if(column: Any) -> Column:
    return _aggregate(column, lambda values: len([each for each in values if each]))


def sum(column: Any) -> Column:
    def make(values: list[Any]) -> Any:
        total = None
        for each in values:
            total = each if total is None else total + each
        return total

    return _aggregate(column, make)


def max(column: Any) -> Column:
    return _aggregate(column, lambda values: sorted(values, key=comparable)[-1] if values else None)


def min(column: Any) -> Column:
    return _aggregate(column, lambda values: sorted(values, key=comparable)[0] if values else None)


def any_value(column: Any, ignoreNulls: bool = False) -> Column:  # noqa: N803
    return _aggregate(column, lambda values: values[0] if values else None)


def first(column: Any, ignorenulls: bool = False) -> Column:
    return _aggregate(column, lambda values: values[0] if values else None)


def collect_list(column: Any) -> Column:
    return _aggregate(column, list)


def collect_set(column: Any) -> Column:
    return _aggregate(column, _distinct)


def max_by(column: Any, order: Any) -> Column:
    return _by(column, order, -1)


def min_by(column: Any, order: Any) -> Column:
    return _by(column, order, 0)


def _by(column: Any, order: Any, place: int) -> Column:
    part, by = named(column).of, named(order).of

    def of(_: Row, rows: Rows) -> Any:
        ordered = [row for row in rows if by(row, rows) is not None]
        ordered.sort(key=lambda row: comparable(by(row, rows)))
        return part(ordered[place], rows) if ordered else None

    return Column(of)


def row_number() -> Column:
    return Column(lambda _, rows: len(rows))


# -- orders


def asc(column: Any) -> Column:
    return named(column).asc()


def desc(column: Any) -> Column:
    return named(column).desc()


def asc_nulls_last(column: Any) -> Column:
    found = named(column).asc()
    found.nulls_first = False
    return found
