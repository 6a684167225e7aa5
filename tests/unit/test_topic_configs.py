"""The catalogue of topic configs says of each what it means, and what a change of it can do."""

from __future__ import annotations

import pytest

from topicledger.kafka import abilities
from topicledger.model import topic_configs as catalogue
from topicledger.model.topic_configs import DISRUPTIONS, LOSSES, ChangeClass, topic_configs


def test_every_class_of_configs_is_used_and_counted_by_one_guard() -> None:
    used = {effect.of_class for each in topic_configs().values() for effect in each.changes.every}
    assert used == set(ChangeClass) - {ChangeClass.LOSES_ORDER}
    assert sorted((*LOSSES, *DISRUPTIONS)) == sorted(ChangeClass)


def test_changes_that_no_guard_counts_have_a_caution() -> None:
    """They stop consumers or idempotent producers, or the next failover."""
    cautioned = {name for name, each in topic_configs().items() if each.caution is not None}
    assert cautioned == {"message.downconversion.enable", "message.format.version", "min.insync.replicas"}


def test_a_default_is_one_of_the_accepted_values() -> None:
    for each in topic_configs().values():
        accepted = each.accepted
        if accepted.values:
            assert each.default in accepted.values, each.name
        if accepted.least is not None and each.default not in accepted.also:
            assert float(each.default) >= accepted.least, each.name
        assert set(each.changes.gains) <= {*(accepted.values or ("true", "false"))}, each.name
        assert set(each.changes.drops) <= set(accepted.values), each.name


@pytest.mark.parametrize("guard", [LOSSES, DISRUPTIONS])
def test_a_guard_counts_one_effect_of_a_direction_under_one_condition(guard: tuple[ChangeClass, ...]) -> None:
    for each in topic_configs().values():
        counted = [
            [effect for effect in effects if effect.of_class in guard] for effects in each.changes.by_direction.values()
        ]
        assert all(len(effects) <= 1 for effects in counted), each.name
        assert len({effect.compacted for effects in counted for effect in effects}) <= 1, each.name


def test_managed_services_are_those_that_a_check_of_clusters_names() -> None:
    services = {service for each in topic_configs().values() for service in each.editable_on}
    assert services
    assert services <= set(abilities._PROVIDERS.values())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"changes": {}}, "no direction has a class"),
        ({"changes": {"lowered": "bad luck"}}, "'bad luck' is not a valid ChangeClass"),
        ({"type": "float"}, "type float, unit None: one of these is unknown"),
        ({"sice": "1.0"}, "unknown keys: sice"),
    ],
)
def test_an_entry_without_class_or_with_unknown_keys_is_an_error(table: dict[str, object], message: str) -> None:
    entry = {"type": "int", "default": "1", "since": "1.0", "changes": {"any": "harmless"}, **table}
    with pytest.raises(ValueError, match=message):
        catalogue._config("x", entry)
