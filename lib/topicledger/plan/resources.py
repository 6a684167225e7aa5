"""Resources beside topics, as a run plans them: what their tables declare, beside what clusters have.

A run of an estate that declares none of a kind, and manages none, asks no cluster for them and reads no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from topicledger import actions, policies
from topicledger.config.settings import ClusterSettings
from topicledger.ledger.run import Run
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, Refusal, Work
from topicledger.observe.listed import Listed
from topicledger.observe.record import keep
from topicledger.observe.topics import Observation
from topicledger.plan import acls, quotas
from topicledger.plan.decisions import Decided, decided_on
from topicledger.plan.intent import resources_no_longer_declared
from topicledger.plan.reevaluate import facts
from topicledger.plan.resource_kind import ResourceKind
from topicledger.plan.wanted import kinds_of
from topicledger.policies import Policy

KINDS: Sequence[ResourceKind] = (acls.RIGHTS, quotas.QUOTAS)
COUNTED: Mapping[str, Decision] = {name: decision for kind in KINDS for name, decision in kind.counted.items()}
"""Names of counts of a run, by decision, of what needs nothing."""


@dataclass(frozen=True, kw_only=True)
class WantedResources:
    """What a run is to bring about of one kind."""

    kind: ResourceKind
    judged: DataFrame
    """What the kind's `judge` returns, materialised."""
    clusters: Sequence[ClusterSettings]
    """Those that are to be listed."""


@dataclass(frozen=True, kw_only=True)
class ListedResources:
    """And what clusters have of it."""

    wanted: WantedResources
    listed: Listed


def wanted(run: Run, clusters: Sequence[ClusterSettings], selected: Sequence[str] | None) -> Iterator[WantedResources]:
    """What is declared of `clusters`, of the kinds that are declared or managed and that the run is about."""
    for kind in KINDS if run.by_manifests else ():
        about = {each.name for each in actions.about(kind.resource_type)}
        managed = kind.manages(run.settings)
        version, unloaded = run.version_of(kind.table), run.unloaded_resources.get(kind.table.name)
        declared = version is not None or unloaded is not None
        if about.isdisjoint(kinds_of(run)) or not (declared or managed):
            continue
        judged = _judged(run, kind, version, selected).localCheckpoint()
        named = {row["cluster"] for row in judged.select("cluster").distinct().collect()}
        if named or managed:
            listed = [each for each in clusters if managed or each.name in named]
            yield WantedResources(kind=kind, judged=judged, clusters=listed)


def _judged(run: Run, kind: ResourceKind, version: int | None, selected: Sequence[str] | None) -> DataFrame:
    return run.resources(kind.table, version).transform(kind.judge(list(run.settings.clusters), selected))


def list_into_tables(
    run: Run, resources: Iterator[WantedResources], seen: Observation
) -> tuple[Observation, Sequence[ListedResources]]:
    """List what clusters that were reached have; it is in the observed table before anything relies on it.

    Returns what was observed, where a cluster that didn't answer this is one that can't be reached, and what is listed.
    """
    found = []
    for each in resources:
        kind = each.kind
        run.ledger.ensure(kind.observed)
        ids = {name: str(seen.statuses[name].cluster_id) for name in seen.known}
        reached = [cluster for cluster in each.clusters if cluster.name in ids]
        listed = kind.observe(run.spark, reached, run.settings.kafka, ids)
        keep(run, kind.observed, listed.rows, listed.known)
        lost = {
            name: status.message
            for name, status in listed.statuses.items()
            if status.error is Refusal.CLUSTER_UNREACHABLE
        }
        statuses = {
            name: replace(status, error=lost[name]) if name in lost else status
            for name, status in seen.statuses.items()
        }
        seen = replace(seen, statuses=statuses)
        found.append(ListedResources(wanted=each, listed=listed))
    return seen, found


def decisions(
    run: Run, rules: Sequence[Policy], resources: ListedResources, seen: Observation, *, again: bool
) -> Decided:
    """Decide on what was listed; `again`: an earlier start's plan said that clusters can't be reached."""
    kind = resources.wanted.kind
    judged_by = _judged_by(run, rules, resources.wanted, seen)
    rows = resources.wanted.judged.transform(kind.decide(resources.listed, seen.statuses, run.settings, judged_by))
    return decided_on(run, actions.found(rows, kinds_of(run), kind.resource_type), kind.counted, again=again)


def _judged_by(run: Run, rules: Sequence[Policy], wanted: WantedResources, seen: Observation) -> Transform:
    subject = wanted.kind.subject
    of_kind = [rule for rule in rules if subject is not None and rule.action in subject.actions]
    if subject is None or not of_kind:
        return lambda rows: rows
    known = facts(run.ledger, run.settings, wanted.clusters, seen.brokers)
    # The manifests that the run is about, be they in files.
    known = replace(known, manifests=lambda: run.manifests(run.manifest_version))
    return policies.judge(of_kind, known, subject)


def declared_otherwise(run: Run, work: Work) -> Sequence[Transform]:
    """What refuses actions that the latest tables don't ask for as planned; none where they are as they were then."""
    planned = {target.action for _, batches in work.values() for batch in batches for target in batch}
    found = []
    for kind in KINDS:
        if planned.isdisjoint(each.name for each in actions.about(kind.resource_type)):
            continue
        then = run.version_of(kind.table)
        latest = run.ledger.latest_version(kind.table) if run.ledger.exists(kind.table) else None
        if latest != then or run.of_files:
            judged = _judged(run, kind, latest, run.selected)
            found.append(resources_no_longer_declared(kind, judged, latest, then))
    return found
