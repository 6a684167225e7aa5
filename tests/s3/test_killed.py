"""Drivers killed while their tables are on S3: the same run id finishes what is open, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault import told
from tests.fault.effort import KILLS, THOROUGH
from tests.fault.killing import Doomed
from tests.fault.proxy import FaultProxy
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate, topics
from tests.s3.storage import BUCKET, Server
from topicledger_testing.embedded_kafka import EmbeddedKafka

MOST = max(2, min(KILLS, 20))
KILL_AT = [2 + number // 2 for number in range(MOST)] if THOROUGH else [10 + 4 * number for number in range(MOST)]
"""The event at which each start is killed, counted per start; a few kills are during the creates."""


@pytest.mark.thorough
@pytest.mark.timeout(300 + 150 * MOST)
def test_driver_killed_during_creates_loses_nothing(
    s3: Server, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """C18, D7: events are requests, answers and commits."""
    fault = Fault(name="driver killed, tables on S3")
    FAULTS.append(fault)
    prefix, name = "s3-killed.", "killed"
    names = [f"{prefix}{number:03}" for number in range(120)]
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(*topics(names, num_partitions=2))
    root = s3.upload(tmp_path / "ledger", name)

    def committed() -> set[tuple[str, str]]:
        made = [
            path.removeprefix(f"/{BUCKET}/{name}/").split("/_delta_log/")
            for method, path, condition, status in s3.requests()
            if (method, condition, status) == ("PUT", "*", "200") and path.endswith(".json")
        ]
        return {(table, file) for table, file in (each for each in made if len(each) == 2)}

    with FaultProxy(kafka) as proxy:
        config = commands.settings_file(
            tmp_path, {"main": proxy.bootstrap_servers}, root=root, more="[kafka]\nmax_batch_records = 30\n"
        )
        killed: list[str] = []
        for kill_at in [*KILL_AT, 10**9]:
            job = Doomed(config, "killed", kill_at, committed, **s3.environment())
            code = job.wait_behind(proxy)
            fault.resumed += bool(killed)
            if code is not None:
                break
            killed.append(str(job.killed_at))
            fault.tried += 1
    assert code == 0
    # A local copy, since the checks read tables on this machine.
    told.check(fault, s3.download(name, tmp_path / "copy"), "killed", kafka, prefix, dict.fromkeys(names, True))
    assert fault.tried == MOST, killed
