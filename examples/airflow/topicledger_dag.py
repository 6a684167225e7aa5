"""topicledger in Airflow: plan -> approval -> apply -> drift, each a spark-submit of its own.

A person approves in Airflow. `runs approve` then records under their name that they did, for exactly this plan: with
`guards.approvals` topicledger itself applies nothing without. People without Airflow approve by the command line.

A task that is tried again, and a DAG run whose tasks are cleared, come with the same run id: what is done stays done.
Only exit code 1 (not finished) and a killed driver are tried again; every other code would end the same way.

Needs Airflow 3.3 with the providers apache-spark and standard, spark-submit on the workers' PATH, a connection
`spark_default`, and in the workers' and the DAG processor's environment:

    TOPICLEDGER_HOME    a checkout of topicledger where `make setup package` was run
    TOPICLEDGER_CONFIG  the run settings
    TOPICLEDGER_PYTHON  the Python of drivers and executors (default: that of the checkout)
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, Connection, Context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

HOME = os.environ.get("TOPICLEDGER_HOME", "/opt/topicledger")
CONFIG = os.environ.get("TOPICLEDGER_CONFIG", f"{HOME}/conf/topicledger.toml")
PYTHON = os.environ.get("TOPICLEDGER_PYTHON", f"{HOME}/.venv/bin/python")

# Only warnings of Spark's own log go to the task's log; `make setup` has archived the classes that a job loads.
JAVA = f"'-Dlog4j2.configurationFile=file:{HOME}/conf/log4j2.properties'"
JAVA += f" '-XX:SharedArchiveFile={HOME}/build/classes/spark.jsa' -Xshare:auto -Xlog:cds=off"

# Where a worker has these classes, which `make setup` compiles if there is a javac, two drivers can't overwrite each
# other's commits: on S3, and on disks of this machine, for which drivers need a local master.
SPARK = "spark_default"
S3_LOG_STORE = f"{HOME}/build/jars/s3-log-store/s3-log-store.jar"
LOCAL_FILES = f"{HOME}/build/jars/local-files/local-files.jar"
S3_CONF = {"spark.delta.logStore.s3a.impl": "ConditionalS3LogStore"}
LOCAL_CONF = {
    "spark.hadoop.fs.file.impl": "LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "LocalFiles$Context",
}

# The first changes as `plan` says them. A block that is indented is code: names can't act as Markdown.
BODY = r"""{{ ti.xcom_pull(task_ids='plan')['pending_changes'] }} changes; all of them, as a diff:

    topicledger runs show '{{ run_id }}'

{% for each in ti.xcom_pull(task_ids='plan')['planned'] %}
    {{ ([each['cluster'], each['action'], each['resource'], each['what'] or ''] | join(' ')).splitlines() | join(' ') }}
{%- endfor %}
"""
WHO = "{{ ti.xcom_pull(task_ids='approve')['responded_by_user']['name'] }}"
# Another try of `plan` may have planned more since: only what the approver saw is approved.
EXACTLY = "{% set digest = ti.xcom_pull(task_ids='plan')['plan_digest'] %}{{ '--plan=' ~ digest if digest else '' }}"

NOT_FINISHED, USAGE = 1, 2
SOME_FAILED, GUARD_STOPPED = 4, 5


class TopicledgerOperator(SparkSubmitOperator):
    """Submits one of topicledger's jobs; its result document is the task's XCom.

    `command` is one of several that a job has. `goes_on_after` are the exit codes, beside 0, with which the task
    succeeds. Exit code 1, and a driver that left no result, fail this try; any other code fails the task for good.
    """

    def __init__(
        self, *, job: str, arguments: list[str], command: str = "", goes_on_after: Collection[int] = (), **more: Any
    ) -> None:
        super().__init__(
            application=f"{HOME}/jobs/{job}.py",
            application_args=[*([command] if command else []), "--config", CONFIG, *arguments],
            py_files=f"{HOME}/dist/topicledger.zip",
            jars=f"{HOME}/build/jars/delta/*.jar",
            properties_file=f"{HOME}/conf/spark-defaults.conf",
            conf={"spark.driver.extraJavaOptions": JAVA},
            env_vars={"PYSPARK_PYTHON": PYTHON},
            conn_id=SPARK,
            name=f"topicledger {job}",
            **more,
        )
        self.goes_on_after = frozenset(goes_on_after)

    def execute(self, context: Context) -> Mapping[str, Any]:
        self._protect_commits()
        with tempfile.TemporaryDirectory(prefix="topicledger-") as folder:
            told = Path(folder, "result.json")
            given = [argument for argument in self.application_args or [] if argument]
            self.application_args = [*given, "--result-file", str(told)]
            try:
                super().execute(context)
            except AirflowException as error:
                result = _read(told)
                code = result.get("exit_code", NOT_FINISHED)
                if code == NOT_FINISHED:
                    raise
                if code not in self.goes_on_after:
                    raise AirflowFailException(f"exit code {code}: {_why(result)}") from error
                self.log.warning("exit code %s: %s", code, _why(result))
                return result
            return _read(told)

    def _protect_commits(self) -> None:
        """Give the driver the classes for its commits that the checkout on this worker has, as spark-submit.sh does."""
        if Path(S3_LOG_STORE).is_file():
            self.jars = f"{self.jars},{S3_LOG_STORE}"
            self.conf = {**(self.conf or {}), **S3_CONF}
        if Path(LOCAL_FILES).is_file() and str(Connection.get(SPARK).host).startswith("local"):
            self.conf = {**(self.conf or {}), **LOCAL_CONF}
            self.env_vars = {**(self.env_vars or {}), "SPARK_DIST_CLASSPATH": LOCAL_FILES}


def _read(path: Path) -> dict[str, Any]:
    """Return the result document; empty if the driver died before it could write one."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return document


