"""`[scope]` leaves topics to others: they can't be declared, and documented patterns match what tools create."""

from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import other_tools
from topicledger.config.reading import load_settings
from topicledger.config.scope import OF_KINDS, TOPICS_IGNORED, ScopeSettings
from topicledger.config.settings import Settings
from topicledger.errors import ManifestFileError, SettingsError
from topicledger.files.read import read
from topicledger.manifests.rows import validated_by
from topicledger.schemas import MANIFESTS

BASE = '[tables]\nroot = "/data/ledger"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n'


def settings_of(folder: Path, patterns: str) -> Settings:
    path = folder / "s.toml"
    path.write_text(f"{BASE}[scope]\nignore_topics = {patterns}\n")
    return load_settings(path)


def test_documented_patterns_match_topics_that_tools_create() -> None:
    scope = ScopeSettings(ignore_topics=tuple(tomllib.loads(other_tools.documented_scope())["scope"]["ignore_topics"]))
    theirs = other_tools.TOPICS
    assert dict(zip(theirs, scope.ignored("ignore_topics", theirs), strict=True)) == dict.fromkeys(theirs, True)
    ours = ["payments.authorised", "changelog.orders", "orders.reconnect-events", "adlq.x"]
    ours += ["europe.orders", "orders.eu.v1", "orders-topic", "orders-subscription-topic", "us.heartbeats", "my-adlq"]
    assert dict(zip(ours, scope.ignored("ignore_topics", ours), strict=True)) == dict.fromkeys(ours, False)


def test_wrong_patterns_are_errors_in_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"scope\.ignore_topics.*not valid in RE2"):
        settings_of(tmp_path, '["(?=x)"]')
    for pattern in ("-changelog$|", "x*", "", ".*", "a?", ".+", "^.*$", "^[^/]"):
        with pytest.raises(SettingsError) as raised:
            settings_of(tmp_path, f'["a", "{pattern}"]')
        assert "scope.ignore_topics" in str(raised.value)
    with pytest.raises(SettingsError, match=r"ignore_topics` pattern '-changelog\$\|' matches every name; match only"):
        settings_of(tmp_path, '["-changelog$|"]')
    narrow = ("^[a-z]*$", "-changelog$|^connect-", "x+")
    assert settings_of(tmp_path, str([*narrow])).scope.ignore_topics == narrow


def test_ignored_topics_in_files_are_errors_with_their_line(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '["-changelog$"]')
    path = tmp_path / "m.yaml"
    path.write_text("cluster: main\ntopics:\n  - {topic: a}\n  - {topic: a-changelog}\n")
    with pytest.raises(ManifestFileError, match=r"m\.yaml:4: topic a-changelog: .* scope\.ignore_topics"):
        read(settings, [path], io.StringIO(""))
    path.write_text("cluster: main\ntopics:\n  - {topic: a}\n  - {topic: b, replaces: a-changelog}\n")
    with pytest.raises(ManifestFileError, match=r"m\.yaml:4: topic b: replaces names a topic .* scope\.ignore_topics"):
        read(settings, [path], io.StringIO(""))


def test_ignored_topics_in_the_table_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '["-changelog$"]')
    values = dict.fromkeys(MANIFESTS.schema.names) | {"cluster": "main", "state": "present"}
    rows = [{**values, "topic": "a"}, {**values, "topic": "a-changelog"}, {**values, "topic": None}]
    rows.append({**values, "topic": "b", "replaces": "a-changelog"})
    nullable = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in MANIFESTS.schema)
    validated = spark.createDataFrame(rows, nullable).transform(validated_by(settings, None)).collect()
    found = {row["topic"]: (row["error"], row["error_message"] or "") for row in validated}
    assert found["a"] == (None, "")
    error, message = found["a-changelog"]
    assert (error, "scope.ignore_topics" in message) == ("INVALID_TOPIC", True)
    error, message = found["b"]
    assert (error, message.startswith(TOPICS_IGNORED["replaces"])) == ("INVALID_TOPIC", True)


def test_every_pattern_of_the_settings_leaves_something_out(tmp_path: Path) -> None:
    """Rows of files that match are errors, whatever the kind and the column."""
    path, file = tmp_path / "s.toml", tmp_path / "m.yaml"
    theirs = {name: f"theirs-{name}" for name in OF_KINDS}
    path.write_text(f"{BASE}[scope]\n" + "".join(f'{name} = ["{text}$"]\n' for name, text in theirs.items()))
    file.write_text(
        "cluster: main\nacls:\n"
        "  - consumer: {principal: 'User:theirs-ignore_principals', topics: [a], groups: [b]}\n"
        "quotas:\n"
        "  - {user: theirs-ignore_users, client_id: a, producer_byte_rate: 1}\n"
        "  - {user: a, client_id: theirs-ignore_clients, producer_byte_rate: 1}\n"
        "  - {user: a, producer_byte_rate: 1}\n"
        "groups:\n"
        "  - {group: theirs-ignore_groups, configs: {consumer.session.timeout.ms: 46000}}\n"
    )
    with pytest.raises(ManifestFileError) as raised:
        read(load_settings(path), [file], io.StringIO(""))
    lines = str(raised.value).splitlines()
    found = [(int(number), name) for number, name in re.findall(r"m\.yaml:(\d+): .*scope\.(\w+) in", "\n".join(lines))]
    assert found == [(3, "ignore_principals"), (5, "ignore_users"), (6, "ignore_clients"), (9, "ignore_groups")]
    assert {name for _, name in found} == {*OF_KINDS}


def test_patterns_are_part_of_the_digests(tmp_path: Path) -> None:
    one, other = settings_of(tmp_path, '["-changelog$"]'), settings_of(tmp_path, '["^connect-"]')
    assert one.digest() != other.digest()
    assert one.audit_digest() != other.audit_digest()
