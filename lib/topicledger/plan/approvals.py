"""Approvals: the people who must approve a plan before it is applied, and those who have."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from topicledger.config.guards import GuardSettings
from topicledger.config.settings import Settings
from topicledger.errors import GuardStopped, UsageError
from topicledger.ledger import digests
from topicledger.ledger.allowed import Allowed, written
from topicledger.ledger.lease_rows import of_live
from topicledger.ledger.outcomes import is_stopped
from topicledger.ledger.proof import read_recorded
from topicledger.ledger.run import ALLOWED_ARGUMENT, FILES_ARGUMENT, REPLACES_ARGUMENT, Run, require_run
from topicledger.ledger.runs import NAMES, PROVISIONING, require_fresh
from topicledger.ledger.tables import Ledger
from topicledger.ledger.who import os_user
from topicledger.model import RunState
from topicledger.plan import allowing
from topicledger.plan.allowing import LOAD, StoppedActions, approve_command
from topicledger.plan.people import person_key
from topicledger.plan.planned_files import REMOVED_ARGUMENT, is_unloaded_plan, paths_in
from topicledger.resources import registry
from topicledger.resources.topics.plan import effects
from topicledger.schemas import APPROVALS, PLANS, RUNS, SENT_BATCHES
from topicledger.text import show

SHOWN_DIGEST = 16
"""Characters of a plan's digest that people see and pass on: another plan has it once in 2**64 plans."""


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Approvals of a run's plan."""

    run_id: str
    requested_by: str
    """The requester of the run, who can't approve it."""
    plan_digest: str
    needed: int
    by: tuple[str, ...]
    """People who approved this plan, each once, in order."""
    files: Sequence[str] = ()
    """The files and folders of a plan from files: `apply` loads them."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """The largest numbers that anybody allows: those beyond `allows` let nothing through, and take nothing away."""
    allowed_by: Mapping[str, int] = field(default_factory=dict)
    """Guard -> people who allow the number of `asked`."""
    stopped: Sequence[StoppedActions] = ()
    """Actions that guards stopped; read if an approval allows some of them."""
    passing: Sequence[StoppedActions] = ()
    """Those of `stopped` that enough people allow."""

    @property
    def shown_digest(self) -> str:
        """The first characters of the plan's digest, for `--plan`."""
        return self.plan_digest[:SHOWN_DIGEST]

    @property
    def missing(self) -> int:
        """Number of people who must still approve the open actions of the plan."""
        return max(0, self.needed - len(self.by))

    def __str__(self) -> str:
        return self.in_words(())

    def in_words(self, stopped: Sequence[StoppedActions]) -> str:
        """Return the approval that is missing, with one command. `stopped`: what guards still stop of the plan."""
        people = "1 person" if self.missing == 1 else f"{self.missing} people"
        so_far = f" in addition to {', '.join(map(show, self.by))}" if self.by else ""
        command = approve_command(self.run_id, allowing.largest([self.asked, allowing.most_of(stopped)]))
        stays = "nothing is loaded and nothing is sent" if allowing.stops_load(stopped) else "it stays stopped"
        return (
            f"it needs the approval of {people}{so_far} other than {show(self.requested_by)}, who requested it: "
            f"{command}" + (f"; without --allow {stays}" if stopped else "")
        )

    @property
    def allows(self) -> Mapping[str, int]:
        """The largest numbers that enough people allow beyond guards: guard -> number per cluster."""
        return allowing.most_of(self.passing)

    @property
    def allowed_in_words(self) -> str:
        """The numbers that enough people allow, as `--allow` has them, with semicolons between separate allowances."""
        return "; ".join(map(allowing.in_words, allowing.combined((each.needs for each in self.passing), self.stopped)))

    @property
    def let_through(self) -> Allowed:
        """The numbers that let through stopped actions; none while an approval is missing."""
        return {} if self.missing else allowing.by_cluster(self.stopped, self.passing)


def read(run: Run) -> Approvals | None:
    """Return the approvals of a run's plan; None if it needs none, and none allows anything."""
    guards = run.settings.guards
    if not (guards.approvals or guards.approvals_for or _may_allow(run)):
        return None
    run.commits.settle()
    return of_run(run.ledger, guards, run.row)


