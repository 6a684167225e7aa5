"""The leader of a cluster's quorum of controllers."""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.waiting import until
from topicledger_testing.embedded_kafka import HOST, EmbeddedKafka


def active_controller(kafka: EmbeddedKafka) -> int:
    """Return the node that leads the quorum; metadata only names any broker."""
    up = [f"{HOST}:{broker.port}" for broker in kafka.brokers if broker.pid is not None]
    with closing(KafkaAdminClient(bootstrap_servers=up)) as admin:

        def leader() -> int:
            try:
                quorum = admin.describe_metadata_quorum()
            except KafkaError:
                # The request went to a broker that is down but still listed.
                return -1
            return int(quorum["topics"][0]["partitions"][0]["leader_id"])

        until(lambda: leader() >= 0, seconds=20)
        return leader()
