"""Commands of a principal that may only read `manifests`, which another tool writes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests import commands
from tests.harness import Estate
from topicledger.schemas import MANIFESTS
from topicledger_testing.embedded_kafka import EmbeddedKafka

_LACKS = ("labels", "placement", "replaces", "description")
"""Columns that the other tool doesn't know."""


def files_of(table: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in table.rglob("*")}


Theirs = tuple[Path, Callable[..., subprocess.CompletedProcess[str]]]


@pytest.fixture
def theirs(estate: Estate, kafka: EmbeddedKafka, tmp_path: Path) -> Theirs:
    """A table `manifests` that may only be read, and a function that runs a command as one who may do no more."""
    table = Path(estate.ledger.location(MANIFESTS).replace("ledger", "theirs"))
    config = commands.settings_file(tmp_path, {"main": list(kafka.bootstrap_servers)}, root=table.parent)
    row = {"cluster": "main", "topic": "others.table", "state": "present", "num_partitions": 1}
    estate.ledger.rows(MANIFESTS, [row]).drop(*_LACKS).write.format("delta").save(str(table))
    for path in table.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    table.chmod(0o555)
    # Root writes what it likes, unless it may not.
    root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []

    def done(*arguments: str) -> subprocess.CompletedProcess[str]:
        return commands.run([*root, *commands.command(*arguments, "--config", str(config))])

    return table, done


@pytest.mark.thorough
def test_a_principal_that_may_only_read_manifests_plans(estate: Estate, theirs: Theirs) -> None:
    table, done = theirs
    before = files_of(table)
    planned = done("plan", "--run-id", "read-only", "--detailed-exitcode")
    assert planned.returncode == 3, planned.stderr
    assert files_of(table) == before
    found = estate.spark.read.format("delta").load(str(table))
    assert not set(_LACKS) & set(found.columns)
    assert found.where(F.col("topic") == "others.table").count() == 1


@pytest.mark.thorough
def test_a_principal_that_may_only_read_manifests_audits_and_loads_nothing(theirs: Theirs, tmp_path: Path) -> None:
    table, done = theirs
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: others.table}]\n", encoding="utf-8")
    before = files_of(table)
    audited = done("drift", "--topic", "^others[.]table$", "--fail-on", "warning")
    assert (audited.returncode, "missing" in audited.stdout) == (3, True), audited.stderr
    refused = done("load-manifests", str(tmp_path / "topics.yaml"))
    assert (refused.returncode, f"table {table} can't be" in refused.stderr) == (1, True), refused.stderr
    assert files_of(table) == before
