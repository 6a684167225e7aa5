"""Policies for changes of existing topics; see `create`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.ledger.rows import touched
from topicledger.model import Action, Refusal
from topicledger.model.topic_configs import misspelt
from topicledger.policies.built_in import always_on, built_in
from topicledger.policies.contract import RowRule, listed, text
from topicledger.text import show

_MAX_FACTOR = 10_000


@always_on(Action.ADD_PARTITIONS, Refusal.FEWER_PARTITIONS)
def fewer_partitions() -> RowRule:
    """A topic is not declared with fewer partitions than it has: Kafka can't remove partitions (KIP-195)."""
    live, declared = _counts()
    return RowRule(
        reason=F.when(
            declared < live,
            text(
                "it has ",
                live,
                " partitions, ",
                declared,
                " are declared, and Kafka can't remove partitions: declare ",
                live,
                " or more",
            ),
        ),
        inputs=text("num_partitions ", live, " to ", declared),
    )


@built_in(Action.ALTER_CONFIGS)
def config_change_forbidden(*, names: Sequence[str]) -> RowRule:
    """None of these configs is set or reset on a topic that exists."""
    require_config_names(names)
    found = F.array_intersect(touched(), F.array(*map(F.lit, names)))
    return RowRule(
        reason=F.when(
            F.size(found) > 0, text("changes ", listed(found), ", which must stay as it is on topics that exist")
        ),
        inputs=text("configs changed: ", listed(touched())),
    )


@built_in(Action.ADD_PARTITIONS)
def partitions_growth(*, max_factor: float) -> RowRule:
    """A topic gets at most `max_factor` times the partitions that it has."""
    if not 1 < max_factor <= _MAX_FACTOR:
        raise ValueError(f"max_factor must be above 1 and at most {_MAX_FACTOR}")
    live, declared = _counts()
    # 45 * 1.4 is 62.999... in binary: a count is exact in decimal.
    most = F.floor(live.cast("decimal(10,0)") * F.lit(str(max_factor)).cast("decimal(18,9)"))
    return RowRule(
        reason=F.when(
            declared > most,
            text(
                "would have ",
                declared,
                " partitions, and has ",
                live,
                f"; {max_factor:g} times as many are allowed: ",
                most,
            ),
        ),
        inputs=text("num_partitions ", live, " to ", declared),
    )


@built_in(Action.ADD_PARTITIONS)
def keyed_topics_keep_partitions(*, label: str = "keyed", values: Sequence[str] = ("true",)) -> RowRule:
    """A topic whose `label` has one of `values` keeps its partitions, so that a key's records stay in one partition."""
    if not label.strip() or not values:
        raise ValueError("give a label and at least one value")
    value = F.col("labels")[label]
    return RowRule(
        reason=F.when(
            value.isin(*values),
            text(
                f"label {label} is ",
                value,
                ": with other partitions the order of a key's records is lost; create a new topic instead",
            ),
        ),
        inputs=text(f"label {label} ", value),
    )


def reset() -> Column:
    """Names of the configs that an alter resets (array<string>)."""
    return F.array_except(F.map_keys("before"), F.map_keys("after"))


def _counts() -> tuple[Column, Column]:
    """Return the current and the planned number of partitions (int)."""
    return F.col("before")["num_partitions"].cast("int"), F.col("after")["num_partitions"].cast("int")


def require_config_names(names: Sequence[str]) -> None:
    """Raise ValueError if there are none, one is empty, or one looks like a misspelt name of the catalogue.

    Other unknown names are accepted: a newer Kafka or a fork may have them.
    """
    if not names or not all(name.strip() for name in names):
        raise ValueError("give at least one, none of them empty")
    for name in names:
        if hint := misspelt(name):
            raise ValueError(f"there is no config `{show(name)}`; {hint}")
