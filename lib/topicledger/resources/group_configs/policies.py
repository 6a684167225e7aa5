"""Policies for group configs: asked about every group whose configs a run alters; see `policies.create`.

A row declares all configs of its group, so all of them are evaluated, not only those that change.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from topicledger.config import patterns
from topicledger.policies.built_in import built_in
from topicledger.policies.common import labels_required, owner_required
from topicledger.policies.contract import RowRule, Subject, text
from topicledger.policies.ranges import Range
from topicledger.resources.group_configs.names import GroupConfigAction

_COLUMNS = (
    "cluster", "cluster_id", "resource", "group", "configs", "live_configs", "before", "after", "decision", "live",
    "state", "owner", "labels", "asked", "open",
)  # fmt: skip
"""The columns that a set rule about group configs sees: one row per group of a cluster, declared or live.

group, resource: its id; live: whether the cluster has configs of it. configs (map<string,string>): all configs that it
must have, the live ones if no row declares it; live_configs: the configs it has; before and after: the replaced values
and the new ones; decision: alter_group_configs, or what needs nothing; state, owner, labels: as declared, null if it
isn't. asked and open: as in `contract.TOPICS`.
"""

SUBJECT = Subject(actions=(GroupConfigAction.ALTER_GROUP_CONFIGS,), key="resource", columns=_COLUMNS)


@built_in(GroupConfigAction.ALTER_GROUP_CONFIGS)
def group_config_values(
    *,
    config: str,
    values: Sequence[str] = (),
    min: float | None = None,
    max: float | None = None,
    groups: Sequence[str] = (),
) -> RowRule:
    """A declared config has one of `values`, or is from `min` to `max`, for groups that match `groups` (RE2)."""
    if bool(values) == (min is not None or max is not None):
        raise ValueError("give values, or min or max")
    allowed = Range(min, max)
    value = F.col("configs")[config]
    number = value.try_cast("double")
    wrong = ~value.isin(*values) if values else number.isNull() | allowed.excludes(number)
    expected = ", ".join(values) or str(allowed)
    concerned = patterns.any_matches("group", groups) if groups else F.lit(True)
    return RowRule(
        reason=F.when(concerned & value.isNotNull() & wrong, text(config, " is ", value, f"; allowed is {expected}")),
        inputs=text(F.col("group"), f"; {config} ", F.coalesce(value, F.lit("not set"))),
    )


built_in(GroupConfigAction.ALTER_GROUP_CONFIGS)(owner_required)
built_in(GroupConfigAction.ALTER_GROUP_CONFIGS)(labels_required)
