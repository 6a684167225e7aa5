"""Where a session gets Delta from, and errors of jars that are missing or don't fit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from tests import commands
from topicledger.errors import TopicLedgerError
from topicledger.ledger import jars
from topicledger.ledger.retries import first_sentence

SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment without a checkout, without a package of Delta, on Spark 4.1."""
    monkeypatch.setattr(jars, "CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setattr(jars, "_installed", lambda: None)
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    for name in ("TOPICLEDGER_JARS", SUBMIT_ARGS, "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def delta_in(folder: Path, spark: str = "4.1") -> Path:
    folder.mkdir(parents=True)
    jar = folder / f"delta-spark_{spark}_2.13-4.4.0.jar"
    jar.touch()
    return jar


@pytest.mark.parametrize("below", ["", "delta"])
def test_jars_are_those_of_the_folder_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    jar = delta_in(tmp_path / "jars" / below)
    monkeypatch.setenv("TOPICLEDGER_JARS", str(tmp_path / "jars"))
    assert jars.session_jars()["spark.jars"].split(",")[0] == str(jar)
    assert jars.delta_version() == "4.4.0"


def test_jars_for_another_spark_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta_in(tmp_path / "jars", "4.2")
    monkeypatch.setenv("TOPICLEDGER_JARS", str(tmp_path / "jars"))
    with pytest.raises(
        TopicLedgerError, match=r"is for Spark 4\.2, and this is Spark 4\.1\.4: .*delta-spark_4\.1_2\.13"
    ):
        jars.session_jars()


def test_named_folder_without_delta_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICLEDGER_JARS", str(tmp_path))
    with pytest.raises(
        TopicLedgerError, match=f"no Delta jars in {tmp_path}, which .*: put those of io.delta:delta-spark_4.1"
    ):
        jars.session_jars()
    monkeypatch.setenv("TOPICLEDGER_JARS", "")
    assert jars.session_jars() == {}
    monkeypatch.setenv("TOPICLEDGER_JARS", str(delta_in(tmp_path / "a, b").parent))
    with pytest.raises(
        TopicLedgerError, match=f"{tmp_path}/a, b: Spark takes a comma for the end of a jar's path: move"
    ):
        jars.session_jars()


def test_spark_home_must_have_the_spark_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars.require_home()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(TopicLedgerError, match=f"there is no Spark in {tmp_path}, which SPARK_HOME names: correct or"):
        jars.require_home()
    for name in ("bin/spark-submit", "jars/spark-core_2.13-4.2.0.jar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(
        TopicLedgerError, match=r"has Spark 4\.2, and this Python has PySpark 4\.1\.4: unset it, or install"
    ):
        jars.require_home()
    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    jars.require_home()


def test_delta_that_spark_brings_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMIT_ARGS, "--packages io.delta:delta-spark_4.1_2.13:4.3.0 pyspark-shell")
    assert (jars.session_jars(), jars.delta_version()) == ({}, "4.3.0")
    monkeypatch.delenv(SUBMIT_ARGS)
    (tmp_path / "spark-defaults.conf").write_text("spark.jars /opt/delta-spark_4.1_2.13-4.2.0.jar\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert (jars.session_jars(), jars.delta_version()) == ({}, "4.2.0")
    monkeypatch.delenv("SPARK_CONF_DIR")
    delta_in(tmp_path / "spark" / "jars")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert (jars.session_jars(), jars.delta_version()) == ({}, "4.4.0")


def test_package_of_delta_names_the_jars_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_installed", lambda: "4.4.1")
    assert jars.session_jars() == {"spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.1"}


def test_old_spark_is_refused_and_an_untested_one_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jars.require_spark() is None
    monkeypatch.setattr(pyspark, "__version__", "4.9.0")
    assert jars.require_spark() == "Spark 4.9.0 is untested: topicledger is tested with 4.0, 4.1, 4.2"
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(TopicLedgerError, match=r"Spark 3\.5\.9 is too old"):
        jars.require_spark()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "Cannot find catalog plugin class for catalog 'spark_catalog': "
            "org.apache.spark.sql.delta.catalog.DeltaCatalog.",
            "this Spark 4.1.4 has no Delta: give Spark the jars of io.delta:delta-spark_4.1_2.13:4.4.0",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure", "this Spark 4.1.4 has no Delta"),
        ("x\n: java.lang.NoSuchMethodError: 'void org.apache.Some.apply()'\n\tat a", "a jar doesn't fit Spark 4.1.4"),
        (
            "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] This Delta operation requires",
            "this Spark session has no settings for Delta: set spark.sql.extensions=io.delta.sql.Delta",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver: 3.12",
            "the workers' Python is not the driver's: set PYSPARK_PYTHON to the same minor version on every machine",
        ),
        (
            "[SCHEMA_NOT_FOUND] The schema `spark_catalog`.`nowhere` cannot be found.",
            "the schema doesn't exist: correct tables.root in the settings, or create it (CREATE SCHEMA): [SCHEMA_NOT",
        ),
        (
            "[CATALOG_NOT_FOUND] The catalog `lake` not found.",
            "this Spark has no such catalog: correct tables.root in the settings",
        ),
        (
            "spark_catalog.x.runs is not a Delta table.",
            "a table of that name isn't a Delta table: rename it, or set another tables.root",
        ),
        (
            "[INSUFFICIENT_PERMISSIONS] Insufficient privileges: User does not have CREATE SCHEMA on catalog `lake`.",
            "this principal lacks a privilege on the schema or the storage of tables.root: grant it",
        ),
        (
            "[DELTA_CANNOT_CREATE_LOG_PATH] Cannot create file:/ledger/runs/_delta_log",
            "this principal lacks a privilege on the schema or the storage of tables.root: grant it",
        ),
    ],
)
def test_error_of_a_jar_says_what_to_do(text: str, why: str) -> None:
    said = first_sentence(Py4JError(text))
    assert said.startswith(why)
    assert "\n" not in said


