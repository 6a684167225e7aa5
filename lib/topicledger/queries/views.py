"""The views of views.sql: registered for one command, or created in a catalog."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from pyspark.sql import SparkSession

from topicledger.config.roots import is_in_catalog
from topicledger.config.settings import Settings
from topicledger.errors import TableError, UsageError
from topicledger.ledger.retries import SPARK_ERRORS, first_sentence
from topicledger.ledger.sql import sql_text, sql_value
from topicledger.ledger.tables import Ledger
from topicledger.schemas import TABLES, Table

FILE = "views.sql"
_SETTINGS = "view_settings"
"""The view with the values that the other views take from the settings."""
_VIEW = re.compile(r"((?:^--[^\n]*\n)+)CREATE OR REPLACE VIEW (\w+) AS\n(.*?);$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")
_FROM = re.compile(r"\b((?:FROM|JOIN)\s+)(\w+)\b")
"""Matches the names of tables and views in the queries."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One view of views.sql."""

    name: str
    """Its name, which no table has."""
    comment: str
    """One or two sentences: the rows of the view."""
    query: str
    """The query after AS."""


@cache
def all_views() -> Sequence[View]:
    """Return the views in the order of the file; each uses tables and views before it."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return [
        View(name=name, comment=" ".join(line.lstrip("- ") for line in comment.splitlines()), query=query)
        for comment, name, query in _VIEW.findall(text)
    ]


def known() -> Sequence[str]:
    """Return the names of all tables and views."""
    return [*TABLES, *(view.name for view in all_views())]


def used_by(query: str) -> Collection[str]:
    """Return the tables and views whose names are in a query, and those that these views use."""
    words = {word.lower() for word in _WORD.findall(query)}
    for view in reversed(all_views()):
        if view.name in words:
            words.update(_WORD.findall(view.query))
    return words & set(known())


def views_of(settings: Settings) -> Sequence[View]:
    """Return the views with the values of the settings."""
    guards, views = settings.guards, settings.views
    values = {
        "unused_days": sql_value(views.unused_days),
        "partition_bytes": f"CAST({views.partition_bytes} AS BIGINT)",
        "gigabyte_price": f"CAST({sql_value(_text(views.gigabyte_price))} AS DOUBLE)",
        "partition_price": f"CAST({sql_value(_text(views.partition_price))} AS DOUBLE)",
        "currency": f"CAST({sql_value(views.currency)} AS STRING)",
        "most_approvals": sql_value(max([guards.approvals, *guards.approvals_for.values()])),
    }
    query = f"SELECT {', '.join(f'{value} AS {name}' for name, value in values.items())}"
    return [replace(view, query=query) if view.name == _SETTINGS else view for view in all_views()]


def _text(number: float | None) -> str | None:
    return None if number is None else repr(number)


@contextmanager
def registered(ledger: Ledger, settings: Settings, names: Collection[str]) -> Iterator[None]:
    """Context in which the session has these tables and views by name. A table that doesn't exist yet is empty."""
    spark, made = ledger.spark, []
    try:
        for table in (TABLES[name] for name in TABLES if name in names):
            ledger.read_if_exists(table).createOrReplaceTempView(table.name)
            made.append(table.name)
        for view in (each for each in views_of(settings) if each.name in names):
            # CREATE VIEW would keep the text, which Spark analyses again for each use of the view.
            spark.sql(view.query).createOrReplaceTempView(view.name)
            made.append(view.name)
        yield
    finally:
        for name in made:
            spark.catalog.dropTempView(name)


def create(ledger: Ledger, settings: Settings) -> Sequence[str]:
    """Create the views beside the tables in a catalog, and return their names. Missing tables are created first.

    Raises UsageError if the tables are in folders, and TableError if the catalog refuses a view.
    """
    if not is_in_catalog(settings.tables.root):
        raise UsageError(
            f"views are created in a catalog, but the tables are in folders of {ledger.root}: `topicledger sql` has "
            "all views for them, too"
        )
    ledger.ensure(*TABLES.values())
    names = []
    with _in_schema(ledger.spark, ledger.root):
        completed = {table.name: _completed(ledger, table) for table in TABLES.values() if table.shared}
        for each in views_of(settings):
            view = replace(
                each, query=_FROM.sub(lambda found: found[1] + completed.get(found[2], found[2]), each.query)
            )
            text = f"CREATE OR REPLACE VIEW {ledger.root}.{view.name} COMMENT {sql_text(view.comment)} AS {view.query}"
            try:
                ledger.spark.sql(text)
            except SPARK_ERRORS as error:
                raise TableError(
                    f"view {ledger.root}.{view.name} can't be created: {first_sentence(error)}; `topicledger sql` has "
                    "all views without creating them"
                ) from error
            names.append(view.name)
    return names


def _completed(ledger: Ledger, table: Table) -> str:
    """Return a table for the FROM of a view, with nulls for the columns that it lacks: other tools may own it."""
    there = ledger.spark.table(ledger.location(table)).columns
    missing = [each for each in table.schema if each.name not in there]
    if not missing:
        return table.name
    # All columns by name: a column that is added later is not there twice.
    nulls = (f"CAST(NULL AS {each.dataType.simpleString()}) AS `{each.name}`" for each in missing)
    named = ", ".join([*(f"`{name}`" for name in there if name in table.schema.names), *nulls])
    return f"(SELECT {named} FROM {table.name}) AS {table.name}"


@contextmanager
def _in_schema(spark: SparkSession, root: str) -> Iterator[None]:
    """Context in which names without a schema mean those of `root`; a view keeps this for its own query."""
    before = (spark.catalog.currentCatalog(), spark.catalog.currentDatabase())
    spark.sql(f"USE {root}")
    try:
        yield
    finally:
        spark.sql(f"USE {'.'.join('`' + name.replace('`', '``') + '`' for name in before)}")
