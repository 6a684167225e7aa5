"""Delta tables for tests: created once, then copied, which is faster than creating them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from topicledger.ledger.tables import Ledger, all_tables


@pytest.fixture(scope="package")
def pristine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Provide a ledger with all its tables, empty; read only."""
    ledger = Ledger(spark, str(tmp_path_factory.mktemp("pristine") / "ledger"))
    all_tables(ledger)
    return ledger


@pytest.fixture
def ledger(spark: SparkSession, pristine: Ledger, tmp_path: Path) -> Ledger:
    """Provide a ledger for one test, with all its tables, empty."""
    root = tmp_path / "ledger"
    shutil.copytree(pristine.root, root)
    return Ledger(spark, str(root))
