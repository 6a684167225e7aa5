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
from topicledger.manifests.rows import (
    ABSENT,
    PRESENT,
    Rule,
    completed,
    legal_state,
    visible,
)
from topicledger.resources.acls.acl import (
    CLUSTER_NAME,
    EVERYONE,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    WILDCARD,
)
from topicledger.resources.acls.hosts import host_reason_column
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
    value = F.col(column)
    names = ", ".join(known)
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=F.when(value.isNull(), F.lit(f"{column} is null; write one of {names}")).when(
            ~value.isin(*known), F.concat(F.lit(f"{column} is "), visible(value), F.lit(f"; write one of {names}"))
        ),
    )


def _legal_principal() -> Rule:
    principal = F.col("principal")
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=F.when(principal.isNull(), F.lit("principal is null; write User:name"))
        # Brokers accept `Group:x`, but none of Kafka's own authorizers ever matches it.
        .when(
            ~F.startswith(principal, F.lit("User:")) | (F.length(principal) <= len("User:")),
            F.concat(F.lit("principal is "), visible(principal), F.lit("; Kafka's authorizer knows only User:name")),
        ),
    )


def _legal_operation() -> Rule:
    operation, resource_type = F.col("operation"), F.col("resource_type")
    known = sorted({each for operations in OPERATIONS.values() for each in operations})
    legal = reduce(
        lambda rest, item: F.when(resource_type == item[0], operation.isin("ALL", *item[1])).otherwise(rest),
        OPERATIONS.items(),
        F.lit(True),
    )
    means = reduce(
        lambda rest, item: F.when(resource_type == item[0], F.lit(", ".join((*item[1], "ALL")))).otherwise(rest),
        OPERATIONS.items(),
        F.lit(""),
    )
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=F.when(operation.isNull(), F.lit("operation is null; write READ, WRITE, ..., or ALL"))
        .when(
            ~operation.isin("ALL", *known),
            F.concat(F.lit("operation is "), visible(operation), F.lit(f"; write one of {', '.join(known)}, ALL")),
        )
        .when(
            ~legal,
            F.concat(
                F.lit("operation "), operation, F.lit(" does not apply to a "), resource_type, F.lit("; use "), means
            ),
        ),
    )


def _legal_name() -> Rule:
    name, resource_type, prefixed = F.col("resource_name"), F.col("resource_type"), F.col("pattern_type") == "PREFIXED"
    wildcard = name == WILDCARD
    hint = F.when(F.endswith(name, F.lit(WILDCARD)), F.lit("; for a prefix write PREFIXED without the *"))
    hint = hint.otherwise(F.lit(""))
    return Rule(
        error=AclRefusal.INVALID_ACL,
        reason=F.when(name.isNull(), F.lit("resource_name is null"))
        .when(name == "", F.lit("resource_name is empty"))
        .when(
            wildcard & prefixed,
            F.lit("resource_name * with PREFIXED matches only names that begin with a *; for every name write LITERAL"),
        )
        .when(
            (resource_type == "CLUSTER") & ((name != CLUSTER_NAME) | prefixed),
            F.concat(F.lit("resource_name of a CLUSTER is "), visible(name), F.lit(f"; write {CLUSTER_NAME}, LITERAL")),
        )
        .when(
            (resource_type == "TOPIC") & ~wildcard & ~name.rlike(_TOPIC),
            F.concat(
                F.lit("resource_name is "), visible(name), F.lit(", which is not a legal topic name or prefix"), hint
            ),
        ),
    )


def _legal_host() -> Rule:
    # Brokers may have ACLs with any host, and it must be possible to remove them.
    kept = ~F.col("state").eqNullSafe(F.lit(ABSENT))
    return Rule(error=AclRefusal.INVALID_ACL, reason=F.when(kept, host_reason_column(F.col("host"))))


def row_rules() -> Sequence[Rule]:
    """Return the rules that a row of `acls` can break by itself (A3, A4)."""
    return (
        _legal_principal(),
        _one_of("permission", PERMISSIONS),
        _one_of("resource_type", [*OPERATIONS]),
        _legal_operation(),
        _one_of("pattern_type", PATTERN_TYPES),
        _legal_name(),
        _legal_host(),
        legal_state(),
    )


def meant(acl: str) -> Column:
    """Return the possible meaning of a row: a struct of `CLAIMED`, with null for fields that may mean anything.

    `acl`: a struct of the row's `ACL_KEY`. If the operation or the name doesn't fit the resource type, the type is
    null, too.
    """

    def known(*rules: Rule) -> Column:
        return reduce(lambda one, other: one & other, (each.reason.isNull() for each in rules))

    of_type, operation, name = _one_of("resource_type", [*OPERATIONS]), _legal_operation(), _legal_name()
    pattern = known(_one_of("pattern_type", PATTERN_TYPES))
    likely = odd_as_unknown(acl)
    # With an unknown pattern, * may be meant as every name or as the end of a prefix.
    named = known(name) & (pattern | (F.col("resource_name") != WILDCARD))
    fields = {
        "principal": F.when(known(_legal_principal()), likely["principal"]),
        "permission": F.when(known(_one_of("permission", PERMISSIONS)), F.col("permission")),
        "operation": F.when(known(operation), F.col("operation")),
        "resource_type": F.when(known(of_type, operation, name), F.col("resource_type")),
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
    row_rules,
    complete,
    text_of,
    lambda: F.col("state"),
    "rows for this ACL are both present and absent; keep one of them",
    own_error_first=True,
)
