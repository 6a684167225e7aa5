"""Write `classes.jsa` beside Kafka's jars: the classes of a broker, from which the next ones start sooner.

`make setup` runs this once (JEP 350). Java ignores an archive of another version or class path, which only costs time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

from topicledger_testing.embedded_kafka import ARCHIVE, USERS, EmbeddedKafka, KafkaOptions


def main(jars: Path) -> None:
    """Start a broker with an authorizer, send what tests send most, and end it: Java then writes the archive."""
    made = jars / ARCHIVE
    new = made.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.environ["JDK_JAVA_OPTIONS"] = f"-XX:ArchiveClassesAtExit={new}"
    with EmbeddedKafka(jars, KafkaOptions(sasl_users=USERS)) as kafka:
        admin = KafkaAdminClient(**kafka.client_options())
        admin.create_topics([NewTopic("a", 1, 1)])
        admin.create_partitions({"a": NewPartitions(2)})
        admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "a")])
        admin.delete_topics(["a"])
        admin.close()
        kafka.stop_broker(1)
    new.rename(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
