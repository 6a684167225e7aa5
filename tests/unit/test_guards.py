"""Guards stop what a run as a whole may not do."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.unit.frames import by_topic, decision_rows, policy_facts
from topicledger import policies
from topicledger.resources import building
from topicledger.resources.topics.plan import effects, guards

ENDED = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}


@pytest.fixture(scope="module")
def decisions(spark: SparkSession) -> DataFrame:
    """`main` deletes three topics, one of them internal; `other` two; `third` none."""
    return decision_rows(
        spark,
        {"topic": "a", "decision": "delete"},
        {"topic": "b", "decision": "delete"},
        {"topic": "__offsets", "decision": "delete", "internal": True},
        {"topic": "new", "decision": "create"},
        {"topic": "kept", "decision": "unchanged"},
        {"topic": "refused", "decision": None, **ENDED},
        {"topic": "foreign", "decision": "unmanaged"},
        {"topic": "__internal", "decision": None, "internal": True},
        {"cluster": "other", "cluster_id": "kafka-other", "topic": "a", "decision": "delete"},
        {"cluster": "other", "cluster_id": "kafka-other", "topic": "b", "decision": "delete"},
        {"cluster": "other", "cluster_id": "kafka-other", "topic": "c", "decision": "delete"},
        {"cluster": "third", "cluster_id": None, "topic": "new", "decision": "create"},
    )


def _stopped(rows: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    return {key: row for key, row in by_topic(rows).items() if row["phase"] == "guard"}


@pytest.mark.parametrize(
    ("most", "clusters"), [(0, {"main", "other"}), (1, {"main", "other"}), (2, {"other"}), (3, set())]
)
def test_too_many_deletes_stop_all_of_a_cluster(
    spark: SparkSession, decisions: DataFrame, most: int, clusters: set[str]
) -> None:
    """The delete that a policy refused doesn't count (D9)."""
    validate = policies.evaluate(building.always(), policy_facts(spark))
    validated = decisions.transform(validate).transform(guards.max_deletes(most))
    stopped = _stopped(validated)
    expected = {("main", "a"), ("main", "b"), ("other", "a"), ("other", "b"), ("other", "c")}
    assert set(stopped) == {key for key in expected if key[0] in clusters}
    assert {(row["outcome"], row["error"]) for row in stopped.values()} <= {("refused", "MAX_DELETES_EXCEEDED")}
    for (cluster, _), row in stopped.items():
        count = 2 if cluster == "main" else 3
        assert row["error_message"] == (
            f"planned deletes of this cluster: {count}, guards.max_deletes is {most}; "
            f"if they are meant, before a plan is applied: runs approve RUN_ID --allow deletes={count}"
        )


def test_stopped_deletes_do_not_stop_other_rows(decisions: DataFrame) -> None:
    before, after = by_topic(decisions), by_topic(decisions.transform(guards.max_deletes(0)))
    deletes = {key for key, row in before.items() if row["decision"] == "delete"}
    assert {key for key in before if before[key] != after[key]} == deletes
    assert len(after) == len(before)


def alters(topic: str, before: dict[str, str], after: dict[str, str], **live_configs: str) -> dict[str, Any]:
    configs = [
        {
            "name": name.replace("_", "."),
            "value": value,
            "read_only": False,
            "config_source": "DYNAMIC_TOPIC_CONFIG",
            "is_sensitive": False,
        }
        for name, value in live_configs.items()
    ]
    changed = {"before": before, "after": after, "live_configs": configs}
    return {"topic": topic, "topic_id": topic, "decision": "alter_configs", **changed}


def grows(topic: str, cleanup_policy: str = "delete") -> dict[str, Any]:
    counts = ({"num_partitions": "1"}, {"num_partitions": "2"})
    return {**alters(topic, *counts, cleanup_policy=cleanup_policy), "decision": "add_partitions"}


def reassigned(topic: str, before: str, after: str) -> dict[str, Any]:
    return {**alters(topic, {"assignments": before}, {"assignments": after}), "decision": "reassign"}


FLUSH = ({}, {"flush.ms": "1"})


