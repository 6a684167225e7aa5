"""Runs the example DAG with `dag.test()`, in Airflow's own environment; a JSON document says what became of it.

python run_dag.py FILE   (where DAGs are, Airflow's home and connections come by the environment)
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

from topicledger_dag import dag


def main(told: Path) -> None:
    for each in dag.tasks:
        each.retry_delay = timedelta(seconds=1)
        each.retry_exponential_backoff = False
    # Who approves isn't here: as if they had.
    run = dag.test(mark_success_pattern="approve")
    tasks = {each.task_id: {"state": each.state, "tries": each.try_number} for each in run.get_task_instances()}
    told.write_text(json.dumps({"run_id": run.run_id, "state": run.state, "tasks": tasks}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
