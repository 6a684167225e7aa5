"""The ledger's Delta tables: created as described, checked when opened, appended to once.

The expected form of each table is in golden/*.txt. To rewrite these files after an intended change:
    TOPICLEDGER_GOLDEN=write pytest tests/ledger/test_tables.py -k golden
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlparse

import pytest
from chispa import assert_df_equality
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tests import executions
from tests.unit.frames import MANIFEST_ROWS, dicts, frame, observed_rows
from topicledger import cli
from topicledger.errors import TableError, UsageError
from topicledger.ledger import appended, retries
from topicledger.ledger.appended import Kept
from topicledger.ledger.definitions import require_root
from topicledger.ledger.retries import Trouble
from topicledger.ledger.sql import column_definition
from topicledger.ledger.tables import Ledger
from topicledger.schemas import (
    AUDIT,
    BROKERS,
    LEASES,
    MANIFESTS,
    OBSERVED,
    PLANS,
    RUNS,
    SCHEMA_VERSION,
    SCHEMA_VERSION_PROPERTY,
    TABLES,
    USAGES,
    Table,
)

GOLDEN = Path(__file__).with_name("golden")
ONCE: Any = {"app_id": "test", "version": 1}


def described(ledger: Ledger, table: Table) -> str:
    """Describe a table as it is on disk, one line per fact."""
    location = ledger.location(table)
    if not Path(location).is_absolute():
        # A name in a catalog.
        (detail,) = ledger.spark.sql(f"DESCRIBE DETAIL {location}").select("location").collect()
        location = urlparse(detail["location"]).path
    on_disk = DeltaTable(location)
    detail, protocol = on_disk.metadata(), on_disk.protocol()
    lines = [f"table {table.name}: {detail.description}", "", "columns"]
    for field in ledger._load(table).schema:
        line = f"  {field.name} {field.dataType.simpleString()}{'' if field.nullable else ' not null'}"
        comment = (field.metadata or {}).get("comment")
        lines.append(f"{line}  -- {comment}" if comment else line)
    lines += ["", f"partitioned by {', '.join(detail.partition_columns) or 'nothing'}", "", "properties"]
    properties = sorted(detail.configuration.items())
    lines += [f"  {name} = {value}" for name, value in properties if name != SCHEMA_VERSION_PROPERTY]
    lines += ["", f"reader version {protocol.min_reader_version}, writer version {protocol.min_writer_version}"]
    lines += [
        f"  {feature}" for feature in sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", TABLES)
def test_created_table_matches_its_golden_file(pristine: Ledger, name: str) -> None:
    golden = GOLDEN / f"{name}.txt"
    found = described(pristine, TABLES[name])
    if os.environ.get("TOPICLEDGER_GOLDEN") == "write":
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


def test_every_golden_file_has_a_table() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(TABLES)


@pytest.mark.thorough
def test_existing_tables_are_checked_and_not_changed(ledger: Ledger) -> None:
    ledger.ensure(*TABLES.values())
    assert [ledger.latest_version(table) for table in TABLES.values()] == [0] * len(TABLES)


def make(spark: SparkSession, root: Path, table: Table, schema: StructType) -> Ledger:
    """Return a ledger in which another tool created the table with a different schema."""
    ledger = Ledger(spark, str(root))
    columns = ", ".join(map(column_definition, schema))
    spark.sql(f"CREATE TABLE {ledger.sql_name(table)} ({columns}) USING delta")
    return ledger


@pytest.mark.thorough
def test_wrong_columns_of_our_table_are_all_named_in_the_error(spark: SparkSession, tmp_path: Path) -> None:
    fields = [field for field in RUNS.schema if field.name not in ("epoch", "exit_code", "counts")]
    other = [StructField("exit_code", LongType()), StructField("mood", StringType()), StructField("Zeal", StringType())]
    ledger = make(spark, tmp_path, RUNS, StructType([*fields, *other]))
    with pytest.raises(TableError) as error:
        ledger.ensure(RUNS)
    message = str(error.value)
    assert message.startswith(f"table {tmp_path}/runs doesn't match topicledger's schema {SCHEMA_VERSION}: ")
    problems = message.split(f" schema {SCHEMA_VERSION}: ")[1].split(". Nothing was changed")[0].split("; ")
    assert sorted(problems) == [
        "column exit_code is bigint, not int",
        "no column counts",
        "no column epoch",
        "unknown columns mood, Zeal",
    ]
    assert ledger.latest_version(RUNS) == 0


def test_shared_table_may_have_other_columns_order_and_nullability(spark: SparkSession, tmp_path: Path) -> None:
    fields = [StructField("ticket", IntegerType(), nullable=False), *reversed(list(MANIFEST_ROWS))]
    ledger = make(spark, tmp_path, MANIFESTS, StructType(fields))
    ledger.ensure(MANIFESTS)
    assert ledger.read(MANIFESTS).columns == [field.name for field in fields]


@pytest.mark.thorough
def test_few_rows_of_a_version_are_read_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = StructType(
        [StructField("ticket", IntegerType()), *(StructField(each.name, each.dataType) for each in MANIFEST_ROWS)]
    )
    ledger = make(spark, tmp_path, MANIFESTS, others)
    spark.sql(f"INSERT INTO {ledger.sql_name(MANIFESTS)} (ticket, cluster, topic) VALUES (1, NULL, 'a'), (2, 'c', 'b')")
    kept: Kept = {}
    first = ledger.read_once(MANIFESTS, 1, kept)
    assert first.columns == MANIFESTS.schema.names
    assert dicts(first.orderBy("topic")) == dicts(ledger.read(MANIFESTS, 1).select(*first.columns).orderBy("topic"))
    assert [row["topic"] for row in first.where("cluster IS NULL").collect()] == ["a"]
    spark.sql(f"DELETE FROM {ledger.sql_name(MANIFESTS)}")
    with executions.counted(spark) as counted:
        again = ledger.read_once(MANIFESTS, 1, kept).where("cluster IS NULL").collect()
    assert ([row["topic"] for row in again], counted() <= 2) == (["a"], True)
    assert ledger.read_once(MANIFESTS, 2, kept).collect() == []

    monkeypatch.setattr(appended, "FEW_ROWS", 1)
    many: Kept = {}
    assert ledger.read_once(MANIFESTS, 1, many).count() == ledger.read_once(MANIFESTS, 1, many).count() == 2
    assert list(many.values()) == [None]


def test_shared_table_with_wrong_or_missing_column_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    fields = [field for field in MANIFEST_ROWS if field.name not in ("configs", "labels")]
    ledger = make(spark, tmp_path, MANIFESTS, StructType([*fields, StructField("configs", StringType())]))
    with pytest.raises(TableError, match="no column labels; column configs is string, not map<string,string>"):
        ledger.ensure(MANIFESTS)


def older(ledger: Ledger, table: Table, *lacking: str, version: int = 1) -> list[dict[str, Any]]:
    """Create a table as an older topicledger did, without some columns; return the rows to expect when reading."""
    schema = StructType([field for field in table.schema if field.name not in lacking])
    with_defaults = {SCHEMA_VERSION_PROPERTY: str(version), **table.properties}
    then = replace(table, schema=schema, properties=with_defaults)
    ledger._create_if_missing(then)
    rows = [a_row(name, schema) for name in ("a", "b")]
    ledger.append(then, frame(ledger.spark, schema, rows), **ONCE)
    return [{**dict.fromkeys(table.schema.names), **row} for row in rows]


def a_row(name: str, schema: StructType) -> dict[str, Any]:
    given = {"run_id": name, "cluster": "main", "topic": name, "state": "present"}
    return {name: value for name, value in given.items() if name in schema.names}


def of_schema(ledger: Ledger, table: Table) -> list[tuple[str, str, str | None]]:
    """Return name, type and comment of the columns of `table` in the ledger."""
    return sorted(
        (field.name, field.dataType.simpleString(), (field.metadata or {}).get("comment"))
        for field in ledger._load(table).schema
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "lacking"), [("runs", ("counts", "principal")), ("audit", ("configs", "error"))])
@pytest.mark.parametrize("where", ["folder", "catalog"])
def test_missing_columns_of_older_tables_are_added(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, name: str, lacking: tuple[str, ...], where: str
) -> None:
    ledger = request.getfixturevalue("in_catalog") if where == "catalog" else Ledger(spark, str(tmp_path / "ledger"))
    table = TABLES[name]
    rows = older(ledger, table, *lacking)

    Ledger(spark, ledger.root).ensure(table)

    assert of_schema(ledger, table) == sorted(
        (field.name, field.dataType.simpleString(), (field.metadata or {}).get("comment")) for field in table.schema
    )
    # Columns missing in older rows are read as their defaults.
    defaults = [{"resource_type": "topic", "resource": row["topic"]} if table.defaults else {} for row in rows]
    filled = [row | default for row, default in zip(rows, defaults, strict=True)]
    assert sorted(dicts(ledger.read(table)), key=str) == filled
    assert ledger._properties(table)[SCHEMA_VERSION_PROPERTY] == str(SCHEMA_VERSION)
    ledger.append(table, frame(spark, table.schema, [a_row("c", table.schema)]), app_id="test", version=2)
    version = ledger.latest_version(table)
    Ledger(spark, ledger.root).ensure(table)
    assert ledger.latest_version(table) == version


@pytest.mark.thorough
def test_processes_can_add_the_same_columns_at_once(spark: SparkSession, tmp_path: Path) -> None:
    older(Ledger(spark, str(tmp_path)), PLANS, "violations", "batch")
    together = Barrier(4)

    def ensure(_: int) -> list[str]:
        ledger = Ledger(spark, str(tmp_path))
        together.wait()
        ledger.ensure(PLANS)
        return ledger.read(PLANS).columns

    with ThreadPoolExecutor(4) as pool:
        assert [sorted(columns) for columns in pool.map(ensure, range(4))] == [sorted(PLANS.schema.names)] * 4


@pytest.mark.thorough
def test_only_a_load_with_values_adds_columns_to_a_shared_table(spark: SparkSession, tmp_path: Path) -> None:
    """Other tools write it with their own schema: whoever only reads it changes nothing."""
    fields = [field for field in MANIFEST_ROWS if field.name not in ("labels", "placement", "description")]
    ledger = make(spark, tmp_path, MANIFESTS, StructType([StructField("ticket", IntegerType()), *fields]))
    before = described(ledger, MANIFESTS)
    ledger.ensure(MANIFESTS)
    one = {"cluster": "main", "topic": "one", "state": "present"}
    ledger.merge(MANIFESTS, frame(spark, MANIFESTS.schema, [one]))
    assert described(ledger, MANIFESTS) == before
    (row,) = dicts(ledger.read(MANIFESTS))
    assert (row["topic"], row["labels"], row["placement"], row["description"]) == ("one", None, None, None)

    ledger.merge(MANIFESTS, frame(spark, MANIFESTS.schema, [{**one, "placement": "spread"}]))
    assert ledger._load(MANIFESTS).columns == ["ticket", *(field.name for field in fields), "placement"]
    assert [row["placement"] for row in dicts(ledger.read(MANIFESTS))] == ["spread"]


def test_columns_that_are_not_nullable_are_never_added(spark: SparkSession, tmp_path: Path) -> None:
    fields = [field for field in MANIFEST_ROWS if field.name not in ("cluster", "owner")]
    ledger = make(spark, tmp_path, MANIFESTS, StructType(fields))
    with pytest.raises(TableError, match="no column owner; no column cluster"):
        ledger.ensure(MANIFESTS)
    assert ledger.latest_version(MANIFESTS) == 0


def test_table_of_a_newer_topicledger_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    newer = replace(
        RUNS,
        schema=StructType([*RUNS.schema, StructField("mood", StringType())]),
        properties={SCHEMA_VERSION_PROPERTY: str(SCHEMA_VERSION + 1)},
    )
    ledger = Ledger(spark, str(tmp_path))
    ledger._create_if_missing(newer)
    with pytest.raises(TableError, match=r"table .*/runs was written by a newer topicledger.*: use"):
        ledger.ensure(RUNS)


@pytest.mark.thorough
def test_foreign_folder_is_an_error_and_stays_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "notes.parquet").write_text("mine")
    with pytest.raises(TableError, match=f"table {folder} can't be opened or created") as error:
        Ledger(spark, str(tmp_path)).ensure(AUDIT)
    assert "\n" not in str(error.value)
    assert [path.name for path in folder.iterdir()] == ["notes.parquet"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["leases", "manifests", "audit"])
def test_table_without_a_first_commit_is_created(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Its folder contains a log without a commit; Delta refuses to create a table there."""
    (tmp_path / name / "_delta_log").mkdir(parents=True)
    ledger = Ledger(spark, str(tmp_path))
    ledger.ensure(TABLES[name])
    golden = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert described(ledger, TABLES[name]) == golden.replace(" not null", "")


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["folder", "catalog"])
def test_processes_can_create_the_same_table_at_once(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    root = request.getfixturevalue("in_catalog").root if where == "catalog" else str(tmp_path)
    together = Barrier(4)

    def ensure(number: int) -> None:
        ledger = Ledger(spark, root)
        together.wait()
        ledger.ensure(LEASES)
        assert ledger.compare_and_set(LEASES, "cluster_id", [lease(f"cluster-{number}", 1)]) == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ensure, range(4)))
    assert Ledger(spark, root).read(LEASES).count() == 4


