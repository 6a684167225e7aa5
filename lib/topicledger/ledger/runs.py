"""Start and resume runs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import Row
from pyspark.sql import functions as F

from topicledger.config.ownership import barred
from topicledger.config.secrets import check_references
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import GuardStopped, UsageError
from topicledger.ledger import lease_rows, proof
from topicledger.ledger.moments import latest_argument, version_argument, versions_then
from topicledger.ledger.run import (
    CLUSTERS_ARGUMENT,
    DELETES_ARGUMENT,
    EPOCH_STEP,
    FILES_ARGUMENT,
    LATEST_ARGUMENT,
    MANIFESTS_ARGUMENT,
    ONLY_ARGUMENT,
    PRUNES_ARGUMENT,
    REBALANCE_ARGUMENT,
    REPLACES_ARGUMENT,
    REVERTS_ARGUMENT,
    Run,
    find_run,
    require_run,
    row_of,
    shard_of,
)
from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.ledger.unloaded import Unloaded
from topicledger.ledger.unreached import is_planned
from topicledger.ledger.who import os_user, principal_of, spark_app_id, versions
from topicledger.model import OPEN_STATES, RunState
from topicledger.model.moves import Rebalance
from topicledger.model.prune import Prune
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.schemas import AUDIT, DRIFT, MANIFESTS, OBSERVED_CONFIGS, PLANS, RESOURCES, RUNS, SENT_BATCHES, USAGE

AUDIT_COMMAND, LOAD_COMMAND, ACCEPT_COMMAND = "audit", "load_manifests", "clusters accept"
NAMES = {AUDIT_COMMAND: "drift"}
"""Former names of commands, which `runs` and metrics keep -> the names."""
PROVISIONING = ("plan", "apply", "provision")
"""Commands that plan changes or make them."""
_WITHOUT = {CLUSTERS_ARGUMENT: "all", ONLY_ARGUMENT: "all", MANIFESTS_ARGUMENT: "the latest"}
"""Argument -> what its absence means, for messages; `none` for the others."""
PATHS_ARGUMENT = "paths"
"""Key: the files and folders of a plan from files, as JSON, as they were given."""
VARIABLES_ARGUMENT = "variables"
"""Key: the values of variables in these files, as JSON."""
EARLIER_CONFIGS = "earlier_configs_version"
"""Key in an audit's arguments: the version of `observed_configs` that it compares with."""
USAGE_ARGUMENT = "usage"
"""Key in an audit's arguments: `true` if it reads the usage of topics."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Manifest files that count as if they were loaded."""

    argument: str
    """Their paths and digests, as in `runs.arguments`."""
    paths: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values of variables in the files, by name."""
    unloaded: Mapping[str, Unloaded]
    """See `Run.unloaded`."""
    replaces: str = ""
    """See `REPLACES_ARGUMENT`; empty if loading them removes no rows."""
    removals: Mapping[str, str] = field(default_factory=dict)
    """Arguments about the rows that loading them removes."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A user's request to start or resume a run."""

    command: str
    """plan, apply, provision or audit, as `runs` names it."""
    run_id: str | None = None
    """None: a new id."""
    scope: Scope = EVERYTHING
    """The scope of a run that plans or audits."""
    requested_by: str | None = None
    """None: the OS user."""
    detailed_exitcode: bool = False
    """Exit 3 if changes are pending (plan) or if there is drift."""
    wait: bool = False
    """Wait for a cluster that another run is changing."""
    wait_visible: float = 0.0
    """Seconds to wait until every applied partition has a leader."""
    manifests: int | datetime | Files | None = None
    """Source of a plan: a version of `manifests`, or that of a time (UTC); files on top of the latest; None: that."""
    reverts: str | None = None
    """For a plan that undoes a run instead of applying `manifests`: the run's id."""
    deletes: bool = False
    """With `reverts`: delete the topics that the run created."""
    usage: bool | None = None
    """For an audit: read the usage of topics; None: as the settings say, or as the run began."""
    instead: Rebalance | Prune | None = None
    """For a plan that doesn't apply `manifests`: a broker to drain or to fill, or the unmanaged topics to delete."""

    @property
    def by_manifests(self) -> bool:
        """Whether the run applies what manifests declare."""
        return self.reverts is None and self.instead is None

    @property
    def unloaded(self) -> Mapping[str, Unloaded]:
        """See `Run.unloaded`."""
        return self.manifests.unloaded if isinstance(self.manifests, Files) else {}

    def bearing(self) -> dict[str, str]:
        """Return the arguments that decisions depend on; a resumed run must be given the same ones."""
        return {
            CLUSTERS_ARGUMENT: ",".join(sorted(self.scope.clusters)),
            ONLY_ARGUMENT: ",".join(sorted(self.scope.kinds)),
            MANIFESTS_ARGUMENT: str(self.manifests) if isinstance(self.manifests, int) else "",
            FILES_ARGUMENT: self.manifests.argument if isinstance(self.manifests, Files) else "",
            REPLACES_ARGUMENT: self.manifests.replaces if isinstance(self.manifests, Files) else "",
            REVERTS_ARGUMENT: self.reverts or "",
            DELETES_ARGUMENT: "true" if self.deletes else "",
            REBALANCE_ARGUMENT: str(self.instead) if isinstance(self.instead, Rebalance) else "",
            PRUNES_ARGUMENT: self.instead.to_json() if isinstance(self.instead, Prune) else "",
        }


