"""Policies for quotas: they evaluate every entity whose quotas a run alters; see `create`.

A row declares all limits of an entity, so all of them are evaluated, not only those that change.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

from pyspark.sql import functions as F

from topicledger.config import patterns
from topicledger.manifests.row_rules import PRESENT
from topicledger.policies.built_in import built_in
from topicledger.policies.common import labels_required, owner_required
from topicledger.policies.contract import RowRule, Subject, text
from topicledger.policies.ranges import Range
from topicledger.resources.acls.hosts import host_reason_column
from topicledger.resources.quotas.entity import DEFAULT, ENTITY
from topicledger.resources.quotas.names import QuotaAction

Limit = Literal[
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
]  # fmt: skip

_COLUMNS = (
    "cluster", "cluster_id", "resource", *ENTITY, "limits", "live_limits", "before", "after", "decision", "live",
    "state", "owner", "labels", "asked", "open",
)  # fmt: skip
"""The columns that a set rule about quotas sees: one row per declared or existing entity of a cluster.

user, client_id, ip: a name, `<default>`, or null; resource: its text; live: whether the cluster has limits of it.
limits (map<string,string>, as `before` and `after` in `plans`): all limits that it must have, the live ones if no row
declares it; live_limits: the limits it has; before and after: the replaced limits and their new values; decision:
alter_quota, or what needs nothing; state, owner, labels: as declared, null if it isn't. asked and open: as in
`contract.TOPICS`.
"""

SUBJECT = Subject(actions=(QuotaAction.ALTER_QUOTA,), key="resource", columns=_COLUMNS)


@built_in(QuotaAction.ALTER_QUOTA)
def quota_range(
    *,
    limit: Limit,
    min: float | None = None,
    max: float | None = None,
    required: bool = False,
    users: Sequence[str] = (),
    client_ids: Sequence[str] = (),
    ips: Sequence[str] = (),
) -> RowRule:
    """The limit is from `min` to `max`, for entities whose user, client id and ip match the given patterns (RE2).

    An ip in another notation than Java's, such as a number or a host name, fits all `ips`: brokers resolve it.
    `required`: an entity that is declared present has the limit, since without it nothing limits it.
    """
    if min is None and max is None and not required:
        raise ValueError("give min or max, or required = true")
    allowed = Range(min, max, above_zero=True)
    given = zip(ENTITY, (users, client_ids, ips), strict=True)
    concerned = {name: patterns.any_matches(name, found) for name, found in given if found}
    if ips:
        concerned["ip"] |= (F.col("ip") != DEFAULT) & host_reason_column(F.col("ip")).isNotNull()
    said = F.col("limits")[limit]
    value = said.cast("double")
    reason = F.when(allowed.excludes(value), text(limit, " is ", said, f"; allowed is {allowed}"))
    if required:
        missing = value.isNull() & F.col("state").eqNullSafe(F.lit(PRESENT))
        reason = reason.when(missing, F.lit(f"{limit} is not set, so nothing limits it; allowed is {allowed}"))
    fits = reduce(lambda one, other: one & other, concerned.values(), F.lit(True))
    return RowRule(
        reason=F.when(F.coalesce(fits, F.lit(False)), reason),
        inputs=text(F.col("resource"), f"; {limit} ", F.coalesce(said, F.lit("not set"))),
    )


built_in(QuotaAction.ALTER_QUOTA)(owner_required)
built_in(QuotaAction.ALTER_QUOTA)(labels_required)
