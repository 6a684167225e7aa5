"""The page that lists the reports of a folder: what each says of itself, and nothing that isn't one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import reports
from topicledger.cli import main
from topicledger.report import entries, render, render_index

SETTINGS = '[tables]\nroot = "none"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n'


def folder_of(folder: Path) -> Path:
    for name, report in (("run", reports.run()), ("audit", reports.audit()), ("span", reports.span())):
        (folder / f"{name}.html").write_text(render(report), encoding="utf-8")
    return folder


def test_each_report_says_what_it_is_and_the_newest_comes_first(tmp_path: Path) -> None:
    found = entries(folder_of(tmp_path))
    assert {each.href for each in found} == {"run.html", "audit.html", "span.html"}
    assert [each.began for each in found] == sorted((each.began for each in found), reverse=True)
    run = next(each for each in found if each.href == "run.html")
    told = reports.run().run
    assert told is not None
    assert (run.tone, run.about, run.by) == ("bad", f"run {told.run_id}", told.requested_by)
    page = render_index(found)
    assert page == render_index(found)
    assert [page.index(f'href="{each.href}"') for each in found] == sorted(
        page.index(f'href="{each.href}"') for each in found
    )
    for each in found:
        assert each.headline in page
    assert "<h1>3 reports</h1>" in page


def test_files_that_are_no_reports_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text("<title>7 topics failed</title>")
    (tmp_path / "wrong.html").write_text("<meta name='topicledger-report' content='[1]'>")
    (tmp_path / "tone.html").write_text(
        "<meta name='topicledger-report' content='"
        '{"headline": "x", "tone": "\\"><b>", "began": "", "about": "", "by": "", "clusters": ""}\'>'
    )
    (tmp_path / "binary.html").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "index.html").write_text(render(reports.run()))
    (tmp_path / "folder.html").mkdir()
    assert entries(tmp_path) == []
    assert "No reports in this folder." in render_index([])


def test_hostile_words_and_names_of_files_stay_in_their_place(tmp_path: Path) -> None:
    name = 'a"><script>x.html'
    (tmp_path / name).write_text(render(reports.hostile()), encoding="utf-8")
    (entry,) = entries(tmp_path)
    page = render_index([entry])
    assert "<script" not in page
    assert re.findall(r'<a href="([^"]*)">', page) == ["a%22%3E%3Cscript%3Ex.html"]
    assert not set(page) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\x00\x07\x1b")


def test_only_the_newest_of_many_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topicledger.report.index.LISTED", 2)
    page = render_index(entries(folder_of(tmp_path)))
    assert "<h1>3 reports</h1>" in page
    assert "the 2 newest are listed" in page
    assert page.count("<a href=") == 2


def test_the_command_writes_the_index_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder_of(tmp_path))
    Path("s.toml").write_text(SETTINGS)
    with pytest.raises(SystemExit) as ended:
        main(["report", "--config", "s.toml", "--index", "."], prog_name="topicledger")
    assert (ended.value.code, capsys.readouterr().out) == (0, "wrote index.html\n")
    assert Path("index.html").read_text(encoding="utf-8") == render_index(entries(tmp_path))


def test_the_command_makes_the_folder_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SETTINGS)
    with pytest.raises(SystemExit) as ended:
        main(["report", "--config", "s.toml", "--index", "new/reports"], prog_name="topicledger")
    assert (ended.value.code, capsys.readouterr().out) == (0, "wrote new/reports/index.html\n")
    assert Path("new/reports/index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--index", "s.toml/reports"], "--index s.toml/reports: can't create this folder: Not a directory"),
        (["x"], "report needs --to"),
    ],
)
def test_wrong_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SETTINGS)
    with pytest.raises(SystemExit) as ended:
        main(["report", "--config", "s.toml", *arguments], prog_name="topicledger")
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
