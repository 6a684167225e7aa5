"""Whether two values of a config mean the same to Kafka."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_BLANKS = " \t\n\r"
_WHOLE = "decimal(38,0)"
_NUMBER = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z"


def same_value(declared: Column, live: Column) -> Column:
    """Whether a declared value means what the broker says it has; null where either is null.

    Brokers return values as they parsed them: blanks around them are gone, booleans are lower case, numbers have one
    form, lists have no blanks around their commas. So both are cut at commas and, piece by piece, compared as numbers
    where both are numbers, else as text, booleans whatever their case. The order of pieces doesn't count: those of
    Kafka's topic configs that are lists (cleanup.policy and the throttled replicas) are sets.
    """
    return _pieces(declared) == _pieces(live)


def _pieces(value: Column) -> Column:
    return F.array_sort(F.array_distinct(F.transform(F.split(value, ","), _canonical)))


def _canonical(piece: Column) -> Column:
    text = F.btrim(piece, F.lit(_BLANKS))
    lower = F.lower(text)
    # Whole numbers as such: a double can't tell the largest of them apart.
    whole = F.when(text.rlike(r"\A[+-]?[0-9]{1,37}\z"), text).try_cast(_WHOLE)
    number = F.when(text.rlike(_NUMBER), text).try_cast("double")
    as_whole = F.when((number == F.floor(number)) & (F.abs(number) < 1e15), number).try_cast(_WHOLE)
    boolean = F.when(lower.isin("true", "false"), lower)
    return F.coalesce(whole.cast("string"), as_whole.cast("string"), number.cast("string"), boolean, text)
