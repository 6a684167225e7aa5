"""What to do about an error or a finding, in a sentence."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from topicledger.config.severities import DriftKind
from topicledger.model import Refusal
from topicledger.report.facts import Drift

_MANIFEST = "Correct the row of manifests and load it again."
_RULE = "Change what is declared so that it keeps the rule, or the rule in the settings."

OF_ERRORS: Mapping[str, str] = {
    Refusal.UNKNOWN_CLUSTER: "Name the cluster in the settings, or correct the row of manifests.",
    Refusal.INVALID_TOPIC: _MANIFEST,
    Refusal.INVALID_STATE: _MANIFEST,
    Refusal.INVALID_NUM_PARTITIONS: _MANIFEST,
    Refusal.INVALID_REPLICATION_FACTOR: "Declare a replication factor of at most the number of live brokers.",
    Refusal.INVALID_ASSIGNMENTS: _MANIFEST,
    Refusal.ASSIGNMENTS_AND_COUNTS: "Declare either assignments, or partitions and replication factor.",
    Refusal.INVALID_CONFIGS: _MANIFEST,
    Refusal.INVALID_PLACEMENT: _MANIFEST,
    Refusal.NOT_YOURS: "Have the topic's owner declare it, or change who owns it in [owners].",
    Refusal.DUPLICATE_MANIFEST: "Keep one row of manifests for the topic.",
    Refusal.CLUSTER_UNREACHABLE: "Bring the cluster within reach, then start the run again with the same run id.",
    Refusal.NOT_PERMITTED: "Allow the principal to describe and change the topic, then run again.",
    Refusal.NAME_COLLISION: "Choose a name that differs in more than '.' and '_'.",
    Refusal.POLICY_VIOLATION: _RULE,
    Refusal.UNJUDGEABLE: "Declare what the policy asks about instead of leaving it to the broker.",
    Refusal.BUDGET_NOT_FREED: "See why the delete that should have made room did not go through, then run again.",
    Refusal.CLUSTER_ID_MISMATCH: "Check that the settings point to the right cluster: nothing was sent to this one.",
    Refusal.SAME_CLUSTER: "Correct the address of one of the two clusters, or remove it from the settings.",
    Refusal.MAX_DELETES_EXCEEDED: "If all these deletes are meant, raise guards.max_deletes; none was sent.",
    Refusal.MAX_CHANGES_EXCEEDED: "If all these changes are meant, raise guards.max_changes; none was sent.",
    Refusal.MAX_MOVES_EXCEEDED: "If all these moves are meant, raise guards.max_moves; none was begun.",
    Refusal.MAX_LOSSES_EXCEEDED: "If these topics may lose data, raise guards.max_losses; none of them was changed.",
    Refusal.CHANGED_SINCE_PLAN: "See the message for what changed since the plan; `plan` again, then `apply` that.",
    Refusal.PLAN_EXPIRED: "`plan` again, then `apply` that: this plan is older than guards.max_plan_age.",
    Refusal.BELOW_MIN_INSYNC: "Declare a replication factor of min.insync.replicas or more, or lower that first.",
    Refusal.FEWER_PARTITIONS: "Declare as many partitions as there are: Kafka can't take partitions away.",
    Refusal.REASSIGNMENT_IN_PROGRESS: "Wait until the topic's replicas have moved, then run again.",
    Refusal.CANCELLED: "See the message for where replicas were left; plan again to move them after all.",
    Refusal.NO_ANSWER: "See the broker's log for this topic: the cluster answers about the others. Then run again.",
    Refusal.TOO_FEW_BROKERS: "Declare fewer replicas, or add brokers that its placement allows.",
    Refusal.TOO_FEW_RACKS: "Declare fewer replicas or another placement, or add brokers in other racks.",
    Refusal.BROKERS_UNAVAILABLE: "Bring back the brokers that the message names, or declare others; then run again.",
    Refusal.NO_ROOM: "Make room on the brokers that it names, or declare others.",
    Refusal.BROKER_TOO_OLD: "Upgrade the brokers to the version that the message names, or leave the change out.",
    Refusal.INVALID_ACL: "Correct the row of acls: brokers would take it, and it would never grant anything.",
    Refusal.NOT_MANAGED: "Name the principal in `[acls] manage` if its rights may be removed.",
    Refusal.LAST_CLUSTER_ACL: "Keep an ACL on the cluster itself, such as ALL of an administrator.",
    Refusal.OWN_RIGHTS: "A run takes no right from its own principal. Do what the message says, or change it by hand.",
    Refusal.PRINCIPAL_UNKNOWN: "Set clusters.NAME.principal to the name that the brokers know this client by.",
    Refusal.REPLACEMENT_MISSING: "See why the ACL that replaces it was not added, then run again.",
    Refusal.MAX_ACL_DELETES_EXCEEDED: "If all these removals are meant, raise guards.max_acl_deletes; none was sent.",
    Refusal.INVALID_QUOTA: "Correct the row of quotas, as the message says.",
    Refusal.MAX_QUOTA_CHANGES_EXCEEDED: (
        "If these quotas are meant to change, raise guards.max_quota_changes; none was changed."
    ),
    Refusal.NOT_REVERTIBLE: "Change the topic by hand if that must be undone: the tables don't have what it takes.",
    Refusal.RECREATED: "Another client recreated the topic: check that it may be deleted, then plan again.",
    Refusal.COUNTS_REQUIRED: "Declare partitions and replication factor, as the message says.",
    Refusal.DIFFERS_FROM_PLAN: "Compare the topic with its plan; somebody else may have created it.",
    "INVALID_PARTITIONS": "Declare another number of partitions.",
    "INVALID_REPLICA_ASSIGNMENT": "Assign replicas to existing brokers, the same number for each partition.",
    "INVALID_CONFIG": "Correct the config that the message names.",
    "INVALID_TOPIC_EXCEPTION": "Choose a name that the cluster takes.",
    "INVALID_REQUEST": "Compare the broker's version and the manifest: the broker can't do this.",
    "TOPIC_ALREADY_EXISTS": "Plan again: the topic is there now.",
    "UNKNOWN_TOPIC_OR_PARTITION": "Plan again: the topic is gone.",
    "UNKNOWN_TOPIC_ID": "Plan again: the topic is gone, or was recreated.",
    "TOPIC_AUTHORIZATION_FAILED": "Allow the principal to create or delete the topic, then run again.",
    "CLUSTER_AUTHORIZATION_FAILED": "Allow the principal to create topics on the cluster, then run again.",
    "TOPIC_DELETION_DISABLED": "The cluster deletes no topics: set delete.topic.enable on its brokers first.",
    "UNKNOWN_SERVER_ERROR": "See the broker's log: it failed on this topic again and again. Then run again.",
    "REQUEST_TIMED_OUT": "Start the run again with the same run id.",
}
"""By name of the error: Kafka's or ours."""

