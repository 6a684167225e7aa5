"""What `kafka-acls.sh --list` prints.

After the tool itself (org.apache.kafka.tools.AclCommand of Apache Kafka, https://github.com/apache/kafka): a line for
each resource, then one for each of its entries. Kafka before 2.5 printed other lines: they are errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topicledger.manifests.files.foreign.contract import ForeignFormat, Source
from topicledger.manifests.files.foreign.rights import add_right, unknown_principal
from topicledger.model.access import Acl
from topicledger.text import show

_RESOURCE = re.compile(
    r"Current ACLs for resource `ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)`:\s*"
)
_ENTRY = re.compile(r"\s*\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)\s*")
_HEADING = re.compile(r"ACLs for principal `.*`\s*")


def _read(sources: Sequence[Source], cluster: str | None) -> None:
    for source in sources:
        _read_lines(source, cluster)


def _read_lines(source: Source, cluster: str | None) -> None:
    report, resource = source.report, None
    for number, line in enumerate(source.text.split("\n"), start=1):
        if not line.strip() or _HEADING.fullmatch(line):
            continue
        if found := _RESOURCE.fullmatch(line):
            resource = found
        elif (entry := _ENTRY.fullmatch(line)) and resource is not None:
            principal, host, operation, permission = entry.groups()
            acl = Acl(principal, permission, operation, resource[1], resource[3], resource[2], host)
            if principal.startswith("User:"):
                add_right(report, cluster, acl, number)
            else:
                report.leave_out(number, show(" ".join(acl)), unknown_principal(principal))
        else:
            reason = "is no line of `kafka-acls.sh --list`; keep what it prints on stdout"
            report.error(number, f"`{show(line.strip())}` {reason}")
            return


KAFKA_ACLS = ForeignFormat(name="kafka-acls", suffixes=(".txt", ".out", ".log"), names_cluster=False, read=_read)
