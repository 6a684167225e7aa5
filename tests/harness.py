"""A ledger and its clusters in this process, for tests that run the job on a real broker."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tests import stored
from topicledger import pipeline
from topicledger.apply.dispatch import Context, Stop
from topicledger.apply.progress import Progress
from topicledger.apply.summary import Summary
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import (
    ClientValue,
    ClusterSettings,
    KafkaSettings,
    Mode,
    Needs,
    PolicySettings,
    PolicySpec,
    Settings,
    TablesSettings,
)
from topicledger.config.severities import Severity
from topicledger.drift import audit as auditing
from topicledger.drift.summary import DriftSummary
from topicledger.ledger import runs
from topicledger.ledger.tables import Ledger
from topicledger.model import Phase, RunState
from topicledger.model.scope import Scope
from topicledger.plan import approvals
from topicledger.resources import building
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, RUNS, TABLES, Table
from topicledger_testing.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from delta.tables import DeltaTable

UNREACHABLE = "127.0.0.1:1"


def cluster_settings(
    name: str, kafka: EmbeddedKafka | str, cluster_id: str | None = None, **client: ClientValue
) -> ClusterSettings:
    """Settings of a cluster: an embedded one, or just an address."""
    servers = [kafka] if isinstance(kafka, str) else kafka.bootstrap_servers
    return ClusterSettings(name=name, bootstrap_servers=tuple(servers), cluster_id=cluster_id, client=client)


@lru_cache(maxsize=1)
def new_folder() -> Path:
    """A folder of this process; it goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="topicledger-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


SHARED = "TOPICLEDGER_TEST_FOLDER"
"""Environment variable with a folder of all processes of this run."""


def empty_ledger(spark: SparkSession) -> Path:
    """A ledger with all tables, empty; made once for all processes: a copy is much faster than new tables."""
    folder = Path(os.environ.setdefault(SHARED, str(new_folder())))
    root = folder / "ledger"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            made = folder / "made"
            Ledger(spark, str(made)).ensure(*TABLES.values())
            made.rename(root)
    return root


def policy(use: str, mode: Mode = "refuse", needs: Needs | None = None, **options: Any) -> PolicySpec:
    """A policy as the settings name it."""
    return PolicySpec(use=use, mode=mode, needs=needs, options=options, where="policies[1]")


