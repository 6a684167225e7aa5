"""Client quotas as a kind of resource."""

from __future__ import annotations

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from topicledger.kafka.abilities import Needs
from topicledger.resources import valued
from topicledger.resources.kind import Entries, ObservedResources, Policies, ResourceKind, Rows
from topicledger.resources.quotas import actions, entries, observe, policies, rows
from topicledger.resources.quotas.entity import ENTITY, LIMITS
from topicledger.resources.quotas.names import NAMES, QuotaAction, QuotaDrift
from topicledger.resources.quotas.rows import OF_QUOTAS
from topicledger.resources.quotas.words import OF_DRIFT, WORDS
from topicledger.schemas import OBSERVED_QUOTAS, QUOTAS

_FINDINGS = valued.DriftWords(
    missing=QuotaDrift.QUOTA_MISSING,
    differs=QuotaDrift.QUOTA_DIFFERS,
    unmanaged=QuotaDrift.QUOTA_UNMANAGED,
    message_missing="the cluster has no quotas for it",
)

KIND = ResourceKind(
    names=NAMES,
    words=WORDS,
    table=QUOTAS,
    rows=Rows(validate=rows.validate, rules=rows.ROW_RULES, complete=rows.complete, text_of=rows.text_of),
    entries=Entries(
        section="quotas",
        fields=entries.FIELDS,
        read=entries.read_quota,
        is_one=entries.is_quota,
        columns_are=lambda columns: not set(columns).isdisjoint(ENTITY),
        columns_needed=("cluster",),
        numbers=LIMITS,
        schemas=entries.schemas,
        expansions=None,
    ),
    observed=ObservedResources(
        table=OBSERVED_QUOTAS,
        describe=observe.describe,
        allows_everyone=None,
        needs=Needs(
            requests={DescribeClientQuotasRequest: 0, AlterClientQuotasRequest: 0},
            since="2.6",
            cluster=("ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
        ),
    ),
    deciding=valued.deciding(OF_QUOTAS, actions.KIND),
    actions=(actions.KIND,),
    policies=Policies(
        subject=policies.SUBJECT,
        action=QuotaAction.ALTER_QUOTA,
        as_if="altered to its current limits",
    ),
    as_rows=valued.as_rows(OF_QUOTAS),
    drift=valued.drift(OF_QUOTAS, _FINDINGS, OF_DRIFT),
    owners=valued.owners(
        actions.KIND,
        name="quotas",
        title="Client quotas",
        title_of_changes="Client quota changes",
        counted="entities",
        one="entity",
    ),
)
