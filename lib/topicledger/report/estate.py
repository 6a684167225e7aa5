"""The page about the estate: sizes of owners and how they grow, unused topics, risks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from topicledger.model.scope import Scope
from topicledger.report import charts, listings, page, words
from topicledger.report.listings import NO_OWNER, Cell, ReportLine, ReportList
from topicledger.text import counted

SERIES = 6
"""Most owners or clusters with a line of their own in a chart; the others share one."""
_RISKS: Mapping[str, str] = {
    "one_replica": "one replica: a lost disk loses its records",
    "no_spare_replica": "min.insync.replicas needs all replicas: one broker down refuses writes of acks=all",
    "refuses_writes": "min.insync.replicas needs more replicas than there are: writes of acks=all are refused",
    "unclean_election": "unclean leader election: acknowledged records can be lost",
}
"""What each value of the column `risk` means."""


@dataclass(frozen=True, kw_only=True)
class OwnerSize:
    """Rows of the view `cost_by_owner`: one, or the sum of several."""

    owner: str | None
    clusters: tuple[str, ...]
    """One in the view, several in a sum."""
    topics: int
    topics_of_unknown_size: int
    partitions: int
    bytes: int | None
    cost: float | None
    currency: str | None


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A row of the view `growth_by_owner`."""

    day: date
    cluster: str
    owner: str | None
    topics: int
    topics_of_unknown_size: int
    partitions: int
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class ViewRows:
    """The first rows of a view."""

    total: int
    """Number of all its rows."""
    rows: Sequence[Mapping[str, object]]
    query: str
    """SQL for all its rows."""


@dataclass(frozen=True, kw_only=True)
class Estate:
    """All contents of the page."""

    made_at: datetime
    limits: Scope
    """The requested clusters and owners."""
    unused_days: int
    """[views] unused_days."""
    usage_at: datetime | None
    """When usage was read on the cluster whose last such audit is the oldest; None if there was none."""
    unknown_use: int
    """Number of topics of which audits don't tell whether they are used."""
    unknown_configs: int
    """Number of topics whose configs no audit has described."""
    owners: Sequence[OwnerSize]
    growth: Sequence[Growth]
    """In the order of days."""
    unused: ViewRows
    over_partitioned: ViewRows
    risks: ViewRows
    risky: int
    """Number of topics with a risk; one topic can have several."""


@dataclass(frozen=True, kw_only=True)
class GrowthChart:
    """One quantity over time."""

    name: str
    title: str
    highest: float
    """The value at the upper edge."""
    lines: Sequence[charts.Line]

    def shown(self, value: float | None) -> str:
        """Format a value of the quantity."""
        return size(value) if self.name == "bytes" or value is None else words.number(int(value))


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """The charts with a line for each owner, or for each cluster."""

    by: str
    """`owner` or `cluster`."""
    series: Sequence[str]
    """Names of the lines."""
    charts: Sequence[GrowthChart]


def render_estate(estate: Estate) -> str:
    """Render the page. The same estate always gives the same bytes."""
    headline = _headline(estate)
    owners = _by_owner(estate.owners)
    days = _days(estate.growth)
    clusters = ", ".join(estate.limits.clusters)
    return page.filled(
        "estate.html",
        headline,
        page.entry_of(headline, began=estate.made_at, about="estate", by="", clusters=clusters),
        e=estate,
        owners=[_shown(each) for each in owners],
        total=_shown(_added(owners)) if len(owners) > 1 else None,
        unknown=sum(each.topics_of_unknown_size for each in estate.owners),
        priced=any(each.cost is not None for each in estate.owners),
        days=days,
        growth=list(_grouped(estate.growth, days, owners)),
        late=_audited_later(estate.growth, days),
        listings=[_unused(estate), _over_partitioned(estate), _risks(estate)],
    )


def size(count: float | None) -> str:
    """1234567 -> 1.23 MB; unknown for None."""
    if count is None:
        return "unknown"
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= least:
            return f"{count / least:.3g} {unit}" if abs(count) < 999.5 * least else f"{count / least:,.0f} {unit}"
    return f"{count:.0f} B"


