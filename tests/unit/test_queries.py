"""`topicledger sql`: only queries that read are run, and values can't act on a terminal."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from tests.commands import REPOSITORY
from tests.unit.frames import frame
from topicledger.config.settings import Settings, TablesSettings
from topicledger.errors import UsageError
from topicledger.ledger.session import print_sparks_errors
from topicledger.ledger.sql import as_command
from topicledger.ledger.tables import Ledger
from topicledger.queries import printing
from topicledger.queries.asking import answered
from topicledger.queries.views import all_views
from topicledger.resources.registry import KINDS
from topicledger.schemas import TABLES

Ask = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture
def ask(spark: SparkSession, tmp_path: Path) -> Iterator[Ask]:
    """Ask an empty ledger."""
    (root := tmp_path / "ledger").mkdir()
    settings = Settings(path=tmp_path / "settings.toml", tables=TablesSettings(root=str(root)), clusters={})

    def rows(text: str) -> list[tuple[object, ...]]:
        with answered(Ledger(spark, str(root)), settings, text) as found:
            return [tuple(row) for row in found.collect()]

    yield rows
    assert list(root.iterdir()) == [], "nothing was written"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        " select 1 ;\n",
        "SELECT 1 -- the end",
        "/* first */ WITH a AS (SELECT 1) SELECT * FROM a ORDER BY 1 LIMIT 1",
        "VALUES (1)",
        "(SELECT 1) UNION (SELECT 1)",
        "FROM VALUES (1) AS v(a) SELECT a",
        "SELECT 1 FROM VALUES (1) AS a(x) JOIN VALUES (1) AS b(x) USING (x)",
        "SELECT transform(array(1), x -> x)[0] FROM VALUES (1) AS a(x) JOIN VALUES (1) AS b(x) USING (x)",
    ],
)
def test_queries_that_read_are_run(ask: Ask, text: str) -> None:
    assert ask(text) == [(1,)]


def test_two_columns_may_have_the_same_name(ask: Ask) -> None:
    assert ask("SELECT 1 AS a, 2 AS a") == [(1, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ; ",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "CREATE TABLE written (a INT) USING parquet",
        "CREATE TEMPORARY VIEW written AS SELECT 1",
        "WITH a AS (SELECT 1) INSERT INTO written SELECT * FROM a",
        "FROM VALUES (1) AS v(a) INSERT INTO written SELECT a",
        "SELECT 1) INSERT INTO written WITH z AS (SELECT 1",
        "INSERT OVERWRITE DIRECTORY '{folder}' USING csv SELECT 1",
        "DELETE FROM audit",
        "UPDATE audit SET topic = 'a'",
        "MERGE INTO audit USING plans ON true WHEN MATCHED THEN DELETE",
        "DROP VIEW audit",
        "ALTER VIEW audit RENAME TO written",
        "TRUNCATE TABLE audit",
        "SET spark.sql.ansi.enabled=false",
        "SET",
        "RESET",
        "SET VAR a = 1",
        "DECLARE VARIABLE a INT",
        "USE default",
        "ADD JAR '/tmp/some.jar'",
        "CACHE TABLE audit",
        "REFRESH TABLE audit",
        "CALL something()",
        "BEGIN SELECT 1; DROP VIEW audit; END",
        "EXECUTE IMMEDIATE 'DROP VIEW audit'",
        "EXPLAIN SELECT 1",
        "SHOW TABLES",
        "DESCRIBE audit",
        "VACUUM delta.`{folder}`",
        "OPTIMIZE delta.`{folder}`",
        "SELECT TRANSFORM(a) USING 'touch {folder}' AS (b) FROM VALUES (1) AS v(a)",
        'FROM VALUES (1) AS v(a) MAP a using/**/"touch {folder}" AS (b)',
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT `java_method`('java.lang.System', 'exit', 1)",
        "SELECT try_reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'HOME')",
        "SELECT '${{env:HOME}}'",
        "SELECT '${{spark.app.name}}'",
        "SELECT * FROM no_such_table",
        "SELECT no_such_column FROM audit",
    ],
)
def test_anything_else_is_refused_before_it_runs(ask: Ask, spark: SparkSession, tmp_path: Path, text: str) -> None:
    written = tmp_path / "written"
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    with pytest.raises(UsageError) as refused:
        ask(text.format(folder=written))
    assert "\n" not in str(refused.value)
    assert not written.exists()
    assert not spark.catalog.tableExists("written")
    assert spark.conf.get("spark.sql.ansi.enabled") == ansi


@pytest.mark.parametrize("call", ["secret('scope', 'key')", "`http_request`(conn => 'c')", "AI_QUERY('m', 'text')"])
def test_functions_of_databricks_that_act_or_read_secrets_are_refused(ask: Ask, call: str) -> None:
    with pytest.raises(UsageError, match="read secrets or send requests"):
        ask(f"SELECT {call}")


def test_a_mistyped_table_gets_a_suggestion(ask: Ask) -> None:
    with pytest.raises(UsageError, match="there is no table or view audits; did you mean `audit`"):
        ask("SELECT * FROM audits")


@pytest.mark.parametrize("wanted", [False, True])
def test_pyspark_prints_an_error_of_a_query_only_if_wanted(ask: Ask, wanted: bool) -> None:
    """With Java's stack trace, beside the message for the user."""
    printed: list[logging.LogRecord] = []
    collector = logging.Handler()
    collector.emit = printed.append  # type: ignore[method-assign]
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(collector)
    try:
        print_sparks_errors(wanted)
        with pytest.raises(UsageError, match="`nothing` cannot be resolved"):
            ask("SELECT nothing FROM audit")
        assert bool(printed) is wanted
    finally:
        print_sparks_errors(wanted=False)
        logger.removeHandler(collector)


