"""python -m benchmarks.ledger FOLDER COUNT RETENTION: make a ledger to provision from, in a separate process."""

from __future__ import annotations

import sys

from pyspark.sql import functions as F

from benchmarks import brokers
from topicledger.ledger.session import get_session
from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS, TABLES


def main() -> None:
    """Make all tables; `manifests` has COUNT topics with this `retention.ms`, the others are empty."""
    folder, count, retention = sys.argv[1:]
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    ledger = Ledger(spark, folder)
    ledger.ensure(*TABLES.values())
    configs = F.create_map(F.lit("retention.ms"), F.lit(retention))
    given = {
        "cluster": F.lit(brokers.NAME),
        "topic": F.concat(F.lit("bench."), F.lpad(F.col("id").cast("string"), 5, "0")),
        "state": F.lit("present"),
        "num_partitions": F.lit(1),
        "replication_factor": F.lit(1),
        "configs": configs,
        "owner": F.lit("bench"),
    }
    columns = (given.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in MANIFESTS.schema)
    ledger.append(MANIFESTS, spark.range(int(count)).select(*columns), app_id="bench", version=0)
    spark.stop()


if __name__ == "__main__":
    main()
