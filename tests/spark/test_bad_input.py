"""Errors of Sparks, catalogs and permissions that do not fit: what happened, where, and what to do, in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import commands
from tests.harness import UNREACHABLE
from tests.spark.installed import DELTA_SETTINGS, Installed, given_to_spark

# Root writes what it likes, unless it may not.
_BOUND = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def error_of(
    installed: Installed,
    folder: Path,
    command: str = "runs list",
    *,
    root: Path | str | None = None,
    more: str = "",
    before: tuple[str | Path, ...] = (),
    **given: str,
) -> str:
    """Run a command that must fail, with the words `before` it, and return its error, which is one line."""
    config = commands.settings_file(folder, {"main": [UNREACHABLE]}, root=root, more=more)
    if root is None:
        (folder / "ledger").mkdir(exist_ok=True)
    ran = subprocess.run(
        [*before, installed.folder / "bin" / "topicledger", *command.split(), "--config", config],
        cwd=folder,
        env=installed.environment(**given),
        capture_output=True,
        text=True,
        timeout=200,
    )
    errors = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ran.stdout + ran.stderr
    assert ran.returncode in (1, 2)
    assert not any(word in ran.stderr for word in ("Traceback", "\tat ", "Caused by"))
    return errors[0]


def coordinate(installed: Installed) -> str:
    return f"io.delta:delta-spark_{installed.spark.rpartition('.')[0]}_2.13:4.4.0"


def test_spark_without_deltas_jars(installed: Installed, tmp_path: Path) -> None:
    said = error_of(installed, tmp_path, **given_to_spark(tmp_path / "conf", {}))
    assert f"this Spark {installed.spark} has no Delta: give Spark the jars of {coordinate(installed)}" in said


def test_spark_without_deltas_settings(installed: Installed, tmp_path: Path) -> None:
    """A session that spark-submit has given, for the file of a command from a checkout."""
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: one}]\n", encoding="utf-8")
    job = shutil.copy(commands.REPOSITORY / "jobs" / "load_manifests.py", tmp_path)
    submit = (installed.pyspark / "bin" / "spark-submit", "--jars", installed.jars, job)
    ran = subprocess.run(
        [*submit, "topics.yaml", "--config", _settings(tmp_path)],
        cwd=tmp_path,
        env=installed.environment(SPARK_HOME=str(installed.pyspark), PYSPARK_PYTHON=str(installed.python)),
        stdout=subprocess.PIPE,
        # spark-submit itself writes what a Python driver prints, on either stream, to stdout.
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    (said,) = [line for line in ran.stdout.splitlines() if line.startswith("error: ")]
    assert f"table {tmp_path}/" in said
    assert f"has no settings for Delta: set {next(iter(DELTA_SETTINGS))}=" in said
    assert ran.returncode == 1


def test_delta_that_is_too_old_for_its_spark(installed: Installed, tmp_path: Path) -> None:
    old = "3.3.2" if installed.spark.startswith("4.0") else "4.0.0"
    settings = {
        "spark.jars.packages": f"io.delta:delta-spark_2.13:{old}",
        "spark.jars.ivy": str(commands.REPOSITORY / "build" / "ivy"),
    }
    if ivy := os.environ.get("TOPICLEDGER_IVY_SETTINGS"):
        settings["spark.jars.ivySettings"] = ivy
    said = error_of(installed, tmp_path, **given_to_spark(tmp_path / "conf", settings))
    assert f"a jar doesn't fit Spark {installed.spark}, such as Delta's: give Spark the jars of" in said
    assert coordinate(installed) in said


def test_workers_with_another_python(installed: Installed, classic: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: one}]\n", encoding="utf-8")
    executors = '[kafka]\nobserve = "executors"\n'
    loaded = installed.run(tmp_path, "load-manifests", "topics.yaml", "--config", _settings(tmp_path), **classic)
    assert loaded.returncode == 0, loaded.stderr
    said = error_of(installed, tmp_path, "plan", more=executors, PYSPARK_PYTHON=sys.executable, **classic)
    assert "the workers' Python is not the driver's: set PYSPARK_PYTHON to the same minor version" in said


def _settings(folder: Path) -> str:
    return str(commands.settings_file(folder, {"main": [UNREACHABLE]}))


def test_python_that_is_too_old_for_the_wheel(tmp_path: Path) -> None:
    if "TOPICLEDGER_WHEEL" not in os.environ:
        pytest.skip("no wheel was made: make test-spark")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    old = ["--python-version", "3.10", "--dest", str(tmp_path), os.environ["TOPICLEDGER_WHEEL"]]
    ran = subprocess.run([*pip, *old], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "requires a different Python: 3.10.0 not in '<" in ran.stderr


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("nowhere.kafka", "this Spark has no such catalog: correct tables.root in the settings"),
        ("spark_catalog.nowhere", "the schema doesn't exist: correct tables.root in the settings, or create it"),
    ],
)
def test_catalogs_and_schemas_that_are_not_there(
    installed: Installed, classic: Mapping[str, str], tmp_path: Path, root: str, why: str
) -> None:
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: one}]\n", encoding="utf-8")
    said = error_of(installed, tmp_path, "load-manifests topics.yaml", root=root, **classic)
    assert f"table {root}." in said
    assert why in said


def test_a_table_that_is_not_deltas(installed: Installed, remote: str, tmp_path: Path) -> None:
    """In a catalog; the server's is in memory, and all its clients share it."""
    made = (
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.remote('{remote}').getOrCreate()\n"
        f"spark.sql(\"CREATE SCHEMA theirs LOCATION '{tmp_path}/theirs'\")\n"
        "spark.sql('CREATE TABLE theirs.manifests (topic string) USING parquet')\n"
    )
    subprocess.run([installed.python, "-c", made], env=installed.environment(), check=True)
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: one}]\n", encoding="utf-8")
    connect = f'[spark]\nremote = "{remote}"\n'
    for command in ("load-manifests topics.yaml", "plan"):
        said = error_of(installed, tmp_path, command, root="spark_catalog.theirs", more=connect)
        assert "table spark_catalog.theirs.manifests" in said
        assert "t a Delta table: rename it, or set another tables.root" in said


