"""Phase manifest for client quotas: every row of `quotas` is accepted, or refused with each of its reasons.

What a cluster has to say of a row, such as whether it can resolve an ip, validateOnly says (Q1). Here is what Kafka
takes and no broker can mean, and what a row alone shows wrong (Q2).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.manifests.rows import ABSENT, PRESENT, Rule, Transform, known_cluster, legal_state, with_reasons
from topicledger.model import Outcome, Phase, Refusal
from topicledger.model.quotas import ENTITY, IP_LIMIT, KAFKA_TYPES, LIMITS, WHOLE_LIMITS
from topicledger.schemas import QUOTAS

_VALUES = "map<string,string>"


def text_of() -> Column:
    """The row's entity as one text, by which `plans` and `audit` name it: `user=a client-id=<default>`.

    A blank or backslash within a name has a backslash before it, so that no two entities share a text.
    """
    return F.concat_ws(
        " ",
        *(
            F.concat(F.lit(f"{kind}="), F.regexp_replace(F.col(name), r"([\\\s])", r"\\$1"))
            for name, kind in KAFKA_TYPES.items()
        ),
    )


def entity_of(text: str) -> dict[str, Column]:
    """The columns user, client_id and ip of the text in a column, see `text_of`; null where the entity has none."""
    name = r"((?:[^\\\s]++|\\.)*+)"
    parts = "".join(f"(?: ?{kind}={name})?" for kind in KAFKA_TYPES.values())
    found = (F.regexp_extract(text, f"(?s)^{parts}$", number) for number in range(1, len(ENTITY) + 1))
    named = (F.nullif(each, F.lit("")) for each in found)
    return {name: F.regexp_replace(each, r"(?s)\\(.)", "$1") for name, each in zip(ENTITY, named, strict=True)}


def limits_of() -> Column:
    """map<string,string>: the limits that the row has, by name, as `before` and `after` have them."""

    def text(name: str) -> Column:
        value = F.col(name)
        whole = value.try_cast("decimal(38,0)")
        parts = F.rtrim(value.try_cast("decimal(38,18)").cast("string"), F.lit("0"))
        # As `text_of_limit` writes it.
        return F.coalesce(
            F.when(value.eqNullSafe(whole.cast("double")), whole.cast("string")).otherwise(parts),
            value.cast("string"),
        )

    entries = F.create_map(*(part for name in LIMITS for part in (F.lit(name), text(name))))
    return F.map_filter(entries, lambda _, value: value.isNotNull()).cast(_VALUES)


def declared_limits() -> Column:
    """As `limits_of`: those that a declared entity is to have, none where it is absent."""
    return F.when(F.col("state") == ABSENT, F.create_map().cast(_VALUES)).otherwise(limits_of())


def _legal_entity() -> Rule:
    user, client_id, ip = (F.col(name) for name in ENTITY)
    empty = [F.when(F.col(name) == "", F.lit(f"{name} is empty; write a name, <default>, or null")) for name in ENTITY]
    return Rule(
        error=Refusal.INVALID_QUOTA,
        reason=F.when(
            F.coalesce(user, client_id, ip).isNull(), F.lit("it names no user, client_id or ip; write one of them")
        )
        .when(
            ip.isNotNull() & F.coalesce(user, client_id).isNotNull(),
            F.lit("ip stands alone: Kafka has no quotas of an ip with a user or client_id"),
        )
        .otherwise(F.coalesce(*empty)),
    )


def _legal_limit(name: str) -> Rule:
    value = F.col(name)
    said = F.concat(F.lit(f"{name} is "), value.cast("string"))
    of_ip = name == IP_LIMIT
    elsewhere = F.col("ip").isNull() if of_ip else F.col("ip").isNotNull()
    only = f"; an ip has {IP_LIMIT} only" if not of_ip else "; only an ip has it"
    reason = (
        # Kafka takes NaN and Infinity.
        F.when(F.isnan(value) | ~(value > 0), F.concat(said, F.lit("; it must be above 0, or null for no limit")))
        .when(value == float("inf"), F.concat(said, F.lit("; for no limit write null")))
        .when(elsewhere & value.isNotNull(), F.concat(said, F.lit(only)))
    )
    if name in WHOLE_LIMITS:
        reason = reason.when(value != F.floor(value), F.concat(said, F.lit("; it must be a whole number")))
    return Rule(error=Refusal.INVALID_QUOTA, reason=F.when(value.isNotNull(), reason))


def _any_limit() -> Rule:
    none = F.coalesce(*(F.col(name) for name in LIMITS)).isNull()
    return Rule(
        error=Refusal.INVALID_QUOTA,
        reason=F.when(
            (F.col("state") == PRESENT) & none, F.lit("it has no limit; write one, or state absent to remove all")
        ),
    )


def row_rules() -> Sequence[Rule]:
    """The rules that a row of `quotas` can break by itself (Q2)."""
    return (_legal_entity(), *map(_legal_limit, LIMITS), _any_limit(), legal_state())


def unusual() -> Column:
    """string: why the row's entity, which brokers take, almost never exists; null where it may."""
    user, named = F.col("user"), F.coalesce("user", "client_id")
    return F.when(
        F.startswith(user, F.lit("User:")),
        F.concat(F.lit("user is "), user, F.lit("; quotas name a user without its type: leave out User:")),
    ).when(
        named == "*",
        F.lit("user or client_id is *, which is a name like any other: write <default> for all that have no quotas"),
    )


def complete(rows: DataFrame) -> DataFrame:
    """Columns of `quotas` (more are ignored), where a null state is `present`."""
    return rows.select(
        *(
            F.coalesce(name, F.lit(PRESENT)).alias(name) if name == "state" else F.col(name)
            for name in QUOTAS.schema.names
        )
    )


def judge(clusters: Collection[str], selected: Collection[str] | None) -> Transform:
    """Judge rows of `quotas`.

    In: its columns (more are ignored). Out: `QUOTAS`' columns, `resource` (`text_of`), `error`, `error_message`, and
    `phase` and `outcome`, null where the row is accepted. One row per entity, of the owner that comes first: copies are
    one; where they disagree about state or limits, all of them are one refused row.

    `clusters` are the settings' names; rows of clusters other than `selected`, where given, are left out.
    """

    def transform(quotas: DataFrame) -> DataFrame:
        rows = quotas.transform(complete)
        if selected is not None:
            rows = rows.where(F.col("cluster").isin(*selected))
        same = Window.partitionBy(*QUOTAS.key)
        first = same.orderBy("owner", F.array_sort(F.map_entries("labels")))
        said = F.struct("state", *LIMITS)
        judged = (
            rows.transform(with_reasons([known_cluster(clusters), *row_rules()]))
            .withColumns(
                {
                    "_row": F.row_number().over(first),
                    "_conflict": F.min(said).over(same) != F.max(said).over(same),
                    "resource": text_of(),
                }
            )
            .where("_row = 1")
        )
        refused = F.col("error").isNotNull() | F.col("_conflict")
        conflict = F.lit("rows for this entity differ in state or limits; keep one of them")
        return judged.withColumns(
            {
                "error": F.when(F.col("_conflict"), F.lit(Refusal.DUPLICATE_MANIFEST.value)).otherwise(F.col("error")),
                "error_message": F.when(F.col("_conflict"), conflict).otherwise(F.col("error_message")),
                "phase": F.when(refused, F.lit(Phase.MANIFEST.value)),
                "outcome": F.when(refused, F.lit(Outcome.REFUSED.value)),
            }
        ).drop("_row", "_conflict")

    return transform
