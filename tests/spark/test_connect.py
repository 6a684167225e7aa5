"""Work of a Spark Connect client, and the settings that it leaves in its session."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests import commands
from tests.spark.installed import DELTA_SETTINGS, Installed
from topicledger_testing.embedded_kafka import EmbeddedKafka

_TUNED = """
import json, sys
from topicledger.ledger.session import FEW_ROWS, for_few_rows, get_session
spark = get_session("plan", remote=sys.argv[1])
spark.conf.set("spark.sql.shuffle.partitions", "64")
def now():
    return {name: spark.conf.get(name, None) for name in FEW_ROWS}
before = now()
with for_few_rows(spark):
    within = now()
print(json.dumps([before, within, now()]))
"""
_MATERIALISED = """
import json, sys
from topicledger.frames import materialised
from topicledger.ledger.session import get_session
spark = get_session("plan", remote=sys.argv[1])
rows = materialised(spark.range(3))
views = [view["viewName"] for view in spark.sql("SHOW VIEWS").collect()]
print(json.dumps([views, sorted(row["id"] for row in rows.collect())]))
"""
_FIREWALL = """
import os, socket
_connect = socket.socket.connect_ex
def connect_ex(self, address):
    return 111 if address[1] == int(os.environ["CLOSED_PORT"]) else _connect(self, address)
socket.socket.connect_ex = connect_ex
"""


def answer(installed: Installed, remote: str, folder: Path, program: str) -> Any:
    """Return the JSON that a client's program prints."""
    command = [installed.python, "-c", program, remote]
    environment = installed.environment()
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def test_settings_of_the_session_are_as_before(installed: Installed, remote: str, tmp_path: Path) -> None:
    before, within, after = answer(installed, remote, tmp_path, _TUNED)
    assert after == before
    assert within["spark.sql.shuffle.partitions"] == "64"
    assert within["spark.sql.adaptive.enabled"] == "false"


def test_rows_that_were_computed_once_leave_no_view(installed: Installed, remote: str, tmp_path: Path) -> None:
    assert answer(installed, remote, tmp_path, _MATERIALISED) == [[], [0, 1, 2]]


def test_the_client_lists_clusters_that_executors_may_not_reach(
    installed: Installed, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    (server := tmp_path / "server").mkdir()
    (server / "sitecustomize.py").write_text(_FIREWALL, encoding="utf-8")
    (address,) = kafka.bootstrap_servers
    closed = {"PYTHONPATH": str(server), "CLOSED_PORT": address.rpartition(":")[2]}
    (tmp_path / "topics.yaml").write_text("cluster: main\ntopics: [{topic: connect.lists}]\n", encoding="utf-8")

    def ran(command: str, observe: str = "") -> subprocess.CompletedProcess[str]:
        more = f'[kafka]\nconnect_timeout = 10\n{observe}\n[spark]\nremote = "{remote}"\n'
        config = commands.settings_file(tmp_path, {"main": [address]}, more=more)
        return installed.run(tmp_path, *command.split(), "--config", str(config))

    with installed.connect_server(server, {"spark.jars": installed.jars, **DELTA_SETTINGS}, **closed) as remote:
        loaded = ran("load-manifests topics.yaml")
        assert loaded.returncode == 0, loaded.stderr
        by_client = ran("provision --run-id one")
        assert by_client.returncode == 0, by_client.stderr
        by_executors = ran("plan", 'observe = "executors"')
        assert (by_executors.returncode, address in by_executors.stdout + by_executors.stderr) != (0, False)