OF_DRIFT: Mapping[str, str] = {
    "missing": "Run `provision`: it creates the topic.",
    "unmanaged": "Declare the topic (`export --cluster NAME` writes its manifest), or declare it absent.",
    "should_be_absent": "Run `provision`: it deletes the topic, as far as guards.max_deletes allows.",
    "partitions_fewer": 'Run `provision` with changes.partitions = "grow", or declare as many as there are.',
    "partitions_more": "Declare as many as there are: partitions can't be taken away.",
    "replication_factor": 'Run `provision` with changes.replicas = "on", or declare the live factor.',
    "assignment": 'Run `provision` with changes.replicas = "on", or declare the live assignment.',
    "config_differs": "Set the config as declared ({}), or declare the live value.",
    "config_undeclared": 'Declare the config, or run `provision` with changes.configs = "exact", which resets it.',
    "broker_default_changed": "Check that the broker's new default suits the topics that leave it to the broker.",
    "recreated": "Find out who recreated the topic: it has only the records since then.",
    "preferred_leader": 'Run `provision` with changes.replicas = "on", or see why that broker does not lead.',
    "racks_shared": 'Run `provision` with changes.replicas = "on": it moves a replica to another rack.',
    "broker_not_allowed": 'Run `provision` with changes.replicas = "on", or declare another placement.',
    "replica_skew": 'Declare the placement spread, and run `provision` with changes.replicas = "on".',
    "moves_under_way": "Wait until they are done; `kafka-reassign-partitions.sh --list` shows them.",
    "owner_missing": "Declare an owner that the settings know, and load the manifest.",
    "acl_missing": "Run `provision`: it adds the right.",
    "acl_denied": "Declare the DENY too if it is meant, else declare it absent: it wins over the declared right.",
    "acl_unmanaged": "Declare the right, or run `provision`: it removes it, as far as guards.max_acl_deletes allows.",
    "acl_wider": "Declare the wider right in place of the narrow one, or declare it absent.",
    "acl_on_missing_topic": "Declare the topic, or declare the right absent: it would hold for whatever gets the name.",
    "acl_principal_without_topics": "See whether anybody still uses the principal; else declare its rights absent.",
    "quota_missing": "Run `provision`: it sets the limits.",
    "quota_differs": "Run `provision`: it sets the limits as declared; or declare those that there are.",
    "quota_unmanaged": "Declare the entity, or declare it absent: runs leave it alone.",
    "not_permitted": "Grant the principal Describe on the topic with kafka-acls.sh: nothing is known of it.",
}
"""By kind of a finding."""

OPEN = "Start the run again with the same run id: it goes on from there."
PENDING = "Acknowledged, but not visible yet when the run verified it: the next run observes it again."
PLANNED = "Look through the plan, then apply it with the same run id."
UNKNOWN = "See the message."


def of_error(error: str | None) -> str:
    """What to do about topics that failed or were refused with `error`."""
    return OF_ERRORS.get(error or "", UNKNOWN)


def of_drift(kind: str, findings: Iterable[Drift] = ()) -> str:
    """What to do about findings of `kind`; its command is for the first of `findings` that has one."""
    found = OF_DRIFT.get(kind, UNKNOWN)
    if kind != DriftKind.CONFIG_DIFFERS:
        return found
    of_kind = (each for each in findings if each.kind == kind)
    commands = (command for each in of_kind if (command := _set_config(each)) is not None)
    return found.format(next(commands, None) or _altered("TOPIC", "NAME=VALUE"))


def _set_config(finding: Drift) -> str | None:
    """The command that sets a topic's config as declared; None where there is none, or none that is safe to copy."""
    topic, name, value = finding.topic, finding.what, finding.declared
    # Of a config that the broker doesn't know, there is no live value either.
    if not topic or not name or value is None or finding.live is None:
        return None
    if not f"{topic}{name}{value}".isprintable() or any(each in value for each in "[]"):
        return None
    # Kafka's own notation: outside of brackets a comma ends a config, and a second = is an error.
    return _altered(topic, f"{name}=[{value}]" if any(each in value for each in ",=") else f"{name}={value}")


def _altered(topic: str, config: str) -> str:
    start = "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics"
    return f"{start} --entity-name {shlex.quote(topic)} --add-config {shlex.quote(config)}"
