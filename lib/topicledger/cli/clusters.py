"""`clusters`: the Kafka cluster that each name in the settings stands for, and what it allows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

import click
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.apply.display import display_only, displayed
from topicledger.cli import cluster_check
from topicledger.cli.options import (
    NEW_ID,
    Options,
    ReadingCommand,
    common_with,
    interruptible,
    open_ledger,
    open_settings,
    print_result,
    requested_by_option,
)
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ExitCode, GuardStopped
from topicledger.kafka import ClusterAdmin
from topicledger.ledger import runs
from topicledger.ledger.run import require_new
from topicledger.ledger.tables import Ledger
from topicledger.model import RunState
from topicledger.observe.clusters import AcceptedHow, Recorded, new_row, recorded, refusals
from topicledger.schemas import CLUSTERS, PLANS, RUNS
from topicledger.text import cell, document, grid_of, iso_time


@click.group("clusters", short_help="Check clusters and what names stand for.")
def clusters_group() -> None:
    """Show or change which Kafka cluster each name in the settings stands for."""


@clusters_group.command(
    "list",
    cls=ReadingCommand,
    short_help="List the recorded cluster id of each name.",
    epilog="Example: topicledger clusters list",
)
@common_with(without=("run_id",))
def clusters_list(options: Options) -> int:
    """List the recorded cluster id of each name, since when and by whom, and the settings. Asks no cluster."""
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "clusters")
    names = list_names(ledger, settings, options.cluster)
    print_result(names.to_json(), lambda console: render_names(names, console), options)
    return ExitCode.DONE


@clusters_group.command(
    "accept", short_help="Record a new cluster id for a name.", epilog="Example: topicledger clusters accept orders"
)
@click.argument("name")
@requested_by_option
@common_with(without=("cluster",), run_id=NEW_ID)
def clusters_accept(options: Options, name: str, requested_by: str | None) -> int:
    """Record the id of the cluster that answers now for NAME, instead of any earlier id."""
    with interruptible():
        settings = open_settings(options)
        settings.cluster(name)
        ledger = open_ledger(options, settings, "clusters")
        accepted = accept(ledger, settings, name, run_id=options.run_id, requested_by=requested_by)
    with display_only("the result", instead="`clusters list` shows it"):
        print_result(accepted.to_json(), lambda console: render_acceptance(accepted, console), options)
    return ExitCode.DONE


@clusters_group.command(
    "check",
    cls=ReadingCommand,
    short_help="Find features that would fail on a cluster.",
    epilog="Example: topicledger clusters check orders",
)
@click.argument("name")
@common_with(without=("cluster", "run_id"))
def clusters_check(options: Options, name: str) -> int:
    """Ask the cluster that answers for NAME which features of the settings would fail on it. Changes nothing.

    Starts no Spark. Exit 1: a feature that they use would fail, or the cluster can't be reached.
    """
    checked = cluster_check.check(open_settings(options), name)
    print_result(checked.to_json(), lambda console: cluster_check.render(checked, console), options)
    return checked.exit_code


@dataclass(frozen=True, kw_only=True)
class Named:
    """The recorded data about one name."""

    name: str
    in_settings: bool
    settings_cluster_id: str | None
    """The id in the settings, which takes precedence."""
    cluster_id: str | None = None
    """The recorded id; None, as the next five fields, if the cluster has never answered, or if it is unknown."""
    first_seen: str | None = None
    accepted_at: str | None = None
    accepted_how: str | None = None
    accepted_by: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names of the settings, and the recorded names that the settings no longer have."""

    clusters: Sequence[Named]

    def to_json(self) -> str:
        """Return the versioned result document."""
        return document(ExitCode.DONE, asdict(self))


def list_names(ledger: Ledger, settings: Settings, only: Collection[str] = ()) -> Names:
    """Return the recorded data about each name, or those in `only` if given; asks no cluster."""
    ledger.ensure(CLUSTERS)
    known = recorded(ledger)
    names = [name for name in dict.fromkeys([*settings.clusters, *sorted(known)]) if not only or name in only]
    return Names(clusters=[_named(settings.clusters.get(name), known.get(name), name) for name in names])


def _named(cluster: ClusterSettings | None, row: Recorded | None, name: str) -> Named:
    named = Named(
        name=name,
        in_settings=cluster is not None,
        settings_cluster_id=None if cluster is None else cluster.cluster_id,
    )
    if row is None:
        return named
    return replace(
        named,
        cluster_id=row.cluster_id,
        first_seen=None if row.first_seen is None else iso_time(row.first_seen),
        accepted_at=None if row.accepted_at is None else iso_time(row.accepted_at),
        accepted_how=row.accepted_how,
        accepted_by=row.accepted_by,
        run_id=row.run_id,
    )


