"""Errors of files, settings and options are reported before there is a Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicledger.cli import main

NO_SESSION = "no Delta jars"
"""What a command says that gets as far as the session here."""

SETTINGS = """
[tables]
root = "ledger"
[clusters.orders]
bootstrap_servers = ["localhost:9092"]
"""
NO_POLICY = '[[policies.create]]\nuse = "topic_nam_pattern"\n'
BAD_PATTERN = '[[policies.create]]\nuse = "topic_name_pattern"\npattern = "("\n'
NO_DAYS = '[[policies.delete]]\nuse = "no_recent_records"\n'
USERS_OWN = '[[policies.create]]\nuse = "no.such.module:rule"\n'

BAD_ROW = "cluster: orders\ntopics:\n  - {topic: fine}\n  - {topic: a b, num_partitions: 0}\n"
BAD_RIGHTS = """cluster: orders
acls:
  - {principal: "User:a", operation: READ, resource_type: TOPIC, resource_name: fine}
  - {principal: "User:a", operation: CREATE, resource_type: GROUP, resource_name: g}
  - {principal: "User:a", operation: REED, resource_type: TOPIC, resource_name: a b}
  - {principal: "User:a", operation: READ, resource_type: TOPIC, resource_name: fine, state: absent}
"""
BAD_QUOTAS = "cluster: orders\nquotas:\n  - {user: a, producer_byte_rate: 100000000.5}\n  - {user: b}\n"
BAD_FIELD = "cluster: orders\ntopics:\n  - {topic: a, num_partitons: 3}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ledger").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOPICLEDGER_JARS", str(tmp_path / "none"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], folder: Path, settings: str, *arguments: str) -> tuple[int, str]:
    (folder / "s.toml").write_text(SETTINGS + settings)
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--config", "s.toml"], prog_name="topicledger")
    return int(str(ended.value.code)), capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        (BAD_ROW, 4, "topic a b: topic has a character other than ASCII letters"),
        (BAD_ROW, 4, "; num_partitions is 0; it must be at least 1"),
        (BAD_RIGHTS, 4, "acl: operation CREATE does not apply to a GROUP; use READ, DESCRIBE, DELETE"),
        (BAD_RIGHTS, 5, "acl: operation is REED; write one of ALTER"),
        (BAD_RIGHTS, 5, "; resource_name is a b, which is not a legal topic name or prefix"),
        (BAD_RIGHTS, 6, "this ACL is present at m.yaml:3, and absent here; keep one"),
        (BAD_QUOTAS, 3, "quota: producer_byte_rate is 1.000000005E8; it must be a whole number below 2^63"),
        (BAD_QUOTAS, 4, "quota: it has no limit; write one, or state absent to remove all"),
        (BAD_FIELD, 3, "unknown field `num_partitons`; did you mean `num_partitions`?"),
        ("cluster: order\ntopics: [{topic: a}]", 1, "unknown cluster `order`; did you mean `orders`?"),
    ],
)
@pytest.mark.parametrize("command", [["load-manifests", "m.yaml"], ["plan", "m.yaml"]])
def test_wrong_files(
    capsys: pytest.CaptureFixture[str], folder: Path, command: list[str], file: str, line: int, why: str
) -> None:
    (folder / "m.yaml").write_text(file)
    code, error = told(capsys, folder, "", *command)
    assert code == 2
    assert f"m.yaml:{line}: " in error
    assert why in error


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("load-manifests m.yaml --var X=1", "--var X: no file has ${X} in plain text; leave it out"),
        ("plan m.yaml --var X=1", "--var X: no file has ${X} in plain text"),
        ("load-manifests t.yaml --from topicctl --strict", "--strict is for native files; with --from topicctl leave"),
        ("load-manifests t.yaml --from topicctl --var X=1", "--var is for native files"),
        ("load-manifests t.yaml - --from topicctl --stdin-format json", "--stdin-format is for native files"),
        ("load-manifests m.yaml --stdin-format json", "--stdin-format is for stdin: give - among the FILES"),
        ("load-manifests m.yaml --show", "give --dry-run with it"),
        ("load-manifests m.yaml --dry-run --show --replace", "leave out --replace and --replace-owner"),
        ("load-manifests m.yaml --dry-run --run-id x", "--dry-run adds no run"),
        ("load-manifests m.yaml --replace --replace-owner x", "give it or --replace-owner"),
        ("plan --manifest-as-of 0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00 is not a time"),
        ("plan --strict", "--strict is about FILES"),
        ("plan --var X=1", "--var is about FILES"),
        ("plan --replace", "--replace and --replace-owner are about FILES"),
        ("plan --all", "--all is about FILES"),
        ("plan m.yaml --only creates", "`apply` loads all rows of FILES, also those whose actions --only leaves out"),
        ("plan m.yaml --manifest-version 1", "leave out --manifest-version and -as-of"),
        ("plan --manifest-version 1 --manifest-as-of 2026-01-01", "give one of them"),
        ("drift --fail-on info --detailed-exitcode", "give one of them"),
        ("export --cluster orders --into-table --units", "--units is for files"),
        ("export --cluster orders --into-table --overwrite", "--overwrite is for files"),
        ("export --cluster orders --into-table --split owner", "--split owner needs --to"),
        ("catalog --to x.txt --as list --environment DEV", "--environment is for DataHub"),
        ("report --out x.html --run-id x --until 2026-01-01", "--until needs --since"),
        ("report --index . --owner x", "--index alone lists all reports of its folder"),
        ("policies audit --for-kafka 4.0 --policy x", "leave out --policy"),
        ("maintain --run-id x", "leave out --run-id and --requested-by"),
        ("prune --declared --idle-days 30 --to x.yaml --deadline 5", "prune --declared makes no plan"),
        ("prune --topics x --idle-days 30 --to x.yaml", "prune --to is for --declared"),
        ("runs show x --format json --max-chars 5000", "--max-chars is for text and markdown"),
        ("load-manifests m.yaml --cluster nope", "unknown cluster `nope`"),
    ],
)
def test_options_that_would_do_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: str, why: str
) -> None:
    (folder / "m.yaml").write_text("cluster: orders\ntopics: [{topic: a}]\n")
    (folder / "t.yaml").write_text("meta: {name: t, cluster: orders}\nspec: {partitions: 2, replicationFactor: 1}\n")
    code, error = told(capsys, folder, "", *arguments.split())
    assert (code, why in error) == (2, True), error


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("[guards]\nmax_delets = 1\n", "unknown key `guards.max_delets`; did you mean `max_deletes`?"),
        (NO_POLICY, "policies.create[1]: there is no create policy `topic_nam_pattern`; did you mean"),
        (BAD_PATTERN, "policies.create[1]: topic_name_pattern: pattern '(' is not valid in RE2"),
        (NO_DAYS, "policies.delete[1]: no_recent_records: `days`, an integer, is missing"),
    ],
)
@pytest.mark.parametrize("command", [["plan"], ["provision"], ["policies", "audit"]])
def test_wrong_settings(
    capsys: pytest.CaptureFixture[str], folder: Path, command: list[str], settings: str, why: str
) -> None:
    code, error = told(capsys, folder, settings, *command)
    assert code == 2
    assert f"s.toml: {why}" in error


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("apply", "apply needs --run-id"),
        ("plan --only topics", "there is no kind of actions `topics`"),
        ("plan --only configs", "--only configs: changes.configs is off"),
        ("plan --cluster order", "unknown cluster `order`; did you mean `orders`?"),
        ("clusters accept order", "unknown cluster `order`; did you mean `orders`?"),
        ("export --cluster orders --into-table --pattern (", "is not valid in RE2"),
        ("export --cluster orders --to topics.txt", "a file name must end in .yaml"),
        ("export --cluster orders --to s.json --into-table", "export needs one of --to and --into-table"),
        ("report --out r.html --since yesterday", "--since yesterday is not a time"),
        ("runs show", "runs show needs RUN_ID"),
        ("plan --only replicas", "--only replicas: changes.replicas is off; see docs/replicas.md"),
        ("rebalance --cluster orders", "rebalance needs either --drain BROKER or --fill BROKER"),
        ("rebalance --drain 1 --fill 2", "rebalance needs either --drain BROKER or --fill BROKER"),
        ("prune --topic ^a --idle-days 1 --owner a", "s.toml has no [owners], and topics without a manifest"),
        ("load-manifests m.yaml --replace --replace-owner a", "give it or --replace-owner"),
        ("plan m.yaml --replace --replace-owner a", "give it or --replace-owner"),
        ("plan --replace-owner a", "--replace and --replace-owner are about FILES"),
        ("load-manifests m.yaml --stdin-format csv", "--stdin-format is for stdin"),
        ("load-manifests m.yaml --dry-run --run-id r", "--dry-run adds no run"),
        ("export --cluster orders --into-table --overwrite", "--overwrite is for files"),
        ("maintain --requested-by ann", "without --execute, maintain adds no run"),
        ("report --index reports --cluster orders", "leave out --cluster"),
        ("runs list --cluster orders", "No such option '--cluster'"),
        ("runs show a --run-id b", "RUN_ID a and --run-id b differ"),
        ("runs abandon r --format json", "No such option '--format'"),
    ],
)
def test_wrong_options(capsys: pytest.CaptureFixture[str], folder: Path, command: str, why: str) -> None:
    code, error = told(capsys, folder, "", *command.split())
    assert code == 2
    assert why in error


@pytest.mark.parametrize("command", [["load-manifests", "m.yaml"], ["plan", "m.yaml"]])
def test_an_unknown_config_is_an_error_with_strict(
    capsys: pytest.CaptureFixture[str], folder: Path, command: list[str]
) -> None:
    (folder / "m.yaml").write_text("cluster: orders\ntopics: [{topic: a, configs: {retention.mss: 5}}]")
    code, error = told(capsys, folder, "", *command, "--strict")
    assert code == 2
    assert "m.yaml:2: unknown config `retention.mss`; did you mean `retention.ms`?" in error
    code, error = told(capsys, folder, "", *command)
    assert (code, NO_SESSION in error) == (1, True), error


def test_valid_commands_get_as_far_as_the_session(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "m.yaml").write_text("cluster: orders\ntopics: [{topic: a}]")
    for command in ("load-manifests m.yaml", "plan", "export --cluster orders --to out.yaml"):
        code, error = told(capsys, folder, "", *command.split())
        assert (code, NO_SESSION in error) == (1, True), error


def test_a_policy_of_the_users_own_is_left_for_the_session(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, error = told(capsys, folder, USERS_OWN, "plan")
    assert (code, NO_SESSION in error) == (1, True), error
