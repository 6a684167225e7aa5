"""Whether the latest manifests still declare a topic as an action was planned."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.kafka.config_values import same_value_column
from topicledger.manifests.row_rules import ABSENT
from topicledger.model.renames import REPLACES


def declared_differently(names: Sequence[str], inherits: Column | None = None) -> Column:
    """Return why the manifests no longer declare a planned action (string), for `ActionKind.not_declared`.

    The topic is declared absent, or with other values of one of `names`; null if it is still declared. `inherits`:
    whether it has values of another topic in addition to the declared ones.
    """
    more = F.lit(False) if inherits is None else F.coalesce(inherits, F.lit(False))
    differing = F.concat_ws(", ", *(F.when(~(_same(name) | (more & _left_out(name))), F.lit(name)) for name in names))
    return F.when(F.col("now_state") == ABSENT, F.lit("declare it absent")).when(
        differing != "", F.concat(F.lit("declare it with other "), differing)
    )


def _left_out(name: str) -> Column:
    """Return whether the manifest leaves a value to the topic that is replaced."""
    now = F.col(f"now_{name}")
    if name in ("num_partitions", "replication_factor"):
        return now.isNull() & F.col("now_assignments").isNull()
    if name != "configs":
        return F.lit(False)
    return ~F.coalesce(F.exists(F.map_keys(now), lambda config: ~_same_config(config)), F.lit(False))


def _same_config(name: Column) -> Column:
    """Whether brokers read the planned and the declared value of a config as the same one."""
    planned, now = F.col("configs")[name], F.col("now_configs")[name]
    return F.coalesce(same_value_column(name, planned, now), planned.isNull() & now.isNull())


def _same(name: str) -> Column:
    if name == REPLACES:
        return F.col("before")[REPLACES].eqNullSafe(F.col(f"now_{REPLACES}"))
    if name == "configs":
        names = [F.coalesce(F.map_keys(each), F.array().cast("array<string>")) for each in (name, f"now_{name}")]
        return F.forall(F.array_union(*names), _same_config)
    if name != "assignments":
        return F.col(name).eqNullSafe(F.col(f"now_{name}"))
    # Spark can't compare maps; null and an empty one mean the same.
    one, other = (F.array_sort(F.map_entries(each)) for each in (name, f"now_{name}"))
    same = F.coalesce(F.size(one), F.lit(0)).eqNullSafe(F.coalesce(F.size(other), F.lit(0))) & (
        (F.coalesce(F.size(one), F.lit(0)) <= 0) | one.eqNullSafe(other)
    )
    # The planner sets them for a topic with a placement.
    chosen = F.col("placement").isNotNull() & F.col("now_assignments").isNull()
    return same | chosen
