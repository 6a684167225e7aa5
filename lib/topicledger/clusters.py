"""Which Kafka cluster a name of the settings is: the identity that every command goes by.

A name is the cluster whose id the settings state; else the one that the table `clusters` has for it; else, where it
answers for the first time, the one that answers. Another cluster behind a name, and two names of one cluster, are
refused before anything is decided.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as Grid

from topicledger import observe as observing
from topicledger import runs
from topicledger.admin import ClusterAdmin
from topicledger.decide import Refused
from topicledger.errors import ExitCode, GuardStopped, UsageError
from topicledger.model import Refusal, RunState
from topicledger.observe import Listing, Observation, list_clusters
from topicledger.schemas import CLUSTERS, PLANS, RUNS
from topicledger.settings import ClusterSettings, Settings
from topicledger.summary import FORMAT_VERSION, cell
from topicledger.tables import Ledger

log = logging.getLogger(__name__)

ACCEPT_COMMAND = "clusters accept"


class Accepted(StrEnum):
    """How an id came to be the one of a name."""

    FIRST_USE = "first use"
    """It answered when the name was first seen; nobody has confirmed it."""
    SETTINGS = "settings"
    """The settings stated it when it answered."""
    COMMAND = "command"
    """A person accepted it with `clusters accept`."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A row of `clusters`."""

    name: str
    cluster_id: str
    first_seen: datetime
    accepted_at: datetime
    accepted_how: str
    """Of `Accepted`."""
    accepted_by: str | None
    run_id: str | None
    changes: int

    @property
    def since(self) -> str:
        """Since when it is this id, and through whom, for messages."""
        how = {
            Accepted.FIRST_USE: f"first use in run {self.run_id}, requested by {self.accepted_by}",
            Accepted.SETTINGS: f"stated by the settings of run {self.run_id}",
            Accepted.COMMAND: f"accepted by {self.accepted_by}",
        }[Accepted(self.accepted_how)]
        return f"since {self.accepted_at:%Y-%m-%d %H:%M:%S} UTC ({how})"


def recorded(ledger: Ledger) -> dict[str, Recorded]:
    """Name -> what `clusters` has of it."""
    known = (Recorded(**row.asDict()) for row in ledger.read(CLUSTERS).select(*CLUSTERS.schema.names).collect())
    return {each.name: _in_utc(each) for each in known}


def _in_utc(row: Recorded) -> Recorded:
    # PySpark gives the moment in this process's own time zone, without saying so.
    return replace(row, first_seen=row.first_seen.astimezone(UTC), accepted_at=row.accepted_at.astimezone(UTC))


# -- whether clusters are the ones meant ------------------------------------------------------------------------------


def refusals(settings: Settings, known: Mapping[str, Recorded], live: Mapping[str, str | None]) -> dict[str, Refused]:
    """Of the clusters in `live` (name -> the id that answers), those on which nothing may be decided, and why.

    Each name of the settings has one id at most: the stated one, else the recorded one, else the one that answers.
    CLUSTER_ID_MISMATCH where another answers; SAME_CLUSTER where another name of the settings, asked or not, has it.
    """
    own = {name: _meant(cluster, known) or live.get(name) for name, cluster in settings.clusters.items()}
    found: dict[str, Refused] = {}
    for name, cluster_id in live.items():
        alike = [each for each, its in own.items() if its is not None and its == cluster_id and each != name]
        if cluster_id != own[name]:
            message = _mismatch(settings, known, name, cluster_id, alike)
            found[name] = Refused(error=Refusal.CLUSTER_ID_MISMATCH, message=message)
        elif alike:
            message = (
                f"clusters {' and '.join([name, *alike])} of the settings are one Kafka cluster, id {cluster_id}: "
                "correct bootstrap_servers (or cluster_id) of the wrong one, or remove it; see `clusters list`"
            )
            found[name] = Refused(error=Refusal.SAME_CLUSTER, message=message)
    return found


def _meant(cluster: ClusterSettings, known: Mapping[str, Recorded]) -> str | None:
    """The id that a name stands for, None where nobody knows yet."""
    if cluster.cluster_id is not None:
        return cluster.cluster_id
    return known[cluster.name].cluster_id if cluster.name in known else None


def _mismatch(
    settings: Settings, known: Mapping[str, Recorded], name: str, live: str | None, alike: Sequence[str]
) -> str:
    answers = f"a cluster with id {live} answers" if live is not None else "a cluster without an id answers"
    if alike:
        answers += f", which is cluster {' and '.join(alike)} of the settings"
    stated = settings.clusters[name].cluster_id
    if stated is not None:
        return (
            f"the settings expect id {stated} for cluster {name}, and {answers}; "
            f"correct clusters.{name}.cluster_id or its bootstrap_servers"
        )
    message = (
        f"cluster {name} has had id {known[name].cluster_id} {known[name].since}, and now {answers}; "
        f"correct clusters.{name}.bootstrap_servers"
    )
    return message if alike else f"{message}, or, if that cluster is meant, accept it: `{_accepting(settings, name)}`"


