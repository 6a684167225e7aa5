"""The files that the session of the tests writes are as Hadoop's own would be: see tests/quick_files.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

HADOOPS_OWN = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}


@pytest.mark.parametrize("own", [True, False], ids=["Hadoop's", "the session's"])
def test_modes_links_and_renames_are_as_hadoops(spark: SparkSession, tmp_path: Path, own: bool) -> None:
    context: Any = spark.sparkContext
    jvm, hadoop = context._jvm, context._jvm.org.apache.hadoop
    conf = hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    for name, value in HADOOPS_OWN.items() if own else ():
        conf.set(name, value)
    root = jvm.java.net.URI("file:///")
    system, log = hadoop.fs.FileSystem.newInstance(root, conf), hadoop.fs.FileContext.getFileContext(root, conf)
    assert system.getClass().getSimpleName() == ("LocalFileSystem" if own else "QuickLocalFileSystem")

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
    no_options = context._gateway.new_array(hadoop.fs.Options.Rename, 0)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        log.rename(path("folder/one"), path("folder/two"), no_options)
    log.rename(path("folder/one"), path("folder/three"), no_options)
    assert sorted(each.name for each in (tmp_path / "folder").glob("t*")) == ["three", "two"]