def _may_allow(run: Run) -> bool:
    """Return whether approvals allow something: only a plan that an earlier start made can have any."""
    if not run.resumed or not run.ledger.exists(APPROVALS):
        return False
    allow = (F.col("run_id") == run.run_id) & F.col("allows").isNotNull()
    return not run.ledger.read(APPROVALS).where(allow).isEmpty()


def with_allowed(run: Run) -> Run:
    """Return a waiting plan with what approvals of it let through, to show it again; nothing is recorded."""
    found = read(run) if run.state is RunState.PLANNED else None
    return run if found is None else replace(run, row={**run.row, "arguments": _arguments(run, found.let_through)})


def _arguments(run: Run, allowed: Allowed) -> Mapping[str, str]:
    return {**run.arguments, ALLOWED_ARGUMENT: written(allowed)}


def take_allowed(run: Run, *, may_grow: Callable[[], bool]) -> Approvals | None:
    """Record in the run's row what approvals of its plan let through; later starts go by that. Returns `read`.

    Nothing is recorded while an approval is missing. Entries of earlier starts stay if their actions may have been
    sent; before that, the plan may have grown since they were recorded, and needs other approvals. `may_grow`: this
    start may plan more clusters, so that approvals of the plan as it is lapse before anything is sent.
    """
    found = read(run) if run.resumed else None
    if found is None:
        return None
    let = {} if may_grow() else found.let_through
    before = _may_be_sent(run) if run.may_have_sent and run.allowed else {}
    of_both = {name: allowing.combined([*let[name], *before.get(name, ())], found.stopped, name) for name in let}
    together = {**before, **of_both}
    if together != run.allowed:
        run.commit_state(run.state, arguments=_arguments(run, together))
    return found


def _may_be_sent(run: Run) -> Allowed:
    """Return what is allowed on clusters where an earlier start may have sent, or may send, what guards stopped."""
    # An earlier start that lives may mark more until it loses its lease: whoever has none by now marks nothing more.
    live = {row["cluster"] for row in of_live(run.ledger, run.run_id)}
    key = ["cluster", "action", "batch"]
    stopped = run.plans().where(is_stopped()).select(*key)
    sent = run.ledger.read(SENT_BATCHES).where(F.col("run_id") == run.run_id).select(*key)
    found = {row["cluster"] for row in stopped.join(sent, on=key, how="left_semi").distinct().collect()}
    return {name: each for name, each in run.allowed.items() if name == LOAD or name in found | live}


def needed(guards: GuardSettings, classes: Collection[str]) -> int:
    """Return the number of approvals that a plan with actions of these classes needs."""
    return max([guards.approvals, *(count for name, count in guards.approvals_for.items() if name in classes)])


def of_run(ledger: Ledger, guards: GuardSettings, row: Mapping[str, Any] | Row) -> Approvals:
    """Return the needed and given approvals of a run's plan. Approvals of an earlier plan of the run don't count.

    `row`: the run's row of `runs`. Its scope belongs to what is approved.
    """
    run_id, requested_by, plan_digest = row["run_id"], str(row["requested_by"]), digest_of(ledger, row)
    by: dict[str, str] = {}
    allowed: dict[str, Mapping[str, int]] = {}
    if ledger.exists(APPROVALS):
        own = (F.col("run_id") == run_id) & (F.col("plan_digest") == plan_digest)
        for given in ledger.read(APPROVALS).where(own).orderBy("at").collect():
            person = person_key(given["by"])
            by.setdefault(person, given["by"])
            if given["allows"]:
                allowed[person] = allowing.largest([allowed.get(person, {}), given["allows"]])
    by.pop(person_key(requested_by), None)
    allowed.pop(person_key(requested_by), None)
    asked = allowing.largest(allowed.values())
    stopped = read_stopped(ledger, row) if asked else ()
    least, people = _people(ledger, guards, run_id, stopped)
    passing = allowing.allowed_by_enough(stopped, people, allowed.values())
    return Approvals(
        run_id=run_id,
        requested_by=requested_by,
        plan_digest=plan_digest,
        needed=max([least, *(its for each, its in zip(stopped, people, strict=True) if each in passing)]),
        by=tuple(by.values()),
        files=paths_in(row["arguments"]),
        asked=asked,
        allowed_by={name: sum(each.get(name, 0) >= most for each in allowed.values()) for name, most in asked.items()},
        stopped=stopped,
        passing=passing,
    )