@pytest.mark.parametrize(("most", "stopped"), [(None, False), (3, False), (2, True), (0, True)])
def test_changes_are_counted_by_topic_and_stopped_together(
    spark: SparkSession, most: int | None, stopped: bool
) -> None:
    rows = decision_rows(
        spark,
        grows("both"),
        alters("both", *FLUSH),
        alters("one", *FLUSH),
        grows("two"),
        {**alters("refused", *FLUSH), **ENDED},
        {"topic": "new", "decision": "create"},
        {"topic": "old", "decision": "delete"},
        {**alters("one", *FLUSH), "cluster": "other"},
    )
    validated = rows.transform(guards.max_changes(most)).collect()
    found = sorted((row["cluster"], row["topic"], row["decision"]) for row in validated if row["phase"] == "guard")
    both = [("main", "both", "add_partitions"), ("main", "both", "alter_configs")]
    expected = [*both, ("main", "one", "alter_configs"), ("main", "two", "add_partitions")] if stopped else []
    if most == 0:
        expected.append(("other", "one", "alter_configs"))
    assert found == expected
    messages = {row["error_message"] for row in validated if row["phase"] == "guard" and row["cluster"] == "main"}
    words = (
        f"topics of this cluster with planned changes: 3, guards.max_changes is {most}; if they are meant, before a "
        "plan is applied: runs approve RUN_ID --allow changes=3"
    )
    assert messages == ({words} if stopped else set())


