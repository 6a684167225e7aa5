"""The session's settings stand in two places: for spark-submit, and for sessions that it didn't start."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.served import serving
from tests.listening import listened_on
from tests.processes import family
from topicledger.errors import UsageError
from topicledger.ledger import jars
from topicledger.ledger.session import (
    BY_HAND_JAVA_OPTIONS,
    DEFAULTS,
    FEW_ROWS,
    S3_LOG_STORE,
    for_few_rows,
    log_folder,
    open_log,
    workers_python,
)


def test_spark_defaults_conf_says_what_the_package_says() -> None:
    said = commands.spark_defaults()
    assert {key: said.get(key) for key in DEFAULTS} == dict(DEFAULTS)


def test_commits_on_s3_are_made_by_the_same_store_under_spark_submit(spark: SparkSession) -> None:
    script = commands.SUBMIT.read_text(encoding="utf-8")
    for key, value in S3_LOG_STORE.items():
        assert f"--conf {key}={value}" in script
        assert spark.sparkContext.getConf().get(key) == value


def test_java_knows_the_options() -> None:
    """Sessions of tests are started with others."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    options = f"{BY_HAND_JAVA_OPTIONS} {commands.spark_defaults()['spark.driver.defaultJavaOptions']}"
    done = subprocess.run([java, *options.split(), "-version"], capture_output=True, text=True)
    assert (done.returncode, "ignored" in done.stderr) == (0, False), done.stderr


def test_queries_are_for_few_rows_within_and_for_many_again_when_asked(spark: SparkSession) -> None:
    session = spark.newSession()
    before = {name: session.conf.get(name) for name in FEW_ROWS}
    with for_few_rows(session) as for_many:
        within = {name: session.conf.get(name) for name in FEW_ROWS}
        for_many()
        large = {name: session.conf.get(name) for name in FEW_ROWS}
    assert before == {name: default for name, (default, _) in FEW_ROWS.items()}
    assert within == {name: few for name, (_, few) in FEW_ROWS.items()}
    assert large == before
    with for_few_rows(session):
        pass
    assert {name: session.conf.get(name) for name in FEW_ROWS} == before


def test_sparks_own_catalog_is_outside_the_working_folder(spark: SparkSession) -> None:
    spark.sql("SHOW DATABASES").collect()
    folder = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir") or "").path)
    assert folder.is_dir()
    assert not folder.is_relative_to(Path.cwd())


def test_a_setting_that_somebody_chose_stays(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "64")
    with for_few_rows(session) as for_many:
        assert session.conf.get("spark.sql.shuffle.partitions") == "64"
        assert session.conf.get("spark.sql.adaptive.enabled") == "false"
        for_many()
    assert session.conf.get("spark.sql.shuffle.partitions") == "64"


def test_settings_that_nobody_made_have_spark_defaults_again(spark: SparkSession) -> None:
    """A session of a server of Spark Connect, or of a platform: its defaults aren't topicledger's."""
    session = spark.newSession()
    for name in FEW_ROWS:
        session.conf.unset(name)
    with for_few_rows(session):
        assert {name: session.conf.get(name) for name in FEW_ROWS} == {name: few for name, (_, few) in FEW_ROWS.items()}
    assert {name: session.conf.get(name, None) for name in FEW_ROWS} == dict.fromkeys(FEW_ROWS)
    assert session.conf.get("spark.sql.shuffle.partitions") == "200"


