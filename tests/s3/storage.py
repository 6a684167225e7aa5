"""S3 for tests: moto's server in its own environment, and the settings of jobs with tables there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow import fs

from tests import commands
from tests.clusters import JARS
from tests.waiting import until

PYTHON = commands.REPOSITORY / "build" / "s3" / "bin" / "python"
S3A = JARS.parent / "s3"
BUCKET = "ledgers"
ACCESS_KEY = "AKIATESTTOPICLEDGER"
SECRET_KEY = "a-secret-key/that+must-be-nowhere-0123456789"
SINGLE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
"""Delta's own LogStore, for one driver at a time."""


class Server:
    """Moto's server, which runs while this is open."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "requests.log"
        address = folder / "address"
        self._process = subprocess.Popen(
            [str(PYTHON), str(Path(__file__).with_name("serve.py")), str(address), str(self.log), *options],
            stdin=subprocess.PIPE,
            stdout=(folder / "server.log").open("w"),
            stderr=subprocess.STDOUT,
            # Without our environment's packages.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        until(lambda: address.exists() or self._process.poll() is not None, seconds=120)
        assert self._process.poll() is None, (folder / "server.log").read_text()
        self.address = address.read_text()
        self.files = fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.address,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.files.create_dir(BUCKET)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def requests(self) -> Sequence[Sequence[str]]:
        """Return the requests so far: method, path or action, If-None-Match or a dash, status."""
        # The server may still be writing the last line.
        whole, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [line.split(" ") for line in whole.splitlines()]

    def environment(self, log_store: str | None = None, **more: str) -> dict[str, str]:
        """Return the environment of jobs with tables on S3: jars, settings, and S3A's credentials."""
        confs = {
            "fs.s3a.endpoint": self.address,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        }
        said = [f"--conf spark.hadoop.{key}={value}" for key, value in confs.items()]
        if log_store is not None:
            said.append(f"--conf spark.delta.logStore.s3a.impl={log_store}")
        ours = " ".join(said)
        return {
            "SPARK_DIST_CLASSPATH": f"{S3A}/*",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "TOPICLEDGER_SUBMIT_ARGS": f"{os.environ.get('TOPICLEDGER_SUBMIT_ARGS', '')} {ours}",
            "PYSPARK_SUBMIT_ARGS": f"{ours} {os.environ.get('PYSPARK_SUBMIT_ARGS', 'pyspark-shell')}",
            **more,
        }

    def upload(self, folder: Path, name: str) -> str:
        """Copy a ledger to S3; return its root."""
        fs.copy_files(str(folder), f"{BUCKET}/{name}", destination_filesystem=self.files)
        return f"s3a://{BUCKET}/{name}"

    def download(self, name: str, folder: Path) -> Path:
        """Return a local copy of everything under a root."""
        fs.copy_files(f"{BUCKET}/{name}", str(folder), source_filesystem=self.files)
        return folder

    def rows(self, name: str, table: str) -> list[dict[str, Any]]:
        """Return a table's rows, read with delta-rs."""
        options = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        delta = DeltaTable(f"s3://{BUCKET}/{name}/{table}", storage_options=options)
        found: list[dict[str, Any]] = delta.to_pyarrow_table().to_pylist()
        return found


@dataclass(frozen=True, kw_only=True)
class Done:
    """Result of a command."""

    exit_code: int
    stdout: str
    stderr: str


class Driver:
    """A Python process that runs one command after the other in one session."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.s3.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=commands.REPOSITORY,
            env=commands.environment(
                **environment, PYTHONPATH=f"{commands.REPOSITORY / 'lib'}{os.pathsep}{commands.REPOSITORY}"
            ),
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=120)
        self._log.close()

    def start(self, *arguments: str) -> None:
        """Start a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def end(self) -> Done:
        """Wait for the command, and return its result."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, Path(self._log.name).read_text(encoding="utf-8")[-20_000:]
        return Done(**json.loads(line))

    def run(self, *arguments: str, expected: int = 0) -> Done:
        """Run a command; fail if its exit code isn't the expected one."""
        self.start(*arguments)
        done = self.end()
        assert done.exit_code == expected, (arguments, done.exit_code, done.stdout[-5_000:], done.stderr[-5_000:])
        return done
