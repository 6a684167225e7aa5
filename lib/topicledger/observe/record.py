"""Record a run's observation in `observed` and `brokers` before anything relies on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.ledger.run import Run
from topicledger.observe.clusters import describe_unlisted
from topicledger.observe.topics import Listing, Observation
from topicledger.schemas import BROKERS, OBSERVED, Table


@contextmanager
def observe_into_tables(run: Run, listing: Listing, named: DataFrame) -> Iterator[Observation]:
    """Provide listed and named topics in a context, which ends when `observed` and `brokers` have them."""
    # After this, the tables exist.
    run.commits.settle()
    seen = describe_unlisted(run.ledger, run.settings, listing, named, run=run)
    with ThreadPoolExecutor(2) as pool:
        kept = [
            pool.submit(keep, run, table, rows, seen.known)
            for table, rows in ((OBSERVED, seen.topics), (BROKERS, seen.brokers))
        ]
        yield seen
        for each in kept:
            each.result()


def keep(run: Run, table: Table, rows: DataFrame, clusters: Collection[str]) -> None:
    """Replace the table's rows of those `clusters` that differ from `rows` (the table's columns without `run_id`)."""
    differ = run.ledger.clusters_that_differ(table, rows, clusters)
    if differ:
        run.keep_row()
        run.commits.settle()
        own = rows.where(F.col("cluster").isin(*differ)).withColumn("run_id", F.lit(run.run_id))
        run.ledger.replace_clusters(table, own, differ)
