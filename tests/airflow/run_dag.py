"""Run the example DAG with `dag.test()` in Airflow's own environment, and write the result as a JSON document.

python run_dag.py FILE   (the environment sets the folder of DAGs, Airflow's home and connections)
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from threading import Thread

from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.trigger import handle_event_submit
from airflow.sdk import timezone
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select
from topicledger_dag import dag

BY = "bob"
WITHOUT_ANSWER = select(HITLDetail).where(HITLDetail.responded_at.is_(None))


def approve(asked: list[str]) -> None:
    """Answer the pending approval, as Airflow's API does for the button in its pages; add what it says to `asked`."""
    while True:
        time.sleep(0.5)
        with create_session() as session:
            for detail in session.scalars(WITHOUT_ANSWER).unique():
                task = session.get(TaskInstance, detail.ti_id)
                if task is not None and task.state == TaskInstanceState.AWAITING_INPUT:
                    asked.append(detail.body)
                    detail.responded_by = {"id": "7", "name": BY}
                    detail.responded_at = timezone.utcnow()
                    detail.chosen_options, detail.params_input = ["Approve"], {}
                    session.add(detail)
                    event = TriggerEvent(detail.as_resume_event_payload())
                    handle_event_submit(event, task_instance=task, session=session)


def main(told: Path) -> None:
    for each in dag.tasks:
        each.retry_delay = timedelta(seconds=1)
        each.retry_exponential_backoff = False
    # Two threads must not import these modules at once, or each would wait for the other's lock.
    with create_session() as session:
        session.scalars(WITHOUT_ANSWER).unique().all()
    asked: list[str] = []
    Thread(target=approve, args=(asked,), daemon=True).start()
    run = dag.test()
    tasks = {each.task_id: {"state": each.state, "tries": each.try_number} for each in run.get_task_instances()}
    told.write_text(
        json.dumps({"run_id": run.run_id, "state": run.state, "tasks": tasks, "asked": asked}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