def _headline(estate: Estate) -> words.Headline:
    topics = sum(each.topics for each in estate.owners)
    if not topics:
        return words.Headline(text="No topic was observed", tone="open")
    found = [(estate.unused.total, "unused"), (estate.over_partitioned.total, "over-partitioned")]
    found.append((estate.risky, "at risk"))
    rest = ", ".join(f"{words.number(count)} {what}" for count, what in found)
    unknown = {"use": estate.unknown_use, "configs": estate.unknown_configs}
    rest += "".join(f"; {what} of {counted(count, 'topic')} unknown" for what, count in unknown.items() if count)
    return words.Headline(text=f"{counted(topics, 'topic')}: {rest}", tone="open")


def _by_owner(rows: Sequence[OwnerSize]) -> Sequence[OwnerSize]:
    """Add up the clusters of each owner: the largest first, and those of unknown size before those without bytes."""
    found: dict[str | None, list[OwnerSize]] = defaultdict(list)
    for each in rows:
        found[each.owner].append(each)
    added = [_added(group) for group in found.values()]
    return sorted(added, key=lambda each: (-(each.bytes or 0), -each.topics, each.owner or ""))


def _added(rows: Sequence[OwnerSize]) -> OwnerSize:
    sizes = [each.bytes for each in rows if each.bytes is not None]
    costs = [each.cost for each in rows if each.cost is not None]
    return OwnerSize(
        owner=rows[0].owner,
        clusters=tuple(sorted({cluster for each in rows for cluster in each.clusters})),
        topics=sum(each.topics for each in rows),
        topics_of_unknown_size=sum(each.topics_of_unknown_size for each in rows),
        partitions=sum(each.partitions for each in rows),
        bytes=sum(sizes) if sizes else None,
        cost=sum(costs) if len(costs) == len(rows) else None,
        currency=rows[0].currency,
    )


def _shown(row: OwnerSize) -> Mapping[str, object]:
    """A row of the table of owners. The size of an owner with topics of unknown size is a lower limit."""
    least = "at least " if row.topics_of_unknown_size and row.bytes is not None else ""
    return {
        "owner": words.name(row.owner) or NO_OWNER,
        "clusters": ", ".join(row.clusters),
        "topics": words.number(row.topics),
        "partitions": words.number(row.partitions),
        "size": f"{least}{size(row.bytes)}",
        "bytes": row.bytes or 0,
        "cost": "unknown" if row.cost is None else f"{row.cost:,.2f} {words.name(row.currency)}".rstrip(),
    }


def _grouped(growth: Sequence[Growth], days: Sequence[date], owners: Sequence[OwnerSize]) -> Iterator[Grouped]:
    """Draw the growth by owner and, if there are several clusters, by cluster; nothing for fewer than two days."""
    if len(days) < 2:
        return
    # The first lines are the largest ones; owners that have no topics now come last.
    of_owners = [*(each.owner for each in owners), *(each.owner for each in growth)]
    names = {"owner": [words.name(each) or NO_OWNER for each in of_owners], "cluster": _clusters(growth)}
    for by, found in names.items():
        series = list(dict.fromkeys(found))
        if by == "owner" or len(series) > 1:
            series = series if len(series) <= SERIES + 1 else [*series[:SERIES], f"other {by}s"]
            yield Grouped(by=by, series=series, charts=list(_charts(growth, days, series, by)))


def _clusters(growth: Sequence[Growth]) -> Sequence[str]:
    """Return the clusters' names, the largest on its last day first."""
    last: dict[str, tuple[date, int]] = {}
    for each in growth:
        day, size_before = last.get(each.cluster, (each.day, 0))
        last[each.cluster] = (each.day, (each.bytes or 0) + (size_before if day == each.day else 0))
    return [words.name(cluster) for cluster in sorted(last, key=lambda name: (-last[name][1], name))]


def _days(growth: Sequence[Growth]) -> Sequence[date]:
    return sorted({each.day for each in growth})


def _audited_later(growth: Sequence[Growth], days: Sequence[date]) -> Sequence[tuple[str, date]]:
    """Return the clusters that aren't in the first day of the charts, with their own first day."""
    first: dict[str, date] = {}
    for each in growth:
        first[each.cluster] = min(each.day, first.get(each.cluster, each.day))
    return sorted((cluster, day) for cluster, day in first.items() if day != days[0])


def _charts(growth: Sequence[Growth], days: Sequence[date], series: Sequence[str], by: str) -> Iterator[GrowthChart]:
    """Draw bytes, partitions and topics over time."""
    places = [(day - days[0]).days for day in days]
    for name, title in (("bytes", "Size"), ("partitions", "Partitions"), ("topics", "Topics")):
        sums = _over_days(growth, days, series, name, by)
        highest = max((value for values in sums.values() for value in values if value is not None), default=0.0)
        yield GrowthChart(name=name, title=title, highest=highest, lines=charts.lines(sums, places, highest))


