"""Changing a cluster as somebody else would: by librdkafka, and by what only kafka-python has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient, TopicPartition

from tests.waiting import until
from topicledger_testing.embedded_kafka import EmbeddedKafka

_SECONDS = 30.0


class AnotherHand:
    """Each change is seen by every broker when it returns."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._kafka = kafka
        self._client = AdminClient({"bootstrap.servers": ",".join(kafka.bootstrap_servers)})
        self._brokers = [
            AdminClient({"bootstrap.servers": server, "allow.auto.create.topics": False})
            for server in kafka.bootstrap_servers
        ]

    def create(self, *topics: NewTopic) -> None:
        """Create topics, and wait until they are listed with leaders."""
        for done in self._client.create_topics(list(topics)).values():
            done.result(_SECONDS)
        names = {topic.topic for topic in topics}

        def led(client: AdminClient) -> bool:
            listed = client.list_topics(timeout=_SECONDS).topics
            return names <= set(listed) and all(
                partition.leader >= 0 for name in names for partition in listed[name].partitions.values()
            )

        until(lambda: all(map(led, self._brokers)), seconds=_SECONDS)

    def delete(self, *names: str) -> None:
        """Delete topics, and wait until no broker lists them."""
        for done in self._client.delete_topics(list(names)).values():
            done.result(_SECONDS)
        until(
            lambda: not any(set(names) & set(each.list_topics(timeout=_SECONDS).topics) for each in self._brokers),
            seconds=_SECONDS,
        )

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        for done in self._client.create_partitions([NewPartitions(topic, total)]).values():
            done.result(_SECONDS)
        until(
            lambda: all(
                len(each.list_topics(timeout=_SECONDS).topics[topic].partitions) == total for each in self._brokers
            ),
            seconds=_SECONDS,
        )

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set configs of a topic, leaving its others as they are."""
        self._alter(ResourceType.TOPIC, topic, configs)
        self._await_configs(topic, configs)

    def set_default(self, name: str, value: str, *, of_topics: str, topic: str) -> None:
        """Set a config of every broker, the default of `of_topics`; `topic` is one that shows it."""
        for broker in self._kafka.brokers:
            self._alter(ResourceType.BROKER, str(broker.node_id), {name: value})
        self._await_configs(topic, {of_topics: value})

    def _await_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        asked = ConfigResource(ResourceType.TOPIC, topic)

        def seen(client: AdminClient) -> bool:
            (answer,) = client.describe_configs([asked]).values()
            found = answer.result(_SECONDS)
            return all(found[name].value == value for name, value in configs.items())

        # A broker that has just got thousands of topics makes their logs first.
        until(lambda: all(map(seen, self._brokers)), seconds=4 * _SECONDS)

    def _alter(self, kind: ResourceType, name: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(each, value, incremental_operation=AlterConfigOpType.SET) for each, value in configs.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        for done in self._client.incremental_alter_configs([resource]).values():
            done.result(_SECONDS)

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Move partitions to other brokers; the first of each is the preferred leader (C3)."""
        wanted = {TopicPartition(topic, partition): list(brokers) for partition, brokers in replicas.items()}
        with closing(KafkaAdminClient(**self._kafka.client_options())) as admin:
            admin.alter_partition_reassignments(wanted)
        until(
            lambda: all(self.replicas(topic, each) == dict(replicas) for each in self._brokers),
            seconds=_SECONDS,
        )

    def replicas(self, topic: str, client: AdminClient | None = None) -> dict[int, list[int]]:
        """Where each partition is."""
        (answer,) = (client or self._client).describe_topics(TopicCollection([topic])).values()
        try:
            described = answer.result(_SECONDS)
        except KafkaException:
            return {}
        return {each.id: [node.id for node in each.replicas] for each in described.partitions}
