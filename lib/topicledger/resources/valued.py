"""Kinds whose resources are names with values, such as entity -> limits or group -> configs.

A row declares all values of a name.

The rows of their table and the observed values are joined to decisions, to drift, and to rows that undo actions.
Resources that no row names are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from topicledger.actions.kind import ActionKind
from topicledger.config.settings import Settings
from topicledger.ledger.rows import touched
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.manifests.rows import Transform
from topicledger.model import Decision
from topicledger.naming import DriftName
from topicledger.observe.listed import Listed
from topicledger.observe.topics import ClusterStatus
from topicledger.phases import DECIDED_RESOURCE, VALUES
from topicledger.resources.deciding import at_most, beside_live, decided, of_described, warned, without_undescribed
from topicledger.resources.kind import DIFFERENCE, AsRows, Deciding, Drift, OwnerLists
from topicledger.resources.scoped import ON_NO_TOPIC
from topicledger.schemas import Table


@dataclass(frozen=True, kw_only=True)
class Valued:
    """How rows of such a kind have their names and values."""

    resource_type: str
    table: Table
    action: str
    """The action that alters values."""
    name: str
    """The column of the declared values for policies, such as `limits`; they see the live ones as `live_limits`."""
    key: tuple[str, ...]
    """The columns that name a resource on its cluster."""
    text_of: Callable[[], Column]
    """Return the text of a row's key (string), its name in `plans` and `audit`."""
    key_of: Callable[[str], Mapping[str, Column]]
    """Return the columns of `key` from the name of a column with such texts."""
    values_of: Callable[[], Column]
    """Return the values of a row of the table or of what was observed (map<string,string>)."""
    columns_of: Callable[[Column], Mapping[str, Column]]
    """Return the table's columns for values; the inverse of `values_of`."""
    same: Callable[[Column, Column, Column], Column]
    """Whether two values of a name, each perhaps null, are the same (boolean, never null)."""
    unusual: Callable[[], Column]
    """Return why a row's resource, which brokers accept, almost never exists, else null: plans warn of it."""

    @property
    def live(self) -> str:
        return f"live_{self.name}"

    def content(self) -> Column:
        """Return the state and values of a row: copies of the row must have the same."""
        return F.struct("state", F.array_sort(F.map_entries(F.coalesce(self.values_of(), _none()))))

    def declared(self) -> Column:
        """Return the values that a declared resource must have, like `values_of`; none if it is absent."""
        return F.when(F.col("state") == ABSENT, _none()).otherwise(F.coalesce(self.values_of(), _none()))


def _none() -> Column:
    return F.create_map().cast(VALUES)


def deciding(of: Valued, action: ActionKind) -> Deciding:
    """Return the kind's decisions. Rows of the table decide about all values of a resource, and about no other."""
    return Deciding(
        compare=lambda listed, statuses, _: _compared(of, listed, statuses),
        scoped=ON_NO_TOPIC,
        decide=partial(_decide, of, action),
        manages=lambda _: False,
        now={of.name: of.declared},
        undeclared=lambda: F.lit("don't declare it"),
        protected=None,
    )


def _decide(
    of: Valued,
    action: ActionKind,
    seen: Listed,
    clusters: Mapping[str, ClusterStatus],
    settings: Settings,
    evaluate: Transform,
    scoped: Transform = lambda rows: rows,
) -> Transform:
    """See `Deciding.decide`. Actions that a policy refuses don't count for the guard."""
    guard = action.safeguards.guard

    def transform(validated: DataFrame) -> DataFrame:
        rows = validated.transform(_compared(of, seen, clusters)).transform(scoped).transform(evaluate)
        if guard is not None:
            rows = rows.transform(at_most(of.action, guard, settings.guards))
        sets = decided(of.action) & F.col("state").eqNullSafe(F.lit(PRESENT))
        rows = rows.transform(warned(f"unusual_{of.resource_type}", F.when(sets, of.unusual())))
        return rows.select(*DECIDED_RESOURCE.names)

    return transform


