"""Promises that hold after every step of a walk, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.properties.walks.cluster import ANOTHER, NOTHING_IN_PROGRESS, Cluster
from tests.properties.walks.estate import CLUSTER_OF, MANAGED, is_valid
from tests.properties.walks.ledger import MemoryLedger
from tests.properties.walks.world import World
from topicledger import kafka
from topicledger.config.settings import Settings
from topicledger.kafka.reassignments import Partition as Key
from topicledger.kafka.reassignments import Replicas
from topicledger.ledger.allowed import read_allowed
from topicledger.model import Outcome, Phase, PhaseResult, Refusal, ReplicaAction, RunState, Target
from topicledger.model.moves import parse_assignments
from topicledger.resources.acls.acl import Acl
from topicledger.schemas import ACLS, APPROVALS, MANIFESTS, PLANS, RUNS, SENT_BATCHES

ATTEMPTS = 3
"""Answers without an outcome in a row that a run waits for."""
_AFTER_SILENCE = 2
"""Those it waits for once its cluster has given several about other resources."""
_NO_OUTCOME = frozenset({kafka.UNKNOWN_SERVER_ERROR, kafka.REQUEST_TIMED_OUT, kafka.NOT_CONTROLLER})

_Action = tuple[str, str, str, str]
"""Run, cluster, action, resource."""


class Checks:
    """Watches each request and each row; raises Broken."""

    def __init__(self, world: World, ledger: MemoryLedger, settings: Settings) -> None:
        self._world, self._ledger, self.settings = world, ledger, settings
        self._marked_before: set[tuple[str, str, int]] = set()
        self._is_too_old = False
        self.run_id = ""
        self.carried_out: set[_Action] = set()
        """Actions of which anything was done."""
        self.cancelled: set[_Action] = set()
        """Those of which a move was cancelled."""
        self.cancel_refused: set[tuple[str, Key]] = set()
        """By cluster, partitions whose cancel was refused last."""
        self.ended_by_cancel: set[_Action] = set()
        """Those with a row CANCELLED."""
        self.touched: set[str] = set()
        """Resources that anybody else did something to."""
        self.of_others: set[str] = set()
        """Those that another client changed: a request that was on its way to them adds other replicas than planned."""
        self.looked: dict[str, int] = {}
        """By table, the version that was the latest when this start looked last."""
        self.was_cursed: set[str] = set()
        """Topics that answered, or answer, -1 to everything, or about which brokers do."""
        self._sent_acls: set[_Action] = set()
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        """By cluster and topic, answers without an outcome since the last that had one."""
        self.may_be_anything = False
        """Whether something happened that refuses actions in general."""

    def starts(self, run_id: str) -> None:
        """A start of a run, or another command about it, begins."""
        self.run_id = run_id
        self.looked = {}
        self._sent_acls = set()
        self._marked_before = self._marked()
        oldest = datetime.now(UTC) - timedelta(seconds=self.settings.guards.max_plan_age)
        self._is_too_old = any(row["planned_at"] < oldest for row in self._plans(run_id))

    @contextmanager
    def of_another_run(self) -> Iterator[None]:
        """A context in which another run is on."""
        own = self.run_id, self.looked, self._marked_before, self._is_too_old, self._sent_acls
        try:
            yield
        finally:
            self.run_id, self.looked, self._marked_before, self._is_too_old, self._sent_acls = own

    # -- requests

    def sends(self, cluster: Cluster, targets: Sequence[Target]) -> None:
        """Planned actions are about to be sent."""
        self.changes(cluster)
        for target in targets:
            self._require_sendable(cluster, target)
            if target.action == "acl_delete":
                self._require_undeclared(cluster, target)
            elif target.action == "acl_add":
                self._require_denies(cluster, target)
        if cluster.open_to_all and targets[0].resource_type == "acl":
            self._require_warned(cluster, targets)

    def changes(self, cluster: Cluster) -> None:
        """Anything of a cluster is about to be changed."""
        who = self._world.holder(cluster.name)
        self._world.require(who == self.run_id, f"{self.run_id} changes {cluster.name}, whose lease {who} has")

    def moves(self, cluster: Cluster, targets: Mapping[Key, Replicas | None]) -> None:
        """Partitions are about to be moved, or moves cancelled (None)."""
        self.changes(cluster)
        require = self._world.require
        for key, brokers in targets.items():
            plan = self._planned(cluster, ReplicaAction.REASSIGN.value, key[0])
            require(plan is not None, f"{key} is moved or cancelled, and the run has no plan for it")
            topic, part = cluster.topics.get(key[0]), cluster.partition(key)
            if plan is None or topic is None or part is None:
                continue
            before, after = (parse_assignments(plan[name]["assignments"]) for name in ("before", "after"))
            under_way = part.under_way
            if brokers is None:
                # Two of our runs may have begun the same.
                alike = under_way is not None and under_way.by != ANOTHER and under_way.target == after[key[1]]
                ours = under_way is None or under_way.by == self.run_id or alike
                require(ours, f"{key}: a move of {under_way and under_way.by} is cancelled")
                require(topic.uid == plan["topic_id"], f"{key}: cancelled, and the topic was recreated")
                continue
            self._require_sendable(cluster, _target(plan))
            require(topic.uid == plan["topic_id"], f"{key} is moved, and the topic was recreated")
            require(brokers == after[key[1]], f"{key} is moved to {brokers}, which isn't planned")
            theirs = under_way is not None and under_way.by != self.run_id and under_way.target != brokers
            require(not theirs, f"{key}: another client's move to {under_way and under_way.target} is overwritten")
            known = {frozenset(before[key[1]]), frozenset(brokers), frozenset({*before[key[1]], *brokers})}
            require(
                frozenset(part.replicas) in known, f"{key} is moved from {part.replicas}, which the plan didn't see"
            )

    def cancel_answered(self, cluster: Cluster, key: Key, code: int) -> None:
        """A cancel was answered."""
        part = cluster.partition(key)
        # A cancel may be carried out although its answer is an error.
        if code in (kafka.NONE, NOTHING_IN_PROGRESS) or part is None or part.under_way is None:
            self.cancel_refused.discard((cluster.name, key))
        else:
            self.cancel_refused.add((cluster.name, key))

    def cancels(self, cluster: Cluster, key: Key) -> None:
        """A move was cancelled, whether or not the run gets to know it."""
        self.cancelled.add((self.run_id, cluster.name, ReplicaAction.REASSIGN.value, key[0]))
        self.cancel_refused.discard((cluster.name, key))

    def answered(self, cluster: Cluster, target: Target) -> None:
        """A planned action was carried out."""
        self.carried_out.add((self.run_id, cluster.name, target.action, target.resource))

    def was_carried_out(self, cluster: Cluster, target: Target) -> bool:
        """Whether this run's action on a resource was carried out before."""
        return (self.run_id, cluster.name, target.action, target.resource) in self.carried_out

    def has_outcome(self, cluster: Cluster, topic: str, code: int) -> None:
        """A request about a topic was answered: after several answers without an outcome in a row, the topic fails.

        After as many about anything of its cluster, fewer are enough.
        """
        own, any_of_it = (cluster.name, topic), (cluster.name, "")
        for key in (own, any_of_it):
            self._in_a_row[key] = self._in_a_row[key] + 1 if code in _NO_OUTCOME else 0
        enough = _AFTER_SILENCE if self._in_a_row[any_of_it] >= ATTEMPTS + _AFTER_SILENCE else ATTEMPTS
        if self._in_a_row[own] >= enough:
            self.touched.add(topic)

    def _require_sendable(self, cluster: Cluster, target: Target) -> None:
        require, name = self._world.require, target.resource
        run = self.row_of(self.run_id)
        require(run["state"] == RunState.APPLYING, f"{name} is sent, and the run is {run['state']}")
        batch = (cluster.name, target.action, target.batch)
        require(batch in self._marked(), f"{name} is sent, its batch isn't marked")
        require(not self._is_too_old or batch in self._marked_before, f"{name} is sent, and its plan is too old")
        sent_before = self.was_carried_out(cluster, target)
        if name in CLUSTER_OF and not sent_before:
            since = self._versions(MANIFESTS.name)
            declared = any(name in {row["topic"] for row in rows} for rows in since)
            require(declared, f"{name} is sent, and the manifests don't ask for it")
        approvals = {row["by"] for row in self._ledger.rows_of(APPROVALS) if row["run_id"] == self.run_id}
        guards = self.settings.guards
        require(len(approvals) >= guards.approvals, f"{name} is sent, and the plan isn't approved")
        planned = self._planned(cluster, target.action, name) or {}
        allowed = [row["allows"] or {} for row in self._ledger.rows_of(APPROVALS) if row["run_id"] == self.run_id]
        if guards_of_it := planned.get("guards"):
            allows = any(_allows(each, guards_of_it) for each in allowed)
            require(allows, f"{name} is sent, a guard stopped it, and no approval allows it")
            self._world.reached["allowed and sent"] += 1
        removed = [row for row in self._plans(self.run_id) if row["action"] == "acl_delete" and not row["guards"]]
        require(len(removed) <= guards.most("max_acl_deletes"), f"{len(removed)} ACLs are removed, which a guard stops")

    def _marked(self) -> set[tuple[str, str, int]]:
        """Batches of the run that may have been sent."""
        rows = self._ledger.rows_of(SENT_BATCHES)
        return {(row["cluster"], row["action"], row["batch"]) for row in rows if row["run_id"] == self.run_id}

    def _versions(self, table: str) -> Sequence[Sequence[Mapping[str, object]]]:
        """Versions of a table since this start read it last, at the latest since its run was planned."""
        versions = self._ledger.versions(table)
        run = self.row_of(self.run_id)
        planned = (
            run["manifest_version"] if table == MANIFESTS.name else (run["arguments"] or {}).get(f"{table}_version")
        )
        since = self.looked.get(table, int(planned) if planned is not None else len(versions) - 1)
        return versions[since:]

    def _require_undeclared(self, cluster: Cluster, target: Target) -> None:
        """A right that a row asks for stays, and one that a refused row may mean."""
        acl = Acl.of(target.before)
        name = f"the ACL {' '.join(acl)}"
        self._world.require(acl.principal == MANAGED, f"{name} is deleted, and isn't managed")
        version = (self.row_of(self.run_id)["arguments"] or {}).get("acls_version")
        planned = self._ledger.versions(ACLS.name)[int(version)] if version is not None else ()
        known = {*map(Acl.of, planned), *cluster.acls}
        reasons = [_why_it_stays(acl, [Acl.of(row) for row in rows], known) for rows in self._versions(ACLS.name)]
        self._world.require(None in reasons, f"{name} is deleted, and {reasons[-1]}")

    def _require_denies(self, cluster: Cluster, target: Target) -> None:
        """An ALLOW is added only if the declared DENYs on its resource exist."""
        acl = Acl.of(target.after)
        if acl.permission == "ALLOW":
            versions = ([Acl.of(row) for row in rows] for rows in self._versions(ACLS.name))
            lacking = [[row for row in rows if _denies(row, acl) and row not in cluster.acls] for rows in versions]
            self._world.require([] in lacking, f"the ACL {' '.join(acl)} is added without {lacking[-1:]}")

    def _require_warned(self, cluster: Cluster, targets: Sequence[Target]) -> None:
        """First and last ACLs on a resource are those of which the plan warned; the cluster's own are never sent.

        A request that was sent in this start may be repeated.
        """
        adds = targets[0].action == "acl_add"
        sent = {each.resource: Acl.of(each.after if adds else each.before) for each in targets}
        others = cluster.acls if adds else cluster.acls.difference(sent.values())
        for name, acl in sent.items():
            key = (self.run_id, cluster.name, targets[0].action, name)
            again = key in self._sent_acls
            self._sent_acls.add(key)
            if again or (acl in cluster.acls) == adds or cluster.is_covered(acl, others):
                continue
            plan = self._planned(cluster, targets[0].action, name) or {}
            warnings = {each["policy"] for each in plan.get("violations") or ()}  # type: ignore[attr-defined]
            warned = acl.resource_type != "CLUSTER" and ("first_acl" if adds else "last_acl") in warnings
            which = "first" if adds else "last"
            self._world.require(warned, f"{name} is the {which} ACL on its resource, and the plan didn't warn of it")

    # -- rows

    def rows(self, run_id: str, ended: Iterable[PhaseResult]) -> None:
        """Outcomes are about to be written down."""
        world = self._world
        for row in ended:
            world.tell("  ", row.cluster, row.phase, row.action, row.resource, row.outcome, row.error or "",
                       row.error_message or "")  # fmt: skip
            world.reached[f"{row.phase} {row.action} {row.outcome} {row.error or ''}".strip()] += 1
            if row.phase is Phase.APPLY and not world.dead:
                done = (run_id, row.cluster, row.action, row.resource) in self.carried_out
                world.require(
                    not done or row.outcome is not Outcome.REFUSED, f"{row.resource} is refused, and was done"
                )
                self._check_row(run_id, row.cluster, row.action, row.resource, str(row.outcome), row.error)

    def decided(self, run_id: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Rows of `audit` that the product made of DataFrames."""
        for row in rows:
            if row["run_id"] == run_id and row["phase"] == Phase.APPLY and row["outcome"] == Outcome.REFUSED:
                self._world.tell(
                    "  ", *(row[name] for name in ("cluster", "action", "resource", "error", "error_message"))
                )
                self._world.reached[f"run {row['action']} refused {row['error']}"] += 1
                self._check_row(
                    run_id, *(str(row[name]) for name in ("cluster", "action", "resource", "outcome", "error"))
                )
                key = (run_id, str(row["cluster"]), str(row["action"]), str(row["resource"]))
                unsent = key not in self.carried_out
                said = "not sent" in str(row["error_message"])
                self._world.require(unsent or not said, f"{row['resource']}: a row says it was not sent, and it was")
                # Another client, or a cancel before a crash, may have undone it.
                undone = row["resource"] in self.touched or key in self.cancelled
                self._world.require(unsent or undone, f"{row['resource']} is refused, and was done at least in part")

    def _check_row(self, run_id: str, name: str, action: str, resource: str, outcome: str, error: str | None) -> None:
        if action != ReplicaAction.REASSIGN or outcome == Outcome.OK:
            return
        cluster = self._world.clusters[name]
        plan = self._planned(cluster, action, resource, run_id)
        topic = cluster.topics.get(resource)
        same = plan is not None and topic is not None and topic.uid == plan["topic_id"]
        under_way = [key for key in cluster.moving(run_id) if key[0] == resource] if same else []
        self._world.require(not under_way, f"{resource} is {outcome}, {error}, and {under_way} is being moved")
        refused = [key for of, key in self.cancel_refused if of == name and key[0] == resource]
        # One that was done before it could be cancelled counts as moved.
        done = parse_assignments(plan["after"]["assignments"]) if same and plan is not None else {}
        live = {number: part.replicas for number, part in topic.partitions.items()} if topic else {}
        uncancelled = [key for key in refused if key[1] in done and live.get(key[1]) != done[key[1]]]
        if error == Refusal.CANCELLED:
            # Another client may have cancelled it, too.
            known = resource not in self.of_others
            self._world.require(
                not (known and uncancelled), f"{resource} is CANCELLED, and cancelling {uncancelled} was refused"
            )
            self.ended_by_cancel.add((run_id, name, action, resource))

    # -- states

    def check(self) -> None:
        """After each step: a throttle outlives the moves that it was set for."""
        for cluster in self._world.clusters.values():
            for key, move in cluster.moving().items():
                if move.by != ANOTHER and move.throttled:
                    kept = cluster.is_throttled(key, move.adding)
                    who = "another run" if self.run_id != move.by else "its run"
                    self._world.require(kept, f"{cluster.name}: {key} is being moved, and {who} took its throttle away")
                if move.by != ANOTHER:
                    self.carried_out.add((move.by, cluster.name, ReplicaAction.REASSIGN.value, key[0]))
                    throttled = move.throttled or not move.adding or key[0] in self.of_others
                    self._world.require(throttled, f"{cluster.name}: {key} is being moved without a throttle")

    # -- the end

    def _ends(self, run_id: str, plan: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
        """The rows that end an action; an action that an approval let through has a guard's row before them."""
        key = ("cluster", "action", "resource")
        rows = [row for row in self._ledger.audit() if row["run_id"] == run_id]
        rows = [row for row in rows if all(row[name] == plan[name] for name in key)]
        ends = [row for row in rows if row["phase"] == Phase.APPLY or row["outcome"] != Outcome.OK]
        return [row for row in ends if row["phase"] not in (Phase.VERIFY, Phase.GUARD if plan["guards"] else None)]

    def finished(self, run_id: str) -> None:
        """A run is finished: each action has one row that ends it, and one's trouble was nobody else's."""
        require = self._world.require
        for plan in self._plans(run_id):
            ends = self._ends(run_id, plan)
            name = str(plan["resource"])
            require(len(ends) == 1, f"{run_id}: {name} has {len(ends)} rows that end it: {ends}")
            cursed = name in self.was_cursed
            if not cursed and name not in self.touched and not self.may_be_anything and name in CLUSTER_OF:
                end = ends[0]
                cancelled = (run_id, plan["cluster"], plan["action"], name) in self.ended_by_cancel | self.cancelled
                # As many answers in a row were lost as the run waits for.
                good = end["outcome"] in (Outcome.OK, Outcome.SKIPPED) or cancelled or end["error"] == "NO_ANSWER"
                words = f"{end['phase']}, {end['outcome']}, {end['error']}, {end['error_message']}"
                require(good, f"{run_id}: nothing happened to {name}, and it ended as {words}")

    # -- tables

    def row_of(self, run_id: str) -> Mapping[str, object]:
        """A run's row."""
        return next(row for row in self._ledger.rows_of(RUNS) if row["run_id"] == run_id)

    def _plans(self, run_id: str) -> list[Mapping[str, object]]:
        """Rows of actions that may be sent: nothing ended them, or an approval let them through although guards stopped
        them."""
        rows = [row for row in self._ledger.rows_of(PLANS) if row["run_id"] == run_id and row["action"] is not None]
        runs = [row for row in self._ledger.rows_of(RUNS) if row["run_id"] == run_id]
        allowed = read_allowed((runs[0]["arguments"] or {}).get("allowed")) if runs else {}

        def let(row: Mapping[str, Any]) -> bool:
            within = allowed.get(row["cluster"], ())
            return bool(row["guards"]) and any(_allows(each, row["guards"]) for each in within)

        return [row for row in rows if row["phase"] is None or let(row)]

    def _planned(
        self, cluster: Cluster, action: str, resource: str, run_id: str | None = None
    ) -> Mapping[str, object] | None:
        for row in self._plans(run_id or self.run_id):
            if (row["cluster"], row["action"], row["resource"]) == (cluster.name, action, resource):
                return row
        return None


def _why_it_stays(acl: Acl, rows: Sequence[Acl], known: Collection[Acl]) -> str | None:
    """Return why rows of `acls` keep an ACL; None if they don't. `known`: ACLs that were planned from, or exist."""
    if acl in rows:
        return "it is declared"
    about = ("principal", "resource_type", "resource_name")
    for row in rows:
        if any(getattr(row, name) != getattr(acl, name) for name in about):
            continue
        if not is_valid(row):
            return f"a refused row may mean it: {' '.join(row)}"
        if row not in known and (row.permission, row.operation) == (acl.permission, acl.operation):
            return f"what is declared since the plan would replace it: {' '.join(row)}"
    return None


def _denies(row: Acl, acl: Acl) -> bool:
    about = ("principal", "resource_type", "resource_name", "operation")
    hosts = "*" in (row.host, acl.host) or row.host == acl.host or not is_valid(row)
    return row.permission == "DENY" and hosts and all(getattr(row, name) == getattr(acl, name) for name in about)


def _allows(numbers: Mapping[str, int], guards: Any) -> bool:
    return all(numbers.get(name, 0) >= most for name, most in guards.items())


def _target(plan: Mapping[str, object]) -> Target:
    return Target(resource=str(plan["resource"]), action=str(plan["action"]), batch=int(str(plan["batch"])))
