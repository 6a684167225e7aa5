"""Manifest files from anyone: bounded time and memory, one line an error, and nothing of what is no manifest shown."""

from __future__ import annotations

import io
import json
import os
import resource
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.errors import ManifestFileError
from topicledger.files import reading, yaml_files
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.read import read as read_checked
from topicledger.files.read import remarks
from topicledger.files.reading import read_foreign_files, read_manifest_files
from topicledger.manifests.files import ParsedManifests, report
from topicledger.manifests.files.report import MAX_ERRORS

NOTHING = io.StringIO("")
BLANK, UNUSUAL = "\u00a0", "an unusual blank (U+00A0)"
ROW = '{"cluster": "c", "topic": "t"}'
MANY = ", ".join(f"k{number}: x" for number in range(2_000))


def errors(parsed: ParsedManifests) -> list[str]:
    return [str(error) for error in parsed.errors]


def read_text(folder: Path, name: str, text: str) -> ParsedManifests:
    (folder / name).write_text(text, encoding="utf-8")
    return read_manifest_files([folder / name], NOTHING)


def doubled_duplicates(levels: int) -> str:
    """Merges of a key written twice, twice a level: 2 to the power of `levels` duplicates."""
    lines = ["a0: &a0 {k: 1, k: 2}"]
    lines += [f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}" for level in range(1, levels)]
    return "\n".join(lines) + "\n"


HOSTILE = {
    "doubled duplicates": ("m.yaml", doubled_duplicates(40)),
    "an entry with many duplicates, many times": (
        "m.yaml",
        "cluster: c\ntopics:\n- &t {topic: t, owner: o" + ", owner: o" * 20_000 + "}\n" + "- *t\n" * 20_000,
    ),
    "defaults of topics without configs": (
        "m.yaml",
        f"cluster: c\ndefaults: {{configs: {{{MANY}}}}}\ntopics:\n" + "- {topic: t}\n" * 20_000,
    ),
    "unknown configs, many times": (
        "m.yaml",
        "cluster: c\ntopics:\n- &t {topic: t, configs: {"
        + ", ".join(f"k{number}: x" for number in range(900))
        + "}}\n"
        + "- *t\n" * 8_000,
    ),
    "unknown fields, many times": (
        "m.yaml",
        "cluster: c\ntopics:\n- &t {topic: t, "
        + ", ".join(f"k{number}: x" for number in range(900))
        + "}\n"
        + "- *t\n" * 8_000,
    ),
    "default assignments": (
        "m.yaml",
        "cluster: c\ndefaults: {assignments: {"
        + ", ".join(f"{partition}: [1, 2, 3]" for partition in range(2_000))
        + "}}\ntopics:\n"
        + "- {topic: t}\n" * 20_000,
    ),
    "a shorthand, many times": (
        "m.yaml",
        f"cluster: c\nx: &x {{{MANY}}}\nacls:\n" + "- {consumer: *x}\n" * 20_000,
    ),
    "one JSON key": ("m.json", '[{"cluster": "c", "topic": "t", "configs": {' + '"k": 1,' * 200_000 + '"k": 1}}]'),
    "many JSON keys twice": (
        "m.json",
        "[{" + ",".join(f'"k{number}": 1, "k{number}": 1' for number in range(20_000)) + "}]",
    ),
    "unknown columns": ("m.csv", "cluster,topic," + ",".join(f"c{number}" for number in range(200_000)) + "\n"),
    "unknown fields": ("m.yaml", "cluster: c\ntopics:\n" + "- {tpc: t}\n" * 50_000),
    "deep YAML": ("m.yaml", "cluster: " + "[" * 100_000),
    "deep YAML blocks": ("m.yaml", "".join(" " * depth + "a:\n" for depth in range(2_000))),
    "deep JSON": ("m.json", "[" * 200_000),
    "a long key": ("m.yaml", "cluster: c\n? " + "k" * 3_000_000 + "\n: 1\ntopics: []\n"),
    "a long number": ("m.json", '[{"cluster": "c", "topic": "t", "num_partitions": ' + "9" * 3_000_000 + "}]"),
    "a long zero": ("m.yaml", "cluster: c\ntopics: [{topic: t, num_partitions: 0." + "0" * 2_000_000 + "x}]"),
    "a long base 60": ("m.yaml", "cluster: c\ntopics: [{topic: t, num_partitions: 1" + ":5" * 1_000_000 + "x}]"),
}


