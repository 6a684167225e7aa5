"""`policies explain --acl` and `--quota`: the verdict of each policy on one ACL, or on one entity's quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from topicledger import policies
from topicledger.cli.explain import Verdict, print_answer, verdict_of
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ClusterError, ExitCode, GuardStopped, UsageError
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.manifests.rows import Transform
from topicledger.model import AccessAction, Decision
from topicledger.observe.clusters import observe
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.plan import acls, quotas
from topicledger.plan.reevaluate import facts
from topicledger.resources import building
from topicledger.resources.kind import ResourceKind
from topicledger.schemas import MANIFESTS, USAGES


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A kind of resources whose policies can be explained."""

    kind: ResourceKind
    judged: Callable[[Listed, Mapping[str, ClusterStatus], Settings], Transform]
    """From the kind's `judge` result, materialised, to the input of policies."""
    action: AccessAction
    """The action that policies evaluate."""
    called: str
    """The name of one resource, in messages."""
    as_if: str
    """How a resource that needs no change is evaluated, in a note."""


EXPLAINED: Mapping[str, Explained] = {
    "acl": Explained(kind=acls.RIGHTS, judged=acls.guarded, action=AccessAction.ACL_ADD, called="right", as_if="added"),
    "quota": Explained(
        kind=quotas.QUOTAS,
        judged=lambda listed, statuses, _: quotas.compared(listed, statuses),
        action=AccessAction.ALTER_QUOTA,
        called="quota",
        as_if="altered to what it is",
    ),
}
"""By the option of `policies explain`."""


def explain(
    ledger: Ledger, settings: Settings, cluster: ClusterSettings, option: str, text: str, *, as_json: bool
) -> ExitCode:
    """Print each rule, its inputs and its verdict for the resource with this text; nothing is changed or stored.

    `option`: one of `EXPLAINED`. All declared and live resources of the cluster count, as in a run. A resource that
    needs no change is evaluated as if it were added, or altered, now.
    Raises GuardStopped if it isn't the expected cluster, ClusterError if its resources are unknown.
    """
    of = EXPLAINED[option]
    kind, subject = of.kind, of.kind.subject
    assert subject is not None
    ledger.ensure(MANIFESTS, USAGES, kind.table)
    rules = [each for each in building.from_settings(settings) if each.action in subject.actions]
    declared = ledger.read(MANIFESTS).transform(manifests.judge(list(settings.clusters), [cluster.name]))
    seen = observe(ledger, settings, [cluster], declared.where(F.col("phase").isNull()))
    status = seen.statuses[cluster.name]
    if status.refused is not None:
        raise GuardStopped(status.refused.message)
    if status.error is not None:
        raise ClusterError(status.error)
    listed = kind.observe(ledger.spark, [cluster], settings.kafka, {cluster.name: str(status.cluster_id)})
    if listed.statuses[cluster.name].error is not None:
        raise ClusterError(str(listed.statuses[cluster.name].message))
    judged = ledger.read(kind.table).transform(kind.judge(list(settings.clusters), [cluster.name]))
    rows = judged.transform(of.judged(listed, seen.statuses, settings)).localCheckpoint()
    mine = (F.col("cluster") == cluster.name) & (F.col("resource") == text)
    found = rows.where(mine).collect()
    if not found:
        raise UsageError(
            f"cluster {cluster.name} has no {of.called} {text}, and no row of {kind.table.name} declares it"
        )
    row = found[0].asDict()
    notes: list[str] = []
    answer: dict[str, Any] = {"cluster": cluster.name, option: text, "decision": row["decision"], "notes": notes}
    verdicts: list[Verdict] = []
    if row["phase"] is not None:
        notes.append(f"{row['phase']} {row['outcome']}: {row['error']}: {row['error_message']}")
    elif row["decision"] == AccessAction.ACL_DELETE:
        notes.append("acl_delete: no policy judges a removal")
    else:
        if row["decision"] in (Decision.UNCHANGED, Decision.UNMANAGED):
            notes.append(f"{row['decision']}: judged as if it were {of.as_if} now")
        action = F.when(mine, F.lit(of.action.value)).otherwise(F.col("decision"))
        known = facts(ledger, settings, [cluster], seen.brokers)
        judging = policies.verdicts(rules, known, subject)
        (told,) = rows.withColumn("decision", action).transform(judging).where(mine).collect()
        for each, rule in zip(told["verdicts"], rules, strict=True):
            values = each.asDict()
            # A rule of the user's own needn't say what it judged.
            values["inputs"] = values["inputs"] or (text if values["asked"] else None)
            verdicts.append(verdict_of(values, rule.settings, row))
    print_answer(answer, verdicts, as_json=as_json)
    return ExitCode.DONE
