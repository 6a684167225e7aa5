"""Planning of resources other than topics: compares the declarations in their tables with clusters.

If no resource of a kind is declared or managed, a run doesn't ask clusters for the kind, and reads no table of it.
Topics are in `topics`: they have ids, placements, budgets, and several actions at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger import policies
from topicledger.config.settings import ClusterSettings
from topicledger.frames import materialised
from topicledger.ledger.rows import written_violations
from topicledger.ledger.run import Run
from topicledger.ledger.versions import latest_if_exists
from topicledger.manifests.row_rules import PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Decision, Outcome, Phase, Refusal, Work
from topicledger.observe.listed import Listed
from topicledger.observe.record import keep
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.phases import DECIDED_RESOURCE, returned
from topicledger.plan import revert_resources, scoping
from topicledger.plan.decided import Decided, decided_on
from topicledger.plan.intent import declarations_of, declared_otherwise, no_longer_declared
from topicledger.plan.reevaluate import facts
from topicledger.plan.removals import with_removed
from topicledger.plan.reverted import changed_by
from topicledger.policies import Policy
from topicledger.policies.contract import Facts
from topicledger.resources import ignoring, registry
from topicledger.resources.ending import REFUSED
from topicledger.resources.ending import refused as refused_for
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.resources.topics.plan.wanted import kinds_of
from topicledger.schemas import ACTION_KEY, BROKERS, MANIFESTS

_KEY = ("cluster", "resource")
COUNTED: Mapping[str, Decision] = {name: decision for kind in KINDS for name, decision in kind.counted.items()}
"""Name of a run's count -> the decision that it counts, for resources that need no action."""


@dataclass(frozen=True, kw_only=True)
class ListedResources:
    """The goal for one kind of resource, and the clusters' existing resources."""

    wanted: WantedResources
    listed: Listed

    def decide(self, run: Run, policies: Sequence[Policy], seen: Observation, *, again: bool) -> Decided:
        """See `decided.Observed`."""
        kind, validated, listed = self.wanted.kind, self.wanted.validated, self.listed
        declared = None if run.reverts is None else validated_rows(run, kind, run.version_of(kind.table), None)
        if declared is not None:
            validated = revert_resources.validated(run, kind, validated, declared, listed, seen.statuses)
            listed = replace(listed, declared_only=True, declared=declared)
        elif kind.deciding.manages(run.settings):
            validate = ignoring.validated_by(kind, run.settings, None)
            validated = validated.transform(with_removed(run, kind.table, validate, seen.lost))
        # A cluster may be lost after its resources were listed.
        listed = replace(listed, rows=listed.rows.where(F.col("cluster").isin(*seen.known)))
        evaluate = _evaluating(run, policies, self.wanted, seen)
        scoped = _within(run, kind, listed)
        rows = validated.transform(kind.deciding.decide(listed, seen.statuses, run.settings, evaluate, scoped))
        rows = returned("decide", rows, DECIDED_RESOURCE, or_more=True)
        if run.selected is not None or again:
            # A refused row of an unknown cluster protects resources that it may mean; runs on all clusters report it.
            rows = rows.where(F.col("cluster").isin(*seen.statuses))
        rows = registry.found(rows, kinds_of(run), kind.resource_type)
        if declared is not None:
            rows = rows.transform(revert_resources.warned(run, kind, self.wanted.validated, declared))
        counted = {
            name: each for name, each in kind.counted.items() if declared is None or each is not Decision.UNMANAGED
        }
        return decided_on(run, rows, counted, again=again)


