"""Planning the places of replicas and leaders: the planner runs for each cluster, and its answers become actions.

The planner is plain Python and needs all partitions of a cluster at once. It runs on the executors, one cluster each
(`applyInArrow`): so clusters are planned in parallel, and the driver only gets their moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from topicledger.arrow import arrow_schema
from topicledger.frames import materialised
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Decision, Refusal, ReplicaAction
from topicledger.model.moves import Rebalance, assignments_text
from topicledger.model.placement import ANYWHERE, parse_placement
from topicledger.observe.topics import Observation
from topicledger.phases import CHANGE, MOVES
from topicledger.resources.scoped import INSIDE
from topicledger.resources.topics.plan.rebalancing import kept_outside, rebalanced
from topicledger.resources.topics.plan.replicas import (
    Change,
    LiveCluster,
    TopicReplicas,
    Wish,
    bytes_moved,
    create,
    flows,
    plan,
)
from topicledger.schemas.tables import ASSIGNMENTS

GROWS = "_grows"
"""Column (boolean): whether a topic declares more partitions than it has, and may get them. Either its move or the
election of its leaders stays out of the plan (`placing.without_growing`)."""
_ANSWER = StructType(
    [
        StructField("cluster", StringType()),
        StructField("topic", StringType()),
        StructField("decision", StringType()),
        StructField("assignments", ASSIGNMENTS),
        StructField("moves", MOVES),
        *CHANGE,
        *(StructField(name, StringType()) for name in ("error", "error_message", "warning")),
        StructField(GROWS, BooleanType()),
    ]
)
"""The planner's answer. A create has `assignments`, a reassign has `moves`; a reassign and elect_leaders have `before`
and `after` as in `plans`. A refusal has an error instead. `warning`: shortcomings of the result."""

_ASKED = ("num_partitions", "replication_factor", "placement")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request to the planner: names of clusters by what may be planned on them."""

    moves: Collection[str] = ()
    """Clusters on which replicas of existing topics may be moved."""
    elections: Collection[str] = ()
    """Clusters on which preferred replicas may be elected."""
    growing: Collection[str] = ()
    """Clusters on which topics may get partitions."""
    rebalance: Rebalance | None = None
    """A broker to drain or fill, instead of applying manifests."""
    outside: Column | None = None
    """Whether a topic without a row is outside the scope (boolean); None if none is. In: cluster, topic."""
    creates: bool = False
    """Place the replicas of new topics on any cluster, and nothing else."""

    @property
    def clusters(self) -> Collection[str]:
        """Clusters on which moves or elections may be planned."""
        return {*self.moves, *self.elections}


CREATES = Asked(creates=True)
NOTHING_ASKED = Asked()


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes from log directories; empty if unknown."""

    replicas: DataFrame | None = None
    """cluster, topic, partition, bytes: a row per replica."""
    rooms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Cluster -> broker -> free bytes."""


def planned(
    validated: DataFrame, seen: Observation, sizes: Sizes, asked: Asked, refused: DataFrame | None = None
) -> DataFrame:
    """Ask the planner about declared topics; return `_ANSWER`, materialised, for topics that need an action.

    In: `validated` from `manifests.rows.validate`, with `INSIDE`. Topics outside stay; those a rebalance would move, if
    they were inside, have the decision `outside`. `refused`: topics whose rows are refused, so that a rebalance doesn't
    know where they may be (cluster, topic, error, error_message); without a topic, a row may mean any.
    """
    clusters = [each for each in seen.known if asked.creates or each in asked.clusters]
    here = F.col("cluster").isin(*clusters)
    live = seen.topics.where(here & F.col("permitted")).select(
        "cluster", "topic", "internal", F.col("assignments").alias("live"), "other_leaders"
    )
    accepted = here & F.col("phase").isNull() & (F.col("state") == PRESENT)
    declared = validated.where(accepted).select(
        "cluster", "topic", F.col(INSIDE).alias("declared"), *_ASKED, F.col("assignments").alias("assigned")
    )
    rows = live.join(declared, on=["cluster", "topic"], how="full_outer").transform(_with_refused(refused))
    if asked.outside is not None:
        rows = rows.withColumn("declared", F.coalesce("declared", F.when(asked.outside, F.lit(False))))
        # Workers get the rest of it.
        asked = replace(asked, outside=None)
    if sizes.replicas is None:
        rows = rows.withColumn("sizes", F.lit(None).cast("map<int,bigint>"))
    else:
        largest = sizes.replicas.groupBy("cluster", "topic", "partition").agg(F.max("bytes").alias("bytes"))
        by_topic = largest.groupBy("cluster", "topic").agg(
            F.map_from_entries(F.collect_list(F.struct("partition", "bytes"))).alias("sizes")
        )
        rows = rows.join(by_topic, on=["cluster", "topic"], how="left")
    racks: dict[str, dict[int, str | None]] = {}
    for row in seen.brokers.where(here).select("cluster", "broker_id", "rack").collect():
        racks.setdefault(row["cluster"], {})[row["broker_id"]] = row["rack"]
    lives = {name: LiveCluster(racks=racks.get(name, {}), rooms=sizes.rooms.get(name, {})) for name in clusters}

    def answers(key: tuple[pa.Scalar], table: pa.Table) -> pa.Table:
        name = key[0].as_py()
        found = list(answer(name, lives[name], table.to_pylist(), asked))
        return pa.Table.from_pylist(found, schema=arrow_schema(_ANSWER))

    return rows.groupBy("cluster").applyInArrow(answers, _ANSWER).transform(materialised)


