"""Owners of topics, and when two are the same: blanks around them and their case don't count."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.kafka.config_values import BLANKS


def owner_key(owner: Column) -> Column:
    """An owner (string) as owners are compared; null where there is none: a blank one is none."""
    # Upper first: two forms of a letter that are one in capitals are one letter.
    return F.nullif(F.lower(F.upper(F.btrim(owner, F.lit(BLANKS)))), F.lit(""))


def is_one_of(owner: Column, owners: tuple[str, ...]) -> Column:
    """boolean: whether the owner is one of these; null where there is none."""
    return owner_key(owner).isin(*(owner_key(F.lit(each)) for each in owners))


def of_topics(manifests: DataFrame) -> DataFrame:
    """cluster, topic, owner: one row a topic, though other tools may have written several. In: rows of `manifests`."""
    return manifests.groupBy("cluster", "topic").agg(F.min("owner").alias("owner"))