SHORTER = "can lose data at once"
LOSSES = {
    "shorter": (alters("t", {}, {"retention.ms": "5"}, retention_ms="6"), f"retention.ms 6 -> 5 {SHORTER}"),
    "as long": (alters("t", {}, {"retention.ms": "06"}, retention_ms="6"), None),
    "longer": (alters("t", {}, {"retention.ms": "7"}, retention_ms="6"), None),
    "endless": (alters("t", {}, {"retention.bytes": "-1"}, retention_bytes="6"), None),
    "not endless": (
        alters("t", {}, {"retention.bytes": "9"}, retention_bytes="-1"),
        f"retention.bytes -1 -> 9 {SHORTER}",
    ),
    "not a number": (alters("t", {}, {"retention.ms": "soon"}, retention_ms="6"), None),
    "unknown before": (alters("t", {}, {"retention.ms": "5"}), f"retention.ms unknown -> 5 {SHORTER}"),
    "reset": (
        alters("t", {"retention.ms": "6"}, {}, retention_ms="6"),
        f"retention.ms 6 -> the broker's default, which isn't known: {SHORTER}, depending on it",
    ),
    "compacted": (
        alters("t", {}, {"cleanup.policy": "compact"}, cleanup_policy="delete"),
        f"cleanup.policy delete -> compact {SHORTER}",
    ),
    "also deleted": (
        alters("t", {}, {"cleanup.policy": "delete, compact"}, cleanup_policy="compact"),
        f"cleanup.policy compact -> delete, compact {SHORTER}",
    ),
    "only compacted": (alters("t", {}, {"cleanup.policy": "compact"}, cleanup_policy="compact,delete"), None),
    "a smaller index, compacted": (
        alters("t", {}, {"segment.index.bytes": "8"}, segment_index_bytes="16", cleanup_policy="compact"),
        "segment.index.bytes 16 -> 8 can lose versions of keys for slow readers",
    ),
    "kept for good": (alters("t", {}, {"cleanup.policy": ""}, cleanup_policy="delete"), None),
    "fewer in sync": (
        alters("t", {}, {"min.insync.replicas": "1"}, min_insync_replicas="2"),
        "min.insync.replicas 2 -> 1 keeps data less safely",
    ),
    "more in sync": (alters("t", {}, {"min.insync.replicas": "3"}, min_insync_replicas="2"), None),
    "harmless": (alters("t", {}, {"flush.ms": "1"}, flush_ms="2"), None),
    "fewer replicas": (
        reassigned("t", "0:1,2,3;1:2,3,1;2:1", "0:1;1:2,3;2:3"),
        "replication factor 3 -> 1 keeps data less safely (partitions 0, 1)",
    ),
    "other replicas": (reassigned("t", "0:1,2,3;1:2", "0:3,2,1;1:1,2"), None),
    "grows": (grows("t"), None),
    "grows, unknown": (
        {**grows("t"), "live_configs": None},
        "a topic that may be compacted, from 1 to 2 partitions loses the order of keys",
    ),
    "grows, compacted": (
        grows("t", "compact,delete"),
        "a compacted topic, whose records have keys, from 1 to 2 partitions loses the order of keys",
    ),
    "two": (
        alters("t", {}, {"retention.ms": "5", "min.insync.replicas": "1"}, retention_ms="6", min_insync_replicas="2"),
        f"min.insync.replicas 2 -> 1 keeps data less safely; retention.ms 6 -> 5 {SHORTER}",
    ),
    "no limit for unknown": (alters("t", {}, {"retention.ms": "-1"}), None),
    "deletes": (
        alters("t", {}, {"delete.retention.ms": "5"}, delete_retention_ms="6"),
        "delete.retention.ms 6 -> 5 can lose deletes of keys for slow readers",
    ),
    "versions": (
        alters("t", {}, {"max.compaction.lag.ms": "5"}, max_compaction_lag_ms="6"),
        "max.compaction.lag.ms 6 -> 5 can lose versions of keys for slow readers",
    ),
    "sooner": (
        alters("t", {}, {"min.compaction.lag.ms": "5"}, min_compaction_lag_ms="6"),
        "min.compaction.lag.ms 6 -> 5 can lose versions of keys for slow readers",
    ),
    "deletes, never compacted": (
        alters("t", {}, {"delete.retention.ms": "5"}, delete_retention_ms="6", cleanup_policy="delete"),
        None,
    ),
    "reset, never compacted": (
        alters("t", {"segment.ms": "6"}, {}, segment_ms="6", cleanup_policy="delete"),
        None,
    ),
    "younger segments": (
        alters("t", {}, {"segment.ms": "5"}, segment_ms="6", cleanup_policy="compact,delete"),
        "segment.ms 6 -> 5 can lose versions of keys for slow readers",
    ),
    "smaller segments": (
        alters("t", {}, {"segment.bytes": "5"}, segment_bytes="6", cleanup_policy="Compact"),
        "segment.bytes 6 -> 5 can lose versions of keys for slow readers",
    ),
    "compacted more often": (
        alters("t", {}, {"min.cleanable.dirty.ratio": "1e-1D"}, min_cleanable_dirty_ratio="0.5"),
        "min.cleanable.dirty.ratio 0.5 -> 1e-1D can lose versions of keys for slow readers",
    ),
    "the broker's time": (
        alters("t", {}, {"message.timestamp.type": "LogAppendTime"}, message_timestamp_type="CreateTime"),
        "message.timestamp.type CreateTime -> LogAppendTime replaces the timestamps that producers send",
    ),
    "their time": (
        alters("t", {}, {"message.timestamp.type": "CreateTime"}, message_timestamp_type="LogAppendTime"),
        "message.timestamp.type LogAppendTime -> CreateTime can delete records by the timestamps that producers send",
    ),
    "local again": (
        alters("t", {}, {"remote.storage.enable": "FALSE"}, remote_storage_enable="true"),
        "remote.storage.enable true -> FALSE deletes everything in remote storage",
    ),
    "remote": (alters("t", {}, {"remote.storage.enable": "true"}, remote_storage_enable="false"), None),
    "unclean": (
        alters("t", {}, {"unclean.leader.election.enable": "True"}, unclean_leader_election_enable="false"),
        "unclean.leader.election.enable false -> True keeps data less safely",
    ),
    "clean": (alters("t", {}, {"unclean.leader.election.enable": "false"}), None),
    "reset, harmless": (alters("t", {"flush.ms": "6"}, {}, flush_ms="6"), None),
    "unknown config": (alters("t", {}, {"fork.ms": "5"}, fork_ms="6"), None),
}

REFUSES, FILLS = "can refuse records that producers send", "may fill disks"
ONE_DOWN = (
    "stops producers with acks=all once one broker is down, before Kafka 3.7 at once if it is more than the replicas"
)
LARGER = "refuses batches that are larger"


