"""Config entries in brokers' answers of several kinds."""

from __future__ import annotations

from functools import lru_cache

from kafka.admin._configs import ConfigSourceType

from topicledger.model import ConfigEntry


def config_entry(name: str, value: str | None, read_only: bool, source: int, sensitive: bool) -> ConfigEntry:
    """Return one shared object for each distinct entry, without the value if it is sensitive.

    Most topics have the same thirty entries.
    """
    return _entry(name, None if sensitive else value, read_only, source, sensitive)


@lru_cache(maxsize=100_000)
def _entry(name: str, value: str | None, read_only: bool, source: int, sensitive: bool) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=value,
        read_only=bool(read_only),
        config_source=_source_name(source),
        is_sensitive=bool(sensitive),
    )


def _source_name(source: int) -> str:
    try:
        return str(ConfigSourceType(source).name)
    except ValueError:
        return "UNKNOWN"