SLOW = ("an entry with many duplicates, many times", "unknown configs, many times", "unknown fields, many times")
"""Seconds each; the other files are as hostile."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.thorough] if each in SLOW else []) for each in HOSTILE]
)
def test_hostile_files_end_in_bounded_time_and_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of aliased values is a fifth here, and files that reach it take a fifth of the time."""
    monkeypatch.setattr(yaml_files, "_MAX_ALIASED", yaml_files._MAX_ALIASED // 5)
    assert yaml_files._MAX_ALIASED <= 1_000_000
    file, text = HOSTILE[name]
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = errors(read_text(tmp_path, file, text))
    assert time.process_time() - begin < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024 * 1024, "kB"
    assert 1 <= len(found) <= MAX_ERRORS
    assert all(len(each) < 1_000 and each.isprintable() for each in found)


HOSTILE_LISTINGS = {
    "kafka-acls": "Current ACLs for resource `Topic:t`:\n (principal=" + ", host=" * 50_000 + "\n",
    "kafka-configs": "Quota configs for user-principal '" + "', client-id '" * 50_000 + "\n",
    "kafka-topics": "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:" + " ,a" * 100_000 + "\n",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", HOSTILE_LISTINGS)
def test_hostile_lines_of_listings_end_in_bounded_time(form: str) -> None:
    begin = time.process_time()
    text = HOSTILE_LISTINGS[form] * 20
    parsed = read_foreign_files(["-"], io.StringIO(text), FOREIGN_FORMATS[form], cluster="c")
    assert parsed.errors or len(parsed.not_carried_over) == 20
    assert time.process_time() - begin < 10


def test_a_load_reads_a_limited_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 3 * 1024 * 1024)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.json").write_text(f"[{ROW}]".ljust(1024 * 1024 + 1))
    parsed = read_manifest_files([tmp_path], NOTHING)
    assert errors(parsed) == [f"{tmp_path}/c.json: too large: a load reads at most 3 MiB of all its files"]
    assert list(parsed.digests) == [f"{tmp_path}/a.json", f"{tmp_path}/b.json"]
    endless = io.TextIOWrapper(io.BufferedReader(Endless()))
    assert errors(read_manifest_files(["-"], endless)) == [
        "stdin: too large: a load reads at most 3 MiB of all its files"
    ]


MANY_VALUES = 100_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.json", '{"cluster": "c", "topic": "t", "configs": [' + "{}," * MANY_VALUES + "{}]}"),
        ("m.json", '{"cluster": "c", "topics": [' + "[]," * MANY_VALUES + "[]]}"),
        ("m.jsonl", ROW + "\n[" + "1e1," * MANY_VALUES + "1]\n"),
        ("m.csv", "cluster,topic,labels\nc,t,[" + "{}," * MANY_VALUES + "1]\n"),
        ("m.yaml", "cluster: c\ntopics:\n" + "- {}\n" * MANY_VALUES),
        ("m.yaml", "cluster: c\nx: {" + "a: b, " * MANY_VALUES + "}\n"),
    ],
)
def test_a_file_with_too_many_values_is_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """Within the limit of bytes, `{},` would take 60 times its bytes of memory."""
    monkeypatch.setattr(report, "MAX_VALUES", MANY_VALUES // 10)
    tracemalloc.start()
    try:
        found = errors(read_text(tmp_path, name, text))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [f"{tmp_path}/{name}: it has more than 10,000 values: split it into several files"]
    assert peak < 10_000 * 300 + 4 * len(text) + 2 * 1024 * 1024, "values, copies of the text, and what is read at once"


@pytest.mark.parametrize("name", ["m.json", "m.yaml"])
def test_a_file_of_many_topics_has_few_enough_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The limit is a thousandth here: 400,000 topics with 33 configs each are below it."""
    monkeypatch.setattr(report, "MAX_VALUES", report.MAX_VALUES // 1_000)
    row = {"cluster": "c", "num_partitions": 12, "labels": {"a": "b"}, "configs": {f"k{key}": "1" for key in range(33)}}
    rows = [{"topic": f"t{number}", **row} for number in range(400)]
    assert errors(read_text(tmp_path, name, json.dumps(rows if name == "m.json" else {"topics": rows}))) == []


class Endless(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return len(buffer)


@pytest.fixture
def special(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Files that are none: by kind."""
    named = {name: tmp_path / f"{name}.json" for name in ("fifo", "socket", "device")}
    os.mkfifo(named["fifo"])
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(named["socket"]))
        try:
            os.mknod(named["device"], 0o20600, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            del named["device"]
        yield named


@pytest.mark.timeout(20)
def test_only_regular_files_are_read(special: dict[str, Path], tmp_path: Path) -> None:
    reason = "is not a regular file; to read from a pipe, use `-`"
    for path in special.values():
        assert errors(read_manifest_files([path], NOTHING)) == [f"{path}: {reason}"]
    (tmp_path / "link.json").symlink_to(special["fifo"].name)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "folder.json" / "good.json").write_text(f"[{ROW}]")
    parsed = read_manifest_files([tmp_path], NOTHING)
    # The link names the FIFO, which is read about once.
    assert len(parsed.errors) == len(special)
    assert len(parsed.rows) == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_file_that_is_exchanged_before_it_is_opened_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (secret := tmp_path / "secret").write_text(f"[{ROW}]")
    (path := tmp_path / "a.json").write_text(f"[{ROW}]")
    require_regular = reading._require_regular

    def exchanged(status: os.stat_result) -> None:
        require_regular(status)
        monkeypatch.setattr(reading, "_require_regular", require_regular)
        path.unlink()
        if kind == "link":
            path.symlink_to(secret)
        else:
            os.mkfifo(path)

    monkeypatch.setattr(reading, "_require_regular", exchanged)
    parsed = read_manifest_files([path], NOTHING)
    assert (len(parsed.errors), parsed.rows, parsed.digests) == (1, [], {})


