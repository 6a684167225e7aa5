"""Policies for changes of topics that exist; see `create`."""

from __future__ import annotations

from pyspark.sql import functions as F

from topicledger.policies.contract import RowRule, text


def fewer_partitions() -> RowRule:
    """A topic is not declared with fewer partitions than it has: Kafka can't remove partitions (KIP-195)."""
    live, declared = (F.col(name)["num_partitions"].cast("int") for name in ("before", "after"))
    return RowRule(
        reason=F.when(
            declared < live,
            text(
                "it has ",
                live,
                " partitions, ",
                declared,
                " are declared, and Kafka can't remove partitions: declare ",
                live,
            ),
        ),
        inputs=text("num_partitions ", live, " to ", declared),
    )
