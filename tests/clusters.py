"""The kinds of Kafka cluster that tests run against; each is started by `with`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from topicledger.embedded_kafka import EmbeddedKafka, KafkaOptions

REPOSITORY = Path(__file__).resolve().parent.parent
JARS = Path(os.environ.get("TOPICLEDGER_JARS", REPOSITORY / "build" / "jars")) / "kafka"
POLICY_SOURCE = Path(__file__).resolve().parent / "kafka_policy" / "ForbiddenPrefixPolicy.java"

SASL_USERS = {
    "admin": "admin-secret",
    "creator": "creator-secret",
    "describer": "describer-secret",
    "nobody": "nobody-secret",
}
"""The first is the super user; what the others may do is up to the test's ACLs, at first nothing."""


def plain() -> EmbeddedKafka:
    """One broker, no security."""
    return EmbeddedKafka(JARS)


def three_brokers() -> EmbeddedKafka:
    """Three brokers, 1 to 3, in racks a, b, c, each a coordinator of groups.

    A broker that comes back is let in again after 3 s instead of 9.
    """
    timing = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    properties = {**timing, "offsets.topic.num.partitions": "3"}
    return EmbeddedKafka(JARS, KafkaOptions(brokers=3, racks=("a", "b", "c"), properties=properties, heap="384m"))


def with_sasl() -> EmbeddedKafka:
    """One broker with SASL/PLAIN and ACLs; SASL_USERS can log in."""
    return EmbeddedKafka(JARS, KafkaOptions(sasl_users=SASL_USERS))


def with_policy(classes: Path) -> EmbeddedKafka:
    """One broker whose CreateTopicPolicy refuses names that start with `forbidden.`; it is compiled into `classes`."""
    compile_policy(classes)
    properties = {"create.topic.policy.class.name": POLICY_SOURCE.stem}
    return EmbeddedKafka(JARS, KafkaOptions(properties=properties, classpath=(classes,)))


def without_deletes() -> EmbeddedKafka:
    """One broker with delete.topic.enable=false."""
    return EmbeddedKafka(JARS, KafkaOptions(properties={"delete.topic.enable": "false"}))


def compile_policy(classes: Path) -> None:
    """Compile the policy against the broker's own jars; needs a JDK."""
    javac = shutil.which("javac")
    assert javac is not None, "these tests need a JDK (javac), e.g. openjdk-17-jdk-headless"
    # The one jar it needs: javac -cp 'all of them' reads every one.
    jars = os.pathsep.join(map(str, JARS.glob("kafka-clients-*.jar")))
    subprocess.run([javac, "-cp", jars, "-d", str(classes), str(POLICY_SOURCE)], check=True)