def test_a_growing_file_has_the_digest_of_the_read_bytes(tmp_path: Path) -> None:
    path, stop = tmp_path / "a.jsonl", threading.Event()
    path.write_text(f"{ROW}\n")

    def grow() -> None:
        with path.open("a") as file:
            while not stop.is_set():
                file.write(f"{ROW}\n")
                file.flush()

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        parsed = read_manifest_files([path], NOTHING)
    finally:
        stop.set()
        growing.join()
    assert list(parsed.digests) == [str(path)]
    assert parsed.rows or parsed.errors


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `topics`, and a secret beside it, which is a good manifest."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token.json").write_text(f"[{ROW}]")
    folder = tmp_path / "checkout"
    (folder / "topics" / "team").mkdir(parents=True)
    (folder / "topics" / "good.json").write_text(f"[{ROW}]")
    monkeypatch.chdir(folder)
    return folder


LEAVES = "is a link that leaves its folder: put the file itself there, or name what the link points to"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("topics/a.json", "../../secrets/token.json"),
        ("topics/team/a.json", "/proc/self/environ"),
        ("topics/team/a.json", "../../.git/config"),
        ("topics/team/more", "../../../secrets"),
    ],
)
def test_a_link_that_leaves_its_folder_is_refused(checkout: Path, link: str, target: str) -> None:
    (checkout / ".git").mkdir()
    (checkout / ".git" / "config").write_text("[]")
    (checkout / link).symlink_to(target)
    for folder in (Path("topics"), Path("./topics/"), checkout / "topics"):
        parsed = read_manifest_files([folder], NOTHING)
        assert errors(parsed) == [f"{folder / Path(link).relative_to('topics')}: {LEAVES}"]
        assert [row.file for row in parsed.rows] == [str(folder / "good.json")]


@pytest.mark.parametrize(
    "named", ["topics", "topics/", "topics/sub", "a.json", "topics/../topics", "topics/token.json"]
)
def test_a_named_path_through_a_link_out_of_the_checkout_is_refused(checkout: Path, named: str) -> None:
    (checkout / "topics").rename(checkout / "was")
    (checkout / "topics").symlink_to("../secrets")
    (checkout / "a.json").symlink_to("../secrets/token.json")
    parsed = read_manifest_files([Path(named)], NOTHING)
    assert errors(parsed) == [f"{Path(named)}: {LEAVES}"]
    assert parsed.rows == []


def test_a_link_to_nothing_is_an_error(checkout: Path) -> None:
    """It may stand for a folder that wasn't fetched: its rows would count as being in no file."""
    for name in ("others", "b.yaml", ".hidden"):
        (checkout / "topics" / name).symlink_to("missing")
    parsed = read_manifest_files([Path("topics")], NOTHING)
    broken = "is a link to nothing: restore what it points to, or remove the link"
    assert errors(parsed) == [f"topics/b.yaml: {broken}", f"topics/others: {broken}"]
    assert [row.file for row in parsed.rows] == ["topics/good.json"]
    for name, target in (("long.json", "a" * 300), ("probe", "../../secrets/perhaps")):
        (checkout / "topics" / name).symlink_to(target)
    found = errors(read_manifest_files([Path("topics")], NOTHING))
    assert f"topics/long.json: {broken}" in found
    assert f"topics/probe: {LEAVES}" in found, "it doesn't say whether there is such a file"


