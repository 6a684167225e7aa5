"""Whether two values of a config mean the same: decided for one pair, and in Spark for many, always alike."""

from __future__ import annotations

import random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.config_values import any_blanks, any_number, any_text, any_word
from topicledger.kafka.config_values import LISTS, is_odd, is_odd_column, same_value, same_value_column
from topicledger.model.config_texts import BLANKS, ConfigTextError, stored
from topicledger.model.topic_configs import TopicConfig, topic_configs

PAIRS = 600
"""Of one example, which is one Spark job."""

Pair = tuple[str | None, str | None, str | None]

NAMES = (*LISTS, "retention.ms", "min.cleanable.dirty.ratio", "preallocate", "new.in.kafka", None)


def any_value(rng: random.Random) -> str:
    parts = [rng.choice((any_number, any_word))(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return ",".join(f"{any_blanks(rng)}{part}{any_blanks(rng)}" for part in parts)


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
    rows = frame.select("name", "one", "other", same.alias("same"), is_odd_column(F.col("one"))).collect()
    plain = [(*pair, same_value(*pair), None if pair[1] is None else is_odd(pair[1])) for pair in pairs]
    assert [(mine, theirs) for mine, theirs in zip(plain, map(tuple, rows), strict=True) if mine != theirs] == []
    assert {told for *_, told, _ in plain} == {odd for *_, odd in plain} == {None, True, False}


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
