"""Jars are installed only if they are the files that are pinned; so is what builds the package."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import pytest

from scripts import fetch_jars
from scripts.fetch_jars import FOR_S3, FOR_YARN, WANTED, FetchError, Jars, check_digests
from tests.commands import REPOSITORY


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jars:
    """One jar, pinned."""
    pins = tmp_path / "jars.sha256"
    pins.write_text(f"{hashlib.sha256(b'good').hexdigest()}  some/a-1.jar\n")
    monkeypatch.setattr(fetch_jars, "PINS", pins)
    return Jars(name="some", coordinates=(("org", "a", "1"),), transitive=False)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"a-1.jar": b"bad"}, "a-1.jar has the SHA-256 [0-9a-f]{64} instead of [0-9a-f]{64}"),
        ({}, "a-1.jar has the SHA-256 .it is missing."),
        (
            {"a-1.jar": b"good", "b-1.jar": b"more"},
            "b-1.jar has the SHA-256 [0-9a-f]{64} instead of .it is not pinned.",
        ),
    ],
)
def test_jars_that_are_not_the_pinned_ones_are_refused(
    jars: Jars, tmp_path: Path, files: dict[str, bytes], problem: str
) -> None:
    folder = tmp_path / "fetched"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(FetchError, match=problem):
        check_digests(jars, folder)


def test_the_pinned_jars_are_accepted_and_other_pins_make_them_incomplete(jars: Jars, tmp_path: Path) -> None:
    (tmp_path / "a-1.jar").write_bytes(b"good")
    check_digests(jars, tmp_path)
    before = jars.content
    fetch_jars.PINS.write_text(f"{'0' * 64}  some/a-1.jar\n")
    assert jars.content != before


def test_fetched_jars_that_are_not_the_pinned_ones_are_not_installed(
    jars: Jars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brings(content: bytes) -> None:
        monkeypatch.setattr(fetch_jars, "run_ivy", lambda _, __, target: (target / "a-1.jar").write_bytes(content))

    monkeypatch.setattr(fetch_jars, "BUILD", tmp_path)
    brings(b"bad")
    with pytest.raises(FetchError, match=r"a-1.jar has the SHA-256"):
        fetch_jars.fetch(jars)
    assert not jars.folder.exists()
    brings(b"good")
    fetch_jars.fetch(jars)
    assert fetch_jars.is_complete(jars)


def test_every_jar_that_is_fetched_by_default_is_pinned() -> None:
    for jars in (*WANTED, *FOR_S3, *FOR_YARN):
        modules = [f"{name}-{revision}.jar" for _, name, revision in jars.coordinates]
        assert set(modules) <= set(jars.sha256), jars.name


def test_the_build_backend_is_installed_by_its_digest() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (backend,) = project["build-system"]["requires"]
    assert f"\n{backend} \\\n    --hash=sha256:" in (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    assert "--no-build-isolation" in (REPOSITORY / "scripts" / "setup.sh").read_text(encoding="utf-8")
