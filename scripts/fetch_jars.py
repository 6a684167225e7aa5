"""Fetch Kafka's and Delta's jars into build/jars, by the Ivy that ships inside pyspark.

Run with the Python that has pyspark. What is there already, complete and of these versions, is left alone.
TOPICLEDGER_IVY_SETTINGS may name an Ivy settings file, for a mirror of Maven Central.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"
IVY_CACHE = BUILD / "ivy"
DELTA = "4.4.0"
KAFKA = "4.3.1"
DOWNLOADED = re.compile(r"\[SUCCESSFUL \] [^#]+#([^;]+);([^!]+)!")
UNREACHABLE = re.compile(r"UnknownHost|ConnectException|SocketTimeout|Connection (refused|reset)|NoRouteToHost|SSLHand")


@dataclass(frozen=True, kw_only=True)
class Jars:
    """A folder of jars."""

    name: str
    coordinates: tuple[tuple[str, str, str], ...]
    """Organisation, module, revision."""
    transitive: bool
    """Whether what they depend on comes too."""

    @property
    def folder(self) -> Path:
        """Where they go."""
        return BUILD / "jars" / self.name

    @property
    def content(self) -> str:
        """What a complete folder says of itself."""
        return "".join(f"{organisation}:{name}:{revision}\n" for organisation, name, revision in self.coordinates)


WANTED = (
    Jars(
        name="kafka",
        # slf4j-simple fits the slf4j-api 1.7 that Kafka brings.
        coordinates=(("org.apache.kafka", "kafka_2.13", KAFKA), ("org.slf4j", "slf4j-simple", "1.7.36")),
        transitive=True,
    ),
    Jars(
        # Kafka's own command line, for tests; apart, since no broker needs it.
        name="kafka-tools",
        coordinates=(("org.apache.kafka", "kafka-tools", KAFKA),),
        transitive=False,
    ),
    Jars(
        name="delta",
        # The rest of what delta-spark names is part of Spark.
        coordinates=tuple(
            ("io.delta", name, DELTA)
            for name in (
                "delta-spark_4.2_2.13",
                "delta-storage",
                "delta-kernel-api",
                "delta-kernel-defaults",
                "delta-kernel-unitycatalog",
            )
        ),
        transitive=False,
    ),
)


class FetchError(Exception):
    """Jars can't be fetched; its text is for the user."""


def main() -> int:
    """Fetch what is missing."""
    try:
        for jars in WANTED:
            if not is_complete(jars):
                print(f"Fetching {jars.name}'s jars", flush=True)
                fetch(jars)
            (jars.folder / ".complete").touch()
    except FetchError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def is_complete(jars: Jars) -> bool:
    """Whether the folder holds these versions: it gets its name only when it does."""
    marker = jars.folder / ".complete"
    return marker.is_file() and marker.read_text(encoding="utf-8") == jars.content


def fetch(jars: Jars) -> None:
    """Fetch into a folder beside the final one, then rename."""
    jars.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix=f"fetching-{jars.name}-") as temporary:
        fresh = Path(temporary) / "new"
        fresh.mkdir()
        run_ivy(jars, Path(temporary) / "ivy.xml", fresh)
        (fresh / ".complete").write_text(jars.content, encoding="utf-8")
        if jars.folder.exists():
            jars.folder.rename(Path(temporary) / "old")
        fresh.rename(jars.folder)


def run_ivy(jars: Jars, ivy_file: Path, target: Path) -> None:
    """Resolve and retrieve; its many lines go to a log, one per jar to the terminal."""
    dependencies = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="default->default" '
        f'transitive="{str(jars.transitive).lower()}"/>'
        for organisation, name, revision in jars.coordinates
    )
    ivy_file.write_text(
        f'<ivy-module version="2.0"><info organisation="topicledger" module="{jars.name}"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    settings = os.environ.get("TOPICLEDGER_IVY_SETTINGS")
    command = [
        *(java(), f"-Divy.default.ivy.user.dir={IVY_CACHE}", "-jar", str(ivy_jar())),
        *(["-settings", settings] if settings else []),
        *("-m2compatible", "-cache", str(IVY_CACHE / "cache"), "-ivy", str(ivy_file)),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
    ]
    log = BUILD / "logs" / f"ivy-{jars.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        assert ivy.stdout is not None, "opened with PIPE"
        for line in ivy.stdout:
            kept.write(line)
            if found := DOWNLOADED.search(line):
                print(f"  {found[1]} {found[2]}", flush=True)
    if ivy.returncode != 0 or not any(target.glob("*.jar")):
        if UNREACHABLE.search(log.read_text(encoding="utf-8")):
            raise FetchError(
                "Maven Central can't be reached: check the network, a proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...) "
                "or a mirror (TOPICLEDGER_IVY_SETTINGS), then start again"
            )
        raise FetchError(f"{jars.name}'s jars can't be fetched; Ivy's words are in {log}")


def java() -> str:
    """The java to run."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise FetchError("Java is missing: install Java 17, e.g. openjdk-17-jdk-headless")
    return found


def ivy_jar() -> Path:
    """Ivy, among pyspark's jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("pyspark is missing: run `make setup`")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


if __name__ == "__main__":
    sys.exit(main())
