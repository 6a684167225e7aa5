"""A fresh environment with the Spark that TOPICLEDGER_SPARK names, and the wheel.

`scripts/test_spark.sh` (`make test-spark`) runs these tests once for each Spark; elsewhere they are skipped.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.installed import DELTA_SETTINGS, Installed, given_to_spark


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    spark = os.environ.get("TOPICLEDGER_SPARK")
    if spark is None:
        pytest.skip("no Spark is named to install the wheel beside: make test-spark")
    made = Installed(
        spark=spark,
        folder=tmp_path_factory.mktemp("environment"),
        delta=sorted(Path(os.environ["TOPICLEDGER_SPARK_JARS"]).glob("delta-*.jar")),
    )
    subprocess.run([os.environ["TOPICLEDGER_SPARK_PYTHON"], "-m", "venv", made.folder], check=True)
    install(made, f"pyspark[connect]=={spark}")
    before = packages(made)
    install(made, os.environ["TOPICLEDGER_WHEEL"])
    after = packages(made)
    assert {name: after[name] for name in before} == before, "the wheel keeps what the cluster has"
    assert after["pyspark"] == spark
    assert "delta-spark" not in after
    return made


def install(environment: Installed, *what: str) -> None:
    command = [environment.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2"]
    subprocess.run([*command, *what], env=environment.environment(), check=True)


def packages(environment: Installed) -> dict[str, str]:
    """Return the packages of an environment with their versions."""
    command = [environment.python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]
    done = subprocess.run(command, env=environment.environment(), capture_output=True, text=True, check=True)
    return dict(line.split("==") for line in done.stdout.split())


@pytest.fixture(scope="session")
def classic(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Spark with Delta's jars by `spark.jars`."""
    return given_to_spark(tmp_path_factory.mktemp("given") / "conf", {"spark.jars": installed.jars})


@pytest.fixture(scope="session")
def remote(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of Spark Connect with Delta."""
    folder = tmp_path_factory.mktemp("server")
    with installed.connect_server(folder, {"spark.jars": installed.jars, **DELTA_SETTINGS}) as address:
        yield address