def in_sync(old: str, new: str, replicas: int | None) -> dict[str, Any]:
    changed = alters("t", {}, {"min.insync.replicas": new}, min_insync_replicas=old)
    return {**changed, "live_replication_factor": replicas}


def in_sync_move(before: str, after: str, needed: str | None) -> dict[str, Any]:
    row = reassigned("t", before, after)
    return row if needed is None else {**row, "live_configs": in_sync(needed, "", 3)["live_configs"]}


DISRUPTIONS = {
    "smaller": (
        alters("t", {}, {"max.message.bytes": "5"}, max_message_bytes="6"),
        f"max.message.bytes 6 -> 5 {REFUSES}",
    ),
    "larger": (alters("t", {}, {"max.message.bytes": "7"}, max_message_bytes="6"), None),
    "earlier": (
        alters("t", {}, {"message.timestamp.before.max.ms": "5"}, message_timestamp_before_max_ms="6"),
        f"message.timestamp.before.max.ms 6 -> 5 {REFUSES}",
    ),
    "later": (
        alters("t", {}, {"message.timestamp.after.max.ms": "5"}, message_timestamp_after_max_ms="6"),
        f"message.timestamp.after.max.ms 6 -> 5 {REFUSES}",
    ),
    "their time": (
        alters("t", {}, {"message.timestamp.type": "CreateTime"}, message_timestamp_type="LogAppendTime"),
        "message.timestamp.type LogAppendTime -> CreateTime can refuse records by their timestamps",
    ),
    "the broker's time": (
        alters("t", {}, {"message.timestamp.type": "LogAppendTime"}, message_timestamp_type="CreateTime"),
        None,
    ),
    "reset": (
        alters("t", {"max.message.bytes": "6"}, {}, max_message_bytes="6"),
        f"max.message.bytes 6 -> the broker's default, which isn't known: {REFUSES}, depending on it",
    ),
    "all in sync": (in_sync("1", "3", 3), f"min.insync.replicas 1 -> 3 {ONE_DOWN}"),
    "more than all in sync": (in_sync("2", "4", 3), f"min.insync.replicas 2 -> 4 {ONE_DOWN}"),
    "all in sync already": (in_sync("3", "4", 3), f"min.insync.replicas 3 -> 4 {ONE_DOWN}"),
    "two of three": (in_sync("1", "2", 3), None),
    "two of three that become two": (
        {**in_sync("1", "2", 3), "replication_factor": 2},
        f"min.insync.replicas 1 -> 2 {ONE_DOWN}",
    ),
    "two of some partitions": (
        {**in_sync("1", "2", 3), "live_min_replicas": 2, "replication_factor": 3},
        f"min.insync.replicas 1 -> 2 {ONE_DOWN}",
    ),
    "three, and as many again while they move": (
        {**in_sync("2", "3", 6), "live_min_replicas": 6, "assignments": {0: [4, 5, 6]}},
        f"min.insync.replicas 2 -> 3 {ONE_DOWN}",
    ),
    "one replica": (in_sync("1", "2", 1), f"min.insync.replicas 1 -> 2 {ONE_DOWN}"),
    "one replica, as before": (in_sync("1", "1", 1), None),
    "no spare replica": (
        in_sync_move("0:1,2,3;1:1,2", "0:1,2;1:2,3", "2"),
        f"3 -> 2 replicas with min.insync.replicas=2 {ONE_DOWN}",
    ),
    "a spare replica": (in_sync_move("0:1,2,3,4", "0:1,2,3", "2"), None),
    "perhaps no spare replica": (
        in_sync_move("0:1,2,3", "0:1,2", None),
        f"3 -> 2 replicas with min.insync.replicas=unknown {ONE_DOWN}",
    ),
    "no spare replica of the raised number": (
        {**in_sync_move("0:1,2,3,4", "0:1,2,3", "2"), "resolved_configs": {"min.insync.replicas": "3"}},
        f"4 -> 3 replicas with min.insync.replicas=3 {ONE_DOWN}",
    ),
    "no spare replica if it isn't lowered": (
        {**in_sync_move("0:1,2,3", "0:1,2", "2"), "resolved_configs": {"min.insync.replicas": "1"}},
        f"3 -> 2 replicas with min.insync.replicas=2 {ONE_DOWN}",
    ),
    "to one replica": (in_sync_move("0:1,2,3", "0:1", "1"), None),
    "unknown replicas": (in_sync("1", "2", None), f"min.insync.replicas 1 -> 2 {ONE_DOWN}"),
    "without policy": (
        alters("t", {}, {"cleanup.policy": " "}, cleanup_policy="delete"),
        f"cleanup.policy delete -> empty {FILLS}",
    ),
    "no limit": (alters("t", {}, {"retention.ms": "-1"}, retention_ms="6"), f"retention.ms 6 -> -1 {FILLS}"),
    "as good as no limit": (
        alters("t", {}, {"retention.ms": "9223372036854775807"}, retention_ms="6"),
        f"retention.ms 6 -> 9223372036854775807 {FILLS}",
    ),
    "smaller segments": (
        alters("t", {}, {"segment.bytes": "5"}, segment_bytes="9", max_message_bytes="6"),
        f"segment.bytes 9 -> 5 {LARGER}",
    ),
    "smaller segments, smaller batches": (
        alters("t", {}, {"segment.bytes": "5", "max.message.bytes": "4"}, segment_bytes="9", max_message_bytes="4"),
        None,
    ),
    "segments with room": (alters("t", {}, {"segment.bytes": "6"}, segment_bytes="9", max_message_bytes="6"), None),
    "smaller segments, unknown batches": (
        alters("t", {}, {"segment.bytes": "5"}, segment_bytes="9"),
        f"segment.bytes 9 -> 5 {LARGER}",
    ),
    "no longer deleted": (
        alters("t", {}, {"cleanup.policy": "compact"}, cleanup_policy="compact,delete"),
        f"cleanup.policy compact,delete -> compact {FILLS}",
    ),
    "no longer compacted": (
        alters("t", {}, {"cleanup.policy": "delete"}, cleanup_policy="compact,delete"),
        f"cleanup.policy compact,delete -> delete {FILLS}",
    ),
    "perhaps no longer deleted": (
        alters("t", {}, {"cleanup.policy": "compact"}),
        "cleanup.policy unknown -> compact refuses records without keys",
    ),
    "perhaps kept for good": (alters("t", {}, {"cleanup.policy": ""}), f"cleanup.policy unknown -> empty {FILLS}"),
    "still deleted": (alters("t", {}, {"cleanup.policy": "Delete,compact"}, cleanup_policy="compact,delete"), None),
    "never compacted": (
        alters("t", {}, {"min.cleanable.dirty.ratio": "1.0"}, min_cleanable_dirty_ratio="0.5"),
        f"min.cleanable.dirty.ratio 0.5 -> 1.0 {FILLS}",
    ),
    "never compacted, another spelling": (
        alters("t", {}, {"min.cleanable.dirty.ratio": "10e-1f"}, min_cleanable_dirty_ratio="0.5"),
        f"min.cleanable.dirty.ratio 0.5 -> 10e-1f {FILLS}",
    ),
    "compacted less often": (
        alters("t", {}, {"min.cleanable.dirty.ratio": "0.9"}, min_cleanable_dirty_ratio="0.5"),
        None,
    ),
    "also compacted": (
        alters("t", {}, {"cleanup.policy": "compact,delete"}, cleanup_policy="delete"),
        "cleanup.policy delete -> compact,delete refuses records without keys",
    ),
    "compacted late": (
        alters("t", {}, {"min.compaction.lag.ms": "9223372036854775807"}, min_compaction_lag_ms="0"),
        f"min.compaction.lag.ms 0 -> 9223372036854775807 {FILLS}",
    ),
    "all on local disks": (
        alters("t", {}, {"local.retention.ms": "-2"}, local_retention_ms="6"),
        f"local.retention.ms 6 -> -2 {FILLS}",
    ),
    "files stay": (
        alters("t", {}, {"file.delete.delay.ms": "7"}, file_delete_delay_ms="6"),
        f"file.delete.delay.ms 6 -> 7 {FILLS}",
    ),
    "no size": (alters("t", {}, {"retention.bytes": "-5"}, retention_bytes="6"), f"retention.bytes 6 -> -5 {FILLS}"),
    "no limit before": (alters("t", {}, {"retention.bytes": "-5"}, retention_bytes="-1"), None),
    "longer": (alters("t", {}, {"retention.ms": "7"}, retention_ms="6"), None),
    "kept for good": (
        alters("t", {}, {"cleanup.policy": ""}, cleanup_policy="delete"),
        f"cleanup.policy delete -> empty {FILLS}",
    ),
    "kept for good before": (alters("t", {}, {"cleanup.policy": " "}, cleanup_policy=""), None),
    "all local": (
        alters("t", {}, {"remote.log.copy.disable": "true"}, remote_log_copy_disable="false"),
        f"remote.log.copy.disable false -> true {FILLS}",
    ),
    "a loss": (alters("t", {}, {"retention.ms": "5"}, retention_ms="6"), None),
    "reset, perhaps endless": (
        alters("t", {"retention.ms": "6"}, {}, retention_ms="6"),
        f"retention.ms 6 -> the broker's default, which isn't known: {FILLS}, depending on it",
    ),
    "grows": (grows("t", "compact"), None),
}


