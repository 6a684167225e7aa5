"""ACLs as a kind of resource."""

from __future__ import annotations

from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from pyspark.sql import functions as F

from topicledger.kafka.abilities import Needs
from topicledger.resources.acls import actions, decide, drift, entries, keeping, observe, policies, rows
from topicledger.resources.acls.names import NAMES, AclAction, AclSettings
from topicledger.resources.acls.words import OF_DRIFT, WORDS
from topicledger.resources.kind import (
    AsRows,
    Deciding,
    Drift,
    Entries,
    ObservedResources,
    OwnerLists,
    Policies,
    ResourceKind,
    Rows,
)
from topicledger.resources.scoped import Scoped
from topicledger.schemas import ACLS, OBSERVED_ACLS

KIND = ResourceKind(
    names=NAMES,
    words=WORDS,
    table=ACLS,
    rows=Rows(validate=rows.validate, rules=rows.ROW_RULES, complete=rows.complete, text_of=rows.text_of),
    entries=Entries(
        section="acls",
        fields=entries.FIELDS,
        read=entries.read_acl,
        is_one=entries.is_acl,
        columns_are=lambda columns: "principal" in columns,
        columns_needed=("cluster", "principal", "operation", "resource_type", "resource_name"),
        numbers=(),
        schemas=entries.schemas,
        expansions=entries.expansions,
    ),
    observed=ObservedResources(
        table=OBSERVED_ACLS,
        describe=observe.describe,
        allows_everyone=observe.allows_everyone,
        needs=Needs(
            requests={DescribeAclsRequest: 1, CreateAclsRequest: 1, DeleteAclsRequest: 1},
            since="2.0",
            cluster=("ALTER", "DESCRIBE"),
        ),
    ),
    deciding=Deciding(
        compare=decide.guarded,
        decide=decide.decide,
        scoped=Scoped(
            owned_by=decide.owned_by, on_topics=decide.on_topics, topic_of=decide.topic_of, holder="principal"
        ),
        manages=lambda settings: bool(settings.of_kinds.of(AclSettings).manage),
        now={},
        # A removal is still asked for where the right isn't declared.
        undeclared=lambda: F.when(F.col("action") == actions.ADD.name, F.lit("don't declare it")),
        protected=keeping.protected,
    ),
    actions=(actions.ADD, actions.DELETE),
    policies=Policies(
        subject=policies.SUBJECT,
        action=AclAction.ACL_ADD,
        as_if="added",
    ),
    as_rows=AsRows(live=decide.live, undo=decide.undo, asked_by=decide.asked_by),
    drift=Drift(find=drift.find, advice=OF_DRIFT),
    owners=OwnerLists(
        name="rights",
        title="ACLs",
        title_of_changes="ACL changes",
        have={"rights": "count(*)", "principals": "count(DISTINCT principal)"},
        moved={
            "added": f"count_if(action = '{actions.ADD.name}')",
            "removed": f"count_if(action <> '{actions.ADD.name}')",
        },
        headings=("ACLs", "Principals", "Added", "Removed"),
        also=("principal",),
        what=lambda target: (actions.ADD if target.action == actions.ADD.name else actions.DELETE).shown.done,
        columns={"Change": "what", "ACL": "resource", "Owner": "owner", "When": "when"},
        filters=("change", "cluster", "principal", "owner"),
        audited="run_id, cluster, action, resource, completed_at",
    ),
)
