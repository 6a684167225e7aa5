"""Run typical commands so that Java loads the classes that jobs need: see archive_classes.sh, which submits this."""

from __future__ import annotations

import sys
from pathlib import Path

from topicledger import cli

SETTINGS = """
[tables]
root = "{folder}/ledger"
[clusters.nowhere]
bootstrap_servers = ["127.0.0.1:1"]
[kafka]
connect_timeout = 1
"""
MANIFESTS = "cluster: nowhere\ntopics: [{topic: a, num_partitions: 1}, {topic: b, state: absent}]\n"


def main(folder: Path) -> None:
    """Load manifests and run `provision` in one Spark session; raises if an exit code isn't the expected one."""
    config, manifests = folder / "settings.toml", folder / "topics.yaml"
    config.write_text(SETTINGS.format(folder=folder), encoding="utf-8")
    manifests.write_text(MANIFESTS, encoding="utf-8")
    for arguments, expected in ((["load_manifests", str(manifests)], 0), (["provision"], 1)):
        try:
            cli.main([*arguments, "--config", str(config)])
        except SystemExit as ended:
            if ended.code != expected:
                raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
