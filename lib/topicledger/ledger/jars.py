"""The jars of a session: Delta's, and topicledger's own helpers, which are optional."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from topicledger.errors import TopicLedgerError

CHECKOUT = Path(__file__).resolve().parents[3]
"""The checkout of this package. The folder has no meaning if the package is installed."""
_WITHIN_PACKAGE = Path(__file__).resolve().parents[1] / "jars"
_DELTA = "4.4.0"
"""The version of Delta that topicledger is tested with; it has a jar for each of `TESTED`."""
TESTED = ("4.0", "4.1", "4.2")
"""Versions of Spark that topicledger is tested with (docs/installation.md)."""
_OLDEST = (4, 0)
_FOR_SPARK = re.compile(r"delta-spark_(\d+\.\d+)_")
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)")
_VERSION = re.compile(r"delta-spark[\w.]*[-:](\d+\.\d+\.\d+)")


_NO_DELTA = re.compile(
    r"Cannot find catalog plugin class.*DeltaCatalog|ailed to find (?:the )?data source: delta"
    r"|DATA_SOURCE_NOT_FOUND.*delta|ClassNotFoundException: (?:io\.delta|org\.apache\.spark\.sql\.delta)"
)
_NO_EXTENSION = "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"
_EXPLAINED = (
    (
        re.compile(r"\[PYTHON_VERSION_MISMATCH\]|Python in worker has different version"),
        "the workers' Python is not the driver's: set PYSPARK_PYTHON to the same minor version on every machine",
    ),
    (
        re.compile(r"\[(?:CATALOG_NOT_FOUND|REQUIRES_SINGLE_PART_NAMESPACE)|Cannot find catalog plugin class"),
        "this Spark has no such catalog: correct tables.root in the settings, or set spark.sql.catalog.NAME",
    ),
    (
        re.compile(r"\[SCHEMA_NOT_FOUND\]|NoSuchDatabaseException|NoSuchNamespaceException"),
        "the schema doesn't exist: correct tables.root in the settings, or create it (CREATE SCHEMA)",
    ),
    (
        re.compile(r"\[DELTA_TABLE_ONLY_OPERATION\]|\[DELTA_NOT_A_DELTA_TABLE\]|is not a Delta table"),
        "a table of that name isn't a Delta table: rename it, or set another tables.root",
    ),
    (
        re.compile(
            r"\[?(?:INSUFFICIENT_PERMISSIONS|PERMISSION_DENIED|DELTA_CANNOT_CREATE_LOG_PATH)\b|AccessControlException"
        ),
        "this principal lacks a privilege on the schema or the storage of tables.root: grant it, such as CREATE TABLE, "
        "or set another tables.root",
    ),
)
"""Errors of Spark and Delta -> their meaning, and what to do."""
_UNFIT = re.compile(
    r"java\.lang\.(?:NoSuchMethodError|NoSuchFieldError|NoClassDefFoundError|AbstractMethodError"
    r"|IncompatibleClassChangeError): .*"
)


def explained(text: str) -> str | None:
    """Return what an error of Spark means for its jars, and what to do; None if it is about something else."""
    if _NO_EXTENSION in text:
        return (
            "this Spark session has no settings for Delta: set spark.sql.extensions=io.delta.sql."
            "DeltaSparkSessionExtension and spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog."
            "DeltaCatalog (docs/installation.md)"
        )
    if (unfit := _UNFIT.search(text)) or _NO_DELTA.search(text):
        spark = _version_that_answered()
        give = f"give Spark the jars of {coordinate(spark=spark)} (docs/installation.md)"
        if unfit:
            return f"a jar doesn't fit Spark {spark}, such as Delta's: {give}: {unfit[0].strip()}"
        return f"this Spark {spark} has no Delta: {give}"
    for pattern, meaning in _EXPLAINED:
        if found := pattern.search(text):
            line = next(each for each in text[text.rfind("\n", 0, found.start()) + 1 :].splitlines() if each.strip())
            return f"{meaning}: {line.strip().split(' SQLSTATE')[0]}"
    return None


def spark_minor() -> str:
    """Return Spark's version up to the minor one, such as 4.2."""
    return minor(pyspark.__version__)


def minor(version: str) -> str:
    """Return a version up to its minor one."""
    return ".".join(version.split(".")[:2])


def _version_that_answered() -> str:
    """Return the version of the Spark whose error this is: through Spark Connect, the server's, if there is one."""
    if is_remote():
        with suppress(PySparkException):
            return SparkSession.active().version
    return pyspark.__version__


def require_spark() -> str | None:
    """Return a warning if this version of Spark is untested; raises TopicLedgerError if it is too old."""
    found = spark_minor()
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < _OLDEST:
        raise TopicLedgerError(
            f"Spark {pyspark.__version__} is too old: topicledger needs Spark {', '.join(TESTED)} or later"
        )
    if found in TESTED:
        return None
    return f"Spark {pyspark.__version__} is untested: topicledger is tested with {', '.join(TESTED)}"


