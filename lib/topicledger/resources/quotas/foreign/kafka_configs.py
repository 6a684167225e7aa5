"""Output of `kafka-configs.sh --describe` for users, clients and ips.

According to the tool itself (ConfigCommand of Apache Kafka, https://github.com/apache/kafka), the output has a line for
each entity with quotas, and another line for each user's credentials. Kafka before 2.6 wrote both into one line,
without `Quota`, `the` and blanks after commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topicledger.files.foreign.contract import ForeignFormat, Source, no_line_of
from topicledger.files.foreign.lines import entries
from topicledger.manifests.files.report import Report
from topicledger.resources.quotas.entity import DEFAULT, ENTITY, LIMITS, Entity, written
from topicledger.resources.quotas.foreign.rows import add_quota
from topicledger.text import show

_KINDS = {"user": "user-principal", "client_id": "client-id", "ip": "ip"}
_PART = "(?:{kind} '(?P<{name}>.*?)'|(?P<default_{name}>(?:the )?default {kind}))"
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]+)?|NaN|-?Infinity")
_LIMIT = r"[A-Za-z0-9_.-]+=[^\s,=]*"
_QUOTA = re.compile(
    "(?:Quota c|C)onfigs for "
    + "".join(f"(?:{_PART.format(kind=_KINDS[name], name=name)}(?:, (?=.))?)?" for name in ENTITY)
    + f" are (?P<limits>{_LIMIT}(?:, ?{_LIMIT})*)?",
    re.DOTALL,
)
_SIGN = re.compile(
    r"^(?:Quota c|C|SCRAM credential c)onfigs for (?:user-principal|client-id|ip|(?:the )?default) ", re.MULTILINE
)
_OTHERS = re.compile(
    r"(?:(?:All|Dynamic|Default) c|C)onfigs for (?P<of>topic|broker|group|client-metrics)(?:-logger|s)? .*are\b.*"
)
"""The first line of the configs of another type of entity."""
_CONFIG = re.compile(r"  \S+=.* sensitive=(?:true|false) synonyms=\{.*\}")
_LONGEST = 4_096
"""Longest accepted entry; matching names that contain separators takes quadratic time."""
_ENDS = re.compile(" are(?: |$)")
_CREDENTIAL = re.compile(r"SCRAM-SHA-[0-9]+=salt=[^,]*,stored_key=[^,]*,server_key=[^,]*,iterations=[0-9]+,?")
"""A user's credential among the limits of the older form."""
_OF_A_USER = "the user's authentication"
_SIGNS_IN = re.compile(r"SCRAM credential configs for user-principal '.*' are .*", re.DOTALL)


def _read(sources: Sequence[Source], cluster: str | None) -> None:
    for source in sources:
        _read_lines(source, cluster)


def _read_lines(source: Source, cluster: str | None) -> None:
    report = source.report
    of_others = False
    for number, text in entries(source.text, begins=_SIGN, ends=_ENDS, is_whole=_is_whole):
        if len(text) > _LONGEST and _SIGN.match(text):
            report.leave_out(number, "Quota configs", f"longer than {_LONGEST:,} characters")
            continue
        if other := _OTHERS.fullmatch(text):
            report.leave_out(number, f"{other['of']} configs", "kafka-configs is read for quotas only")
            of_others = True
            continue
        if of_others and _CONFIG.fullmatch(text):
            continue
        of_others = False
        parsed = _parsed(text)
        if parsed is None:
            report.error(number, no_line_of("kafka-configs.sh --describe", " about users, clients or ips"))
            return
        quota, credentials = parsed
        if credentials:
            report.leave_out(number, "SCRAM credential configs", _OF_A_USER)
        if quota is not None:
            entity = Entity(*(_name(quota, part) for part in ENTITY))
            limits = _limits(quota["limits"] or "", number, report)
            if any("\n" in name for name in entity if name):
                report.leave_out(number, show(" ".join(filter(None, entity))), "a line break in a name")
            elif limits:
                add_quota(report, cluster, entity, limits, number)


def _parsed(text: str) -> tuple[re.Match[str] | None, bool] | None:
    """Return the quota of an entry, if it has one, and whether it has credentials; None if it can't be parsed."""
    if len(text) > _LONGEST:
        return None
    if _SIGNS_IN.fullmatch(text):
        return None, True
    line, credentials = _CREDENTIAL.subn("", text)
    quota = _QUOTA.fullmatch(f"{line} " if line.endswith(" are") else line.rstrip(","))
    return None if quota is None else (quota, credentials > 0)


def _is_whole(text: str) -> bool:
    return _parsed(text) is not None


def _name(found: re.Match[str], part: str) -> str | None:
    if found[f"default_{part}"]:
        return DEFAULT
    return None if found[part] is None else written(found[part])


def _limits(text: str, line: int, report: Report) -> dict[str, float]:
    limits = {}
    for each in re.split(", ?", text) if text else ():
        name, _, value = each.partition("=")
        if name not in LIMITS:
            report.leave_out(line, name, "a limit without a column")
        elif _NUMBER.fullmatch(value):
            limits[name] = float(value)
        else:
            report.leave_out(line, name, f"{show(value)} is no number")
    return limits


KAFKA_CONFIGS = ForeignFormat(
    name="kafka-configs",
    suffixes=(".txt", ".out", ".log"),
    names_cluster=False,
    is_listing=True,
    sign=_SIGN,
    read=_read,
)
