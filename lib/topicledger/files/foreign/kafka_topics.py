"""Output of `kafka-topics.sh --describe`.

According to the tool itself (org.apache.kafka.tools.TopicCommand of Apache Kafka, https://github.com/apache/kafka), the
output has a line for each topic, then one for each of its partitions. Fields are separated by tabs, which may have been
converted to blanks; Kafka 2.x wrote no blank after `Topic:`, and no TopicId. `Configs` has all configs that differ from
Kafka's defaults, set on the topic or on the brokers. The line doesn't tell which, so all become the topic's own.

Partitions and replication factor are carried over. Assignments aren't, since they pin a topic to brokers. While
replicas are moved, `Replicas` has the old ones and the new ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from topicledger.files.foreign.contract import ForeignFormat, Source, no_line_of
from topicledger.manifests.files.report import Entry, Report
from topicledger.manifests.row_rules import LEGAL_CONFIGS
from topicledger.model import INTERNAL_TOPICS
from topicledger.model.config_texts import ConfigTextError, stored
from topicledger.text import show

_TOPIC = re.compile(
    r"Topic: ?([^\s:]+)\s+(?:TopicId: ?\S+\s+)?PartitionCount: ?([0-9]{1,10})\s+ReplicationFactor: ?(-?[0-9]{1,10})\s+"
    r"Configs:(.*)"
)
_SIGN = re.compile(r"^Topic: ?\S+\s+(?:TopicId: ?\S+\s+)?PartitionCount:", re.MULTILINE)
_MARKED = re.compile(r"\sMarkedForDeletion: ?(true|false)$")
_PARTITION = re.compile(r"\s*Topic: ?([^\s:]+)\s+Partition: ?([0-9]{1,10})\s+Leader: ?\S+\s+Replicas: ?([0-9,]*)\s(.*)")
_MOVED = re.compile(r"(?:^|\s)(?:Adding|Removing) Replicas: ?([0-9,]*)")
_CONFIG = re.compile(r"(?:^|, ?)([A-Za-z0-9._-]+)=")
_LARGEST = 2**31 - 1


@dataclass
class _Topic:
    """A topic's line, with data of its partitions' lines."""

    line: int
    name: str
    partitions: int
    replication_factor: int
    configs: str
    lines: int = 0
    """The number of its partitions that have a line."""
    factors: set[int] = field(default_factory=set)
    """The partitions' numbers of replicas, before and after what moves them."""


def _read(sources: Sequence[Source], cluster: str | None) -> None:
    for source in sources:
        description = _Description(source.report, cluster)
        for number, line in enumerate(source.text.split("\n"), start=1):
            if line.strip():
                description.add(line.rstrip(), number)
        description.end()


class _Description:
    """Reads one file line by line."""

    def __init__(self, report: Report, cluster: str | None) -> None:
        self._report = report
        self._cluster = cluster
        self._topic: _Topic | None = None
        """The topic whose partitions are being read."""
        self._skipped: str | None = None
        """A topic whose partitions are skipped."""
        self._strange = 0
        self._noted = False

    def add(self, line: str, number: int) -> None:
        """Read a line that isn't blank."""
        if header := _TOPIC.fullmatch(line):
            self._finish()
            self._begin(header, number)
        elif partition := _PARTITION.fullmatch(line):
            self._partition(partition, number)
        else:
            self._strange += 1
            if self._strange == 1:
                self._report.error(number, no_line_of("kafka-topics.sh --describe"))

    def end(self) -> None:
        """Finish the file."""
        self._finish()
        if self._strange > 1:
            self._report.error(None, f"{self._strange} lines are not lines of `kafka-topics.sh --describe`")

    def _begin(self, header: re.Match[str], number: int) -> None:
        name, configs = header[1], header[4]
        marked = _MARKED.search(configs)
        if marked is not None:
            configs = configs[: marked.start()]
        self._skipped = None
        if name in INTERNAL_TOPICS or (marked is not None and marked[1] == "true"):
            self._skipped = name
            self._report.skip("internal topic" if name in INTERNAL_TOPICS else "topic marked for deletion")
            return
        if not self._noted:  # notes that apply to every topic are listed once per file
            self._noted = True
            self._report.leave_out(
                number, "TopicId, Leader, Replicas, Isr, Elr", "where the topic is, not its declaration"
            )
            reason = "unknown whether a config is the topic's own or the brokers': all become the topic's own"
            self._report.leave_out(number, "Configs", reason)
        self._topic = _Topic(number, name, int(header[2]), int(header[3]), configs.strip())

    def _partition(self, partition: re.Match[str], number: int) -> None:
        name = partition[1]
        if self._topic is not None and name == self._topic.name:
            self._topic.lines += 1
            brokers = set(partition[3].split(","))
            moved = [set(each.split(",")) for each in _MOVED.findall(partition[4])]
            self._topic.factors |= {len(brokers - each) for each in moved or [set()]}
        elif name != self._skipped:
            reason = "has no line of its topic before it; run --describe without options that omit it"
            self._report.error(number, f"a partition of topic {show(name)} {reason}")

    def _finish(self) -> None:
        """Report the row of a complete topic, or its errors."""
        topic, self._topic = self._topic, None
        if topic is None:
            return
        report, before = self._report, self._report.errors
        name = show(topic.name)
        if topic.lines and topic.lines != topic.partitions:
            found = f"{topic.lines} of topic {name}'s {topic.partitions} partitions"
            report.error(topic.line, f"only {found} have a line: the file is cut off, or not a plain --describe")
        factor: int | None = next(iter(topic.factors), topic.replication_factor)
        if len(topic.factors) > 1:
            factor = None
            reason = "not the same number of replicas in all partitions, before and after a reassignment"
            report.leave_out(topic.line, f"{name}: ReplicationFactor", reason)
        for count in (topic.partitions, topic.replication_factor):
            if count > _LARGEST:
                report.error(topic.line, f"topic {name}: {count} does not fit into 32 bits")
        entry = Entry(
            cluster=self._cluster,
            topic=topic.name,
            num_partitions=topic.partitions,
            replication_factor=factor,
            configs=_configs(topic, report),
        )
        if report.errors == before:
            report.row(entry, topic.line)


def _configs(topic: _Topic, report: Report) -> dict[str, str] | None:
    """Parse `name=value` separated by commas; a comma that no `name=` follows belongs to the value."""
    starts = list(_CONFIG.finditer(topic.configs))
    if topic.configs and (not starts or starts[0].start() != 0):
        report.error(topic.line, "`Configs` must be name=value,...")
        return None
    configs: dict[str, str] = {}
    ends = [*(start.start() for start in starts[1:]), len(topic.configs)]
    for start, end in zip(starts, ends, strict=False):
        name, value = start[1], topic.configs[start.end() : end]
        if name in configs:
            report.error(topic.line, f"`Configs` has {show(name)} twice")
        elif (reason := _not_declarable(name, value)) is not None:
            report.leave_out(topic.line, f"{show(topic.name)}: Configs: {show(name)}", reason)
        else:
            configs[name] = value
    return configs or None


def _not_declarable(name: str, value: str) -> str | None:
    """Return why a live config can't be declared: a fork or a newer Kafka may have it."""
    if value == "null":
        return "a value that the brokers hide"
    try:
        stored(name, value)
    except ConfigTextError as error:
        return f"{show(name)} {error}"
    return LEGAL_CONFIGS.broken_by({"configs": {name: value}})


KAFKA_TOPICS = ForeignFormat(
    name="kafka-topics",
    suffixes=(".txt", ".out", ".log"),
    names_cluster=False,
    is_listing=True,
    sign=_SIGN,
    read=_read,
)
