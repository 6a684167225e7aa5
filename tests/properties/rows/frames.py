"""DataFrames of rows in memory, computed at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Row as SparkRow
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from tests.properties.rows.columns import Column, Struct, comparable, key_of, literal, named, order_of
from tests.properties.rows.sql import parse

_IDS = itertools.count()


class DataFrame:
    """Some rows, and the names of their columns in order."""

    def __init__(self, columns: Sequence[str], rows: Sequence[dict[str, Any]], alias: str | None = None) -> None:
        self.columns = list(columns)
        self.rows = list(rows)
        self._alias = alias
        self._id = next(_IDS)

    def __getitem__(self, name: str) -> Column:
        key = f"@{self._id}.{name}"
        return Column(lambda row, rows: row[key] if key in row else row[name], name)

    @property
    def schema(self) -> StructType:
        """The names; rows in memory don't tell types."""
        return StructType([StructField(name, NullType()) for name in self.columns])

    # -- rows to rows

    def transform(self, function: Callable[..., DataFrame], *arguments: Any, **named_arguments: Any) -> DataFrame:
        return function(self, *arguments, **named_arguments)

    def where(self, condition: Column | str) -> DataFrame:
        of = (parse(condition) if isinstance(condition, str) else condition).of
        return self._same([row for row in self.rows if of(row, self.rows) is True])

    filter = where

    def _same(self, rows: Sequence[dict[str, Any]]) -> DataFrame:
        found = DataFrame(self.columns, rows, self._alias)
        found._id = self._id
        return found

    def select(self, *columns: Any) -> DataFrame:
        given = columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns
        chosen = [each for column in given for each in self._chosen(column)]
        names = [each.name for each in chosen]
        assert len(set(names)) == len(names), f"columns of the same name: {names}"
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            made = {each.name: each.of(row, self.rows) for each in chosen}
            exploded = next((each for each in chosen if each.explodes), None)
            rows += [made] if exploded is None else _exploded(made, exploded)
        return DataFrame(names, rows)

    def _chosen(self, column: Any) -> list[Column]:
        if not isinstance(column, str) or not column.endswith("*"):
            return [named(column)]
        if column == "*":
            return [named(each) for each in self.columns]
        struct = column.removesuffix(".*")
        fields = next((list(value) for row in self.rows if (value := named(struct).of(row, self.rows)) is not None), [])
        return [named(f"{struct}.{each}") for each in fields]

    def withColumns(self, columns: Mapping[str, Column]) -> DataFrame:  # noqa: N802
        names = [*self.columns, *(each for each in columns if each not in self.columns)]
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            made = {**row, **{name: each.of(row, self.rows) for name, each in columns.items()}}
            exploded = next(((name, each) for name, each in columns.items() if each.explodes), None)
            rows += [made] if exploded is None else _exploded(made, exploded[1].alias(exploded[0]))
        return DataFrame(names, rows, self._alias)

    def withColumn(self, name: str, column: Column) -> DataFrame:  # noqa: N802
        return self.withColumns({name: column})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> DataFrame:  # noqa: N802
        return self.select(*(named(each).alias(names.get(each, each)) for each in self.columns))

    def withColumnRenamed(self, old: str, new: str) -> DataFrame:  # noqa: N802
        return self.withColumnsRenamed({old: new})

    def drop(self, *names: str) -> DataFrame:
        return self.select(*(each for each in self.columns if each not in names))

    def distinct(self) -> DataFrame:
        found: dict[Any, dict[str, Any]] = {}
        for row in self.rows:
            found.setdefault(tuple(comparable(row[name]) for name in self.columns), row)
        return self._same(list(found.values()))

    def orderBy(self, *columns: Any) -> DataFrame:  # noqa: N802
        order = [named(each) for each in columns]
        return self._same(sorted(self.rows, key=lambda row: order_of(order, row, self.rows)))

    def limit(self, count: int) -> DataFrame:
        return self._same(self.rows[:count])

    def alias(self, name: str) -> DataFrame:
        return DataFrame(self.columns, self.rows, name)

    def unionByName(self, other: DataFrame, allowMissingColumns: bool = False) -> DataFrame:  # noqa: N802, N803
        names = [*self.columns, *(each for each in other.columns if each not in self.columns)]
        if not allowMissingColumns:
            assert set(self.columns) == set(other.columns), f"{self.columns} and {other.columns}"
        return DataFrame(names, [{name: row.get(name) for name in names} for row in (*self.rows, *other.rows)])

    def localCheckpoint(self) -> DataFrame:  # noqa: N802
        return self

    cache = persist = localCheckpoint

    def observe(self, metrics: Metrics, *columns: Column) -> DataFrame:
        metrics.get = {each.name: each.of({}, self.rows) for each in columns}
        return self

    # -- joins and groups

    def join(self, other: DataFrame, on: Any, how: str = "inner") -> DataFrame:
        if isinstance(on, str):
            on = [on]
        names = on if all(isinstance(each, str) for each in on) and not isinstance(on, Column) else None
        pairs = self._pairs(other, on if names is None else None, names)
        matched = {id(left) for left, _ in pairs}, {id(right) for _, right in pairs}
        if how in ("left_semi", "semi"):
            return self._same([row for row in self.rows if id(row) in matched[0]])
        if how in ("left_anti", "anti"):
            return self._same([row for row in self.rows if id(row) not in matched[0]])
        keys = names or []
        added = [each for each in other.columns if each not in keys]
        columns = [*self.columns, *(each for each in added if each not in self.columns)]
        nothing, nothing_there = dict.fromkeys(self.columns), dict.fromkeys(other.columns)
        rows = [self._joined(other, left, right, keys) for left, right in pairs]
        if how in ("left", "left_outer", "full_outer", "outer"):
            rows += [self._joined(other, row, nothing_there, keys) for row in self.rows if id(row) not in matched[0]]
        if how in ("full_outer", "outer", "right"):
            for row in other.rows:
                if id(row) not in matched[1]:
                    rows.append({**self._joined(other, nothing, row, []), **{key: row[key] for key in keys}})
        return DataFrame(columns, rows)

    def _pairs(self, other: DataFrame, on: Any, names: Sequence[str] | None) -> list[tuple[Any, Any]]:
        if names is not None:
            by_key: dict[Any, list[dict[str, Any]]] = {}
            for row in other.rows:
                by_key.setdefault(tuple(comparable(row[name]) for name in names), []).append(row)
            found = []
            for left in self.rows:
                key = tuple(comparable(left[name]) for name in names)
                if None not in key:
                    found += [(left, right) for right in by_key.get(key, ())]
            return found
        conditions = on if isinstance(on, list | tuple) else [on]
        found = []
        for left in self.rows:
            for right in other.rows:
                both = self._joined(other, left, right, [])
                if all(each.of(both, []) is True for each in conditions):
                    found.append((left, right))
        return found

    def _joined(
        self, other: DataFrame, left: Mapping[str, Any], right: Mapping[str, Any], keys: Sequence[str]
    ) -> dict[str, Any]:
        found = {**right, **left}
        for frame, row in ((self, left), (other, right)):
            if not keys:
                found |= {f"@{frame._id}.{name}": row.get(name) for name in frame.columns}
            if frame._alias is not None:
                found |= {f"{frame._alias}.{name}": row.get(name) for name in frame.columns}
        return found

    def groupBy(self, *columns: Any) -> Grouped:  # noqa: N802
        return Grouped(self, [named(each) for each in columns])

    def agg(self, *columns: Column) -> DataFrame:
        return DataFrame([each.name for each in columns], [{each.name: each.of({}, self.rows) for each in columns}])

    # -- to the driver

    def collect(self) -> list[SparkRow]:
        make = SparkRow(*self.columns)
        return [make(*(_to_driver(row[name]) for name in self.columns)) for row in self.rows]

    def count(self) -> int:
        return len(self.rows)

    def isEmpty(self) -> bool:  # noqa: N802
        return not self.rows

    def toArrow(self) -> Table:  # noqa: N802
        return Table([{name: _to_arrow(row[name]) for name in self.columns} for row in self.rows])


