"""The installed wheel on a Spark with Delta, in an empty folder: the commands of a first day, on a real broker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import commands
from tests.broker.direct import live
from tests.spark.installed import Installed
from topicledger_testing.embedded_kafka import EmbeddedKafka

# An environment, a server and ten starts of Spark, on a machine that may be busy.
pytestmark = pytest.mark.timeout(1800)

_POLICIES = """
[[policies.create]]
use = "house_rules:retention_by_tier"
days = {gold = 7, silver = 1}
[[policies.create]]
use = "house_rules:new_topics_per_owner"
max = 2
"""


def first_day(installed: Installed, kafka: EmbeddedKafka, folder: Path, more: str, given: Mapping[str, str]) -> None:
    """Load, plan, apply, audit and report topics, with policies of the user's own."""
    prefix = f"{folder.name}."
    commands.settings_file(folder, {"main": list(kafka.bootstrap_servers)}, more=more + _POLICIES)
    shutil.copy(commands.REPOSITORY / "examples" / "policies" / "house_rules.py", folder)
    topics = {"kept": "7d", "long": "8d", "second": "1h", "third": "1h"}
    lines = [
        f"  - {{topic: {prefix}{name}, num_partitions: 2, configs: {{retention.ms: {kept}}}}}\n"
        for name, kept in topics.items()
    ]
    head = "cluster: main\ndefaults: {owner: payments, labels: {tier: gold}}\ntopics:\n"
    (folder / "topics.yaml").write_text("".join([head, *lines]), encoding="utf-8")
    environment = {"TOPICLEDGER_CONFIG": "settings.toml", "PYTHONPATH": ".", **given}

    def done(*arguments: str, code: int = 0) -> str:
        ran = installed.run(folder, *arguments, **environment)
        assert ran.returncode == code, f"{arguments}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    assert f", spark {installed.spark}, delta " in done("--version")
    done("load-manifests", "topics.yaml")
    done("plan", "--run-id", "first", code=4)
    assert live(kafka, prefix) == {}
    done("apply", "--run-id", "first", code=4)
    assert {topic: info.num_partitions for topic, info in live(kafka, prefix).items()} == {
        f"{prefix}kept": 2,
        f"{prefix}second": 2,
    }
    found = json.loads(done("audit", "--run-id", "looked", "--topic", prefix, "--format", "json"))
    assert found["kinds"] == {"missing": 2}, found
    assert json.loads(done("drift", "--topic", prefix, "--format", "json"))["kinds"] == {"missing": 2}
    done("report", "--run-id", "first", "--out", "report.html")
    assert f"{prefix}kept" in (folder / "report.html").read_text(encoding="utf-8").replace("<wbr>", "")
    shown = done("runs", "show", "first")
    assert "run first: finished" in shown
    assert "gold allows; retention.ms is at most 604800000" in shown
    assert "one run creates at most 2 topics for payments" in shown


def test_wheel_on_a_spark_with_deltas_jars(
    installed: Installed, classic: dict[str, str], kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    first_day(installed, kafka, tmp_path, "", classic)


def test_wheel_through_a_server_of_spark_connect(
    installed: Installed, remote: str, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    first_day(installed, kafka, tmp_path, f'[spark]\nremote = "{remote}"\n', {})
