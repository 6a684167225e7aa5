"""The rules of `rows.row_rules` for rows of files, which are checked before there is a Spark session (Q2).

tests/properties/test_row_rules.py compares what both find in a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from topicledger.manifests.file_rows import state_reason
from topicledger.manifests.files import ResourceRow
from topicledger.resources.quotas.entity import ENTITY, IP_LIMIT, LEAST, LIMITS, WHOLE_LIMITS

_LARGEST = 2.0**63
"""Upper bound of whole limits, which are longs."""


def reasons(row: ResourceRow) -> Iterator[str | None]:
    """Yield the reason of each rule, None if the row keeps it."""
    yield _entity(*(row.values[name] for name in ENTITY))
    limits = {name: value for name in LIMITS if isinstance(value := row.values[name], float)}
    for name, value in limits.items():
        yield _limit(name, value, of_ip=row.values["ip"] is not None)
    if row.state == "present" and not limits:
        yield "it has no limit; write one, or state absent to remove all"
    yield state_reason(row.state)


def _entity(user: object, client_id: object, ip: object) -> str | None:
    if user is None and client_id is None and ip is None:
        return "it names no user, client_id or ip; write one of them"
    if ip is not None and not (user is None and client_id is None):
        return "ip can't be combined with user or client_id"
    for name, value in zip(ENTITY, (user, client_id, ip), strict=True):
        if value == "":
            return f"{name} is empty; write a name, <default>, or null"
    return None


def _limit(name: str, value: float, *, of_ip: bool) -> str | None:
    said = f"{name} is {_as_spark_writes(value)}"
    if math.isnan(value) or value <= 0:
        return f"{said}; it must be above 0, or null for no limit"
    if value < LEAST:
        return f"{said}; it must be at least 1E-18, or null for no limit"
    if math.isinf(value):
        return f"{said}; for no limit write null"
    if of_ip != (name == IP_LIMIT):
        return f"{said}; an ip can have only {IP_LIMIT}" if of_ip else f"{said}; only an ip can have it"
    if name in WHOLE_LIMITS and not (value.is_integer() and value <= _LARGEST):
        return f"{said}; it must be a whole number below 2^63"
    return None


def _as_spark_writes(value: float) -> str:
    """Format a double as Spark's `cast("string")` does, which uses Java's form."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"
