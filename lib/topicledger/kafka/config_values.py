"""Compare config values as Kafka does: for one pair, and for columns of a DataFrame.

Brokers return values as they parsed them (*measured* on 4.3.1): without surrounding blanks, booleans in lower case,
numbers in one form, lists without blanks around commas. The type of a config that the catalogue lacks is unknown.
Names such as `lz4` or `CreateTime` keep their case, and brokers refuse a different case. A value that no broker accepts
never becomes live, so each form may be read as widely as any config reads it: `0.5d` is a number, since Java reads it
as one. Forms that Java reads and nobody needs, such as `0x1p-2`, are refused in manifests (`is_odd`): compared as text,
they would always differ from the broker's form.
"""

from __future__ import annotations

import functools
import math
import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.model import SET_ON_TOPIC
from topicledger.model.config_texts import BLANKS, COMMA
from topicledger.model.topic_configs import topic_configs

LISTS = frozenset(name for name, each in topic_configs().items() if each.type == "list")
"""The topic configs of Kafka's type LIST, each of them a set. Another config may be a list of a fork: blanks around its
commas don't count, the order of its parts does."""

_WHOLE = r"\A([+-]?)0*([0-9]+)\z"
_NUMBER = r"\A([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?\z"
"""Double.parseDouble accepts the suffixes of Java literals and ignores them: `0.1f` is 0.1 as a double."""
_HEXADECIMAL = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?"
_LONG_S = "[fF][aA][lL]\u017f[eE]"
_OTHER_DIGITS = r"(?=.*[^\x00-\x7f])[+-]?\p{Nd}+"
_ODD = rf"\A[\x00-\x20]*(?:{_HEXADECIMAL}|[+-]NaN|[+]Infinity|{_LONG_S}|{_OTHER_DIGITS})[\x00-\x20]*\z"
"""Matches hexadecimal doubles, NaN with a sign, Infinity with a plus, `false` with a long s (an s for
`equalsIgnoreCase`), and digits of other scripts, which Long.parseLong accepts."""
_LONGEST_FINITE = 300
"""Up to this many characters, a number without an exponent is finite as a double."""
_EXACT = 1e15
"""Below this, every whole double has exactly one decimal form."""
_PYTHON_COMMA = re.compile(COMMA)
_PYTHON_WHOLE, _PYTHON_NUMBER, _PYTHON_ODD = (
    re.compile(pattern.replace(r"\z", r"\Z").replace(r"\p{Nd}", r"\d")) for pattern in (_WHOLE, _NUMBER, _ODD)
)


def same_value(name: str | None, one: str | None, other: str | None) -> bool | None:
    """Whether two values of the config `name` mean the same; None if either is None."""
    if one is None or other is None:
        return None
    if name in LISTS:
        return _parts(one) == _parts(other)
    return _canonical(one) == _canonical(other) or _same_double(one, other)


def same_value_column(name: Column, one: Column, other: Column) -> Column:
    """`same_value` for columns (string): boolean, null if either value is null."""
    as_lists = parts_column(one) == parts_column(other)
    alike = (_canonical_column(one) == _canonical_column(other)) | _same_double_column(one, other)
    return F.when(name.isin(*sorted(LISTS)), as_lists).otherwise(alike)


@functools.lru_cache(maxsize=4096)
def is_odd(value: str) -> bool:
    """Whether a broker may read the value and return it in a form that `same_value` takes for another value."""
    number = _PYTHON_NUMBER.match(value.strip(BLANKS))
    # Java reads a number that is too large as Infinity.
    return _PYTHON_ODD.match(value) is not None or (number is not None and math.isinf(float(number[1])))


def is_odd_column(value: Column) -> Column:
    """`is_odd` for a column (string): boolean, null if the value is null."""
    number = _number(trimmed(value))
    # Most values are spared the conversion, which took a seventh of the time of the rules about rows.
    may_overflow = value.contains("e") | value.contains("E") | (F.length(value) > _LONGEST_FINITE)
    return value.rlike(_ODD) | (may_overflow & F.coalesce(F.abs(number) == F.lit(math.inf), F.lit(False)))