def require_home() -> None:
    """Raise TopicLedgerError if SPARK_HOME has no Spark, or another version than this Python's PySpark."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        return
    if not (Path(home) / "bin" / "spark-submit").is_file():
        raise TopicLedgerError(f"there is no Spark in {home}, which SPARK_HOME names: correct or unset it")
    names = [path.name for path in (Path(home) / "jars").glob("spark-core_*.jar")]
    found = next(filter(None, map(_CORE.match, names)), None)
    if found and found[1] != spark_minor():
        raise TopicLedgerError(
            f"SPARK_HOME, {home}, has Spark {found[1]}, and this Python has PySpark {pyspark.__version__}: unset it, "
            f"or install pyspark=={found[1]}.*"
        )


def session_jars() -> Mapping[str, str]:
    """Return the settings by which a new session gets Delta and the log store; empty if Spark brings Delta.

    TOPICLEDGER_JARS comes first, then jars that Spark's own settings name, those of the checkout, and the version of
    the package delta-spark, whose jars Spark then fetches. Raises TopicLedgerError if jars are missing or don't fit.
    """
    folder, named = os.environ.get("TOPICLEDGER_JARS") or None, spark_settings()
    jars = delta_jars()
    if folder is None and (_VERSION.search(named) or next(_of_spark(), None)):
        return {}
    if jars:
        _require_fit(jars)
        if "," in str(_folder()):
            raise TopicLedgerError(
                f"{_folder()}: Spark takes a comma for the end of a jar's path: move or link the jars"
            )
        return {"spark.jars": ",".join(map(str, [*jars, *log_store()]))}
    if folder is None and not (CHECKOUT / "pyproject.toml").is_file():
        # Without a known version of Delta, a jar of another name may have it: the first table shows.
        found = _installed()
        return {} if found is None else {"spark.jars.packages": coordinate(found)}
    if folder is None:
        raise TopicLedgerError(f"no Delta jars in {_folder() / 'delta'}: run `make setup`, or set TOPICLEDGER_JARS")
    raise TopicLedgerError(
        f"no Delta jars in {folder}, which TOPICLEDGER_JARS names, nor in its folder delta: put those of "
        f"{coordinate()} there, or unset it"
    )


def coordinate(delta: str = _DELTA, *, spark: str | None = None) -> str:
    """Return the Maven coordinate of Delta for a version of Spark, by default this package's."""
    return f"io.delta:delta-spark_{minor(spark or pyspark.__version__)}_2.13:{delta}"


def untested_delta() -> str | None:
    """Return a warning if the version of Delta is known and untested."""
    found = delta_version()
    if found is None or minor(found) == minor(_DELTA):
        return None
    return f"Delta {found} is untested: topicledger is tested with Delta {_DELTA}"


def delta_version() -> str | None:
    """Return the version of Delta as far as it is known without a session."""
    named = [path.name for path in (*delta_jars(), *_of_spark())]
    found = next(filter(None, map(_VERSION.search, [spark_settings(), *named])), None)
    return found[1] if found else _installed()


def spark_settings() -> str:
    """Return the text of what Spark itself is started with: PYSPARK_SUBMIT_ARGS and spark-defaults.conf."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (str(Path(home) / "conf") if home else None)
    file = Path(folder) / "spark-defaults.conf" if folder else None
    defaults = file.read_text(encoding="utf-8", errors="replace") if file is not None and file.is_file() else ""
    lines = [line for line in defaults.splitlines() if not line.lstrip().startswith("#")]
    return "\n".join([os.environ.get("PYSPARK_SUBMIT_ARGS", ""), *lines])


def delta_jars() -> Sequence[Path]:
    """Return Delta's jars in TOPICLEDGER_JARS or the checkout; empty if there are none."""
    folder = _folder()
    return sorted((folder / "delta").glob("delta-*.jar")) or sorted(folder.glob("delta-*.jar"))


def local_files() -> Path | None:
    """Return the jar of LocalFiles.java; None if it wasn't compiled."""
    return next(iter(_helper("local-files")), None)


def log_store() -> Sequence[Path]:
    """Return the jar of ConditionalS3LogStore.java; empty if it wasn't compiled."""
    return _helper("s3-log-store")


def _folder() -> Path:
    return Path(os.environ.get("TOPICLEDGER_JARS") or CHECKOUT / "build" / "jars")


def _helper(name: str) -> Sequence[Path]:
    return [jar for jar in (_folder() / name / f"{name}.jar", _WITHIN_PACKAGE / f"{name}.jar") if jar.is_file()][:1]


def _of_spark() -> Iterator[Path]:
    """Yield Delta's jars among Spark's own."""
    home, spec = os.environ.get("SPARK_HOME"), find_spec("pyspark")
    folders = [Path(home)] if home else list(map(Path, (spec.submodule_search_locations or []) if spec else []))
    for folder in folders:
        yield from (folder / "jars").glob("delta-spark*.jar")


def _installed() -> str | None:
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        return None


def _require_fit(jars: Sequence[Path]) -> None:
    """Raise TopicLedgerError if the jars are for another version of Spark, which would fail much later."""
    for jar in jars:
        found = _FOR_SPARK.match(jar.name)
        if found and found[1] != spark_minor() and "SPARK_HOME" not in os.environ:
            raise TopicLedgerError(
                f"{jar} is for Spark {found[1]}, and this is Spark {pyspark.__version__}: set TOPICLEDGER_JARS to a "
                f"folder with the jars of {coordinate()}"
            )
