"""Delta tables for tests: made once, then copied, which is quicker than making them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from topicledger.ledger.tables import Ledger, all_tables


@pytest.fixture(scope="package")
def pristine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A ledger with all its tables, empty: to look at, not to write to."""
    ledger = Ledger(spark, str(tmp_path_factory.mktemp("pristine") / "ledger"))
    all_tables(ledger)
    return ledger


@pytest.fixture
def ledger(spark: SparkSession, pristine: Ledger, tmp_path: Path) -> Ledger:
    """A ledger of one's own with all its tables, empty."""
    root = tmp_path / "ledger"
    shutil.copytree(pristine.root, root)
    return Ledger(spark, str(root))
