"""Phase manifest for resources other than topics: one validated row for each declared resource."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from topicledger.manifests.row_rules import Rule
from topicledger.manifests.rows import Transform, as_columns, known_cluster, with_reasons
from topicledger.model import Outcome, Phase, Refusal
from topicledger.schemas import Table

Validate = Callable[[Collection[str], Collection[str] | None], Transform]
"""See `kind.Rows.validate`."""


def validated(
    table: Table,
    rules: Collection[Rule],
    complete: Transform,
    text_of: Callable[[], Column],
    content: Callable[[], Column],
    conflict: str,
    *,
    own_error_first: bool = False,
) -> Validate:
    """Return `Rows.validate` of a kind.

    Copies of a row become one row, with the first owner. If their `content` differs, they become one refused row,
    with `conflict` as the reason, unless `own_error_first` and the row has an error.
    """

    def validate(clusters: Collection[str], selected: Collection[str] | None) -> Transform:
        def transform(declared: DataFrame) -> DataFrame:
            rows = declared.transform(complete)
            if selected is not None:
                rows = rows.where(F.col("cluster").isin(*selected))
            same = Window.partitionBy(*table.key)
            first = same.orderBy("owner", F.array_sort(F.map_entries("labels")))
            differ = F.min(content()).over(same) != F.max(content()).over(same)
            added = {
                "_row": F.row_number().over(first),
                "_conflict": differ & F.col("error").isNull() if own_error_first else differ,
                "resource": text_of(),
            }
            found = rows.transform(with_reasons([known_cluster(clusters), *as_columns(rules)])).withColumns(added)
            conflicts = F.col("_conflict")
            refused = F.col("error").isNotNull() | conflicts
            return (
                found.where("_row = 1")
                .withColumns(
                    {
                        "error": F.when(conflicts, F.lit(Refusal.DUPLICATE_MANIFEST.value)).otherwise(F.col("error")),
                        "error_message": F.when(conflicts, F.lit(conflict)).otherwise(F.col("error_message")),
                        "phase": F.when(refused, F.lit(Phase.MANIFEST.value)),
                        "outcome": F.when(refused, F.lit(Outcome.REFUSED.value)),
                    }
                )
                .drop("_row", "_conflict")
            )

        return transform

    return validate
