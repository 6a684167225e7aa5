"""Delta tables for tests: created once, then copied, which is faster than creating them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness import empty_ledger
from topicledger.ledger.tables import Ledger


@pytest.fixture(scope="session")
def pristine(spark: SparkSession) -> Ledger:
    """Provide a ledger with all its tables, empty; read only."""
    return Ledger(spark, str(empty_ledger(spark)))


@pytest.fixture
def ledger(spark: SparkSession, pristine: Ledger, tmp_path: Path) -> Ledger:
    """Provide a ledger for one test, with all its tables, empty."""
    root = tmp_path / "ledger"
    shutil.copytree(pristine.root, root)
    return Ledger(spark, str(root))
