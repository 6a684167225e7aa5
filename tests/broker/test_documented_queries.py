"""The queries of docs/, each run as it is written on a ledger with real rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from pyspark.sql import Row, SparkSession

from tests.commands import REPOSITORY
from tests.harness import Estate
from topicledger.config.settings import ChangeSettings
from topicledger.queries.asking import answered
from topicledger_testing.embedded_kafka import EmbeddedKafka

PAGES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "docs").glob("*.md")))
QUERIES = {
    question.strip().splitlines()[-1]: query
    for question, query in re.findall(r"([^\n]+\?)\n\n```sql\n(.*?)```", PAGES, flags=re.DOTALL)
}

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def ledger(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Estate:
    """A ledger in which something was created, changed, deleted, refused by us and by the broker, and left open."""
    root = tmp_path_factory.mktemp("queries") / "ledger"
    estate = Estate(spark, root, {"orders": kafka}, max_deletes=1)
    first = [{"topic": "payments.authorised", "num_partitions": 3, "owner": "payments"}, {"topic": "payments.legacy"}]
    estate.declare(*first, cluster="orders")
    assert estate.run(requested_by="alice", wait_visible=30.0).exit_code == 0
    second = [
        {**first[0], "num_partitions": 4},
        {"topic": "payments.by-default", "configs": {"retention.ms": "1000"}, "owner": "payments"},
        {"topic": "payments.too-many-copies", "replication_factor": 3, "owner": "payments"},
        {"topic": "payments none", "owner": "payments"},
    ]
    estate.declare_anew(*second, {"topic": "payments.legacy", "state": "absent"}, cluster="orders")
    unchanging = estate.settings
    estate.settings = replace(unchanging, changes={"orders": ChangeSettings(partitions="grow")})
    assert estate.run(requested_by="bob").exit_code == 4
    estate.settings = unchanging
    estate.declare_anew(*second, {"topic": "payments.planned"}, cluster="orders")
    estate.run_audit("usage", usage=True)
    estate.run("plan", run_id="open")
    estate.run_audit("later")
    return estate


def ask(estate: Estate, question: str) -> list[Row]:
    return _rows(estate, QUERIES[question])


def _rows(estate: Estate, query: str) -> list[Row]:
    with answered(estate.ledger, estate.settings, query) as rows:
        return rows.collect()


def test_there_are_several() -> None:
    assert len(QUERIES) >= 4


def test_which_configs_nobody_asked_for(ledger: Estate) -> None:
    rows = ask(ledger, "Which configs did the broker apply that the manifest did not ask for?")
    by_default = {row.name for row in rows if row.topic == "payments.by-default"}
    assert "cleanup.policy" in by_default
    assert "retention.ms" not in by_default


def test_the_query_for_default_configs_answers(ledger: Estate) -> None:
    values = {row.name: row.value for row in ask(ledger, "What would a new topic get by default on each cluster?")}
    assert values["cleanup.policy"] == "delete"
    assert values["retention.ms"] == "604800000"


def test_the_query_for_old_drift_answers(ledger: Estate) -> None:
    """The ledger is younger than a day."""
    question = "Which drift has lasted for longer than a day?"
    assert ask(ledger, question) == []
    rows = _rows(ledger, QUERIES[question].replace("INTERVAL 1 DAY", "INTERVAL 0 DAY"))
    found = {(row.topic, row.kind, row.severity) for row in rows if row.topic.startswith("payments.")}
    assert found >= {("payments.planned", "missing", "error"), ("payments.too-many-copies", "missing", "error")}
    assert "payments.authorised" not in {row.topic for row in rows}