def render_names(names: Names, console: Console) -> None:
    """Print a line for each name."""
    grid = grid_of("name", "cluster id", "since", "accepted by", "settings")
    for each in names.clusters:
        by = None if each.accepted_how is None else f"{each.accepted_how}: {each.accepted_by}"
        said = f"cluster_id = {each.settings_cluster_id}" if each.settings_cluster_id else "any id"
        cells = (each.name, each.cluster_id or "never answered", each.accepted_at, by)
        grid.add_row(*map(cell, cells), cell(said if each.in_settings else "not in the settings"))
    console.print(grid)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Result of accepting a cluster."""

    name: str
    cluster_id: str
    earlier_cluster_id: str | None
    changed: bool
    """False if the id was recorded already: nothing was written."""
    run_id: str | None
    """The id of its row in `runs`; None if nothing was written."""
    open_runs: Sequence[str] = field(default_factory=list)
    """Runs with actions planned for the earlier id: their open actions are refused when they resume."""

    def to_json(self) -> str:
        """Return the versioned result document."""
        return document(ExitCode.DONE, asdict(self))


def accept(
    ledger: Ledger, settings: Settings, name: str, *, run_id: str | None = None, requested_by: str | None = None
) -> Acceptance:
    """Record the id of the cluster that answers now for `name`, with a row in `runs`.

    Raises UsageError for a name that isn't in the settings and for a run id that already exists, ClusterError if the
    cluster can't be reached, and GuardStopped if the settings state a different id, or another name has this id.
    """
    cluster = settings.cluster(name)
    ledger.ensure(CLUSTERS, RUNS, PLANS)
    require_new(ledger, run_id, "accepting a cluster can't resume a run")
    with ClusterAdmin(cluster, settings.kafka) as admin:
        live = admin.describe_cluster().cluster_id
    known = recorded(ledger)
    before = known.pop(name, None)
    refused = refusals(settings, known, {name: live}).get(name)
    if refused is not None:
        raise GuardStopped(f"{refused.message}. Nothing was accepted")
    if before is not None and before.cluster_id == live:
        return Acceptance(name=name, cluster_id=live, earlier_cluster_id=live, changed=False, run_id=None)
    arguments = {"name": name, "new_cluster_id": live}
    if before is not None and before.cluster_id is not None:
        arguments["old_cluster_id"] = before.cluster_id
    request = runs.Request(command=runs.ACCEPT_COMMAND, run_id=run_id, requested_by=requested_by)
    run = runs.begin(ledger, settings, request, arguments)
    accepted_by = run.require_ownership()["requested_by"]
    row = new_row(before, name, live, AcceptedHow.COMMAND, accepted_by, run.run_id)
    while ledger.compare_and_set(CLUSTERS, "name", [row]) == 0:
        # A run recorded an id meanwhile: the user's decision takes precedence.
        row = new_row(recorded(ledger).get(name), name, live, AcceptedHow.COMMAND, accepted_by, run.run_id)
    run.commit_state(RunState.FINISHED, finished_at=datetime.now(UTC), exit_code=int(ExitCode.DONE))
    return Acceptance(
        name=name,
        cluster_id=live,
        earlier_cluster_id=None if before is None else before.cluster_id,
        changed=True,
        run_id=run.run_id,
        open_runs=displayed(
            lambda: _planned_for_another(ledger, name, live), [], "the open runs", instead="`runs list` has them"
        ),
    )


def _planned_for_another(ledger: Ledger, name: str, cluster_id: str) -> list[str]:
    """Return the open runs with actions on `name` that were planned for a different id."""
    over = F.col("state").isin(RunState.FINISHED.value, RunState.ABANDONED.value)
    rows = (
        ledger.read(PLANS)
        .where((F.col("cluster") == name) & (F.col("cluster_id") != cluster_id) & F.col("phase").isNull())
        .join(ledger.read(RUNS).where(~over), on="run_id", how="left_semi")
        .select("run_id")
        .distinct()
        .orderBy("run_id")
        .collect()
    )
    return [row["run_id"] for row in rows]


def render_acceptance(acceptance: Acceptance, console: Console) -> None:
    """Print the accepted id, and the runs that it affects."""
    if acceptance.changed:
        was = f", it was {acceptance.earlier_cluster_id}" if acceptance.earlier_cluster_id else ""
        lines = [f"the id of cluster {acceptance.name} is {acceptance.cluster_id} from now on{was}"]
    else:
        lines = [f"the id of cluster {acceptance.name} is {acceptance.cluster_id} already"]
    lines += [
        f"run {each} was planned for another id: its open actions on {acceptance.name} will be refused"
        for each in acceptance.open_runs
    ]
    for line in lines:
        console.print(cell(line), soft_wrap=True)
