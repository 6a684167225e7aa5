"""Policies for creates that evaluate single topics. A factory's parameters are its settings; it raises ValueError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.config import patterns as re2
from topicledger.kafka.config_values import plain_number, same_value_column
from topicledger.ledger.rows import touched
from topicledger.model import Action, ReplicaAction
from topicledger.model.config_texts import BLANKS, ConfigTextError, stored
from topicledger.model.topic_configs import topic_configs
from topicledger.policies.built_in import built_in
from topicledger.policies.common import blank, labels_required, owner_required, require_some
from topicledger.policies.contract import (
    CHANGES,
    RowRule,
    config,
    fewest_replicas,
    is_one_of_actions,
    listed,
    not_known,
    partitions,
    replicas,
    text,
)
from topicledger.resources.topics.policies.change import require_config_names, reset

_UNLIMITED = frozenset(name for name, each in topic_configs().items() if each.changes.unlimited)
"""Topic configs of which a negative number means no limit."""
_NUMBER = "decimal(38,9)"
_MAX_COUNT = 2**31 - 1
"""Kafka's own limit, an int32: no sum of such products overflows a bigint."""
_MAX_CONFIG = 2**63 - 1


def _names(given: Mapping[str, Any]) -> Column:
    """Return the names of configs that the settings of a policy list (array<string>)."""
    return F.array(*map(F.lit, given["names"]))


@built_in(Action.CREATE)
def topic_name_pattern(*, pattern: str) -> RowRule:
    """The topic's name has a match of `pattern` (RE2; anywhere unless anchored)."""
    fits = re2.matches("topic", pattern)
    return RowRule(
        reason=F.when(~fits, text("the name does not match ", pattern)), inputs=text("topic ", F.col("topic"))
    )


@built_in(Action.CREATE)
def topic_name_prefix(*, of: str = "owner", separator: str = ".") -> RowRule:
    """The topic's name begins with its owner, or with the label that `of` names, and the separator.

    Blanks around the owner or label don't count; case does, as in Kafka's names.
    """
    if not of.strip() or not separator:
        raise ValueError("of and separator must not be empty")
    value = F.btrim(F.col("owner") if of == "owner" else F.col("labels")[of], F.lit(BLANKS))
    what = "owner" if of == "owner" else f"label {of}"
    reason = F.when(
        blank(value), F.lit(f"the name must begin with the {what} and {separator!r}, and there is no {what}")
    ).when(
        ~F.startswith(F.col("topic"), F.concat(value, F.lit(separator))),
        text("the name must begin with ", value, separator, f", its {what}"),
    )
    return RowRule(reason=reason, inputs=text("topic ", F.col("topic"), f"; {what} ", value))


@built_in(Action.CREATE, growth=True)
def num_partitions(*, min: int = 1, max: int | None = None) -> RowRule:
    """The number of partitions is from `min` to `max`, even if the broker chooses it."""
    return _count("num_partitions", partitions(), min, max)


@built_in(Action.CREATE, moves=True)
def replication_factor(*, min: int = 1, max: int | None = None) -> RowRule:
    """The replication factor is from `min` to `max`, even if the broker chooses it."""
    return _count("replication_factor", replicas(), min, max)


def _count(name: str, value: Column, least: int, most: int | None) -> RowRule:
    if not 1 <= least <= _MAX_COUNT:
        raise ValueError(f"min must be from 1 to {_MAX_COUNT}")
    if most is not None and most > _MAX_COUNT:
        raise ValueError(f"max must be at most {_MAX_COUNT}")
    if most is not None and most < least:
        raise ValueError(f"max is {most}, below min {least}")
    allowed = f"allowed is {least} to {most}" if most is not None else f"allowed is {least} and more"
    broken = value < least if most is None else (value < least) | (value > most)
    return RowRule(
        reason=F.when(broken, text(f"{name} is ", value, _origin(name), f"; {allowed}")),
        unjudgeable=not_known(name, value),
        inputs=text(f"{name} ", value),
    )


def _origin(name: str) -> Column:
    left = F.col("assignments").isNull() & F.col(name).isNull() & (F.col("decision") != ReplicaAction.REASSIGN.value)
    return F.when(left, F.lit(", the broker's default")).otherwise("")


@built_in(Action.CREATE, alters=lambda given: F.size(F.array_except(F.map_keys("after"), _names(given))) > 0)
def configs_allowed(*, names: Sequence[str]) -> RowRule:
    """The manifest sets no other configs than these."""
    require_some(names)
    others = F.array_except(F.map_keys("configs"), F.array(*map(F.lit, names)))
    return RowRule(
        reason=F.when(
            F.size(others) > 0, text("sets ", listed(others), "; allowed are only ", ", ".join(sorted(names)))
        ),
        inputs=_set_configs(),
    )


@built_in(Action.CREATE, alters=lambda given: F.arrays_overlap(reset(), _names(given)))
def configs_required(*, names: Sequence[str]) -> RowRule:
    """The manifest sets each of these configs, instead of leaving it to the broker."""
    require_config_names(names)
    given = F.coalesce(F.map_keys("configs"), F.array().cast("array<string>"))
    missing = F.array_except(F.array(*map(F.lit, names)), given)
    return RowRule(
        reason=F.when(F.size(missing) > 0, text("does not set ", listed(missing), "; declare it in configs")),
        inputs=_set_configs(),
    )


@built_in(Action.CREATE, alters=lambda given: F.arrays_overlap(F.map_keys("after"), _names(given)))
def configs_forbidden(*, names: Sequence[str]) -> RowRule:
    """The manifest sets none of these configs."""
    require_config_names(names)
    found = F.array_intersect(F.map_keys("configs"), F.array(*map(F.lit, names)))
    return RowRule(
        reason=F.when(F.size(found) > 0, text("sets ", listed(found), ", which is the broker's to set; leave it out")),
        inputs=_set_configs(),
    )