def test_links_within_the_folder_are_followed(checkout: Path) -> None:
    """As Kubernetes mounts a ConfigMap: a.json -> ..data/a.json, ..data -> ..2026."""
    mount = checkout / "mount"
    (mount / "..2026").mkdir(parents=True)
    (mount / "..2026" / "a.json").write_text(f"[{ROW}]")
    (mount / "..data").symlink_to("..2026")
    (mount / "a.json").symlink_to("..data/a.json")
    (checkout / "current").symlink_to("mount")
    for path in (mount, Path("mount"), Path("current"), mount / "a.json", Path("mount/a.json"), Path("current/a.json")):
        parsed = read_manifest_files([path], NOTHING)
        assert (errors(parsed), len(parsed.rows)) == ([], 1), path


@pytest.mark.timeout(20)
def test_links_that_lead_back_end(checkout: Path) -> None:
    """Systems follow 40 links in a path: two links to their own folder make 2 to the power of 40 paths."""
    for name in ("one", "other"):
        (checkout / "topics" / name).symlink_to(".")
    parsed = read_manifest_files([Path("topics")], NOTHING)
    assert (errors(parsed), len(parsed.rows)) == ([], 1)


SECRET = "hunter2-Zq9vK3xWm7"
SECRETS = {
    "a token": SECRET,
    "a password with a colon": f"app:{SECRET}",
    "a number": "4111111111111111",
    "base 60": "41:11:11:11:11:11:11:11",
    "a date": "1987-06-05",
    "a tag": f"!{SECRET}",
    "an alias": f"*{SECRET}=",
    "an anchor": f"&{SECRET}= x y",
    "a directive": f"%{SECRET}",
    "a key file": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    "an environment": f"PASSWORD={SECRET}\nTOKEN={SECRET}",
    "properties": f"password={SECRET}: {SECRET}",
    "a netrc": f"machine host login me password {SECRET}",
    "a connection": f"postgres://me:{SECRET}@host/db",
    "shadow": f"root:$6${SECRET}:19000:0:99999:7:::\ndaemon:*:19000",
    "settings": f'[a]\npassword = "{SECRET}"',
    "kubernetes": f"apiVersion: v1\nkind: Secret\ndata: {{password: {SECRET}}}",
    "a JSON string": f'"{SECRET}"',
    "a JSON list": f'["{SECRET}", ["{SECRET}"], 4111111111111111]',
    "JSON": f'{{"password": "{SECRET}"}}',
    "a list": f"- {SECRET}\n- [{SECRET}]",
    "a flow": f"{{{SECRET}=: [}}",
    "a quote": f"'{SECRET}",
    "columns": f"{SECRET},b\n{SECRET},c",
    "a cell": f'a,b\n"{SECRET}',
    "an ACL listing": f"Current ACLs for {SECRET}",
    "semicolons": f"user;{SECRET}",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_file_that_is_no_manifest_is_not_shown(tmp_path: Path, kind: str) -> None:
    text = SECRETS[kind]
    hidden = [SECRET] if SECRET in text else text.split("\n")
    for suffix in (".yaml", ".json", ".jsonl", ".csv"):
        found = errors(read_text(tmp_path, f"f{suffix}", text))
        assert found
        assert not [each for each in found for word in hidden if word in each]
    for form in FOREIGN_FORMATS.values():
        parsed = read_foreign_files([tmp_path / "f.yaml"], NOTHING, form, cluster="c")
        assert not [each for each in errors(parsed) for word in hidden if word in each], form.name
        assert not [each for each in parsed.not_carried_over for word in hidden if word in each.key + each.what]


SPELLINGS = (
    "cluster", "topic", "topics", "acls", "quotas", "defaults", "configs", "assignments", "state", "c", "t", "0", "1",
    "a", "<<", "&a", "*a", "&b", "*b", "[", "]", "{", "}", ":", ": ", "- ", ", ", "\n", "\n  ", "\n    ", "\r\n", "\t",
    "'", '"', "|", ">", "!", "!!", "%", "#", " #", "\x00", "\ufeff", "\ud800", "\u2028", "\x85", "\x1b[31m", "~",
    "null", "1e6", "0x1f", "1_000", "12:30", "2026-01-01", "yes", "k" * 5_000, "---\n", "...\n", "{{ x }}", "\\ud800",
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7")


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(SPELLINGS), max_size=40), encoding=st.sampled_from(ENCODINGS))
def test_pieces_of_files_end_in_lines_that_can_be_printed(tmp_path: Path, pieces: list[str], encoding: str) -> None:
    content = "".join(pieces).encode(encoding, "replace" if encoding == "latin-1" else "surrogatepass")
    for suffix in (".yaml", ".json", ".jsonl", ".csv"):
        path = tmp_path / f"f{suffix}"
        path.write_bytes(content)
        for each in read_manifest_files([path], NOTHING).errors:
            assert str(each).isprintable()
            assert len(str(each)) < 2_000
            assert each.line is None or 1 <= each.line <= content.count(b"\n") + content.count(b"\r") + len(pieces) + 1