def test_new_tables_get_what_the_settings_say_and_existing_ones_stay(spark: SparkSession, tmp_path: Path) -> None:
    """An owner, say: this catalog has none for tables in folders, but each table has properties."""
    before = Ledger(spark, str(tmp_path / "ledger"))
    before.ensure(RUNS)
    statements = [f"ALTER TABLE {{table}} SET TBLPROPERTIES ('team' = '{name}')" for name in ("data", "platform")]
    ledger = Ledger(spark, before.root, statements)
    for _ in range(2):
        ledger.ensure(RUNS, PLANS)
    found = {each.name: ledger._properties(each).get("team") for each in (RUNS, PLANS)}
    assert found == {"runs": None, "plans": "platform"}


def test_error_of_a_statement_for_a_new_table_says_what_is_left_to_do(spark: SparkSession, tmp_path: Path) -> None:
    statements = ["ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')", "GRANT NOTHING ON {table}", "SELECT 1 {table}"]
    ledger = Ledger(spark, str(tmp_path / "ledger"), statements)
    name = ledger.sql_name(RUNS)
    left = re.escape(f"Run by hand: GRANT NOTHING ON {name}; SELECT 1 {name}")
    with pytest.raises(TableError, match=rf"was created, but a statement of tables.on_create failed: .*{left}"):
        ledger.ensure(RUNS)
    assert ledger.exists(RUNS)
    ledger.ensure(RUNS)


