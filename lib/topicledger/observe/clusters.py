"""Identity of clusters: the Kafka cluster that a name in the settings means, for every command.

A name means the cluster whose id the settings state, else the one in the table `clusters`, else the first one that
answers. A different cluster behind a name, and two names for one cluster, are refused before anything is decided.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import TableError
from topicledger.ledger.run import Run
from topicledger.ledger.tables import Ledger
from topicledger.model import Refusal
from topicledger.observe import topics as observing
from topicledger.observe.topics import Listing, Observation, Refused, list_clusters
from topicledger.schemas import CLUSTERS
from topicledger.text import iso_time, show

log = logging.getLogger(__name__)


class AcceptedHow(StrEnum):
    """How a name got its cluster id."""

    FIRST_USE = "first use"
    """The cluster answered when the name was first used; nobody has confirmed the id."""
    SETTINGS = "settings"
    """The settings stated the id, and that cluster answered."""
    COMMAND = "command"
    """A person accepted the id with `clusters accept`."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A row of `clusters`; None is unknown, as in rows that another program wrote."""

    name: str
    cluster_id: str | None
    first_seen: datetime | None
    accepted_at: datetime | None
    accepted_how: str | None
    """A value of `AcceptedHow`."""
    accepted_by: str | None
    run_id: str | None
    changes: int | None

    @property
    def since(self) -> str:
        """Text for messages: when the name got this id, and from whom."""
        how: Mapping[str | None, str] = {
            AcceptedHow.FIRST_USE.value: f"first use in run {self.run_id}, requested by {self.accepted_by}",
            AcceptedHow.SETTINGS.value: f"stated by the settings of run {self.run_id}",
            AcceptedHow.COMMAND.value: f"accepted by {self.accepted_by}",
        }
        at = "an unknown time" if self.accepted_at is None else iso_time(self.accepted_at)
        return f"since {at} ({how.get(self.accepted_how, 'unknown by whom')})"


def recorded(ledger: Ledger) -> dict[str, Recorded]:
    """Return the rows of `clusters` by name."""
    known = (Recorded(**row.asDict()) for row in ledger.all_rows(CLUSTERS))
    return {each.name: _in_utc(each) for each in known}


def recorded_if_any(ledger: Ledger) -> Mapping[str, Recorded]:
    """As `recorded`; no rows if the table doesn't exist, which stays so."""
    return recorded(ledger) if ledger.exists(CLUSTERS) else {}


def _in_utc(row: Recorded) -> Recorded:
    # PySpark returns the moment in this process's own time zone, without a zone.
    first_seen, accepted_at = (each and each.astimezone(UTC) for each in (row.first_seen, row.accepted_at))
    return replace(row, first_seen=first_seen, accepted_at=accepted_at)


def refusals(settings: Settings, known: Mapping[str, Recorded], live: Mapping[str, str | None]) -> dict[str, Refused]:
    """Return the clusters of `live` (name -> the id that answers) on which nothing may be decided, with the reason.

    Each name in the settings has at most one id: the stated one, else the recorded one, else the one that answers.
    CLUSTER_ID_MISMATCH if a different id answers; SAME_CLUSTER if another name in the settings, asked or not, has the
    same id.
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
    """Return the cluster id that a name stands for; None if it is still unknown."""
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
    ledger: Ledger, settings: Settings, live: Mapping[str, str | None], run: Run | None = None
) -> dict[str, Refused]:
    """Return `refusals` according to the table `clusters`, and record new ids for a run.

    A run records a name's first id, and an id that the settings state, before this returns. Nothing is recorded for a
    refused name. If two runs record at once, the first record counts.
    """
    if run is not None:
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
        if run is None or not new:
            return refused
        # Read again afterwards: another run may have recorded first, or recorded another name for the same cluster.
        _record(ledger, settings, known, new, run)


def _record(
    ledger: Ledger, settings: Settings, known: Mapping[str, Recorded], new: Mapping[str, str], run: Run
) -> None:
    rows = [
        new_row(known.get(name), name, cluster_id, how, run.row["requested_by"], run.run_id)
        for name, cluster_id in new.items()
        for how in [AcceptedHow.FIRST_USE if settings.clusters[name].cluster_id is None else AcceptedHow.SETTINGS]
    ]
    run.keep_row()
    run.commits.settle()
    ledger.compare_and_set(CLUSTERS, "name", rows)
    log.info("ids recorded of clusters %s", ", ".join(new))


def new_row(
    before: Recorded | None, name: str, cluster_id: str, how: AcceptedHow, accepted_by: str | None, run_id: str
) -> dict[str, object]:
    """Return the row with the next value of `changes`. Raises TableError if the row before has none."""
    now, changes = datetime.now(UTC), 0 if before is None else before.changes
    if changes is None:
        raise TableError(
            f"table {CLUSTERS.name}: the row of {show(name)} has no value in `changes`, so two writers could overwrite "
            "each other. Set `changes` to 1"
        )
    return {
        "name": name,
        "cluster_id": cluster_id,
        "first_seen": now if before is None else before.first_seen,
        "accepted_at": now,
        "accepted_how": how.value,
        "accepted_by": accepted_by,
        "run_id": run_id,
        "changes": changes + 1,
    }


def known_ids(ledger: Ledger, settings: Settings) -> dict[str, str]:
    """Name -> the cluster id that it stands for; without names that never answered."""
    known = recorded_if_any(ledger)
    meant = {name: _meant(cluster, known) for name, cluster in settings.clusters.items()}
    return {name: cluster_id for name, cluster_id in meant.items() if cluster_id is not None}


def disowned(ledger: Ledger, settings: Settings, planned: Mapping[str, str]) -> dict[str, str]:
    """Return the names of `planned` (name -> the planned cluster id) that now mean another cluster, with the reason.

    Since planning, another cluster may have been accepted for the name, or stated in the settings.
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


def observe(
    ledger: Ledger,
    settings: Settings,
    clusters: Sequence[ClusterSettings],
    named: DataFrame,
    *,
    run: Run | None = None,
) -> Observation:
    """`topics.observe` without clusters that have the wrong id; see `identify` for `run`."""
    return describe_unlisted(ledger, settings, list_clusters(ledger.spark, clusters, settings.kafka), named, run=run)


def describe_unlisted(
    ledger: Ledger, settings: Settings, listing: Listing, named: DataFrame, *, run: Run | None = None
) -> Observation:
    """`topics.describe_unlisted` without clusters that have the wrong id; see `identify` for `run`."""
    live = {
        name: None if row["cluster_id"] is None else str(row["cluster_id"])
        for name, row in listing.cluster_rows.items()
        if row["error"] is None
    }
    with ThreadPoolExecutor(1) as beside:
        identified = beside.submit(identify, ledger, settings, live, run)
        seen = observing.describe_unlisted(ledger.spark, listing, named)
        return _without(seen, identified.result())


def _without(seen: Observation, refused: Mapping[str, Refused]) -> Observation:
    """Leave out refused clusters, so that they aren't counted, compared or recorded."""
    if not refused:
        return seen
    meant = ~F.col("cluster").isin(*refused)
    return Observation(
        topics=seen.topics.where(meant),
        brokers=seen.brokers.where(meant),
        statuses={name: replace(status, refused=refused.get(name)) for name, status in seen.statuses.items()},
    )
