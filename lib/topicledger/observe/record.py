"""What a run observes is written to `observed` and `brokers` before anything relies on it."""

from __future__ import annotations

from collections.abc import Iterator
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
    """What clusters list, and `named` by name; both are in `observed` and `brokers` when the context is left."""
    # The run's row is the first that it writes; and the tables are there.
    run.commits.settle()
    seen = describe_unlisted(run.ledger, run.settings, listing, named, run=run)

    def keep(table: Table, rows: DataFrame) -> None:
        run.ledger.replace_clusters(table, rows.withColumn("run_id", F.lit(run.run_id)), seen.known)

    with ThreadPoolExecutor(2) as pool:
        kept = pool.map(keep, (OBSERVED, BROKERS), (seen.topics, seen.brokers))
        yield seen
        list(kept)
