"""The rights that a run is to bring about: what `acls` declares, beside what `[acls] manage` lets it remove.

A run of an estate without either asks no cluster for ACLs and reads no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from topicledger import actions, policies
from topicledger.config.settings import ClusterSettings
from topicledger.ledger.run import Run
from topicledger.manifests import acls as manifests
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, Refusal, ResourceType, Work
from topicledger.observe.acls import AclObservation, observe_acls
from topicledger.observe.record import keep
from topicledger.observe.topics import Observation
from topicledger.plan.acls import ADD, decide
from topicledger.plan.decisions import Decided, decided_on
from topicledger.plan.intent import rights_no_longer_declared
from topicledger.plan.reevaluate import facts
from topicledger.plan.wanted import kinds_of
from topicledger.policies import Policy
from topicledger.policies.contract import OF_RIGHTS
from topicledger.schemas import ACLS, OBSERVED_ACLS

COUNTED = {"acls_unchanged": Decision.UNCHANGED, "acls_unmanaged": Decision.UNMANAGED}
"""Names of counts of a run, by decision, of ACLs that need nothing."""


@dataclass(frozen=True, kw_only=True)
class WantedAcls:
    """What a run is to bring about of rights."""

    judged: DataFrame
    """What `manifests.acls.judge` returns, materialised."""
    clusters: Sequence[ClusterSettings]
    """Those whose ACLs are to be listed."""


def wanted(run: Run, clusters: Sequence[ClusterSettings], selected: Sequence[str] | None) -> WantedAcls | None:
    """What is declared of `clusters`; None where nothing is declared or managed, or the run isn't about rights."""
    managed = bool(run.settings.acls.manage)
    declared = run.acls_version is not None or run.unloaded_acls is not None
    if run.reverts is not None or ADD not in kinds_of(run) or not (declared or managed):
        return None
    judged = _judged(run, run.acls_version, selected).localCheckpoint()
    named = {row["cluster"] for row in judged.select("cluster").distinct().collect()}
    if not named and not managed:
        return None
    return WantedAcls(judged=judged, clusters=[each for each in clusters if managed or each.name in named])


def _judged(run: Run, version: int | None, selected: Sequence[str] | None) -> DataFrame:
    return run.acls(version).transform(manifests.judge(list(run.settings.clusters), selected))


def list_into_table(run: Run, rights: WantedAcls, seen: Observation) -> tuple[Observation, AclObservation]:
    """List the ACLs of clusters that were reached; they are in `observed_acls` before anything relies on them.

    Returns what was observed, where a cluster that didn't answer this is one that can't be reached, and its ACLs.
    """
    run.ledger.ensure(OBSERVED_ACLS)
    ids = {name: str(seen.statuses[name].cluster_id) for name in seen.known}
    reached = [each for each in rights.clusters if each.name in ids]
    found = observe_acls(run.spark, reached, run.settings.kafka, ids)
    keep(run, OBSERVED_ACLS, found.acls, found.known)
    lost = {
        name: status.message for name, status in found.statuses.items() if status.error is Refusal.CLUSTER_UNREACHABLE
    }
    statuses = {
        name: replace(status, error=lost[name]) if name in lost else status for name, status in seen.statuses.items()
    }
    return replace(seen, statuses=statuses), found


def decisions(
    run: Run, rules: Sequence[Policy], rights: WantedAcls, listed: AclObservation, seen: Observation, *, again: bool
) -> Decided:
    """Decide on the rights of what was listed; `again`: an earlier start's plan said that clusters can't be reached."""
    judged_by = _judged_by(run, rules, rights.clusters, seen)
    rows = rights.judged.transform(decide(listed, seen.statuses, run.settings, judged_by))
    return decided_on(run, actions.found(rows, kinds_of(run), ResourceType.ACL), COUNTED, again=again)


def _judged_by(run: Run, rules: Sequence[Policy], clusters: Sequence[ClusterSettings], seen: Observation) -> Transform:
    of_rights = [rule for rule in rules if rule.action in OF_RIGHTS.actions]
    if not of_rights:
        return lambda rows: rows
    known = facts(run.ledger, run.settings, clusters, seen.brokers)
    # The manifests that the run is about, be they in files.
    known = replace(known, manifests=lambda: run.manifests(run.manifest_version))
    return policies.judge(of_rights, known, OF_RIGHTS)


def declared_otherwise(run: Run, work: Work) -> Transform | None:
    """What refuses rights that the latest `acls` don't ask for as planned; None where the table is as it was then."""
    kinds = {kind.name for kind in actions.about(ResourceType.ACL)}
    planned = any(target.action in kinds for _, batches in work.values() for batch in batches for target in batch)
    if not planned:
        return None
    latest = run.ledger.latest_version(ACLS) if run.ledger.exists(ACLS) else None
    if latest == run.acls_version and not run.of_files:
        return None
    return rights_no_longer_declared(_judged(run, latest, run.selected), latest, run.acls_version)
