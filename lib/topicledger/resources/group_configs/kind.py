"""Group configs as a kind of resource."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import Settings
from topicledger.manifests.rows import Transform
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED_RESOURCE
from topicledger.resources import valued
from topicledger.resources.deciding import at_most
from topicledger.resources.group_configs import actions, entries, policies, rows
from topicledger.resources.group_configs.names import NAMES, GroupConfigAction, GroupConfigDrift
from topicledger.resources.group_configs.observe import observe_groups
from topicledger.resources.group_configs.reasons import reasons
from topicledger.resources.group_configs.rows import OF_GROUPS
from topicledger.resources.group_configs.words import OF_DRIFT, WORDS
from topicledger.resources.kind import AsRows, Deciding, Drift, Entries, Observed, Owners, Policies, ResourceKind, Rows
from topicledger.schemas import GROUP_CONFIGS, OBSERVED_GROUP_CONFIGS

_FINDINGS = valued.DriftWords(
    missing=GroupConfigDrift.GROUP_CONFIG_MISSING,
    differs=GroupConfigDrift.GROUP_CONFIG_DIFFERS,
    unmanaged=GroupConfigDrift.GROUP_CONFIG_UNMANAGED,
    message_missing="the cluster has no configs for it",
)


def _decide(seen: Listed, clusters: Mapping[str, ClusterStatus], settings: Settings, judged_by: Transform) -> Transform:
    """See `Deciding.decide`. Actions that a policy refuses don't count for the guard."""

    def transform(judged: DataFrame) -> DataFrame:
        return (
            judged.transform(valued.compared(OF_GROUPS, seen, clusters))
            .transform(judged_by)
            .transform(at_most(actions.KIND.name, actions.MAX_GROUP_CONFIG_CHANGES, settings.guards))
            .select(*DECIDED_RESOURCE.names)
        )

    return transform


KIND = ResourceKind(
    names=NAMES,
    words=WORDS,
    table=GROUP_CONFIGS,
    rows=Rows(judge=rows.judge, rules=rows.row_rules, reasons=reasons, complete=rows.complete, text_of=rows.text_of),
    entries=Entries(
        section="groups",
        fields=entries.COLUMNS,
        read=entries.read_group,
        is_one=entries.is_group,
        columns_are=lambda columns: "group" in columns,
        columns_needed=("cluster", "group"),
        numbers=(),
        expansions=None,
    ),
    observed=Observed(table=OBSERVED_GROUP_CONFIGS, observe=observe_groups),
    deciding=Deciding(
        compare=lambda listed, statuses, _: valued.compared(OF_GROUPS, listed, statuses),
        decide=_decide,
        manages=lambda _: False,
        now={"configs": OF_GROUPS.declared},
        undeclared=lambda: F.lit("don't declare it"),
        protected=None,
    ),
    actions=(actions.KIND,),
    policies=Policies(
        subject=policies.SUBJECT, action=GroupConfigAction.ALTER_GROUP_CONFIGS, as_if="altered to its current configs"
    ),
    as_rows=AsRows(live=valued.live(OF_GROUPS), undo=valued.undo(OF_GROUPS), asked_by=valued.asked_by(OF_GROUPS)),
    drift=Drift(find=valued.find(OF_GROUPS, _FINDINGS), advice=OF_DRIFT),
    owners=Owners(
        name="groups",
        title="Group configs",
        title_of_changes="Group config changes",
        have={"groups": "count(*)"},
        moved={"changed": "count(*)"},
        headings=("Groups", "Changed"),
        also=(),
        what=lambda target: actions.KIND.shown.words(target) or "",
        columns={"Owner": "owner", "Group": "resource", "Change": "what", "When": "when"},
        filters=("cluster", "owner"),
        audited="run_id, cluster, resource, before, after, completed_at",
    ),
)
