"""Changes of existing topics, from columns of declared and live values, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.unit.frames import decision_rows, frame
from topicledger.config.settings import ChangeSettings
from topicledger.resources.topics.plan.changes import CAUTION, DESCRIBED, with_alters, with_changes
from topicledger.schemas import OBSERVED_CONFIGS

ON_TOPIC, BY_DEFAULT = "DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"


def config(
    name: str, value: str | None, source: str = ON_TOPIC, *, sensitive: bool = False, read_only: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": sensitive,
    }


LIVE = [
    config("a", "1"),
    config("b", "2", BY_DEFAULT),
    config("secret", None, sensitive=True),
    config("throttled", "*"),
    config("list", "x"),
    config("fixed", "1", read_only=True),
]
CASES: dict[str, tuple[dict[str, str] | None, dict[str, tuple[dict[str, str], dict[str, str]] | None]]] = {
    "nothing declared": (None, {"declared": None, "exact": ({"a": "1", "list": "x"}, {})}),
    "as it lives": ({"a": " 1", "b": "2", "list": "x"}, {"declared": None, "exact": None}),
    "another value": (
        {"a": "3", "list": "x"},
        {"declared": ({"a": "1"}, {"a": "3"}), "exact": ({"a": "1"}, {"a": "3"})},
    ),
    "of a default": ({"a": "1", "b": "5", "list": "x"}, {"declared": ({}, {"b": "5"}), "exact": ({}, {"b": "5"})}),
    "unknown to the broker": ({"a": "1", "new": "5", "list": "x"}, {"declared": ({}, {"new": "5"})}),
    "sensitive": ({"a": "1", "secret": "5", "list": "x"}, {"declared": None, "exact": None}),
    "read-only": ({"a": "1", "fixed": "5", "list": "x"}, {"declared": None, "exact": None}),
    "ignored": ({"a": "1", "throttled": "none", "list": "x"}, {"declared": None, "exact": None}),
}


def decided(spark: SparkSession, configs: dict[str, str] | None, settings: ChangeSettings, **row: Any) -> DataFrame:
    """Return the decision on topic t, which differs at most in these configs."""
    return all_decided(spark, {"t": configs}, settings, **row)


def all_decided(
    spark: SparkSession, declared: Mapping[str, dict[str, str] | None], settings: ChangeSettings, **row: Any
) -> DataFrame:
    """Return the decisions on topics, each with its declared configs."""
    rows = decision_rows(
        spark, *({"topic": each, "decision": "unchanged", "configs": declared[each], **row} for each in declared)
    )
    live = [{"cluster": "main", "topic": each, "configs": LIVE, "config_error_code": 0} for each in declared]
    described = frame(spark, OBSERVED_CONFIGS.schema, live).select(*DESCRIBED)
    return rows.transform(with_changes({"main": settings}, described)).transform(with_alters)


@pytest.mark.parametrize("mode", ["declared", "exact"])
def test_configs_are_altered_where_they_differ_and_nowhere_else(
    spark: SparkSession, mode: Literal["declared", "exact"]
) -> None:
    """K8: only what is set on the topic is `before`; exact also resets what nobody declared. A topic for each case."""
    settings = ChangeSettings(configs=mode, ignore=("throttled",))
    declared = {case: configs for case, (configs, wanted) in CASES.items() if mode in wanted}
    rows = all_decided(spark, declared, settings).collect()
    wanted = {case: CASES[case][1][mode] for case in declared}
    assert {row["topic"]: (row["decision"], row["before"], row["after"]) for row in rows} == {
        case: ("unchanged", None, None) if change is None else ("alter_configs", *change)
        for case, change in wanted.items()
    }
    assert len(rows) == len(declared)


def test_a_default_value_is_set_if_it_should_be_pinned(spark: SparkSession) -> None:
    settings = ChangeSettings(configs="declared", pin=True)
    (row,) = decided(spark, {"a": "1", "b": "2"}, settings).collect()
    assert (row["decision"], row["before"], row["after"]) == ("alter_configs", {}, {"b": "2"})


def test_a_topic_that_gets_partitions_and_configs_has_a_row_for_each(spark: SparkSession) -> None:
    """The numbers of a topic whose counts are left to the broker are never changed."""
    settings = ChangeSettings(configs="declared", partitions="grow")
    rows = decided(spark, {"a": "3"}, settings, num_partitions=4).collect()
    found = {row["decision"]: (row["before"], row["after"]) for row in rows}
    assert found == {
        "add_partitions": ({"num_partitions": "1"}, {"num_partitions": "4"}),
        "alter_configs": ({"a": "1"}, {"a": "3"}),
    }
    (row,) = decided(spark, {"a": "1"}, settings).collect()
    assert row["decision"] == "unchanged"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "row",
    [
        {"internal": True},
        {"live": False},
        {"decision": "create", "live": False},
        {"decision": "delete"},
        {"decision": "unmanaged"},
        {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "decision": None},
        {"cluster": "other"},
    ],
)
def test_nothing_else_is_changed(spark: SparkSession, row: dict[str, Any]) -> None:
    settings = ChangeSettings(configs="exact", partitions="grow")
    (found,) = decided(spark, {"a": "3"}, settings, **{"num_partitions": 4, **row}).collect()
    assert (found["decision"], found["alters"]) == (row.get("decision", "unchanged"), None)
    assert found["after"] is None


@pytest.mark.parametrize(
    ("code", "error", "outcome", "expected"),
    [
        (29, "TOPIC_AUTHORIZATION_FAILED", "refused", "NOT_PERMITTED"),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", "failed", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_undescribable_configs_do_not_count_as_declared(
    spark: SparkSession, code: int, error: str, outcome: str, expected: str
) -> None:
    rows = decision_rows(spark, {"topic": "t", "decision": "unchanged", "configs": {"a": "3"}})
    hidden = [{"cluster": "main", "topic": "t", "configs": None, "config_error_code": code, "config_error": error}]
    described = frame(spark, OBSERVED_CONFIGS.schema, hidden).select(*DESCRIBED)
    settings = {"main": ChangeSettings(configs="declared")}
    (row,) = rows.transform(with_changes(settings, described)).transform(with_alters).collect()
    assert (row["decision"], row["phase"], row["outcome"], row["error"]) == (
        "alter_configs",
        "observe",
        outcome,
        expected,
    )


def test_every_change_of_min_insync_replicas_has_a_warning(spark: SparkSession) -> None:
    declares = {"lower": "1", "raised": "3", "same": "2", "reset": None}
    topics = [
        {
            "topic": topic,
            "decision": "unchanged",
            "configs": {"flush.ms": "7"} if value is None else {"min.insync.replicas": value, "flush.ms": "7"},
        }
        for topic, value in declares.items()
    ]
    live = [config("min.insync.replicas", "2"), config("flush.ms", "8")]
    described = frame(
        spark,
        OBSERVED_CONFIGS.schema,
        [{"cluster": "main", "topic": each, "configs": live, "config_error_code": 0} for each in declares],
    ).select(*DESCRIBED)
    changed = decision_rows(spark, *topics).transform(
        with_changes({"main": ChangeSettings(configs="exact")}, described)
    )
    found = {row["topic"]: row["violations"] for row in changed.transform(with_alters).collect()}
    assert {topic for topic, violations in found.items() if violations is not None} == {"lower", "raised", "reset"}
    (warned,) = found["raised"]
    assert (warned["policy"], warned["warns"]) == (CAUTION, True)
    assert warned["message"].startswith("min.insync.replicas: any change clears the topic's eligible leader replicas")
