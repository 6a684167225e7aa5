"""Rows that `--replace` leaves, of tables and clusters that the files have no entry for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.files.load import Replace, clusters_of
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files import ParsedManifests
from topicledger.manifests.owners import is_one_of
from topicledger.schemas import DECLARING
from topicledger.text import listed, show


def left_behind(ledger: Ledger, parsed: ParsedManifests, replace: Replace | None) -> Sequence[str]:
    """Return a line for the terminal about rows that stay although no file has them; none if there are none.

    Rows of the given owners, on any cluster but those that `--cluster` left out; without owners, on the clusters that
    the files name.
    """
    if replace is None:
        return []
    found = []
    for table in DECLARING:
        rows = ledger.read_if_exists(table).where(~_on(clusters_of(parsed.tables.get(table.name, ()))))
        if replace.owners:
            rows = rows.where(is_one_of(F.col("owner"), replace.owners) & ~_on(parsed.left_out))
        else:
            rows = rows.where(_on(parsed.clusters))
        counts = rows.groupBy("cluster").count().orderBy("cluster").collect()
        found += [f"{table.name} on {_name(row['cluster'])}: {row['count']:,}" for row in counts]
    if not found:
        return []
    return [
        f"rows that no file has stay where the files have no entry of their kind: {listed(found)}. Declare them "
        "absent, or delete them from the table"
    ]


def _name(cluster: str | None) -> str:
    return "no cluster" if cluster is None else show(cluster)


def _on(clusters: Collection[str]) -> Column:
    """Return whether a row is of one of these clusters; never null."""
    return F.coalesce(F.col("cluster").isin(*clusters), F.lit(False))
