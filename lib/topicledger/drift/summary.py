"""The summary of an audit: read from `drift`, shown as tables or JSON, turned into an exit code."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pyspark.sql import functions as F
from rich.console import Console

from topicledger.apply.display import displayed
from topicledger.config.severities import SEVERITIES, Severity
from topicledger.errors import ExitCode, exit_code
from topicledger.ledger.run import Run
from topicledger.ledger.sql import as_command, iso_times, sql_text
from topicledger.model import RunState
from topicledger.model.config_texts import shown
from topicledger.schemas import DRIFT
from topicledger.text import SHOWN_FAILURES, alike, cell, document, first_of, grid_of, listed, plain

REFUSED = "manifests_refused"
"""Name of the count of invalid manifest rows, which were not compared, in a run's `counts`."""

IGNORED = "ignored_"
"""Names of the counts of ignored resources begin with it, in a run's `counts`."""


@dataclass(frozen=True, kw_only=True)
class ClusterDrift:
    """One cluster's drift."""

    cluster: str
    kinds: Mapping[str, int]
    """Kind of drift -> rows of `drift`; empty if the cluster is as declared."""


@dataclass(frozen=True, kw_only=True)
class DriftRow:
    """One row of `drift`, for people."""

    severity: str
    cluster: str
    topic: str | None
    """None if it is about a resource that names no topic."""
    kind: str
    what: str | None
    declared: str | None
    live: str | None
    since: str
    """ISO 8601, UTC."""
    message: str


@dataclass(frozen=True, kw_only=True)
class DriftSummary:
    """An audit in numbers, with its most severe findings."""

    run_id: str
    state: str
    exit_code: int
    manifest_version: int
    clusters: Sequence[ClusterDrift]
    """Audited clusters; once rows are removed, only those that have some."""
    kinds: Mapping[str, int]
    """Kind of drift -> findings, over all clusters."""
    severities: Mapping[str, int]
    """Severity -> rows of `drift`, over all clusters."""
    drift: Sequence[DriftRow]
    """The first 20, the most severe first."""
    query: str
    """SQL for all of them."""
    manifests_refused: int
    """Invalid manifest rows, which were not compared."""
    problems: Sequence[str] = field(default_factory=list)
    """Why the audit isn't finished."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Live resources that `[scope]` of the settings leaves to others: `topics` or the table of a kind -> number."""

    @property
    def drift_count(self) -> int:
        """Number of findings."""
        return sum(self.kinds.values())

    @property
    def removed(self) -> int:
        """Number of findings whose rows `maintain` has removed by age."""
        return self.drift_count - sum(self.severities.values())

    def to_json(self) -> str:
        """The versioned result document."""
        return document(self.exit_code, {**asdict(self), "drift_count": self.drift_count, "removed": self.removed})


