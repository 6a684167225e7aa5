"""Arrow types for Spark types, and columns computed by Arrow functions, with public APIs of Spark 4.0 and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

_SIMPLE: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    DateType: pa.date32(),
    DoubleType: pa.float64(),
    FloatType: pa.float32(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_type(of: DataType) -> pa.DataType:
    """Return Arrow's type for a Spark type; timestamps are in UTC. Raises TypeError for a type no table here has."""
    if isinstance(of, StructType):
        return pa.struct(list(arrow_schema(of)))
    if isinstance(of, ArrayType):
        return pa.list_(pa.field("element", arrow_type(of.elementType), nullable=of.containsNull))
    if isinstance(of, MapType):
        value = pa.field("value", arrow_type(of.valueType), nullable=of.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(of.keyType), nullable=False), value)
    found = _SIMPLE.get(type(of))
    if found is None:
        raise TypeError(f"Spark's {of.simpleString()} has no Arrow type here: add it to {__name__}")
    return found


def arrow_schema(of: StructType) -> pa.Schema:
    """Return Arrow's schema for a Spark schema; timestamps are in UTC."""
    return pa.schema([pa.field(each.name, arrow_type(each.dataType), nullable=each.nullable) for each in of])


def over_arrow(function: Callable[..., pa.Array], returns: str, *columns: str) -> Column:
    """Return the column that `function` makes from Arrow arrays, one array per argument.

    `columns` are strings; `returns` is the column's type as a DDL string. The function runs on executors, and must not
    depend on how rows are split into batches.
    """
    functions: Any = F
    if hasattr(functions, "arrow_udf"):
        made = functions.arrow_udf(function, returns)
    else:
        made = functions.pandas_udf(_over_pandas(function), returns)
    column: Column = made(*columns)
    return column


def _over_pandas(function: Callable[..., pa.Array]) -> Callable[..., Any]:
    """The same function over pandas, which Spark 4.0 has instead."""
    import pandas as pd

    def over_series(*columns: Any) -> Any:
        # Without the type, a batch of nulls only has no type that functions over texts accept.
        return function(*(pa.Array.from_pandas(each, type=pa.string()) for each in columns)).to_pandas()

    # Spark reads the kind of function from them, and the annotations of `function` are Arrow's.
    over_series.__annotations__.update({"columns": pd.Series, "return": pd.Series})
    return over_series