def _accepting(settings: Settings, name: str) -> str:
    return f"topicledger clusters accept {shlex.quote(name)} --config {shlex.quote(str(settings.path))}"


def identify(
    ledger: Ledger, settings: Settings, live: Mapping[str, str | None], run_id: str | None = None
) -> dict[str, Refused]:
    """As `refusals`, by what `clusters` says now.

    For a run, ids that are new are recorded before it returns: a name's first one, and one that the settings state.
    Nothing is recorded for a name that is refused. Of two runs at once the first one's record counts.
    """
    if run_id is not None:
        ledger.ensure(CLUSTERS)
    elif not ledger.exists(CLUSTERS):
        return refusals(settings, {}, live)
    while True:
        known = recorded(ledger)
        refused = refusals(settings, known, live)
        new = {
            name: cluster_id
            for name, cluster_id in live.items()
            if cluster_id is not None
            and name not in refused
            and (name not in known or known[name].cluster_id != cluster_id)
        }
        if run_id is None or not new:
            return refused
        # Read again afterwards: another run may have been faster, or recorded another name of the same cluster.
        _record(ledger, settings, known, new, run_id)


def _record(
    ledger: Ledger, settings: Settings, known: Mapping[str, Recorded], new: Mapping[str, str], run_id: str
) -> None:
    run = runs.find(ledger, run_id)
    requested_by = None if run is None else run["requested_by"]
    rows = [
        _row(known.get(name), name, cluster_id, how, requested_by, run_id)
        for name, cluster_id in new.items()
        for how in [Accepted.FIRST_USE if settings.clusters[name].cluster_id is None else Accepted.SETTINGS]
    ]
    ledger.compare_and_set(CLUSTERS, "name", rows)
    log.info("ids recorded of clusters %s", ", ".join(new))


def _row(
    before: Recorded | None, name: str, cluster_id: str, how: Accepted, accepted_by: str | None, run_id: str
) -> dict[str, object]:
    now = datetime.now(UTC)
    return {
        "name": name,
        "cluster_id": cluster_id,
        "first_seen": now if before is None else before.first_seen,
        "accepted_at": now,
        "accepted_how": how.value,
        "accepted_by": accepted_by,
        "run_id": run_id,
        "changes": 1 if before is None else before.changes + 1,
    }


def disowned(ledger: Ledger, settings: Settings, planned: Mapping[str, str]) -> dict[str, str]:
    """Of `planned` (name -> the cluster id that its actions were planned for) those that mean another by now, and why.

    The cluster behind a name may have been accepted, or stated, anew since the plan.
    """
    ledger.ensure(CLUSTERS)
    known = recorded(ledger)
    found: dict[str, str] = {}
    for name, cluster_id in planned.items():
        meant = _meant(settings.clusters[name], known)
        if meant not in (None, cluster_id):
            since = f" {known[name].since}" if name in known and known[name].cluster_id == meant else ""
            found[name] = (
                f"planned for cluster id {cluster_id}, and the id of {name} is {meant}{since}; "
                "plan again with a new run id"
            )
    return found


# -- looking at them --------------------------------------------------------------------------------------------------


def observe(
    ledger: Ledger,
    settings: Settings,
    clusters: Sequence[ClusterSettings],
    named: DataFrame,
    *,
    run_id: str | None = None,
) -> Observation:
    """As `observe.observe`, less what is seen of clusters that aren't the ones meant; see `identify` for `run_id`."""
    return look_up(ledger, settings, list_clusters(ledger.spark, clusters, settings.kafka), named, run_id=run_id)


def look_up(
    ledger: Ledger, settings: Settings, listing: Listing, named: DataFrame, *, run_id: str | None = None
) -> Observation:
    """As `observe.look_up`, less what is seen of clusters that aren't the ones meant; see `identify` for `run_id`."""
    live = {
        name: None if row["cluster_id"] is None else str(row["cluster_id"])
        for name, row in listing.told.items()
        if row["error"] is None
    }
    with ThreadPoolExecutor(1) as beside:
        identified = beside.submit(identify, ledger, settings, live, run_id)
        seen = observing.look_up(ledger.spark, listing, named)
        return _without(seen, identified.result())


