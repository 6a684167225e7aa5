"""Hadoop's local files without a process for each mode and link: for the session that the tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests import commands
from tests.java import compile_java

SOURCE = commands.REPOSITORY / "tests" / "quick_local_files" / "QuickLocalFileSystem.java"
_CONFS = {
    "spark.hadoop.fs.file.impl": SOURCE.stem,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{SOURCE.stem}$Context",
}


@contextmanager
def quick_files(folder: Path) -> Iterator[None]:
    """A session that is made within it has them; they are compiled into `folder`, which must stay."""
    jars = Path(pyspark.__file__).parent / "jars"
    compile_java(SOURCE, jars.glob("hadoop-client-*.jar"), folder)
    ours = " ".join(f"--conf '{name}={value}'" for name, value in _CONFS.items())
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_SUBMIT_ARGS", f"{ours} {os.environ['PYSPARK_SUBMIT_ARGS']}")
        # Behind Spark's own jars: were it before them, Java would leave its archive of classes unread.
        patched.setenv("SPARK_DIST_CLASSPATH", str(folder))
        yield