def scoped(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request, in which `clusters` and `only` may be given without a scope."""
    given = dict(request)
    limits = {"clusters": given.pop("clusters", ()), "kinds": given.pop("only", ())}
    return given if "scope" in given else {**given, "scope": Scope(**limits)}


def delta_table(ledger: Ledger, table: Table) -> DeltaTable:
    """Return a table as Delta's own package has it, to change rows that topicledger never changes."""
    # Environments for other versions of Spark lack the package (scripts/test_spark.sh), and use other functions here.
    from delta.tables import DeltaTable

    return DeltaTable.forPath(ledger.spark, ledger.location(table))


class Estate:
    """A ledger and its clusters. Topics of a shared broker must have names of their own."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        clusters: Mapping[str, EmbeddedKafka | str | ClusterSettings],
        *,
        max_deletes: int = 0,
        kafka: KafkaSettings | None = None,
        policies: PolicySettings | None = None,
    ) -> None:
        if not root.exists():
            shutil.copytree(empty_ledger(spark), root)
        self.spark = spark
        self.settings = Settings(
            path=Path("tests.toml"),
            tables=TablesSettings(root=str(root)),
            clusters={
                name: each if isinstance(each, ClusterSettings) else cluster_settings(name, each)
                for name, each in clusters.items()
            },
            guards=GuardSettings(max_deletes=max_deletes),
            kafka=kafka or KafkaSettings(connect_timeout=10.0),
            policies=policies or PolicySettings(),
        )
        self.ledger = Ledger(spark, str(root))

    def declare(self, *rows: Mapping[str, Any], cluster: str = "main") -> None:
        """Append rows to `manifests`; by default, state is present and the rest null."""
        self.ledger.ensure(MANIFESTS)
        complete = [{"cluster": cluster, "state": "present", **row} for row in rows]
        ordered = [tuple(row.get(name) for name in MANIFESTS.schema.names) for row in complete]
        frame = self.spark.createDataFrame(ordered, MANIFESTS.schema, verifySchema=False)
        frame.write.format("delta").mode("append").save(self.ledger.location(MANIFESTS))

    def declare_anew(self, *rows: Mapping[str, Any], cluster: str = "main") -> None:
        """Replace everything in `manifests`."""
        self.ledger.ensure(MANIFESTS)
        self.spark.sql(f"DELETE FROM {self.ledger.sql_name(MANIFESTS)}")
        self.declare(*rows, cluster=cluster)

    def run(
        self, command: str = "provision", run_id: str | None = None, *, stop: Stop | None = None, **request: Any
    ) -> Summary:
        """Do what the command of that name does."""
        asked = runs.Request(command=command, run_id=run_id, **scoped(request))
        run = runs.start(self.ledger, self.settings, asked)
        context = Context(
            progress=Progress(shown=False),
            stop=stop or Stop(),
            policies=building.from_settings(self.settings),
            wait=asked.wait,
            wait_visible=asked.wait_visible,
        )
        if run.state is RunState.FINISHED:
            raise AssertionError(f"run {run.run_id} is finished")
        return pipeline.provision(
            run,
            context,
            planning_only=command == "plan",
            applying_only=command == "apply",
            detailed=asked.detailed_exitcode,
        )

    def run_audit(
        self,
        run_id: str | None = None,
        *,
        fail_on: Severity | None = None,
        progress: Progress | None = None,
        **request: Any,
    ) -> DriftSummary:
        """Do what the command audit does."""
        asked = runs.Request(command=runs.AUDIT_COMMAND, run_id=run_id, **scoped(request))
        run = runs.start(self.ledger, self.settings, asked)
        return auditing.audit(run, progress or Progress(shown=False), fail_on=fail_on)

    def approve(self, run_id: str, **given: Any) -> approvals.Approvals:
        """Do what `runs approve` does."""
        row = approvals.approve(self.ledger, self.settings, run_id, **given)
        return approvals.of_run(self.ledger, self.settings.guards, row)

    def rows(self, table: Table, run_id: str | None = None) -> list[dict[str, Any]]:
        """Rows of a table, of one run where named."""
        return stored.rows(self.ledger.location(table), run_id)

    def audit(self, run_id: str | None = None) -> dict[tuple[str | None, str], dict[str, Any]]:
        """Return rows of `audit` by (topic, phase); fails if there are two for one (topic, action, phase)."""
        found: dict[tuple[str | None, str], dict[str, Any]] = {}
        for row in self.rows(AUDIT, run_id):
            key = (row["topic"], row["phase"])
            assert key not in found or row["topic"] is None, f"two audit rows for {key}"
            found[key] = row
        return found

    def last(self, run_id: str) -> dict[str | None, tuple[str, str, str | None]]:
        """Each topic's result: phase, outcome and error of its last phase; policies are asked after validate too."""
        order = [each.value for each in Phase]
        result: dict[str | None, tuple[str, str, str | None]] = {}
        for (topic, phase), row in sorted(self.audit(run_id).items(), key=lambda item: order.index(item[0][1])):
            if (phase, row["outcome"]) != ("policy", "ok"):
                result[topic] = (phase, row["outcome"], row["error"])
        return result

    def check_invariant(self, run_id: str) -> None:
        """In a finished run each planned action has one apply row, or one earlier row that ended it."""
        (run,) = self.rows(RUNS, run_id)
        assert run["state"] == "finished", run
        ended: dict[tuple[Any, ...], list[str]] = {}
        for row in self.rows(AUDIT, run_id):
            final = row["phase"] == "apply" or (row["phase"] != "verify" and row["outcome"] != "ok")
            if final and row["action"] is not None:
                ended.setdefault((row["cluster"], row["resource"], row["action"]), []).append(row["phase"])
        plans = [row for row in self.rows(PLANS, run_id) if row["action"] is not None]
        planned = [(row["cluster"], row["resource"], row["action"]) for row in plans]
        assert len(planned) == len(set(planned)), "an action is planned twice"
        wrong = {key: ended.get(key, []) for key in planned if len(ended.get(key, [])) != 1}
        assert not wrong, wrong
        assert set(ended) <= set(planned), set(ended) - set(planned)


def topics(names: Iterable[str], **fields: Any) -> Sequence[dict[str, Any]]:
    """Manifest rows for names that share everything else."""
    return [{"topic": name, **fields} for name in names]