def test_no_view_has_the_name_of_a_table() -> None:
    names = [view.name for view in all_views()]
    assert len({*names, *TABLES}) == len(names) + len(TABLES)
    assert len(names) == 15


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT 'a\\u001b[2J[red]' AS topic, map(1, 'x') AS before, array(named_struct('b', 2)) AS groups, "
        "TIMESTAMP '2026-01-02 03:04:05.5Z' AS at, 1.50BD AS cost, CAST(NULL AS STRING) AS owner, true AS live"
    )


def test_a_table_escapes_control_characters(rows: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_table(rows)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "a\\x1b[2J[red]" in out
    assert '{"1": "x"}' in out
    assert out.endswith("1 row\n")


@pytest.mark.parametrize(
    ("more", "note"), [(0, "200 rows"), (1, "the first 200 rows; all of them: --format csv")], ids=("all", "more")
)
def test_a_table_says_whether_there_are_more_rows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], more: int, note: str
) -> None:
    printing.print_table(spark.range(printing.MOST_ROWS + more))
    *_, last_row, _, said = capsys.readouterr().out.splitlines()
    assert ("199" in last_row, said) == (True, note)


def test_csv_has_nested_values_as_json(rows: DataFrame) -> None:
    header, found = csv.reader("".join(printing.csv_lines(rows)).splitlines())
    assert header == ["topic", "before", "groups", "at", "cost", "owner", "live"]
    assert found == ["a\\x1b[2J[red]", '{"1": "x"}', '[{"b": 2}]', "2026-01-02T03:04:05.500000Z", "1.50", "", "true"]


def test_json_has_an_object_for_each_row(rows: DataFrame, spark: SparkSession) -> None:
    text = "".join(printing.json_lines(rows.union(rows)))
    assert "\x1b" not in text
    expected = {
        "topic": "a\x1b[2J[red]",
        "before": {"1": "x"},
        "groups": [{"b": 2}],
        "at": "2026-01-02T03:04:05.500000Z",
        "cost": "1.50",
        "owner": None,
        "live": True,
    }
    assert json.loads(text) == {"format_version": 1, "exit_code": 0, "rows": [expected, expected]}
    assert json.loads("".join(printing.json_lines(spark.range(0))))["rows"] == []


