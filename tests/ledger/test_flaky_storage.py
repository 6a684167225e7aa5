"""A storage that fails every fourth commit, before or after writing it: no rows are lost or duplicated."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import commands
from tests.ledger.exercise import ROUNDS
from tests.plugin_storage import FlakyStorage
from tests.unit.frames import dicts
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, BROKERS, LEASES, MANIFESTS, RUNS


@pytest.mark.thorough
def test_writes_to_failing_storage_are_neither_lost_nor_duplicated(
    pristine: Ledger, flaky_storage: FlakyStorage, tmp_path: Path
) -> None:
    """Covers every way of writing: append, UPDATE, compare and set, replace, MERGE, and creating tables."""
    root = tmp_path / "ledger"
    done = commands.run(
        [sys.executable, "-m", "tests.ledger.exercise", str(root)],
        PYTHONPATH=str(commands.REPOSITORY / "lib"),
        **flaky_storage.environment(every=4),
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])

    failures = flaky_storage.failures()
    assert set(failures) == {"before", "after", "exists"}
    assert sum(failures.values()) >= ROUNDS
    ledger = Ledger(pristine.spark, str(root))
    assert sorted(row["topic"] for row in dicts(ledger.read(AUDIT))) == sorted(expected["audit"])
    assert sorted(row["broker_id"] for row in dicts(ledger.read(BROKERS))) == expected["brokers"]
    assert sorted(row["topic"] for row in dicts(ledger.read(MANIFESTS))) == sorted(expected["manifests"])
    assert {row["run_id"]: row["state"] for row in dicts(ledger.read(RUNS))} == expected["runs"]
    assert [row["changes"] for row in dicts(ledger.read(LEASES))] == [expected["changes"]]
