"""Every command on tables on S3, with a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands
from tests.fault.another_client import AnotherClient
from tests.harness import Estate, topics
from tests.processes import command_line, family
from tests.s3.storage import BUCKET, SECRET_KEY, SINGLE_DRIVER, Driver, Server
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]


def test_every_command_works_on_s3_without_showing_the_key(s3: Server, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    prefix, name = "s3-commands.", "commands"
    root = f"s3a://{BUCKET}/{name}"
    config = str(
        commands.settings_file(
            tmp_path,
            {"main": kafka.bootstrap_servers},
            root=root,
            more='[guards]\nmax_deletes = 1\n[changes]\nconfigs = "declared"\n',
        )
    )
    manifest = tmp_path / "topics.json"

    def declare(**topics: str) -> str:
        rows = [{"cluster": "main", "topic": f"{prefix}{topic}", "state": state} for topic, state in topics.items()]
        manifest.write_text(json.dumps(rows), encoding="utf-8")
        return str(manifest)

    said: list[str] = []
    logs = tmp_path / "logs"
    with Driver(s3.environment(TOPICLEDGER_LOG_DIR=str(logs)), tmp_path / "driver.log") as driver:

        def run(*arguments: str, expected: int = 0) -> str:
            done = driver.run(*arguments, "--config", config, expected=expected)
            said.extend([done.stdout, done.stderr, *map(command_line, family(driver.process.pid))])
            return done.stdout

        run("load_manifests", declare(a="present", b="present"))
        run("plan", "--run-id", "first")
        run("apply", "--run-id", "first")
        assert {f"{prefix}a", f"{prefix}b"} <= AnotherClient(kafka).names(prefix)
        run("load_manifests", declare(a="present", b="absent", c="present"))
        run("provision", "--run-id", "second")
        AnotherClient(kafka).await_names(prefix, {f"{prefix}a", f"{prefix}c"}, seconds=60)
        run("drift", "--run-id", "third")
        assert "second" in run("runs", "list")
        assert f"{prefix}c" in run("runs", "show", "--run-id", "second")
        run("policies", "list")
        run("clusters", "list")
        exported = tmp_path / "exported.yaml"
        run("export", "--cluster", "main", "--pattern", f"^{prefix}", "--to", str(exported))
        assert f"{prefix}a" in exported.read_text(encoding="utf-8")
        report = tmp_path / "report.html"
        run("report", "--out", str(report), "--run-id", "second")
        said.append(report.read_text(encoding="utf-8"))
        run("maintain", "--execute")
        run("provision", "--run-id", "last")

    applied = {
        (row["run_id"], row["topic"], row["action"], row["outcome"])
        for row in s3.rows(name, "audit")
        if row["phase"] == "apply"
    }
    assert applied == {
        ("first", f"{prefix}a", "create", "ok"),
        ("first", f"{prefix}b", "create", "ok"),
        ("second", f"{prefix}b", "delete", "ok"),
        ("second", f"{prefix}c", "create", "ok"),
    }
    assert {row["run_id"]: row["state"] for row in s3.rows(name, "runs")}["last"] == "finished"
    # Every commit was conditional on the absence of its version.
    commits = [
        (condition, status) for method, path, condition, status in s3.requests() if _is_commit(method, path, name)
    ]
    assert len(commits) > 30
    assert {condition for condition, _ in commits} == {"*"}

    copy = s3.download(name, tmp_path / "copy")
    files = [path for path in copy.rglob("*") if path.is_file()]
    tables = [folder.name for folder in copy.iterdir() if (folder / "_delta_log").is_dir()]
    assert len(tables) > 8
    said += [path.read_bytes().decode(errors="replace") for path in (*files, *logs.iterdir(), tmp_path / "driver.log")]
    # Parquet may contain text in compressed form.
    said += [repr(s3.rows(name, table)) for table in tables]
    assert any(f"{prefix}a" in each for each in said)
    assert not [each for each in said if SECRET_KEY in each]


def _is_commit(method: str, path: str, name: str) -> bool:
    return method == "PUT" and path.startswith(f"/{BUCKET}/{name}/") and path.endswith(".json") and "_delta_log" in path


def test_spark_submit_works_on_s3_without_key_arguments(
    s3: Server, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    prefix, name = "s3-submit.", "submit"
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(*topics([f"{prefix}a"]))
    config = commands.settings_file(
        tmp_path, {"main": kafka.bootstrap_servers}, root=s3.upload(tmp_path / "ledger", name)
    )
    job = [str(commands.SUBMIT), "jobs/provision.py", "--config", str(config), "--run-id", "submit"]
    done = commands.run(job, **s3.environment(TOPICLEDGER_LOG_DIR=str(tmp_path / "logs")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{prefix}a" in AnotherClient(kafka).names(prefix)
    assert [row["outcome"] for row in s3.rows(name, "audit") if row["phase"] == "apply"] == ["ok"]
    assert SECRET_KEY not in done.stdout + done.stderr

    # With the LogStore for a single driver it is refused, unless there is never another driver.
    environment = s3.environment(SINGLE_DRIVER)
    job[-1] = "alone"
    refused = commands.run(job, **environment)
    assert (refused.returncode, "two drivers can overwrite each other's commits" in refused.stderr) == (2, True)
    config.write_text(config.read_text().replace("single_writer = false", "single_writer = true"))
    alone = commands.run(job, **environment)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert {row["run_id"] for row in s3.rows(name, "runs")} == {"submit", "alone"}
