"""Owners of topics by [owners] and by a file like CODEOWNERS, the same for files and for tables."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.frames import dicts, manifest_rows
from topicledger.config.ownership import Topic, barred, not_yours
from topicledger.config.reading import load_settings, read_settings
from topicledger.config.settings import Settings
from topicledger.errors import ManifestFileError, SettingsError
from topicledger.files.read import read
from topicledger.manifests import rows as manifests

BASE = '[tables]\nroot = "x"\n' + "".join(
    f'[clusters.{name}]\nbootstrap_servers = ["h:1"]\n' for name in ("main", "eu")
)
MAP = """
[owners.payments]
topics = ["^payments\\\\.", "^shared\\\\."]
[owners.Orders]
topics = ["^orders\\\\.", "^shared\\\\."]
clusters = ["main"]
"""
LINES = """# comment
*                   @platform
payments.*          @acme/payments orders@example.com   # two owners
payments.open.*
/eu/audit.?         @security
eu/orders.*         @orders
/main/**/x          @nobody-here
"""


def settings_of(folder: Path, text: str, lines: str | None = None) -> Settings:
    path = folder / "s.toml"
    path.write_text(BASE + text)
    if lines is not None:
        (folder / "CODEOWNERS").write_text(lines)
    return load_settings(path)


def by_map(folder: Path) -> Settings:
    return settings_of(folder, MAP)


def by_lines(folder: Path) -> Settings:
    return settings_of(folder, '[owners]\nfile = "CODEOWNERS"\n', LINES)


MAPPED: dict[Topic, str | None] = {
    ("main", "payments.a", "payments"): None,
    ("main", "payments.a", " Payments\t"): None,
    ("eu", "payments.a", "payments"): None,
    ("main", "payments.a", "orders"): "owner orders may not declare it: it belongs to payments ([owners])",
    ("main", "payments.a", None): "a row without an owner may not declare it: it belongs to payments ([owners])",
    ("main", "payments.a", " "): "a row without an owner may not declare it: it belongs to payments ([owners])",
    ("main", "payments.a", "x"): "owner x may not declare it: it belongs to payments ([owners])",
    ("main", "shared.a", "orders"): None,
    ("main", "shared.a", "payments"): None,
    ("main", "shared.a", "x"): "owner x may not declare it: it belongs to payments, Orders ([owners])",
    ("eu", "shared.a", "orders"): "owner orders may not declare it: it belongs to payments ([owners])",
    ("eu", "orders.a", "orders"): "owner orders may not declare it: none of its patterns in [owners] match, and "
    "the topic has no owner",
    ("eu", "orders.a", "x"): None,
    ("main", "other", None): None,
    ("main", "other", "x"): None,
}
LINED: dict[Topic, str | None] = {
    ("main", "other", "platform"): None,
    ("main", "other", "payments"): "owner payments may not declare it: it belongs to platform (CODEOWNERS:2)",
    ("main", "payments.a", "payments"): None,
    ("eu", "payments.a", "orders@example.com"): None,
    ("main", "payments.a", "platform"): "owner platform may not declare it: it belongs to payments, "
    "orders@example.com (CODEOWNERS:3)",
    ("main", "paymentsXa", "platform"): None,
    ("main", "payments.open.a", "x"): None,
    ("main", "payments.open.a", "payments"): "owner payments may not declare it: none of its patterns in [owners] "
    "match, and the topic has no owner",
    ("eu", "audit.1", "security"): None,
    ("main", "audit.1", "security"): "owner security may not declare it: it belongs to platform (CODEOWNERS:2)",
    ("eu", "audit.12", "platform"): None,
    ("eu", "orders.a", "orders"): None,
    ("main", "orders.a", "orders"): "owner orders may not declare it: it belongs to platform (CODEOWNERS:2)",
}


def test_a_topic_is_declared_by_its_owners_only(tmp_path: Path) -> None:
    assert dict(zip(MAPPED, not_yours(by_map(tmp_path).owners, [*MAPPED]), strict=True)) == MAPPED


def test_the_last_matching_line_of_a_file_counts(tmp_path: Path) -> None:
    assert dict(zip(LINED, not_yours(by_lines(tmp_path).owners, [*LINED]), strict=True)) == LINED


def test_a_cluster_as_a_whole_is_a_pattern_that_ends_with_a_slash(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '[owners]\nfile = "CODEOWNERS"\n', "/eu/ @europe\nmain/ @home\n")
    rows = [("eu", "main", "europe"), ("main", "eu", "home"), ("main", "eu", "europe"), ("eu", "a", "home")]
    assert [reason is None for reason in not_yours(settings.owners, rows)] == [True, True, False, False]


def test_a_pattern_without_a_slash_is_about_the_topic_alone(tmp_path: Path) -> None:
    """The name of the cluster may have a slash."""
    file = '[owners]\nfile = "CODEOWNERS"\n[clusters."prod/eu"]\nbootstrap_servers = ["h:1"]\n'
    settings = settings_of(tmp_path, file, "* @all\npay.* @pay\na**c @deep\nprod/eu/x @x\n")
    rows = [
        ("prod/eu", "pay.a", "pay"),
        ("prod/eu", "pay.a", "evil"),
        ("prod/eu", "other", "all"),
        ("prod/eu", "x", "x"),
    ]
    found = [*rows, ("prod/a", "c", "deep"), ("prod/a", "abc", "deep")]
    yours = [True, False, True, True, False, True]
    assert [reason is None for reason in not_yours(settings.owners, found)] == yours


@pytest.mark.parametrize(("make", "rows"), [(by_map, MAPPED), (by_lines, LINED)])
def test_rows_of_a_table_are_refused_alike(spark: SparkSession, tmp_path: Path, make: object, rows: object) -> None:
    settings = make(tmp_path)  # type: ignore[operator]
    asked = list(rows)  # type: ignore[call-overload]
    frame = manifest_rows(
        spark, *({"cluster": c, "topic": t, "owner": o, "labels": {"n": str(n)}} for n, (c, t, o) in enumerate(asked))
    )
    validated = frame.transform(manifests.with_reasons(manifests.yours(settings.owners)))
    told = {int(row["labels"]["n"]): (row["error"], row["error_message"]) for row in dicts(validated)}
    expected = [("NOT_YOURS" if why else None, why) for why in rows.values()]  # type: ignore[attr-defined]
    assert [told[number] for number in range(len(asked))] == expected


def test_a_refused_row_is_refused_in_phase_manifest(spark: SparkSession, tmp_path: Path) -> None:
    settings = by_map(tmp_path)
    frame = manifest_rows(spark, {"topic": "payments.a", "owner": "x"}, {"topic": "payments.b", "owner": "payments"})
    validate = manifests.validate(list(settings.clusters), None, manifests.yours(settings.owners))
    told = {row["topic"]: (row["phase"], row["outcome"], row["error"]) for row in dicts(frame.transform(validate))}
    assert told == {"payments.a": ("manifest", "refused", "NOT_YOURS"), "payments.b": (None, None, None)}


def test_a_file_says_it_with_its_line_and_loads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("cluster: main\ntopics:\n  - {topic: payments.a, owner: payments}\n  - {topic: payments.b}\n")
    with pytest.raises(ManifestFileError) as caught:
        read(by_map(tmp_path), [file], io.StringIO())
    first, last = str(caught.value).splitlines()
    assert first == (
        f"{file}:4: topic payments.b: a row without an owner may not declare it: it belongs to payments ([owners])"
    )
    assert last == "1 error: nothing was loaded or planned"


def test_only_the_owners_of_a_topic_may_replace_it(spark: SparkSession, tmp_path: Path) -> None:
    file, settings = tmp_path / "m.json", by_map(tmp_path)
    rows = [
        {"topic": "orders.new", "replaces": "payments.legacy", "owner": "orders"},
        {"topic": "payments.new", "replaces": "payments.legacy", "owner": "payments"},
        {"topic": "payments.x", "replaces": "payments.y", "owner": "orders"},
    ]
    theirs = "it replaces payments.{}: owner orders may not declare it: it belongs to payments ([owners])"
    declared = "owner orders may not declare it: it belongs to payments ([owners])"
    expected = {"orders.new": theirs.format("legacy"), "payments.x": f"{declared}; {theirs.format('y')}"}
    validated = dicts(manifest_rows(spark, *rows).transform(manifests.with_reasons(manifests.yours(settings.owners))))
    assert {row["topic"]: row["error_message"] for row in validated if row["error"] == "NOT_YOURS"} == expected
    validate = manifests.validate(list(settings.clusters), None, manifests.yours(settings.owners))
    stopped = {"topic": "payments.legacy", "owner": "orders"}
    told = {row["topic"]: row["error"] for row in dicts(manifest_rows(spark, *rows[:2], stopped).transform(validate))}
    assert told == {"orders.new": "NOT_YOURS", "payments.new": None, "payments.legacy": "NOT_YOURS"}, "theirs goes on"
    file.write_text(json.dumps([{"cluster": "main", **row} for row in rows[:2]]))
    with pytest.raises(ManifestFileError, match=re.escape(f"topic orders.new: {theirs.format('legacy')}")):
        read(settings, [file], io.StringIO())


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("* @\n", "CODEOWNERS:1: an owner has no name"),
        ("* @a\n" + "?" * 300_000 + " @a\n", "CODEOWNERS:2: the pattern is longer than 1,000 characters"),
        ("", "CODEOWNERS has no line with a pattern"),
        ("# nobody yet\n", "CODEOWNERS has no line with a pattern"),
        ("*@platform\n", "CODEOWNERS:1: no topic has @ in its name"),
        ("* @a\nEu/* @x\n", "CODEOWNERS:2: no cluster of the settings is Eu; did you mean `eu`?"),
        ("/Eu/ @x\n", "CODEOWNERS:1: no cluster of the settings is Eu"),
        ("/mian @x\n", "CODEOWNERS:1: no cluster of the settings is mian; did you mean `main`?"),
        ("mian*/a.* @x\n", "CODEOWNERS:1: no cluster of the settings is mian\\*"),
    ],
)
def test_wrong_lines_of_owners_are_errors_of_the_settings(tmp_path: Path, lines: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        settings_of(tmp_path, '[owners]\nfile = "CODEOWNERS"\n', lines)


def test_a_path_with_a_nul_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        settings_of(tmp_path, '[owners]\nfile = "a\\u0000b"\n')


def test_without_owners_everybody_declares_everything(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "")
    assert manifests.yours(settings.owners) == ()


def test_owners_affect_the_digest_of_settings(tmp_path: Path) -> None:
    nobody = settings_of(tmp_path, "").digest()
    mapped = by_map(tmp_path).digest()
    lined = by_lines(tmp_path).digest()
    other = settings_of(tmp_path, '[owners]\nfile = "CODEOWNERS"\n', LINES + "x @y\n").digest()
    assert len({nobody, mapped, lined, other}) == 4
    comment = settings_of(tmp_path, '[owners]\nfile = "CODEOWNERS"\n', "\n\n" + LINES + "# more\n").digest()
    assert comment == lined, "only what the lines say counts"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[owners.a]\n", "`owners.a.topics` is missing"),
        ('[owners.a]\ntopics = ["("]\n', "`owners.a.topics` pattern '(' is not valid in RE2"),
        ('[owners.a]\ntopics = ["x"]\nclusters = ["mian"]\n', "names unknown cluster `mian`; did you mean `main`?"),
        ('[owners.a]\ntopics = ["x"]\ntopic = "y"\n', "unknown key `owners.a.topic`; did you mean `topics`?"),
        ('[owners]\nfile = "none"\n', "`owners.file` "),
        ('[owners]\nfile = "CODEOWNERS"\n[owners.a]\ntopics = ["x"]\n', "both assign owners to topics"),
        ('[owners]\nfile = "CODEOWNERS"\n', "CODEOWNERS:2: a pattern can't contain !, [ ] or \\"),
    ],
)
def test_wrong_settings(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "CODEOWNERS").write_text("a @b\n!x @b\n")
    (tmp_path / "s.toml").write_text(BASE + text)
    _, problems = read_settings(tmp_path / "s.toml")
    assert any(problem in each for each in problems), problems


def test_owners_bind_the_requesters_of_runs(tmp_path: Path) -> None:
    bound = settings_of(tmp_path, MAP.replace("[owners.Orders]", '[owners.Orders]\nrequested_by = ["ann", "Nightly"]'))
    assert [barred(bound.owners, each) for each in (" ANN ", "nightly", "bob")] == [(), (), ("Orders",)]
    assert barred(by_map(tmp_path).owners, "bob") == ()
    assert bound.digest() == by_map(tmp_path).digest(), "the scope of a run has its barred owners"
