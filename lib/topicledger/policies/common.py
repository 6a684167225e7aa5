"""Policies about owners and labels, which every kind of resource registers for its own action."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.manifests.owners import is_one_of
from topicledger.model.config_texts import BLANKS
from topicledger.policies.contract import RowRule, owned, text


def owner_required(*, values: Sequence[str] = ()) -> RowRule:
    """The topic has an owner, one of `values` if given; blanks around an owner and its case don't count."""
    known = f"; one of {', '.join(sorted(values))}" if values else "; declare the team or service it belongs to"
    reason = F.when(~owned(), F.lit(f"has no owner{known}"))
    if values:
        reason = reason.when(~is_one_of(F.col("owner"), tuple(values)), text("owner is ", F.col("owner"), known))
    return RowRule(reason=reason, inputs=text("owner ", F.col("owner")))


def labels_required(*, names: Sequence[str], values: Sequence[str] = ()) -> RowRule:
    """The topic has each of these labels, with one of `values` if given."""
    require_some(names)
    wrong = F.concat_ws(", ", *(_wrong_label(name, values) for name in names))
    allowed = f"; allowed is {', '.join(sorted(values))}" if values else ""
    return RowRule(
        reason=F.when(wrong != "", text("label ", wrong, allowed)),
        inputs=text(*(part for name in names for part in (f"{name} ", F.col("labels")[name], " "))),
    )


def _wrong_label(name: str, values: Sequence[str]) -> Column:
    value = F.col("labels")[name]
    wrong = F.when(blank(value), F.lit(f"{name} is missing"))
    return wrong.when(~value.isin(*values), text(f"{name} is ", value)) if values else wrong


def blank(value: Column) -> Column:
    """Return whether a text is null or only blanks."""
    return value.isNull() | (F.btrim(value, F.lit(BLANKS)) == "")


def require_some(names: Sequence[str]) -> None:
    """Raise ValueError unless the setting of a policy lists something."""
    if not names or not all(name.strip() for name in names):
        raise ValueError("give at least one, none of them empty")
