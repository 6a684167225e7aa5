"""Files that are written as a whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from topicledger import atomic


def failing() -> Iterator[str]:
    yield "half"
    raise ValueError("no more")


def test_a_file_that_fails_halfway_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with pytest.raises(ValueError, match="no more"):
        atomic.write(path, failing())
    assert list(tmp_path.iterdir()) == []
    atomic.write(path, ["one\n", "two\n"])
    with pytest.raises(ValueError, match="no more"):
        atomic.write(path, failing())
    assert path.read_text() == "one\ntwo\n"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_the_earlier_file_or_of_any_new_one(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    other.touch()
    atomic.write(path, ["x"])
    assert path.stat().st_mode == other.stat().st_mode
    path.chmod(0o640)
    atomic.write(path, ["y"])
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_and_leads_to_the_new_text(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "file")
    atomic.write(link, ["x"])
    assert link.is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "x"


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    """Replacing it would turn /dev/null or /dev/stdout into a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    atomic.write(pipe, ["a", "b"])
    reader.join(10)
    assert read == ["ab"]
    assert pipe.is_fifo()
