"""`tables.root = "catalog.schema"`: every command, with Spark's own session catalog and with a second, named one."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests import commands
from tests.clusters import JARS
from tests.java import compile_java
from topicledger import cli
from topicledger.config.settings import Settings, TablesSettings
from topicledger.ledger.tables import Ledger
from topicledger.queries import views
from topicledger.schemas import AUDIT, DRIFT, MANIFESTS, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka

SOURCE = commands.REPOSITORY / "tests" / "second_catalog" / "SecondCatalog.java"


@pytest.fixture(scope="module")
def second(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a catalog that isn't the session's own."""
    folder = tmp_path_factory.mktemp("second-catalog")
    jars = (Path(pyspark.__file__).parent / "jars", JARS.parent / "delta")
    compiled = compile_java(SOURCE, [each / "*" for each in jars], folder)
    jar = folder / "second.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.write(compiled, compiled.name)
    # Where Delta's own jars are: Java's first class loader, that of a class path, doesn't know them.
    spark.sql(f"ADD JAR {jar}")
    spark.conf.set("spark.sql.catalog.second-one", SOURCE.stem)
    return "`second-one`"


@pytest.fixture(params=["session", "second"])
def root(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """An empty schema."""
    catalog = "spark_catalog" if request.param == "session" else request.getfixturevalue("second")
    schema = f"{catalog}.ledger_{request.param}"
    spark.sql(f"CREATE DATABASE {schema} LOCATION '{tmp_path / 'schema'}'")
    yield schema
    spark.sql(f"DROP DATABASE {schema} CASCADE")


@pytest.mark.thorough
def test_every_command_works_with_tables_in_a_schema(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, root: str
) -> None:
    config = commands.settings_file(tmp_path, {"main": list(kafka.bootstrap_servers)}, root=root)
    on_create = "on_create = [\"ALTER TABLE {table} SET TBLPROPERTIES ('team' = 'platform')\"]"
    config.write_text(config.read_text().replace("[tables]", f"[tables]\n{on_create}"))
    topic = f"catalogs.{root.rpartition('.')[2]}"
    manifest = tmp_path / "topics.yaml"
    manifest.write_text(f"cluster: main\ntopics:\n  - {{topic: {topic}, num_partitions: 2}}\n", encoding="utf-8")
    page, exported = tmp_path / "report.html", tmp_path / "exported.yaml"

    def done(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli.main, [*arguments, "--config", str(config)])
        assert result.exit_code == code, result.output + repr(result.exception)
        return result.output

    done("load_manifests", str(manifest), "--run-id", "loaded")
    done("plan", "--run-id", "saved", "--detailed-exitcode", code=3)
    done("apply", "--run-id", "saved")
    done("provision", "--run-id", "again")
    done("drift", "--run-id", "looked")
    done("report", "--run-id", "saved", "--out", str(page))
    done("export", "--cluster", "main", "--to", str(exported))
    runs = {run["run_id"]: run["state"] for run in json.loads(done("runs", "list", "--format", "json"))["runs"]}
    assert runs == dict.fromkeys(("loaded", "saved", "again", "looked"), "finished")
    assert topic in page.read_text(encoding="utf-8").replace("<wbr>", "")
    assert topic in exported.read_text(encoding="utf-8")

    ledger = Ledger(spark, root)
    assert [row["topic"] for row in ledger.read(MANIFESTS).collect()] == [topic]
    phases = {row["phase"]: row["outcome"] for row in ledger.read(AUDIT).where("run_id = 'saved'").collect()}
    assert phases == {"validate": "ok", "apply": "ok", "verify": "ok"}
    assert ledger.read(RUNS).count() == 4
    assert ledger.read(DRIFT).where(f"topic = '{topic}'").count() == 0
    asked = done("sql", "SELECT resource, requested_by FROM changes", "--format", "csv")
    assert asked.splitlines()[1].startswith(f"{topic},")
    if "second-one" in root:
        assert "can't be created" in done("views", code=1), "this catalog has no views"
    else:
        done("views")
        done("views")
        assert spark.table(f"{root}.changes").where(f"topic = '{topic}'").count() == 1
        assert spark.table(f"{root}.cost_by_owner").count() == 1
        assert spark.catalog.currentDatabase() == "default"
    names = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {root}").collect()}
    teams = {
        spark.sql(f"SHOW TBLPROPERTIES {root}.{name} ('team')").collect()[0]["value"] for name in ("audit", "runs")
    }
    assert teams == {"platform"}
    assert {"manifests", "plans", "audit", "runs", "observed", "brokers", "usages", "leases", "drift"} <= names


@pytest.mark.thorough
def test_views_have_null_for_columns_that_a_table_of_others_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """A ledger of an older version: its `manifests`, which other tools write, has no description."""
    root = "spark_catalog.ledger_older"
    spark.sql(f"CREATE DATABASE {root} LOCATION '{tmp_path / 'schema'}'")
    try:
        columns = ", ".join(
            f"`{each.name}` {each.dataType.simpleString()}" for each in MANIFESTS.schema if each.name != "description"
        )
        spark.sql(f"CREATE TABLE {root}.manifests ({columns}) USING delta")
        settings = Settings(path=Path("x"), tables=TablesSettings(root=root), clusters={})
        assert "current_topics" in views.create(Ledger(spark, root), settings)
        assert "description" in spark.table(f"{root}.current_topics").columns
        assert "description" not in spark.table(f"{root}.manifests").columns
    finally:
        spark.sql(f"DROP DATABASE {root} CASCADE")


@pytest.mark.thorough
def test_tables_are_in_a_hive_metastore(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The metastore of Spark's own jars, with Derby; its schema `default` exists."""
    config = commands.settings_file(tmp_path, {"main": list(kafka.bootstrap_servers)}, root="spark_catalog.default")
    manifest = tmp_path / "topics.yaml"
    manifest.write_text("cluster: main\ntopics:\n  - {topic: catalogs.hive}\n", encoding="utf-8")
    given = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
        "spark.driver.defaultJavaOptions": f"-Dderby.system.home={tmp_path} -Djava.io.tmpdir={tmp_path}",
    }
    spark = " ".join(f"--conf '{name}={value}'" for name, value in given.items())

    def done(*arguments: str) -> str:
        ran = commands.run(
            commands.command(*arguments, "--config", str(config)), PYSPARK_SUBMIT_ARGS=f"{spark} pyspark-shell"
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    done("load_manifests", str(manifest))
    done("provision", "--run-id", "one")
    assert '"finished"' in done("runs", "list", "--format", "json")
    assert (tmp_path / "metastore").is_dir()
    assert {"manifests", "plans", "audit", "runs"} <= {each.name for each in (tmp_path / "warehouse").iterdir()}
