"""The commands in this process: what they print, their exit codes, and what they say to bad input."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Sequence
from operator import le
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands, executions
from tests.broker.invoking import MANIFEST, error_of, invoke, load
from tests.harness import UNREACHABLE, Estate, topics
from topicledger import cli
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, RUNS
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.fixture
def config(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Path:
    assert spark is not None
    return commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers})


MOST_PLANNED, MOST_LISTED, MOST_SHOWN = 101, 3, 10
"""Most SQL executions of `plan` with three creates, of `runs list` and of `runs show`, those of Delta included. A plan
took 94 alone."""


def test_load_plan_apply_show_and_start_again(spark: SparkSession, config: Path, tmp_path: Path) -> None:
    loaded = load(config)
    assert (loaded.exit_code, loaded.stdout) == (0, "3 added, 0 changed, 0 unchanged, 0 removed\n")
    assert "there are no tables at " in loaded.stderr
    again = load(config)
    assert again.stdout == "0 added, 0 changed, 3 unchanged, 0 removed\n"
    assert "there are no tables" not in again.stderr

    result_file = tmp_path / "result.json"
    to_result = ("--format", "json", "--result-file", result_file)
    with executions.counted(spark) as of_plan:
        planned = invoke("plan", "--config", config, "--run-id", "way", *to_result)
    assert planned.exit_code == 4
    document = json.loads(planned.stdout)
    assert document == json.loads(result_file.read_text())
    assert (document["format_version"], document["state"], document["pending_changes"]) == (1, "planned", 2)
    assert document["clusters"] == [{"cluster": "main", "outcomes": {"failed": 1, "planned": 2}, "skipped": {}}]
    assert [failure["topic"] for failure in document["failures"]] == ["commands.three"]
    common = {"owner": "tests", "cluster": "main", "action": "create"}
    assert document["planned"] == [
        {
            **common,
            "topic": "commands.one",
            "resource": "commands.one",
            "what": "2 partitions, replication factor 1, retention.ms=3600000",
        },
        {**common, "topic": "commands.two", "resource": "commands.two", "what": "2 partitions, replication factor 1"},
    ]

    preview = invoke("runs", "show", "--config", config, "--run-id", "way", "--format", "json")
    resolved = {action["topic"]: action["resolved"] for action in json.loads(preview.stdout)["actions"]}
    assert resolved["commands.one"]["num_partitions"] == 2
    configs = {each["name"]: each for each in resolved["commands.one"]["configs"]}
    assert configs["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert configs["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"

    metrics_file = tmp_path / "apply.prom"
    watched = ("--metrics-file", metrics_file, "--log-format", "json", "--verbose")
    applied = invoke("apply", "--config", config, "--run-id", "way", "--wait-visible", "30", *watched)
    assert applied.exit_code == 4
    lines = [json.loads(line) for line in applied.stderr.splitlines()]
    assert {line["run_id"] for line in lines if "leases" in line["message"]} == {"way"}
    requests = [line for line in lines if line["message"] == "a request for 2 topics is answered"]
    assert [(line["cluster"], line["batch"], line["attempt"]) for line in requests] == [("main", 0, 1)]
    metrics = metrics_file.read_text(encoding="utf-8")
    assert 'topicledger_exit_code{command="apply"} 4.0\n' in metrics
    assert 'topicledger_topics{cluster="main",command="apply",outcome="ok"} 2.0\n' in metrics
    assert 'topicledger_phase_duration_seconds{command="apply",phase="verify"}' in metrics
    assert "commands.three" in applied.stdout
    assert "INVALID_REPLICATION_FACTOR" in applied.stdout

    again = invoke("apply", "--config", config, "--run-id", "way", "--format", "json")
    assert (again.exit_code, json.loads(again.stdout)["outcomes"]) == (4, {"failed": 1, "ok": 2})
    assert "run way has already finished: nothing is sent, and this is its result\n" in again.stderr

    with executions.counted(spark) as of_list:
        listed = invoke("runs", "list", "--config", config, "--format", "json")
    assert [(run["command"], run["state"], run["exit_code"]) for run in json.loads(listed.stdout)["runs"]] == [
        ("plan", "finished", 4),
        ("load_manifests", "finished", 0),
        ("load_manifests", "finished", 0),
    ]
    table = invoke("runs", "list", "--config", config).stdout
    assert re.search(r"way +│ plan +│ finished │ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ │ (\d+ min )?\d+ s", table), table
    assert "1 failed, 2 ok" in table
    with executions.counted(spark) as of_show:
        shown = invoke("runs", "show", "--config", config, "--run-id", "way").stdout.splitlines()
    assert re.fullmatch(r"run way: finished, manifests at version \d+, requested by \w+", shown[0])
    assert shown[1:4] == ["2 create ok; 1 failed", "", "failed on main: 1"]
    assert shown[4].startswith("  ! create commands.three (validate): INVALID_REPLICATION_FACTOR: ")
    assert shown[5:] == [
        "",
        "tests on main",
        "  + create commands.one: 2 partitions, replication factor 1, retention.ms=1h (3600000) [ok]",
        "  + create commands.two: 2 partitions, replication factor 1 [ok]",
    ]
    both = invoke("runs", "show", "--config", config, "--run-id", "way", "--format", "markdown").stdout.splitlines()
    assert [each for each in both if each.startswith("+")] == [each.strip() for each in shown[-2:]]
    cut = ("--format", "json", "--max-chars", "5000")
    assert invoke("runs", "show", "--config", config, "--run-id", "way", *cut).exit_code == 2
    assert invoke("runs", "abandon", "--config", config, "--run-id", "way").exit_code == 2
    made = (of_plan(), of_list(), of_show())
    assert all(map(le, made, (MOST_PLANNED, MOST_LISTED, MOST_SHOWN))), made


@pytest.mark.thorough
def test_a_full_disk_under_stdout_changes_no_exit_code(
    config: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    file = config.with_name("manifest.yaml")
    file.write_text("cluster: main\ntopics: [{topic: commands.unshown, num_partitions: 1, replication_factor: 1}]\n")
    arguments = {"load_manifests": [str(file)], "provision": ["--run-id", "unshown"], "drift": ["--run-id", "seen"]}
    for name, more in arguments.items():
        with (
            Path("/dev/full").open("w", encoding="utf-8") as full,
            contextlib.redirect_stdout(full),
            pytest.raises(SystemExit) as ended,
        ):
            cli.main([name, "--config", str(config), *more])
        assert ended.value.code == 0, name
    ledger = Ledger(spark, str(config.with_name("ledger")))
    states = {row["run_id"]: row["state"] for row in ledger.read(RUNS).collect()}
    assert (states["unshown"], states["seen"]) == ("finished", "finished")
    unshown = [line for line in capsys.readouterr().err.splitlines() if "can't be shown" in line]
    assert [message.rpartition(": ")[2] for message in unshown] == [
        "`runs list` has the run",
        "`runs show unshown` shows it",
        "`drift --run-id seen` shows it",
    ]


@pytest.mark.thorough
def test_pending_changes_exit_3_on_request_and_abandoned_stays_so(config: Path) -> None:
    load(config, "cluster: main\ntopics: [{topic: commands.pending}]\n")
    arguments = ("plan", "--config", config, "--run-id", "pending", "--detailed-exitcode")
    assert invoke(*arguments).exit_code == 3
    assert invoke(*arguments).exit_code == 3
    assert invoke("runs", "abandon", "--config", config, "--run-id", "pending").exit_code == 0
    refused = invoke("apply", "--config", config, "--run-id", "pending")
    assert (refused.exit_code, refused.stderr) == (2, "error: run pending was abandoned; start a new one\n")


@pytest.mark.thorough
def test_an_empty_manifest_is_nothing_to_do(config: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    done = invoke("provision", "--config", config)
    assert done.exit_code == 0
    assert "nothing to create or delete; configs were not compared: run topicledger drift\n" in done.stdout


@pytest.mark.thorough
def test_a_plan_without_creates_does_not_claim_that_nothing_differs(config: Path, kafka: EmbeddedKafka) -> None:
    names = [f"commands.words-{number}" for number in range(3)]
    rows = "\n".join(f"  - {{topic: {name}, num_partitions: 2, configs: {{retention.ms: 1000}}}}" for name in names)
    load(config, f"cluster: main\ntopics:\n{rows}\n")
    assert invoke("provision", "--config", config).exit_code == 0
    load(config, f"cluster: main\ntopics:\n{rows}\n".replace("1000", "2000"))
    planned = invoke("plan", "--config", config)
    assert planned.exit_code == 0
    assert "nothing to create or delete; configs were not compared: run topicledger drift\n" in planned.stdout
    one = rows.replace("num_partitions: 2", "num_partitions: 3", 1)
    load(config, f"cluster: main\ntopics:\n{one}\n")
    differs = "1 topic differs in partitions, replication factor or placement"
    words = invoke("plan", "--config", config).stdout
    assert f"nothing to create or delete; {differs}; configs were not compared: run topicledger drift\n" in words
    load(config, f"cluster: main\ntopics:\n{rows.replace('num_partitions: 2', 'num_partitions: 3')}\n")
    words = invoke("provision", "--config", config).stdout
    assert "nothing to create or delete; 3 topics differ in partitions" in words
    assert "as declared" not in words


@pytest.mark.thorough
def test_replacing_stops_lists_and_continues_within_its_bounds(config: Path, tmp_path: Path) -> None:
    both = "".join(
        f"  - {{topic: commands.{owner}-{number}, owner: {owner}}}\n" for owner in ("pay", "ship") for number in (1, 2)
    )
    load(config, f"cluster: main\ntopics:\n{both}")
    mine = "cluster: main\ntopics: [{topic: commands.pay-1, owner: pay}]\n"
    result_file = tmp_path / "result.json"

    stopped = load(config, mine, "--replace", "--result-file", str(result_file), "--requested-by", "alice")
    first, *rows, last = error_of(stopped, 5).splitlines()
    file = config.with_name("manifest.yaml")
    assert first == f"error: rows of manifests that loading {file} would remove:"
    assert rows == [
        "  main / commands.pay-2, owner pay",
        "  main / commands.ship-1, owner ship",
        "  main / commands.ship-2, owner ship",
    ]
    assert last.startswith("3 rows in all, and guards.max_removed_rows is 0: nothing was loaded.")
    assert f"set max_removed_rows = 3 under [guards] in {config}" in last
    document = json.loads(result_file.read_text())
    assert (document["exit_code"], document["removals_refused"]) == (5, 3)
    assert document["removed_rows"][0] == {"cluster": "main", "topic": "commands.pay-2", "owner": "pay"}

    config.write_text(config.read_text() + "[guards]\nmax_removed_rows = 1\n")
    done = load(config, mine, "--replace-owner", " PAY", "--run-id", "mine", "--result-file", str(result_file))
    assert done.exit_code == 0
    assert done.stdout == "0 added, 0 changed, 1 unchanged, 1 removed\nremoved: main / commands.pay-2, owner pay\n"
    loaded = json.loads(result_file.read_text())
    assert (loaded["run_id"], loaded["removed"]) == ("mine", 1)
    assert loaded["removed_rows"] == [{"cluster": "main", "topic": "commands.pay-2", "owner": "pay"}]

    listed = json.loads(invoke("runs", "list", "--config", config, "--format", "json").stdout)["runs"]
    told = [(run["exit_code"], run["counts"]["removed"], run["manifest_version"]) for run in listed]
    assert told == [(0, 1, 2), (5, 0, 1), (0, 0, 1)]
    assert (listed[0]["run_id"], listed[1]["run_id"]) == ("mine", document["run_id"])
    assert listed[1]["requested_by"] == "alice"


@pytest.mark.thorough
def test_the_run_of_a_load_is_no_run_to_take_up_or_to_report_on(config: Path, tmp_path: Path) -> None:
    load(config, MANIFEST, "--run-id", "load")
    taken = error_of(invoke("provision", "--config", config, "--run-id", "load"), 2)
    assert "run load was started by load_manifests, not provision" in taken
    page = tmp_path / "page.html"
    told = error_of(invoke("report", "--config", config, "--run-id", "load", "--out", page), 2)
    assert "run load was started by load_manifests, which has no report" in told
    assert "run load already exists" in error_of(load(config, MANIFEST, "--run-id", "load"), 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manifest", "code"),
    [
        ("topics: []", 0),
        ("defaults: {num_partitions: 1, replication_factor: 3}\ntopics: [{topic: commands.too-many}]", 4),
    ],
    ids=["none declared", "none valid"],
)
def test_a_plan_with_nothing_to_send_is_finished_and_answers_the_same_again(
    config: Path, spark: SparkSession, manifest: str, code: int
) -> None:
    """It keeps no old version of a table from VACUUM."""
    load(config, f"cluster: main\n{manifest}\n")
    told = []
    for command in ("plan", "plan", "apply"):
        done = invoke(command, "--config", config, "--run-id", "none", "--format", "json")
        assert done.exit_code == code, done.stderr
        told.append(json.loads(done.stdout))
    assert told[0]["state"] == "finished"
    assert told[0]["pending_changes"] == 0
    assert told[1] == told[2] == told[0]
    (run,) = Ledger(spark, str(config.with_name("ledger"))).read(RUNS).where("run_id = 'none'").collect()
    assert (run["state"], run["exit_code"], run["epoch"]) == ("finished", code, 1)
    assert run["finished_at"] is not None


@pytest.mark.thorough
def test_more_failures_than_fit_are_counted_with_the_command_for_the_rest(config: Path) -> None:
    estate_rows = "\n".join(f"  - {{topic: commands.many-{n:02}, replication_factor: 5}}" for n in range(25))
    load(config, f"cluster: main\ntopics:\n{estate_rows}\n")
    done = invoke("provision", "--config", config)
    assert done.exit_code == 4
    assert "the first 20 of 25" in done.stdout
    command = shlex.split(done.stdout[done.stdout.index("topicledger sql") :].splitlines()[0])
    rows = invoke(*command[1:], "--config", config, "--format", "json")
    assert len(json.loads(rows.stdout)["rows"]) == 25


@pytest.mark.thorough
def test_hostile_text_from_a_manifest_cannot_act_on_a_terminal(
    spark: SparkSession, kafka: EmbeddedKafka, config: Path, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    hostile = "commands\x1b[2J\n[red]x[/red]"
    estate.declare({"topic": hostile})
    done = invoke("provision", "--config", config, "--run-id", "hostile")
    assert done.exit_code == 4
    assert "\x1b" not in done.output
    assert "[red]x[/red]" in done.stdout
    assert [row["topic"] for row in estate.rows(AUDIT)] == [hostile]


def test_a_missing_or_broken_settings_file_is_exit_2(tmp_path: Path) -> None:
    assert "nowhere.toml" in error_of(invoke("provision", "--config", tmp_path / "nowhere.toml"), 2)
    broken = tmp_path / "broken.toml"
    broken.write_text("[tables\n")
    assert "broken.toml" in error_of(invoke("provision", "--config", broken), 2)
    broken.write_text('[tables]\nroot = "x"\n[clusters.a]\nbootstrap_servers = ["a:1"]\n[guard]\nmax_deletes = 1\n')
    assert "guards" in error_of(invoke("provision", "--config", broken), 2)


def test_an_unknown_cluster_names_the_nearest(config: Path) -> None:
    assert "did you mean `main`" in error_of(invoke("plan", "--config", config, "--cluster", "mian"), 2)


@pytest.mark.thorough
def test_a_tables_root_that_is_missing_or_not_writable_is_one_message(config: Path, tmp_path: Path) -> None:
    assert "does not exist" in error_of(invoke("provision", "--config", config), 1)
    occupied = tmp_path / "occupied"
    occupied.write_text("a file")
    inside = commands.settings_file(tmp_path, {"main": ["127.0.0.1:1"]}, root=occupied / "ledger")
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)
    done = invoke("load_manifests", manifest, "--config", inside)
    (message,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.exit_code, str(occupied) in message) == (1, True)


def test_a_manifests_table_with_another_schema_is_one_message(
    config: Path, tmp_path: Path, spark: SparkSession
) -> None:
    spark.sql("SELECT 'a' AS cluster, 1 AS topic").write.format("delta").save(str(tmp_path / "ledger" / "manifests"))
    message = error_of(invoke("provision", "--config", config), 1)
    assert "manifests" in message
    assert "column topic is int, not string" in message


def test_errors_of_manifest_files_have_file_and_line_and_nothing_is_loaded(config: Path) -> None:
    bad = "cluster: main\ntopics:\n  - {topic: ok.one}\n  - {topic: bad one}\n  - {topic: x, num_partitions: 0}\n"
    message = error_of(load(config, bad), 2)
    assert "manifest.yaml:4: " in message
    assert "manifest.yaml:5: " in message
    assert "nothing was loaded" in message
    assert load(config).stdout == "3 added, 0 changed, 0 unchanged, 0 removed\n"


def test_an_unwritable_metrics_file_is_an_error_and_failures_count(config: Path, tmp_path: Path) -> None:
    nowhere = invoke("runs", "list", "--config", config, "--metrics-file", tmp_path / "missing" / "runs.prom")
    assert nowhere.exit_code == 2
    assert "there is no folder for --metrics-file" in nowhere.stderr
    file = tmp_path / "show.prom"
    assert invoke("runs", "show", "--config", config, "--metrics-file", file).exit_code == 2
    assert 'topicledger_exit_code{command="runs show"} 2.0\n' in file.read_text(encoding="utf-8")


def test_apply_needs_a_run_that_exists(config: Path) -> None:
    load(config)
    assert "--run-id" in error_of(invoke("apply", "--config", config), 2)
    assert "no run nothing" in error_of(invoke("apply", "--config", config, "--run-id", "nothing"), 2)


def test_a_secret_that_cannot_be_resolved_names_its_reference(tmp_path: Path, spark: SparkSession) -> None:
    more = '[clusters.main.client]\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n'
    more += 'sasl_plain_username = "me"\nsasl_plain_password = "env:TOPICLEDGER_NO_SUCH"\n'
    path = commands.settings_file(tmp_path, {"main": [UNREACHABLE]}, more=more)
    (tmp_path / "ledger").mkdir()
    message = error_of(invoke("provision", "--config", path), 1)
    assert "TOPICLEDGER_NO_SUCH" in message


@pytest.mark.thorough
def test_two_runs_of_one_ledger_are_two_rows(
    config: Path, spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(*topics(["commands.rows"]))
    assert invoke("provision", "--config", config, "--requested-by", "portal").exit_code == 0
    assert invoke("provision", "--config", config).exit_code == 0
    rows: Sequence[dict[str, object]] = estate.rows(RUNS)
    assert len(rows) == 2
    assert "portal" in {row["requested_by"] for row in rows}
