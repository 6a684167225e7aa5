"""`policies list`, `check` and `explain`: rules are tried out without a run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests import commands
from tests.broker.direct import make
from tests.broker.invoking import invoke, load
from tests.unit.frames import frame
from topicledger.cli import live_policies, upgrades
from topicledger.ledger.tables import Ledger
from topicledger.observe.topics import Observation
from topicledger.policies.built_in import BUILT_IN
from topicledger.resources.topics.plan.changes import describe
from topicledger.schemas import AUDIT, MANIFESTS, TABLES
from topicledger_testing.embedded_kafka import EmbeddedKafka

POLICIES = """
[guards]
max_deletes = 1
[[policies.create]]
use = "topic_name_pattern"
pattern = "^explained[.]"
[[policies.create]]
use = "config_range"
config = "retention.ms"
max = 86400000
[[policies.create]]
use = "labels_required"
names = ["tier"]
mode = "warn"
owners = ["somebody else"]
[[policies.create]]
use = "num_partitions"
max = 1
mode = "warn"
[[policies.delete]]
use = "protected_topics"
patterns = ["[.]kept$"]
[changes]
configs = "declared"
partitions = "grow"
[[policies.change]]
use = "partitions_growth"
max_factor = 2
"""

MANIFEST = """
cluster: main
topics:
  - {topic: explained.new, num_partitions: 2, owner: tests}
  - {topic: explained.kept, state: absent}
  - {topic: explained.copies, replication_factor: 3}
  - {topic: explained.changed, num_partitions: 3, configs: {retention.ms: 96400000}}