class Grouped:
    """Rows by some of their columns."""

    def __init__(self, frame: DataFrame, by: Sequence[Column]) -> None:
        self._frame, self._by = frame, by

    def agg(self, *columns: Column) -> DataFrame:
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in self._frame.rows:
            groups.setdefault(key_of(self._by, row, self._frame.rows), []).append(row)
        rows = [
            {
                **{each.name: each.of(group[0], group) for each in self._by},
                **{each.name: each.of(group[0], group) for each in columns},
            }
            for group in groups.values()
        ]
        return DataFrame([each.name for each in (*self._by, *columns)], rows)


class Metrics:
    """`pyspark.sql.Observation`."""

    def __init__(self, name: str = "") -> None:
        self.get: Mapping[str, Any] = {}


class Table:
    """The result of a DataFrame's `toArrow`: as much of `pyarrow.Table` as `in_batches` needs."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.num_rows = len(rows)

    def sort_by(self, order: Sequence[tuple[str, str]]) -> Table:
        columns = [named(name) for name, _ in order]
        return Table(sorted(self._rows, key=lambda row: order_of(columns, row, self._rows)))

    def to_batches(self, max_chunksize: int = 0) -> list[Table]:
        return [self]

    def to_pylist(self) -> list[dict[str, Any]]:
        return self._rows


class Session:
    """As much of a SparkSession as makes DataFrames."""

    class conf:  # noqa: N801
        @staticmethod
        def get(name: str, default: Any = None) -> Any:
            return default

    def createDataFrame(self, data: Iterable[Any], schema: Any) -> DataFrame:  # noqa: N802
        if isinstance(schema, str):
            names = [each.split()[0] for each in schema.split(",")]
            types: Mapping[str, DataType] = {}
        else:
            assert isinstance(schema, StructType)
            names, types = schema.names, {each.name: each.dataType for each in schema}
        rows = []
        for each in data:
            row = each if isinstance(each, Mapping) else dict(zip(names, each, strict=True))
            rows.append({name: from_driver(row.get(name), types.get(name)) for name in names})
        return DataFrame(names, rows)


def from_driver(value: Any, data_type: DataType | None) -> Any:
    """A value as rows have it: structs as Struct, maps as dict."""
    if value is None or data_type is None:
        return value
    if isinstance(data_type, StructType):
        return Struct({each.name: from_driver(value[each.name], each.dataType) for each in data_type})
    if isinstance(data_type, ArrayType):
        return [from_driver(each, data_type.elementType) for each in value]
    if isinstance(data_type, MapType):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {key: from_driver(each, data_type.valueType) for key, each in pairs}
    return value


def _to_driver(value: Any) -> Any:
    if isinstance(value, Struct):
        return SparkRow(**{name: _to_driver(each) for name, each in value.items()})
    return [_to_driver(each) for each in value] if isinstance(value, list) else value


def _to_arrow(value: Any) -> Any:
    """Maps as pairs."""
    if isinstance(value, Struct):
        return {name: _to_arrow(each) for name, each in value.items()}
    if isinstance(value, dict):
        return [(key, _to_arrow(each)) for key, each in value.items()]
    return [_to_arrow(each) for each in value] if isinstance(value, list) else value


def _exploded(row: dict[str, Any], column: Column) -> list[dict[str, Any]]:
    values = row[column.name]
    if not values:
        return [{**row, column.name: None}] if column.explodes == "outer" else []
    return [{**row, column.name: each} for each in values]


__all__ = ["DataFrame", "Grouped", "Metrics", "Session", "Table", "literal"]