def test_rows_of_errors_are_cut_and_the_rest_is_not_read(tmp_path: Path) -> None:
    parsed = read_text(tmp_path, "m.jsonl", "5\n" * 5_000)
    assert len(parsed.errors) == MAX_ERRORS
    many = json.dumps([{"cluster": "c", "topic": "t", "x": 1}])
    assert len(read_text(tmp_path, "n.json", many).errors) == 1


HINTS = {
    "a tab": ("m.yaml", "cluster: c\ntopics:\n\t- {topic: t}\n", "m.yaml:3: not valid YAML: a tab; write blanks"),
    **{
        f"text that begins with {text[0]}": (
            "m.yaml",
            f"cluster: c\ntopics:\n- topic: t\n  description: {text}\n",
            f"m.yaml:4: not valid YAML: text that begins with {text[0]}; quote it",
        )
        for text in ("*", "& b", "> 5 MB", "| b", "? b", "- b", "@b", "`b`", "%b")
    },
    "a colon in text": (
        "m.yaml",
        "cluster: c\ntopics:\n- {topic: t}\ndescription: Orders: paid\n",
        "m.yaml:4: not valid YAML: text with a colon and a blank; quote it",
    ),
    **{
        f"{name} before a tab": (
            "m.yaml",
            f"# a{each}# b{each}# c\ncluster: c\ntopics:\n-\ttopic: t\n\towner: o\n",
            "m.yaml:4: not valid YAML: a tab; write blanks",
        )
        for name, each in {"NEL": "\x85", "a line separator": "\u2028", "a lone CR": "\r"}.items()
    },
    "a line separator before a template": (
        "m.yaml",
        "# a\u2028# b\u2028# c\ncluster: c\ntopics:\n- topic: {{ x }}\n",
        "m.yaml:4: contains a template placeholder",
    ),
    "a line separator in text": (
        "m.yaml",
        'cluster: c\ntopics:\n- {topic: t, description: "x\u2028y"}\n- {topic: u, ownr: o}\n',
        "m.yaml:4: unknown field `ownr`",
    ),
    "capital columns": ("m.csv", "Cluster,Topic\nc,t\n", "such as cluster, topic: write names in lower case"),
    "a column without a name": ("m.csv", "cluster,topic,\nc,t,\n", "m.csv:1: a column has no name"),
    "a number in a list": (
        "m.yaml",
        "cluster: c\ntopics: [{topic: t, configs: {retention.ms: [delete, compact]}}]\n",
        "`retention.ms` must be a string, number or boolean, not a list",
    ),
    "on for a list": ("m.yaml", "cluster: c\ntopics: on\n", "must be a list, not `on`: `on` means true in YAML 1.1"),
    "a tab deeper": ("m.yaml", "cluster: c\ntopics:\n  - topic: t\n\t\towner: o\n", "a tab; write blanks"),
    "semicolons": ("m.csv", "cluster;topic;num_partitions\nc;t;3\n", "cells are separated by semicolons"),
    "quoted cells": ("m.csv", '"cluster";"topic"\n"c";"t"\n', "cells are separated by semicolons"),
    "tabs": ("m.csv", "cluster\ttopic\nc\tt\n", "cells are separated by tabs"),
    "a template line": (
        "m.yaml",
        "{{- range .Values.topics }}\ncluster: c\n{{- end }}\n",
        "m.yaml:1: contains a template placeholder",
    ),
    "a template value": (
        "m.yaml",
        "cluster: c\ntopics:\n  - topic: t\n    num_partitions: {{ .Values.partitions }}\n",
        "m.yaml:4: contains a template placeholder; render the template first",
    ),
    "a template count": (
        "m.yaml",
        "cluster: c\ntopics: [{topic: t, num_partitions: '${N}'}]\n",
        "contains a template placeholder",
    ),
    "a line of ERB": ("m.yaml", "<% topics.each do |t| %>\ncluster: c\n", "m.yaml:1: contains a template placeholder"),
    "a placeholder in JSON": (
        "m.json",
        '[\n{"cluster": "c", "topic": "t", "num_partitions": @N@}]',
        "m.json:2: not valid JSON: contains a template placeholder",
    ),
    "a line for Excel": (
        "m.csv",
        "sep=;\r\ncluster;topic\r\nc;t\r\n",
        "m.csv:1: `sep=;` is a line for Excel, not a header; remove it, and separate cells by commas",
    ),
    "digits of base 16": (
        "m.yaml",
        "cluster: c\ntopics:\n  - {topic: t, configs: {min.cleanable.dirty.ratio: '0x1p-2'}}\n",
        'm.yaml:3: `configs`: `min.cleanable.dirty.ratio` is "0x1p-2"; write a number in the digits 0 to 9',
    ),
    "wide digits": (
        "m.yaml",
        'cluster: c\ntopics:\n  - topic: t\n    configs:\n      retention.ms: "\uff16\uff10"\n',
        'm.yaml:5: `configs`: `retention.ms` is "\uff16\uff10"; write a whole number in the digits 0 to 9',
    ),
    "wide digits in CSV": (
        "m.csv",
        'cluster,topic,configs\nc,t,"{""max.message.bytes"": ""\u0661""}"\n',
        'm.csv:2: `configs`: `max.message.bytes` is "\u0661"; write a whole number in the digits 0 to 9 or a size',
    ),
    **{
        f"{name} in a block scalar": (
            "m.yaml",
            f"cluster: c\ntopics:\n- topic: t\n  description: {text}",
            "m.yaml:5: not valid YAML: a tab; write blanks",
        )
        for name, text in {"a tab": "|\n\tfoo\n", "a deeper tab": ">\n    \tfoo\n"}.items()
    },
    **{
        f"U+{ord(blank):04X} for blanks before {what}": (
            "m.yaml",
            f"cluster: c\ntopics:\n{text.replace('_', blank)}",
            f"not valid YAML: an unusual blank (U+{ord(blank):04X}); write ordinary blanks",
        )
        for blank in "\u00a0\u3000\u200b"
        for what, text in {"an entry": "__- topic: t\n", "a field": "  - topic: t\n  __owner: o\n"}.items()
    },
    **{
        f"U+00A0 {where}": ("m.yaml", f"cluster: c\ntopics:\n- topic: t\n{text.replace('~', BLANK)}", expected)
        for where, text, expected in (
            (
                "for a blank after a colon",
                "  num_partitions:~3\n",
                f"m.yaml:4: not valid YAML: {UNUSUAL}; write ordinary",
            ),
            ("after a colon, before a field", "  owner:~o\n  labels: {}\n", f"m.yaml:4: not valid YAML: {UNUSUAL}"),
            ("after a colon, before a topic", "  owner:~o\n- topic: u\n", f"m.yaml:4: not valid YAML: {UNUSUAL}"),
            ("after a colon in braces", "  configs: {retention.ms:~3}\n", f"m.yaml:4: not valid YAML: {UNUSUAL}"),
            ("before a colon", "  owner~: o\n", f"m.yaml:4: not valid YAML: {UNUSUAL}"),
            ("after a dash", "-~topic: u\n", f"m.yaml:4: not valid YAML: {UNUSUAL}"),
            ("after a blank", "  num_partitions: ~3\n", rf'not the string "\xa03" with {UNUSUAL}; write plain digits'),
            ("before a comment", "  num_partitions: 3~# x\n", rf'"3\xa0# x" with {UNUSUAL}; write plain digits'),
            (
                "in a lone field",
                "  configs:\n    retention.ms:~3\n",
                rf'the string "retention.ms:\xa03" with {UNUSUAL}',
            ),
        )
    },
    "U+00A0 in JSON": ("m.json", f'{{"cluster": "c", "topic":{BLANK}"t"}}', f"Expecting value: here is {UNUSUAL}"),
    "capitals and semicolons": ("m.csv", "Cluster;TOPIC\nc;t\n", "cells are separated by semicolons"),
    "bars": ("m.csv", "cluster|topic\nc|t\n", "cells are separated by bars"),
    "semicolons in records": (
        "m.csv",
        "cluster,topic\nc;t\n",
        "2: has 1 cell, but the header has 2: cells are separated",
    ),
    "both in a record": (
        "m.csv",
        "cluster,topic,owner\nc;t,o\n",
        "2: has 2 cells, but the header has 3: cells are sep",
    ),
    "tabs in records": (
        "m.csv",
        "cluster,topic\nc,a\nc\tt\n",
        "m.csv:3: has 1 cell, but the header has 2: cells are sep",
    ),
    "a cell that lacks": ("m.csv", "cluster,topic,owner\nc;d,t\n", "cells are separated by semicolons"),
    "another number of cells": ("m.csv", "cluster,topic,owner\na;b;c;d,t\n", "has 2 cells, but the header has 3"),
    "an exponent in CSV": ("m.csv", "cluster,topic,num_partitions\nc,t,1e6\n", 'not the string "1e6"; write 1000000'),
    "a sign in CSV": ("m.csv", "cluster,topic,num_partitions\nc,t,+3\n", 'not the string "+3"; write plain digits'),
    "a template line in CSV": ("m.csv", "{% for t in x %}\ncluster,topic\nc,t\n", "m.csv:1: contains a template"),
    "a template line below": ("m.csv", "cluster,topic\n{% for t in x %}\nc,t\n", "m.csv:2: contains a template"),
    "a variable in JSON": (
        "m.json",
        '[{"cluster": "c", "topic": "t", "num_partitions": ${N}}]',
        "m.json:1: not valid JSON: contains a template placeholder",
    ),
    "a reserved character": ("m.yaml", "cluster: c\ntopics: [{topic: t, owner: @me}]\n", "begins with @; quote it"),
    "an exponent": (
        "m.yaml",
        "cluster: c\ntopics: [{topic: t, num_partitions: 1e1}]\n",
        "m.yaml:2: `num_partitions` must be an integer, not `1e1`; write 10",
    ),
    "a quoted exponent": (
        "m.yaml",
        "cluster: c\nquotas: [{user: u, producer_byte_rate: '1e6'}]\n",
        'm.yaml:2: producer_byte_rate must be a number, not the string "1e6"; write 1000000, not quoted',
    ),
    "an exponent in JSON": (
        "m.json",
        '[{"cluster": "c", "user": "u", "producer_byte_rate": 1e6}]',
        "m.json:1: producer_byte_rate must be a number, not `1e6`; write 1000000",
    ),
}


