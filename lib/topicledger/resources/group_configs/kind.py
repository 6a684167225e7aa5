"""Group configs as a kind of resource."""

from __future__ import annotations

from kafka.protocol.admin import ListConfigResourcesRequest

from topicledger.kafka.abilities import Needs
from topicledger.resources import valued
from topicledger.resources.group_configs import actions, entries, observe, policies, rows
from topicledger.resources.group_configs.names import NAMES, GroupConfigAction, GroupConfigDrift
from topicledger.resources.group_configs.rows import OF_GROUPS
from topicledger.resources.group_configs.words import OF_DRIFT, WORDS
from topicledger.resources.kind import Entries, ObservedResources, Policies, ResourceKind, Rows
from topicledger.schemas import GROUP_CONFIGS, OBSERVED_GROUP_CONFIGS

_FINDINGS = valued.DriftWords(
    missing=GroupConfigDrift.GROUP_CONFIG_MISSING,
    differs=GroupConfigDrift.GROUP_CONFIG_DIFFERS,
    unmanaged=GroupConfigDrift.GROUP_CONFIG_UNMANAGED,
    message_missing="the cluster has no configs for it",
)

KIND = ResourceKind(
    names=NAMES,
    words=WORDS,
    table=GROUP_CONFIGS,
    rows=Rows(validate=rows.validate, rules=rows.ROW_RULES, complete=rows.complete, text_of=rows.text_of),
    entries=Entries(
        section="groups",
        fields=entries.FIELDS,
        read=entries.read_group,
        is_one=entries.is_group,
        columns_are=lambda columns: "group" in columns,
        columns_needed=("cluster", "group"),
        numbers=(),
        schemas=dict,
        expansions=None,
    ),
    observed=ObservedResources(
        table=OBSERVED_GROUP_CONFIGS,
        describe=observe.describe,
        allows_everyone=None,
        needs=Needs(requests={ListConfigResourcesRequest: 1}, since="4.1", cluster=("DESCRIBE_CONFIGS",)),
    ),
    deciding=valued.deciding(OF_GROUPS, actions.KIND),
    actions=(actions.KIND,),
    policies=Policies(
        subject=policies.SUBJECT, action=GroupConfigAction.ALTER_GROUP_CONFIGS, as_if="altered to its current configs"
    ),
    as_rows=valued.as_rows(OF_GROUPS),
    drift=valued.drift(OF_GROUPS, _FINDINGS, OF_DRIFT),
    owners=valued.owners(
        actions.KIND,
        name="groups",
        title="Group configs",
        title_of_changes="Group config changes",
        counted="groups",
        one="group",
    ),
)
