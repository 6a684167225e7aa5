"""Looking at a cluster and changing it without a run, as another client would."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import AlterClientQuotasRequest

from tests import clusters
from tests.harness import cluster_settings
from tests.kafka_versions import WITH_ZOOKEEPER
from tests.waiting import until
from topicledger.apply.executor import Executor
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.sending import ClusterLimits
from topicledger.model import Action, Target, TopicInfo
from topicledger_testing.embedded_kafka import EmbeddedKafka

TOOLS = clusters.JARS.with_name("kafka-tools")


def settings_for(name: str, kafka: EmbeddedKafka, user: str | None = None, **client: Any) -> ClusterSettings:
    """Settings of a cluster seen by one of its SASL users, the super user where none is named."""
    options = {key: value for key, value in kafka.client_options(user).items() if key != "bootstrap_servers"}
    return cluster_settings(name, kafka, **{**options, **client})


def admin_of(kafka: EmbeddedKafka, user: str | None = None, **client: Any) -> ClusterAdmin:
    """A connection, to be used with `with`."""
    return ClusterAdmin(settings_for("main", kafka, user, **client), KafkaSettings(connect_timeout=30.0))


@contextmanager
def executor_of(kafka: EmbeddedKafka, *, max_batch_records: int = 8_000, **client: Any) -> Iterator[Executor]:
    """Yield the executor that a run has for each cluster."""
    with admin_of(kafka, **client) as admin:
        limits = ClusterLimits(max_batch_records=max_batch_records)
        yield Executor(cluster="main", cluster_id=kafka.cluster_id, admin=admin, limits=limits)


def creates(names: Iterable[str], **fields: Any) -> list[Target]:
    """Creates that share everything but the name."""
    return [Target(resource=name, action=Action.CREATE, **fields) for name in names]


def deletes(ids: dict[str, str]) -> list[Target]:
    """Deletes of topics by their ids."""
    return [Target(resource=name, action=Action.DELETE, topic_id=topic_id) for name, topic_id in ids.items()]


def live(kafka: EmbeddedKafka, prefix: str) -> dict[str, TopicInfo]:
    """The topics that the cluster lists under a prefix."""
    with admin_of(kafka) as admin:
        return {info.topic: info for info in admin.list_topics() if info.topic.startswith(prefix)}


def make(kafka: EmbeddedKafka, *names: str, **fields: Any) -> dict[str, str]:
    """Create topics and wait until they are listed with leaders; returns their ids by name."""
    fields = {"num_partitions": 1, "replication_factor": 1, **fields}
    with admin_of(kafka) as admin:
        results = admin.create_topics(creates(names, **fields), validate_only=False).results
        assert {result.error_code for result in results.values()} == {0}, results

        def led() -> bool:
            infos = list(admin.describe_topics(names))
            return len(infos) == len(names) and not any(info.leaderless for info in infos)

        until(led, seconds=30)
    return {name: str(result.topic_id) for name, result in results.items()}


def remove(kafka: EmbeddedKafka, ids: dict[str, str]) -> None:
    """Delete topics and wait until they are listed no more."""
    with admin_of(kafka) as admin:
        results = admin.delete_topics(deletes(ids)).results
        assert {result.error_code for result in results.values()} == {0}, results
        until(lambda: not list(admin.describe_topics(list(ids))), seconds=30)
        if WITH_ZOOKEEPER:
            # The controller keeps the names a while longer.
            again = creates(ids, num_partitions=1)

            def free() -> bool:
                answers = admin.create_topics(again, validate_only=True).results.values()
                return not any(answer.error_code for answer in answers)

            until(free, seconds=30)


@contextmanager
def messages_of(name: str) -> Iterator[Sequence[str]]:
    """Context that collects the messages of a logger."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Handler()
    logging.getLogger(name).addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger(name).removeHandler(handler)


def set_quota(admin: ClusterAdmin, rate: float | None) -> None:
    """Limit every user who has no quota of his own; None takes the limit away."""
    entry = AlterClientQuotasRequest.EntryData
    response = admin.ask(
        AlterClientQuotasRequest(
            entries=[
                entry(
                    entity=[entry.EntityData(entity_type="user", entity_name=None)],
                    ops=[entry.OpData(key="controller_mutation_rate", value=rate or 0.0, remove=rate is None)],
                )
            ],
            validate_only=False,
        )
    )
    assert [each.error_code for each in response.entries] == [0]
