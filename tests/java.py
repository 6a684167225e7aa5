"""Compiling the Java classes that tests give to a broker or to Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path


def compile_java(source: Path, classpath: Iterable[str | Path], classes: Path) -> Path:
    """Compile one class without a package into a folder; returns its file. Needs a JDK."""
    javac = shutil.which("javac")
    assert javac is not None, "these tests need a JDK (javac), e.g. openjdk-17-jdk-headless"
    joined = os.pathsep.join(map(str, classpath))
    subprocess.run([javac, "-cp", joined, "-d", str(classes), str(source)], check=True)
    return classes / f"{source.stem}.class"