@pytest.mark.parametrize("name", HINTS)
def test_an_error_names_what_to_write_instead(tmp_path: Path, name: str) -> None:
    file, text, message = HINTS[name]
    (found,) = errors(read_text(tmp_path, file, text))
    assert message in found


@pytest.mark.parametrize("written", ["<%= x %>", "$(X)", "@X@", "%X%", "[[ x ]]", "[[ .x ]]", "{{ x }}"])
def test_a_placeholder_as_a_whole_value_is_named(tmp_path: Path, written: str) -> None:
    for field in ("num_partitions: IT", "configs:\n      retention.ms: IT"):
        for each in (written, f"'{written}'"):
            text = f"cluster: c\ntopics:\n  - topic: t\n    {field.replace('IT', each)}\n"
            found = errors(read_text(tmp_path, "m.yaml", text))
            assert "contains a template placeholder; render the template first" in found[0]
    (found_in_csv,) = errors(read_text(tmp_path, "m.csv", f"cluster,topic,num_partitions\nc,t,{written}\n"))
    assert "contains a template placeholder" in found_in_csv


MIXED = ["cluster,topic;owner\nc,t;o\n", "cluster;topic,owner\nc;t,o\n"]


@pytest.mark.parametrize("text", MIXED)
def test_semicolons_beside_commas_in_a_header_are_named(tmp_path: Path, text: str) -> None:
    found = errors(read_text(tmp_path, "m.csv", text))
    assert "m.csv:1: unknown column `...`: cells are separated by semicolons; separate them by commas" in found[0]


