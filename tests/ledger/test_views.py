"""The views of views.sql, on Spark and on DuckDB over delta-rs: the same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import topicledger.queries
from scripts import generate_duckdb
from tests.broker.invoking import invoke
from tests.commands import REPOSITORY, settings_file
from tests.ledger.asked import LABELS, ask, elsewhere, settings_of, write, write_ledger
from topicledger.cli import queries
from topicledger.config.guards import GuardSettings
from topicledger.config.views import ViewSettings
from topicledger.errors import UsageError
from topicledger.ledger.tables import Ledger
from topicledger.queries import catalogue
from topicledger.queries.asking import answered
from topicledger.queries.views import all_views, used_by
from topicledger.schemas import AUDIT, MANIFESTS, TABLES

QUERIES = Path(topicledger.queries.__file__).parent


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ledger(tmp_path_factory.mktemp("views") / "ledger")


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession, root: Path) -> Mapping[str, list[dict[str, Any]]]:
    """The rows of every view on Spark."""
    settings = settings_of(root)
    return {view.name: ask(spark, settings, f"SELECT * FROM {view.name}") for view in all_views()}


def pairs(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


@pytest.mark.thorough
def test_current_topics_have_their_owner_configs_and_size(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    rows = {row["topic"]: row for row in on_spark["current_topics"]}
    assert set(rows) == {"idle", "busy", "wide", "gone", "unknown", "recreated", "patchy", "_schemas"}
    idle = rows["idle"]
    assert (idle["owner"], idle["labels"], idle["cleanup_policy"]) == ("Payments", LABELS, "compact")
    assert idle["description"] == "Money, (mostly)"
    assert (idle["bytes"], idle["usage_at"]) == (3_000, "2026-10-03T06:00:00Z")
    assert {name for name, row in rows.items() if row["declared"]} == {"idle", "busy", "wide", "patchy", "_schemas"}
    assert (rows["patchy"]["owner"], rows["_schemas"]["owner"]) == ("Payments", None)
    assert rows["recreated"]["unclean_leader_election"] is None, "the config of the former topic isn't this one's"


@pytest.mark.thorough
def test_queries_that_earlier_pages_had_still_have_answers(spark: SparkSession, root: Path) -> None:
    text = (REPOSITORY / "tests" / "data" / "earlier_queries.sql").read_text(encoding="utf-8")
    queries = [each.strip() for each in text.replace("/data/ledger", str(root)).split(";\n")]
    answers = [ask(spark, settings_of(root), each) for each in queries if each]
    assert (len(answers), sum(map(bool, answers))) == (15, 6)


@pytest.mark.thorough
def test_open_drift_is_that_of_the_last_whole_audit(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    """An audit that couldn't reach another cluster counts for those it compared; one of other settings doesn't."""
    found = pairs(on_spark["open_drift"], "cluster", "run_id")
    assert found == [("main", "audit-main"), ("other", "audit-2"), ("third", "audit-half")]


@pytest.mark.thorough
def test_changes_name_the_values_and_the_people(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    rows = on_spark["changes"]
    assert pairs(rows, "topic", "action", "what", "before", "after") == [
        ("busy", "alter_configs", "flush.ms", None, "7"),
        ("busy", "alter_configs", "retention.ms", "1000", "2000"),
        ("busy", "alter_configs", "segment.ms", "5", None),
        ("new", "create", None, None, "3 partitions"),
        ("old", "delete", None, "6 partitions", None),
        ("unseen", "create", None, None, None),
    ]
    assert {row["requested_by"] for row in rows} == {"alice"}
    assert [row["approved_by"] for row in rows] == [["bob", "zoe"]] * 6
    assert rows[0]["notes"] == ["CHG-7"]
    assert rows[0]["changed_at"] == "2026-09-04T06:00:00Z"


@pytest.mark.thorough
def test_changes_reads_each_table_once(spark: SparkSession, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven scans instead of three took `sql` through `serve` two to three times as long."""
    with answered(Ledger(spark, str(root)), settings_of(root), "SELECT * FROM changes") as rows:
        rows.explain()
    # They are those of `audit`, `runs` and `approvals`.
    assert capsys.readouterr().out.count("FileScan parquet") == 3