def _without(seen: Observation, refused: Mapping[str, Refused]) -> Observation:
    """What a stranger has is nobody's business: not counted, not compared, not written down."""
    if not refused:
        return seen
    meant = ~F.col("cluster").isin(*refused)
    return Observation(
        topics=seen.topics.where(meant),
        brokers=seen.brokers.where(meant),
        looks={name: replace(look, refused=refused.get(name)) for name, look in seen.looks.items()},
    )


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Named:
    """What is known of one name."""

    name: str
    in_settings: bool
    settings_cluster_id: str | None
    """The id that the settings state; it decides."""
    cluster_id: str | None = None
    """The recorded id, with the next five; all null where it was never seen to answer."""
    first_seen: str | None = None
    accepted_at: str | None = None
    accepted_how: str | None = None
    accepted_by: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Names:
    """What is known of the names of the settings, and of those recorded that the settings have no more."""

    clusters: Sequence[Named]

    def to_json(self) -> str:
        """The versioned result document."""
        return json.dumps({"format_version": FORMAT_VERSION, "exit_code": int(ExitCode.DONE), **asdict(self)}, indent=2)


def list_names(ledger: Ledger, settings: Settings, only: Collection[str] = ()) -> Names:
    """What is known of each name, of those in `only` where given; asks no cluster."""
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
        first_seen=row.first_seen.isoformat(timespec="seconds"),
        accepted_at=row.accepted_at.isoformat(timespec="seconds"),
        accepted_how=row.accepted_how,
        accepted_by=row.accepted_by,
        run_id=row.run_id,
    )


def render_names(names: Names, console: Console) -> None:
    """A line for each name."""
    grid = Grid()
    for title in ("name", "cluster id", "since", "accepted by", "settings"):
        grid.add_column(title, overflow="fold")
    for each in names.clusters:
        by = None if each.accepted_how is None else f"{each.accepted_how}: {each.accepted_by}"
        said = f"cluster_id = {each.settings_cluster_id}" if each.settings_cluster_id else "any id"
        cells = (each.name, each.cluster_id or "never answered", each.accepted_at, by)
        grid.add_row(*map(cell, cells), cell(said if each.in_settings else "not in the settings"))
    console.print(grid)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What accepting a cluster came to."""

    name: str
    cluster_id: str
    earlier_cluster_id: str | None
    changed: bool
    """False where the id was the recorded one: nothing was written."""
    run_id: str | None
    """Of the row in `runs` that says so; None where nothing was written."""
    open_runs: Sequence[str] = field(default_factory=list)
    """Runs with actions planned for the earlier id: what is open of them is refused when they are taken up again."""

    def to_json(self) -> str:
        """The versioned result document."""
        return json.dumps({"format_version": FORMAT_VERSION, "exit_code": int(ExitCode.DONE), **asdict(self)}, indent=2)


def accept(
    ledger: Ledger, settings: Settings, name: str, *, run_id: str | None = None, requested_by: str | None = None
) -> Acceptance:
    """Make the cluster that answers now the one of `name`, with a row in `runs`.

    Raises UsageError for a name that the settings don't have and for a run id that there is already, ClusterError where
    the cluster can't be reached, and GuardStopped where the settings state another id, or another name has this one.
    """
    cluster = settings.cluster(name)
    ledger.ensure(CLUSTERS, RUNS, PLANS)
    if run_id is not None and runs.find(ledger, run_id) is not None:
        raise UsageError(f"there is a run {run_id} already; accepting a cluster takes none up: name another")
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
    if before is not None:
        arguments["old_cluster_id"] = before.cluster_id
    request = runs.Request(command=ACCEPT_COMMAND, run_id=run_id, requested_by=requested_by)
    run = runs.begin(ledger, settings, request, arguments)
    accepted_by = run.require_ownership()["requested_by"]
    row = _row(before, name, live, Accepted.COMMAND, accepted_by, run.run_id)
    while ledger.compare_and_set(CLUSTERS, "name", [row]) == 0:
        # A run recorded an id meanwhile: what a person accepts counts.
        row = _row(recorded(ledger).get(name), name, live, Accepted.COMMAND, accepted_by, run.run_id)
    run.move_to(RunState.FINISHED, finished_at=datetime.now(UTC), exit_code=int(ExitCode.DONE))
    return Acceptance(
        name=name,
        cluster_id=live,
        earlier_cluster_id=None if before is None else before.cluster_id,
        changed=True,
        run_id=run.run_id,
        open_runs=_planned_for_another(ledger, name, live),
    )


def _planned_for_another(ledger: Ledger, name: str, cluster_id: str) -> list[str]:
    """Runs that aren't over with actions on `name`, planned for another id."""
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
    """What was accepted, and which runs it stops."""
    if acceptance.changed:
        was = f", it was {acceptance.earlier_cluster_id}" if acceptance.earlier_cluster_id else ""
        lines = [f"the id of cluster {acceptance.name} is {acceptance.cluster_id} from now on{was}"]
    else:
        lines = [f"the id of cluster {acceptance.name} is {acceptance.cluster_id} already"]
    lines += [
        f"run {each} was planned for another id: what is open of it on {acceptance.name} will be refused"
        for each in acceptance.open_runs
    ]
    for line in lines:
        console.print(cell(line), highlight=False, soft_wrap=True)