@dataclass(frozen=True, kw_only=True)
class WantedResources:
    """The goal of a run for one kind of resource."""

    kind: ResourceKind
    validated: DataFrame
    """Rows from the kind's `validate`, materialised; for a revert, the changes of the reverted run."""
    clusters: Sequence[ClusterSettings]
    """Clusters whose resources will be listed."""

    def named(self) -> DataFrame | None:
        """See `decided.Goal`: none."""
        return None

    def observe(self, run: Run, seen: Observation) -> tuple[Observation, ListedResources]:
        """List the resources of reached clusters, and write them to the observed table before anything relies on them.

        A cluster that didn't answer is unreachable in the returned observation.
        """
        kind = self.kind
        run.ledger.ensure(kind.observed.table)
        ids = {name: str(seen.statuses[name].cluster_id) for name in seen.known}
        reached = [cluster for cluster in self.clusters if cluster.name in ids]
        listed = kind.observed.observe(run.spark, reached, run.settings.kafka, ids)
        keep(run, kind.observed.table, listed.observed, listed.known)
        lost = _lost(listed)
        statuses = {
            name: replace(status, error=lost[name]) if name in lost else status
            for name, status in seen.statuses.items()
        }
        return replace(seen, statuses=statuses), ListedResources(wanted=self, listed=listed)


def goals(run: Run, clusters: Sequence[ClusterSettings], selected: Sequence[str] | None) -> Sequence[WantedResources]:
    """Return the goal for `clusters`, per kind that is declared or managed and that the run may change."""
    if run.reverts is None:
        return list(_declared(run, clusters, selected))
    return list(_done(run, run.reverts, clusters, selected))


def _declared(
    run: Run, clusters: Sequence[ClusterSettings], selected: Sequence[str] | None
) -> Iterator[WantedResources]:
    found: list[tuple[ResourceKind, bool]] = []
    for kind in KINDS if run.by_manifests else ():
        about = {each.name for each in registry.about(kind.resource_type)}
        managed = kind.deciding.manages(run.settings)
        declared = run.version_of(kind.table) is not None or kind.table.name in run.unloaded
        if not about.isdisjoint(kinds_of(run)) and not run.leaves_out(kind.table) and (declared or managed):
            found.append((kind, managed))
    # Most ledgers have the tables without any row, and validating no rows takes Spark 0.3 s.
    filled = _filled(run, [kind for kind, managed in found if not managed])
    for kind, managed in found:
        if not managed and kind.table.name not in filled:
            continue
        validated = validated_rows(run, kind, run.version_of(kind.table), selected).transform(materialised)
        named = {row["cluster"] for row in validated.select("cluster").distinct().collect()}
        if named or managed:
            listed = [each for each in clusters if managed or each.name in named]
            yield WantedResources(kind=kind, validated=validated, clusters=listed)


def _filled(run: Run, kinds: Sequence[ResourceKind]) -> Collection[str]:
    """Return the names of the kinds' tables that have rows, in one query."""
    if not kinds:
        return ()
    # Most of these tables are empty: this takes fewer queries than reading all of their rows.
    one = [
        run.as_written(kind.table, run.version_of(kind.table)).limit(1).select(F.lit(kind.table.name).alias("name"))
        for kind in kinds
    ]
    return {row["name"] for row in reduce(DataFrame.union, one).collect()}


def _done(
    run: Run, reverted: str, clusters: Sequence[ClusterSettings], selected: Sequence[str] | None
) -> Iterator[WantedResources]:
    """Yield the changes of run `reverted`, per kind; also those of clusters that the settings don't have."""
    kinds = {kind.resource_type: kind for kind in KINDS}
    types = (kind.resource_type for kind in kinds.values())
    done = changed_by(run.ledger, reverted, *types)
    if selected is not None:
        done = done.where(F.col("cluster").isin(*selected))
    done = done.transform(materialised)
    # Clusters that the settings don't have by themselves: elsewhere, a refused row of an unknown cluster may mean any.
    lost = ~F.coalesce(F.col("cluster").isin(*run.settings.clusters), F.lit(False))
    found: dict[tuple[str, bool], set[str]] = {}
    for row in done.select("resource_type", lost.alias("lost"), "cluster").distinct().collect():
        found.setdefault((row["resource_type"], row["lost"]), set()).add(row["cluster"])
    for (of_type, is_lost), named in found.items():
        validated = done.where((F.col("resource_type") == of_type) & (lost == F.lit(is_lost)))
        listed = [each for each in clusters if each.name in named]
        yield WantedResources(kind=kinds[of_type], validated=validated, clusters=listed)


