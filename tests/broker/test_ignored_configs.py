"""Configs that `changes.ignore` names are left to others by every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.broker.changes import alter, set_on
from tests.broker.direct import make
from tests.broker.invoking import done, invoke
from topicledger_testing.embedded_kafka import EmbeddedKafka

EXACT = '[changes]\nconfigs = "exact"\n'
IGNORE = 'ignore = ["retention.ms"]\n'
LEFT = "changes.ignore in the settings"


def load(config: Path, *topics: tuple[str, str, str]) -> str:
    """Declare topics with `retention.ms` and `segment.ms`; return what the command says on stderr."""
    file = config.with_name("manifest.json")
    declared = [
        {"topic": name, "num_partitions": 1, "replication_factor": 1, "owner": "tests",
         "configs": {"retention.ms": retention, "segment.ms": segment}}
        for name, retention, segment in topics
    ]  # fmt: skip
    file.write_text(json.dumps({"cluster": "main", "topics": declared}))
    loaded = invoke("load-manifests", file, "--config", config)
    assert loaded.exit_code == 0, loaded.output
    return " ".join(loaded.stderr.split())


def result(config: Path, *arguments: str, code: int = 0) -> Any:
    return json.loads(done(*arguments, "--config", config, "--format", "json", code=code))


def drifting(config: Path, topics: str) -> list[tuple[str, str | None]]:
    """Return the drift of topics: topic and config. Other tests use the cluster, too."""
    found = result(config, "drift", "--topic", topics)["drift"]
    return [(each["topic"], each["what"]) for each in found]


def shown_changes(config: Path, run_id: str) -> list[tuple[str, str | None]]:
    """Return all that a plan changes, by topic, and how `runs show` has it in words."""
    return [(each["topic"], each["change"]) for each in result(config, "runs", "show", run_id)["actions"]]


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_ignored_configs_are_left_to_others(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Another client changes them; those of topics that are created aren't set either."""
    servers = {"main": kafka.bootstrap_servers}
    config = commands.settings_file(tmp_path, servers, more=EXACT + IGNORE)
    other = {"retention.ms": "700000000"}
    make(kafka, "left.one", configs={**other, "segment.ms": "70000000"})
    warned = load(config, ("left.one", "800000000", "80000000"), ("left.two", "800000000", "80000000"))
    assert f"topic left.two: retention.ms is ignored because of {LEFT}, and is never set" in warned
    done("provision", "--run-id", "forth", "--config", config)
    assert shown_changes(config, "forth") == [("left.one", "segment.ms 70000000 -> 80000000"), ("left.two", None)]
    segment = {"segment.ms": "80000000"}
    assert set_on(kafka, "left.one", "left.two") == {"left.one": {**other, **segment}, "left.two": segment}


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_configs_of_earlier_runs_are_left_to_others_once_ignored(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    servers = {"main": kafka.bootstrap_servers}
    config = commands.settings_file(tmp_path, servers, more=EXACT)
    make(kafka, "left.before", configs={"retention.ms": "700000000", "segment.ms": "70000000"})
    load(config, ("left.before", "800000000", "80000000"))
    assert drifting(config, r"^left\.before$") == [("left.before", "retention.ms"), ("left.before", "segment.ms")]
    done("provision", "--config", config, "--run-id", "both")
    assert set_on(kafka, "left.before") == {"left.before": {"retention.ms": "800000000", "segment.ms": "80000000"}}

    config.write_text(config.read_text() + IGNORE)
    alter(kafka, "left.before", retention_ms="900000000")
    assert drifting(config, r"^left\.before$") == []
    assert result(config, "plan")["pending_changes"] == 0

    done("runs", "revert", "both", "--plan-id", "back", "--config", config)
    assert shown_changes(config, "back") == [("left.before", "segment.ms 80000000 -> 70000000")]
    done("apply", "--run-id", "back", "--config", config)
    reverted = {"retention.ms": "900000000", "segment.ms": "70000000"}
    assert set_on(kafka, "left.before") == {"left.before": reverted}

    made = tmp_path / "made.json"
    done("export", "--config", config, "--cluster", "main", "--pattern", r"left\.before", "--to", made)
    assert ("segment.ms" in made.read_text(), "retention.ms" in made.read_text()) == (True, False)
    done("load-manifests", made, "--config", config)
    assert drifting(config, r"^left\.before$") == []