def _compared(of: Valued, seen: Listed, clusters: Mapping[str, ClusterStatus]) -> Transform:
    """Phase decide: see `Deciding.compare`. The decision is the kind's action, unchanged or unmanaged."""
    live = seen.rows.select(
        "cluster", of.text_of().alias("resource"), of.values_of().alias(of.live),
        *(F.col(name).alias(f"_{name}") for name in of.key),
    )  # fmt: skip

    def transform(validated: DataFrame) -> DataFrame:
        key = {name: F.coalesce(name, f"_{name}") for name in of.key}
        return (
            validated.withColumn(of.name, of.declared())
            .transform(beside_live(of.resource_type, live, seen, clusters))
            .transform(without_undescribed(seen, of.text_of()))
            # A policy needs no answer of a broker's to evaluate values.
            .withColumns({**key, "validated": F.lit(True)})
            .transform(lambda rows: _decided(of, rows))
        )

    return transform


def differing(of: Valued) -> dict[str, Column]:
    """Return `before` and `after`: the live and the declared values that the other side lacks or has otherwise."""
    declared, live = (F.coalesce(name, _none()) for name in (of.name, of.live))

    def differs(name: Column, _: Column) -> Column:
        return ~of.same(name, declared[name], live[name])

    return {"before": F.map_filter(live, differs), "after": F.map_filter(declared, differs)}


def _decided(of: Valued, rows: DataFrame) -> DataFrame:
    declared = F.col("state").isNotNull()
    decision = (
        F.when(~declared, F.lit(Decision.UNMANAGED.value))
        .when(F.size(touched()) > 0, F.lit(of.action))
        .otherwise(F.lit(Decision.UNCHANGED.value))
    )
    return (
        rows.withColumn(of.live, F.coalesce(of.live, _none()))
        .withColumn(of.name, F.coalesce(of.name, of.live))
        .withColumns(differing(of))
        .withColumn("decision", F.when(F.col("phase").isNull(), decision))
        .withColumns({name: F.when(decided(of.action), F.col(name)) for name in ("before", "after")})
    )


def as_rows(of: Valued) -> AsRows:
    """Return the transforms from actions back to rows of the table."""
    return AsRows(
        live=lambda seen: seen.select("cluster", of.text_of().alias("resource"), of.values_of().alias("now")),
        undo=_undo(of),
        asked_by=lambda planned: _as_rows(of, planned, "before", "after"),
    )


def _as_rows(of: Valued, changed: DataFrame, old: str, new: str) -> DataFrame:
    """Return changes of `now` as rows of the table, less owner and labels: values of `new` replace those of `old`."""
    now = F.coalesce("now", _none())
    kept = F.map_filter(now, lambda name, _: ~F.array_contains(F.map_keys(old), name))
    kept = F.map_filter(kept, lambda name, _: ~F.array_contains(F.map_keys(new), name))
    values = F.map_concat(kept, F.col(new))
    state = F.when(F.size(values) > 0, F.lit(PRESENT)).otherwise(F.lit(ABSENT))
    return changed.withColumns({**of.key_of("resource"), **of.columns_of(values), "state": state})


def _undo(of: Valued) -> Transform:
    """See `AsRows.undo`: changed values become what they were; others stay as they are."""

    def transform(done: DataFrame) -> DataFrame:
        now = F.coalesce("now", _none())

        def as_in(values: str) -> Callable[[Column], Column]:
            return lambda name: of.same(name, now[name], F.col(values)[name])

        as_set, as_before = as_in("after"), as_in("before")
        others = F.array_sort(F.filter(touched(), lambda name: ~as_set(name)))
        stale = F.concat(F.lit(f"its {of.name} were changed since: "), F.array_join(others, ", "))
        return _as_rows(of, done, "after", "before").withColumns(
            {"stale": F.when(F.size(others) > 0, stale), "as_before": F.forall(touched(), as_before)}
        )

    return transform