def digest_of(ledger: Ledger, row: Mapping[str, Any] | Row) -> str:
    """Compute the digest (SHA-256, hex) of a run's plan: of its rows, its scope, and what loading its files changes.

    `row`: the run's row of `runs`.
    """
    plans = ledger.stored(PLANS).where(F.col("run_id") == row["run_id"])
    of_rows = digests.of_run({PLANS.name: plans})[PLANS.name].sha256
    loads = ((row["arguments"] or {}).get(name) for name in (FILES_ARGUMENT, REPLACES_ARGUMENT, REMOVED_ARGUMENT))
    more = [each for each in (row["scope"], *loads) if each is not None]
    return hashlib.sha256(" ".join([of_rows, *more]).encode()).hexdigest() if more else of_rows


def read_stopped(ledger: Ledger, row: Mapping[str, Any] | Row) -> Sequence[StoppedActions]:
    """Return what guards stopped of a run's plan. `row`: the run's row of `runs`."""
    of_plan = ledger.read(PLANS).where(F.col("run_id") == row["run_id"])
    return allowing.all_stopped(of_plan, row["arguments"])


def _people(
    ledger: Ledger, guards: GuardSettings, run_id: str, stopped: Sequence[StoppedActions]
) -> tuple[int, Sequence[int]]:
    """Return how many people must approve the open actions of a plan, and how many must allow each of `stopped`."""
    least = guards.approvals
    if not guards.approvals_for:
        return least, [max(1, least)] * len(stopped)
    planned = ledger.read(PLANS).where((F.col("run_id") == run_id) & F.col("action").isNotNull())
    group = {"_cluster": F.when(is_stopped(), F.col("cluster")), "_needs": F.array_sort(F.map_entries("guards"))}
    may_be_sent = planned.where(F.col("phase").isNull() | is_stopped()).withColumns(group).transform(effects.of_plans)
    can: Mapping[str, Column] = {"losses": effects.losses(), "disruptions": effects.disruptions()}
    by_action = may_be_sent.groupBy(*group, "action").agg(
        *(F.bool_or(each.isNotNull()).alias(name) for name, each in can.items())
    )
    found: dict[tuple[str | None, str], dict[str, Collection[str]]] = {}
    for row in by_action.collect():
        key = (row["_cluster"], allowing.in_words(dict(row["_needs"] or ())))
        found.setdefault(key, {})[row["action"]] = [name for name in can if row[name]]
    least = needed(guards, classes_of(found.get((None, ""), {})))
    of_stopped = (classes_of(found.get((each.cluster, allowing.in_words(each.needs)), {})) for each in stopped)
    return least, [max(1, least, needed(guards, classes)) for classes in of_stopped]


def classes_of(found: Mapping[str, Collection[str]]) -> Collection[str]:
    """Return the classes of a plan. `found`: kind of action -> classes of the effects of its actions.

    An unknown kind belongs to every class.
    """
    classes: set[str] = set()
    for name, effects_of_kind in found.items():
        classes.update(registry.approved_as(name), effects_of_kind)
    return classes


def parse_digest(text: str) -> str:
    """Return how a plan digest begins, from what `--plan` has. Raises UsageError."""
    digest = text.strip().lower()
    if not re.fullmatch(rf"[0-9a-f]{{{SHOWN_DIGEST},64}}", digest):
        raise UsageError(f"--plan {show(text)}: write the plan digest, {SHOWN_DIGEST} characters from `runs show`")
    return digest


def is_unsent_plan(row: Mapping[str, Any] | Row) -> bool:
    """Return whether a run is a plan of which nothing was sent. `row`: of `runs`.

    It may lack clusters that could not be reached.
    """
    return row["state"] == RunState.PLANNED or (row["state"] == RunState.PLANNING and row["observed_at"] is not None)


def can_be_approved(ledger: Ledger, row: Mapping[str, Any] | Row) -> bool:
    """Return whether a run has a plan that may wait for approvals, also while it is applied. `row`: of `runs`."""
    return row["state"] == RunState.APPLYING or is_unsent_plan(row) or is_unloaded_plan(ledger, row)


