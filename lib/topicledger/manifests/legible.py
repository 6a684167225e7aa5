"""Names of topics that can be read: a row with another name may mean any topic of its cluster."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.manifests.row_rules import LEGAL_TOPIC
from topicledger.model import INTERNAL_TOPICS


def is_legible() -> Column:
    """Return whether Kafka accepts the name (boolean, never null), internal topics' names too. In: topic (string)."""
    return LEGAL_TOPIC.reason.column().isNull() | F.coalesce(F.col("topic").isin(*INTERNAL_TOPICS), F.lit(False))
