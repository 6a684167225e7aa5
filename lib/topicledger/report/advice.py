"""Advice for each error and each kind of drift, one sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from topicledger.config.guards import OF_KINDS
from topicledger.config.settings import ChangeSettings, Settings
from topicledger.model import Refusal
from topicledger.plan.allowing import OF_ACTIONS
from topicledger.resources.registry import KINDS
from topicledger.text import listed, show

_MANIFEST = "Correct the row, and load it again."
_RULE = "Change the declaration so that it complies with the policy, or change the policy in the settings."

OF_ERRORS: Mapping[str, str] = {
    Refusal.UNKNOWN_CLUSTER: "Add the cluster to the settings, or correct the row of manifests.",
    Refusal.INVALID_TOPIC: _MANIFEST,
    Refusal.INVALID_STATE: _MANIFEST,
    Refusal.INVALID_NUM_PARTITIONS: _MANIFEST,
    Refusal.INVALID_REPLICATION_FACTOR: "Declare a replication factor of at most the number of live brokers.",
    Refusal.INVALID_ASSIGNMENTS: _MANIFEST,
    Refusal.ASSIGNMENTS_AND_COUNTS: "Declare either assignments, or partitions and replication factor.",
    Refusal.INVALID_CONFIGS: _MANIFEST,
    Refusal.INVALID_PLACEMENT: _MANIFEST,
    Refusal.INVALID_REPLACES: "Remove the row of the topic that is replaced, or leave out `replaces`.",
    Refusal.NOT_YOURS: "Ask the topic's owner to declare it, or change its owner in [owners].",
    Refusal.DUPLICATE_MANIFEST: "Keep one row of manifests for the topic.",
    Refusal.CLUSTER_UNREACHABLE: "Make the cluster reachable, then start the run again with the same run id.",
    Refusal.NOT_PERMITTED: "Allow the principal to describe and change the topic, then run again.",
    Refusal.NAME_COLLISION: "Choose a name that differs in more than '.' and '_'.",
    Refusal.POLICY_VIOLATION: _RULE,
    Refusal.UNJUDGEABLE: "Declare the value that the policy checks, or do as the message says.",
    Refusal.BUDGET_NOT_FREED: "Find out why that delete failed, then run again.",
    Refusal.CLUSTER_ID_MISMATCH: "Check that the settings name the right cluster: no change was sent to this one.",
    Refusal.SAME_CLUSTER: "Correct the address of one of the two clusters, or remove it from the settings.",
    **{guard.error: guard.advice for guard in OF_ACTIONS},
    Refusal.CHANGED_SINCE_PLAN: "See the message for what changed since the plan; then `plan` and `apply` again.",
    Refusal.PLAN_EXPIRED: "Plan and apply again.",
    Refusal.BELOW_MIN_INSYNC: "Declare a replication factor of min.insync.replicas or more, or lower that first.",
    Refusal.FEWER_PARTITIONS: "Declare as many partitions as there are: Kafka can't remove partitions.",
    Refusal.REASSIGNMENT_IN_PROGRESS: "Wait until the replicas have moved, then run again.",
    Refusal.CANCELLED: "See the message for where the replicas are now; plan again to move them after all.",
    Refusal.NO_ANSWER: "The cluster answers about others: see the broker's log, then run again.",
    Refusal.TOO_FEW_BROKERS: "Declare fewer replicas, or add brokers that its placement allows.",
    Refusal.TOO_FEW_RACKS: "Declare fewer replicas or another placement, or add brokers in other racks.",
    Refusal.BROKERS_UNAVAILABLE: "Restore brokers as the message says, or declare others; then run again.",
    Refusal.NO_ROOM: "Free disk space on the brokers that the message names, or declare others.",
    Refusal.BROKER_TOO_OLD: "Upgrade the brokers to the version that the message names, or omit the change.",
    Refusal.NOT_REVERTIBLE: "Declare what the topic should be, as the message says: the tables lack the earlier state.",
    Refusal.RECREATED: "Check the new topic, then plan again.",
    Refusal.COUNTS_REQUIRED: "Declare partitions and replication factor, as the message says.",
    Refusal.DIFFERS_FROM_PLAN: "Compare the topic with its plan; another client may have created it.",
    **{error: text for kind in KINDS for error, text in kind.words.advice.items()},
    "INVALID_PARTITIONS": "Declare a different number of partitions.",
    "INVALID_REPLICA_ASSIGNMENT": "Assign replicas to existing brokers, the same number for each partition.",
    "INVALID_CONFIG": "Correct the config that the message names.",
    "INVALID_TOPIC_EXCEPTION": "Choose a name that the cluster accepts.",
    "INVALID_REQUEST": "Check the broker's version and the manifest: the broker doesn't support this.",
    "TOPIC_ALREADY_EXISTS": "The topic exists: plan again, with Describe on it.",
    "UNKNOWN_TOPIC_OR_PARTITION": "Plan again: the topic no longer exists.",
    "UNKNOWN_TOPIC_ID": "Plan again: the topic no longer exists, or was recreated.",
    "TOPIC_AUTHORIZATION_FAILED": "Grant what the feature needs on topics (docs/permissions.md), then run again.",
    "CLUSTER_AUTHORIZATION_FAILED": (
        "Grant what the feature needs on the cluster (docs/permissions.md), then run again."
    ),
    "TOPIC_DELETION_DISABLED": "Topic deletion is disabled: set delete.topic.enable=true on the brokers first.",
    "UNKNOWN_SERVER_ERROR": "See the broker's log: it failed on this topic repeatedly. Then run again.",
    "REQUEST_TIMED_OUT": "Start the run again with the same run id.",
}
"""Error name, Kafka's or ours -> advice."""

