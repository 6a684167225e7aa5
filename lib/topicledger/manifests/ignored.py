"""Configs that runs, audits and exports ignore: `changes.ignore`, applied here for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

Ignored: TypeAlias = Mapping[str, Collection[str]]
"""Names of configs by cluster: `Settings.ignored_configs`."""


def is_ignored(ignored: Ignored, name: Column) -> Column:
    """Whether the config `name` (string) is ignored on the row's `cluster`."""
    return F.coalesce(F.array_contains(_names(ignored), name), F.lit(False))


def without_ignored(ignored: Ignored, configs: Column) -> Column:
    """Return a map of configs by name without those that are ignored on the row's `cluster`."""
    left = F.map_filter(configs, lambda name, _: ~is_ignored(ignored, name))
    return F.when(_touched(ignored, configs), left).otherwise(configs)


def ignored_names(ignored: Ignored, configs: Column) -> Column:
    """Return the names of configs that are ignored on the row's `cluster`: array<string>, null if there are none."""
    return F.when(_touched(ignored, configs), F.filter(F.map_keys(configs), lambda name: is_ignored(ignored, name)))


def _touched(ignored: Ignored, configs: Column) -> Column:
    # Spark interprets `map_filter` and `filter` instead of compiling them, so only the few rows that need it use them.
    return F.coalesce(F.arrays_overlap(F.map_keys(configs), _names(ignored)), F.lit(False))


def _names(ignored: Ignored) -> Column:
    """Return array<string>: the ignored names on the row's cluster."""
    lists = {name: tuple(sorted(each)) for name, each in ignored.items()}
    if len(set(lists.values())) == 1:
        return _array(next(iter(lists.values())))
    nothing = _array(())
    if not lists:
        return nothing
    by_cluster = F.create_map(*(part for name, each in lists.items() for part in (F.lit(name), _array(each))))
    return F.coalesce(by_cluster[F.col("cluster")], nothing)


def _array(names: Collection[str]) -> Column:
    return F.array(*map(F.lit, names)).cast("array<string>")
