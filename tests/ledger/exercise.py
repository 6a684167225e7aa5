"""The life of a small ledger in a separate process, on the storage of its session: 100 writes of every kind.

    python -m tests.ledger.exercise ROOT

Prints the expected content of the tables as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from topicledger.ledger.session import for_few_rows, get_session
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, BROKERS, LEASES, MANIFESTS, RUNS

ROUNDS = 20


OLDER = {version: Path(__file__).parents[1] / "data" / f"ledger-schema-{version}.tar.gz" for version in (1, 2)}
"""By schema version, a ledger with the finished runs `created` and `deleted`, in the second also `audited`, and the run
`planned`. `write_older` wrote the first one."""
OLDER_CLUSTER_ID = "topicledger-old-ledger"
"""Id of the cluster that these ledgers call `main`."""


@dataclass
class Expected:
    """The expected content of the tables."""

    audit: list[str] = field(default_factory=list)
    brokers: list[int] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    changes: int = 0


def exercise(ledger: Ledger) -> Expected:
    """Do five writes per round, each as a run does with that table."""
    ledger.ensure(AUDIT, BROKERS, LEASES, MANIFESTS, RUNS)
    expected = Expected()
    for number in range(ROUNDS):
        run_id = f"run-{number % 3}"
        if run_id not in expected.runs:
            ledger.append(RUNS, ledger.rows(RUNS, [{"run_id": run_id, "epoch": 1}]), app_id=run_id, version=1)
        state = f"state-{number}"
        updated = ledger.update(RUNS, f"run_id = '{run_id}' AND epoch = 1", {"state": f"'{state}'"})
        assert updated == 1, f"{updated} rows of {run_id} updated"
        expected.runs[run_id] = state

        topics = [f"topic-{number}-{part}" for part in range(2)]
        rows = ledger.rows(AUDIT, [{"run_id": "run-0", "topic": topic} for topic in topics])
        ledger.append(AUDIT, rows, app_id="run-0", version=number + 1)
        expected.audit += topics

        now = datetime.now(UTC)
        lease: dict[str, Any] = {"cluster_id": "one", "run_id": run_id, "expires_at": now, "changes": number + 1}
        assert ledger.compare_and_set(LEASES, "cluster_id", [lease]) == 1, f"lease {number + 1} wasn't ours"
        assert ledger.compare_and_set(LEASES, "cluster_id", [{**lease, "run_id": "late"}]) == 0
        expected.changes = number + 1

        brokers = [{"cluster": "main", "broker_id": number * 10 + part} for part in range(2)]
        ledger.replace_clusters(BROKERS, ledger.rows(BROKERS, brokers), ["main"])
        expected.brokers = [int(str(broker["broker_id"])) for broker in brokers]

        manifests = [{"cluster": "main", "topic": topic, "state": "present"} for topic in topics]
        ledger.merge(MANIFESTS, ledger.rows(MANIFESTS, manifests))
        expected.manifests += topics
    return expected


if __name__ == "__main__":
    session = get_session("exercise")
    session.sparkContext.setLogLevel("ERROR")
    with for_few_rows(session):
        print(json.dumps(vars(exercise(Ledger(session, sys.argv[1])))))
    session.stop()
