"""A connection whose answers tests choose, and a coordinator of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

from topicledger.kafka.connection import Connection

TOPIC = "orders"
DESCRIBE = 8


def connection(answer: Callable[[Any, int | None], Any], metadata: Callable[[Sequence[str]], Any]) -> Any:
    """A connection to one broker, 1, that waits for nothing for longer than a moment."""
    made = create_autospec(Connection, instance=True)
    made.name = "main"
    made.operation_timeout = 0.5
    made.supports.return_value = True
    made.ask.side_effect = answer
    made.metadata.side_effect = metadata
    return made


def topic(name: str, *leaders: int, error_code: int = 0, epoch: int = 0) -> Any:
    partitions = [
        SimpleNamespace(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index, leader in enumerate(leaders)
    ]
    return SimpleNamespace(name=name, error_code=error_code, partitions=partitions)


def live(*topics: Any) -> Any:
    return SimpleNamespace(topics=topics, brokers=[SimpleNamespace(node_id=1)])


def log_dirs(*topics: str, error_code: int = 0) -> Any:
    named = [SimpleNamespace(name=name, partitions=[]) for name in topics]
    return SimpleNamespace(error_code=0, results=[SimpleNamespace(error_code=error_code, topics=named)])


class Coordinator:
    """Broker 1 keeps one empty group, `g`, that committed on the topic; a test bends its answers."""

    def __init__(self) -> None:
        self.group = SimpleNamespace(group_id="g", group_type="classic", group_state="Empty")
        self.probe_codes: Iterator[int] = iter(())
        self.list_codes: Iterator[int] = iter(())
        self.offset_codes: Iterator[int] = iter(())
        self.forgets = False
        self.leaders: Iterator[Any] = iter(())
        self.connection = connection(self.answer, self.metadata)

    def metadata(self, topics: Sequence[str]) -> Any:
        if topics == [TOPIC]:
            return live(topic(TOPIC, 1))
        return live(next(self.leaders, topic("__consumer_offsets", 1)))

    def answer(self, request: Any, broker_id: int | None = None) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        if kind == "DescribeCluster":
            return SimpleNamespace(error_code=0, authorized_operations={DESCRIBE})
        assert broker_id == 1
        if kind == "DescribeGroups":
            assert len(request.groups) == 1, "one for the one partition"
            return SimpleNamespace(groups=[SimpleNamespace(error_code=next(self.probe_codes, 69))])
        if kind == "ListGroups":
            return SimpleNamespace(error_code=next(self.list_codes, 0), groups=[self.group])
        assert kind == "OffsetFetch"
        partition = SimpleNamespace(partition_index=0, committed_offset=3, error_code=0)
        code = next(self.offset_codes, 0)
        found = [] if code else [SimpleNamespace(name=TOPIC, partitions=[partition])]
        answered = SimpleNamespace(group_id="g", error_code=code, topics=found)
        return SimpleNamespace(groups=[] if self.forgets else [answered])