"""


@pytest.fixture(scope="module")
def config(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    make(kafka, "explained.kept", "explained.stranger", "explained.changed", configs={"cleanup.policy": "compact"})
    path = commands.settings_file(tmp_path_factory.mktemp("explain"), {"main": kafka.bootstrap_servers}, more=POLICIES)
    assert load(path, MANIFEST).exit_code == 0
    # A different tool may have written rows that load_manifests would refuse.
    row = {"cluster": "main", "topic": "explained wrong", "state": "present"}
    wrong = spark.createDataFrame([row], MANIFESTS.schema)
    wrong.write.format("delta").mode("append").save(str(path.with_name("ledger") / MANIFESTS.name))
    return path


def explain(config: Path, topic: str) -> dict[str, Any]:
    asked = ("policies", "explain", "--config", config, "--cluster", "main", "--topic", topic, "--format", "json")
    result = invoke(*asked)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_list_names_every_built_in_policy_with_its_settings() -> None:
    told = json.loads(invoke("policies", "list", "--format", "json").stdout)["policies"]
    settings = {(each["judges"], each["policy"]): each["settings"] for each in told}
    assert settings["create", "num_partitions"] == ["min (an integer, default 1)", "max (an integer, optional)"]
    assert settings["delete", "protected_topics"] == ["patterns (a list, each a string)"]
    assert {(action.value, name) for action, named in BUILT_IN.items() for name in named} < set(settings)
    assert all(each["what"] for each in told)
    table = invoke("policies", "list").stdout
    assert "partition_budget" in table


def test_check_looks_at_the_settings_only(config: Path, tmp_path: Path) -> None:
    checked = invoke("policies", "check", "--config", config)
    assert checked.exit_code == 0
    assert "protected_topics" in checked.stdout
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(config.read_text().replace('"num_partitions"\nmax = 1', '"num_partition"\nmax = "1"'))
    refused = invoke("policies", "check", "--config", wrong)
    assert refused.exit_code == 2
    assert "there is no create policy `num_partition`; did you mean `num_partitions`?" in refused.stderr
    assert str(wrong) in refused.stderr


def test_check_lists_a_wrong_mode_beside_what_is_wrong_with_the_policies(config: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    text = config.read_text().replace('mode = "warn"', 'mode = "perhaps"', 1)
    wrong.write_text(text.replace('"num_partitions"\nmax = 1', '"num_partition"\nmax = 1'))
    refused = invoke("policies", "check", "--config", wrong)
    assert refused.exit_code == 2
    assert '`policies.create[3].mode` must be "refuse" or "warn"' in refused.stderr
    assert "there is no create policy `num_partition`" in refused.stderr


@pytest.mark.thorough
def test_a_users_own_policy_is_listed_and_explained(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(commands.REPOSITORY / "examples" / "policies"))
    own = config.with_name("own-here.toml")
    own.write_text(
        config.read_text() + '[[policies.create]]\nuse = "house_rules:retention_by_tier"\ndays = {gold = 7}\n'
    )
    listed = json.loads(invoke("policies", "list", "--config", own, "--format", "json").stdout)["policies"][-1]
    assert listed == {
        "judges": "create",
        "policy": "house_rules:retention_by_tier",
        "settings": ["days (a table)"],
        "what": "A topic keeps its records for at most a number of days, by its label `tier`.",
    }
    verdict = explain(own, "explained.new")["verdicts"][-1]
    assert (verdict["verdict"], verdict["inputs"]) == ("broken", "num_partitions 2; owner tests")
    missing = invoke("policies", "list", "--config", tmp_path / "none.toml")
    assert (missing.exit_code, "no such file" in missing.stderr) == (2, True)


@pytest.mark.thorough
def test_explain_tells_each_rule_its_inputs_and_its_verdict_on_a_create(config: Path, spark: SparkSession) -> None:
    """C5: what is left to the broker is asked by validateOnly."""
    told = explain(config, "explained.new")
    assert (told["decision"], told["notes"]) == ("create", [])
    verdicts = {each["policy"]: each for each in told["verdicts"]}
    assert {name: each["verdict"] for name, each in verdicts.items()} == {
        "name_collision": "fine",
        "topic_name_pattern": "fine",
        "config_range": "broken",
        "labels_required": "not asked",
        "num_partitions": "broken",
    }
    assert verdicts["config_range"]["inputs"] == "retention.ms 604800000"
    assert verdicts["config_range"]["settings"] == {"config": "retention.ms", "max": 86400000}
    assert verdicts["num_partitions"]["message"] == "warning: num_partitions is 2; allowed is 1 to 1"
    assert verdicts["config_range"]["mode"] == "refuse"
    exempting = config.with_name("exempting.toml")
    exempting.write_text('[policies]\nrecreated = "exempt"\n' + config.read_text())
    ledger = Ledger(spark, str(config.with_name("ledger")))
    done = {
        "cluster": "main",
        "resource_type": "topic",
        "action": "create",
        "phase": "apply",
        "outcome": "ok",
        "completed_at": datetime.now(UTC),
    }
    ledger.ensure(AUDIT)
    ledger.append(AUDIT, frame(spark, AUDIT.schema, [{**done, "topic": "explained.new"}]), app_id="then", version=1)
    told = explain(exempting, "explained.new")
    (note,) = told["notes"]
    assert note.startswith("this ledger created it before, so policies only warn")
    modes = {each["policy"]: (each["mode"], each["verdict"]) for each in told["verdicts"]}
    assert (modes["config_range"], modes["name_collision"]) == (("warn", "broken"), ("refuse", "fine"))


@pytest.mark.thorough
def test_explain_tells_of_a_delete_and_of_what_needs_no_judgement(config: Path) -> None:
    kept = explain(config, "explained.kept")
    assert [(each["policy"], each["verdict"]) for each in kept["verdicts"]] == [
        ("internal_topic", "fine"),
        ("protected_topics", "broken"),
    ]
    stranger = explain(config, "explained.stranger")
    assert stranger["notes"] == ["unmanaged: evaluated as if it were created now as it is"]
    found = {each["policy"]: (each["verdict"], each["inputs"]) for each in stranger["verdicts"]}
    assert found["config_range"] == ("broken", "retention.ms 604800000")
    assert found["num_partitions"][0] == "fine"
    (note,) = explain(config, "explained wrong")["notes"]
    assert note.startswith("manifest refused: INVALID_TOPIC")
    (note,) = explain(config, "explained.copies")["notes"]
    assert "INVALID_REPLICATION_FACTOR" in note


@pytest.mark.thorough
def test_explain_says_what_a_change_does_and_what_each_rule_says_of_it(config: Path) -> None:
    """Old and new values, possible losses, and the policies of creates that evaluate changes, too."""
    changed = explain(config, "explained.changed")
    assert changed["notes"] == [
        "add_partitions: num_partitions 1 -> 3",
        "counts for guards.max_losses: a compacted topic, whose records have keys, from 1 to 3 partitions loses the "
        "order of keys",
        "alter_configs: retention.ms default -> 96400000",
        "counts for guards.max_losses: retention.ms 604800000 -> 96400000 can lose data at once",
    ]
    assert {(each["action"], each["policy"]): each["verdict"] for each in changed["verdicts"]} == {
        ("add_partitions", "fewer_partitions"): "fine",
        ("add_partitions", "num_partitions"): "broken",
        ("add_partitions", "partitions_growth"): "broken",
        ("alter_configs", "config_range"): "broken",
    }


@pytest.mark.thorough
def test_explain_says_what_is_wrong_with_the_question_and_leaves_no_trace(config: Path, spark: SparkSession) -> None:
    common = ("policies", "explain", "--config", config, "--topic", "explained.new")
    assert "needs one --cluster" in invoke(*common).stderr
    nobody = invoke(*common[:-1], "explained.nobody", "--cluster", "main")
    assert nobody.exit_code == 2
    assert "no topic explained.nobody" in nobody.stderr
    table = invoke(*common, "--cluster", "main")
    assert "config_range" in table.stdout
    ledger = Ledger(spark, str(config.parent / "ledger"))
    made = {name for name in TABLES if Path(ledger.location(TABLES[name])).exists()}
    # A test before this one writes its own row of `audit`.
    assert made - {"audit"} == {"manifests", "runs", "usages"}


@pytest.mark.thorough
def test_a_policy_of_the_users_own_comes_by_py_files(config: Path) -> None:
    """P4: the docs' walk-through, through Spark."""
    own = config.with_name("own.toml")
    use = '[[policies.create]]\nuse = "house_rules:new_topics_per_owner"\nmax = 0\n'
    own.write_text(config.read_text() + use)
    asked = ("--config", str(own), "--cluster", "main", "--topic", "explained.new", "--format", "json")
    done = commands.run(
        [str(commands.SUBMIT), "jobs/policies.py", "explain", *asked],
        TOPICLEDGER_SUBMIT_ARGS="--py-files examples/policies/house_rules.py",
    )
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)["verdicts"][-1]
    assert (verdict["policy"], verdict["verdict"]) == ("house_rules:new_topics_per_owner", "broken")
    missing = commands.run([str(commands.SUBMIT), "jobs/policies.py", "check", "--config", str(own)])
    assert missing.returncode == 2
    assert "can't be imported" in missing.stderr
    assert "--py-files" in missing.stderr