def by_name(configs: Column | str) -> Column:
    """Convert an array of configs to a map: name -> config."""
    return F.map_from_entries(F.transform(configs, lambda each: F.struct(each["name"], each)))


def values_by_name(configs: Column | str) -> Column:
    """Convert an array of configs to a map: name -> value."""
    return F.map_from_entries(F.transform(configs, lambda each: F.struct(each["name"], each["value"])))


def is_set_on_topic(config: Column) -> Column:
    """Whether an entry of `configs` is set on the topic itself and isn't sensitive, so that its value is known."""
    return (config["config_source"] == SET_ON_TOPIC) & ~config["is_sensitive"]


def trimmed(value: Column) -> Column:
    """Trim a string column as Java's `String.trim` does."""
    return F.btrim(value, F.lit(BLANKS))


def _parts(value: str) -> frozenset[str]:
    return frozenset(part.strip(BLANKS) for part in value.split(","))


def parts_column(value: Column) -> Column:
    """Return the distinct parts of a list in alphabetical order (array<string>)."""
    parts = F.transform(F.split(value, ","), trimmed)
    return F.array_sort(F.array_distinct(parts))


def _canonical(value: str) -> str:
    text = value.strip(BLANKS)
    whole = _PYTHON_WHOLE.match(text)
    if whole is not None:
        sign, digits = whole.groups()
        return f"-{digits}" if sign == "-" and digits != "0" else digits
    decimal = _PYTHON_NUMBER.match(text)
    if decimal is not None:
        number = float(decimal[1])
        if math.isfinite(number):
            return str(int(number)) if number.is_integer() and abs(number) < _EXACT else repr(number)
    lower = text.lower()
    return lower if lower in ("true", "false") else _PYTHON_COMMA.sub(",", text)


def _same_double(one: str, other: str) -> bool:
    """Whether two numbers, one at least with a point or an exponent, are the same double: 1e16 in any form."""
    texts = [one.strip(BLANKS), other.strip(BLANKS)]
    if all(map(_PYTHON_WHOLE.match, texts)):
        return False
    first, second = (float(found[1]) if (found := _PYTHON_NUMBER.match(text)) else math.inf for text in texts)
    return first == second and math.isfinite(first)


def plain_number(value: Column) -> Column:
    """Return a number that Java reads without blanks and suffix (string), null for another value."""
    text = trimmed(value)
    return F.when(text.rlike(_NUMBER), F.regexp_extract(text, _NUMBER, 1))


def _number(text: Column) -> Column:
    """Return the double that Java reads, null if it reads none."""
    return plain_number(text).try_cast("double")


def _canonical_column(value: Column) -> Column:
    text = trimmed(value)
    # Compared as text: doubles can't distinguish the largest whole numbers.
    digits = F.regexp_extract(text, _WHOLE, 2)
    minus = F.when(F.startswith(text, F.lit("-")) & (digits != "0"), F.lit("-")).otherwise(F.lit(""))
    whole = F.when(text.rlike(_WHOLE), F.concat(minus, digits))
    number = _number(text)
    is_whole = (number == F.floor(number)) & (F.abs(number) < _EXACT)
    decimal = F.when(is_whole, number.try_cast("decimal(38,0)").cast("string")).when(
        F.abs(number) < F.lit(math.inf), number.cast("string")
    )
    lower = F.lower(text)
    return F.coalesce(whole, decimal, F.when(lower.isin("true", "false"), lower), F.regexp_replace(text, COMMA, ","))


def _same_double_column(one: Column, other: Column) -> Column:
    texts = trimmed(one), trimmed(other)
    first, second = map(_number, texts)
    both_whole = texts[0].rlike(_WHOLE) & texts[1].rlike(_WHOLE)
    return F.coalesce((first == second) & (F.abs(first) < F.lit(math.inf)) & ~both_whole, F.lit(False))
