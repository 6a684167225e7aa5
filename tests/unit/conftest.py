"""Fixtures of tests without a broker and without tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.foreign import NOTHING, Read
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.reading import read_foreign_files
from topicledger.manifests.files import ParsedManifests


@pytest.fixture
def no_sleep() -> Callable[[float], None]:
    """A sleep that takes no time."""
    return lambda _: None


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read texts as files (named by keyword, `_` for `.`) of a format; rows and errors carry the bare names."""
    monkeypatch.chdir(tmp_path)

    def read_texts(form: str, text: str = "", cluster: str | None = "main", **more: str) -> ParsedManifests:
        texts = {"f.yaml": text, **{name.replace("_", "."): each for name, each in more.items()}}
        for name, each in texts.items():
            Path(name).write_bytes(each.encode())
        return read_foreign_files([Path(name) for name in texts], NOTHING, FOREIGN_FORMATS[form], cluster=cluster)

    return read_texts