def _over_days(
    growth: Sequence[Growth], days: Sequence[date], series: Sequence[str], quantity: str, by: str
) -> Mapping[str, Sequence[float | None]]:
    """Add up a quantity of each series on each day; a cluster without an audit on a day has that of its last one.

    Values of a cluster are None before its first audit. Sums of owners are of the clusters that were audited by then.
    Bytes are None if the size of one of the topics is unknown.
    """
    last: dict[str, dict[str, float]] = {}
    of_days: dict[date, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for each in growth:
        name = words.name(getattr(each, by)) or NO_OWNER
        unknown = quantity == "bytes" and each.topics_of_unknown_size
        value = math.nan if unknown else getattr(each, quantity) or 0
        of_days[each.day][each.cluster][name if name in series else series[-1]] += value
    sums: dict[str, list[float | None]] = {each: [] for each in series}
    for day in days:
        last.update(of_days[day])
        for name, values in sums.items():
            of_clusters = [counts.get(name) for counts in last.values()]
            known = [each for each in of_clusters if each is not None]
            total = sum(known)
            values.append(None if math.isnan(total) or (by == "cluster" and not known) else total)
    return sums


def _unused(estate: Estate) -> ReportList:
    lines = [
        ReportLine(
            cells=[
                *_named(row),
                Cell(text=_time(row["unused_since"]), under=f"to {_time(row['unused_until'])}"),
                Cell(text=_time(row["last_record_at"]) or "none retained, or unknown"),
                _number(row["num_partitions"]),
                Cell(text=size(_count(row["bytes"]))),
            ],
            filters=_filters(row),
        )
        for row in estate.unused.rows
    ]
    title = f"Topics that no audit of {counted(estate.unused_days, 'day')} or longer showed in use"
    columns = ["Owner", "Topic", "Unused", "Last record", "Partitions", "Size"]
    return _listing("unused", title, columns, lines, estate.unused, "the largest")


def _over_partitioned(estate: Estate) -> ReportList:
    lines = [
        ReportLine(
            cells=[
                *_named(row),
                _number(row["num_partitions"]),
                _number(row["partitions_needed"]),
                Cell(text=size(_count(row["most_bytes"]))),
                _number(row["most_members"]),
            ],
            filters=_filters(row),
        )
        for row in estate.over_partitioned.rows
    ]
    columns = ["Owner", "Topic", "Partitions", "Needed", "Largest size of one copy", "Most members of a group"]
    title = "Topics with more partitions than they need"
    return _listing("over-partitioned", title, columns, lines, estate.over_partitioned, "most partitions")


def _risks(estate: Estate) -> ReportList:
    lines = [
        ReportLine(
            cells=[
                *_named(row),
                Cell(text=_RISKS.get(str(row["risk"]), words.name(row["risk"])), wide=True),
                _number(row["replication_factor"]),
                _number(row["min_insync_replicas"]),
            ],
            filters=[*_filters(row), words.name(row["risk"])],
        )
        for row in estate.risks.rows
    ]
    columns = ["Owner", "Topic", "Risk", "Replication factor", "min.insync.replicas"]
    return _listing(
        "risks", "Topics at risk when a broker fails", columns, lines, estate.risks, "fewest replicas", "risk"
    )


def _listing(
    name: str, title: str, columns: Sequence[str], lines: Sequence[ReportLine], found: ViewRows, order: str, *more: str
) -> ReportList:
    labels = ["cluster", "owner", *more]
    made = listings.listing(name, title, columns, labels, lines, found.total, found.query, order)
    return replace(made, labelled=True)


def _named(row: Mapping[str, object]) -> Sequence[Cell]:
    return [
        Cell(text=words.name(row["owner"]) or NO_OWNER),
        Cell(text=words.name(row["topic"]), under=words.name(row["cluster"]), wide=True),
    ]


def _filters(row: Mapping[str, object]) -> list[str]:
    return [words.name(row["cluster"]), words.name(row["owner"]) or NO_OWNER]


def _number(value: object) -> Cell:
    return Cell(text="unknown" if not isinstance(value, int) else words.number(value))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _time(value: object) -> str:
    return words.time(value) if isinstance(value, datetime) else ""
