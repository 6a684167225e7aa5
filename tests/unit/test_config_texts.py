"""Values of configs in files: units become Kafka's numbers, and what no Kafka accepts is an error."""

from __future__ import annotations

import pytest

from topicledger.model.config_texts import ConfigTextError, refused_together, shown, stored

SAME_MS, SAME = "configs: local.retention.ms is", "with remote.log.copy.disable=true, it must be the same as"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", " 12h ", "43200000"),
        ("retention.ms", "1.5h", "5400000"),
        ("flush.ms", "5m", "300000"),
        ("flush.ms", "30s", "30000"),
        ("flush.ms", "250ms", "250"),
        ("retention.bytes", "1GiB", "1073741824"),
        ("max.message.bytes", "2kB", "2000"),
        ("retention.bytes", "500MB", "500000000"),
        ("retention.bytes", "9B", "9"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", " 007 ", " 007 "),
        ("retention.ms", "+7", "+7"),
        ("compression.gzip.level", "-1", "-1"),
        ("min.cleanable.dirty.ratio", "0.5d", "0.5d"),
        ("min.cleanable.dirty.ratio", "5e-1F", "5e-1F"),
        ("cleanup.policy", "compact , delete", "compact , delete"),
        ("cleanup.policy", "", ""),
        ("cleanup.policy", "\x01compact\v,\fdelete\x00", "\x01compact\v,\fdelete\x00"),
        ("compression.type", " zstd ", " zstd "),
        ("preallocate", " TRUE ", " TRUE "),
        ("message.format.version", "3.0-IV1", "3.0-IV1"),
        ("message.format.version", "0.10.2.1", "0.10.2.1"),
        ("leader.replication.throttled.replicas", " 0:1 , 1:2", " 0:1 , 1:2"),
        ("leader.replication.throttled.replicas", "", ""),
        ("follower.replication.throttled.replicas", "*", "*"),
        ("flush.messages", "0", "0"),
        ("segment.index.bytes", "0", "0"),
        ("fork.own.ms", "7d", "7d"),
    ],
)
def test_a_value_that_kafka_accepts_is_stored_as_its_number(name: str, text: str, value: str) -> None:
    assert stored(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("retention.ms", "7 days", 'is "7 days"; write a whole number or a duration such as 7d or 12h'),
        (
            "retention.ms",
            "7D",
            'is "7D"; write a whole number or a duration such as 7d or 12h (units: d, h, m, s, ms)',
        ),
        ("retention.ms", "1GiB", 'is "1GiB"; write a whole number or a duration such as 7d or 12h'),
        ("retention.ms", "1e9", 'is "1e9"; write a whole number or a duration such as 7d or 12h'),
        ("retention.ms", "６０４８００", "write a whole number"),
        ("retention.ms", "-7d", "write a whole number"),
        ("retention.ms", "0.0001s", 'is "0.0001s", which is no whole number of ms'),
        ("retention.ms", "0." + "0" * 1_100_000 + "1d", "Kafka accepts -1 to"),
        ("retention.ms", "-2", 'is "-2"; Kafka accepts -1 to 9223372036854775807'),
        ("retention.ms", "9" * 1_000_000 + "d", "Kafka accepts -1 to 9223372036854775807"),
        ("retention.ms", "1." + "0" * 28 + "1d", "which is no whole number of ms"),
        ("retention.ms", "9" * 50, "Kafka accepts -1 to 9223372036854775807"),
        ("retention.ms", "", 'is ""; write a whole number'),
        ("max.message.bytes", "1TiB", 'is "1TiB"; Kafka accepts 0 to 2147483647'),
        ("flush.messages", "5m", 'is "5m"; write a whole number'),
        ("compression.gzip.level", "0", 'is "0"; Kafka accepts 1 to 9 or -1'),
        ("min.cleanable.dirty.ratio", "1.1", 'is "1.1"; Kafka accepts 0 to 1'),
        ("min.cleanable.dirty.ratio", "NaN", 'is "NaN"; write a number'),
        ("min.cleanable.dirty.ratio", "0x1p-2", "write a number"),
        ("cleanup.policy", "compact,,delete", 'is "compact,,delete"; Kafka accepts compact, delete'),
        # Kafka removes control characters around the whole value only.
        ("cleanup.policy", "compact,\x01delete", "Kafka accepts compact, delete"),
        ("cleanup.policy", "Delete", "Kafka accepts compact, delete"),
        ("compression.type", "ZSTD", "Kafka accepts uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("preallocate", "yes", 'is "yes"; write true or false'),
        ("message.format.version", "banana", 'is "banana"; write a version such as 2.8 or 0.10.2-IV0'),
        ("message.format.version", "0.10", "write a version"),
        ("follower.replication.throttled.replicas", "0:1,x", 'is "0:1,x"; write `PARTITION:BROKER,...` or `*`'),
        ("preallocate", "fal\u017fe", "write true or false"),
    ],
)
def test_a_value_that_no_kafka_accepts_is_an_error(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigTextError) as raised:
        stored(name, text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        (
            {"min.compaction.lag.ms": "3600000", "max.compaction.lag.ms": " 10 "},
            "configs: min.compaction.lag.ms is 1h (3600000), more than max.compaction.lag.ms, 10",
        ),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "010"}, None),
        ({"min.compaction.lag.ms": "100"}, None),
        (
            {"remote.storage.enable": "TRUE", "cleanup.policy": "delete, compact"},
            "configs: remote.storage.enable is TRUE, with which brokers refuse compact in cleanup.policy",
        ),
        ({"remote.storage.enable": "true", "cleanup.policy": "delete"}, None),
        ({"remote.storage.enable": "false", "cleanup.policy": "compact"}, None),
        ({"remote.storage.enable": "true"}, None),
        *(
            ({"remote.storage.enable": enabled, "local.retention.ms": local, "retention.ms": whole}, message)
            for enabled, local, whole, message in (
                ("true", "8", "7", "configs: local.retention.ms is 8, more than retention.ms, 7"),
                (" True", " -1 ", "7", "configs: local.retention.ms is -1, more than retention.ms, 7"),
                ("true", "7", "7", None),
                ("true", "-2", "7", None),
                ("true", "8", "-1", None),
                ("true", "-1", "-1", None),
                ("false", "8", "7", None),
            )
        ),
        ({"local.retention.bytes": "8", "retention.bytes": "7"}, None),
        *(
            (
                {"remote.storage.enable": "true", "remote.log.copy.disable": copies, local: value, whole: most},
                message,
            )
            for copies, local, value, whole, most, message in (
                ("true", "local.retention.ms", "5", "retention.ms", "7", f"{SAME_MS} 5; {SAME} retention.ms, 7"),
                ("true", "local.retention.ms", "5", "retention.ms", "-1", f"{SAME_MS} 5; {SAME} retention.ms, -1"),
                ("true", "local.retention.ms", "-2", "retention.ms", "7", None),
                ("true", "local.retention.ms", "7", "retention.ms", "07", None),
                ("false", "local.retention.ms", "5", "retention.ms", "7", None),
                (
                    "false",
                    "remote.copy.lag.ms",
                    "8",
                    "local.retention.ms",
                    "7",
                    "configs: remote.copy.lag.ms is 8, more than local.retention.ms, 7",
                ),
                ("false", "remote.copy.lag.ms", "-1", "local.retention.ms", "7", None),
                ("false", "remote.copy.lag.bytes", "8", "local.retention.bytes", "-2", None),
            )
        ),
    ],
)
def test_values_that_brokers_refuse_together_are_found(configs: dict[str, str], message: str | None) -> None:
    assert refused_together(configs) == message


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "604800000", "7d (604800000)"),
        ("retention.ms", "5400000", "90m (5400000)"),
        ("retention.ms", "1001", "1001"),
        ("retention.ms", "0086400000", "1d (0086400000)"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "9223372036854775807", "9223372036854775807"),
        ("retention.ms", "+604800000", "7d (+604800000)"),
        ("retention.ms", " 0604800000\t", "7d ( 0604800000\t)"),
        ("segment.bytes", "1073741824", "1GiB (1073741824)"),
        ("segment.bytes", "500000000", "500MB (500000000)"),
        ("segment.bytes", "1048588", "1048588"),
        ("retention.bytes", "2000000000", "2GB (2000000000)"),
        ("retention.bytes", "1000000000000", "1TB (1000000000000)"),
        ("retention.bytes", "128000000", "128MB (128000000)"),
        ("retention.bytes", "1048576000", "1000MiB (1048576000)"),
        ("retention.bytes", "0", "0"),
        ("flush.messages", "1000", "1000"),
        ("fork.own.ms", "1000", "1000"),
        (None, "1000", "1000"),
    ],
)
def test_a_value_with_a_unit_is_shown_with_both(name: str | None, value: str, text: str) -> None:
    assert shown(name, value) == text
