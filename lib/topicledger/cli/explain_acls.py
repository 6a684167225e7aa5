"""`policies explain --acl`: what each policy says of one right."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from topicledger import policies
from topicledger.cli.explain import Verdict, print_answer, verdict_of
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ClusterError, ExitCode, GuardStopped, UsageError
from topicledger.ledger.tables import Ledger
from topicledger.manifests import acls
from topicledger.manifests import rows as manifests
from topicledger.model import AccessAction, Decision
from topicledger.observe.acls import observe_acls
from topicledger.observe.clusters import observe
from topicledger.plan.acls import guarded
from topicledger.plan.reevaluate import facts
from topicledger.policies.contract import OF_RIGHTS
from topicledger.schemas import ACLS, MANIFESTS, USAGES


def explain(ledger: Ledger, settings: Settings, cluster: ClusterSettings, text: str, *, as_json: bool) -> ExitCode:
    """Print each rule, its inputs and its verdict for the right of this text; nothing is changed or remembered.

    All declared and live rights of the cluster count, as in a run. A right that needs nothing is judged as if it were
    added now. Raises GuardStopped where the cluster isn't the one meant, ClusterError where its ACLs aren't known.
    """
    ledger.ensure(MANIFESTS, USAGES, ACLS)
    rules = [each for each in policies.from_settings(settings) if each.action in OF_RIGHTS.actions]
    declared = ledger.read(MANIFESTS).transform(manifests.judge(list(settings.clusters), [cluster.name]))
    seen = observe(ledger, settings, [cluster], declared.where(F.col("phase").isNull()))
    status = seen.statuses[cluster.name]
    if status.refused is not None:
        raise GuardStopped(status.refused.message)
    if status.error is not None:
        raise ClusterError(status.error)
    listed = observe_acls(ledger.spark, [cluster], settings.kafka, {cluster.name: str(status.cluster_id)})
    if listed.statuses[cluster.name].error is not None:
        raise ClusterError(str(listed.statuses[cluster.name].message))
    judged = ledger.read(ACLS).transform(acls.judge(list(settings.clusters), [cluster.name]))
    rows = judged.transform(guarded(listed, seen.statuses, settings)).localCheckpoint()
    mine = (F.col("cluster") == cluster.name) & (F.col("resource") == text)
    found = rows.where(mine).collect()
    if not found:
        raise UsageError(f"cluster {cluster.name} has no right {text}, and no row of acls declares it")
    row = found[0].asDict()
    notes: list[str] = []
    answer: dict[str, Any] = {"cluster": cluster.name, "acl": text, "decision": row["decision"], "notes": notes}
    verdicts: list[Verdict] = []
    if row["phase"] is not None:
        notes.append(f"{row['phase']} {row['outcome']}: {row['error']}: {row['error_message']}")
    elif row["decision"] == AccessAction.ACL_DELETE:
        notes.append("acl_delete: no policy judges a removal")
    else:
        if row["decision"] in (Decision.UNCHANGED, Decision.UNMANAGED):
            notes.append(f"{row['decision']}: judged as if it were added now")
        add = F.when(mine, F.lit(AccessAction.ACL_ADD.value)).otherwise(F.col("decision"))
        known = facts(ledger, settings, [cluster], seen.brokers)
        (told,) = (
            rows.withColumn("decision", add).transform(policies.verdicts(rules, known, OF_RIGHTS)).where(mine).collect()
        )
        for each, rule in zip(told["verdicts"], rules, strict=True):
            values = each.asDict()
            # A rule of the user's own needn't say what it judged.
            values["inputs"] = values["inputs"] or (text if values["asked"] else None)
            verdicts.append(verdict_of(values, rule.settings, row))
    print_answer(answer, verdicts, as_json=as_json)
    return ExitCode.DONE