def validated_rows(run: Run, kind: ResourceKind, version: int | None, selected: Sequence[str] | None) -> DataFrame:
    """Return the rows of the kind's `validate`, with rows of unknown clusters, which may mean a selected one."""
    rows, known = run.resources(kind.table, version), list(run.settings.clusters)
    validated = rows.transform(ignoring.validated_by(kind, run.settings, selected))
    if selected is None:
        return validated
    stray = ~F.coalesce(F.col("cluster").isin(*known), F.lit(False))
    return validated.unionByName(rows.where(stray).transform(ignoring.validated_by(kind, run.settings, None)))


def _within(run: Run, kind: ResourceKind, listed: Listed) -> Transform:
    """Return a transform that closes decisions on resources outside the scope of the run, or of the settings."""
    of_run = scoping.resources(run, kind, list(run.settings.clusters))
    of_settings = ignoring.undecided(kind, run.settings.scope, listed.rows)
    return lambda rows: rows.transform(of_run).transform(of_settings)


def _evaluating(run: Run, rules: Sequence[Policy], wanted: WantedResources, seen: Observation) -> Transform:
    of_kind = _rules_of(wanted.kind, rules)
    if not of_kind:
        return lambda rows: rows
    known = facts(run.ledger, run.settings, wanted.clusters, seen.brokers)
    return policies.evaluate(of_kind, _with_manifests_of(run, known), wanted.kind.policies.subject)


def _with_manifests_of(run: Run, known: Facts) -> Facts:
    """Return facts with the run's own manifests, which may be in files or earlier ones."""
    return replace(known, manifests=lambda: run.as_written(MANIFESTS, run.manifest_version))


def _rules_of(kind: ResourceKind, rules: Sequence[Policy]) -> Sequence[Policy]:
    return [rule for rule in rules if rule.action in kind.policies.subject.actions]


def refused_now(
    run: Run, rules: Sequence[Policy], planned: Callable[[], DataFrame]
) -> Iterator[tuple[Transform, Mapping[str, str]]]:
    """Yield transforms that refuse planned actions which policies don't allow any more, and clusters' errors.

    Policies are evaluated on the clusters' current resources, with owners and labels from the latest tables, or from
    those of the plan if they are earlier ones, and owners of resources without a row from the plan. Clusters are asked
    only about planned actions (columns of `plans`) of kinds with policies. The errors: cluster -> why its actions can't
    be evaluated. Actions of a kind that a cluster doesn't list for this client any more are refused.
    """
    for kind in KINDS:
        of_kind = _rules_of(kind, rules)
        if not of_kind:
            continue
        asked = planned().where(F.col("resource_type") == kind.resource_type).transform(materialised)
        ids = {row["cluster"]: row["cluster_id"] for row in asked.select("cluster", "cluster_id").distinct().collect()}
        if not ids:
            continue
        clusters = [each for each in run.clusters if each.name in ids]
        # A plan from earlier manifests has the owners and labels of then, as for topics.
        latest = latest_if_exists(run.ledger, kind.table)
        version = run.version_of(kind.table) if run.of_earlier_manifests else latest
        declared = F.lit(True).alias("_declared")
        own = validated_rows(run, kind, version, None).select(*_KEY, F.col("owner").alias("_own"), "labels", declared)
        listed = replace(kind.observed.observe(run.spark, clusters, run.settings.kafka, ids), declared_only=True)
        known = (
            asked.drop("labels")
            .join(own, on=[*_KEY], how="left")
            .withColumn("owner", F.when(F.col("_declared"), F.col("_own")).otherwise(F.col("owner")))
            .transform(materialised)
        )
        validated = (
            known.join(listed.rows.transform(kind.as_rows.live), on=[*_KEY], how="left")
            .transform(kind.as_rows.asked_by)
            .select(*kind.table.schema.names)
            .transform(kind.rows.validate(list(run.settings.clusters), None))
            .join(known.select(*_KEY, F.col("_declared").isNull().alias("undeclared")), on=[*_KEY], how="left")
            .transform(materialised)
        )
        statuses = {name: ClusterStatus(cluster_id=its_id) for name, its_id in ids.items()}
        facts_now = facts(run.ledger, run.settings, clusters, run.ledger.read(BROKERS))
        if run.of_earlier_manifests:
            facts_now = _with_manifests_of(run, facts_now)
        evaluate = policies.evaluate(of_kind, facts_now, kind.policies.subject)
        decided = validated.transform(kind.deciding.decide(listed, statuses, run.settings, evaluate, lambda rows: rows))
        refused = decided.where(F.col("phase") == Phase.POLICY.value)
        yield partial(_with_refusals, refused=refused), _lost(listed)
        for transform in unlisted(kind, listed):
            yield transform, {}