def test_possible_losses_name_old_and_new_values(spark: SparkSession) -> None:
    rows = decision_rows(spark, *({**row, "topic": name} for name, (row, _) in LOSSES.items()))
    found = {row["topic"]: row["loss"] for row in rows.select("topic", effects.losses().alias("loss")).collect()}
    assert found == {name: loss for name, (_, loss) in LOSSES.items()}


def test_disruptions_are_shown_with_old_and_new_values(spark: SparkSession) -> None:
    rows = decision_rows(spark, *({**row, "topic": name} for name, (row, _) in DISRUPTIONS.items()))
    found = {row["topic"]: row["found"] for row in rows.select("topic", effects.disruptions().alias("found")).collect()}
    assert found == {name: text for name, (_, text) in DISRUPTIONS.items()}


def test_disruptions_beyond_the_guard_stop_and_losses_do_not_count(spark: SparkSession) -> None:
    endless, shorter = ({}, {"retention.ms": "-1"}), ({}, {"retention.ms": "5"})
    rows = decision_rows(
        spark,
        alters("a", *endless, retention_ms="6"),
        alters("b", *endless, retention_ms="6"),
        alters("c", *shorter, retention_ms="6"),
        {**alters("d", *endless, retention_ms="6"), **ENDED},
        {**alters("a", *endless, retention_ms="6"), "cluster": "other"},
    )
    stopped = _stopped(rows.transform(guards.max_disruptions(1)))
    assert set(stopped) == {("main", "a"), ("main", "b")}
    assert {(row["error"], row["error_message"]) for row in stopped.values()} == {
        (
            "MAX_DISRUPTIONS_EXCEEDED",
            "retention.ms 6 -> -1 may fill disks; topics of this cluster with such changes: 2, "
            "guards.max_disruptions is 1; if they are meant, before a plan is applied: runs approve RUN_ID --allow "
            "disruptions=2",
        )
    }
    assert rows.transform(guards.max_disruptions(2)).where("phase = 'guard'").count() == 0


