"""An audit as a run: observe the clusters, compare them with the manifests, store the differences.

It changes no cluster. The observations and the `drift` rows of a cluster are stored together or not at all: a cluster
that can't be reached keeps its earlier rows, and a restart with the same run id audits it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.apply.progress import Progress
from topicledger.config.patterns import any_matches
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.config.severities import DriftKind, Severity
from topicledger.drift.beside import as_found, find_resource_drift, unlisted
from topicledger.drift.earlier import found_before
from topicledger.drift.scoping import configs_to_keep, on_resources, on_topics
from topicledger.drift.summary import IGNORED, REFUSED, DriftSummary, summarise
from topicledger.frames import materialised
from topicledger.ledger.comparable import AUDITED_ARGUMENT
from topicledger.ledger.run import Run
from topicledger.ledger.runs import EARLIER_CONFIGS, USAGE_ARGUMENT
from topicledger.manifests import rows as manifests
from topicledger.manifests.rows import Transform
from topicledger.model import AUTHORIZATION_FAILED, Refusal, RunState
from topicledger.observe.clusters import observe
from topicledger.observe.listed import Listed
from topicledger.observe.record import keep
from topicledger.observe.topics import Observation, as_expected
from topicledger.plan import scoping
from topicledger.resources import ignoring
from topicledger.resources.kind import ResourceKind
from topicledger.resources.registry import KINDS
from topicledger.resources.topics.drift.find import Estate, find_drift, with_since
from topicledger.resources.topics.drift.placement import uneven
from topicledger.resources.topics.drift.usage import record_usage
from topicledger.resources.topics.observe.configs import observe_configs
from topicledger.resources.topics.observe.moves import ObservedMoves, observe_moves
from topicledger.schemas import (
    AUDIT,
    BROKERS,
    CLUSTERS,
    DRIFT,
    MANIFESTS,
    OBSERVED,
    OBSERVED_CONFIGS,
    Table,
)

log = logging.getLogger(__name__)

_Declared = Sequence[tuple[ResourceKind, DataFrame]]
_WARNINGS = 20
"""Most invalid rows of a table that are named."""


def audit(run: Run, progress: Progress, *, fail_on: Severity | None = None) -> DriftSummary:
    """Continue an audit to its end and return its summary; a finished one is only summarised.

    `fail_on`: the lowest severity of drift for which it exits 3; None: it never does.
    """
    now = datetime.now(UTC)
    run.ledger.ensure(MANIFESTS, OBSERVED, OBSERVED_CONFIGS, BROKERS, AUDIT, DRIFT, CLUSTERS)
    if run.state is RunState.FINISHED:
        return summarise(run, run.counts.get(REFUSED, 0), [each.name for each in run.clusters], fail_on=fail_on)
    validated = (
        run.ledger.read(MANIFESTS, run.manifest_version)
        .transform(manifests.validated_by(run.settings, run.selected))
        .transform(materialised)
    )
    beside = _validated_beside(run)
    refused = _refused(run, [(MANIFESTS, validated), *((kind.table, rows) for kind, rows in beside)])
    clusters = _clusters_without_drift(run)
    audited = {each.name for each in run.clusters} - {each.name for each in clusters}
    problems: Sequence[str] = []
    if clusters:
        compared, problems = _audit_clusters(run, progress, clusters, validated, beside)
        audited |= compared
    return _close(run, now, refused, audited, problems, fail_on)


def _audit_clusters(
    run: Run, progress: Progress, clusters: Sequence[ClusterSettings], validated: DataFrame, others: _Declared
) -> tuple[set[str], Sequence[str]]:
    """Observe clusters and append their drift in one commit; return those audited, and why others were not."""
    with progress.phase("observe", len(clusters)):
        estate, problems = _observe_estate(run, clusters, validated)
        beside = _declared_beside(run, estate, others)
        listed = []
        for kind, declared in beside:
            estate, found = _list(run, estate, kind, declared, problems)
            listed.append(found)
    if run.arguments.get(USAGE_ARGUMENT) and estate.cluster_ids:
        # Before the cluster's rows of `drift`: a restart leaves out the clusters that have some.
        with progress.phase("usage", len(estate.cluster_ids)):
            record_usage(run, estate, validated)
    with progress.phase("drift"):
        now = datetime.now(UTC)
        # Resources beside topics are compared with all topics: those that others manage exist, too.
        ours = replace(estate, topics=estate.topics.transform(_without_ignored(run.settings)))
        differing = validated.transform(find_drift(ours, run.settings.audit)).transform(on_topics(run, validated))
        if unknown := estate.moves_unknown:
            told = unlisted(run.spark, unknown, DriftKind.MOVES_UNDER_WAY.value)
            differing = differing.unionByName(as_found(estate, run.settings, [told]))
        for (kind, declared), found in zip(beside, listed, strict=True):
            beside_topics = find_resource_drift(kind, estate, found, validated, run.settings)
            mine = on_resources(run, kind, estate, found, declared)
            differing = differing.unionByName(declared.transform(beside_topics).transform(mine))
        rows = (
            differing.transform(with_since(found_before(run, list(estate.cluster_ids)), now))
            .transform(partial(_as_drift, run=run, now=now))
            .transform(materialised)
        )
        if not rows.isEmpty():
            run.keep_row()
            run.require_ownership()
            run.ledger.append(DRIFT, rows, app_id=run.run_id, version=run.next_version())
        # The next audit compares with these configs: an audit that ends before its drift is stored leaves the earlier.
        keep(run, OBSERVED_CONFIGS, configs_to_keep(run, estate, validated), list(estate.cluster_ids))
    return set(estate.cluster_ids), problems


def _without_ignored(settings: Settings) -> Transform:
    """Leave out live topics that the settings leave to others."""
    if not (names := settings.scope.ignore_topics):
        return lambda topics: topics
    return lambda topics: topics.where(~any_matches("topic", names))


def _validated_beside(run: Run) -> _Declared:
    """Return the validated rows of the run's clusters, for kinds beside topics that are declared or managed."""
    found = []
    for kind in KINDS:
        declared = run.ledger.exists(kind.table)
        if declared or kind.deciding.manages(run.settings):
            rows = run.ledger.read(kind.table) if declared else run.ledger.rows(kind.table, [])
            validated_by = ignoring.validated_by(kind, run.settings, run.selected)
            found.append((kind, rows.transform(validated_by).transform(materialised)))
    return found


