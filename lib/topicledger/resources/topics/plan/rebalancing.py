"""Moves for a broker that is drained or filled, instead of what manifests declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from topicledger.model import Refusal
from topicledger.model.moves import Rebalance
from topicledger.model.placement import ANYWHERE, allows, parse_placement, without
from topicledger.resources.topics.plan.replicas import Change, LiveCluster, TopicReplicas, Wish, fill, plan

Rows = Sequence[Mapping[str, Any]]
"""Rows of `moving.answer`."""


def rebalanced(
    cluster: LiveCluster, topics: Sequence[TopicReplicas], rows: Rows, rebalance: Rebalance
) -> Mapping[str, Change]:
    """Plan moves that drain or fill a broker: within declared placements; topics that no row declares may move to any.

    Topics outside the scope, and those whose rows are refused, stay where they are.
    """
    broker, outside = rebalance.broker, _outside(rows)
    unclear = {
        row["topic"]: Change(
            refused=(
                Refusal(row["refused"]["error"]),
                "its row is refused, so it is unknown where its replicas may be: correct the row first: "
                f"{row['refused']['error_message']}",
            )
        )
        for row in rows
        if row["refused"] is not None and row["declared"] is None
    }
    placements = {
        row["topic"]: parse_placement(row["placement"])
        for row in rows
        if row["declared"] and row["placement"] is not None
    }
    assigned = {row["topic"] for row in rows if row["declared"] and row["assigned"] is not None}
    if rebalance.fills:
        allowed = {
            each.topic
            for each in topics
            if each.topic not in assigned | outside | unclear.keys()
            and allows(placements.get(each.topic, ANYWHERE), broker, cluster.racks[broker])
        }
        return fill(cluster, topics, [broker], allowed)
    there = [topic for topic in _on(topics, broker) if topic not in outside]
    wishes = {
        topic: Wish(placement=without(placements.get(topic, ANYWHERE), broker))
        for topic in there
        if topic not in assigned and topic not in unclear
    }
    stay = Change(
        refused=(
            Refusal.BROKERS_UNAVAILABLE,
            f"its manifest assigns replicas to brokers, and it has some on broker {broker}, which is drained: declare "
            "other assignments, or a placement",
        )
    )
    changes = plan(replace(cluster, leaving=frozenset([broker])), topics, wishes)
    kept = {topic: unclear.get(topic, stay) for topic in there if topic in assigned or topic in unclear}
    return dict(sorted({**changes, **kept}.items()))


def kept_outside(topics: Sequence[TopicReplicas], rows: Rows, rebalance: Rebalance) -> Sequence[str]:
    """Return the topics outside the scope that keep a drained broker from being empty."""
    outside = _outside(rows)
    return [] if rebalance.fills else [topic for topic in _on(topics, rebalance.broker) if topic in outside]


def _outside(rows: Rows) -> set[str]:
    return {row["topic"] for row in rows if row["declared"] is False}


def _on(topics: Sequence[TopicReplicas], broker: int) -> Sequence[str]:
    return [each.topic for each in topics if any(broker in replicas for replicas in each.replicas.values())]
