"""Costs of actions: the records that a controller writes, and the tokens of its limit on changes.

The records are defined twice, as a Column for planned rows and as a function of a target; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.ledger.rows import parts_of
from topicledger.ledger.rows import touched as touched_names
from topicledger.model import Target


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of an action of one kind."""

    planned: Callable[[], Column]
    """Metadata records that the controller writes (bigint). In: a row with `before`, `after`, `moves`, and `DECLARED`.

    A count left to the broker is taken as 1. If that is too low and the broker refuses the batch, the batch is halved.
    """
    records: Callable[[Target], int]
    """The same for a target."""
    tokens: Callable[[Target, int | None], int]
    """Tokens of that limit (C17). The second argument is the topic's number of partitions, if an answer gave it."""


def free(_: Target, __: int | None) -> int:
    """Return the tokens of uncounted actions: all but creates, deletes and added partitions (K6, A6)."""
    return 0


def _declared_records() -> Column:
    partitions = F.coalesce(F.size("assignments"), F.lit(0))
    assigned = F.when(partitions > 0, partitions)
    configs = F.greatest(F.coalesce(F.size("configs"), F.lit(0)), F.lit(0))
    # bigint: a row may declare as many partitions as an int holds.
    return F.lit(1) + F.coalesce(assigned, F.col("num_partitions"), F.lit(1)).cast("bigint") + configs


def _partitions(target: Target) -> int | None:
    return len(target.assignments) if target.assignments else target.num_partitions


WHOLE_TOPIC = Cost(
    planned=_declared_records,
    records=lambda target: 1 + (_partitions(target) or 1) + len(target.configs),
    tokens=lambda target, known: max(1, known or _partitions(target) or 1),
)
"""The topic, its partitions and its configs (C15); a token for each partition."""

ADDED_PARTITIONS = Cost(
    planned=lambda: F.col("after")["num_partitions"].cast("bigint") - F.col("before")["num_partitions"].cast("bigint"),
    records=lambda target: target.grows_to - target.grows_from,
    tokens=lambda target, _: target.grows_to - target.grows_from,
)
"""A record (N1) and a token (N5) for each partition that is added."""

TOUCHED_NAMES = Cost(
    planned=lambda: F.size(touched_names()).cast("bigint"),
    records=lambda target: len(target.touched),
    tokens=free,
)
"""A record for each name in `before` or `after`: configs that an alter touches (K5), other values (Q1)."""

ONE_RECORD = Cost(planned=lambda: F.lit(1).cast("bigint"), records=lambda _: 1, tokens=free)
"""One record for each resource (A5)."""


MOVED_PARTITIONS = Cost(
    planned=lambda: F.size("moves").cast("bigint"),
    records=lambda target: len(target.replicas_after),
    tokens=free,
)
"""A record for each partition that is moved."""

ELECTED_PARTITIONS = Cost(
    planned=lambda: F.size(parts_of(F.col("after")["partitions"], ",")).cast("bigint"),
    records=lambda target: len(target.after["partitions"].split(",")),
    tokens=free,
)
"""A record for each partition that gets a different leader."""
