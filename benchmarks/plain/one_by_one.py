"""one_by_one.py SERVERS COUNT: one CreateTopics request for each topic, with librdkafka; each waits for the answer."""

from __future__ import annotations

import sys

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_SECONDS = 120.0


def main() -> None:
    servers, count = sys.argv[1:]
    client = AdminClient({"bootstrap.servers": servers})
    for number in range(int(count)):
        topic = NewTopic(
            f"bench.{number:05}", num_partitions=1, replication_factor=1, config={"retention.ms": "3600000"}
        )
        for future in client.create_topics([topic], operation_timeout=_SECONDS, request_timeout=_SECONDS).values():
            future.result(timeout=_SECONDS)
    print(f"created: {count}")


if __name__ == "__main__":
    main()