def _path_of(python_path: str) -> list[str]:
    """Where `scripts/python.sh` looks for modules, and where it finds pyspark, with that PYTHONPATH."""
    script = commands.REPOSITORY / "scripts" / "python.sh"
    say = "import os, pyspark; print(os.environ['PYTHONPATH']); print(pyspark.__file__)"
    environment = {**os.environ, "TOPICLEDGER_PYTHON": sys.executable, "PYTHONPATH": python_path}
    done = subprocess.run([script, "-c", say], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_pyspark_is_imported_as_installed_and_not_from_sparks_zip() -> None:
    installed = Path(pyspark.__file__)
    archives = sorted(map(str, (installed.parent / "python" / "lib").glob("*.zip")))
    assert archives
    assert _path_of(":".join([*archives, "/some/where", "/else where"])) == ["/some/where:/else where", str(installed)]
    assert _path_of(":".join(archives)) == ["", str(installed)]


def test_the_zip_of_another_spark_stays(tmp_path: Path) -> None:
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as other:
        other.writestr("pyspark/__init__.py", "")
    assert _path_of(str(archive)) == [str(archive), f"{archive}/pyspark/__init__.py"]


def test_a_sessions_python_for_workers_is_restored_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that this process starts choose again; a choice by the user is kept."""
    for name in ("PYSPARK_PYTHON", "TOPICLEDGER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with workers_python():
        assert os.environ["PYSPARK_PYTHON"].endswith("scripts/python.sh")
        assert os.environ["TOPICLEDGER_PYTHON"] == sys.executable
    assert dict(os.environ) == before
    monkeypatch.setenv("TOPICLEDGER_PYTHON", "/some/python")
    with workers_python():
        assert os.environ["TOPICLEDGER_PYTHON"] == sys.executable
    assert os.environ["TOPICLEDGER_PYTHON"] == "/some/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "/some/python")
    with workers_python():
        assert os.environ["PYSPARK_PYTHON"] == "/some/python"
    assert os.environ["PYSPARK_PYTHON"] == "/some/python"


def test_spark_logs_into_a_file_that_only_this_user_reads(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        number = open_log(tmp_path)
        os.write(number, text)
        os.close(number)
    log = tmp_path / "spark.log"
    assert (log.read_bytes(), log.stat().st_mode & 0o777) == (b"onetwo", 0o600)


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder", "another user's"])
def test_spark_does_not_log_into_what_others_put_there(tmp_path: Path, kind: str) -> None:
    (precious := tmp_path / "precious").write_text("as it was")
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    log = folder / "spark.log"
    if kind == "link":
        log.symlink_to(precious)
    elif kind == "second name":
        log.hardlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(log)
    elif kind == "folder":
        log.mkdir()
    elif os.getuid() != 0:
        pytest.skip("only root can make a file another user's")
    else:
        log.write_text("")
        os.chown(log, 12345, 12345)
    with pytest.raises(UsageError, match="Set TOPICLEDGER_LOG_DIR to a folder of your own"):
        open_log(folder)
    assert precious.read_text() == "as it was"


def test_the_folder_of_the_log_in_the_temporary_folder_is_this_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may create it first, with a log in it that everybody may write and its owner reads."""
    monkeypatch.delenv("TOPICLEDGER_LOG_DIR", raising=False)
    monkeypatch.setattr(jars, "CHECKOUT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert stat.S_IMODE(log_folder().stat().st_mode) == 0o700
    somebody = os.getuid()
    (theirs := tmp_path / f"topicledger-{somebody + 1}").mkdir()
    (theirs / "spark.log").touch(0o666)
    monkeypatch.setattr(os, "getuid", lambda: somebody + 1)
    with pytest.raises(UsageError, match="Set TOPICLEDGER_LOG_DIR to a folder of your own"):
        open_log(log_folder())


@pytest.mark.parametrize("kind", ["link to nothing", "link", "hard link", "pipe", "somebody else's"])
def test_spark_submit_logs_into_no_file_that_somebody_else_may_have_made(tmp_path: Path, kind: str) -> None:
    folder, log, other = tmp_path / "logs", tmp_path / "logs" / "spark.log", tmp_path / "precious"
    folder.mkdir()
    if kind != "link to nothing":
        other.write_text("precious")
    if kind in ("link to nothing", "link"):
        log.symlink_to(other)
    elif kind == "hard link":
        log.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(log)
    elif os.getuid() == 0:
        folder.chmod(0o777)
        log.touch()
        os.chown(log, 65534, -1)
    else:
        pytest.skip("only root can give a file to somebody else")
    done = submitted(folder)
    assert done.returncode == 2
    assert "set TOPICLEDGER_LOG_DIR to a folder of your own" in done.stderr
    assert other.exists() is (kind != "link to nothing")


@pytest.mark.thorough
def test_only_its_owner_can_read_a_log_that_spark_submit_makes(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        done = submitted(tmp_path, "--help")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / "spark.log").stat().st_mode) == 0o600


def submitted(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a job that has no settings; its log would be in the folder."""
    return subprocess.run(
        [commands.SUBMIT, "jobs/plan.py", *arguments],
        env={**os.environ, "TOPICLEDGER_LOG_DIR": str(folder)},
        capture_output=True,
        text=True,
    )


def test_a_command_by_hand_listens_on_loopback_only(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    java = context._jvm.java.lang.ProcessHandle.current().pid()
    listening = listened_on(java)
    assert listening
    assert {address for address in listening if not address.is_loopback} == set()


@pytest.mark.thorough
def test_a_server_listens_on_loopback_only(tmp_path: Path) -> None:
    """Its Python, its Java, and what these start; commands reach it by a Unix socket."""
    config = commands.settings_file(tmp_path, {"main": ["127.0.0.1:1"]})
    with tempfile.TemporaryDirectory(prefix="tl-") as sockets:
        library = str(commands.REPOSITORY / "lib")
        environment = {**os.environ, "PYTHONPATH": library, "TOPICLEDGER_SOCKET_DIR": sockets}
        environment.pop("SPARK_LOCAL_IP", None)
        with serving(config, environment=environment) as server:
            listening = {address for pid in family(server.pid) for address in listened_on(pid)}
    assert listening
    assert {address for address in listening if not address.is_loopback} == set()


def test_java_that_does_not_start_is_named_with_where_it_printed_why(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'the class needs Java 17' >&2\nexit 1\n", encoding="utf-8")
    java.chmod(0o755)
    start = "from topicledger.ledger.session import get_session\nget_session('test')"
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "TOPICLEDGER_"))}
    logs = {"JAVA_HOME": str(tmp_path), "TOPICLEDGER_LOG_DIR": str(tmp_path / "logs")}
    done = subprocess.run([sys.executable, "-c", start], env={**given, **logs}, capture_output=True, text=True)
    log = tmp_path / "logs" / "spark.log"
    assert (
        f"TopicLedgerError: Java did not start, or ended at once; what it printed is in {log}. Spark nee" in done.stderr
    )
    assert "the class needs Java 17" in log.read_text(encoding="utf-8")


def test_python_without_spark_is_an_error_in_one_line(tmp_path: Path) -> None:
    start = (
        "import sys\nsys.modules['pyspark'] = None\nsys.argv = ['topicledger', '--version']\n"
        "from topicledger.serving.client import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True)
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"error: {sys.executable} has no Spark (no module pyspark")
    assert "): install 'topicledger[spark]', or pyspark in the version of your Spark" in said
    assert done.returncode == 1
