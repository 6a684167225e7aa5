"""Output of `kafka-acls.sh --list`.

According to the tool itself (org.apache.kafka.tools.AclCommand of Apache Kafka, https://github.com/apache/kafka), the
output has a line for each resource, then one for each of its entries. The older form of Kafka before 2.5 is read, too.
A name with a line break takes several lines; such an ACL is listed as not carried over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topicledger.files.foreign.contract import ForeignFormat, Source, no_line_of, unknown_principal
from topicledger.files.foreign.lines import entries
from topicledger.manifests.files.report import Report
from topicledger.resources.acls.acl import LITERAL, Acl
from topicledger.resources.acls.foreign.rows import add_right, kafka_name
from topicledger.text import show

_RESOURCE = re.compile(
    r"Current ACLs for resource `(?:"
    r"ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)"
    r"|(\w+):(?:(LITERAL|PREFIXED):)?(.*)"
    r")`:",
    re.DOTALL,
)
# The part before the operation is split by hand, since two `.*` take quadratic time.
_ENTRY = re.compile(r"\(principal=(.*), operation=(\w+), permissionType=(\w+)\)", re.DOTALL)
_OLD_ENTRY = re.compile(r"(.*) has (Allow|Deny) permission for operations: (\w+) from hosts: (\S+)", re.DOTALL)
_HEADING = re.compile(r"ACLs for principal `.*`", re.DOTALL)
_OF_RESOURCE = re.compile("Current ACLs for resource `")
_BEGINS = re.compile(r"Current ACLs for resource `|ACLs for principal `|\s*\(principal=|\s+[A-Za-z]+:")
_ENDS = re.compile(r"`:?\s*$|permissionType=\w+\)\s*$| from hosts: ")
_JOINED = re.compile(r", permissionType=\w+\)[\s,]*\(principal=")
_SIGN = re.compile(r"^Current ACLs for resource `", re.MULTILINE)


def _read(sources: Sequence[Source], cluster: str | None) -> None:
    for source in sources:
        _read_lines(source, cluster)


def _read_lines(source: Source, cluster: str | None) -> None:
    report, resource, found_any = source.report, None, False
    torn: tuple[int, str] | None = None
    """Line and text of the last line that is part of a name with line breaks; None after a whole line."""
    for number, text in entries(source.text, begins=_BEGINS, ends=_ENDS, is_whole=_is_whole):
        line = text.strip()
        if _HEADING.fullmatch(line):
            continue
        if found := _RESOURCE.fullmatch(line):
            resource = (found[1], found[3], found[2]) if found[1] else (kafka_name(found[4]), found[5], found[6])
            torn = None
        elif _JOINED.search(line):
            report.error(number, "has more than one ACL; keep the line breaks of `kafka-acls.sh --list`")
            return
        elif (entry := _entry(line)) and resource is not None:
            _add_entry(report, cluster, resource, entry, number)
            found_any, torn = True, None
        elif torn is not None or (entry is None and _BEGINS.match(text)):
            if torn is None:
                report.leave_out(number, show(line), "a line break in a name")
            if _OF_RESOURCE.match(text):
                # The entries that follow are those of this resource.
                resource = None
            torn = number, text
        else:
            report.error(number, no_line_of("kafka-acls.sh --list"))
            return
    if torn is not None and not (found_any and _ENDS.search(torn[1])):
        report.error(torn[0], no_line_of("kafka-acls.sh --list"))


def _add_entry(
    report: Report, cluster: str | None, resource: tuple[str, str, str], entry: tuple[str, str, str, str], number: int
) -> None:
    principal, host, operation, permission = entry
    resource_type, pattern_type, name = resource
    acl = Acl(principal, permission, operation, resource_type, pattern_type or LITERAL, name, host)
    if any("\n" in text for text in acl):
        report.leave_out(number, show(" ".join(acl)), "a line break in a name")
    elif principal.startswith("User:"):
        add_right(report, cluster, acl, number)
    else:
        report.leave_out(number, show(" ".join(acl)), unknown_principal(principal))


def _entry(line: str) -> tuple[str, str, str, str] | None:
    """Return principal, host, operation and permission; None if the line isn't an entry."""
    if found := _ENTRY.fullmatch(line):
        principal, separator, host = found[1].rpartition(", host=")
        return (principal, host, found[2], found[3]) if separator else None
    if found := _OLD_ENTRY.fullmatch(line):
        return found[1], found[4], kafka_name(found[3]), kafka_name(found[2])
    return None


def _is_whole(text: str) -> bool:
    line = text.strip()
    return any(form.fullmatch(line) for form in (_RESOURCE, _ENTRY, _OLD_ENTRY, _HEADING))


KAFKA_ACLS = ForeignFormat(
    name="kafka-acls", suffixes=(".txt", ".out", ".log"), names_cluster=False, is_listing=True, sign=_SIGN, read=_read
)