def test_an_untested_delta_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jars.untested_delta() is None, "unknown"
    for version, warning in (
        ("4.4.1", None),
        ("4.3.0", "Delta 4.3.0 is untested: topicledger is tested with Delta 4.4.0"),
    ):
        monkeypatch.setenv(SUBMIT_ARGS, f"--packages io.delta:delta-spark_4.1_2.13:{version} pyspark-shell")
        assert jars.untested_delta() == warning


@pytest.mark.parametrize("started", [True, False])
def test_errors_of_delta_name_the_spark_of_the_server(monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    """The client has Spark 4.1; without a session, the server's version is unknown."""

    def active() -> object:
        if not started:
            raise PySparkRuntimeError("[NO_ACTIVE_OR_DEFAULT_SESSION] No active or default Spark session found.")
        return SimpleNamespace(version="4.0.5")

    monkeypatch.setattr(jars, "is_remote", lambda: True)
    monkeypatch.setattr(jars.SparkSession, "active", active)
    expected = ("4.0.5", "4.0") if started else ("4.1.4", "4.1")
    for text, why in (
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.", "this Spark {} has no Delta: give Spark"),
        ("java.lang.NoSuchMethodError: 'void a.b.apply()'", "a jar doesn't fit Spark {}, such as Delta's: give Spark"),
    ):
        said = first_sentence(PySparkRuntimeError(text))
        assert said.startswith(f"{why.format(expected[0])} the jars of io.delta:delta-spark_{expected[1]}_2.13:4.4.0")


@pytest.mark.thorough
def test_wheel_has_all_that_the_package_reads(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in (".venv", "lib", "schemas", "conf", "build", "pyproject.toml", "README.md"):
        (checkout / name).symlink_to(commands.REPOSITORY / name)
    shutil.copytree(commands.REPOSITORY / "scripts", checkout / "scripts")
    subprocess.run([checkout / "scripts" / "wheel.sh"], check=True, capture_output=True, text=True)
    (wheel,) = (checkout / "dist").glob("topicledger-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    package = commands.REPOSITORY / "lib" / "topicledger"
    data = {path.relative_to(package) for path in package.rglob("*") if path.is_file() and path.suffix not in (".pyc",)}
    data |= {Path("conf", path.name) for path in (commands.REPOSITORY / "conf").iterdir()}
    data |= {Path("schemas", path.name) for path in (commands.REPOSITORY / "schemas").glob("*.py")}
    missing = {path for path in data if path.suffix != ".java" and not (site / "topicledger" / path).is_file()}
    assert missing == set()
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from topicledger.cli import main; main(['--version'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith("topicledger 0.1.0, spark "), done.stderr
