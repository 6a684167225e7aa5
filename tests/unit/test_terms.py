"""Terms in Python mean what their Columns mean in SQL."""

from __future__ import annotations

from typing import Any

import pytest

from topicledger.manifests.terms import cases, exists, field, isnan, lit


def test_a_term_is_no_truth_value() -> None:
    """`one and other` would be `other`, whatever `one` is."""
    with pytest.raises(TypeError, match="no truth value"):
        bool(field("a").is_null())


@pytest.mark.parametrize(
    ("values", "found"), [([], False), ([1, None], True), ([3, None], None), ([3, 4], False), (None, None)]
)
def test_exists_is_null_if_only_a_null_may_meet_the_condition(values: Any, found: bool | None) -> None:
    assert exists(field("a"), lambda item: item < 2).in_python({"a": values}) is found


@pytest.mark.parametrize(
    ("one", "other", "both", "either"),
    [(True, None, None, True), (False, None, False, None), (None, None, None, None), (True, False, False, True)],
)
def test_conditions_are_joined_as_in_sql(
    one: bool | None, other: bool | None, both: bool | None, either: bool | None
) -> None:
    for first, second in ((one, other), (other, one)):
        assert (lit(first) & lit(second)).in_python({}) is both
        assert (lit(first) | lit(second)).in_python({}) is either


def test_a_condition_that_is_null_does_not_hold() -> None:
    assert cases((field("a").eq(1), "one"), otherwise="other").in_python({}) == "other"
    assert (~isnan(field("a"))).in_python({}) is True


def test_patterns_match_ascii_only_as_in_java() -> None:
    assert field("a").matches(r"\A\d\z").in_python({"a": "\u0663"}) is False
