"""read_manifests.py PATH: the smallest Spark job on Delta. Starts a session and reads one table."""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("read manifests").getOrCreate()
rows = spark.read.format("delta").load(sys.argv[1]).collect()
print(f"rows: {len(rows)}")
spark.stop()
