"""`policies explain` for resources other than topics: the verdict of each policy for one of them.

Topics have a pipeline of their own in `explain`: a topic may need several actions at once, which brokers validate.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from topicledger import policies
from topicledger.cli.explain import PolicyVerdict, observed, print_answer, verdicts_on
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ClusterError, ExitCode, UsageError
from topicledger.frames import materialised
from topicledger.ledger.tables import Ledger
from topicledger.model import Decision
from topicledger.plan.reevaluate import facts
from topicledger.resources import building, ignoring
from topicledger.resources.kind import ResourceKind


def explain(
    ledger: Ledger, settings: Settings, cluster: ClusterSettings, kind: ResourceKind, text: str, *, as_json: bool
) -> ExitCode:
    """Print each rule, its inputs and its verdict for the resource with this text; nothing is changed or stored.

    All declared and live resources of the cluster count, as in a run. A resource that needs no change is evaluated as
    if it were added, or altered, now.
    Raises GuardStopped if it isn't the expected cluster, ClusterError if its resources are unknown.
    """
    subject = kind.policies.subject
    rules = [each for each in building.from_settings(settings) if each.action in subject.actions]
    _, seen = observed(ledger, settings, cluster, kind.table)
    status = seen.statuses[cluster.name]
    if status.error is not None:
        raise ClusterError(status.error)
    listed = kind.observed.observe(ledger.spark, [cluster], settings.kafka, {cluster.name: str(status.cluster_id)})
    if listed.statuses[cluster.name].error is not None:
        raise ClusterError(str(listed.statuses[cluster.name].message))
    validated = ledger.read(kind.table).transform(ignoring.validated_by(kind, settings, [cluster.name]))
    compared = validated.transform(kind.deciding.compare(listed, seen.statuses, settings))
    rows = compared.transform(ignoring.undecided(kind, settings.scope, listed.rows)).transform(materialised)
    mine = (F.col("cluster") == cluster.name) & (F.col("resource") == text)
    found = rows.where(mine).collect()
    if not found:
        raise UsageError(
            f"cluster {cluster.name} has no {kind.names.one} {text}, and no row of {kind.table.name} declares it"
        )
    row = found[0].asDict()
    notes: list[str] = []
    removals = {each.name for each in kind.actions} - {kind.policies.action.value}
    named = {"cluster": cluster.name, kind.resource_type: text}
    answer: dict[str, Any] = {**named, "decision": row["decision"], "notes": notes}
    verdicts: list[PolicyVerdict] = []
    if row["phase"] is not None:
        notes.append(f"{row['phase']} {row['outcome']}: {row['error']}: {row['error_message']}")
    elif row["decision"] in removals:
        notes.append(f"{row['decision']}: no policy evaluates removals")
    else:
        if row["decision"] in (Decision.UNCHANGED, Decision.UNMANAGED):
            notes.append(f"{row['decision']}: evaluated as if it were now {kind.policies.as_if}")
        action = F.when(mine, F.lit(kind.policies.action.value)).otherwise(F.col("decision"))
        known = facts(ledger, settings, [cluster], seen.brokers)
        evaluating = policies.verdicts(rules, known, subject)
        (told,) = rows.withColumn("decision", action).transform(evaluating).where(mine).collect()
        verdicts = verdicts_on(told, rules, row, inputs=text)
    print_answer(answer, verdicts, as_json=as_json)
    return ExitCode.DONE
