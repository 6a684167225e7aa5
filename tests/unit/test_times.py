"""Times in outputs and messages: ISO 8601 in UTC, such as 2026-11-24T02:00:07Z, wherever they are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import topicledger
from tests import reports
from tests.unit.frames import frame
from topicledger.ledger.sql import iso_times
from topicledger.plan.intent import expired
from topicledger.report import Report, render
from topicledger.schemas import PLANS
from topicledger.text import iso_time, json_value

MOMENT = datetime(2026, 7, 24, 2, 0, 7, 120_000, tzinfo=UTC)
ZONE = "spark.sql.session.timeZone"
OWN_FORMATS = {
    "text.py": "the helpers",
    "ledger/sql.py": "the helper for columns, and literals of SQL",
    "ledger/runs.py": "run ids",
    "report/scope.py": "literals of SQL",
    "report/charts.py": "days and hours, without minutes",
}
"""Modules that format times themselves."""


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session in its user's own time zone."""
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    yield spark
    spark.conf.set(ZONE, str(before))


def test_times_in_messages_are_utc_in_any_session(session: SparkSession) -> None:
    row = {"run_id": "R", "cluster": "main", "resource": "t", "planned_at": MOMENT}
    plans = frame(session, PLANS.schema, [row])
    (found,) = plans.select(iso_times(F.col("planned_at")).alias("text")).collect()
    assert found["text"] == iso_time(MOMENT) == "2026-07-24T02:00:07Z"
    stopped = plans.withColumn("maybe_sent", F.lit(False)).transform(expired(60.0, MOMENT + timedelta(days=1)))
    (refused,) = stopped.collect()
    assert refused["error_message"].startswith("planned at 2026-07-24T02:00:07Z, and guards.max_plan_age is 60 s: ")


def test_times_in_json_have_all_their_digits() -> None:
    assert json_value(MOMENT) == "2026-07-24T02:00:07.120000Z"
    assert json_value(MOMENT.astimezone(None)) == "2026-07-24T02:00:07.120000Z"


@pytest.mark.parametrize("sample", [reports.run, reports.rights, reports.audit, reports.span])
def test_times_on_a_page_have_one_format(sample: Callable[[], Report]) -> None:
    page = render(sample()).partition("<body>")[2]
    shown = re.sub(r"<[^>]+>", " ", re.sub(r"<wbr>|</?span[^>]*>", "", page))
    found = re.findall(r"\d{4}-\d\d-\d\d(?:.\d\d:\S*|T\S*)", shown)
    assert len(found) > 20
    assert [each for each in found if not re.match(r"[\d-]{10}T\d\d:\d\d:\d\dZ(?![\w:])", each)] == []


def test_durations_are_formatted_by_the_shared_helper() -> None:
    root = Path(topicledger.__file__).parent
    assert [path.name for path in root.rglob("*.py") if "{timedelta(" in path.read_text(encoding="utf-8")] == []


def test_times_are_formatted_by_the_shared_helpers() -> None:
    root = Path(topicledger.__file__).parent
    formats = re.compile(r"%[FTYHM]\b|%[YmdHMS]-|\.isoformat\(|date_format\(|strftime|ctime\(")
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if formats.search(path.read_text(encoding="utf-8"))
    }
    assert found == OWN_FORMATS.keys()
