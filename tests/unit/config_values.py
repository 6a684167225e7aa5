"""Values of topic configs, and how brokers store them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from topicledger.model.config_texts import BLANKS, UNITS
from topicledger.model.topic_configs import TopicConfig

STORED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "min.cleanable.dirty.ratio": {
        "0.5": (
            "0.5",
            "0.5d",
            "0.5D",
            "0.5f",
            "5.0e-1F",
            "0.5 ",
            "\u00090.5\u000a",
            "0x.8p0",
            "+0.5",
            ".5",
            "5e-1",
            "0.50000000000000000001",
            ".5f",
            "+.5d",
            "5.e-1",
            "00.5",
            "5E-1",
            "\u001f0.5",
            "\u00010.5\u0000",
        ),
        "0.25": (
            "0x1p-2",
            "0X1P-2",
        ),
        "0.75": ("0x1.8p-1d",),
        "1.0": (
            "1",
            "1d",
            "1.d",
        ),
        "NaN": (
            "NaN",
            "+NaN",
            "-NaN",
            " NaN",
        ),
        "-0.0": (
            "-0.0",
            "-0",
        ),
        "0.0": ("1e-400",),
        "0.1": (
            "0.1f",
            "0.1",
        ),
        "0.10000000149011612": ("0.10000000149011612",),
        "1.0E-7": ("0.0000001",),
    },
    "retention.ms": {
        "604800": ("604800",),
        "60": (
            "\uff16\uff10",
            "\u0666\u0660",
            "+60",
            " 60 ",
            "\u000960\u0000",
            "\u096c\u0966",
            "6\uff10",
        ),
        "-1": ("-1",),
        "0": (
            "-0",
            "+0",
            "\u1090",
            "\u1a90",
            "\u0de6",
        ),
        "7": ("007",),
        "9223372036854775807": ("9223372036854775807",),
        "6": (
            "+\uff16",
            "\ua8d6",
            "\uabf6",
        ),
        "1": ("\u0b66\u0b67",),
        "4": ("\u19d4",),
        "5": ("\u1c45",),
    },
    "max.message.bytes": {
        "1048588": (
            "1048588 ",
            "+1048588",
        ),
        "1": ("\uff11",),
    },
    "unclean.leader.election.enable": {
        "true": (
            "true",
            "TRUE",
            " True ",
            "tRuE",
            "\u0009true\u0000",
        ),
        "false": (
            "fal\u017fe",
            "FAL\u017fE",
        ),
    },
    "cleanup.policy": {
        "compact,delete": (
            "compact , delete",
            "compact,delete,compact",
            "compact\u000a,\u000adelete",
            "compact\u000b,\u000cdelete",
        ),
        "compact": (" compact ",),
        "": ("",),
        "delete,compact": ("delete,compact",),
    },
    "follower.replication.throttled.replicas": {
        "1:1,0:1,0:1": ("1:1,0:1,0:1",),
        "*": (
            "*",
            " * ",
        ),
        "1:1,0:1": ("1:1 , 0:1",),
        "": ("",),
        "1:1,": ("1:1,",),
        "01:1": ("01:1",),
        "1:1\u0001,0:1": ("1:1\u0001,0:1",),
        "1:01": ("1:01",),
    },
    "compression.type": {
        "zstd": (" zstd ",),
        "producer": ("producer",),
        "gzip": ("gzip",),
    },
    "message.timestamp.type": {
        "CreateTime": ("CreateTime",),
        "LogAppendTime": (" LogAppendTime",),
    },
    "compression.gzip.level": {
        "-1": ("-1",),
        "9": (" 9 ",),
    },
}
"""By config and the value that brokers return: what they take for it. *Measured* with LogConfig.validate and
ConfigDef.convertToString of Kafka 4.3.1 on Java 17: what a broker does with the values of a topic."""

DIGITS = ("0", "00", "1", "5", "007", "1000", "999999999999999", "9223372036854775807", "9" * 50, "")
FRACTIONS = ("", ".", ".0", ".5", ".50", ".10000000000000000001")
EXPONENTS = ("", "d", "e0f", "D", "e0", "E2", "e-1", "e-3", "e15", "e16", "e400", "e-400")
WORDS = ("true", "TRUE", "False", "fal\u017fe", "lz4", "LZ4", "CreateTime", "Infinity", "inf", "NaN", "0x10", "1_000",
         "1.5d", "1.5", "0x1p-2", "5.0e-1F", "compact", "delete", "0:1", "1:1", "*", "", "\u0661\u0662", "\u00a01",
         "\u2003", "\u0130")  # fmt: skip


def any_number(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return repr(rng.choice((rng.uniform(-2, 2), rng.uniform(-1e16, 1e16), float(rng.randint(-9, 9)))))
    return rng.choice(("", "+", "-")) + rng.choice(DIGITS) + rng.choice(FRACTIONS) + rng.choice(EXPONENTS)


def any_word(rng: random.Random) -> str:
    return rng.choice((*WORDS, "".join(map(chr, rng.choices(range(0x250), k=3)))))


def any_blanks(rng: random.Random) -> str:
    return "".join(rng.choices(BLANKS, k=rng.choice((0, 0, 0, 1, 2))))


def any_text(config: TopicConfig, rng: random.Random) -> str:
    """A text that may be a value of the config, in one of its spellings."""
    if config.accepted.values and rng.random() < 0.8:
        texts = rng.choices(config.accepted.values, k=rng.choice((1, 2)) if config.type == "list" else 1)
    elif config.type == "boolean" and rng.random() < 0.8:
        texts = [rng.choice(("true", "TRUE", "False", "faLse"))]
    elif config.unit is not None and rng.random() < 0.4:
        texts = [f"{rng.choice(DIGITS)}{rng.choice(FRACTIONS)}{rng.choice(list(UNITS[config.unit]))}"]
    else:
        texts = [rng.choice((any_number, any_word))(rng)]
    return ",".join(f"{any_blanks(rng)}{text}{any_blanks(rng)}" for text in texts)
