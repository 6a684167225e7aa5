"""Queries of users: only those that read are run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from topicledger.config.settings import Settings
from topicledger.errors import UsageError
from topicledger.ledger.retries import condition, first_sentence
from topicledger.ledger.tables import Ledger
from topicledger.queries.views import known, registered, used_by
from topicledger.schemas import TABLES
from topicledger.text import nearest, show

_CHECKED = "topicledger_query"
"""Name of the temporary view whose definition is the query: Spark's grammar has only a query there."""
_CODE = re.compile(
    r"(?<!\w)(reflect|try_reflect|java_method|identifier|secret|try_secret|http_request|ai_\w+|remote_query)(?!\w)",
    re.IGNORECASE,
)
"""Functions that call Java, the clause with which a text can name a function, and functions of Databricks that read
secrets or send requests.
"""
_SCRIPT = re.compile(r"(?<!\w)(transform|map|reduce)(?!\w)", re.IGNORECASE)
_USING = re.compile(r"(?<!\w)using(?!\w)(?!\s*\()", re.IGNORECASE)
"""USING that isn't followed by columns: TRANSFORM ... USING 'command' runs a command."""


@contextmanager
def answered(ledger: Ledger, settings: Settings, text: str) -> Iterator[DataFrame]:
    """Context with the rows of a query. Tables and views are known by their names.

    Raises UsageError if the text isn't exactly one query, if it can do more than read, or if Spark refuses it.
    """
    query = text.strip().rstrip(";").rstrip()
    _require_harmless(query)
    with registered(ledger, settings, used_by(query)):
        _require_query(ledger, query)
        try:
            yield ledger.spark.sql(query)
        except AnalysisException as error:
            raise UsageError(f"the query can't be run: {_reason(error)}") from error


def bytes_of(ledger: Ledger, text: str) -> int:
    """Return the size of the tables that a query may read, itself or through views."""
    used = used_by(text)
    tables = [table for name, table in TABLES.items() if name in used]
    with ThreadPoolExecutor() as beside:
        return sum(beside.map(lambda table: ledger.size(table).bytes if ledger.exists(table) else 0, tables))


def _require_harmless(query: str) -> None:
    """Refuse what Spark counts as a query although it runs code or shows secrets of the process.

    The words are looked for in the whole text, comments and literals included, since no name can be written without
    them.
    """
    if not query:
        raise UsageError("there is no query: write one SELECT")
    if "${" in query:
        raise UsageError("the query has ${, which Spark would replace by a setting or a variable: write '$' || '{'")
    if (found := _CODE.search(query)) is not None:
        raise UsageError(
            f"the query has the word {found[1]}, which can run code, read secrets or send requests: only queries that "
            f"read are run. In a literal, write '{found[1][:2]}' || '{found[1][2:]}'"
        )
    if _SCRIPT.search(query) and _USING.search(query):
        raise UsageError("the query has TRANSFORM with USING, which can run a command: only queries that read are run")


def _require_query(ledger: Ledger, query: str) -> None:
    """Have Spark's parser refuse everything but one query, by defining a temporary view that is never read."""
    try:
        ledger.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {_CHECKED} AS\n{query}")
    except ParseException as error:
        raise UsageError(f"only one query that reads is run, such as a SELECT: {first_sentence(error)}") from error
    except AnalysisException as error:
        if condition(error) != "COLUMN_ALREADY_EXISTS":
            raise UsageError(f"the query can't be run: {_reason(error)}") from error
    finally:
        ledger.spark.catalog.dropTempView(_CHECKED)


def _reason(error: AnalysisException) -> str:
    reason = first_sentence(error)
    missing = re.search(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view `([^`]*)`", reason)
    return f"there is no table or view {show(missing[1])}; {nearest(missing[1], known())}" if missing else reason
