"""Hosts of ACLs, in files and in tables (A4).

A broker compares an ACL's host as text with the result of Java's `InetAddress.getHostAddress` for the client: IPv4
without leading zeros, also for an IPv4 address within IPv6; IPv6 as eight groups in lower case without leading zeros;
a link-local address with the number of the broker's interface (measured: Java 17, NIO sockets as in brokers).
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.resources.acls.acl import WILDCARD

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = r"(?:0|[1-9a-f][0-9a-f]{0,3})"
_MAPPED, _LINK_LOCAL = "0:0:0:0:0:ffff:", "fe[89ab][0-9a-f]:"
_IPV6 = rf"(?!{_MAPPED}|{_LINK_LOCAL}){_GROUP}(?::{_GROUP}){{7}}"
_OF_INTERFACE = rf"(?={_LINK_LOCAL}){_GROUP}(?::{_GROUP}){{7}}%[1-9][0-9]*"
_ADDRESS = rf"(?:{_IPV4}|{_IPV6}|{_OF_INTERFACE})"
_DOTTED = r"(?:(?:::|0:0:0:0:0:)ffff:)?([0-9]{1,3}(?:\.[0-9]{1,3}){3})"
_LEADING_ZEROS = r"\b0+(?=[0-9a-f])"
_BEFORE, _BETWEEN, _AFTER = "host is ", "; brokers compare IP addresses as Java writes them: write ", ", or * for any"
_NO_SPELLING = "one, such as 10.0.0.1, 2001:db8:0:0:0:0:0:1 or fe80:0:0:0:0:0:0:1%2"


def host_reason(host: str | None) -> str | None:
    """Return why no client can have this host, else None."""
    if host is None or host == WILDCARD or re.fullmatch(_ADDRESS, host):
        return None
    return f"{_BEFORE}{host}{_BETWEEN}{_spelling(host) or _NO_SPELLING}{_AFTER}"


def host_reason_column(host: Column) -> Column:
    """`host_reason` for a column (string)."""
    said = F.concat(
        F.lit(_BEFORE), host, F.lit(_BETWEEN), F.coalesce(_spelling_column(host), F.lit(_NO_SPELLING)), F.lit(_AFTER)
    )
    return F.when((host != WILDCARD) & ~_is(host, _ADDRESS), said)


def _spelling(host: str) -> str | None:
    """Return the address in Java's form; None if the text isn't an address, or its interface is missing."""
    text = host.lower()
    if dotted := re.fullmatch(_DOTTED, text):
        text = dotted[1]
    elif text.count("::") == 1:
        begin, end = (half.split(":") if half else [] for half in text.split("::"))
        if len(begin) + len(end) < 8:
            text = ":".join([*begin, *["0"] * (8 - len(begin) - len(end)), *end])
    text = re.sub(_LEADING_ZEROS, "", text)
    return text if re.fullmatch(_ADDRESS, text) else None


def _spelling_column(host: Column) -> Column:
    text = F.lower(host)
    halves = F.split(text, "::", -1)
    nothing = F.array().cast("array<string>")
    begin, end = (
        F.when(F.get(halves, F.lit(at)) == "", nothing).otherwise(F.split(F.get(halves, F.lit(at)), ":", -1))
        for at in (0, 1)
    )
    missing = F.lit(8) - F.size(begin) - F.size(end)
    zeros = F.array_repeat(F.lit("0"), missing)
    text = (
        F.when(_is(text, _DOTTED), F.regexp_extract(text, _DOTTED, 1))
        .when((F.size(halves) == 2) & (missing > 0), F.array_join(F.concat(begin, zeros, end), ":"))
        .otherwise(text)
    )
    text = F.regexp_replace(text, _LEADING_ZEROS, "")
    return F.when(_is(text, _ADDRESS), text)


def _is(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")
