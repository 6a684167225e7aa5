"""list_and_create.py SERVERS COUNT MOST: the work of a tool without records, in one process, with librdkafka.

Lists the cluster's topics, describes the configs of the wanted topics that exist, and creates the missing ones.
"""

from __future__ import annotations

import sys

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

_SECONDS = 120.0


def main() -> None:
    servers, count, most = sys.argv[1:]
    wanted = [f"bench.{number:05}" for number in range(int(count))]
    client = AdminClient({"bootstrap.servers": servers})
    there = client.list_topics(timeout=_SECONDS).topics
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in wanted if name in there]
    changed = 0
    for start in range(0, len(asked), int(most)):
        described = client.describe_configs(asked[start : start + int(most)]).values()
        changed += sum(future.result(timeout=_SECONDS)["retention.ms"].value != "3600000" for future in described)
    new = [
        NewTopic(name, num_partitions=1, replication_factor=1, config={"retention.ms": "3600000"})
        for name in wanted
        if name not in there
    ]
    for start in range(0, len(new), int(most)):
        batch = new[start : start + int(most)]
        for future in client.create_topics(batch, operation_timeout=_SECONDS, request_timeout=_SECONDS).values():
            future.result(timeout=_SECONDS)
    print(f"created: {len(new)}, unchanged: {len(asked) - changed}, changed: {changed}")


if __name__ == "__main__":
    main()
