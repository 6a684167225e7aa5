"""LocalFiles.java: files match those of Hadoop's own class, and one of two simultaneous commits fails."""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

HADOOPS_OWN = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}


def opened(spark: SparkSession, *, own: bool = False, fsync: bool = False) -> tuple[Any, Any, Any]:
    """Return Hadoop's package, and local files by both of its interfaces, of Hadoop's own class or the session's."""
    context: Any = spark.sparkContext
    jvm, hadoop = context._jvm, context._jvm.org.apache.hadoop
    conf = hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    for name, value in HADOOPS_OWN.items() if own else ():
        conf.set(name, value)
    conf.setBoolean("topicledger.fsync", fsync)
    root = jvm.java.net.URI("file:///")
    system = hadoop.fs.FileSystem.newInstance(root, conf)
    assert system.getClass().getSimpleName() == ("LocalFileSystem" if own else "LocalFiles")
    return hadoop, system, hadoop.fs.FileContext.getFileContext(root, conf)


@pytest.mark.parametrize("own", [True, False], ids=["Hadoop's", "the session's"])
def test_modes_links_and_renames_match_hadoops(spark: SparkSession, tmp_path: Path, own: bool) -> None:
    hadoop, system, log = opened(spark, own=own)

    def path(name: str) -> Any:
        return hadoop.fs.Path(str(tmp_path / name))

    system.mkdirs(path("folder"))
    for name in ("folder/one", "folder/two"):
        system.create(path(name)).close()
    system.setPermission(path("folder/one"), hadoop.fs.permission.FsPermission("0640"))
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert {each.name: oct(each.stat().st_mode & 0o777) for each in tmp_path.rglob("*")} == {
        "folder": "0o755",
        "link": "0o755",
        "one": "0o640",
        "two": "0o644",
        ".one.crc": "0o640",
        ".two.crc": "0o644",
    }
    seen = {name: log.getFileLinkStatus(path(name)) for name in ("folder", "folder/one", "link")}
    assert {name: (each.isDirectory(), each.getPermission().toString()) for name, each in seen.items()} == {
        "folder": (True, "rwxr-xr-x"),
        "folder/one": (False, "rw-r-----"),
        "link": (False, "rwxr-xr-x"),
    }
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        log.getFileLinkStatus(path("nothing"))
    no_options = options(spark, hadoop)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        log.rename(path("folder/one"), path("folder/two"), no_options)
    log.rename(path("folder/one"), path("folder/three"), no_options)
    assert sorted(each.name for each in (tmp_path / "folder").glob("t*")) == ["three", "two"]


def test_one_of_two_simultaneous_renames_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Two processes that commit the same version of a table do this (Delta's HDFSLogStore)."""
    assert both_renamed(spark, tmp_path, own=False, rounds=100) == 0


def test_folders_are_renamed_and_missing_files_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    hadoop, _, log = opened(spark)
    none = options(spark, hadoop)
    (tmp_path / "folder").mkdir()
    log.rename(hadoop.fs.Path(str(tmp_path / "folder")), hadoop.fs.Path(str(tmp_path / "other")), none)
    assert [each.name for each in tmp_path.iterdir()] == ["other"]
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        log.rename(hadoop.fs.Path(str(tmp_path / "nothing")), hadoop.fs.Path(str(tmp_path / "new")), none)
    for name, content in (("one", "1"), ("two", "2")):
        (tmp_path / name).write_text(content)
    overwrite = options(spark, hadoop, hadoop.fs.Options.Rename.OVERWRITE)
    log.rename(hadoop.fs.Path(str(tmp_path / "one")), hadoop.fs.Path(str(tmp_path / "two")), overwrite)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir() if each.is_file()] == [("two", "1")]


def test_no_other_rename_is_tried_if_hard_links_work(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own rename copies a file to another disk, over a file that another process just created there."""
    hadoop, _, log = opened(spark)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        (source := Path(elsewhere, "one")).write_text("1")
        assert source.stat().st_dev != tmp_path.stat().st_dev, "the test needs two file systems"
        with pytest.raises(Py4JJavaError, match="FileSystemException"):
            log.rename(hadoop.fs.Path(str(source)), hadoop.fs.Path(str(tmp_path / "one")), options(spark, hadoop))
        assert source.read_text() == "1"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "one").touch()
    names = [hadoop.fs.Path(str(tmp_path / name)) for name in ("one", "nowhere/one")]
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        log.rename(*names, options(spark, hadoop))


def options(spark: SparkSession, hadoop: Any, *given: Any) -> Any:
    array = spark.sparkContext._gateway.new_array(hadoop.fs.Options.Rename, len(given))
    for number, each in enumerate(given):
        array[number] = each
    return array


def both_renamed(spark: SparkSession, folder: Path, *, own: bool, rounds: int) -> int:
    """Return how often two simultaneous renames both succeeded."""
    hadoop, _, log = opened(spark, own=own)
    none = options(spark, hadoop)
    at_once = threading.Barrier(2)

    def rename(round_: int, who: int) -> bool:
        source = folder / f"{round_}-{who}.tmp"
        source.write_text(str(who))
        names = hadoop.fs.Path(str(source)), hadoop.fs.Path(str(folder / f"{round_}.json"))
        at_once.wait(30)
        try:
            log.rename(*names, none)
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" not in str(error):
                raise
            return False
        return True

    both = 0
    with ThreadPoolExecutor(2) as pool:
        for round_ in range(rounds):
            done = [*pool.map(rename, (round_, round_), (0, 1))]
            assert any(done)
            assert (folder / f"{round_}.json").read_text() in [str(who) for who in (0, 1) if done[who]]
            both += all(done)
    return both


@pytest.mark.parametrize("synced", [True, False])
def test_commit_and_rows_are_synced_to_disk(spark: SparkSession, tmp_path: Path, synced: bool) -> None:
    """According to Java's flight recorder, since a power failure can't be tested here."""
    hadoop, system, log = opened(spark, fsync=synced)
    context: Any = spark.sparkContext
    jvm = context._jvm
    none = options(spark, hadoop)
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.FileForce").withoutThreshold()
    recording.start()
    folder = tmp_path / "table"
    for name in ("rows.parquet", "_delta_log/1.tmp"):
        with closing(system.create(hadoop.fs.Path(str(folder / name)))) as out:
            out.write(bytearray(b"some"))
    names = hadoop.fs.Path(str(folder / "_delta_log/1.tmp")), hadoop.fs.Path(str(folder / "_delta_log/1.json"))
    log.rename(*names, none)
    recording.stop()
    saved = jvm.java.io.File(str(tmp_path / "forced.jfr")).toPath()
    recording.dump(saved)
    recording.close()
    events = jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(saved)
    forced = [Path(path) for event in events if (path := event.getString("path")) is not None]
    own = [str(path.relative_to(folder)) for path in forced if path.is_relative_to(folder)]
    assert own == (["rows.parquet", "_delta_log/1.tmp", "_delta_log"] if synced else [])
    assert (folder / "_delta_log" / "1.json").read_bytes() == b"some"