def found_then(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Return kinds of drift -> findings, as an audit counted them. In: `runs.counts`."""
    return {name: each for name, each in counts.items() if name != REFUSED and not name.startswith(IGNORED)}


def summarise(
    run: Run,
    manifests_refused: int,
    audited: Collection[str],
    problems: Sequence[str] = (),
    *,
    fail_on: Severity | None = None,
) -> DriftSummary:
    """Read the findings of an audit and determine its exit code; without `fail_on`, a finished audit keeps its own.

    `audited`: names of the clusters that were compared. `problems`: why it isn't finished. `fail_on`: the lowest
    severity of drift for which it exits 3. Findings that were removed since may have had any severity.
    """
    rows = run.ledger.read(DRIFT).where(F.col("run_id") == run.run_id)
    counted = rows.groupBy("cluster", "kind", "severity").count().orderBy("cluster", "kind").collect()
    clusters: dict[str, dict[str, int]] = {name: {} for name in audited}
    kinds: dict[str, int] = {}
    severities = dict.fromkeys((each.value for each in Severity), 0)
    for row in counted:
        clusters.setdefault(row["cluster"], {})[row["kind"]] = row["count"]
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["count"]
        severities[row["severity"]] += row["count"]
    count, finished = sum(kinds.values()), run.state is RunState.FINISHED
    removed = finished and sum((then := found_then(run.counts)).values()) > count
    if removed:
        kinds = dict(then)
        clusters = {name: found for name, found in clusters.items() if found}
    worst = F.array_position(F.array(*(F.lit(each.value) for each in Severity)), F.col("severity"))
    first = (
        rows.orderBy(worst, "cluster", "topic", "kind", "what")
        .limit(SHOWN_FAILURES)
        .withColumn("since", iso_times(F.col("since")))
        .select(*DriftRow.__dataclass_fields__)
    )
    query = f"SELECT * FROM {run.ledger.sql_name(DRIFT)} WHERE run_id = {sql_text(run.run_id)}"
    shown = displayed(first.collect, [], f"the drift of audit {run.run_id}", instead=as_command(query)) if count else []
    order = list(Severity)
    failing = order[: order.index(fail_on) + 1] if fail_on is not None else ()
    drifted = any(severities[each.value] or removed for each in failing)
    code = exit_code({ExitCode.ERROR: bool(problems), ExitCode.CHANGES_PENDING: drifted})
    return DriftSummary(
        run_id=run.run_id,
        state=run.state.value,
        exit_code=run.exit_code if finished and fail_on is None else int(code),
        manifest_version=run.manifest_version,
        clusters=[ClusterDrift(cluster=cluster, kinds=found) for cluster, found in sorted(clusters.items())],
        kinds=kinds,
        severities=severities,
        drift=[DriftRow(**row.asDict()) for row in shown],
        query=query,
        manifests_refused=manifests_refused,
        problems=list(problems),
        ignored={name.removeprefix(IGNORED): each for name, each in run.counts.items() if name.startswith(IGNORED)},
    )


def render(summary: DriftSummary, console: Console) -> None:
    """Print a summary for people."""
    state = "not finished" if summary.problems else summary.state
    console.print(f"audit {plain(summary.run_id)}: {state}, manifests at version {summary.manifest_version}")
    compared = listed([plain(each.cluster) for each in summary.clusters])
    if summary.removed:
        counts = ", ".join(f"{kind} {count:,}" for kind, count in summary.kinds.items() if count)
        console.print(
            f"found then: {counts}; rows of {summary.removed:,} were removed by age (maintain)", soft_wrap=True
        )
    if any(summary.severities.values()):
        grid = grid_of("cluster", "kind", "found", title="Drift by cluster and kind", numbers=("found",))
        order = list(map(str, SEVERITIES))
        for found in summary.clusters:
            for kind in sorted(found.kinds, key=lambda each: order.index(each)):
                grid.add_row(cell(found.cluster), kind, str(found.kinds[kind]))
        console.print(grid)
        _render_drift(summary, console)
    elif not summary.problems and not summary.removed:
        console.print("no drift")
    elif summary.problems and compared:
        console.print(f"no drift on {compared}", soft_wrap=True)
    if summary.manifests_refused:
        console.print(f"not compared: {summary.manifests_refused} invalid manifest rows; `plan` says why")
    if any(summary.ignored.values()):
        counts = ", ".join(f"{name} {count:,}" for name, count in summary.ignored.items() if count)
        console.print(f"ignored by [scope] of the settings: {counts}", markup=False, soft_wrap=True)
    for problem in summary.problems:
        console.print(f"not compared: {plain(problem)}", soft_wrap=True)
    if summary.problems and compared:
        console.print(f"compared: {compared}; to audit only these: --cluster NAME for each", soft_wrap=True)


def _in_words(drift: DriftRow) -> str:
    """A finding in words, without its cluster and topic."""
    sides = (("declared", drift.declared), ("live", drift.live))
    both = ", ".join(f"{side} {shown(drift.what, value)}" for side, value in sides if value is not None)
    kind = " ".join(filter(None, (drift.kind, drift.what)))
    return "; ".join(filter(None, (f"{kind}: {both}" if both else kind, drift.message)))


def _render_drift(summary: DriftSummary, console: Console) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in summary.severities.items() if count)
    grid = grid_of("severity", "cluster", "topic", "finding", "since", title=f"Drift: {counts}", whole=("since",))
    same: dict[tuple[object, ...], list[DriftRow]] = {}
    for each in summary.drift:
        found = (each.kind, each.what, each.declared, each.live, alike(each.message, each.topic))
        same.setdefault((each.severity, each.cluster, *found), []).append(each)
    for findings in same.values():
        first = findings[0]
        topics = listed([each.topic or "" for each in findings])
        since = min(each.since for each in findings)
        grid.add_row(*map(cell, (first.severity, first.cluster, topics, _in_words(first), since)))
    console.print(grid)
    kept = summary.drift_count - summary.removed
    if kept > len(summary.drift):
        console.print(f"{first_of(len(summary.drift), kept)}; all of them:")
        console.print(plain(as_command(summary.query)), soft_wrap=True)