OF_DRIFT: Mapping[str, str] = {
    "missing": "Run `provision`: it creates the topic.",
    "unmanaged": "Declare the topic (`export --cluster NAME` writes its manifest), or declare it absent.",
    "should_be_absent": "Run `provision`: it deletes the topic, within guards.max_deletes.",
    "partitions_fewer": (
        'Run `provision` with changes.partitions = "grow", for compacted topics within guards.max_losses, or declare '
        "as many as there are."
    ),
    "partitions_more": "Declare as many as there are: Kafka can't remove partitions.",
    "replication_factor": (
        'Run `provision` with changes.replicas = "on", within guards.max_moves, or declare the live factor.'
    ),
    "assignment": (
        'Run `provision` with changes.replicas = "on", within guards.max_moves, or declare the live assignment.'
    ),
    "config_differs": (
        'Run `provision` with changes.configs = "declared", within guards.max_losses and guards.max_disruptions, or '
        "declare the live value."
    ),
    "config_undeclared": (
        'Declare the config, or run `provision` with changes.configs = "exact", which resets it within '
        "guards.max_losses and guards.max_disruptions."
    ),
    "broker_default_changed": "Check that the broker's new default suits the topics that leave it to the broker.",
    "recreated": "Find out who recreated the topic: earlier records are lost.",
    "preferred_leader": 'Run `provision` with changes.replicas = "on", or find out why that broker does not lead.',
    "racks_shared": (
        'Run `provision` with changes.replicas = "on": it moves a replica to another rack, within guards.max_moves.'
    ),
    "broker_not_allowed": (
        'Run `provision` with changes.replicas = "on", within guards.max_moves, or declare another placement.'
    ),
    "replica_skew": (
        'Declare the placement spread, and run `provision` with changes.replicas = "on", within guards.max_moves.'
    ),
    "moves_under_way": "Wait until they are done; `kafka-reassign-partitions.sh --list` shows them.",
    "owner_missing": "Declare an owner, one of audit.owners if that is set, and load the manifest.",
    **{found.value: text for kind in KINDS for found, text in kind.drift.advice.items()},
    "not_permitted": "Its state is unknown: grant the principal Describe on the topic, or see the brokers' logs.",
}
"""Kind of drift -> advice."""

OPEN = "Start the run again with the same run id: it continues where it stopped."
PENDING = "Acknowledged, but not yet visible when the run verified it: the next run observes it again."
PLANNED = "Review the plan, then apply it with the same run id."
UNKNOWN = "See the message."


def of_error(error: str | None) -> str:
    """Advice for topics that failed or were refused with `error`."""
    return OF_ERRORS.get(error or "", UNKNOWN)


def of_drift(kind: str, settings: Settings | None = None, clusters: Iterable[str] = ()) -> str:
    """Advice for findings of `kind`, with the switches and guards of the settings that stand in its way.

    `clusters`: names of the clusters of the findings; None for `settings`: they are unknown.
    """
    found, names = OF_DRIFT.get(kind, UNKNOWN), sorted(clusters)
    if settings is None:
        return found
    if kind in _IF_ON:
        switch, value, more = _IF_ON[kind]
        changes = (settings.changes.get(name, ChangeSettings()) for name in names)
        found = f"{found} {more}" if any(getattr(each, switch) == value for each in changes) else found
    return " ".join([found, *_in_the_way(found, settings, names)])


_SWITCH = re.compile(r'changes\.(\w+) = "(\w+)"')
_GUARD = re.compile(r"guards\.(max_\w+)")
_IF_ON = {
    "unmanaged": (
        "undeclared",
        "delete",
        "`provision` deletes it within guards.max_deletes if this ledger created it and its row was removed.",
    )
}
"""Kind of drift -> a switch, a value, and the advice to add if a cluster has that value."""
_MORE = {"declared": ("declared", "exact")}
"""Value of a switch -> the values that do the same, or more."""


def _in_the_way(advice: str, settings: Settings, clusters: Sequence[str]) -> Iterator[str]:
    """Yield the switches that the advice names and that are off, and the guards with their limits."""
    for key, value in _SWITCH.findall(advice):
        enough, by_value = _MORE.get(value, (value,)), dict[str, list[str]]()
        for name in clusters:
            if (now := getattr(settings.changes.get(name, ChangeSettings()), key)) not in enough:
                by_value.setdefault(now, []).append(name)
        for now, names in by_value.items():
            yield f'Now it is "{now}" on {listed(list(map(show, names)))}.'
    for name in dict.fromkeys(_GUARD.findall(advice)):
        guards = settings.guards
        most = guards.most(name) if name in OF_KINDS else getattr(guards, name)
        if most is not None:
            allow = f"`runs approve --allow {name.removeprefix('max_')}=N` allows more for one plan"
            yield f"guards.{name} is {most}: {allow}."
