"""Whether the latest manifests still declare of a topic what an action was planned from."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.manifests.rows import ABSENT


def declared_otherwise(names: Sequence[str]) -> Column:
    """string: why the manifests don't ask for a planned action any more, of `ActionKind.not_declared`: its topic is
    declared absent, or with other values of one of `names`; null where they ask for it."""
    differing = F.concat_ws(", ", *(F.when(~_same(name), F.lit(name)) for name in names))
    return F.when(F.col("now_state") == ABSENT, F.lit("declare it absent")).when(
        differing != "", F.concat(F.lit("declare it with other "), differing)
    )


def _same(name: str) -> Column:
    if name not in ("assignments", "configs"):
        return F.col(name).eqNullSafe(F.col(f"now_{name}"))
    # Spark can't compare maps; none and an empty one ask for the same.
    one, other = (F.array_sort(F.map_entries(each)) for each in (name, f"now_{name}"))
    same = F.coalesce(F.size(one), F.lit(0)).eqNullSafe(F.coalesce(F.size(other), F.lit(0))) & (
        (F.coalesce(F.size(one), F.lit(0)) <= 0) | one.eqNullSafe(other)
    )
    # Of a topic with a placement they are the planner's.
    chosen = F.col("placement").isNotNull() & F.col("now_assignments").isNull()
    return same | chosen if name == "assignments" else same
