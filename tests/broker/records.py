"""Records and committed offsets of topics."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.waiting import until
from topicledger_testing.embedded_kafka import EmbeddedKafka


def client(kafka: EmbeddedKafka, **config: Any) -> dict[str, Any]:
    """librdkafka's settings, as the super user."""
    options = kafka.client_options()
    sasl = {
        name: options[key]
        for name, key in [
            ("security.protocol", "security_protocol"),
            ("sasl.mechanism", "sasl_mechanism"),
            ("sasl.username", "sasl_plain_username"),
            ("sasl.password", "sasl_plain_password"),
        ]
        if key in options
    }
    quiet = {"log_level": 0, "error_cb": lambda error: None}
    named = {name.replace("_", "."): value for name, value in config.items()}
    return {"bootstrap.servers": ",".join(kafka.bootstrap_servers), **sasl, **quiet, **named}


def commit(kafka: EmbeddedKafka, group: str, *topics: str) -> None:
    """Commit an offset on the first partition of each topic, from outside the group."""
    with closing(Consumer(client(kafka, group_id=group, enable_auto_commit=False))) as consumer:

        def committed() -> bool:
            try:
                consumer.commit(offsets=[TopicPartition(topic, 0, 1) for topic in topics], asynchronous=False)
            except confluent_kafka.KafkaException as error:
                # The topic that keeps offsets is made with the first of them.
                if error.args[0].name() in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"):
                    return False
                raise
            return True

        until(committed, seconds=30)


def write(
    kafka: EmbeddedKafka, topic: str, *, partition: int = 0, at: datetime, records: int = 1, **config: Any
) -> None:
    producer = Producer(client(kafka, **config))
    for _ in range(records):
        producer.produce(topic, b"x", partition=partition, timestamp=round(at.timestamp() * 1000))
    assert producer.flush(30) == 0


def drop_records(kafka: EmbeddedKafka, topic: str) -> None:
    """Delete every record of the first partition."""
    admin = AdminClient(client(kafka))
    for done in admin.delete_records([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)]).values():
        done.result(30)