def approve(
    ledger: Ledger,
    settings: Settings,
    run_id: str,
    *,
    by: str | None = None,
    note: str | None = None,
    allow: Mapping[str, int] | None = None,
    digest: str | None = None,
) -> Row:
    """Record an approval of a run's plan, unless the same person has approved it already. Return the run's row.

    `by` is the OS user by default. `allow`: guard -> number per cluster that exactly this plan may do although guards
    stopped it. `digest`: how the plan digest that the approver saw begins. Raises UsageError if the run has no plan
    that waits to be applied, if `by` is its requester, or if `allow` lets nothing through or has larger numbers than
    needed. Raises GuardStopped if the plan has another digest, or if nothing of it was applied and it is too old.
    """
    ledger.ensure(RUNS)
    row = require_run(ledger, run_id)
    command: str | None = (row["arguments"] or {}).get("command")
    if command is not None and command not in PROVISIONING:
        raise UsageError(f"run {run_id} was started by {NAMES.get(command, command)}: it has no plan to approve")
    waits = can_be_approved(ledger, row)
    if row["state"] == RunState.APPLYING:
        # The plan may have grown since: a cluster that was unreachable before has been planned.
        waits = bool(allow) or of_run(ledger, settings.guards, row).missing > 0
    if not waits:
        reason = {
            RunState.PLANNING: "has no complete plan yet: start it again with its id, then approve it",
            RunState.APPLYING: "is being applied",
            RunState.FINISHED: "is finished: there is nothing to approve; what guards stopped needs a new `plan`, its "
            "approval, then `apply`",
            RunState.ABANDONED: "was abandoned: plan again",
        }[RunState(row["state"])]
        raise UsageError(f"run {run_id} {reason}")
    if row["state"] != RunState.APPLYING:
        # While a plan is applied, only its open actions get too old, one by one.
        require_fresh(run_id, row["started_at"], settings)
    who = by if by is not None else os_user()
    if not person_key(who):
        raise UsageError("--by is empty: it must name the approver")
    if person_key(who) == person_key(row["requested_by"]):
        raise UsageError(f"{show(who)} requested run {run_id}: another person must approve it; name them with --by")
    ledger.ensure(PLANS, APPROVALS)
    found = of_run(ledger, settings.guards, row)
    if digest is not None and not found.plan_digest.startswith(digest):
        # The digest that it has now would be copied by people who haven't read the plan.
        raise GuardStopped(
            f"the plan of run {run_id} has another digest than {digest}: nothing was approved; read the plan as it is "
            f"now: runs show {run_id}"
        )
    if allow:
        allowing.require_needed(run_id, read_stopped(ledger, row), allow)
    if allow or person_key(who) not in map(person_key, found.by):
        approval = {
            "run_id": run_id,
            "plan_digest": found.plan_digest,
            "by": who.strip(),
            "at": datetime.now(UTC),
            "note": note,
            "allows": dict(allow) if allow else None,
        }
        rows = ledger.rows(APPROVALS, [approval])
        # Reading the plan takes seconds, in which another command may have started, ended or abandoned the run.
        now = require_run(ledger, run_id)
        if (now["state"], now["epoch"]) != (row["state"], row["epoch"]):
            raise UsageError(
                f"run {run_id} was started or ended while you approved it, and is {now['state']} now: nothing was "
                f"approved; see runs show {run_id}"
            )
        ledger.append(APPROVALS, rows, app_id=f"approval-{secrets.token_hex(8)}", version=1)
        _require_in_time(ledger, row)
    return row


def _require_in_time(ledger: Ledger, row: Row) -> None:
    """Raise UsageError if the run ended before it could read the approval that was just recorded.

    `row`: the run's row before that. Approvals are never removed, so its digest stays without this one.
    """
    run_id = row["run_id"]
    now = require_run(ledger, run_id)
    if now["digest"] is None or now["digest"] == row["digest"]:
        return
    recorded = ledger.read(APPROVALS).where(F.col("run_id") == run_id).count()
    if recorded > read_recorded(now["proof"] or {}, APPROVALS).rows:
        raise UsageError(
            f"run {run_id} ended while you approved it: the approval is recorded, but came too late to count. "
            f"`runs verify` will report it as rows_added: table {APPROVALS.name}"
        )
