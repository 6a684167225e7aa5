"""Metrics: a textfile as Prometheus reads it, and what of an earlier one is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from topicledger import cli
from topicledger.apply.progress import Progress
from topicledger.cli import provisioning
from topicledger.cli import runs as runs_commands
from topicledger.cli.metrics import Metrics
from topicledger.kafka.sending import QuotaWait

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(path: Path) -> Samples:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {named(each.name, **each.labels): each.value for family in families for each in family.samples}


def named(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def ended(path: Path, exit_code: int, at: float, command: str = "provision") -> Samples:
    Metrics(clock=lambda: at).write(path, command, exit_code)
    return samples(path)


def test_a_success_is_remembered_until_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "provision.prom"
    success, run = (
        named(f"topicledger_last_{what}_timestamp_seconds", command="provision") for what in ("success", "run")
    )
    assert success not in ended(path, 1, 1_000.25)
    assert ended(path, 0, 2_000.25)[success] == 2_000.25
    failed = ended(path, 4, 3_000.0)
    assert (failed[success], failed[run]) == (2_000.25, 3_000.0)
    assert failed[named("topicledger_exit_code", command="provision")] == 4
    assert ended(path, 3, 4_000.0)[success] == 4_000.0
    assert list(tmp_path.iterdir()) == [path]


def test_another_commands_success_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "shared.prom"
    ended(path, 0, 1_000.0, command="plan")
    assert not any("success" in name for name, _ in ended(path, 1, 2_000.0))


@pytest.mark.parametrize("text", ["", "not a metric {", "\xff"])
def test_a_file_that_is_no_metrics_file_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.prom"
    path.write_text(text, encoding="latin-1")
    assert ended(path, 0, 1_000.0)[named("topicledger_exit_code", command="provision")] == 0
    assert ended(path, 1, 2_000.0)[named("topicledger_exit_code", command="provision")] == 1


def test_outside_text_can_not_break_lines(tmp_path: Path) -> None:
    path = tmp_path / "drift.prom"
    metrics, cluster = Metrics(), 'a "quoted" \\ name\nwith a line'
    metrics.set("topicledger_drift", 3, cluster=cluster, kind="missing")
    metrics.write(path, "audit", 0)
    assert samples(path)[named("topicledger_drift", command="audit", cluster=cluster, kind="missing")] == 3


@pytest.mark.parametrize("name", ["drift", "audit"])
def test_metrics_of_drift_keep_the_label_that_alerts_have(tmp_path: Path, name: str) -> None:
    path = tmp_path / "drift.prom"
    CliRunner().invoke(cli.main, [name, "--config", str(tmp_path / "none.toml"), "--metrics-file", str(path)])
    assert samples(path)[named("topicledger_exit_code", command="audit")] == 2


def test_phases_and_waits_are_written(tmp_path: Path) -> None:
    now = [0.0]
    progress = Progress(shown=False, clock=lambda: now[0])
    for seconds in (2.0, 3.0):
        with progress.phase("apply", 10):
            now[0] += seconds
    for seconds in (1.5, 2.5):
        progress.wait("main", QuotaWait(seconds=seconds, rate=20.0, left=5, eta=1.0))
    progress.wait("main", None)
    metrics = Metrics(progress=progress)
    metrics.write(tmp_path / "metrics", "apply", 0)
    found = samples(tmp_path / "metrics")
    assert found[named("topicledger_phase_duration_seconds", command="apply", phase="apply")] == 5.0
    assert found[named("topicledger_quota_wait_seconds", command="apply", cluster="main")] == 4.0


def test_a_phase_that_fails_is_counted_as_well() -> None:
    now = [0.0]
    progress = Progress(shown=False, clock=lambda: now[0])

    def fail() -> None:
        now[0] += 7.0
        raise RuntimeError

    with pytest.raises(RuntimeError), progress.phase("observe"):
        fail()
    assert progress.took == {"observe": 7.0}


def test_a_metric_that_nobody_documented_can_not_be_set() -> None:
    with pytest.raises(ValueError, match="no metric topicledger_invented"):
        Metrics().set("topicledger_invented", 1)


@pytest.mark.parametrize(
    ("entry", "arguments", "command"),
    [
        (cli.main, ["plan"], "plan"),
        (cli.main, ["runs", "show"], "runs show"),
        (provisioning.plan, [], "plan"),
        (runs_commands.runs_group, ["show"], "runs show"),
    ],
    ids=["console plan", "console runs show", "job plan", "job runs show"],
)
def test_a_command_has_the_same_label_as_a_job_and_from_the_console(
    entry: click.Command, arguments: Sequence[str], command: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.prom"
    options = ["--config", str(tmp_path / "missing.toml"), "--run-id", "any", "--metrics-file", str(file)]
    assert CliRunner().invoke(entry, [*arguments, *options]).exit_code == 2
    assert samples(file)[named("topicledger_exit_code", command=command)] == 2