def _set_configs() -> Column:
    names = F.coalesce(F.map_keys("configs"), F.array().cast("array<string>"))
    return text("configs set: ", F.when(F.size(names) > 0, listed(names)).otherwise("none"))


@built_in(Action.CREATE, alters=lambda given: F.array_contains(touched(), given["config"]))
def config_values(*, config: str, values: Sequence[str]) -> RowRule:
    """The config has one of these values, as Kafka reads them, even if the broker chooses it.

    Values may have units, as in manifest files.
    """
    require_some(values)
    value = _config(config)
    values = [_stored(config, each) for each in values]
    same = (same_value_column(F.lit(config), value, F.lit(each)) for each in values)
    broken = ~reduce(lambda one, other: one | other, same)
    shown = ", ".join(map(repr, values))
    return RowRule(
        reason=F.when(
            value.isNotNull() & broken, text(f"{config} is ", value, _config_origin(config), f"; allowed is {shown}")
        ),
        unjudgeable=not_known(config, value),
        inputs=text(f"{config} ", value),
    )


@built_in(Action.CREATE, alters=lambda given: F.array_contains(touched(), given["config"]))
def config_range(*, config: str, min: int | float | str | None = None, max: int | float | str | None = None) -> RowRule:
    """The numeric config is from `min` to `max`, even if the broker chooses it; these may have units, such as "7d".

    A negative value of a retention is without limit: above any `max`.
    """
    if min is None and max is None:
        raise ValueError("give min, max or both")
    value = _config(config)
    least, most = _bound(config, min), _bound(config, max)
    if any(each is not None and not abs(each) <= _MAX_CONFIG for each in (least, most)):
        raise ValueError(f"min and max must be numbers from -{_MAX_CONFIG} to {_MAX_CONFIG}")
    if least is not None and most is not None and most < least:
        raise ValueError(f"max is {max}, below min {min}")
    number = plain_number(value).try_cast(_NUMBER)
    endless = _is_endless(config, number)
    too_low = ~endless & (number < F.lit(Decimal(str(least))).cast(_NUMBER)) if least is not None else F.lit(False)
    too_high = (endless | (number > F.lit(Decimal(str(most))).cast(_NUMBER))) if most is not None else F.lit(False)
    allowed = f"allowed is {'any' if least is None else least} to {'any' if most is None else most}"
    of = _config_origin(config)
    return RowRule(
        reason=F.when(value.isNotNull() & number.isNull(), text(f"{config} is ", value, f", not a number; {allowed}"))
        .when(endless & too_high, text(f"{config} is ", value, ", without limit", of, f"; {allowed}"))
        .when(too_low | too_high, text(f"{config} is ", value, of, f"; {allowed}")),
        unjudgeable=not_known(config, value),
        inputs=text(f"{config} ", value),
    )


def _is_endless(name: str, number: Column) -> Column:
    if name not in _UNLIMITED:
        return F.lit(False)
    # -2 of a local retention stands for the topic's whole retention.
    return number == -1 if topic_configs()[name].accepted.least == -2 else number < 0


@built_in(Action.CREATE, moves=True, alters=lambda _: F.array_contains(touched(), "min.insync.replicas"))
def min_insync_replicas(*, spare: int = 1) -> RowRule:
    """min.insync.replicas leaves `spare` replicas to lose: it is at most the replication factor less `spare`."""
    if not 0 <= spare <= _MAX_COUNT:
        raise ValueError(f"spare must be from 0 to {_MAX_COUNT}")
    value = _config("min.insync.replicas")
    fewest = F.when(is_one_of_actions(CHANGES), fewest_replicas())
    number, factor = plain_number(value).try_cast("int"), F.least(replicas(), fewest)
    unknown = F.coalesce(not_known("min.insync.replicas", value), not_known("replication_factor", factor))
    return RowRule(
        reason=F.when(
            value.isNotNull() & number.isNull(), text("min.insync.replicas is ", value, ", not a number")
        ).when(
            number > factor - spare,
            text(
                "min.insync.replicas is ",
                value,
                _config_origin("min.insync.replicas"),
                " with replication factor ",
                factor,
                F.when(factor > spare, text(f"; {spare} below the factor is allowed: ", factor - spare)).otherwise(
                    f"; give it a replication factor of {spare + 1} or more"
                ),
            ),
        ),
        unjudgeable=unknown,
        inputs=text("min.insync.replicas ", value, "; replication_factor ", factor),
    )


def _config(name: str) -> Column:
    if not name.strip():
        raise ValueError("config must not be empty")
    require_config_names([name])
    return config(name)


def _stored(name: str, value: str) -> str:
    """Return a value as tables have it; raises ValueError if no Kafka accepts it."""
    try:
        return stored(name, value)
    except ConfigTextError as error:
        raise ValueError(f"{name} {error}") from None


def _bound(name: str, value: int | float | str | None) -> int | float | None:
    """Return a limit as a number; raises ValueError if the config isn't one, or the text isn't one of its values."""
    known = topic_configs().get(name)
    if known is not None and known.type not in ("int", "long", "double"):
        raise ValueError(f"{name} is no number but a {known.type}; use config_values")
    if not isinstance(value, str):
        return value
    if known is None or known.unit is None:
        raise ValueError(f"write {value!r} as a number without quotes: {name} has no unit")
    return int(_stored(name, value))


def _config_origin(name: str) -> Column:
    left = F.col("configs")[name].isNull() & (F.col("decision") != ReplicaAction.REASSIGN.value)
    return F.when(left, F.lit(", the broker's default")).otherwise("")


built_in(Action.CREATE)(owner_required)
built_in(Action.CREATE)(labels_required)
