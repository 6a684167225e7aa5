"""create_topics.py MANIFESTS SERVERS OUT: the simplest job that creates missing topics.

Reads the manifests, anti-joins a topic list, calls create_topics in mapInPandas, once to validate and once to create,
and writes the results of each to a Delta table. It checks and recovers nothing, and a task that Spark repeats creates
twice.
"""

import sys
import time
from collections.abc import Iterator
from functools import partial

import pandas as pd
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

MANIFESTS, SERVERS, OUT = sys.argv[1:]
BATCH = 2_000


def call_create_topics(frames: Iterator[pd.DataFrame], *, validate_only: bool) -> Iterator[pd.DataFrame]:
    admin = KafkaAdminClient(bootstrap_servers=SERVERS.split(","))
    for frame in frames:
        for start in range(0, len(frame), BATCH):
            rows = frame.iloc[start : start + BATCH]
            topics = [
                NewTopic(row.topic, row.num_partitions, row.replication_factor, topic_configs=dict(row.configs))
                for row in rows.itertuples()
            ]
            response = admin.create_topics(topics, validate_only=validate_only, raise_errors=False)
            rows = [(topic["name"], topic["error_code"], topic["error_message"]) for topic in response["topics"]]
            yield pd.DataFrame(rows, columns=["topic", "error_code", "error_message"])
    admin.close()


spark = SparkSession.builder.appName("create topics").getOrCreate()
began = time.monotonic()
admin = KafkaAdminClient(bootstrap_servers=SERVERS.split(","))
live = spark.createDataFrame([(topic,) for topic in admin.list_topics()], "topic string")
admin.close()
wanted = spark.read.format("delta").load(MANIFESTS).join(live, on="topic", how="left_anti").coalesce(1)
schema = "topic string, error_code int, error_message string"
for name, validate_only in (("validated", True), ("created", False)):
    results = wanted.mapInPandas(partial(call_create_topics, validate_only=validate_only), schema)
    results.write.format("delta").save(f"{OUT}/{name}")
created = spark.read.format("delta").load(f"{OUT}/created").where("error_code = 0").count()
print(f"created: {created}")
print(f"from session ready to exit: {time.monotonic() - began:.3f} s")
spark.stop()
