"""Phase manifest for group configs: accept each row of `group_configs`, or refuse it with all reasons.

Errors that depend on the broker, such as unknown names and values out of its bounds, are left to validateOnly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger.kafka.config_values import same_value_column
from topicledger.manifests.row_rules import LEGAL_STATE, PRESENT, Rule, legal_configs
from topicledger.manifests.rows import completed
from topicledger.manifests.terms import cases, coalesce, field, size
from topicledger.resources.group_configs.names import NAMES, TEXTS, GroupConfigAction, GroupConfigRefusal
from topicledger.resources.odd_names import is_several, odd, says
from topicledger.resources.validating import validated
from topicledger.resources.valued import Valued
from topicledger.schemas import GROUP_CONFIGS

NO_GROUP = "group is empty; write the group's id"
NO_CONFIGS = "it has no configs; write some, or state absent to remove all"


def text_of() -> Column:
    """Return the group's id, its name in `plans` and `audit`."""
    return F.col("group")


def _key_of(text: str) -> Mapping[str, Column]:
    return {"group": F.col(text)}


def same_column(name: Column, one: Column, other: Column) -> Column:
    """Whether a broker reads both values as the same one; two missing values are the same."""
    same = F.when(name.isin(*TEXTS), one == other).otherwise(same_value_column(name, one, other))
    return F.coalesce(same, one.isNull() & other.isNull())


def _unusual() -> Column:
    """Return string: why the row's group, which brokers accept, almost never exists, else null."""
    group = F.col("group")
    star = says("group", group, "the * is an ordinary character: write one row per group")
    return F.coalesce(F.when(F.contains(group, F.lit("*")), star), odd(group=group), is_several("group", group))


OF_GROUPS = Valued(
    resource_type=NAMES.resource_type,
    table=GROUP_CONFIGS,
    action=GroupConfigAction.ALTER_GROUP_CONFIGS.value,
    name="configs",
    key=("group",),
    text_of=text_of,
    key_of=_key_of,
    values_of=lambda: F.col("configs"),
    columns_of=lambda configs: {"configs": configs},
    same=same_column,
    unusual=_unusual,
)


def _rules() -> Sequence[Rule]:
    invalid, configs = GroupConfigRefusal.INVALID_GROUP_CONFIG, field("configs")
    none = configs.is_null() | size(configs).eq(0)
    return (
        Rule(error=invalid, reason=cases((coalesce(field("group"), "").eq(""), NO_GROUP))),
        Rule(error=invalid, reason=cases((field("state").eq(PRESENT) & none, NO_CONFIGS))),
        legal_configs(invalid),
        LEGAL_STATE,
    )


ROW_RULES = _rules()
"""The rules that a row of `group_configs` can break by itself."""
complete = completed(GROUP_CONFIGS.schema, {"state": PRESENT})


validate = validated(
    GROUP_CONFIGS,
    ROW_RULES,
    complete,
    text_of,
    OF_GROUPS.content,
    "rows for this group differ in state or configs; keep one of them",
)
