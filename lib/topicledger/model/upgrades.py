"""Effects of an upgrade of Kafka on configs of topics, by the catalogue of topic configs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from topicledger.errors import UsageError
from topicledger.model.config_texts import BLANKS, shown
from topicledger.model.topic_configs import TopicConfig, Version, topic_configs, version_of
from topicledger.text import show

_LAST_MINORS = {1: 1, 2: 8, 3: 9}


class UpgradeEffect(StrEnum):
    """Whether a version refuses a config, or gives it another meaning."""

    BREAKS = "breaks"
    CHANGES = "changes"


@dataclass(frozen=True, kw_only=True)
class UpgradeReason:
    """The effect of a version on a config's value."""

    effect: UpgradeEffect
    message: str


def newest() -> Version:
    """Return the newest version of Kafka that the catalogue knows."""
    return max(version_of(version) for config in topic_configs().values() for version in _versions(config))


def checked_version(text: str) -> Version:
    """Return the version of a text such as `4.4`; raises UsageError if it is none, or newer than the catalogue."""
    version = version_of(text) if re.fullmatch(r"[1-9]\d{0,3}(\.\d{1,4}){1,2}", text, re.ASCII) else ()
    if not version:
        raise UsageError(f"--for-kafka {show(text)}: write a version such as {as_text(newest())}")
    if version[1] > _LAST_MINORS.get(version[0], version[1]):
        raise UsageError(
            f"--for-kafka {show(text)}: Kafka {version[0]} ends with {version[0]}.{_LAST_MINORS[version[0]]}"
        )
    if version[:2] > newest():
        raise UsageError(
            f"--for-kafka {show(text)}: the newest version in the catalogue of configs is {as_text(newest())}"
        )
    return version


def as_text(version: Version) -> str:
    """Return a version as Kafka writes it."""
    return ".".join(map(str, version))


def concerned(version: Version) -> Sequence[str]:
    """Return the names of configs on which a version may have an effect."""
    return [
        name
        for name, config in topic_configs().items()
        if not config.known_in(version)
        or config.accepted.leasts_since
        or config.defaults_since
        or config.ignored_since is not None
    ]


def of_value(name: str, value: str, version: Version) -> UpgradeReason | None:
    """Return the effect of a version on a value that a topic or a manifest sets; None if it has none.

    Configs that the catalogue lacks have none.
    """
    config = topic_configs().get(name)
    if config is None:
        return None
    if not config.known_in(version):
        return UpgradeReason(effect=UpgradeEffect.BREAKS, message=_unknown(config, version))
    if (reason := of_limit(name, value, version)) is not None:
        return reason
    if config.ignored_since is not None and version >= version_of(config.ignored_since):
        message = f"{name}: Kafka {as_text(version)} accepts it and ignores it"
        return UpgradeReason(effect=UpgradeEffect.CHANGES, message=message)
    return None


def of_limit(name: str, value: str, version: Version) -> UpgradeReason | None:
    """Return the effect of a version on a value that a broker's settings give to topics; None if it has none.

    Brokers ignore settings that they don't know, so topics lose the value; they start with none out of its limits.
    """
    config = topic_configs().get(name)
    if config is None:
        return None
    if not config.known_in(version):
        lost = f"{_unknown(config, version)}, so topics lose the broker's value {shown(name, value)}"
        return None if value == config.default else UpgradeReason(effect=UpgradeEffect.CHANGES, message=lost)
    trimmed = value.strip(BLANKS)
    if config.type not in ("int", "long") or trimmed in config.accepted.also:
        return None
    least = config.accepted.least_in(version)
    try:
        refused = least is not None and int(trimmed) < least
    except ValueError:
        return None
    if not refused:
        return None
    accepts = f"Kafka {as_text(version)} accepts {shown(name, str(least))} or more"
    return UpgradeReason(effect=UpgradeEffect.BREAKS, message=f"{name}: {accepts}, and this is {shown(name, value)}")


def of_default(name: str, value: str, version: Version) -> UpgradeReason | None:
    """Return the effect of a version on a topic that has the broker's built-in default `value`; None if it has none."""
    config = topic_configs().get(name)
    if config is None or not config.defaults_since or not config.known_in(version):
        return None
    default = config.default_in(version)
    if default in (value, ""):
        return None
    message = f"{name}: the default is {shown(name, default)} in Kafka {as_text(version)}, and {shown(name, value)} now"
    return UpgradeReason(effect=UpgradeEffect.CHANGES, message=message)


def replaced_defaults(version: Version) -> Mapping[str, str]:
    """Return the earliest default of each config with a newer default in a version, by name."""
    every = topic_configs().values()
    return {each.name: each.default for each in every if each.default and of_default(each.name, each.default, version)}


def _unknown(config: TopicConfig, version: Version) -> str:
    later = version_of(config.since) > version
    why = f"has it since {config.since}" if later else f"dropped it: {config.until} is the last with it"
    return f"{config.name}: Kafka {as_text(version)} doesn't know it (Kafka {why})"


def _versions(config: TopicConfig) -> list[str]:
    until = [] if config.until is None else [config.until]
    return [config.since, *until, *config.defaults_since, *config.accepted.leasts_since]
