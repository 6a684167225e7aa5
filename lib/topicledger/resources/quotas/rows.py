"""Phase manifest for client quotas: accept each row of `quotas`, or refuse it with all reasons.

The rules refuse values that Kafka accepts but cannot enforce, and errors that the row alone shows (Q2). Errors that
depend on the cluster, such as an ip that it can't resolve, are left to validateOnly (Q1).
"""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.config.principals import TYPED
from topicledger.manifests.row_rules import LEGAL_STATE, PRESENT, Rule
from topicledger.manifests.rows import completed
from topicledger.manifests.terms import cases, coalesce, concat, double_text, field, function, isnan
from topicledger.resources.odd_names import is_several, odd, says
from topicledger.resources.quotas.entity import ENTITY, IP_LIMIT, KAFKA_TYPES, LEAST, LIMITS, WHOLE_LIMITS
from topicledger.resources.quotas.names import NAMES, QuotaAction, QuotaRefusal
from topicledger.resources.validating import validated
from topicledger.resources.valued import Valued
from topicledger.schemas import QUOTAS

_VALUES = "map<string,string>"
# Floor returns a long: above its largest, each double differs from it.
_is_whole = function(lambda value: value == F.floor(value), lambda value: value.is_integer() and value <= 2.0**63)


def text_of() -> Column:
    """Return the text of the row's entity, its name in `plans` and `audit`: `user=a client-id=<default>`.

    Blanks and backslashes within a name are escaped with a backslash, so that no two entities share a text.
    """
    return F.concat_ws(
        " ",
        *(
            F.concat(F.lit(f"{kind}="), F.regexp_replace(F.col(name), r"([\\\s])", r"\\$1"))
            for name, kind in KAFKA_TYPES.items()
        ),
    )


def entity_of(text: str) -> dict[str, Column]:
    """Return the columns user, client_id and ip of a text column (see `text_of`); null for missing parts."""
    name = r"((?:[^\\\s]++|\\.)*+)"
    parts = "".join(f"(?: ?{kind}={name})?" for kind in KAFKA_TYPES.values())
    found = (F.regexp_extract(text, f"(?s)^{parts}$", number) for number in range(1, len(ENTITY) + 1))
    named = (F.nullif(each, F.lit("")) for each in found)
    return {name: F.regexp_replace(each, r"(?s)\\(.)", "$1") for name, each in zip(ENTITY, named, strict=True)}


def limits_of() -> Column:
    """Return map<string,string>: the row's limits by name, as in `before` and `after`."""

    def text(name: str) -> Column:
        value = F.col(name)
        whole = value.try_cast("decimal(38,0)")
        parts = F.rtrim(value.try_cast("decimal(38,18)").cast("string"), F.lit("0"))
        # The same form as `number_text` writes.
        return F.coalesce(
            F.when(value.eqNullSafe(whole.cast("double")), whole.cast("string")),
            F.when(value.eqNullSafe(parts.cast("double")), parts),
            # More than 18 decimals: the exact number, or no run would find the limit as its plan saw it.
            value.cast("string"),
        )

    entries = F.create_map(*(part for name in LIMITS for part in (F.lit(name), text(name))))
    return F.map_filter(entries, lambda _, value: value.isNotNull()).cast(_VALUES)


def _unusual() -> Column:
    """Return string: why the row's entity, which brokers accept, almost never exists, else null."""
    user, client_id = F.col("user"), F.col("client_id")
    return F.coalesce(
        F.concat(
            F.when(user.rlike(TYPED), says("user", user, "quotas name users without a type: remove ")),
            F.regexp_extract(user, "^[^:]*:", 0),
        ),
        F.when(
            (user == "*") | (client_id == "*"),
            F.lit("user or client_id is *, which is an ordinary name: write <default> for everyone without own quotas"),
        ),
        odd(user=user, client_id=client_id),
        F.when(
            F.contains(F.concat_ws(" ", user, client_id), F.lit("*")),
            F.lit("user or client_id has a *, which is an ordinary character: write one row per name"),
        ),
        is_several("user", user),
        is_several("client_id", client_id),
    )


OF_QUOTAS = Valued(
    resource_type=NAMES.resource_type,
    table=QUOTAS,
    action=QuotaAction.ALTER_QUOTA.value,
    name="limits",
    key=ENTITY,
    text_of=text_of,
    key_of=entity_of,
    values_of=limits_of,
    columns_of=lambda limits: {name: limits[name].cast("double") for name in LIMITS},
    # Compared as numbers: two ways to write one are the same limit.
    same=lambda _, one, other: one.cast("double").eqNullSafe(other.cast("double")),
    unusual=_unusual,
)


def _legal_entity() -> Rule:
    user, client_id, ip = (field(name) for name in ENTITY)
    some_user = user.is_given() | client_id.is_given()
    return Rule(
        error=QuotaRefusal.INVALID_QUOTA,
        reason=cases(
            (~(some_user | ip.is_given()), "it names no user, client_id or ip; write one of them"),
            (ip.is_given() & some_user, "ip can't be combined with user or client_id"),
            *((field(name).eq(""), f"{name} is empty; write a name, <default>, or null") for name in ENTITY),
        ),
    )


def _legal_limit(name: str) -> Rule:
    value = field(name)
    said = concat(f"{name} is ", double_text(value))
    of_ip = name == IP_LIMIT
    elsewhere = field("ip").is_null() if of_ip else field("ip").is_given()
    only = f"; an ip can have only {IP_LIMIT}" if not of_ip else "; only an ip can have it"
    broken = [
        # Kafka accepts NaN and Infinity.
        (isnan(value) | ~(value > 0), concat(said, "; it must be above 0, or null for no limit")),
        (value < LEAST, concat(said, "; it must be at least 1E-18, or null for no limit")),
        (value.eq(math.inf), concat(said, "; for no limit write null")),
        (value.is_given() & elsewhere, concat(said, only)),
    ]
    if name in WHOLE_LIMITS:
        broken.append((~_is_whole(value), concat(said, "; it must be a whole number below 2^63")))
    return Rule(error=QuotaRefusal.INVALID_QUOTA, reason=cases(*broken))


def _any_limit() -> Rule:
    none = coalesce(*map(field, LIMITS)).is_null()
    return Rule(
        error=QuotaRefusal.INVALID_QUOTA,
        reason=cases((field("state").eq(PRESENT) & none, "it has no limit; write one, or state absent to remove all")),
    )


ROW_RULES = (_legal_entity(), *map(_legal_limit, LIMITS), _any_limit(), LEGAL_STATE)
"""The rules that a row of `quotas` can break by itself (Q2)."""

complete = completed(QUOTAS.schema, {"state": PRESENT})


validate = validated(
    QUOTAS,
    ROW_RULES,
    complete,
    text_of,
    OF_QUOTAS.content,
    "rows for this entity differ in state or limits; keep one of them",
)
