"""Clusters that a run could not reach when it was planned."""

from __future__ import annotations

from pyspark.sql import functions as F

from topicledger.ledger.tables import Ledger
from topicledger.model import Refusal
from topicledger.schemas import PLANS


def has_unreached(ledger: Ledger, run_id: str) -> bool:
    """Whether a cluster could not be reached when the run was planned: its plan can be made later."""
    unreached = (F.col("run_id") == run_id) & (F.col("error") == Refusal.CLUSTER_UNREACHABLE.value)
    return not ledger.read(PLANS).where(unreached).isEmpty()
