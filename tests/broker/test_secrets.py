"""No secret ever shows: every table, log, result, output, and process argument is searched for it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import clusters, commands
from tests.harness import Estate, cluster_settings, topics
from topicledger_testing.embedded_kafka import EmbeddedKafka

PASSWORD = clusters.SASL_USERS["admin"]

CLIENT = """
[clusters.main.client]
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_plain_username = "admin"
sasl_plain_password = "env:TOPICLEDGER_TEST_PASSWORD"
"""


def process_arguments() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


@pytest.mark.thorough
def test_a_password_shows_nowhere_even_when_verbose(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, tmp_path: Path
) -> None:
    config = commands.settings_file(tmp_path, {"main": kafka_sasl.bootstrap_servers}, more=CLIENT)
    estate = Estate(spark, tmp_path / "ledger", {"main": cluster_settings("main", kafka_sasl)})
    estate.declare(*topics(["secrets.one", "secrets.two"]))
    result = tmp_path / "result.json"
    logs = tmp_path / "logs"
    job = str(commands.REPOSITORY / "jobs" / "provision.py")
    arguments = [str(commands.SUBMIT), job, "--config", str(config), "--run-id", "secrets", "--verbose"]
    arguments += ["--log-format", "json", "--result-file", str(result)]
    environment = commands.environment(TOPICLEDGER_TEST_PASSWORD=PASSWORD, TOPICLEDGER_LOG_DIR=str(logs))

    seen: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            seen.extend(arguments for arguments in process_arguments() if PASSWORD in arguments)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = subprocess.run(arguments, capture_output=True, env=environment, timeout=300, check=False)
    finally:
        ended.set()
        watcher.join()
    assert done.returncode == 0, done.stderr.decode()[-3000:]

    secret = PASSWORD.encode()
    assert secret not in done.stdout + done.stderr
    assert not seen
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert result in files
    assert len(files) > 10
    assert [str(path) for path in files if secret in path.read_bytes()] == []
    estate.check_invariant("secrets")


@pytest.mark.thorough
def test_a_wrong_password_is_told_without_showing_it(
    spark: SparkSession, kafka_sasl: EmbeddedKafka, tmp_path: Path
) -> None:
    wrong = "not-the-password-either"
    config = commands.settings_file(tmp_path, {"main": kafka_sasl.bootstrap_servers}, more=CLIENT)
    config.write_text(config.read_text() + "[kafka]\nconnect_timeout = 5\n")
    estate = Estate(spark, tmp_path / "ledger", {"main": cluster_settings("main", kafka_sasl)})
    estate.declare(*topics(["secrets.wrong"]))
    arguments = commands.command("provision", "--config", str(config), "--run-id", "wrong", "--verbose")
    done = commands.run(arguments, TOPICLEDGER_TEST_PASSWORD=wrong)
    assert done.returncode == 1
    assert "cluster main can't be reached" in done.stdout
    assert wrong not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [str(path) for path in files if wrong.encode() in path.read_bytes()] == []