def test_a_principal_that_may_create_nothing(installed: Installed, classic: Mapping[str, str], tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    root.mkdir(mode=0o555)
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: one}]\n", encoding="utf-8")
    bound = tuple(_BOUND)
    said = error_of(installed, tmp_path, "load-manifests topics.yaml", root=root, before=bound, **classic)
    assert f"table {root}/" in said
    assert "this principal lacks a privilege on the schema or the storage of tables.root: grant it" in said


@pytest.mark.parametrize("lacks", ["jars", "settings"])
def test_a_connect_server_without_delta(installed: Installed, tmp_path: Path, lacks: str) -> None:
    settings = {} if lacks == "jars" else {"spark.jars": installed.jars}
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: one}]\n", encoding="utf-8")
    with installed.connect_server(tmp_path, settings) as address:
        more = f'[spark]\nremote = "{address}"\n'
        said = error_of(installed, tmp_path, "load-manifests topics.yaml", more=more)
        if lacks == "jars":
            assert f"has no Delta: give Spark the jars of {coordinate(installed)}" in said
        else:
            assert f"has no settings for Delta: set {next(iter(DELTA_SETTINGS))}=" in said


def test_a_connect_server_that_is_not_there(installed: Installed, tmp_path: Path) -> None:
    said = error_of(installed, tmp_path, more='[spark]\nremote = "sc://127.0.0.1:1"\n')
    assert "the Spark Connect server sc://127.0.0.1:1 can't be used: " in said
    assert said.endswith("check [spark] remote in the settings or SPARK_REMOTE, and that it is up")