def _declared_beside(run: Run, estate: Estate, validated: _Declared) -> _Declared:
    """Return the kinds that are declared or managed on audited clusters, with the rows of these."""
    found = [(kind, rows.where(F.col("cluster").isin(*estate.cluster_ids))) for kind, rows in validated]
    return [
        (kind, rows)
        for kind, rows in found
        if estate.cluster_ids and (kind.deciding.manages(run.settings) or not rows.isEmpty())
    ]


def _list(
    run: Run, estate: Estate, kind: ResourceKind, declared: DataFrame, problems: list[str]
) -> tuple[Estate, Listed]:
    """List the resources of a kind on the clusters that declare or manage it.

    A cluster that becomes unreachable meanwhile is removed from the estate that is returned.
    """
    named = {row["cluster"] for row in declared.select("cluster").distinct().collect()}
    clusters = [
        each
        for each in run.clusters
        if each.name in estate.cluster_ids and (kind.deciding.manages(run.settings) or each.name in named)
    ]
    run.ledger.ensure(kind.observed.table)
    listed = kind.observed.observe(run.spark, clusters, run.settings.kafka, estate.cluster_ids)
    keep(run, kind.observed.table, listed.observed, listed.known)
    lost = {name for name, each in listed.statuses.items() if each.error is Refusal.CLUSTER_UNREACHABLE}
    for name in sorted(lost):
        message = str(listed.statuses[name].message)
        log.info("%s; the other clusters are still audited", message)
        problems.append(message)
    left = {name: cluster_id for name, cluster_id in estate.cluster_ids.items() if name not in lost}
    return replace(estate, cluster_ids=left), listed


def _ignored(run: Run) -> Mapping[str, int]:
    """Number of live resources that the settings leave to others, by what they are; empty for a narrower audit.

    The number is unknown for kinds that the run doesn't manage: they aren't listed.
    """
    scope = run.settings.scope
    if run.scope.narrows:
        return {}
    topics = any_matches("topic", scope.ignore_topics) & ~F.col("internal") if scope.ignore_topics else None
    matched = [("topics", OBSERVED, topics)]
    matched += [
        (kind.table.name, kind.observed.table, ignoring.is_ignored(kind, scope))
        for kind in KINDS
        if kind.deciding.manages(run.settings)
    ]
    mine = F.col("cluster").isin(*(each.name for each in run.clusters))
    return {
        name: run.ledger.read(table).where(mine & theirs).count()
        for name, table, theirs in matched
        if theirs is not None and run.ledger.exists(table)
    }


def _as_drift(found: DataFrame, *, run: Run, now: datetime) -> DataFrame:
    """Turn findings into rows of `drift`."""
    ours = {
        "run_id": F.lit(run.run_id),
        "manifest_version": F.lit(run.manifest_version),
        "observed_at": F.lit(now),
    }
    return found.select(*(ours.get(c.name, F.col(c.name)).cast(c.dataType).alias(c.name) for c in DRIFT.schema))


def _clusters_without_drift(run: Run) -> Sequence[ClusterSettings]:
    """Clusters still to observe; those with `drift` rows from an earlier start of this run are done."""
    if not run.resumed:
        return run.clusters
    rows = run.ledger.read(DRIFT).where(F.col("run_id") == run.run_id).select("cluster").distinct().collect()
    done = {row["cluster"] for row in rows}
    return [cluster for cluster in run.clusters if cluster.name not in done]


