"""[spark]: the Spark that runs commands."""

from __future__ import annotations

from dataclasses import dataclass

from topicledger.config.toml_table import TomlTable


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """The Spark that runs commands. By default that of `spark-submit`, or one in the command's own process."""

    remote: str | None = None
    """The address of a Spark Connect server, `sc://host:15002`. The environment variable SPARK_REMOTE precedes it."""


def read_spark(table: TomlTable) -> SparkSettings:
    """Read [spark]."""
    table.only("remote")
    remote = table.text("remote")
    if remote is not None and not remote.startswith("sc://"):
        table.problem("remote", "is not the address of a Spark Connect server, such as sc://host:15002")
    if remote is not None and "token=" in remote:
        table.problem("remote", "holds a token, which is a secret: set SPARK_REMOTE in the environment instead")
    return SparkSettings(remote=remote)