@pytest.mark.thorough
def test_an_audit_of_policies_names_the_topics_that_today_would_be_refused(config: Path) -> None:
    """Existing topics are evaluated as they are, with the broker's defaults; owners and labels are from manifests."""
    asked = ("policies", "audit", "--config", config, "--cluster", "main")
    result = invoke(*asked, "--format", "json", "--detailed-exitcode")
    assert result.exit_code == 3, result.output
    document = json.loads(result.stdout)
    mine = [each for each in document["findings"] if each["topic"].startswith("explained.")]
    assert {(each["topic"], each["policy"], each["verdict"]) for each in mine} == {
        (topic, "config_range", "broken") for topic in ("explained.changed", "explained.kept", "explained.stranger")
    }
    assert {each["message"] for each in mine} == {
        "retention.ms is 604800000, the broker's default; allowed is any to 86400000"
    }
    others = {each["topic"] for each in document["findings"] if each["policy"] == "topic_name_pattern"}
    assert not any(topic.startswith(("explained.", "__")) for topic in others)
    validated = {each["policy"]: each for each in document["policies"]}
    assert validated["labels_required"]["asked"] == 0
    assert validated["config_range"]["asked"] == document["topics"] >= 3
    narrowed = invoke(*asked, "--policy", "num_partitions")
    assert narrowed.exit_code == 0
    assert "config_range" not in narrowed.stdout
    upgrade = invoke(*asked, "--for-kafka", "3.9", "--format", "json")
    assert upgrade.exit_code == 0, upgrade.output
    defaults = {each["message"] for each in json.loads(upgrade.stdout)["findings"] if each["source"] == "default"}
    assert "the default is 9223372036854775807 in Kafka 3.9, and 1h (3600000) now" in " ".join(defaults)
    others = config.with_name("ignoring.toml")
    others.write_text(config.read_text() + '[scope]\nignore_topics = ["^explained[.]stranger$"]\n')
    ignoring = ("policies", "audit", "--config", others, "--cluster", "main", "--format", "json")
    left = json.loads(invoke(*ignoring).stdout)
    assert (left["ignored"], left["topics"]) == (1, document["topics"] - 1)
    assert not any(each["topic"] == "explained.stranger" for each in left["findings"])
    older = json.loads(invoke(*ignoring, "--for-kafka", "3.9").stdout)
    assert older["ignored"] == 1
    (fewer,) = [each["topics"] for each in older["findings"] if each["source"] == "default"]
    assert fewer == sum(each["topics"] for each in json.loads(upgrade.stdout)["findings"]) - 1
    unknown = invoke(*asked, "--policy", "num_partition")
    assert unknown.exit_code == 2
    assert "did you mean `num_partitions`" in unknown.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), ("--for-kafka", "3.9")])
def test_an_audit_of_policies_tells_a_cluster_that_was_lost_after_its_topics_were_listed(
    more: tuple[str, ...], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its configs no topic can be evaluated: that is no clean audit."""

    def lost(*asked: Any) -> tuple[Observation, DataFrame]:
        seen, configs = describe(*asked)
        status = replace(seen.statuses["main"], error="cluster main can't be reached any more")
        return replace(seen, statuses={**seen.statuses, "main": status}), configs.limit(0)

    for module in (live_policies, upgrades):
        monkeypatch.setattr(module, "describe", lost)
    result = invoke("policies", "audit", "--config", config, "--cluster", "main", "--format", "json", *more)
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document["problems"] == ["cluster main can't be reached any more"]
    assert document.get("topics", 0) == 0
    assert [each for each in document["findings"] if each.get("source") != "declared"] == []
