"""The user, the principals and the versions that a run is recorded with."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Sequence

import kafka
import pyspark
from pyspark.sql import SparkSession, is_remote

from topicledger import __version__
from topicledger.config.settings import ClusterSettings
from topicledger.ledger.jars import delta_version


def os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number only
        return f"uid {os.getuid()}"


def versions(spark: SparkSession | None = None) -> dict[str, str]:
    """Return the versions of topicledger, Spark, Delta and kafka-python, as in `runs.versions`.

    With a session, Spark's version is that of its Spark: a server's may differ from this process's package.
    """
    # A client doesn't know which Delta its server has: jars of its own aren't used.
    delta = None if spark is not None and is_remote() else delta_version()
    return {
        "topicledger": __version__,
        "spark": pyspark.__version__ if spark is None else spark.version,
        "delta": delta or "unknown",
        "kafka-python": kafka.__version__,
    }


def spark_app_id(spark: SparkSession) -> str | None:
    """Return Spark's id of this application."""
    return spark.conf.get("spark.app.id", None)


def principal_of(clusters: Sequence[ClusterSettings]) -> str | None:
    """Return the run's user on each cluster as in the settings, without resolving references; None without clusters."""
    names = {cluster.name: str(cluster.client.get("sasl_plain_username", "ANONYMOUS")) for cluster in clusters}
    if len(set(names.values())) <= 1:
        return next(iter(names.values()), None)
    return json.dumps(names)
