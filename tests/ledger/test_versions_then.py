"""A plan from earlier manifests uses the same moment for every declared table."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import messages_of
from tests.harness import Estate
from topicledger.ledger import runs
from topicledger.schemas import ACLS, MANIFESTS, QUOTAS, Table


def append(estate: Estate, table: Table, **values: Any) -> None:
    rows = estate.ledger.rows(table, [{"cluster": "main", "state": "present", **values}])
    estate.ledger.append(table, rows, app_id=str(values), version=1)


def versions(estate: Estate, manifests: int | datetime) -> dict[str, int]:
    run = runs.start(estate.ledger, estate.settings, runs.Request(command="plan", manifests=manifests))
    names = ("acls_version", "quotas_version", "latest_acls_version", "latest_quotas_version")
    found = {name: int(run.arguments[name]) for name in names if name in run.arguments}
    return {**found, "manifests": run.manifest_version}


@pytest.mark.thorough
def test_declared_tables_are_read_at_the_same_moment(spark: SparkSession, tmp_path: Path) -> None:
    """A version of `manifests` means the last moment at which it was the latest version."""
    estate = Estate(spark, tmp_path / "ledger", {"main": "localhost:1"})
    shutil.rmtree(tmp_path / "ledger" / "quotas")
    append(estate, MANIFESTS, topic="first")
    append(estate, ACLS, principal="User:a")
    manifests, acls = (estate.ledger.latest_version(table) for table in (MANIFESTS, ACLS))
    moment = datetime.now(UTC)
    append(estate, MANIFESTS, topic="second")
    append(estate, ACLS, principal="User:b")
    estate.ledger.ensure(QUOTAS)
    quotas = estate.ledger.latest_version(QUOTAS)
    latest = {"latest_acls_version": acls + 1, "latest_quotas_version": quotas}
    then = {"manifests": manifests, "acls_version": acls, **latest}
    for asked in (manifests, moment):
        with messages_of("topicledger") as said:
            assert versions(estate, asked) == then
        assert any("no table quotas" in each and "leaves out its resources" in each for each in said), said
    now = {"manifests": manifests + 1, "acls_version": acls + 1, "quotas_version": quotas, **latest}
    assert versions(estate, manifests + 1) == now
