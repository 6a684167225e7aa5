"""Phase manifest for ACLs: accept each row of `acls`, or refuse it with all reasons.

Kafka can't validate ACLs, and accepts ACLs that never grant anything or that no broker can match (A3, A4). So the rules
are ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.config.principals import TYPED
from topicledger.ledger.sql import key_part
from topicledger.manifests.row_rules import ABSENT, LEGAL_STATE, PRESENT, Rule
from topicledger.manifests.rows import completed
from topicledger.manifests.terms import cases, concat, endswith, field, function, lit, startswith, visible
from topicledger.resources.acls.acl import (
    CLUSTER_NAME,
    EVERYONE,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    WILDCARD,
)
from topicledger.resources.acls.hosts import host_reason, host_reason_column
from topicledger.resources.acls.names import AclRefusal
from topicledger.resources.odd_names import SEVERAL, is_several, odd, says
from topicledger.resources.validating import validated
from topicledger.schemas import ACL_KEY, ACLS

_DEFAULTS = {**ACLS.key_defaults, "state": PRESENT}
CLAIMED = tuple(name for name in ACL_KEY if name != "host")
"""Fields of an ACL that determine what it is about: all but the host."""
_TOPIC = r"\A[a-zA-Z0-9._-]{1,249}\z"


def text_of(acl: str | None = None) -> Column:
    """Return an ACL's text, its name in `plans` and `audit`: the values in the key's order, separated by blanks.

    `acl`: a struct of `ACL_KEY`; None takes the row's own columns. Blanks and backslashes within a value are escaped
    with a backslash, so that no two ACLs share a text.
    """
    values = (key_part(ACLS, name) if acl is None else F.col(f"{acl}.{name}") for name in ACL_KEY)
    return F.concat_ws(" ", *(F.regexp_replace(value, r"([\\\s])", r"\\$1") for value in values))


def values_of(acl: str) -> Column:
    """Return map<string,string>: the struct `acl` of `ACL_KEY` as a map by name, as in `before` and `after`."""
    return F.create_map(*(part for name in ACL_KEY for part in (F.lit(name), F.col(f"{acl}.{name}"))))


def covered_topics(rights: DataFrame, topics: DataFrame) -> DataFrame:
    """Join ACLs on topics with the topics that they cover: the columns of both, one row per ACL and topic.

    In: `rights` with cluster, resource_name, pattern_type; `topics` with cluster and topic. A literal `*` covers all.
    """
    # Joins by equality, for prefixes, too: each topic is cut to every length that a prefix has.
    length = F.when(F.col("pattern_type") == PREFIXED, F.length("resource_name")).when(
        F.col("resource_name") == WILDCARD, F.lit(0)
    )
    named = rights.withColumn("_length", length)
    literal = named.where("_length is null").withColumn("topic", F.col("resource_name"))
    prefixed = named.where("_length is not null").withColumn(
        "_begins", F.when(F.col("_length") == 0, F.lit("")).otherwise(F.col("resource_name"))
    )
    begins = topics.join(prefixed.select("cluster", "_length").distinct(), on="cluster", how="inner").withColumn(
        "_begins", F.substring("topic", F.lit(1), F.col("_length"))
    )
    columns = [*rights.columns, *(name for name in topics.columns if name != "cluster")]
    return (
        literal.join(topics, on=["cluster", "topic"], how="inner")
        .select(*columns)
        .unionByName(prefixed.join(begins, on=["cluster", "_length", "_begins"], how="inner").select(*columns))
    )


def _one_of(column: str, known: Collection[str]) -> Rule:
    value, names = field(column), ", ".join(known)
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=cases(
            (value.is_null(), f"{column} is null; write one of {names}"),
            (~value.isin(*known), concat(f"{column} is ", visible(value), f"; write one of {names}")),
        ),
    )


def _legal_principal() -> Rule:
    principal = field("principal")
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=cases(
            (principal.is_null(), "principal is null; write User:name"),
            # Brokers accept `Group:x`, but none of Kafka's own authorizers ever matches it.
            (
                ~startswith(principal, "User:") | principal.eq("User:"),
                concat("principal is ", visible(principal), "; Kafka's authorizer knows only User:name"),
            ),
        ),
    )


def _legal_operation() -> Rule:
    operation, resource_type = field("operation"), field("resource_type")
    known = sorted({each for operations in OPERATIONS.values() for each in operations})
    legal = cases(
        *((resource_type.eq(each), operation.isin("ALL", *its)) for each, its in OPERATIONS.items()),
        otherwise=lit(True),
    )
    means = cases(
        *((resource_type.eq(each), ", ".join((*its, "ALL"))) for each, its in OPERATIONS.items()), otherwise=""
    )
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=cases(
            (operation.is_null(), "operation is null; write READ, WRITE, ..., or ALL"),
            (
                ~operation.isin("ALL", *known),
                concat("operation is ", visible(operation), f"; write one of {', '.join(known)}, ALL"),
            ),
            (~legal, concat("operation ", operation, " does not apply to a ", resource_type, "; use ", means)),
        ),
    )


def _legal_name() -> Rule:
    name, resource_type, prefixed = field("resource_name"), field("resource_type"), field("pattern_type").eq(PREFIXED)
    wildcard = name.eq(WILDCARD)
    hint = cases((endswith(name, WILDCARD), "; for a prefix write PREFIXED without the *"), otherwise="")
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=cases(
            (name.is_null(), "resource_name is null"),
            (name.eq(""), "resource_name is empty"),
            (
                wildcard & prefixed,
                "resource_name * with PREFIXED matches only names that begin with a *; for every name write LITERAL",
            ),
            (
                resource_type.eq("CLUSTER") & (name.ne(CLUSTER_NAME) | prefixed),
                concat("resource_name of a CLUSTER is ", visible(name), f"; write {CLUSTER_NAME}, LITERAL"),
            ),
            (
                resource_type.eq("TOPIC") & ~wildcard & ~name.matches(_TOPIC),
                concat("resource_name is ", visible(name), ", which is not a legal topic name or prefix", hint),
            ),
        ),
    )


def _legal_host() -> Rule:
    # Brokers may have ACLs with any host, and it must be possible to remove them.
    kept = ~field("state").same_as(ABSENT)
    return Rule(
        error=AclRefusal.INVALID_ACL, reason=cases((kept, function(host_reason_column, host_reason)(field("host"))))
    )


_PRINCIPAL, _PERMISSION = _legal_principal(), _one_of("permission", PERMISSIONS)
_RESOURCE_TYPE, _OPERATION = _one_of("resource_type", [*OPERATIONS]), _legal_operation()
_PATTERN_TYPE, _NAME = _one_of("pattern_type", PATTERN_TYPES), _legal_name()

ROW_RULES = (_PRINCIPAL, _PERMISSION, _RESOURCE_TYPE, _OPERATION, _PATTERN_TYPE, _NAME, _legal_host(), LEGAL_STATE)
"""The rules that a row of `acls` can break by itself (A3, A4)."""


def meant(acl: str) -> Column:
    """Return the possible meaning of a row: a struct of `CLAIMED`, with null for fields that may mean anything.

    `acl`: a struct of the row's `ACL_KEY`. If the operation or the name doesn't fit the resource type, the type is
    null, too.
    """

    def known(*rules: Rule) -> Column:
        return reduce(lambda one, other: one & other, (each.reason.column().isNull() for each in rules))

    pattern = known(_PATTERN_TYPE)
    likely = odd_as_unknown(acl)
    # With an unknown pattern, * may be meant as every name or as the end of a prefix.
    named = known(_NAME) & (pattern | (F.col("resource_name") != WILDCARD))
    fields = {
        "principal": F.when(known(_PRINCIPAL), likely["principal"]),
        "permission": F.when(known(_PERMISSION), F.col("permission")),
        "operation": F.when(known(_OPERATION), F.col("operation")),
        "resource_type": F.when(known(_RESOURCE_TYPE, _OPERATION, _NAME), F.col("resource_type")),
        # A prefix also covers the name itself.
        "pattern_type": F.when(pattern, F.col("pattern_type")).otherwise(PREFIXED),
        "resource_name": F.when(named, likely["resource_name"]),
    }
    return F.struct(*(fields[name].alias(name) for name in CLAIMED))


def unusual(acl: str) -> Column:
    """Return string: why an ACL (struct of `ACL_KEY`) that brokers accept almost never applies, else null."""
    return F.nullif(F.concat_ws("; ", *_odd_principal(acl), *_odd_name(acl)), F.lit(""))


def odd_as_unknown(acl: str) -> Column:
    """Return an ACL (struct of `ACL_KEY`) as a struct of `CLAIMED`, with null for an odd principal or name."""
    odd_parts = {"principal": _odd_principal(acl), "resource_name": _odd_name(acl)}
    fields = {name: F.col(f"{acl}.{name}") for name in CLAIMED}
    for name, reasons in odd_parts.items():
        fields[name] = F.when(F.coalesce(*reasons).isNull(), fields[name])
    return F.struct(*(fields[name].alias(name) for name in CLAIMED))


def _odd_principal(acl: str) -> Sequence[Column]:
    principal = F.col(f"{acl}.principal")
    of_everyone = f"brokers compare it as text, and only {EVERYONE} is everyone: write one row per principal"
    user = F.substring(principal, F.lit(len("User:") + 1), F.length(principal))
    return (
        F.when(
            (principal != EVERYONE) & F.contains(principal, F.lit(WILDCARD)), says("principal", principal, of_everyone)
        ),
        F.when(
            principal.rlike(rf"{SEVERAL}|[\s,;|]\s*User:"),
            says("principal", principal, "it is one name with a separator in it: write one row per name"),
        ),
        F.when(user.rlike(TYPED), says("principal", principal, "it has two types: write User: once")),
        odd(user=user),
    )


def _odd_name(acl: str) -> Sequence[Column]:
    name, pattern_type = F.col(f"{acl}.resource_name"), F.col(f"{acl}.pattern_type")
    return (
        odd(resource_name=name),
        F.when(
            (name != WILDCARD) & F.contains(name, F.lit(WILDCARD)),
            F.concat(
                F.lit("resource_name is "),
                name,
                F.lit(", "),
                pattern_type,
                F.lit("; brokers compare it as text: for a prefix write PREFIXED without the *"),
            ),
        ),
        is_several("resource_name", name),
    )


complete = completed(ACLS.schema, _DEFAULTS)


validate = validated(
    ACLS,
    ROW_RULES,
    complete,
    text_of,
    lambda: F.col("state"),
    "rows for this ACL are both present and absent; keep one of them",
    own_error_first=True,
)
