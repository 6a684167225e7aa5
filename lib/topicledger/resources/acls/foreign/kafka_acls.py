"""Output of `kafka-acls.sh --list`.

According to the tool itself (org.apache.kafka.tools.AclCommand of Apache Kafka, https://github.com/apache/kafka), the
output has a line for each resource, then one for each of its entries. The older form of Kafka before 2.5 is read, too.
A name with a line break takes several lines; such an ACL is listed as not carried over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topicledger.files.foreign.contract import ForeignFormat, Source, no_line_of, unknown_principal
from topicledger.resources.acls.acl import LITERAL, Acl
from topicledger.resources.acls.foreign.rows import add_right, kafka_name
from topicledger.text import show

_RESOURCE = re.compile(
    r"Current ACLs for resource `(?:"
    r"ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)"
    r"|(\w+):(?:(LITERAL|PREFIXED):)?(.*)"
    r")`:\s*",
    re.DOTALL,
)
# The part before the operation is split by hand, since two `.*` take quadratic time.
_ENTRY = re.compile(r"\s*\(principal=(.*), operation=(\w+), permissionType=(\w+)\)\s*", re.DOTALL)
_OLD_ENTRY = re.compile(r"\s*(.*) has (Allow|Deny) permission for operations: (\w+) from hosts: (\S+)\s*", re.DOTALL)
_HEADING = re.compile(r"ACLs for principal `.*`\s*")
_BEGINS = re.compile(r"Current ACLs for resource `|\s*\(principal=")
_SIGN = re.compile(r"^Current ACLs for resource `", re.MULTILINE)
_MOST_LINES = 100
"""Largest number of lines of one resource or entry; no name has more line breaks."""


def _read(sources: Sequence[Source], cluster: str | None) -> None:
    for source in sources:
        _read_lines(source, cluster)


def _read_lines(source: Source, cluster: str | None) -> None:
    report, resource = source.report, None
    for number, line in _joined(source.text.split("\n")):
        if not line.strip() or _HEADING.fullmatch(line):
            continue
        if found := _RESOURCE.fullmatch(line):
            resource = (found[1], found[3], found[2]) if found[1] else (kafka_name(found[4]), found[5], found[6])
        elif (entry := _entry(line)) and resource is not None:
            principal, host, operation, permission = entry
            resource_type, pattern_type, name = resource
            acl = Acl(principal, permission, operation, resource_type, pattern_type or LITERAL, name, host)
            if any("\n" in text for text in acl):
                report.leave_out(number, show(" ".join(acl)), "a line break in a name")
            elif "permissionType=" in principal:
                report.error(number, "has more than one ACL; keep the line breaks of `kafka-acls.sh --list`")
                return
            elif principal.startswith("User:"):
                add_right(report, cluster, acl, number)
            else:
                report.leave_out(number, show(" ".join(acl)), unknown_principal(principal))
        else:
            report.error(number, no_line_of("kafka-acls.sh --list"))
            return


def _entry(line: str) -> tuple[str, str, str, str] | None:
    """Return principal, host, operation and permission; None if the line isn't an entry."""
    if found := _ENTRY.fullmatch(line):
        principal, separator, host = found[1].rpartition(", host=")
        return (principal, host, found[2], found[3]) if separator else None
    if found := _OLD_ENTRY.fullmatch(line):
        return found[1], found[4], kafka_name(found[3]), kafka_name(found[2])
    return None


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield each resource and entry as one text, with its first line, since names may have line breaks."""
    at = 0
    while at < len(lines):
        end = at + 1
        text = lines[at]
        if _BEGINS.match(text):
            while not _is_whole(text) and end < min(len(lines), at + _MOST_LINES) and not _BEGINS.match(lines[end]):
                text, end = f"{text}\n{lines[end]}", end + 1
        yield at + 1, text
        at = end


def _is_whole(text: str) -> bool:
    return (_RESOURCE.fullmatch(text) or _ENTRY.fullmatch(text)) is not None


KAFKA_ACLS = ForeignFormat(
    name="kafka-acls", suffixes=(".txt", ".out", ".log"), names_cluster=False, is_listing=True, sign=_SIGN, read=_read
)