def unlisted(kind: ResourceKind, listed: Listed) -> Iterator[Transform]:
    """Yield transforms that refuse planned actions of a kind which their cluster doesn't list for this client."""
    for name, status in listed.statuses.items():
        if status.error is not None and status.error is not Refusal.CLUSTER_UNREACHABLE:
            of_cluster = (F.col("resource_type") == kind.resource_type) & (F.col("cluster") == name)
            yield refused_for(status.error, F.when(of_cluster, F.lit(str(status.message))))


def _lost(listed: Listed) -> Mapping[str, str]:
    """Return cluster -> why it did not answer."""
    return {
        name: str(status.message)
        for name, status in listed.statuses.items()
        if status.error is Refusal.CLUSTER_UNREACHABLE
    }


def _with_refusals(planned: DataFrame, *, refused: DataFrame) -> DataFrame:
    """Return the refused ones of planned actions: `REFUSED` and violations."""
    why = ("error", "error_message", "violations")
    ended = refused.where(F.col("outcome") == Outcome.REFUSED.value)
    known = ended.select("cluster", "resource_type", "resource", F.col("decision").alias("action"), *why)
    violations = written_violations(F.col("violations")).alias("violations")
    return planned.drop(*why).join(known, on=list(ACTION_KEY), how="inner").select(*REFUSED, violations)


def changed_declarations(run: Run, work: Work) -> Sequence[Transform]:
    """Return transforms that refuse actions which the latest tables don't ask for; none if no table has changed."""
    planned = {target.action for _, batches in work.values() for batch in batches for target in batch}
    found = []
    for kind in KINDS:
        if planned.isdisjoint(each.name for each in registry.about(kind.resource_type)):
            continue
        then = run.latest_version_of(kind.table)
        latest = latest_if_exists(run.ledger, kind.table)
        if latest == then and not run.of_files:
            continue
        validated, of = validated_rows(run, kind, latest, run.selected), declarations_of(kind)
        if run.reverts is not None or run.of_earlier_manifests:
            # The plan differs from the table on purpose: only a change of the table since the plan matters.
            before = validated_rows(run, kind, then, run.selected)
            found.append(declared_otherwise(of, before, validated, then, latest))
            found += _protecting(run, kind, validated, then, before=before)
        else:
            found.append(no_longer_declared(of, validated, latest, then, of_files=run.of_files, scope=run.scope))
            found += _protecting(run, kind, validated, then)
    return found


def _protecting(
    run: Run, kind: ResourceKind, validated: DataFrame, then: int | None, *, before: DataFrame | None = None
) -> Iterator[Transform]:
    """Yield the kind's `Deciding.protected` for the latest rows; `then`: the table's version that the plan knew.

    A plan from files knows rows that the table didn't have: those that it acts on, and those that exist already.
    `before`: rows that count as little as they did in the plan.
    """
    if kind.deciding.protected is None:
        return
    if before is not None:
        row = F.to_json(F.struct(*kind.table.schema.names, "phase"))
        validated = validated.join(before.select(row.alias("_before")), on=[row == F.col("_before")], how="left_anti")
    asked_for = F.col("phase").isNull() & (F.col("state") == PRESENT)
    rows = validated_rows(run, kind, then, run.selected) if before is None else before
    known = rows.where(asked_for).select(*_KEY)
    if run.of_files:
        planned = run.plans().where(F.col("resource_type") == kind.resource_type).select(*_KEY)
        there = run.ledger.read(kind.observed.table).transform(kind.as_rows.live).select(*_KEY)
        known = known.unionByName(planned).unionByName(there)
    yield kind.deciding.protected(validated, known, list(run.settings.clusters))
