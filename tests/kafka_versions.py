"""Behaviour of only some versions of Kafka (*measured*); all other expectations of tests hold for all versions."""

from __future__ import annotations

import pytest

from tests.clusters import VERSION

WITH_ZOOKEEPER = VERSION < (3, 3)
"""Versions that tests run without KRaft."""

TOPIC_CONFIGS = 30 if VERSION >= (3, 9) else 25
"""How many configs a topic has at least: 29 in 3.3.2."""

BAD_CONFIG = {(40, "INVALID_CONFIG"), *([(42, "INVALID_REQUEST")] if WITH_ZOOKEEPER else [])}
"""Result of a change to an unknown config or a wrong value."""

forwards = pytest.mark.skipif(WITH_ZOOKEEPER, reason="this Kafka's brokers answer NOT_CONTROLLER instead (C13)")
limits_requests = pytest.mark.skipif(
    VERSION < (3, 9), reason="this Kafka takes more than 10,000 partitions or records in a request (C15)"
)
