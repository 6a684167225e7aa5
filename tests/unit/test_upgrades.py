"""`policies audit --for-kafka`: what a version of Kafka breaks or changes, by the catalogue of configs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from topicledger.cli.upgrades import findings
from topicledger.errors import UsageError
from topicledger.model.upgrades import checked_version, of_default, of_limit, of_value
from topicledger.schemas.tables import CONFIGS


@pytest.mark.parametrize(
    ("name", "value", "version", "message"),
    [
        ("segment.bytes", "14", (4, 0), "segment.bytes: Kafka 4.0 accepts 1MiB (1048576) or more, and this is 14"),
        ("segment.bytes", "14", (3, 9), None),
        ("segment.bytes", "1048576", (4, 4), None),
        (
            "message.format.version",
            "2.8",
            (4, 0),
            "message.format.version: Kafka 4.0 doesn't know it (Kafka dropped it: 3.9 is the last with it)",
        ),
        (
            "message.format.version",
            "2.8",
            (3, 9, 1),
            "message.format.version: Kafka 3.9.1 accepts it and ignores it",
        ),
        ("message.format.version", "2.8", (2, 8), None),
        ("flush.messages", "0", (3, 2), None),
        ("flush.messages", "0", (3, 3), "flush.messages: Kafka 3.3 accepts 1 or more, and this is 0"),
        (
            "errors.deadletterqueue.group.enable",
            "true",
            (4, 3),
            "errors.deadletterqueue.group.enable: Kafka 4.3 doesn't know it (Kafka has it since 4.4)",
        ),
        ("of.a.fork", "1", (4, 4), None),
        ("retention.ms", "1", (4, 4), None),
    ],
)
def test_versions_break_values(name: str, value: str, version: tuple[int, ...], message: str | None) -> None:
    found = of_value(name, value, version)
    assert (found and found.message) == message


def test_versions_change_defaults() -> None:
    name = "message.timestamp.after.max.ms"
    found = of_default(name, "9223372036854775807", (4, 0))
    assert found is not None
    assert found.message == f"{name}: the default is 1h (3600000) in Kafka 4.0, and 9223372036854775807 now"
    assert of_default(name, "3600000", (4, 0)) is None
    assert of_default(name, "9223372036854775807", (3, 9)) is None


def test_a_default_that_the_catalogue_lacks_is_no_change() -> None:
    """That of brokers before 3.0 is their own version."""
    assert of_default("message.format.version", "2.7-IV2", (2, 8)) is None
    found = of_default("message.format.version", "2.7-IV2", (3, 9))
    assert found is not None
    assert found.message.endswith("the default is 3.0-IV1 in Kafka 3.9, and 2.7-IV2 now")


DIFFERENCE = "message.timestamp.difference.max.ms"


@pytest.mark.parametrize(
    ("name", "value", "version", "effect"),
    [
        (DIFFERENCE, "86400000", (4, 0), "changes"),
        (DIFFERENCE, "86400000", (3, 9), None),
        (DIFFERENCE, "9223372036854775807", (4, 0), None),
        ("segment.bytes", "\x0114 ", (4, 0), "breaks"),
        ("segment.bytes", "1048576", (4, 0), None),
        ("of.a.fork", "1", (4, 0), None),
    ],
)
def test_topics_lose_what_settings_of_brokers_gave_them(
    name: str, value: str, version: tuple[int, ...], effect: str | None
) -> None:
    found = of_limit(name, value, version)
    assert (found and found.effect) == effect
    if effect == "changes":
        assert found is not None
        assert found.message.endswith("3.9 is the last with it), so topics lose the broker's value 1d (86400000)")


@pytest.mark.parametrize(
    "text", ["4", "four", "4.x", "99.0", "", "4.-4", "0.1", "4. 0", "1.1.1.1", "٤.٠", "3.10", "2.9.1"]
)
def test_unknown_versions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--for-kafka"):
        checked_version(text)


def test_upgrade_findings_are_about_declared_and_live_topics(spark: SparkSession) -> None:
    declared = spark.createDataFrame(
        [("main", "a", "payments", {"segment.bytes": "14", "retention.ms": "1"}), ("main", "b", None, None)],
        "cluster string, topic string, owner string, configs map<string,string>",
    )
    name = "message.timestamp.after.max.ms"
    default = (name, "9223372036854775807", False, "DEFAULT_CONFIG", False)
    live = spark.createDataFrame(
        [
            ("main", "a", "payments", [default, ("segment.bytes", "14", False, "DYNAMIC_TOPIC_CONFIG", False)]),
            ("main", "b", None, [default, ("segment.bytes", "14", False, "STATIC_BROKER_CONFIG", False)]),
        ],
        f"cluster string, topic string, owner string, configs {CONFIGS.simpleString()}",
    )
    found = [(each.topic, each.source, each.effect, each.topics) for each in findings(declared, live, (4, 0))]
    assert found == [
        ("a", "declared", "breaks", 1),
        ("a", "live", "breaks", 1),
        (None, "default", "changes", 2),
        (None, "broker", "breaks", 1),
    ]
    assert findings(declared, live, (3, 9)) == []


def test_brokers_that_lack_a_config_change_to_its_new_default(spark: SparkSession) -> None:
    """Those before 3.6 describe no message.timestamp.after.max.ms, and limit nothing; 4.0 refuses records from it."""
    name, described = "message.timestamp.after.max.ms", ("retention.ms", "1", False, "DEFAULT_CONFIG", False)
    live = spark.createDataFrame(
        [
            ("old", "a", "payments", [described]),
            ("old", "b", None, [described]),
            ("new", "c", None, [described, (name, "3600000", False, "DEFAULT_CONFIG", False)]),
            ("new", "d", None, [described, (name, "5", False, "DYNAMIC_TOPIC_CONFIG", False)]),
            ("hidden", "e", None, None),
        ],
        f"cluster string, topic string, owner string, configs {CONFIGS.simpleString()}",
    )
    declared = spark.createDataFrame([], "cluster string, topic string, owner string, configs map<string,string>")
    (found,) = findings(declared, live, (4, 0))
    assert (found.cluster, found.topic, found.source, found.topics) == ("old", None, "default", 2)
    assert found.message == f"{name}: the default is 1h (3600000) in Kafka 4.0, and 9223372036854775807 now"
    assert [each.cluster for each in findings(declared, live, (3, 9))] == ["new"]