def _why(result: Mapping[str, Any]) -> str:
    if "error" in result:
        return str(result["error"])
    if result.get("waits_for"):
        return f"not approved: {result['waits_for']}"
    return f"{result.get('failure_count')} topics failed or were refused; all of them: {result.get('query')}"


def changes_are_pending(plan: Mapping[str, Any]) -> bool:
    """Whether there is anything to approve and to apply."""
    return bool(plan["pending_changes"])


@task(trigger_rule="none_failed", retries=0)
def outcome(plan: Mapping[str, Any], applied: Mapping[str, Any] | None) -> None:
    """Fail the DAG run if any topic failed or was refused; earlier tasks let the rest continue."""
    result = applied or plan
    if result["exit_code"] in (SOME_FAILED, GUARD_STOPPED):
        raise AirflowFailException(f"run {result['run_id']}: {_why(result)}")


with DAG(
    dag_id="topicledger",
    description="Kafka topics as declared: plan, approval, apply, drift",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # A run waits for the lease of the one before it in any case: better that none starts.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
) as dag:
    plan = TopicledgerOperator(
        task_id="plan",
        job="plan",
        arguments=["--run-id", "{{ run_id }}", "--requested-by", "airflow"],
        goes_on_after=[SOME_FAILED, GUARD_STOPPED],
    )
    pending = ShortCircuitOperator(
        task_id="pending",
        python_callable=changes_are_pending,
        op_args=[plan.output],
        ignore_downstream_trigger_rules=False,
    )
    approve = ApprovalOperator(
        task_id="approve",
        subject="Topics are about to be created, changed or deleted",
        body=BODY,
        response_timeout=timedelta(hours=12),
    )
    record = TopicledgerOperator(
        task_id="record",
        job="runs",
        command="approve",
        arguments=["{{ run_id }}", "--by", WHO, "--note", "in Airflow", EXACTLY],
        # One that is being applied takes no approval; one that lacks approval isn't applied.
        goes_on_after=[USAGE, GUARD_STOPPED],
    )
    apply = TopicledgerOperator(
        task_id="apply",
        job="apply",
        arguments=["--run-id", "{{ run_id }}", "--wait"],
        goes_on_after=[SOME_FAILED, GUARD_STOPPED],
    )
    drift = TopicledgerOperator(
        task_id="drift",
        job="drift",
        arguments=["--run-id", "audit-{{ run_id }}", "--requested-by", "airflow"],
        trigger_rule="none_failed",
    )
    plan >> pending >> approve >> record >> apply >> drift >> outcome(plan.output, apply.output)