def not_declared(of: Valued) -> Column:
    """See `ActionKind.not_declared`: the action is asked for if the resource is declared with what it sets, and without
    what it removes. In: `now_NAME`, the declared values as text by name."""
    now = F.col(f"now_{of.name}")
    others = F.filter(touched(), lambda name: ~of.same(name, now[name], F.col("after")[name]))
    return F.when(
        F.size(others) > 0,
        F.concat(F.lit(f"declare other {of.name} of it: "), F.array_join(F.array_sort(others), ", ")),
    )


@dataclass(frozen=True, kw_only=True)
class DriftWords:
    """Kinds of drift of a valued kind, and their messages."""

    missing: DriftName
    differs: DriftName
    unmanaged: DriftName
    message_missing: str


def drift(of: Valued, words: DriftWords, advice: Mapping[DriftName, str]) -> Drift:
    """Return the kind's drift: it compares all resources of the clusters that rows of the table name."""

    def find(listed: Listed, _: DataFrame, __: Settings) -> Transform:
        return lambda validated: _differences(of, words, listed, validated)

    return Drift(find=find, advice=advice)


def _differences(of: Valued, words: DriftWords, listed: Listed, validated: DataFrame) -> DataFrame:
    known = F.col("cluster").isin(*listed.known)
    declared = validated.where(known).select(
        "cluster", "resource", "state", F.col("phase").isNotNull().alias("refused"), of.declared().alias(of.name)
    )
    live = listed.rows.where(known).select("cluster", of.text_of().alias("resource"), of.values_of().alias(of.live))
    unmanaged, absent, missing = F.col(of.name).isNull(), F.col("state") == ABSENT, F.col(of.live).isNull()
    kind = (
        F.when(unmanaged, F.lit(words.unmanaged.value))
        .when(missing, F.lit(words.missing.value))
        .otherwise(F.lit(words.differs.value))
    )
    message = (
        F.when(unmanaged, F.lit(f"no row of {of.table.name} names it"))
        .when(absent, F.lit(f"declared absent, but it has {of.name}"))
        .when(missing, F.lit(words.message_missing))
        .otherwise(F.lit(f"its {of.name} differ from the declared ones"))
    )
    values = {"topic": F.lit(None), "kind": kind, "what": F.col("resource"), "message": message}
    values |= {"declared": _text("after"), "live": _text("before")}
    return (
        declared.transform(of_described(listed, of.text_of()))
        .join(live, on=["cluster", "resource"], how="full_outer")
        .where(~F.coalesce("refused", F.lit(False)))
        .withColumns(differing(of))
        .where((F.size("before") > 0) | (F.size("after") > 0))
        .select("cluster", *(column.cast("string").alias(name) for name, column in values.items()))
        .select(*DIFFERENCE)
    )


def _text(values: str) -> Column:
    """Return values as text, `consumer_byte_rate=1000, request_percentage=50`; null if there are none."""
    entries = F.transform(
        F.array_sort(F.map_entries(values)), lambda each: F.concat(each["key"], F.lit("="), each["value"])
    )
    return F.when(F.size(values) > 0, F.array_join(entries, ", "))


def owners(action: ActionKind, *, name: str, title: str, title_of_changes: str, counted: str, one: str) -> OwnerLists:
    """Return the lists of a report. `counted`, `one`: several and one of what a row declares, such as an entity."""
    return OwnerLists(
        name=name,
        title=title,
        title_of_changes=title_of_changes,
        have={counted: "count(*)"},
        moved={"changed": "count(*)"},
        headings=(counted.capitalize(), "Changed"),
        also=(),
        what=lambda target: action.shown.words(target) or "",
        columns={"Owner": "owner", one.capitalize(): "resource", "Change": "what", "When": "when"},
        filters=("cluster", "owner"),
        audited="run_id, cluster, resource, before, after, completed_at",
    )
