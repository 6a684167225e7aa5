"""Running the commands as users do: as processes, with a settings file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from topicledger_testing.embedded_kafka import EmbeddedKafka

REPOSITORY = Path(__file__).resolve().parent.parent
SUBMIT = REPOSITORY / "spark-submit.sh"
# With its first compiler only, Java would keep 48 MB for code, which a run that generates code can fill.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Java's options for jobs that are over before compiling well would pay."""


def spark_defaults() -> Mapping[str, str]:
    """Return the settings of conf/spark-defaults.conf."""
    text = (REPOSITORY / "conf" / "spark-defaults.conf").read_text(encoding="utf-8")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    return {key: value.strip() for key, value in lines}


def settings_file(
    folder: Path,
    clusters: Mapping[str, list[str]],
    *,
    root: Path | str | None = None,
    single_writer: bool = False,
    more: str = "",
) -> Path:
    """Write run settings for clusters by their addresses; `more` is TOML that follows."""
    lines = ["[tables]", f'root = "{root or folder / "ledger"}"', f"single_writer = {str(single_writer).lower()}"]
    for name, servers in clusters.items():
        lines += [f"[clusters.{name}]", f"bootstrap_servers = {servers!r}".replace("'", '"')]
    path = folder / "settings.toml"
    path.write_text("\n".join([*lines, more]) + "\n", encoding="utf-8")
    return path


def admins_settings(
    folder: Path, kafka: EmbeddedKafka, servers: list[str], monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> Path:
    """Write run settings for the cluster `main`, asked at `servers` as its admin: the environment has the password."""
    options = kafka.client_options()
    monkeypatch.setenv("MAIN_PASSWORD", options["sasl_plain_password"])
    client = sasl_client(options["sasl_plain_username"], "env:MAIN_PASSWORD")
    return settings_file(folder, {"main": servers}, more=client + more)


def sasl_client(user: str, password: str, cluster: str = "main") -> str:
    """TOML for a cluster whose users have passwords; `password` is a reference."""
    return (
        f'[clusters.{cluster}.client]\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n'
        f'sasl_plain_username = "{user}"\nsasl_plain_password = "{password}"\n'
    )


def environment(**more: str) -> dict[str, str]:
    """The environment of a job: ours, with a home for logs."""
    return {**os.environ, **more}


def command(*arguments: str) -> list[str]:
    """The console script with arguments."""
    return [str(Path(sys.executable).with_name("topicledger")), *arguments]


def run(arguments: list[str], *, timeout: float = 300, **more: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; output is captured."""
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=timeout, env=environment(**more), cwd=REPOSITORY, check=False
    )
