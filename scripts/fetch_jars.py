"""Fetch Kafka's and Delta's jars into build/jars with the Ivy inside pyspark.

`fetch_jars.py s3` fetches the jars for S3 instead, `fetch_jars.py yarn` those of a YARN cluster, `fetch_jars.py
delta-4.1` Delta's for another version of Spark, and `fetch_jars.py kafka-VERSION...` brokers of other versions.

Run it with the Python that has pyspark. Complete folders of the right versions are left alone; files that differ from
jars.sha256 are refused. TOPICLEDGER_IVY_SETTINGS may name an Ivy settings file, for a mirror of Maven Central.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"
PINS = Path(__file__).resolve().parent / "jars.sha256"
"""Digests in the format of sha256sum: `cd build/jars && sha256sum --check ../../scripts/jars.sha256` checks them."""
IVY_CACHE = BUILD / "ivy"
DELTA = "4.4.0"
KAFKA = "4.3.1"
OTHER_KAFKA = re.compile(r"kafka-\d+\.\d+\.\d+")
DOWNLOADED = re.compile(r"\[SUCCESSFUL \] [^#]+#([^;]+);([^!]+)!")
UNREACHABLE = re.compile(r"UnknownHost|ConnectException|SocketTimeout|Connection (refused|reset)|NoRouteToHost|SSLHand")


@dataclass(frozen=True, kw_only=True)
class Jars:
    """A folder of jars."""

    name: str
    coordinates: tuple[tuple[str, str, str], ...]
    """(organisation, module, revision) of each jar."""
    transitive: bool
    """Whether to fetch their dependencies, too."""
    pinned: bool = True
    """Whether `PINS` must list each file; otherwise Ivy only checks the repository's SHA-1."""

    @property
    def folder(self) -> Path:
        """The folder of the jars."""
        return BUILD / "jars" / self.name

    @property
    def sha256(self) -> Mapping[str, str]:
        """File name -> expected digest."""
        pins = (line.split(maxsplit=1) for line in PINS.read_text(encoding="ascii").splitlines())
        of_all = ((digest, *path.split("/")) for digest, path in pins)
        return {name: digest for digest, folder, name in of_all if folder == self.name} if self.pinned else {}

    @property
    def content(self) -> str:
        """The text that marks a complete folder."""
        lines = [f"{organisation}:{name}:{revision}" for organisation, name, revision in self.coordinates]
        return "\n".join([*lines, *(f"{digest}  {name}" for name, digest in self.sha256.items()), ""])


def brokers(name: str, version: str) -> Jars:
    """Return the jars of a broker of that version."""
    return Jars(
        name=name,
        pinned=version == KAFKA,
        # slf4j-simple fits the slf4j-api 1.7 that Kafka brings.
        coordinates=(("org.apache.kafka", "kafka_2.13", version), ("org.slf4j", "slf4j-simple", "1.7.36")),
        transitive=True,
    )


def delta(name: str, spark: str) -> Jars:
    """Return Delta's jars for a version of Spark; its other dependencies are part of Spark."""
    modules = (
        f"delta-spark_{spark}_2.13",
        "delta-storage",
        "delta-kernel-api",
        "delta-kernel-defaults",
        "delta-kernel-unitycatalog",
    )
    coordinates = tuple(("io.delta", module, DELTA) for module in modules)
    return Jars(name=name, coordinates=coordinates, transitive=False)


WANTED = (
    brokers("kafka", KAFKA),
    Jars(
        # Kafka's own command line, for tests; separate, since no broker needs it.
        name="kafka-tools",
        coordinates=(("org.apache.kafka", "kafka-tools", KAFKA),),
        transitive=False,
    ),
    delta("delta", "4.2"),
)

FOR_S3 = (
    Jars(
        # Hadoop's S3A, of the version of the Hadoop inside pyspark, with its two dependencies.
        name="s3",
        coordinates=(
            ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
            ("software.amazon.awssdk", "bundle", "2.35.4"),
            ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
        ),
        transitive=False,
    ),
)

FOR_YARN = (
    Jars(
        # A ResourceManager and NodeManagers, of the version of the Hadoop inside pyspark. They need Bouncy Castle,
        # which isn't a declared dependency; the version is that of Hadoop's own build.
        name="yarn",
        coordinates=(
            ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
            ("org.bouncycastle", "bcprov-jdk18on", "1.82"),
            ("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
            ("org.bouncycastle", "bcutil-jdk18on", "1.82"),
        ),
        transitive=False,
    ),
)

NAMED: Mapping[str, Sequence[Jars]] = {
    "s3": FOR_S3,
    "yarn": FOR_YARN,
    **{name: (delta(name, name.removeprefix("delta-")),) for name in ("delta-4.0", "delta-4.1")},
}
"""Jars to fetch instead of `WANTED`, by argument."""


class FetchError(Exception):
    """Jars can't be fetched; the text is for the user."""


def wanted(names: Sequence[str]) -> Sequence[Jars]:
    """Return the jars that the arguments name; raises FetchError for an unknown name."""
    if not names:
        return WANTED
    for name in names:
        if name not in NAMED and not OTHER_KAFKA.fullmatch(name):
            raise FetchError(f"unknown jars {name}: use {', '.join(NAMED)} or kafka-VERSION, e.g. kafka-3.9.1")
    return [jars for name in names for jars in NAMED.get(name) or [brokers(name, name.removeprefix("kafka-"))]]


def main(names: Sequence[str]) -> int:
    """Fetch missing jars, and return the exit code."""
    try:
        for jars in wanted(names):
            if not is_complete(jars):
                print(f"Fetching {jars.name}'s jars", flush=True)
                fetch(jars)
            (jars.folder / ".complete").touch()
    except FetchError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def is_complete(jars: Jars) -> bool:
    """Whether the folder has all jars of these versions."""
    marker = jars.folder / ".complete"
    return marker.is_file() and marker.read_text(encoding="utf-8") == jars.content


def fetch(jars: Jars) -> None:
    """Fetch into a folder beside the final one, then rename it."""
    jars.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix=f"fetching-{jars.name}-") as temporary:
        fresh = Path(temporary) / "new"
        fresh.mkdir()
        run_ivy(jars, Path(temporary) / "ivy.xml", fresh)
        check_digests(jars, fresh)
        (fresh / ".complete").write_text(jars.content, encoding="utf-8")
        if jars.folder.exists():
            jars.folder.rename(Path(temporary) / "old")
        fresh.rename(jars.folder)


def check_digests(jars: Jars, folder: Path) -> None:
    """Raise FetchError unless the files are exactly the pinned ones."""
    if not jars.pinned:
        return
    found = {}
    for path in folder.glob("*.jar"):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    for name in sorted(found.keys() | jars.sha256.keys()):
        wanted, digest = jars.sha256.get(name), found.get(name)
        if digest != wanted:
            raise FetchError(
                f"{name} has the SHA-256 {digest or '(it is missing)'} instead of {wanted or '(it is not pinned)'}, so "
                f"nothing was installed. If its version was changed on purpose, change {PINS.name} as well"
            )


def run_ivy(jars: Jars, ivy_file: Path, target: Path) -> None:
    """Resolve and retrieve jars; log Ivy's output to a file, and print one line per jar."""
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
        raise FetchError(f"{jars.name}'s jars can't be fetched; see Ivy's output in {log}")


def java() -> str:
    """Return the path of java."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise FetchError("Java is missing: install Java 17, e.g. openjdk-17-jdk-headless")
    return found


def ivy_jar() -> Path:
    """Return the path of Ivy among pyspark's jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("pyspark is missing: run `make setup`")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