def _refused(run: Run, declared: Iterable[tuple[Table, DataFrame]]) -> int:
    """Count the invalid rows of tables that are inside the scope, and warn of the first ones."""
    counts = 0
    for table, validated in declared:
        rows = validated.where("outcome = 'refused'").transform(scoping.declarations(run.scope, table))
        name = "topic" if table is MANIFESTS else "resource"
        count = rows.count()
        for row in rows.select("cluster", name, "error_message").limit(_WARNINGS).collect() if count else ():
            log.warning("%s: %s on %s: %s", table.name, row[name], row["cluster"], row["error_message"])
        counts += count
    return counts


def _observe_estate(run: Run, clusters: Sequence[ClusterSettings], validated: DataFrame) -> tuple[Estate, list[str]]:
    """Observe clusters and their configs, and store topics and brokers, each table in one commit.

    Also returns why some clusters are left out.
    """
    kafka = run.settings.kafka
    seen = observe(run.ledger, run.settings, clusters, validated.where("phase is null"), run=run)
    ids, found = as_expected(clusters, seen)
    problems = list(found)
    reached = [cluster for cluster in clusters if cluster.name in ids]
    described = observe_configs(run.spark, reached, kafka, seen.topics.where(F.col("cluster").isin(*ids)))
    for name, error in described.errors.items():
        del ids[name]
        problems.append(error)
    for error in problems:
        log.info("%s; the other clusters are still audited", error)
    of_audited = F.col("cluster").isin(*ids)
    for table, rows in ((OBSERVED, seen.topics), (BROKERS, seen.brokers)):
        keep(run, table, rows.where(of_audited), list(ids))
    _warn_of_unread(run, described.configs.where(of_audited))
    moves = _moves(run, [each for each in reached if each.name in ids])
    estate = Estate(
        cluster_ids=ids,
        topics=seen.topics,
        configs=described.configs,
        earlier_configs=run.ledger.read(OBSERVED_CONFIGS, int(run.arguments[EARLIER_CONFIGS])),
        audit=run.ledger.read(AUDIT),
        brokers=seen.brokers,
        ignored=run.settings.ignored_configs,
        pinned=run.settings.pinned,
        uneven=_uneven(run, validated, seen, list(ids)),
        moving=None if moves is None else moves.rows,
        moves_unknown={} if moves is None else moves.unknown,
    )
    return estate, problems


def _uneven(run: Run, validated: DataFrame, seen: Observation, clusters: Sequence[str]) -> DataFrame | None:
    """Topics with placement `spread` that a plan would rebalance; None if this kind of drift is ignored."""
    if DriftKind.REPLICA_SKEW not in run.settings.audit.severity:
        return None
    return uneven(validated.where(F.col("cluster").isin(*clusters)), seen, clusters)


def _moves(run: Run, clusters: Sequence[ClusterSettings]) -> ObservedMoves | None:
    """Partitions that are being moved, on clusters where runs may move replicas; None if there is no such cluster."""
    if DriftKind.MOVES_UNDER_WAY not in run.settings.audit.severity:
        return None
    changes = run.settings.changes
    asked = [each for each in clusters if each.name in changes and changes[each.name].replicas == "on"]
    return observe_moves(run.spark, asked, run.settings.kafka) if asked else None


def _warn_of_unread(run: Run, configs: DataFrame) -> None:
    """Warn of topics whose configs couldn't be read, other than for lack of authorization: usually deleted by now."""
    unread = configs.where((F.col("config_error_code") != 0) & ~F.col("config_error_code").isin(*AUTHORIZATION_FAILED))
    for row in unread.groupBy("cluster", "config_error").count().collect():
        log.warning(
            "cluster %s: configs of %s topics were not compared: %s", row["cluster"], row["count"], row["config_error"]
        )


def _close(
    run: Run,
    observed_since: datetime,
    refused: int,
    audited: Collection[str],
    problems: Sequence[str],
    fail_on: Severity | None,
) -> DriftSummary:
    summary = summarise(run, refused, audited, problems, fail_on=fail_on)
    # An earlier start may have compared a cluster that had no drift.
    names = filter(None, {*audited, *run.arguments.get(AUDITED_ARGUMENT, "").split(",")})
    arguments = {**run.arguments, AUDITED_ARGUMENT: ",".join(sorted(names))}
    counts = {**summary.kinds, REFUSED: summary.manifests_refused}
    if problems:
        if arguments[AUDITED_ARGUMENT]:
            run.commit_state(run.state, arguments=arguments, counts=counts)
        return summary
    summary = replace(summary, ignored=_ignored(run))
    left = {f"{IGNORED}{name}": count for name, count in summary.ignored.items()}
    run.commit_state(
        RunState.FINISHED,
        arguments=arguments,
        observed_at=observed_since,
        finished_at=datetime.now(UTC),
        counts={**counts, **left},
        exit_code=summary.exit_code,
    )
    return replace(summary, state=run.state.value)