def test_missing_root_is_an_error_if_it_must_exist(spark: SparkSession, tmp_path: Path) -> None:
    for root in (str(tmp_path / "mistyped"), f"file:{tmp_path}/mistyped", f"file://{tmp_path}/mistyped"):
        with pytest.raises(TableError, match="mistyped does not exist: correct"):
            require_root(root)
    for root in (str(tmp_path), f"file://{tmp_path}/", "s3a://bucket/there/or/not", "catalog.schema"):
        require_root(root)


S3 = ("s3://bucket/ledger", "s3a://bucket/ledger", "S3A://bucket/ledger", "s3n://bucket/ledger")


@pytest.fixture
def log_store(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Provide a function that sets the session's LogStore of a scheme; there is none at first."""
    keys = [f"spark.delta.logStore.{scheme}.impl" for scheme in ("s3", "s3a", "s3n")]
    before = {key: spark.conf.get(key, None) for key in keys}
    for key in keys:
        spark.conf.unset(key)
    yield lambda scheme, name: spark.conf.set(f"spark.delta.logStore.{scheme}.impl", name)
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.mark.parametrize("root", S3)
def test_s3_without_a_safe_log_store_is_refused_or_warned_about(
    spark: SparkSession, root: str, log_store: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    ledger, scheme = Ledger(spark, root), root.partition(":")[0].lower()
    refused = rf"tables in {root}: .* Set spark.delta.logStore.{scheme}.impl to ConditionalS3LogStore or io.delta"
    with pytest.raises(UsageError, match=refused):
        ledger.require_atomic_commits(refuse=True)
    log_store(scheme, "io.delta.storage.S3SingleDriverLogStore")
    with pytest.raises(UsageError, match=r"or \[tables\] single_writer = true in the settings"):
        ledger.require_atomic_commits(refuse=True)
    assert caplog.text == ""
    ledger.require_atomic_commits(refuse=False)
    assert f"tables in {root}" in caplog.text
    caplog.clear()
    for safe in ("ConditionalS3LogStore", "io.delta.storage.S3DynamoDBLogStore"):
        log_store(scheme, safe)
        for refuse in (True, False):
            ledger.require_atomic_commits(refuse=refuse)
    assert caplog.text == ""


def test_storage_with_atomic_puts_needs_no_log_store(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for root in (str(tmp_path), f"file:{tmp_path}", "s3-like/folder", "abfss://x@y/z", "gs://bucket/ledger"):
        Ledger(spark, root).require_atomic_commits(refuse=True)
    assert caplog.text == ""


def test_shared_file_systems_are_refused_or_warned_about(
    pristine: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The master's address stands for a cluster; test_standalone_cluster has a real one."""
    monkeypatch.setattr(Ledger, "_master", "spark://here:7077")
    for root in (pristine.root, f"file:{pristine.root}"):
        ledger = Ledger(pristine.spark, root)
        with pytest.raises(UsageError, match=r"tables in file:.* master is spark://here:7077 .* single_writer = true"):
            ledger.require_atomic_commits(refuse=True)
        ledger.require_atomic_commits(refuse=False)
        assert "two drivers can overwrite each other's commits" in caplog.text
        caplog.clear()
    Ledger(pristine.spark, "hdfs://name/ledger").require_atomic_commits(refuse=True)


def test_file_system_without_hard_links_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, target: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    not_yet = Ledger(ledger.spark, f"{ledger.root}/not/yet")
    for each in (ledger, not_yet):
        with pytest.raises(UsageError, match="since this file system makes no hard links"):
            each.require_atomic_commits(refuse=True)
    assert not list(Path(ledger.root).glob(".topicledger-*"))


@pytest.mark.parametrize("command", ["apply", "provision"])
def test_unsafe_run_on_s3_is_refused_before_any_read(
    spark: SparkSession,
    tmp_path: Path,
    command: str,
    log_store: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = "io.delta.storage.S3SingleDriverLogStore"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf spark.delta.logStore.s3a.impl={chosen} pyspark-shell")
    log_store("s3a", chosen)

    def run(more: str) -> Result:
        config = tmp_path / "settings.toml"
        clusters = '[clusters.main]\nbootstrap_servers = ["localhost:1"]\n'
        config.write_text(f'[tables]\nroot = "s3a://bucket/ledger"\n{more}\n{clusters}')
        return CliRunner().invoke(cli.main, [command, "--config", str(config), "--run-id", "one"])

    refused = run("")
    assert (refused.exit_code, "tables in s3a://bucket/ledger" in refused.stderr) == (2, True)
    # There is no file system for s3a here, so any read would fail with a different error.
    went_on = run("single_writer = true")
    assert (went_on.exit_code, "S3AFileSystem" in went_on.stderr) == (1, True), went_on.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_root_is_an_error_of_one_line(spark: SparkSession, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TableError, match=r"table .*/runs can't be opened or created") as error:
        Ledger(spark, str(tmp_path)).ensure(RUNS)
    tmp_path.chmod(0o700)
    assert "\n" not in str(error.value)


def test_query_finds_a_table_under_a_relative_root(spark: SparkSession, pristine: Ledger) -> None:
    relative = os.path.relpath(pristine.root)
    assert spark.sql(f"SELECT * FROM {Ledger(spark, relative).sql_name(RUNS)}").collect() == []


def test_reading_a_missing_table_or_version_is_an_error(ledger: Ledger) -> None:
    with pytest.raises(TableError, match="can't be read") as missing:
        Ledger(ledger.spark, ledger.root + "/nowhere").latest_version(MANIFESTS)
    assert "tried" not in str(missing.value), "no retry creates it"
    with pytest.raises(PySparkException):
        ledger.read(MANIFESTS, version=7)


def audit_rows(ledger: Ledger, *topics: str) -> Any:
    return frame(ledger.spark, AUDIT.schema, ({"run_id": "run-1", "topic": topic} for topic in topics))


def topics_of(ledger: Ledger, table: Table) -> list[str]:
    return sorted(row["topic"] for row in ledger.read(table).select("topic").collect())


def test_repeated_append_takes_effect_once(ledger: Ledger) -> None:
    ledger.append(AUDIT, audit_rows(ledger, "a"), app_id="run-1", version=1_000_001)
    ledger.append(AUDIT, audit_rows(ledger, "again"), app_id="run-1", version=1_000_001)
    ledger.append(AUDIT, audit_rows(ledger, "other run"), app_id="run-2", version=1_000_001)
    ledger.append(AUDIT, audit_rows(ledger, "next"), app_id="run-1", version=1_000_002)
    assert topics_of(ledger, AUDIT) == ["a", "next", "other run"]


def test_empty_append_excludes_an_earlier_start_of_the_run(ledger: Ledger) -> None:
    ledger.append(PLANS, ledger.spark.createDataFrame([], PLANS.schema), app_id="run-1", version=2_000_000)
    late = frame(ledger.spark, PLANS.schema, [{"run_id": "run-1", "topic": "late"}])
    ledger.append(PLANS, late, app_id="run-1", version=1_000_007)
    assert topics_of(ledger, PLANS) == []
    ledger.append(PLANS, late, app_id="run-1", version=2_000_001)
    assert topics_of(ledger, PLANS) == ["late"]


@pytest.mark.thorough
def test_rows_of_audit_can_be_neither_deleted_nor_changed(ledger: Ledger) -> None:
    ledger.append(AUDIT, audit_rows(ledger, "a"), app_id="run-1", version=1)
    with pytest.raises(Exception, match="append"):
        ledger.spark.sql(f"DELETE FROM {ledger.sql_name(AUDIT)} WHERE topic = 'a'")
    with pytest.raises(TableError, match="can't be updated") as error:
        ledger.update(AUDIT, "topic = 'a'", {"outcome": "'ok'"})
    assert "\n" not in str(error.value)
    assert "java" not in str(error.value)


@pytest.mark.thorough
def test_append_with_other_columns_keeps_the_schema(ledger: Ledger) -> None:
    rows = audit_rows(ledger, "a").select(F.lit(1).alias("more"), *reversed(AUDIT.schema.names))
    ledger.append(AUDIT, rows, app_id="run-1", version=1)
    assert ledger.read(AUDIT).columns == AUDIT.schema.names
    assert topics_of(ledger, AUDIT) == ["a"]


def stored_rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """Return rows of the table `observed`."""
    return observed_rows(spark, *rows, schema=OBSERVED.schema)


@pytest.mark.thorough
def test_replacing_clusters_keeps_other_clusters(ledger: Ledger) -> None:
    names = ["it's", "back\\slash\\", "per%cent", "a' OR 'b' = 'b", "slash/and=colon:"]
    before = stored_rows(
        ledger.spark,
        *({"cluster": name, "topic": topic} for name in [*names, "kept"] for topic in ("old", "older")),
    )
    ledger.replace_clusters(OBSERVED, before, [*names, "kept"])
    after = stored_rows(ledger.spark, *({"cluster": name, "topic": "new"} for name in names[:-1]))
    ledger.replace_clusters(OBSERVED, after, names)
    found = [(row["cluster"], row["topic"]) for row in dicts(ledger.read(OBSERVED).select("cluster", "topic"))]
    assert sorted(found) == sorted([(name, "new") for name in names[:-1]] + [("kept", "old"), ("kept", "older")])


def test_replacing_no_clusters_commits_nothing(ledger: Ledger) -> None:
    ledger.replace_clusters(OBSERVED, stored_rows(ledger.spark), [])
    assert ledger.latest_version(OBSERVED) == 0


@pytest.mark.thorough
def test_clusters_differ_only_by_content_not_by_run_or_time(ledger: Ledger) -> None:
    spark = ledger.spark
    assignments = {0: [1, 2], 1: [2, 1]}
    first, second = (datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2))
    names = ("same", "changed", "fewer", "cleared")
    rows = [
        {"cluster": name, "topic": topic, "assignments": assignments, "run_id": "one", "observed_at": first}
        for name in names
        for topic in ("a", "b")
    ]
    ledger.replace_clusters(OBSERVED, stored_rows(spark, *rows), [*names])
    now = [{**row, "run_id": "two", "observed_at": second, "assignments": {1: [2, 1], 0: [1, 2]}} for row in rows]
    assert ledger.clusters_that_differ(OBSERVED, stored_rows(spark, *now), names) == []
    changed = [
        {**row, "assignments": {0: [2, 1], 1: [2, 1]}} if (row["cluster"], row["topic"]) == ("changed", "b") else row
        for row in now
        if (row["cluster"], row["topic"]) != ("fewer", "a") and row["cluster"] != "cleared"
    ]
    found = [*changed, {"cluster": "new", "topic": "a"}]
    differ = ledger.clusters_that_differ(OBSERVED, stored_rows(spark, *found), [*names, "new", "empty"])
    assert differ == ["changed", "cleared", "fewer", "new"]
    assert ledger.clusters_that_differ(OBSERVED, stored_rows(spark), []) == []


def test_rows_of_clusters_not_being_replaced_are_refused(ledger: Ledger) -> None:
    rows = stored_rows(ledger.spark, {"cluster": "other", "topic": "a"})
    with pytest.raises(TableError, match="can't be written"):
        ledger.replace_clusters(OBSERVED, rows, ["main"])


@pytest.mark.thorough
def test_merge_keeps_columns_of_other_tools(spark: SparkSession, tmp_path: Path) -> None:
    ledger = make(spark, tmp_path, MANIFESTS, StructType([*MANIFESTS.schema, StructField("ticket", StringType())]))
    old = [
        {"cluster": "main", "topic": "same", "state": "present", "configs": {"a": "1", "b": "2"}},
        {"cluster": "main", "topic": "changed", "state": "present", "num_partitions": 1, "labels": {"x": "1"}},
        {"cluster": "main", "topic": "gone", "state": "present"},
        {"cluster": "other", "topic": "same", "state": "present"},
    ]
    theirs = frame(spark, MANIFEST_ROWS, old).withColumn("ticket", F.concat(F.lit("T-"), "topic"))
    theirs.write.format("delta").mode("append").save(ledger.location(MANIFESTS))
    new = [
        {"cluster": "main", "topic": "same", "state": "present", "configs": {"b": "2", "a": "1"}},
        {"cluster": "main", "topic": "changed", "state": "present", "num_partitions": 2},
        {"cluster": "main", "topic": "new", "state": "absent"},
    ]
    rows = frame(spark, MANIFEST_ROWS, new)

    ledger.merge(MANIFESTS, rows)

    found = {(row["cluster"], row["topic"]): row for row in dicts(ledger.read(MANIFESTS))}
    assert len(found) == 5
    assert found["main", "changed"]["num_partitions"] == 2
    assert found["main", "changed"]["labels"] is None
    tickets = {key: row["ticket"] for key, row in found.items() if row["ticket"] != f"T-{key[1]}"}
    assert tickets == {("main", "new"): None}

    ledger.merge(MANIFESTS, rows, removed=ledger.read(MANIFESTS).where("topic = 'gone'"))

    # Another load changed, added and removed rows between the comparison and the commit: these stay as they are.
    compared = ledger.read(MANIFESTS).where("topic <> 'new' AND topic <> 'changed'").localCheckpoint()
    less = {"cluster": "main", "topic": "changed", "state": "present", "num_partitions": 9, "configs": {"a": "1"}}
    compared = compared.unionByName(frame(spark, MANIFEST_ROWS, [less, {**less, "topic": "gone"}]), True)
    mine = [{**less, "topic": name} for name in ("same", "changed", "new", "gone", "added")]
    version = ledger.latest_version(MANIFESTS)
    ledger.merge(MANIFESTS, frame(spark, MANIFEST_ROWS, mine), then=compared)
    found = {(row["cluster"], row["topic"]): row["num_partitions"] for row in dicts(ledger.read(MANIFESTS))}
    assert found == {
        ("main", "same"): 9,
        ("main", "added"): 9,
        ("main", "changed"): 2,
        ("main", "new"): None,
        ("other", "same"): None,
    }
    spark.sql(f"RESTORE TABLE {ledger.sql_name(MANIFESTS)} TO VERSION AS OF {version}")

    maps = ("assignments", "configs", "labels")
    expected = frame(spark, MANIFEST_ROWS, [*new, old[3]])
    assert_df_equality(
        ledger.read(MANIFESTS).drop("ticket", *maps),
        expected.drop(*maps),
        ignore_row_order=True,
        ignore_nullable=True,
        ignore_metadata=True,
    )


@pytest.fixture
def in_catalog(spark: SparkSession) -> Iterator[Ledger]:
    with tempfile.TemporaryDirectory() as folder:
        spark.sql(f"CREATE DATABASE topicledger_tests LOCATION '{folder}'")
        yield Ledger(spark, "spark_catalog.topicledger_tests")
        spark.sql("DROP DATABASE topicledger_tests CASCADE")


@pytest.mark.thorough
def test_tables_can_be_in_a_catalog_schema(in_catalog: Ledger) -> None:
    ledger = in_catalog
    require_root(ledger.root)
    ledger.ensure(BROKERS, USAGES)
    Ledger(ledger.spark, ledger.root).ensure(BROKERS, USAGES)
    for table in (BROKERS, USAGES):
        assert described(ledger, table) == (GOLDEN / f"{table.name}.txt").read_text(encoding="utf-8")
    rows = frame(ledger.spark, BROKERS.schema, [{"cluster": "main", "broker_id": number} for number in (1, 2)])
    for version in (1, 1):
        ledger.append(BROKERS, rows, app_id="run-1", version=version)
    ledger.replace_clusters(BROKERS, rows.where("broker_id = 2"), ["main"])
    assert ledger.update(BROKERS, "broker_id = 2", {"rack": "'r2'"}) == 1
    assert ledger.latest_version(BROKERS) == 3
    found = ledger.spark.sql(f"SELECT broker_id, rack FROM {ledger.sql_name(BROKERS)}").collect()
    assert [tuple(row) for row in found] == [(2, "r2")]
    assert ledger.read(BROKERS, version=1).count() == 2


def test_foreign_table_of_a_catalog_is_an_error_and_stays_as_it_is(in_catalog: Ledger) -> None:
    in_catalog.spark.sql(f"CREATE TABLE {in_catalog.location(RUNS)} (run_id STRING) USING parquet")
    with pytest.raises(TableError, match=r"table .*\.runs is not a Delta table: rename it, or set another tables.root"):
        in_catalog.ensure(RUNS)
    assert in_catalog.spark.table(in_catalog.location(RUNS)).columns == ["run_id"]


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        ("spark_catalog.nowhere", "the schema doesn't exist: correct tables.root in the settings, or create it"),
        ("`no such`.kafka", "this Spark has no such catalog: correct tables.root in the settings, or set spark.sql"),
    ],
)
def test_missing_catalog_or_schema_says_what_to_do(spark: SparkSession, root: str, reason: str) -> None:
    with pytest.raises(TableError, match=f"can't be opened or created: {reason}") as error:
        Ledger(spark, root).ensure(RUNS)
    assert "\n" not in str(error.value)


def test_location_of_catalog_tables_is_checked(in_catalog: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = in_catalog._addresses()
    assert folder.startswith("file:")
    in_catalog.ensure(RUNS)
    assert in_catalog._addresses() == [f"{folder}/runs"]
    in_catalog.require_atomic_commits(refuse=True)
    assert Ledger(in_catalog.spark, "spark_catalog.nobody_made")._addresses() == []
    monkeypatch.setattr(Ledger, "_addresses", lambda _: [f"{folder}/runs", "s3://bucket/manifests"])
    with pytest.raises(UsageError, match="tables in s3://bucket/manifests: "):
        in_catalog.require_atomic_commits(refuse=True)


@pytest.mark.thorough
def test_simultaneous_updates_by_several_drivers_all_succeed(ledger: Ledger) -> None:
    """Each rewrites the file with the other drivers' rows: Delta lets one succeed, and the others retry."""
    names = [f"run-{number}" for number in range(4)]
    rows = [{"run_id": name, "state": "planning", "epoch": 1} for name in names]
    ledger.append(RUNS, frame(ledger.spark, RUNS.schema, rows).coalesce(1), app_id="test", version=1)

    def update(name: str) -> int:
        return Ledger(ledger.spark, ledger.root).update(RUNS, f"run_id = '{name}'", {"state": f"'of {name}'"})

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(update, names)) == [1] * len(names)
    assert {row["run_id"]: row["state"] for row in dicts(ledger.read(RUNS))} == {name: f"of {name}" for name in names}


def lease(name: str, changes: int, **given: object) -> dict[str, object]:
    return {**dict.fromkeys(LEASES.schema.names), "cluster_id": name, "changes": changes, **given}


@pytest.mark.parametrize("there_before", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_exactly_one_of_several_drivers_gets_a_row(ledger: Ledger, there_before: bool) -> None:
    if there_before:
        assert ledger.compare_and_set(LEASES, "cluster_id", [lease("one", 1)]) == 1

    def take(name: str) -> int:
        row = lease("one", 2 if there_before else 1, run_id=name)
        return Ledger(ledger.spark, ledger.root).compare_and_set(LEASES, "cluster_id", [row])

    names = [f"run-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(names)) as pool:
        taken = list(pool.map(take, names))
    assert sorted(taken) == [0, 0, 0, 1]
    (row,) = dicts(ledger.read(LEASES))
    assert row["run_id"] == names[taken.index(1)]


@pytest.fixture
def in_tokyo(spark: SparkSession) -> Iterator[None]:
    """Provide a session whose time zone differs from that of the given moments."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("in_tokyo")
def test_rows_are_set_only_if_nobody_changed_them(ledger: Ledger) -> None:
    name = "it's \\ a ${env:HOME} \\u0041 name"
    moment = datetime(2026, 11, 22, 10, 11, 12, 345678, tzinfo=timezone(timedelta(hours=2)))
    read_as = moment.astimezone().replace(tzinfo=None)
    asked = [lease("one", 1, run_id=name, cluster="main"), lease("two", 1, acquired_at=moment, cluster="main")]
    assert ledger.compare_and_set(LEASES, "cluster_id", asked) == 2
    found = {row["cluster_id"]: row for row in dicts(ledger.read(LEASES))}
    assert (found["one"]["run_id"], found["two"]["acquired_at"]) == (name, read_as)

    # All rows existed before; another writer changed one of them.
    again = [{**asked[0], "changes": 2, "released_at": moment}, {**asked[1], "changes": 3, "run_id": "late"}]
    assert ledger.compare_and_set(LEASES, "cluster_id", again) == 1
    again[1] = {**asked[1], "changes": 2, "run_id": f"other {name}"}
    assert ledger.compare_and_set(LEASES, "cluster_id", again) == 1
    # One is new, one changes, and one was changed in the meantime.
    mixed = [lease("three", 1), {**again[1], "changes": 3, "host": "h"}, {**again[0], "changes": 2, "host": "h"}]
    assert ledger.compare_and_set(LEASES, "cluster_id", mixed) == 2
    found = {row["cluster_id"]: row for row in dicts(ledger.read(LEASES))}
    assert {name: row["changes"] for name, row in found.items()} == {"one": 2, "two": 3, "three": 1}
    assert found["one"] == {**dict.fromkeys(LEASES.schema.names), **again[0], "released_at": read_as}
    assert found["two"] == {**dict.fromkeys(LEASES.schema.names), **mixed[1], "acquired_at": read_as}


@pytest.mark.thorough
def test_many_rows_are_set_at_once(ledger: Ledger) -> None:
    names = [f"cluster-{number}" for number in range(40)]
    for changes in (1, 2, 3):
        rows = [lease(name, changes, host=f"{changes} of {name}") for name in names]
        assert ledger.compare_and_set(LEASES, "cluster_id", rows) == len(names)
    found = {row["cluster_id"]: (row["changes"], row["host"]) for row in dicts(ledger.read(LEASES))}
    assert found == {name: (3, f"3 of {name}") for name in names}


@pytest.mark.thorough
def test_rows_of_other_keys_may_change_meanwhile(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that renews its leases doesn't block other runs: nobody has to retry."""
    monkeypatch.setitem(retries.SECONDS, Trouble.CONFLICT, 0.0)
    monkeypatch.setattr(retries, "_LEAST_TRIES", 1)
    names = [f"cluster-{number}" for number in range(3)]
    assert ledger.compare_and_set(LEASES, "cluster_id", [lease(name, 1) for name in names]) == 3

    def renew(name: str) -> list[int]:
        other = Ledger(ledger.spark, ledger.root)
        return [other.compare_and_set(LEASES, "cluster_id", [lease(name, number)]) for number in (2, 3)]

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(renew, names)) == [[1, 1]] * 3