def test_values_that_json_has_no_type_for_are_texts(spark: SparkSession) -> None:
    odd = spark.sql("SELECT double('NaN') AS nan, array(-double('Infinity')) AS least, X'0aff' AS bytes")
    text = "".join(printing.json_lines(odd))
    assert json.loads(text)["rows"] == [{"nan": "nan", "least": ["-inf"], "bytes": "0aff"}]


def test_json_refuses_two_columns_of_one_name(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="two columns are named a, which JSON can't have"):
        list(printing.json_lines(spark.sql("SELECT 1 AS a, 2 AS a")))


def test_a_suggested_command_is_quoted_for_shells() -> None:
    query = "SELECT * FROM delta.`/it's/a``b/audit` JOIN `prod-eu`.kafka.runs WHERE run_id = '\\u0024x'"
    assert as_command(query) == (
        "topicledger sql \"SELECT * FROM audit JOIN \\`prod-eu\\`.kafka.runs WHERE run_id = '\\\\u0024x'\""
    )


@pytest.mark.thorough
def test_each_column_of_a_view_is_documented(ask: Ask, spark: SparkSession, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "queries.md").read_text(encoding="utf-8")
    sections = dict(zip(*[iter(re.split(r"^### (\S+)$", page, flags=re.MULTILINE)[1:])] * 2, strict=True))
    settings = Settings(path=tmp_path, tables=TablesSettings(root=str(tmp_path)), clusters={})
    for view in all_views():
        with answered(Ledger(spark, str(tmp_path)), settings, f"SELECT * FROM {view.name}") as rows:
            section = sections.get(view.name) or sections[view.name.replace("_", "\\_")]
            documented = set(re.findall(r"`(\w+)`", section))
            assert set(rows.columns) <= documented, view.name


PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "docs").glob("*.md"))}
QUERIES = [
    query
    for page in PAGES.values()
    for query in [
        *re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL),
        *re.findall(r'topicledger sql --config \S+ "(SELECT [^"]+)"', page),
    ]
    if not query.startswith("INSERT ")
]
"""Those that read; rows of `manifests` and its like are added with Spark or Databricks."""


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_docs_run_as_they_are(ask: Ask, query: str) -> None:
    assert ask(query) == []


def test_the_docs_have_queries() -> None:
    assert len(QUERIES) >= 8


def test_changes_count_partitions_in_words(spark: SparkSession) -> None:
    common = {"run_id": "r", "cluster": "main", "resource_type": "TOPIC", "phase": "apply", "outcome": "ok"}
    done = [
        {**common, "topic": str(count), "resource": str(count), "action": "create", "num_partitions": count}
        for count in (1, 2, None)
    ] + [
        {**common, "topic": count, "resource": count, "action": "delete", "before": {"num_partitions": count}}
        for count in ("1", "11")
    ]
    rows: dict[str, list[dict[str, object]]] = {"audit": done, "runs": [{"run_id": "r"}], "approvals": []}
    (changes,) = [view for view in all_views() if view.name == "changes"]
    try:
        for name, of_table in rows.items():
            frame(spark, TABLES[name].schema, of_table).createOrReplaceTempView(name)
        found = {
            (row["topic"], row["action"]): (row["before"], row["after"]) for row in spark.sql(changes.query).collect()
        }
    finally:
        for name in rows:
            spark.catalog.dropTempView(name)
    assert found == {
        ("1", "create"): (None, "1 partition"),
        ("2", "create"): (None, "2 partitions"),
        ("None", "create"): (None, None),
        ("1", "delete"): ("1 partition", None),
        ("11", "delete"): ("11 partitions", None),
    }


def test_owners_are_counted_for_every_kind_of_resource() -> None:
    """SQL can't loop over the kinds."""
    (ownership,) = [view for view in all_views() if view.name == "ownership"]
    for kind in KINDS:
        assert f"FROM {kind.table.name}\n" in ownership.query
        assert f"sum({kind.table.name}) AS {kind.table.name}" in ownership.query
