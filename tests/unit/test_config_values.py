"""Values of configs that Kafka takes in one spelling and returns in another are the same value, or odd (K8)."""

from __future__ import annotations

import pytest

from tests.unit.config_values import STORED
from topicledger.kafka.config_values import is_odd, same_value

ODD = {
    "0x1p-2", "0X1P-2", "0x.8p0", "0x1.8p-1d", "+NaN", "-NaN", "fal\u017fe", "FAL\u017fE", "\uff16\uff10",
    "\u0666\u0660", "\u096c\u0966", "+\uff16", "6\uff10", "\u0b66\u0b67", "\u1090", "\ua8d6", "\u19d4", "\u1a90",
    "\uabf6", "\u0de6", "\u1c45", "\uff11",
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_each_spelling_is_the_value_that_brokers_return_or_odd(name: str) -> None:
    """Odd values are refused in manifests, since every run would alter them again."""
    spellings = [(stored, value) for stored, values in STORED[name].items() for value in values]
    assert [value for stored, value in spellings if not (is_odd(value) or same_value(name, value, stored))] == []
    assert {value for _, value in spellings if is_odd(value)} == {value for _, value in spellings if value in ODD}
    assert not [stored for stored in STORED[name] if is_odd(stored)]


@pytest.mark.parametrize("value", ["+Infinity", " +Infinity", "1e400", "-1e400d", " 1e400 ", "9" * 400])
def test_a_number_that_is_too_large_is_odd(value: str) -> None:
    """Java reads it as Infinity; a config that only a fork has may be a double."""
    assert is_odd(value)


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "1e300", "1e-400", "9" * 300, "1e400 x", "e400"])
def test_other_large_values_are_not_odd(value: str) -> None:
    assert not is_odd(value)


@pytest.mark.parametrize(
    ("declared", "live"),
    [
        ("10000000000000000", "1.0E16"),
        ("123456789012345678", "1.23456789012345677E17"),
        (" 1e300", "1.0E300"),
        ("a , b\t,c", "a,b,c"),
    ],
)
def test_a_config_of_a_fork_may_be_a_double_or_a_list(declared: str, live: str) -> None:
    assert same_value("only.in.a.fork", declared, live)


@pytest.mark.parametrize(
    ("one", "other"),
    [("9007199254740993", "9007199254740992"), ("1e16", "1.0000000000000002E16"), ("a,b", "b,a"), ("a b", "a,b")],
)
def test_a_config_of_a_fork_differs_in_each_digit_and_in_its_order(one: str, other: str) -> None:
    """Whole numbers that are the same double may be different longs."""
    assert not same_value("only.in.a.fork", one, other)


@pytest.mark.parametrize("name", STORED)
def test_values_that_brokers_tell_apart_differ(name: str) -> None:
    as_sets = {"cleanup.policy"}  # its order means nothing
    stored = [*STORED[name]]
    same = [(one, other) for one in stored for other in stored if one < other and same_value(name, one, other)]
    assert same == [] or name in as_sets or {*map(frozenset, same)} <= ALIKE


ALIKE = {frozenset({"0.0", "-0.0"}), frozenset({"1:1,0:1,0:1", "1:1,0:1"}), frozenset({"1:1\u0001,0:1", "1:1,0:1"}),
         frozenset({"1:1\u0001,0:1", "1:1,0:1,0:1"})}  # fmt: skip
"""Pairs that Kafka returns as they were given and that mean the same."""