def _with_refused(refused: DataFrame | None) -> Transform:
    """Add `refused`, null for other topics: the error and its message."""
    if refused is None:
        return lambda rows: rows.withColumn("refused", F.lit(None).cast("struct<error:string,error_message:string>"))
    why = F.struct("error", "error_message").alias("refused")
    named = refused.where(F.col("topic").isNotNull())
    by_topic = named.select("cluster", "topic", why).dropDuplicates(["cluster", "topic"])
    unnamed = refused.where(F.col("topic").isNull())
    of_any = unnamed.select("cluster", why).groupBy("cluster").agg(F.min("refused").alias("_any"))
    return lambda rows: (
        rows.join(by_topic, on=["cluster", "topic"], how="left")
        .join(F.broadcast(of_any), on="cluster", how="left")
        .withColumn("refused", F.coalesce("refused", "_any"))
        .drop("_any")
    )


def answer(
    name: str, cluster: LiveCluster, rows: Sequence[Mapping[str, Any]], asked: Asked
) -> Iterator[dict[str, Any]]:
    """Yield rows of `_ANSWER` for one cluster.

    In: its existing and its declared topics; `declared` is false for those outside the scope, null without a row.
    """
    topics = [
        TopicReplicas(
            topic=row["topic"],
            replicas={partition: tuple(brokers) for partition, brokers in row["live"]},
            sizes=dict(row["sizes"] or ()),
            leaderless=frozenset(part for part, leader in dict(row["other_leaders"] or ()).items() if leader < 0),
        )
        for row in rows
        if row["live"] is not None
    ]
    by_name = {each.topic: each for each in topics}
    declared = {row["topic"]: row for row in rows if row["declared"]}
    there = {topic: row for topic, row in declared.items() if topic in by_name and not row["internal"]}
    grows = {topic for topic, row in there.items() if name in asked.growing and _grows(row)}
    wishes = {
        topic: _wish(row, only=by_name[topic].replicas if topic in grows else None)
        for topic, row in there.items()
        if name in asked.moves and asked.rebalance is None
    }
    if asked.rebalance is None:
        changes = plan(cluster, topics, wishes)
        grows &= changes.keys()
    else:
        changes = rebalanced(cluster, topics, rows, asked.rebalance)
        there = {row["topic"]: row for row in rows if row["topic"] in changes}
        for topic in kept_outside(topics, rows, asked.rebalance):
            yield {"cluster": name, "topic": topic, "decision": Decision.OUTSIDE.value}
    for topic, change in changes.items():
        values = {"cluster": name, "topic": topic, "decision": ReplicaAction.REASSIGN.value, GROWS: topic in grows}
        yield {**values, **_moves(by_name[topic], change)}
    if name in asked.elections:
        for topic, row in sorted(there.items()):
            change = changes.get(topic, Change())
            # Where a move is refused, the replicas stay: the first one may be on a broker that is being drained.
            if change.refused is not None and topic not in grows:
                continue
            target = {} if topic in grows else change.target
            turned = _to_elect(by_name[topic], dict(row["other_leaders"] or ()), target, cluster)
            if turned:
                values = {"cluster": name, "topic": topic, "decision": ReplicaAction.ELECT_LEADERS.value}
                yield {
                    **values,
                    GROWS: topic in grows,
                    "before": {"leaders": _leaders_text({each: now for each, (now, _) in turned.items()})},
                    "after": {
                        "partitions": ",".join(map(str, turned)),
                        "leaders": _leaders_text({each: planned for each, (_, planned) in turned.items()}),
                    },
                }
    if asked.creates:
        missing = {topic: row for topic, row in declared.items() if topic not in by_name}
        yield from _creates(name, cluster, topics, missing)