@pytest.mark.thorough
def test_ownership_counts_resources_and_what_nobody_owns(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    counts = ("owner", "cluster", "declared_topics", "live_topics", "partitions", "acls", "quotas", "group_configs")
    assert pairs(on_spark["ownership"], *counts) == [
        ("Payments", "main", 2, 2, 3, 1, 1, 0),
        ("Payments", "third", 1, 1, 3, 0, 0, 0),
        ("search", "main", 1, 2, 13, 0, 0, 0),
        ("search", "other", 0, 0, 0, 0, 0, 1),
        (None, "main", 0, 2, 2, 0, 0, 0),
        (None, "third", 1, 1, 1, 0, 0, 0),
    ]


@pytest.mark.thorough
def test_topics_that_audits_showed_unused_for_long_are_unused(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    """Unknown is neither use nor none, days have 24 hours, and tools read their topics without a group."""
    assert pairs(on_spark["topic_use"], "topic", "use") == [
        ("_schemas", "unused"),
        ("busy", "used"),
        ("gone", "used"),
        ("idle", "unused"),
        ("patchy", "unused"),
        ("recreated", "unknown"),
        ("unknown", "used"),
        ("wide", "used"),
    ]
    assert pairs(on_spark["unused_topics"], "topic", "owner", "unused_since", "unused_until") == [
        ("idle", "Payments", "2026-09-02T06:00:00Z", "2026-10-03T06:00:00Z"),
        ("patchy", "Payments", "2026-10-11T06:00:00Z", "2026-11-10T06:00:00Z"),
    ]
    unread = {row["topic"]: (row["unread_since"], row["unread_until"]) for row in on_spark["topic_use"]}
    assert unread["patchy"] == ("2026-09-25T22:30:00Z", "2026-11-10T06:00:00Z"), "it was written later, but not read"
    assert unread["busy"] == ("2026-10-03T06:00:00Z", None)


@pytest.mark.thorough
def test_the_number_of_unused_days_is_a_setting(spark: SparkSession, root: Path) -> None:
    settings = settings_of(root, ViewSettings(unused_days=12))
    rows = ask(spark, settings, "SELECT topic FROM unused_topics")
    assert pairs(rows, "topic") == [("gone",), ("idle",), ("patchy",), ("unknown",)]


@pytest.mark.thorough
def test_costs_are_unknown_without_prices_or_with_unknown_sizes(
    spark: SparkSession, root: Path, on_spark: Mapping[str, list[dict[str, Any]]]
) -> None:
    assert {row["cost"] for row in on_spark["cost_by_owner"]} == {None}
    views = ViewSettings(gigabyte_price=1_000_000.0, partition_price=0.5, currency="EUR")
    rows = ask(spark, settings_of(root, views), "SELECT * FROM cost_by_owner")
    assert pairs(rows, "owner", "topics", "topics_of_unknown_size", "partitions", "bytes", "cost") == [
        ("Payments", 1, 0, 3, 3_000, 3.0 + 1.5),
        ("Payments", 2, 0, 3, 6_000, 6.0 + 1.5),
        ("search", 2, 0, 13, 6_000, 6.0 + 6.5),
        (None, 1, 0, 1, 3_000, 3.0 + 0.5),
        (None, 2, 1, 2, 3_000, None),
    ]


@pytest.mark.thorough
def test_the_documented_query_has_the_cost_of_each_unused_topic(spark: SparkSession, root: Path) -> None:
    """A price that isn't set costs nothing."""
    page = (REPOSITORY / "docs" / "queries.md").read_text(encoding="utf-8")
    (query,) = re.findall(r"^What do unused topics cost\?\n\n```sql\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    found = {}
    for name, value in (("gigabyte_price", 1_000_000.0), ("partition_price", 0.5)):
        rows = ask(spark, settings_of(root, ViewSettings(currency="EUR", **{name: value})), query)
        assert {row["currency"] for row in rows} == {"EUR"}
        found[name] = {row["topic"]: row["cost"] for row in rows}
    assert found == {
        "gigabyte_price": {"idle": 3.0, "patchy": 3.0},
        "partition_price": {"idle": 0.5, "patchy": 1.5},
    }


@pytest.mark.thorough
def test_growth_is_that_of_whole_audits(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    """Only three audits that read usage compared a whole cluster. Days are those of UTC."""
    columns = ("day", "cluster", "owner", "topics", "topics_of_unknown_size", "partitions", "bytes")
    assert pairs(on_spark["growth_by_owner"], *columns) == [
        ("2026-09-02", "main", "Payments", 2, 0, 2, 6_000),
        ("2026-09-02", "main", "search", 2, 0, 2, 6_000),
        ("2026-09-03", "main", "Payments", 2, 0, 2, 6_000),
        ("2026-09-25", "third", "Payments", 1, 0, 1, 3_000),
    ]


@pytest.mark.thorough
def test_a_topic_that_is_declared_twice_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    root = write_ledger(tmp_path / "ledger")
    twice = {"cluster": "main", "topic": "idle", "state": "present", "owner": "payments", "labels": LABELS}
    write(root, MANIFESTS, [twice, twice, {**twice, "state": "absent"}])
    (row,) = ask(spark, settings_of(root), "SELECT * FROM current_topics WHERE topic = 'idle'")
    assert (row["owner"], row["declared"], row["labels"]) == ("payments", True, LABELS)


@pytest.mark.thorough
def test_over_partitioned_compares_with_bytes_and_members(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    columns = ("topic", "num_partitions", "partitions_needed", "most_members")
    assert pairs(on_spark["over_partitioned"], *columns) == [
        ("busy", 2, 1, 1),
        ("patchy", 3, 1, 0),
        ("wide", 12, 2, 2),
    ]


@pytest.mark.thorough
def test_risks_are_few_replicas_and_unclean_elections(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    assert pairs(on_spark["risky_topics"], "topic", "risk") == [
        ("busy", "no_spare_replica"),
        ("idle", "one_replica"),
        ("patchy", "one_replica"),
        ("patchy", "refuses_writes"),
        ("wide", "unclean_election"),
    ]


@pytest.mark.thorough
def test_plans_wait_for_approvals_that_guards_or_settings_want(
    spark: SparkSession, root: Path, on_spark: Mapping[str, list[dict[str, Any]]]
) -> None:
    """An approval counts for what it allows, and for the plan that it was given for.

    Also plans of which only the load is stopped, that lack a cluster, or that grew while they were applied.
    """
    assert pairs(on_spark["pending_approvals"], "run_id", "stopped", "approvals") == [
        ("grew", 2, 0),
        ("partial", 1, 0),
        ("plan-3", 1, 0),
        ("plan-4", 1, 1),
        ("plan-6", 1, 0),
        ("removes", 1, 0),
    ]
    settings = settings_of(root, guards=GuardSettings(approvals=1, approvals_for={"deletes": 2}))
    rows = ask(spark, settings, "SELECT * FROM pending_approvals")
    assert pairs(rows, "run_id", "deletes", "approvals", "approvals_needed") == [
        ("grew", 0, 0, 2),
        ("partial", 0, 0, 2),
        ("plan-1", 1, 1, 2),
        ("plan-2", 1, 0, 2),
        ("plan-3", 0, 0, 2),
        ("plan-4", 0, 1, 2),
        ("plan-5", 0, 1, 2),
        ("plan-6", 0, 0, 2),
        ("removes", 0, 0, 2),
    ]


@pytest.mark.thorough
def test_policy_violations_are_those_of_the_last_plan(on_spark: Mapping[str, list[dict[str, Any]]]) -> None:
    assert pairs(on_spark["policy_violations"], "topic", "owner", "policy", "warns") == [
        ("wide", "search", "broker", False),
        ("wide", "search", "config_range", True),
        ("wide", "search", "topic_name_pattern", False),
    ]


@pytest.fixture(scope="module")
def on_duckdb(root: Path) -> Mapping[str, list[dict[str, Any]]]:
    found: Mapping[str, list[dict[str, Any]]] = elsewhere("duckdb_views.py", root, QUERIES)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", [view.name for view in all_views()])
def test_duckdb_has_the_same_rows(
    on_spark: Mapping[str, list[dict[str, Any]]], on_duckdb: Mapping[str, list[dict[str, Any]]], name: str
) -> None:
    def comparable(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True).replace("+00:00", "Z") for row in rows)

    assert comparable(on_duckdb[name]) == comparable(on_spark[name])


@pytest.mark.thorough
def test_duckdb_has_empty_tables_for_those_that_are_missing_or_older(tmp_path: Path) -> None:
    rows = pa.table({"cluster": ["main"], "topic": ["a"], "permitted": [True], "internal": [False]})
    write_deltalake(tmp_path / "observed", rows)
    found = elsewhere("duckdb_views.py", tmp_path, QUERIES)
    names = {view.name for view in all_views()}
    assert {name: len(found[name]) for name in names} == {
        **dict.fromkeys(names, 0),
        **dict.fromkeys(("view_settings", "current_topics", "topic_use", "ownership", "cost_by_owner"), 1),
    }


def test_duckdb_gets_the_tables_of_this_version() -> None:
    written = (QUERIES / "duckdb.sql").read_text()
    assert written == generate_duckdb.text(), "write it with: .venv/bin/python -m scripts.generate_duckdb"


@pytest.mark.thorough
def test_views_over_missing_tables_are_empty(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    counts = ", ".join(f"(SELECT count(*) FROM {view.name}) AS {view.name}" for view in all_views())
    (found,) = ask(spark, settings, f"SELECT {counts}")
    assert found == {view.name: 0 for view in all_views()} | {"view_settings": 1}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_columns_that_an_older_table_lacks_are_null(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"run_id": ["1"], "cluster": ["main"], "topic": ["a"], "action": ["create"], "phase": ["apply"]})
    write_deltalake(tmp_path / AUDIT.name, rows.append_column("outcome", pa.array(["ok"])))
    (found,) = ask(spark, settings_of(tmp_path), "SELECT * FROM changes")
    assert (found["resource_type"], found["resource"], found["changed_at"]) == ("topic", "a", None)


@pytest.mark.thorough
def test_only_queries_of_small_tables_are_interpreted(
    spark: SparkSession, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[SparkSession] = []

    @contextmanager
    def tuned(session: SparkSession) -> Iterator[Callable[[], None]]:
        yield lambda: ended.append(session)

    monkeypatch.setattr(queries, "for_few_rows", tuned)
    ask = ("sql", "--config", settings_file(tmp_path, {"main": ["127.0.0.1:9"]}, root=root), "SELECT * FROM changes")
    assert invoke(*ask).exit_code == 0
    assert ended == []
    size = sum(Ledger(spark, str(root)).size(TABLES[name]).bytes for name in ("approvals", "audit", "runs"))
    for most, wanted in ((size, []), (size - 1, [spark])):
        monkeypatch.setattr(queries, "FEW_BYTES", most)
        assert invoke(*ask).exit_code == 0
        assert ended == wanted


def test_a_query_finds_the_tables_that_its_views_need() -> None:
    assert used_by("select * from Open_Drift") >= {"open_drift", "drift", "runs"}
    assert used_by("SELECT 1") == set()
    assert MANIFESTS.name in used_by("SELECT * FROM unused_topics")


@pytest.mark.thorough
def test_a_session_keeps_no_views(spark: SparkSession, root: Path) -> None:
    ask(spark, settings_of(root), "SELECT * FROM open_drift")
    with pytest.raises(UsageError):
        ask(spark, settings_of(root), "SELECT * FROM open_drifts")
    assert not {table.name for table in spark.catalog.listTables()} & {*TABLES, *(view.name for view in all_views())}


@pytest.mark.thorough
def test_datahub_reads_the_catalogue_of_topics(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    rows = catalogue.topics(Ledger(spark, str(root)), settings_of(root), ["main"])
    gone = catalogue.removed(Ledger(spark, str(root)), settings_of(root), ["main"])
    file.write_text("".join(catalogue.as_datahub(rows, "DEV", gone)))
    found = {(each["urn"], each["aspect"]): each["value"] for each in elsewhere("datahub_reader.py", file)}
    idle = "urn:li:dataset:(urn:li:dataPlatform:kafka,main.idle,DEV)"
    assert found[idle, "datasetProperties"]["description"] == "Money, (mostly)"
    properties = found[idle, "datasetProperties"]["customProperties"]
    assert (properties["Partitions"], properties["cleanup.policy"], properties["Declared"]) == ("1", "compact", "true")
    assert found[idle, "ownership"]["owners"] == [{"owner": "urn:li:corpGroup:Payments", "type": "TECHNICAL_OWNER"}]
    assert found[idle, "globalTags"]["tags"] == [{"tag": "urn:li:tag:pii"}, {"tag": "urn:li:tag:tier:gold"}]
    instance = "urn:li:dataPlatformInstance:(urn:li:dataPlatform:kafka,main)"
    assert found[idle, "dataPlatformInstance"]["instance"] == instance
    removed = {urn.split(".")[-1]: value["removed"] for (urn, aspect), value in found.items() if aspect == "status"}
    live = dict.fromkeys(("busy", "gone", "idle", "recreated", "unknown", "wide"), False)
    gone_by_now = {"old": True}
    assert removed == {f"{name},DEV)": value for name, value in {**live, **gone_by_now}.items()}
    assert (idle.replace("idle", "unknown"), "ownership") not in found


@pytest.mark.thorough
def test_a_plain_list_has_a_line_for_each_topic(spark: SparkSession, root: Path) -> None:
    rows = catalogue.topics(Ledger(spark, str(root)), settings_of(root), ["main", "other"])
    lines = "".join(catalogue.as_list(rows)).splitlines()
    assert lines == [f"main\t{name}" for name in ("busy", "gone", "idle", "recreated", "unknown", "wide")]
    assert "".join(catalogue.as_datahub([], "PROD")) == "[]\n"
