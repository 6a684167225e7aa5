"""Owners of topics, compared regardless of surrounding blanks and case."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.arrow import over_arrow
from topicledger.config import ownership
from topicledger.config.settings import Owners
from topicledger.model.config_texts import BLANKS


def owner_key(owner: Column) -> Column:
    """Return an owner (string) in the form for comparisons; null if it is null or blank."""
    # Upper case first, so that letters with the same upper case are equal.
    return F.nullif(F.lower(F.upper(F.btrim(owner, F.lit(BLANKS)))), F.lit(""))


def is_one_of(owner: Column, owners: tuple[str, ...]) -> Column:
    """Return boolean: whether the owner is one of these; null if there is no owner."""
    return owner_key(owner).isin(*(owner_key(F.lit(each)) for each in owners))


def of_topics(manifests: DataFrame) -> DataFrame:
    """Return one row per topic (cluster, topic, owner, description), although other tools may have written several.

    In: rows of `manifests`.
    """
    return manifests.groupBy("cluster", "topic").agg(*(F.min(name).alias(name) for name in ("owner", "description")))


def belongs_to(settings: Owners, owners: tuple[str, ...]) -> Column:
    """Return boolean: whether a topic belongs to one of these owners by [owners]. In: cluster, topic."""
    asked = set(map(ownership.owner_key, owners))

    def found(clusters: pa.Array, topics: pa.Array) -> pa.Array:
        rows = list(zip(clusters.to_pylist(), topics.to_pylist(), strict=True))
        owned = ownership.owners_of(settings, rows)
        return pa.array([not asked.isdisjoint(map(ownership.owner_key, names)) for names in owned], pa.bool_())

    return over_arrow(found, "boolean", "cluster", "topic")
