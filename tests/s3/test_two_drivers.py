"""Several drivers with tables on S3 at once, lost answers, and a store without conditional writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault.another_client import AnotherClient
from tests.harness import Estate, topics
from tests.s3.storage import BUCKET, Driver, Server
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]


def commits(s3: Server, name: str, status: str) -> Sequence[str]:
    """Return the commits below a root that were answered with this status."""
    return [
        path
        for method, path, condition, answer in s3.requests()
        if (method, condition, answer) == ("PUT", "*", status) and path.startswith(f"/{BUCKET}/{name}/")
    ]


def manifest(folder: Path, topic: str) -> str:
    path = folder / f"{topic}.json"
    path.write_text(json.dumps([{"cluster": "main", "topic": topic}]), encoding="utf-8")
    return str(path)


@pytest.fixture
def drivers(s3: Server, tmp_path: Path) -> Iterator[Sequence[Driver]]:
    """Provide two drivers, each a process with its own session."""
    with (
        Driver(s3.environment(), tmp_path / "driver-0.log") as first,
        Driver(s3.environment(), tmp_path / "driver-1.log") as second,
    ):
        yield first, second


def test_simultaneous_commits_of_two_drivers_are_all_kept(
    s3: Server, drivers: Sequence[Driver], tmp_path: Path
) -> None:
    name, rounds = "two-loads", 6
    config = commands.settings_file(tmp_path, {"main": ["localhost:1"]}, root=f"s3a://{BUCKET}/{name}")
    for number in range(rounds):
        for index, driver in enumerate(drivers):
            driver.start("load_manifests", "--config", str(config), manifest(tmp_path, f"loaded-{index}-{number}"))
        ended = [driver.end() for driver in drivers]
        assert [each.exit_code for each in ended] == [0, 0], ended
    loaded = Counter(row["topic"] for row in s3.rows(name, "manifests"))
    assert loaded == Counter(f"loaded-{index}-{number}" for index in range(2) for number in range(rounds))
    # They collided: S3 refused the second of two commits of the same version.
    assert commits(s3, name, "412")
    made = Counter(commits(s3, name, "200"))
    assert set(made.values()) == {1}


def test_only_one_of_two_drivers_changes_a_cluster(
    s3: Server, drivers: Sequence[Driver], spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    prefix, name = "s3-two.", "two-runs"
    names = [f"{prefix}{number:02}" for number in range(40)]
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(*topics(names))
    root = s3.upload(tmp_path / "ledger", name)
    config = commands.settings_file(
        tmp_path, {"main": kafka.bootstrap_servers}, root=root, more="[kafka]\nmax_batch_records = 40\n"
    )
    for index, driver in enumerate(drivers):
        driver.start("provision", "--config", str(config), "--run-id", f"run-{index}", "--wait")
    ended = [driver.end() for driver in drivers]
    assert [each.exit_code for each in ended] == [0, 0], ended
    AnotherClient(kafka).await_names(prefix, set(names), seconds=60)
    created = [row for row in s3.rows(name, "audit") if (row["phase"], row["outcome"]) == ("apply", "ok")]
    assert Counter(row["topic"] for row in created) == Counter(names)
    assert {row["run_id"]: row["state"] for row in s3.rows(name, "runs")} == {"run-0": "finished", "run-1": "finished"}
    (lease,) = s3.rows(name, "leases")
    assert lease["released_at"] is not None


def test_commit_with_a_lost_answer_is_made_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The request is sent again, and S3 refuses it, since the existing object is the commit itself."""
    prefix, name = "s3-lost.", "lost"
    s3 = Server(tmp_path, "--lose-answers")
    try:
        config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, root=f"s3a://{BUCKET}/{name}")
        with Driver(s3.environment(), tmp_path / "driver.log") as driver:
            driver.run("load_manifests", "--config", str(config), manifest(tmp_path, f"{prefix}a"))
            driver.run("provision", "--config", str(config), "--run-id", "lost")
        lost = set(commits(s3, name, "lost"))
        assert len(lost) > 5
        assert lost & set(commits(s3, name, "412"))
        audit = [(row["topic"], row["phase"]) for row in s3.rows(name, "audit") if row["phase"] in ("apply", "verify")]
        assert Counter(audit) == Counter([(f"{prefix}a", "apply"), (f"{prefix}a", "verify")])
        assert [row["topic"] for row in s3.rows(name, "manifests")] == [f"{prefix}a"]
        assert [row["run_id"] for row in s3.rows(name, "runs") if row["run_id"] == "lost"] == ["lost"]
    finally:
        s3.close()


def test_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    s3 = Server(tmp_path, "--unconditional")
    try:
        config = commands.settings_file(tmp_path, {"main": ["localhost:1"]}, root=f"s3a://{BUCKET}/unconditional")
        with Driver(s3.environment(), tmp_path / "driver.log") as driver:
            refused = driver.run("load_manifests", "--config", str(config), manifest(tmp_path, "a"), expected=1)
        assert "takes no notice of If-None-Match" in refused.stderr
        assert "S3SingleDriverLogStore" in refused.stderr
        assert not [path for _, path, *_ in s3.requests() if path.endswith("0.json")]
    finally:
        s3.close()