def test_too_many_losses_are_stopped_and_other_changes_continue(spark: SparkSession) -> None:
    shorter = ({}, {"retention.ms": "5"})
    rows = decision_rows(
        spark,
        alters("a", *shorter, retention_ms="6"),
        alters("b", *shorter, retention_ms="6"),
        alters("c", *FLUSH),
        {**alters("a", *shorter, retention_ms="6"), "cluster": "other"},
    )
    stopped = _stopped(rows.transform(guards.max_losses(1)))
    assert set(stopped) == {("main", "a"), ("main", "b")}
    assert {row["error"] for row in stopped.values()} == {"MAX_LOSSES_EXCEEDED"}
    assert rows.transform(guards.max_losses(2)).where("phase is not null").count() == 0


def test_fewer_replicas_count_for_losses_beside_altered_configs(spark: SparkSession) -> None:
    """A topic with both counts once; the election of its leaders is stopped with its move."""
    rows = decision_rows(
        spark,
        alters("both", {}, {"retention.ms": "5"}, retention_ms="6"),
        reassigned("both", "0:1,2,3", "0:2"),
        reassigned("fewer", "0:1,2", "0:1"),
        {"topic": "fewer", "decision": "elect_leaders", "after": {"partitions": "0"}},
        reassigned("moved", "0:1", "0:2"),
        {"topic": "moved", "decision": "elect_leaders", "after": {"partitions": "0"}},
        {**reassigned("refused", "0:1,2,3", "0:1"), **ENDED},
    )
    stopped = rows.transform(guards.max_losses(1)).where("phase = 'guard'").collect()
    assert sorted((row["topic"], row["decision"]) for row in stopped) == [
        ("both", "alter_configs"),
        ("both", "reassign"),
        ("fewer", "elect_leaders"),
        ("fewer", "reassign"),
    ]
    assert {row["error"] for row in stopped} == {"MAX_LOSSES_EXCEEDED"}
    assert rows.transform(guards.max_losses(2)).where("phase = 'guard'").count() == 0