def new_run_id() -> str:
    """Make a new run id; ids sort by the time at which they were made."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{secrets.token_hex(4)}"


def start(ledger: Ledger, settings: Settings, request: Request) -> Run:
    """Begin or resume a run; the row of a new one is the first of its `commits`.

    The row is committed at once if the user gave the id, since another start may have the same id; else when needed.
    Raises SecretError for a reference that can't be resolved here. Raises UsageError for a run id that `apply` doesn't
    find planned, that was abandoned, or that started with other settings or arguments; for a version of `manifests`
    that can't be read; and for a run to revert that isn't over.
    """
    ledger.ensure(RUNS)
    moment = None
    if isinstance(request.manifests, datetime):
        moment = request.manifests
        request = replace(request, manifests=ledger.version_as_of(MANIFESTS, moment))
    if request.reverts is not None:
        _require_over(ledger, request.reverts)
    run_id = request.run_id or new_run_id()
    row = find_run(ledger, run_id) if request.run_id else None
    if row is None and request.command == "apply":
        raise UsageError(f"there is no run {run_id} in {ledger.root}: plan it first, or see `runs list`")
    selected = settings.select(request.scope.clusters)
    for cluster in selected:
        # The driver needs every secret sooner or later: a missing one is an error before the run has a row.
        check_references(cluster)
    proof.signer(settings)
    if row is None:
        return _begin(ledger, settings, request, run_id, selected, request.bearing(), moment)
    return _resume(ledger, settings, request, row)


def _require_over(ledger: Ledger, run_id: str) -> None:
    """Raise UsageError unless the run is over, changed clusters and has all of its rows.

    An open run can still change something, and with some rows only a part of it would be undone.
    """
    row = require_run(ledger, run_id)
    if (row["arguments"] or {}).get("command") not in PROVISIONING:
        raise UsageError(f"run {run_id} changed no cluster: there is nothing to revert")
    if row["state"] not in (RunState.FINISHED, RunState.ABANDONED):
        raise UsageError(
            f"run {run_id} is {row['state']}: finish it with --run-id {run_id}, or `runs abandon` it, then revert it"
        )
    if removed := proof.removed_rows(ledger, row.asDict()):
        left = " and ".join(f"{now:,} of {then:,} rows of {table}" for table, (now, then) in removed.items())
        raise UsageError(
            f"run {run_id} can't be reverted: {left} are left, since `maintain` deletes rows by age; "
            "declare what should be"
        )


def begin(ledger: Ledger, settings: Settings, request: Request, arguments: Mapping[str, str]) -> Run:
    """Begin a run that asks no cluster; its row keeps `arguments`."""
    run = _begin(ledger, settings, request, request.run_id or new_run_id(), (), arguments)
    run.keep_row()
    run.commits.settle()
    return run


def _begin(
    ledger: Ledger,
    settings: Settings,
    request: Request,
    run_id: str,
    selected: Sequence[ClusterSettings],
    bearing: Mapping[str, str],
    moment: datetime | None = None,
) -> Run:
    """`moment`: when the requested version of `manifests` was the latest; if None, it is looked up."""
    ledger.ensure(MANIFESTS)
    arguments = {"command": request.command, **{k: v for k, v in bearing.items() if v or k == CLUSTERS_ARGUMENT}}
    others = [table for table in RESOURCES if request.command in PROVISIONING and ledger.exists(table)]
    with ThreadPoolExecutor(1 + len(others)) as beside:
        manifest_version, *versions_of_others = beside.map(ledger.latest_version, (MANIFESTS, *others))
    if isinstance(request.manifests, int):
        ledger.require_version(MANIFESTS, request.manifests, latest=manifest_version)
        arguments[LATEST_ARGUMENT] = str(manifest_version)
        manifest_version = request.manifests
    then: Sequence[int | None] = versions_of_others
    if isinstance(request.manifests, int):
        arguments |= {latest_argument(each): str(its) for each, its in zip(others, versions_of_others, strict=True)}
        then = versions_then(ledger, manifest_version, others, versions_of_others, moment)
    if isinstance(request.manifests, Files):
        arguments[PATHS_ARGUMENT] = json.dumps(request.manifests.paths)
        if request.manifests.variables:
            arguments[VARIABLES_ARGUMENT] = json.dumps(request.manifests.variables)
        arguments |= request.manifests.removals
    its_versions = zip(others, then, strict=True)
    arguments |= {version_argument(each): str(its) for each, its in its_versions if its is not None}
    if request.command == AUDIT_COMMAND:
        ledger.ensure(OBSERVED_CONFIGS)
        arguments[EARLIER_CONFIGS] = str(ledger.latest_version(OBSERVED_CONFIGS))
        if settings.audit.usage if request.usage is None else request.usage:
            arguments[USAGE_ARGUMENT] = "true"
    requester, scope = request.requested_by or os_user(), request.scope
    if request.command in PROVISIONING:
        scope = replace(scope, barred=barred(settings.owners, requester))
    row = {
        "run_id": run_id,
        "state": RunState.PLANNING.value,
        "started_at": datetime.now(UTC),
        "finished_at": None,
        "observed_at": None,
        "manifest_version": manifest_version,
        "counts": None,
        "exit_code": None,
        "versions": versions(ledger.spark),
        "spark_app_id": spark_app_id(ledger.spark),
        "start_id": secrets.token_hex(8),
        "principal": principal_of(selected),
        "requested_by": requester,
        "arguments": arguments,
        "scope": scope.to_json(),
        "settings_digest": _digest(settings, request.command),
        "epoch": 1,
        "shard": shard_of(run_id),
    }
    given = request.run_id is not None
    run = Run(
        run_id=run_id,
        ledger=ledger,
        settings=settings,
        row=row,
        found=None,
        id_given=given,
        in_runs=False,
        unloaded=request.unloaded,
    )
    if given:
        run.keep_row()
        run.require_ownership()
    return run


def _resume(ledger: Ledger, settings: Settings, request: Request, row: Row) -> Run:
    run_id, state = row["run_id"], RunState(row["state"])
    if state is RunState.ABANDONED:
        raise UsageError(f"run {run_id} was abandoned; start a new one")
    arguments = {name: value for name, value in (row["arguments"] or {}).items() if name != "command"}
    began_as = (row["arguments"] or {}).get("command")
    alike = (AUDIT_COMMAND,) if request.command == AUDIT_COMMAND else PROVISIONING
    if began_as not in alike:
        began, now = (NAMES.get(str(each), each) for each in (began_as, request.command))
        raise UsageError(f"run {run_id} was started by {began}, not {now}: give another run id")
    asked = request.bearing()
    if request.command == "apply":
        # Its plan says the rest.
        asked = {CLUSTERS_ARGUMENT: asked[CLUSTERS_ARGUMENT]} if request.scope.clusters else {}
    for name, value in asked.items():
        if arguments.get(name, "") != value:
            default = _WITHOUT.get(name, "none")
            raise UsageError(
                f"run {run_id} started with {name}: {arguments.get(name) or default}, not {value or default}; "
                "the same id needs the same arguments"
            )
    if request.command != "apply":
        _require_same_scope(row, request.scope)
        _require_same_variables(row, request)
    if request.usage is not None and request.usage != (USAGE_ARGUMENT in arguments):
        began = "with" if USAGE_ARGUMENT in arguments else "without"
        raise UsageError(f"run {run_id} started {began} usage; the same id needs the same arguments")
    if row["settings_digest"] != _digest(settings, request.command):
        raise UsageError(
            f"{settings.path}: the settings changed since run {run_id} started: restore them, or start a new run"
        )
    if request.command == "plan" and state is RunState.APPLYING:
        if not _lacks_a_plan(ledger, run_id):
            raise UsageError(f"run {run_id} is being applied: `apply` or `provision` with --run-id {run_id} resumes it")
        # A plan takes no lease: the run's other driver would send more, without a row for it.
        if held := lease_rows.of_live(ledger, run_id):
            raise UsageError(f"{lease_rows.holders(held)}: start the plan again when it has ended")
    if request.command != AUDIT_COMMAND and state in (RunState.PLANNING, RunState.PLANNED):
        # Also if `plan` would observe clusters again: the plan's age counts from the first start.
        require_fresh(run_id, row["started_at"], settings)
    if request.command == "apply" and state is RunState.PLANNING and row["observed_at"] is None:
        raise UsageError(f"run {run_id} has no complete plan yet: start `plan` again with --run-id {run_id}")
    run = Run(run_id=run_id, ledger=ledger, settings=settings, row=row.asDict(), found=state, unloaded=request.unloaded)
    if state is RunState.FINISHED or (request.command == "plan" and state is RunState.PLANNED):
        return run
    return with_next_epoch(run)


def _require_same_scope(row: Row, asked: Scope) -> None:
    """Raise UsageError if a run started with another scope. Clusters and kinds are compared as arguments."""
    began, now = Scope.from_json(row["scope"]).asked, asked.asked
    if began != now:
        raise UsageError(
            f"run {row['run_id']} started with scope: {began}, not {now}; the same id needs the same arguments"
        )


def _require_same_variables(row: Row, request: Request) -> None:
    """Raise UsageError if a run's files got another value for a variable: `apply` reads them with the first one."""
    then = json.loads((row["arguments"] or {}).get(VARIABLES_ARGUMENT, "{}"))
    now = request.manifests.variables if isinstance(request.manifests, Files) else {}
    for name, value in now.items():
        if then.get(name, value) != value:
            raise UsageError(
                f"run {row['run_id']} started with --var {name}={then[name]}, not {value}; the same id needs the same "
                "arguments"
            )