RUN = Settings(
    path=Path("run.toml"),
    tables=TablesSettings(root="x"),
    clusters={"c": ClusterSettings(name="c", bootstrap_servers=("c:1",))},
)
EXPONENTS = ["1e20", "-1e3", "0e1", "1e10", "1.5e0", "15e-1", "1e-1", "1e1", "2e2", "1e5", "1e99", "-1e1"]
COUNTED = ["topics:\n- {topic: t, num_partitions: IT}", "topics:\n- {topic: t, replication_factor: IT}"]
COUNTED += ["topics:\n- {topic: t, assignments: {'0': [IT]}}", "quotas:\n- {user: u, producer_byte_rate: IT}"]
COUNTED += ["quotas:\n- {user: u, request_percentage: IT}"]


@pytest.mark.parametrize("written", EXPONENTS)
@pytest.mark.parametrize("entry", COUNTED)
def test_a_number_that_a_hint_gives_is_accepted(tmp_path: Path, entry: str, written: str) -> None:
    text = f"cluster: c\n{entry}\n"
    (found,) = errors(read_text(tmp_path, "m.yaml", text.replace("IT", written)))
    advice = found.rpartition("; write ")[2]
    if advice != "plain digits":
        (tmp_path / "followed.yaml").write_text(text.replace("IT", advice))
        read_checked(RUN, [tmp_path / "followed.yaml"], NOTHING)


