"""Airflow as users run it: its own environment, its own home, tasks that call spark-submit.

If it isn't installed (`make setup-airflow`), these tests are skipped, unless TOPICLEDGER_AIRFLOW=required.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import QUICK_JAVA, REPOSITORY

REQUIRED = os.environ.get("TOPICLEDGER_AIRFLOW") == "required"
PYTHON = REPOSITORY / "build" / "airflow" / "bin" / "python"
DAGS = REPOSITORY / "examples" / "airflow"
RUN_DAG = Path(__file__).with_name("run_dag.py")
_LONGEST_RUN = 800
"""Time limit in seconds; a run has four cold spark-submits and takes at most 90 s on two idle cores."""


class Airflow:
    """An Airflow with its own empty database."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._runs = 0
        (home / "dags").mkdir()
        (home / "dags" / "topicledger_dag.py").symlink_to(DAGS / "topicledger_dag.py")

    def environment(self, config: Path) -> dict[str, str]:
        """Return the environment of Airflow's processes, without this process's Python."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "AIRFLOW"))
        }
        binaries = Path(sys.executable).parent
        return {
            **kept,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHONPATH": str(self._home / "dags"),
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            "TOPICLEDGER_HOME": str(REPOSITORY),
            "TOPICLEDGER_CONFIG": str(config),
        }

    def migrate(self) -> None:
        """Create the database."""
        done = subprocess.run(
            [str(PYTHON), "-m", "airflow", "db", "migrate"],
            env=self.environment(Path("unused")),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, config: Path) -> DagRun:
        """Begin a run of the DAG."""
        self._runs += 1
        return DagRun(self._home / f"run-{self._runs}.json", self.environment(config))

    def run(self, config: Path) -> Mapping[str, Any]:
        """Run the DAG to its end; return the states of the run and of its tasks."""
        with self.start(config) as run:
            return run.wait()


class DagRun:
    """A run of the DAG, under way."""

    def __init__(self, told: Path, environment: Mapping[str, str]) -> None:
        self._told = told
        self._log = told.with_suffix(".log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [str(PYTHON), str(RUN_DAG), str(told)], env=environment, cwd=told.parent, stdout=log, stderr=log
            )

    def __enter__(self) -> DagRun:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()

    def wait(self) -> Mapping[str, Any]:
        """Wait until the run has ended; return the states of the run and of its tasks."""
        try:
            self.process.wait(timeout=_LONGEST_RUN)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the DAG run takes over {_LONGEST_RUN} s: {self._log.read_text(encoding='utf-8')[-20_000:]}")
        log = self._log.read_text(encoding="utf-8")
        assert self._told.exists(), log[-20_000:]
        told: Mapping[str, Any] = {**json.loads(self._told.read_text(encoding="utf-8")), "log": log}
        return told


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    if not PYTHON.exists():
        reason = "there is no Airflow in build/airflow: make setup-airflow"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "package.py")], stdout=subprocess.DEVNULL, check=True)
    made = Airflow(tmp_path_factory.mktemp("airflow"))
    made.migrate()
    return made
