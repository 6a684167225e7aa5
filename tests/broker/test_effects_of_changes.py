"""Every effect that a change of a topic can have: a plan shows it, and a guard stops it unless it is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import clusters, commands
from tests.broker.changes import set_on
from tests.broker.direct import live, make
from tests.broker.invoking import done
from tests.clusters import VERSION
from topicledger.model.config_texts import with_units
from topicledger.model.topic_configs import EFFECTS, LOSSES, ChangeClass, Effect, topic_configs
from topicledger_testing.embedded_kafka import EmbeddedKafka

CHANGES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("cleanup.policy", "emptied"): ("delete", ""),
    ("cleanup.policy", "gets compact"): ("delete", "compact,delete"),
    ("cleanup.policy", "gets delete"): ("compact", "compact,delete"),
    ("cleanup.policy", "loses delete"): ("compact,delete", "compact"),
    ("delete.retention.ms", "lowered"): ("86400000", "3600000"),
    ("errors.deadletterqueue.group.enable", "gets false"): ("true", "false"),
    ("file.delete.delay.ms", "raised"): ("60000", "120000"),
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
    ("min.cleanable.dirty.ratio", "gets 1"): ("0.5", "1"),
    ("min.cleanable.dirty.ratio", "gets 1.0"): ("0.5", "1.0"),
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
    ("unclean.leader.election.enable", "gets true"): ("false", "true"),
}
"""By config and direction: the value before and after."""
NEEDED = {
    "remote.storage.enable": {"remote.log.delete.on.disable": "true"},
    "internal.segment.bytes": {"max.message.bytes": "2000000"},
    "segment.bytes": {"max.message.bytes": "2000000"},
}
"""Configs that a change needs beside it: brokers want them, or it has no effect without them."""


def effects() -> Mapping[tuple[str, str], Effect]:
    """Effects by config and direction, of the configs that this version of Kafka has."""
    found = {}
    for each in topic_configs().values():
        if each.known_in(VERSION):
            for direction in ("emptied", "lowered", "raised", "unlimited"):
                found[each.name, direction] = getattr(each.changes, direction)
            found |= {(each.name, f"gets {value}"): effect for value, effect in each.changes.gains.items()}
            found |= {(each.name, f"loses {value}"): effect for value, effect in each.changes.drops.items()}
    return {change: effect for change, effect in found.items() if effect is not None}


@pytest.fixture(scope="module")
def kafka_tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Two brokers with remote storage."""
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
    assert {effect.of_class for effect in expected.values()} == set(ChangeClass) - {ChangeClass.LOSES_ORDER}
    counts = {"num_partitions": 1, "replication_factor": 2}
    entries: list[dict[str, Any]] = []
    configs: dict[str, Mapping[str, str]] = {"effect.keys": {"cleanup.policy": "compact"}, "effect.replicas": {}}
    shown: dict[str, tuple[ChangeClass, str]] = {}
    for number, ((name, direction), effect) in enumerate(expected.items()):
        topic, (old, new) = f"effect.{number:02}", CHANGES[name, direction]
        more = NEEDED.get(name, {})
        make(kafka, topic, configs={name: old, **more}, **counts)
        entries.append({"topic": topic, **counts})
        configs[topic] = {name: new, **more}
        shown[topic] = (effect.of_class, f"{name} {old} -> {new} {effect.words}")
    make(kafka, "effect.keys", configs=configs["effect.keys"], **counts)
    entries.append({"topic": "effect.keys", **counts, "num_partitions": 2})
    order = f"a compacted topic, whose records have keys, from 1 to 2 partitions {EFFECTS[ChangeClass.LOSES_ORDER]}"
    shown["effect.keys"] = (ChangeClass.LOSES_ORDER, order)
    make(kafka, "effect.replicas", **counts)
    entries.append({"topic": "effect.replicas", **counts, "replication_factor": 1})
    fewer = f"replication factor 2 -> 1 {EFFECTS[ChangeClass.LESS_SAFE]} (partitions 0)"
    shown["effect.replicas"] = (ChangeClass.LESS_SAFE, fewer)
    assert {of_class for of_class, _ in shown.values()} == set(ChangeClass)

    changes = '[changes]\nconfigs = "declared"\npartitions = "grow"\nreplicas = "on"\n'
    config = commands.settings_file(tmp_path, {"main": kafka.bootstrap_servers}, more=changes)
    manifest = tmp_path / "manifest.json"
    topics = [{**entry, "configs": configs[entry["topic"]]} for entry in entries]
    manifest.write_text(json.dumps({"cluster": "main", "topics": topics}))
    done("load-manifests", manifest, "--config", config)
    losing = {topic for topic, (of_class, _) in shown.items() if of_class in LOSSES}
    disrupting = set(shown) - losing

    run = ("--config", config, "--run-id", "stopped")
    done("plan", *run, "--requested-by", "ann", code=5)
    printed = done("runs", "show", *run)
    for topic, (of_class, words) in shown.items():
        guard = "MAX_LOSSES" if of_class in LOSSES else "MAX_DISRUPTIONS"
        (line,) = (line for line in printed.splitlines() if f" {topic} (guard): " in line)
        assert f"{guard}_EXCEEDED: {with_units(words)}; " in line
    assert f"disruptions={len(disrupting)}" in printed
    assert f"losses={len(losing)}" in printed

    allow = f"losses={len(losing)},disruptions={len(disrupting)},moves=1"
    done("runs", "approve", *run, "--allow", allow, "--by", "bob")
    done("apply", *run, "--wait-visible", "60s")
    assert set_on(kafka, *configs) == configs
    listed = live(kafka, "effect.")
    assert listed["effect.keys"].num_partitions == 2
    assert listed["effect.replicas"].replication_factor == 1
