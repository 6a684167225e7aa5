"""Client quotas as a kind of resource."""

from __future__ import annotations

from pyspark.sql import functions as F

from topicledger.resources import valued
from topicledger.resources.kind import AsRows, Deciding, Drift, Entries, Observed, Owners, Policies, ResourceKind, Rows
from topicledger.resources.quotas import actions, decide, drift, entries, policies, rows
from topicledger.resources.quotas.entity import ENTITY, LIMITS
from topicledger.resources.quotas.names import NAMES, QuotaAction
from topicledger.resources.quotas.observe import observe_quotas
from topicledger.resources.quotas.reasons import reasons
from topicledger.resources.quotas.rows import OF_QUOTAS
from topicledger.resources.quotas.words import OF_DRIFT, WORDS
from topicledger.schemas import OBSERVED_QUOTAS, QUOTAS

KIND = ResourceKind(
    names=NAMES,
    words=WORDS,
    table=QUOTAS,
    rows=Rows(judge=rows.judge, rules=rows.row_rules, reasons=reasons, complete=rows.complete, text_of=rows.text_of),
    entries=Entries(
        section="quotas",
        fields=entries.COLUMNS,
        read=entries.read_quota,
        is_one=entries.is_quota,
        columns_are=lambda columns: not set(columns).isdisjoint(ENTITY),
        columns_needed=("cluster",),
        numbers=LIMITS,
        expansions=None,
    ),
    observed=Observed(table=OBSERVED_QUOTAS, observe=observe_quotas),
    deciding=Deciding(
        compare=lambda listed, statuses, _: valued.compared(OF_QUOTAS, listed, statuses),
        decide=decide.decide,
        manages=lambda _: False,
        now={"limits": OF_QUOTAS.declared},
        undeclared=lambda: F.lit("don't declare it"),
        protected=None,
    ),
    actions=(actions.KIND,),
    policies=Policies(
        subject=policies.SUBJECT,
        action=QuotaAction.ALTER_QUOTA,
        as_if="altered to its current limits",
    ),
    as_rows=AsRows(live=valued.live(OF_QUOTAS), undo=valued.undo(OF_QUOTAS), asked_by=valued.asked_by(OF_QUOTAS)),
    drift=Drift(find=drift.find, advice=OF_DRIFT),
    owners=Owners(
        name="quotas",
        title="Client quotas",
        title_of_changes="Client quota changes",
        have={"entities": "count(*)"},
        moved={"changed": "count(*)"},
        headings=("Entities", "Changed"),
        also=(),
        what=lambda target: actions.KIND.shown.words(target) or "",
        columns={"Owner": "owner", "Entity": "resource", "Change": "what", "When": "when"},
        filters=("cluster", "owner"),
        audited="run_id, cluster, resource, before, after, completed_at",
    ),
)
