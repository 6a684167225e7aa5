"""Topics that other tools create, and the documented settings that leave them to these tools."""

from __future__ import annotations

import re
from pathlib import Path

TOPICS = (
    "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
    "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition",
    "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
    "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    "app-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000010-changelog",
    "app-orders-by-customer-subscription-registration-topic",
    "app-orders-by-customer-subscription-response-topic",
    "connect-configs",
    "connect-offsets",
    "connect-status",
    "mm2-offset-syncs.eu.internal",
    "mm2-configs.eu.internal",
    "mm2-offsets.eu.internal",
    "mm2-status.eu.internal",
    "eu.checkpoints.internal",
    "heartbeats",
    "eu.heartbeats",
    "eu.orders",
    "dlq.payments",
    "payments.authorised.dlq",
    "dlq-payments",
    "payments-dlq",
    "payments.authorised-dlt",
    "payments.authorised.DLT",
)
"""Topics of Kafka Streams, Connect, MirrorMaker 2, and dead-letter queues."""
_PAGE = Path(__file__).parents[1] / "docs" / "audit-and-drift.md"


def documented_scope() -> str:
    """Return the settings (TOML) of the documentation."""
    block = re.search(r"```toml\n(\[scope\].*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return block[1]
