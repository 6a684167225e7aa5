"""Whether two values of a config mean the same: decided for one pair, and in Spark for many, always alike."""

from __future__ import annotations

import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from topicledger.kafka.config_values import LISTS, is_odd, same_value, same_value_column
from topicledger.model.config_texts import BLANKS, UNITS, ConfigTextError, stored
from topicledger.model.topic_configs import TopicConfig, topic_configs

PAIRS = 600
"""Of one example, which is one Spark job."""

Pair = tuple[str | None, str | None, str | None]

NAMES = (*LISTS, "retention.ms", "min.cleanable.dirty.ratio", "preallocate", "new.in.kafka", None)
DIGITS = ("0", "00", "1", "5", "007", "1000", "999999999999999", "9223372036854775807", "9" * 50, "")
FRACTIONS = ("", ".", ".0", ".5", ".50", ".10000000000000000001")
EXPONENTS = ("", "d", "e0f", "D", "e0", "E2", "e-1", "e-3", "e15", "e16", "e400", "e-400")
WORDS = ("true", "TRUE", "False", "fal\u017fe", "lz4", "LZ4", "CreateTime", "Infinity", "inf", "NaN", "0x10", "1_000",
         "1.5d", "1.5", "0x1p-2", "5.0e-1F", "compact", "delete", "0:1", "1:1", "*", "", "\u0661\u0662", "\u00a01",
         "\u2003", "\u0130")  # fmt: skip


def any_value(rng: random.Random) -> str:
    parts = [rng.choice((any_number, any_word))(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return ",".join(f"{any_blanks(rng)}{part}{any_blanks(rng)}" for part in parts)


def any_number(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return repr(rng.choice((rng.uniform(-2, 2), rng.uniform(-1e16, 1e16), float(rng.randint(-9, 9)))))
    return rng.choice(("", "+", "-")) + rng.choice(DIGITS) + rng.choice(FRACTIONS) + rng.choice(EXPONENTS)


def any_word(rng: random.Random) -> str:
    return rng.choice((*WORDS, "".join(map(chr, rng.choices(range(0x250), k=3)))))


def any_blanks(rng: random.Random) -> str:
    return "".join(rng.choices(BLANKS, k=rng.choice((0, 0, 0, 1, 2))))


def any_pair(rng: random.Random) -> Pair:
    """Any two values, mostly two ways to write the same: else few pairs would be alike."""
    one = any_value(rng)
    others = (one.strip(), one.swapcase(), ",".join(reversed(one.split(","))), f"{one}0", f"+{one}", f"{one},{one}")
    other = rng.choice((*others, one, any_value(rng), None))
    return rng.choice(NAMES), rng.choice((one, one, one, None)), other


@settings(deadline=None, derandomize=True, max_examples=3, phases=[Phase.generate])
@given(st.integers())
def test_one_pair_and_a_column_of_pairs_are_compared_alike(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    pairs = [any_pair(rng) for _ in range(PAIRS)]
    frame = spark.createDataFrame(pairs, "name string, one string, other string")
    same = same_value_column(F.col("name"), F.col("one"), F.col("other"))
    rows = frame.select("name", "one", "other", same.alias("same")).collect()
    plain = [(*pair, same_value(*pair)) for pair in pairs]
    assert [(mine, theirs) for mine, theirs in zip(plain, map(tuple, rows), strict=True) if mine != theirs] == []
    assert {told for *_, told in plain} == {None, True, False}


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


def as_a_broker_stores(config: TopicConfig, value: str) -> str:
    text = value.strip(BLANKS)
    if config.type in ("int", "long"):
        return str(int(text))
    if config.type == "double":
        return repr(float(text.rstrip("dDfF")))
    return text.lower() if config.type == "boolean" else text


@settings(deadline=None, derandomize=True, max_examples=400, phases=[Phase.generate])
@given(st.integers(), st.sampled_from(list(topic_configs().values())))
def test_an_accepted_text_is_no_change_of_what_the_broker_stores(seed: int, config: TopicConfig) -> None:
    """So a second plan is empty; tests/broker/test_config_spellings.py shows it on a broker."""
    rng = random.Random(seed)
    for _ in range(10):
        try:
            value = stored(config.name, any_text(config, rng))
        except ConfigTextError:
            continue
        if not is_odd(value):
            assert same_value(config.name, value, as_a_broker_stores(config, value)), value
