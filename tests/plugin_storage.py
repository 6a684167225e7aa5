"""A storage under the tables that fails every nth commit, for jobs that a test starts as processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests import commands
from tests.clusters import JARS
from tests.java import compile_java

SOURCE = commands.REPOSITORY / "tests" / "flaky_storage" / "FlakyLogStore.java"


@dataclass(frozen=True, kw_only=True)
class FlakyStorage:
    """How to start a job on it, and what it did."""

    classes: Path
    told: Path

    def environment(self, *, every: int = 10) -> Mapping[str, str]:
        """For a job, or a Python with a session of its own, in which one commit in `every` fails."""
        class_path = os.pathsep.join([str(self.classes), *map(str, sorted((JARS.parent / "delta").glob("*.jar")))])
        confs = {
            "spark.delta.logStore.file.impl": SOURCE.stem,
            "spark.hadoop.flaky.every": every,
            "spark.hadoop.flaky.told": self.told,
        }
        ours = " ".join([f"--driver-class-path {class_path}", *(f"--conf {key}={confs[key]}" for key in confs)])
        return {
            "TOPICLEDGER_SUBMIT_ARGS": f"{os.environ.get('TOPICLEDGER_SUBMIT_ARGS', '')} {ours}",
            "PYSPARK_SUBMIT_ARGS": f"{ours} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}",
        }

    def failures(self) -> Counter[str]:
        """How many commits failed `before` they were written, `after`, and because they `exist`."""
        lines = self.told.read_text(encoding="utf-8").splitlines() if self.told.exists() else []
        return Counter(line.split(" ")[0] for line in lines)


@pytest.fixture(scope="session")
def flaky_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled storage."""
    folder = tmp_path_factory.mktemp("flaky-storage")
    jars = (Path(pyspark.__file__).parent / "jars", JARS.parent / "delta")
    compile_java(SOURCE, [each / "*" for each in jars], folder)
    return folder


@pytest.fixture
def flaky_storage(flaky_classes: Path, tmp_path: Path) -> FlakyStorage:
    """A storage of one's own."""
    return FlakyStorage(classes=flaky_classes, told=tmp_path / "flaky.txt")