TEMPLATED = [
    *(f"topics:\n- {{topic: t, {field}: IT}}" for field in ("configs", "labels", "assignments", "state", "placement")),
    *(f"topics:\n- {{topic: t, {field}: IT}}" for field in ("replaces", "num_partitions", "cluster")),
    "topics: IT",
    "topics: [IT]",
    "topics:\n- topic: IT",
    "topics:\n- {topic: t, clusters: [IT]}",
    *(
        "acls:\n- {principal: 'User:x', operation: READ, resource_type: TOPIC, resource_name: t}".replace(old, " IT")
        for old in (" 'User:x'", " READ", " TOPIC", " t")
    ),
    *(
        f"acls:\n- {{principal: 'User:x', operation: READ, resource_type: TOPIC, resource_name: t, {field}: IT}}"
        for field in ("host", "permission", "pattern_type")
    ),
    "quotas:\n- {user: u, producer_byte_rate: IT}",
    "quotas: IT",
    "groups:\n- {group: g, configs: IT}",
]
LOADED = [
    "topics:\n- {topic: t, owner: IT}",
    "defaults: {owner: IT}\ntopics: [{topic: t}]",
    "topics:\n- {topic: t, configs: {vendor.x: IT}}",
    "quotas:\n- {ip: IT, connection_creation_rate: 1}",
    "groups:\n- {group: IT, configs: {a: b}}",
    "groups:\n- {group: g, configs: {a: IT}}",
]


@pytest.mark.parametrize("written", ["{{ x }}", "<%= x %>"])
@pytest.mark.parametrize("entry", [*TEMPLATED, *LOADED])
def test_a_quoted_placeholder_is_named_wherever_it_is(tmp_path: Path, entry: str, written: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(f"{'' if 'clusters' in entry else 'cluster: c'}\n{entry.replace('IT', repr(written))}\n")
    if entry in LOADED:
        assert "contains a template placeholder" in remarks(read_checked(RUN, [path], NOTHING))[-1]
        return
    with pytest.raises(ManifestFileError) as raised:
        read_checked(RUN, [path], NOTHING)
    assert ": it contains a template placeholder; render the template first\n" in str(raised.value)


@pytest.mark.parametrize("written", ["@me", "a@b", "50%", "[[1, 2]]", "$X", "[x]"])
def test_a_wrong_value_that_is_no_placeholder_is_not_taken_for_one(tmp_path: Path, written: str) -> None:
    (found,) = errors(
        read_text(tmp_path, "m.yaml", f"cluster: c\ntopics:\n  - topic: t\n    num_partitions: {written}\n")
    )
    assert "template" not in found


def test_objects_in_json_may_take_several_lines(tmp_path: Path) -> None:
    pretty = json.dumps({"cluster": "c", "topic": "t", "configs": {"retention.ms": "1"}}, indent=1)
    parsed = read_text(tmp_path, "m.json", "\n".join(["", pretty, pretty.replace('t"', 'u"', 1)]))
    assert [(row.topic, row.line) for row in parsed.rows] == [("t", 2), ("u", 9)]
    (broken,) = errors(read_text(tmp_path, "m.json", f"{pretty}\nx\n"))
    assert "m.json:8: not valid JSON: Expecting value" in broken


@pytest.mark.parametrize("text", ["\u00a0[]", "\x0b{}"])
def test_json_that_begins_with_another_blank_is_not_valid(tmp_path: Path, text: str) -> None:
    (found,) = errors(read_text(tmp_path, "m.json", text))
    assert "m.json:1: not valid JSON: Expecting value" in found


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_a_file_in_utf_16_or_utf_32_is_named(tmp_path: Path, encoding: str) -> None:
    for name in ("m.yaml", "m.json", "m.csv"):
        path = tmp_path / name
        path.write_bytes("cluster,topic\nc,t\n".encode(encoding))
        assert errors(read_manifest_files([path], NOTHING)) == [f"{path}: is UTF-16 or UTF-32; save it as UTF-8"]
