"""The kinds of Kafka cluster that tests run against; each is started by `with`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests import tokens
from tests.certificates import Certificates
from tests.java import compile_java
from tests.zookeeper_kafka import ZooKeeperKafka
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions, Listener

REPOSITORY = Path(__file__).resolve().parent.parent
JARS = Path(os.environ.get("TOPICLEDGER_JARS", REPOSITORY / "build" / "jars")) / "kafka"
KAFKA = Path(os.environ.get("TOPICLEDGER_KAFKA_JARS", JARS))
"""The brokers' jars: `make test-versions` sets them to a version other than that of `make setup`."""
VERSION = tuple(map(int, next(KAFKA.glob("kafka-clients-*.jar")).stem.rpartition("-")[2].split(".")))
"""The brokers' version."""
POLICIES = {
    "create.topic.policy.class.name": "ForbiddenPrefixPolicy",
    "alter.config.policy.class.name": "ShortFlushPolicy",
}
"""By property of a broker, the class in `kafka_policy` that it names."""

SASL_USERS = {
    "admin": "admin-secret",
    "creator": "creator-secret",
    "describer": "describer-secret",
    "nobody": "nobody-secret",
}
"""The first is the super user; what the others may do is up to the test's ACLs, at first nothing."""


class QuickKafka(EmbeddedKafka if VERSION >= (3, 3) else ZooKeeperKafka):
    """Its brokers start sooner: what they do for tests is over before compiling well would pay."""

    java_options = ""

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("JDK_JAVA_OPTIONS", f"-XX:TieredStopAtLevel=1 {self.java_options}")
            super().start()


def plain() -> EmbeddedKafka:
    """One broker, no security."""
    return QuickKafka(KAFKA)


def three_brokers() -> EmbeddedKafka:
    """Three brokers, 1 to 3, in racks a, b, c, each a coordinator of groups.

    A broker that comes back is let in again after 3 s instead of 9. Leaders change only when a test or the product
    changes them, not by the brokers' own look every five minutes.
    """
    timing = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    properties = {**timing, "offsets.topic.num.partitions": "3", "auto.leader.rebalance.enable": "false"}
    return QuickKafka(KAFKA, KafkaOptions(brokers=3, racks=("a", "b", "c"), properties=properties, heap="384m"))


def with_sasl() -> EmbeddedKafka:
    """One broker with SASL/PLAIN and ACLs; SASL_USERS can log in."""
    return QuickKafka(KAFKA, KafkaOptions(sasl_users=SASL_USERS))


def with_policy(classes: Path) -> EmbeddedKafka:
    """One broker whose policies refuse topics named `forbidden.*`, and flush.ms above 1000; compiled into `classes`."""
    compile_policies(classes)
    return QuickKafka(KAFKA, KafkaOptions(properties=POLICIES, classpath=(classes,)))


def without_deletes() -> EmbeddedKafka:
    """One broker with delete.topic.enable=false."""
    return QuickKafka(KAFKA, KafkaOptions(properties={"delete.topic.enable": "false"}))


def tiered(classes: Path) -> EmbeddedKafka:
    """Three brokers whose topics may have remote storage, which keeps nothing; compiled into `classes`."""
    source = Path(__file__).resolve().parent / "kafka_storage" / "EmptyStorage.java"
    compile_java(source, [*KAFKA.glob("kafka-clients-*.jar"), *KAFKA.glob("kafka-storage-api-*.jar")], classes)
    metadata = "rlmm.config.remote.log.metadata"
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": source.stem,
        "remote.log.metadata.manager.listener.name": "CLIENT",
        f"{metadata}.topic.replication.factor": "1",
        f"{metadata}.topic.num.partitions": "1",
    }
    return QuickKafka(KAFKA, KafkaOptions(brokers=3, properties=properties, classpath=(classes,), heap="384m"))


def compile_policies(classes: Path) -> None:
    """Compile the policies against the broker's own jars: the one that they need, since javac reads every one."""
    for name in POLICIES.values():
        source = Path(__file__).resolve().parent / "kafka_policy" / f"{name}.java"
        compile_java(source, KAFKA.glob("kafka-clients-*.jar"), classes)


def secured(certificates: Certificates) -> EmbeddedKafka:
    """One broker with a listener for each way to come in, and for each certificate that must not be trusted."""

    def tls(certificate: Path, **more: str) -> Listener:
        keystore = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificate)}
        return Listener(protocol="SSL", properties={**keystore, **more})

    def sasl(mechanism: str, login: str, **more: str) -> Listener:
        """`login` is a login module, from its package on, and its options; `more` are properties of the mechanism."""
        module = f"org.apache.kafka.common.security.{login};"
        of_mechanism = {f"{mechanism.lower()}.{name}": value for name, value in more.items()}
        jaas = {"sasl.enabled.mechanisms": mechanism, f"{mechanism.lower()}.sasl.jaas.config": module}
        return replace(tls(certificates.server, **jaas, **of_mechanism), protocol="SASL_SSL")

    clients = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.authority)}
    plain_users = " ".join(f'user_{name}="{password}"' for name, password in SASL_USERS.items())
    listeners = {
        "TLS": tls(certificates.server),
        "MUTUAL": tls(certificates.server, **{"ssl.client.auth": "required", **clients}),
        "EXPIRED": tls(certificates.expired),
        "OTHERNAME": tls(certificates.other_name),
        "PASSWORD": sasl("PLAIN", f"plain.PlainLoginModule required {plain_users}"),
        "SCRAM": sasl("SCRAM-SHA-512", "scram.ScramLoginModule required"),
        "TOKEN": sasl("OAUTHBEARER", "oauthbearer.OAuthBearerLoginModule required"),
        "TOKENAGAIN": sasl(
            "OAUTHBEARER",
            "oauthbearer.OAuthBearerLoginModule required",
            **{"connections.max.reauth.ms": "3000"},
        ),
    }
    if VERSION >= (4, 0):
        listeners["VALIDATED"] = sasl(
            "OAUTHBEARER",
            "oauthbearer.OAuthBearerLoginModule required",
            **{
                "sasl.server.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
                ),
                "sasl.oauthbearer.jwks.endpoint.url": certificates.token_keys.as_uri(),
                "sasl.oauthbearer.expected.audience": tokens.AUDIENCE,
            },
        )
    kafka = QuickKafka(KAFKA, KafkaOptions(listeners=listeners))
    # Brokers read keys of tokens only from places that their JVM allows.
    allowed = {"urls": certificates.token_keys.as_uri(), "files": str(certificates.token_keys)}
    kafka.java_options = " ".join(
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{name}={value}" for name, value in allowed.items()
    )
    return kafka
