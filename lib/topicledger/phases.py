"""Rows that the phases of a run hand each other, as StructTypes: one for each boundary.

    manifest -> DECLARED -+
                          +-> decide -> DECIDED -> policy, guard -> EVALUATED -> plan -> PLANNED
    observe  -> OBSERVED -+

A phase passes its rows through `returned` before it hands them on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from topicledger.schemas import CONFIGS, MANIFESTS, PLANS
from topicledger.schemas import OBSERVED as OBSERVED_TABLE
from topicledger.schemas.definition import column
from topicledger.schemas.tables import ASSIGNMENTS

_STRING, _INT, _BOOLEAN = StringType(), IntegerType(), BooleanType()
VALUES = MapType(_STRING, _STRING)
"""Values by name, as `before` and `after` of `plans` have them."""
CHANGE = StructType([StructField("before", VALUES), StructField("after", VALUES)])
"""Values that a change replaces, and the new values."""

GUARDED = MapType(_STRING, _INT)
"""Guards that stopped an action, without `max_` -> the number that an approval must allow."""

VIOLATIONS = ArrayType(
    StructType(
        [StructField("policy", _STRING), StructField("message", _STRING), StructField("warns", _BOOLEAN)],
    )
)
"""Every rule that an action breaks; `warns`: the rule refuses nothing. Tables tell that by the message
(`ledger.rows.written_violations`)."""

_BROKERS = ArrayType(_INT)
MOVES = ArrayType(
    StructType([StructField("partition", _INT), StructField("before", _BROKERS), StructField("after", _BROKERS)])
)
"""Partitions whose replicas move, with their brokers before and after; the first is the preferred leader. Tables have
them as text in `before` and `after`: `model.moves.assignments_text` writes it, `ledger.rows.read_moves` reads it."""

ENDED = StructType(
    [
        column("phase", _STRING, "phase that ended the row; null while the row is open"),
        column("outcome", _STRING, "refused, failed or skipped; null while the row is open"),
        column("error", _STRING, "name of the refusal or of Kafka's error"),
        column("error_message", _STRING, "the reason"),
    ]
)
"""End of a row: what all phases before validate set, and none clears."""

DECLARED = StructType(
    [*(StructField(each.name, each.dataType, True, each.metadata) for each in MANIFESTS.schema), *ENDED]
)
"""Phase manifest: the rows of `manifests`, accepted or refused. One row per (cluster, topic); identical copies have a
second row that notes them (skipped), and rows without a topic stay as they are."""

OBSERVED = StructType(
    [
        *(each for each in OBSERVED_TABLE.schema if each.name != "run_id"),
        column("other_leaders", MapType(_INT, _INT), "partition -> leader, unless its first replica leads; -1: none"),
        column("unknown", _STRING, "error instead of a description; null: none, or TOPIC_AUTHORIZATION_FAILED"),
    ]
)
"""Phase observe: one row per topic that a cluster lists, or that it describes by name."""

DECIDED = StructType(
    [
        column("cluster", _STRING, "a name from the run settings"),
        column("cluster_id", _STRING, "the Kafka cluster's own id"),
        column("topic", _STRING, "the topic's name"),
        column("topic_id", _STRING, "the live topic's id"),
        column(
            "decision",
            _STRING,
            "an action, or why none is needed, such as unchanged; null if it ended",
        ),
        column("num_partitions", _INT, "as declared"),
        column("replication_factor", _INT, "as declared"),
        column("assignments", ASSIGNMENTS, "as declared, or as the planner placed the replicas of a create"),
        column("configs", VALUES, "as declared"),
        column("owner", _STRING, "as declared"),
        column("labels", VALUES, "as declared"),
        column("undeclared", _BOOLEAN, "whether no row declares what changes, so any labels may be its own"),
        column("live", _BOOLEAN, "whether the topic exists; null if brokers don't tell (`observed.unknown`)"),
        column("internal", _BOOLEAN, "whether the topic is internal to Kafka"),
        column("live_num_partitions", _INT, "as observed; null if the topic doesn't exist"),
        column("live_replication_factor", _INT, "as observed; null if the topic doesn't exist"),
        column("live_min_replicas", _INT, "fewest replicas that one of its partitions has, as observed"),
        column("resolved_num_partitions", _INT, "as validateOnly returned it; null before validate"),
        column("resolved_replication_factor", _INT, "as validateOnly returned it; null before validate"),
        column("resolved_configs", VALUES, "as validateOnly returned them; for an alter or a move, as they will be"),
        column("validated", _BOOLEAN, "whether validate has asked the broker"),
        *ENDED,
        column("violations", VIOLATIONS, "every policy violated; warns: the policy refuses nothing"),
        column("waits", _BOOLEAN, "whether it needs room that a delete must make first, or comes after other deletes"),
        column("before", VALUES, "values that the action replaces, as in plans"),
        column("after", VALUES, "values that the action sets, as in plans"),
        column("live_configs", CONFIGS, "as described; null if no change asks for them"),
        column("alters", CHANGE, "configs to alter, until they become an action of their own"),
        column("placement", _STRING, "as declared"),
        column("moves", MOVES, "of a reassignment, each partition that moves: its brokers before and after"),
        column("guards", GUARDED, "guards that stopped the action, as in plans"),
    ]
)
"""Phase decide: one row per (cluster, topic) that is declared or exists. Changes and moves add a row per action."""

EVALUATED = StructType([*DECIDED, column("action", _STRING, "the action needed; null if there is none")])
"""Phases policy and guard: the same rows, refused if a rule says so, one per action."""

PLANNED = PLANS.schema
"""Phase plan: rows of the table `plans`."""

DECIDED_RESOURCE = StructType(
    [
        *(DECIDED[name] for name in ("cluster", "cluster_id")),
        column("resource_type", _STRING, "the type of the resource: a kind beside topics"),
        column("resource", _STRING, "the text that names the resource on its cluster"),
        column("state", _STRING, "as declared; null if it isn't declared"),
        *(DECIDED[name] for name in ("owner", "labels", "undeclared", "decision")),
        *ENDED,
        *(DECIDED[name] for name in ("violations", "before", "after", "waits", "guards")),
    ]
)
"""Phase decide, for resources beside topics: one row per resource that is declared or exists. Their kind may add
columns of its own."""

BOUNDARIES: Mapping[str, StructType] = {
    "declared": DECLARED,
    "observed": OBSERVED,
    "decided": DECIDED,
    "evaluated": EVALUATED,
    "planned": PLANNED,
    "decided_resource": DECIDED_RESOURCE,
}
"""Every boundary between phases, in order."""


def returned(phase: str, rows: DataFrame, schema: StructType, *, or_more: bool = False) -> DataFrame:
    """Return the rows of a phase, whose columns must have the names and types of `schema`.

    Compares schemas only: no job starts. `or_more` allows further columns. Raises TypeError.
    """
    found, wanted = _types(rows.schema), _types(schema)
    problems = [f"lacks {name} {kind}" for name, kind in wanted.items() if name not in found]
    problems += [
        f"has {name} as {found[name]}, not {kind}" for name, kind in wanted.items() if found.get(name, kind) != kind
    ]
    if not or_more:
        problems += [f"has {name}, which the boundary doesn't know" for name in found if name not in wanted]
    if problems:
        raise TypeError(f"the result of phase {phase} {'; '.join(problems)}")
    return rows


def _types(schema: StructType) -> Mapping[str, str]:
    return {each.name: each.dataType.simpleString() for each in schema}


def in_order(schema: StructType, values: Mapping[str, Column | str]) -> Sequence[Column]:
    """Columns of `schema` in its order, for `select`; those without a value are null. A string names a column."""
    return [
        (null(each.dataType) if value is None else F.col(value) if isinstance(value, str) else value).alias(each.name)
        for each in schema
        for value in [values.get(each.name)]
    ]


def null(data_type: DataType) -> Column:
    return F.lit(None).cast(data_type)