def _lacks_a_plan(ledger: Ledger, run_id: str) -> bool:
    return not all(is_planned(ledger.read(PLANS).where(F.col("run_id") == run_id)).values())


def _digest(settings: Settings, command: str) -> str:
    return settings.audit_digest() if command == AUDIT_COMMAND else settings.digest()


def require_fresh(run_id: str, started_at: datetime, settings: Settings) -> None:
    """Raise GuardStopped if a plan is older than `guards.max_plan_age`: it is refused as a whole.

    While a plan is being applied, only its open actions are refused: see `plan.intent.expired`.
    """
    most = settings.guards.max_plan_age
    # PySpark returns naive timestamps in this process's own time zone.
    age = (datetime.now(UTC) - started_at.astimezone(UTC)).total_seconds()
    if age > most:
        raise GuardStopped(
            f"the plan of run {run_id} is {age:.0f} s old and guards.max_plan_age is {most:g}: nothing was sent; "
            "plan again"
        )


def with_next_epoch(run: Run) -> Run:
    """Return an open run under a new epoch, so that Delta ignores what an earlier start appends from now on.

    Only after that is the run's state read. A run that has ended meanwhile is returned as it ended: its digest covers
    the epoch. Raises UsageError if it was abandoned.
    """
    audited = (DRIFT, USAGE) if USAGE_ARGUMENT in run.arguments else (DRIFT,)
    tables = audited if run.arguments.get("command") == AUDIT_COMMAND else (PLANS, AUDIT)
    run.ledger.ensure(*tables, SENT_BATCHES)
    still_open = ", ".join(sql_value(each.value) for each in OPEN_STATES)
    before = f"{row_of(run.run_id)} AND epoch = {run.epoch} AND state IN ({still_open})"
    own = {"epoch": run.epoch + 1, "spark_app_id": spark_app_id(run.spark), "start_id": secrets.token_hex(8)}
    if run.ledger.update(RUNS, before, {name: sql_value(value) for name, value in own.items()}) == 0:
        now = find_run(run.ledger, run.run_id)
        if now is not None and now["state"] == RunState.FINISHED:
            return replace(run, row=now.asDict(), found=RunState.FINISHED)
    ours = replace(run, row={**run.row, **own})
    for table in tables:
        run.ledger.append(table, run.ledger.rows(table, []), app_id=run.run_id, version=ours.epoch * EPOCH_STEP)
    row = ours.require_ownership().asDict()
    return replace(ours, row=row, found=RunState(row["state"]))
