"""Write the ledger of an older version into tests/data, with the code of an older commit on this environment's Spark.

    git worktree add older 78981b8c    # the first version of all: its tables have schema version 1
    python -m tests.ledger.write_older older tests/data/ledger-schema-1.tar.gz

Its runs are `created` and `deleted`, which finished, and `planned`, which stays open.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests import clusters, commands
from tests.ledger.exercise import OLDER_CLUSTER_ID

STEPS = (
    (("kept", "gone"), "", ["provision", "--run-id", "created"], 4),
    (("kept", "next"), "  - {topic: old.gone, state: absent}\n", ["provision", "--run-id", "deleted"], 0),
    (("kept", "next", "planned"), "", ["plan", "--run-id", "planned"], 0),
)
"""Declared topics, another line of the file, the command, and its exit code."""


def main(checkout: Path, archive: Path) -> None:
    """Run the commands of a checkout, and write the archive."""
    kafka = clusters.plain()
    kafka.cluster_id = OLDER_CLUSTER_ID
    with tempfile.TemporaryDirectory() as made, kafka:
        folder = Path(made)
        settings = f"""
            [tables]
            root = "{folder}/ledger"
            [clusters.main]
            bootstrap_servers = ["{kafka.bootstrap_servers[0]}"]
            [guards]
            max_deletes = 1
        """
        (folder / "settings.toml").write_text(settings, encoding="utf-8")

        def run(*arguments: str, code: int = 0) -> None:
            command = [sys.executable, "-c", "from topicledger.cli import main; main()", *arguments]
            ran = subprocess.run(
                [*command, "--config", "settings.toml"],
                cwd=folder,
                env=commands.environment(
                    PYTHONPATH=str(checkout.absolute() / "lib"),
                    TOPICLEDGER_JARS=str(clusters.JARS.parent),
                    TOPICLEDGER_LOG_DIR=str(folder),
                ),
            )
            assert ran.returncode == code, f"{arguments}: exit code {ran.returncode}"

        for names, more, command, code in STEPS:
            topics = [f"  - {{topic: old.{name}}}\n" for name in names]
            text = "".join(["cluster: main\ndefaults: {num_partitions: 1}\ntopics:\n", *topics, more])
            (folder / "topics.yaml").write_text(text, encoding="utf-8")
            run("load_manifests", "topics.yaml", "--replace")
            if code:
                _declare_bad_name(folder / "ledger" / "manifests")
            run(*command, code=code)
        with tarfile.open(archive, "w:gz") as written:
            written.add(folder / "ledger", "ledger")


def _declare_bad_name(manifests: Path) -> None:
    """Append a row as another tool: files with such a name are refused."""
    rows = pa.table(DeltaTable(manifests).to_pyarrow_table().slice(0, 1))
    named = rows.set_column(rows.schema.get_field_index("topic"), "topic", pa.array(["bad name!"]))
    write_deltalake(manifests, named, mode="append")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
