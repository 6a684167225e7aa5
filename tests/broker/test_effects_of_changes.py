"""Every effect that a change of a topic can have: a plan shows it, and a guard stops it unless it is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import clusters, commands
from tests.broker.changes import set_on
from tests.broker.direct import live, make
from tests.broker.invoking import done
from tests.clusters import VERSION
from topicledger.actions.showing import EMPTY
from topicledger.model.topic_configs import LOSSES, ChangeClass, Effects, topic_configs
from topicledger_testing.embedded_kafka import EmbeddedKafka

CHANGES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("cleanup.policy", "emptied"): ("delete", ""),
    ("cleanup.policy", "gets compact"): ("delete", "compact,delete"),
    ("cleanup.policy", "gets delete"): ("compact", "compact,delete"),
    ("cleanup.policy", "loses compact"): ("compact,delete", "delete"),
    ("cleanup.policy", "loses delete"): ("compact,delete", "compact"),
    ("compression.type", "gets uncompressed"): ("producer", "uncompressed"),
    ("delete.retention.ms", "lowered"): ("86400000", "3600000"),
    ("errors.deadletterqueue.group.enable", "gets false"): ("true", "false"),
    ("file.delete.delay.ms", "raised"): ("60000", "120000"),
    ("index.interval.bytes", "lowered"): ("8192", "4096"),
    ("internal.segment.bytes", "lowered"): ("2097152", "1048576"),
    ("local.retention.bytes", "unlimited"): ("1048576", "-2"),
    ("local.retention.ms", "unlimited"): ("3600000", "-2"),
    ("max.compaction.lag.ms", "lowered"): ("86400000", "3600000"),
    ("max.decompressed.message.bytes", "lowered"): ("2097152", "1048576"),
    ("max.message.bytes", "lowered"): ("2097152", "1048576"),
    ("message.timestamp.after.max.ms", "lowered"): ("86400000", "3600000"),
    ("message.timestamp.before.max.ms", "lowered"): ("86400000", "3600000"),
    ("message.timestamp.difference.max.ms", "lowered"): ("86400000", "3600000"),
    ("message.timestamp.type", "gets CreateTime"): ("LogAppendTime", "CreateTime"),
    ("message.timestamp.type", "gets LogAppendTime"): ("CreateTime", "LogAppendTime"),
    ("min.cleanable.dirty.ratio", "lowered"): ("0.5", "0.25"),
    ("min.cleanable.dirty.ratio", "raised"): ("0.5", "1.0"),
    ("min.compaction.lag.ms", "lowered"): ("86400000", "3600000"),
    ("min.compaction.lag.ms", "unlimited"): ("86400000", "9223372036854775807"),
    ("min.insync.replicas", "lowered"): ("2", "1"),
    ("min.insync.replicas", "raised"): ("1", "2"),
    ("remote.log.copy.disable", "gets true"): ("false", "true"),
    ("remote.storage.enable", "gets false"): ("true", "false"),
    ("retention.bytes", "lowered"): ("2097152", "1048576"),
    ("retention.bytes", "unlimited"): ("1048576", "-1"),
    ("retention.ms", "lowered"): ("86400000", "3600000"),
    ("retention.ms", "unlimited"): ("86400000", "-1"),
    ("segment.bytes", "lowered"): ("4194304", "1048576"),
    ("segment.index.bytes", "lowered"): ("20971520", "10485760"),
    ("segment.jitter.ms", "raised"): ("0", "3600000"),
    ("segment.ms", "lowered"): ("86400000", "3600000"),
    ("unclean.leader.election.enable", "gets true"): ("false", "true"),
}
"""By config and direction: the value before and after."""
NEEDED = {
    "remote.storage.enable": {"remote.log.delete.on.disable": "true"},
    "internal.segment.bytes": {"max.message.bytes": "2000000"},
    "segment.bytes": {"max.message.bytes": "2000000"},
}
"""Configs that a change needs beside it: brokers want them, or it has no effect without them."""
DEFAULT = "the broker's default, which isn't known"
MORE: Mapping[str, tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]] = {
    "effect.huge": (
        {"retention.ms": "86400000"},
        {"retention.ms": "9223372036854775807"},
        {"disruption": "retention.ms 86400000 -> 9223372036854775807 may fill disks"},
    ),
    "effect.reset": (
        {"retention.ms": "86400000"},
        {},
        {
            "loss": f"retention.ms 86400000 -> {DEFAULT}: can lose data at once, depending on it",
            "disruption": f"retention.ms 86400000 -> {DEFAULT}: may fill disks, depending on it",
        },
    ),
    "effect.unsafe": (
        {"min.insync.replicas": "2"},
        {"min.insync.replicas": "3"},
        {"disruption": "min.insync.replicas 2 -> 3 stops producers with acks=all once one broker is down"},
    ),
}
"""Changes of configs beside those: by topic, configs before and after, and the beginnings of their effects."""


def effects() -> Mapping[tuple[str, str], Effects]:
    """Effects by config and direction, of the configs that this version of Kafka has."""
    known = (each for each in topic_configs().values() if each.known_in(VERSION))
    return {(each.name, direction): found for each in known for direction, found in each.changes.by_direction.items()}


@pytest.fixture(scope="module")
def kafka_tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Three brokers with remote storage."""
    with clusters.tiered(tmp_path_factory.mktemp("storage")) as cluster:
        yield cluster


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_each_effect_is_shown_guarded_and_passes_once_its_guard_is_raised(
    kafka_tiered: EmbeddedKafka, tmp_path: Path
) -> None:
    """An approval raises the guards for this plan; tests/broker/test_changes.py raises them in the settings."""
    kafka, expected = kafka_tiered, effects()
    assert set(expected) <= set(CHANGES)
    found = {effect.of_class for each in expected.values() for effect in each}
    assert found == set(ChangeClass) - {ChangeClass.LOSES_ORDER}
    before = {"effect.keys": {"cleanup.policy": "compact"}, "effect.fewer": {"min.insync.replicas": "2"}}
    after: dict[str, Mapping[str, str]] = dict(before)
    shown: dict[str, Mapping[str, str]] = {
        "effect.keys": {"loss": "a compacted topic, whose records have keys, from 1 to 2 partitions loses the order"},
        "effect.fewer": {
            "loss": "replication factor 3 -> 2 keeps data less safely (partitions 0)",
            "disruption": "3 -> 2 replicas with min.insync.replicas=2 stops producers with acks=all",
        },
    }
    for number, ((name, direction), of_change) in enumerate(expected.items()):
        topic, (old, new) = f"effect.{number:02}", CHANGES[name, direction]
        more = NEEDED.get(name, {})
        if any(effect.compacted for effect in of_change):
            more = {**more, "cleanup.policy": "compact"}
        before[topic], after[topic] = {name: old, **more}, {name: new, **more}
        shown[topic] = {
            "loss" if effect.of_class in LOSSES else "disruption": f"{name} {old} -> {new or EMPTY} {effect.words}"
            for effect in of_change
        }
    for topic, (old_configs, new_configs, words) in MORE.items():
        before[topic], after[topic], shown[topic] = {**old_configs}, new_configs, words
    replicas = {topic: 3 if topic == "effect.fewer" else 2 for topic in before}
    for topic, configs in before.items():
        make(kafka, topic, configs=configs, num_partitions=1, replication_factor=replicas[topic])

    changes = '[changes]\nconfigs = "exact"\npartitions = "grow"\nreplicas = "on"\n'
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=changes)
    manifest = tmp_path / "manifest.json"
    counts = {"num_partitions": 1, "replication_factor": 2}
    topics = [{"topic": topic, **counts, "configs": configs} for topic, configs in after.items()]
    topics[0]["num_partitions"] = 2
    manifest.write_text(json.dumps({"cluster": "main", "topics": topics}))
    done("load-manifests", manifest, "--config", config)
    losing, disrupting = ({topic for topic in shown if kind in shown[topic]} for kind in ("loss", "disruption"))

    run = ("--config", config, "--run-id", "stopped")
    done("plan", *run, "--requested-by", "ann", code=5)
    actions = json.loads(done("runs", "show", *run, "--format", "json"))["actions"]
    stopped = {each["topic"]: phase for each in actions for phase in each["phases"] if phase["phase"] == "guard"}
    for topic, effects_shown in shown.items():
        # A row that both guards stop has the message of the first.
        kind, guard = ("loss", "MAX_LOSSES") if topic in losing else ("disruption", "MAX_DISRUPTIONS")
        assert stopped[topic]["error"] == f"{guard}_EXCEEDED"
        assert stopped[topic]["error_message"].startswith(effects_shown[kind])
    printed = done("runs", "show", *run)
    assert "  ~ alter_configs effect.reset: retention.ms 1d (86400000) -> default\n" in printed
    assert f"disruptions={len(disrupting)}" in printed
    assert f"losses={len(losing)}" in printed

    allow = f"losses={len(losing)},disruptions={len(disrupting)},moves=1"
    done("runs", "approve", *run, "--allow", allow, "--by", "bob")
    done("apply", *run, "--wait-visible", "60s")
    assert set_on(kafka, *after) == after
    listed = live(kafka, "effect.")
    assert listed["effect.keys"].num_partitions == 2
    assert {each.replication_factor for each in listed.values()} == {2}