@pytest.mark.parametrize(("most", "stopped"), [(2, {"big", "small", "led"}), (3, set())])
def test_moves_of_a_cluster_are_stopped_together_and_with_them_the_elections_of_their_leaders(
    spark: SparkSession, most: int, stopped: set[str]
) -> None:
    """Partitions count, not topics; what is stopped already doesn't; another topic's leaders are elected."""
    rows = decision_rows(
        spark,
        {"topic": "big", "decision": "reassign", "after": {"assignments": "0:1;1:2"}},
        {"topic": "small", "decision": "reassign", "after": {"assignments": "0:1"}},
        {"topic": "refused", "decision": "reassign", "after": {"assignments": "0:1;1:2"}, **ENDED},
        {"topic": "turned", "decision": "elect_leaders", "after": {"partitions": "0,1,2,3"}},
        {"topic": "altered", "decision": "alter_configs"},
        {"cluster": "other", "topic": "one", "decision": "reassign", "after": {"assignments": "0:1;1:2"}},
        {"cluster": "third", "topic": "led", "decision": "elect_leaders", "after": {"partitions": "0"}},
    )
    both = decision_rows(spark, {"topic": "led", "decision": "elect_leaders", "after": {"partitions": "0"}})
    moved = decision_rows(spark, {"topic": "led", "decision": "reassign", "after": {"assignments": "0:1"}})
    found = rows.transform(guards.max_moves(2)) if most == 2 else rows.transform(guards.max_moves(most))
    of_main = {topic for cluster, topic in _stopped(found) if cluster == "main"}
    assert of_main == stopped - {"led"}
    together = rows.unionByName(both).unionByName(moved).transform(guards.max_moves(most)).where("phase = 'guard'")
    assert {(row["topic"], row["error"]) for row in together.collect()} == {
        (name, "MAX_MOVES_EXCEEDED") for name in ("big", "small", "led")
    }


def test_stopped_actions_have_every_guard_that_an_approval_must_allow(spark: SparkSession) -> None:
    """An action that one guard stopped counts for the next one as if an approval had allowed it."""
    rows = decision_rows(
        spark,
        reassigned("fewer", "0:1,2,3;1:1,2,3", "0:1;1:1"),
        {"topic": "fewer", "decision": "elect_leaders", "after": {"partitions": "0"}},
        reassigned("moved", "0:1", "0:2"),
        alters("shorter", {}, {"retention.ms": "5"}, retention_ms="6"),
        {**reassigned("refused", "0:1,2,3", "0:1"), **ENDED},
        {**reassigned("few", "0:1,2,3", "0:1"), "cluster": "other"},
    )
    every = (guards.max_changes(0), guards.max_losses(0), guards.max_moves(1))
    found = reduce(DataFrame.transform, every, rows).collect()
    assert {(row["cluster"], row["topic"], row["decision"]): row["guards"] for row in found} == {
        ("main", "fewer", "reassign"): {"losses": 1, "moves": 3},
        ("main", "fewer", "elect_leaders"): {"losses": 1, "moves": 3},
        ("main", "moved", "reassign"): None,
        ("main", "shorter", "alter_configs"): {"changes": 1, "losses": 2},
        ("main", "refused", "reassign"): None,
        ("other", "few", "reassign"): {"losses": 1},
    }