def _wish(row: Mapping[str, Any], only: Collection[int] | None = None) -> Wish:
    """Return what a row asks for; of declared assignments, those of `only` these partitions."""
    if row["assigned"] is not None:
        asked = ((each, tuple(brokers)) for each, brokers in row["assigned"] if only is None or each in only)
        return Wish(assignments=dict(asked))
    placement = ANYWHERE if row["placement"] is None else parse_placement(row["placement"])
    return Wish(placement=placement, replication_factor=row["replication_factor"])


def _grows(row: Mapping[str, Any]) -> bool:
    count = row["num_partitions"] if row["assigned"] is None else len(row["assigned"])
    return count is not None and count > len(row["live"])


def _moves(topic: TopicReplicas, change: Change) -> dict[str, Any]:
    if change.refused is not None:
        error, message = change.refused
        return {"error": error.value, "error_message": message}
    size = bytes_moved(topic, change)
    moved = ((each, topic.replicas[each], brokers) for each, brokers in sorted(change.target.items()))
    return {
        "moves": [{"partition": each, "before": list(old), "after": list(new)} for each, old, new in moved],
        "before": {"assignments": assignments_text({each: topic.replicas[each] for each in change.target})},
        "after": {
            "assignments": assignments_text(change.target),
            **({} if size is None else {"bytes": str(size), "broker_bytes": assignments_text(flows(topic, change))}),
        },
        "warning": _crowded(change),
    }


def _crowded(change: Change) -> str | None:
    partitions = ", ".join(map(str, change.crowded))
    return f"partitions {partitions} have a rack twice: no allowed broker is in another rack" if partitions else None


def _to_elect(
    topic: TopicReplicas,
    other_leaders: Mapping[int, int],
    target: Mapping[int, tuple[int, ...]],
    cluster: LiveCluster,
) -> Mapping[int, tuple[int, int]]:
    """Return partition -> leader and preferred replica, for partitions that this replica doesn't or won't lead.

    A leader whose replica is removed needs no election: Kafka makes the first replica the leader. A partition without a
    leader, or whose preferred replica is down, is left out: the election would fail.
    """
    found = {}
    for partition, now in sorted(topic.replicas.items()):
        leader, replicas = other_leaders.get(partition, now[0]), target.get(partition, now)
        if leader in replicas and leader != replicas[0] and replicas[0] in cluster.racks:
            found[partition] = leader, replicas[0]
    return found


def _leaders_text(leaders: Mapping[int, int]) -> str:
    return ";".join(f"{partition}:{leader}" for partition, leader in leaders.items())


def _creates(
    name: str, cluster: LiveCluster, topics: Iterable[TopicReplicas], rows: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    placed = {topic: row for topic, row in sorted(rows.items()) if row["placement"] not in (None, str(ANYWHERE))}
    counted = {
        topic: (row["num_partitions"], _wish(row))
        for topic, row in placed.items()
        if None not in (row["num_partitions"], row["replication_factor"])
    }
    changes = create(cluster, topics, counted)
    for topic in placed:
        found: dict[str, Any] = {"cluster": name, "topic": topic, "decision": Action.CREATE.value}
        if topic not in counted:
            found["error"] = Refusal.COUNTS_REQUIRED.value
            found["error_message"] = (
                "a topic that is created with a placement needs num_partitions and replication_factor: declare them"
            )
        elif (refused := changes[topic].refused) is not None:
            found["error"], found["error_message"] = refused[0].value, refused[1]
        else:
            found["warning"] = _crowded(changes[topic])
            found["assignments"] = [(each, list(brokers)) for each, brokers in changes[topic].target.items()]
        yield found
