"""SQL for what the DataFrame API does not have: definitions of tables, literals, conditions; types compared; times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from topicledger.errors import TableError
from topicledger.ledger.retries import first_sentence
from topicledger.schemas import Table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def definition(table: Table, properties: Mapping[str, str]) -> str:
    """A table as CREATE TABLE describes it."""
    columns = ", ".join(map(column_definition, table.schema))
    partitioned = f"PARTITIONED BY ({', '.join(table.partitioned_by)}) " if table.partitioned_by else ""
    pairs = ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in properties.items())
    return f"({columns}) USING delta {partitioned}COMMENT {sql_text(table.comment)} TBLPROPERTIES ({pairs})"


def run_on_create(spark: SparkSession, statements: Sequence[str], name: str) -> None:
    """Run the settings' statements for a new table, by its name in SQL.

    Raises TableError that says what is left to run by hand: the table exists, so no later run does it.
    """
    texts = [each.replace("{table}", name) for each in statements]
    for number, text in enumerate(texts):
        try:
            spark.sql(text)
        except PySparkException as error:
            raise TableError(
                f"table {name} was created, but a statement of tables.on_create failed: {first_sentence(error)}. "
                f"Run by hand: {'; '.join(texts[number:])}"
            ) from error


def column_definition(field: StructField) -> str:
    """A column as CREATE TABLE and ALTER TABLE describe it."""
    comment = f" COMMENT {sql_text(field.metadata['comment'])}" if "comment" in field.metadata else ""
    return f"`{field.name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}{comment}"


def sql_text(text: str) -> str:
    """A string literal of Spark SQL."""
    # Spark puts variables and the environment in place of ${...}, in literals too.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def as_command(query: str) -> str:
    """Return the command that runs a query of ours, for a shell: tables in folders have their own names there."""
    named = re.sub(r"delta\.`(?:[^`]|``)*/(\w+)`", r"\1", query)
    quoted = re.sub(r'[\\`$"]', r"\\\g<0>", named)
    return f'topicledger sql "{quoted}"'


def sql_value(value: object) -> str:
    """A text, a number, a moment, null, or a map of such as Spark SQL has it; an empty map is null."""
    if isinstance(value, Mapping) and value:
        return f"map({', '.join(sql_value(part) for item in value.items() for part in item)})"
    if value is None or value == {}:
        return "NULL"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"
    return str(value) if isinstance(value, int) else sql_text(str(value))


def moment_of(micros: int) -> datetime:
    """Return the moment of `F.unix_micros`. It is exact; PySpark's own conversion isn't in every session."""
    return EPOCH + timedelta(microseconds=micros)


def collected_in_utc(rows: DataFrame) -> list[dict[str, Any]]:
    """Collect rows, with exact moments in UTC.

    Python's own conversion, in Spark Connect, takes one hour of autumn for the hour before.
    """
    moments = [each.name for each in rows.schema if isinstance(each.dataType, TimestampType)]
    found = [row.asDict() for row in rows.withColumns({name: F.unix_micros(name) for name in moments}).collect()]
    for row in found:
        row |= {name: None if row[name] is None else moment_of(row[name]) for name in moments}
    return found


def iso_times(moment: Column) -> Column:
    """Format a column of moments like `text.iso_time`, whatever the session's time zone is."""
    return F.date_format(F.to_utc_timestamp(moment, F.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss'Z'")


def by_key(key: str, name: str, rows: Sequence[Mapping[str, object]]) -> str:
    """The value of a column by the row's key, in SQL; what isn't given is null."""
    values = {sql_value(row[key]): sql_value(row.get(name)) for row in rows}
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return f"CASE {key} {' '.join(f'WHEN {one} THEN {value}' for one, value in values.items())} END"


def updated(table: Table) -> str:
    """The action of a MERGE that sets all of the table's columns as in `new`."""
    return f"UPDATE SET {', '.join(f'`{name}` = new.`{name}`' for name in table.schema.names)}"


def inserted(table: Table) -> str:
    """The action of a MERGE that inserts the table's columns of `new`."""
    names = [f"`{name}`" for name in table.schema.names]
    return f"INSERT ({', '.join(names)}) VALUES ({', '.join(f'new.{name}' for name in names)})"


def sql_differ(table: Table, left: str, right: str) -> str:
    """Whether the rows of two aliases differ in any column of the table, in SQL."""
    return f"NOT ({_sql_equal(table, table.schema, left, right)})"


def sql_same_key(table: Table, left: str, right: str) -> str:
    """As `same_key`, in SQL."""
    return _sql_equal(table, (table.schema[name] for name in table.key), left, right)


def _sql_equal(table: Table, columns: Iterable[StructField], left: str, right: str) -> str:
    def value(column: StructField, of: str) -> str:
        default = table.key_defaults.get(column.name)
        found = comparable(column, f"{of}.")
        return found if default is None else f"coalesce({found}, {sql_text(default)})"

    return " AND ".join(f"{value(each, left)} <=> {value(each, right)}" for each in columns)


def comparable(column: StructField, of: str = "") -> str:
    """A column for comparisons, in SQL: Spark can't compare maps. `of`: an alias with its dot."""
    name = f"{of}`{column.name}`"
    return f"array_sort(map_entries({name}))" if isinstance(column.dataType, MapType) else name


def other_types(wanted: StructType, found: StructType) -> list[str]:
    types = {each.name: each.dataType for each in found}
    return [
        f"column {each.name} is {types[each.name].simpleString()}, not {each.dataType.simpleString()}"
        for each in wanted
        if each.name in types and not _same_type(each.dataType, types[each.name])
    ]


def _same_type(wanted: DataType, found: DataType) -> bool:
    """Whether types agree but for nullability, which other writers may see differently."""
    return _without_nullability(wanted) == _without_nullability(found)


def _without_nullability(data_type: DataType) -> DataType:
    if isinstance(data_type, ArrayType):
        return ArrayType(_without_nullability(data_type.elementType))
    if isinstance(data_type, MapType):
        return MapType(_without_nullability(data_type.keyType), _without_nullability(data_type.valueType))
    if isinstance(data_type, StructType):
        return StructType([StructField(each.name, _without_nullability(each.dataType)) for each in data_type])
    return data_type


def differ(table: Table, left: str, right: str) -> Column:
    """Whether the rows of two aliases differ in any column of the table."""
    return F.expr(sql_differ(table, left, right))


def same_key(table: Table, left: str, right: str) -> list[Column]:
    """Whether the rows of two aliases have the same key of the table, as conditions of a join."""
    return [key_part(table, name, f"{left}.").eqNullSafe(key_part(table, name, f"{right}.")) for name in table.key]


def key_part(table: Table, name: str, of: str = "") -> Column:
    """Return a column of a row's key, as in `Table.key_defaults` where it is null. `of`: an alias with its dot."""
    column, default = F.col(f"{of}{name}"), table.key_defaults.get(name)
    return column if default is None else F.coalesce(column, F.lit(default))


def affected(done: DataFrame) -> int:
    """Return the number of rows that an UPDATE or a MERGE changed."""
    return int(done.collect()[0]["num_affected_rows"])


def format_literal(text: str) -> str:
    """Return a text for a format string."""
    return text.replace("{", "{{").replace("}", "}}")
