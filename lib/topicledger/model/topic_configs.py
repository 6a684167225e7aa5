"""The catalogue of topic configs: the meaning of each one, and the effects of changes.

`topic_configs.toml` has the data, a table per config:

- `type`: boolean, int, long, double, string or list (a set, separated by commas).
- `unit`: ms or bytes, for numbers that have one.
- `values`: the only values that are accepted, of a list: the only elements. `least`, `most`: limits of a number;
  `also`: values beside these limits. `pattern`: a regular expression for the whole value, in the syntax that Python and
  ECMAScript share; `form`: what it says.
- `at_most`: the config that it may not exceed, but for `least`, if that is negative, which stands for its value;
  `at_most_with`: only with these values of others; `same_with`: with these, too, it must be the same. `never_with`:
  values of other configs that brokers refuse with `true`.
- `default`: of a broker without settings. `since`, `until`: first and last version of Kafka that has the config.
- `defaults_since`, `leasts_since`: what a version of Kafka changed, by version. `ignored_since`: the version from which
  on brokers accept it without using it.
- `changes`: what each direction of a change can do (`Changes`): a class, or a table with `class`, `effect` (words for
  this config), `from`, `below` and `compacted`; a list of these if both guards count it. `any = "harmless"` says that
  no direction can do anything.
- `editable_on`: the managed services that document which configs users may set, and have this one among them.
- `caution`: what every change of it does, for the warning of a plan; no guard counts it.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from topicledger.text import similar

ConfigType: TypeAlias = Literal["boolean", "int", "long", "double", "string", "list"]
Unit: TypeAlias = Literal["ms", "bytes"]


class ChangeClass(StrEnum):
    """Classes of the effects of changes, the worst first. A change that is in none of these classes is harmless."""

    LOSES_DATA = "loses data"
    LESS_SAFE = "less safe"
    LOSES_ORDER = "loses order"
    REFUSES_WRITES = "refuses writes"
    MAY_FILL_DISKS = "may fill disks"


LOSSES = (ChangeClass.LOSES_DATA, ChangeClass.LESS_SAFE, ChangeClass.LOSES_ORDER)
"""The classes that `guards.max_losses` counts."""
DISRUPTIONS = (ChangeClass.REFUSES_WRITES, ChangeClass.MAY_FILL_DISKS)
"""The classes that `guards.max_disruptions` counts."""
EFFECTS: Mapping[ChangeClass, str] = {
    ChangeClass.LOSES_DATA: "can lose data at once",
    ChangeClass.LESS_SAFE: "keeps data less safely",
    ChangeClass.LOSES_ORDER: "loses the order of keys",
    ChangeClass.REFUSES_WRITES: "can refuse records that producers send",
    ChangeClass.MAY_FILL_DISKS: "may fill disks",
}
"""Words of plans and guards for a change of each class."""
HARMLESS = "harmless"
NO_LIMIT = 10**15
"""A number from which on a limit limits nothing: 31,000 years in ms, a petabyte in bytes."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The effect of a direction of a change."""

    of_class: ChangeClass
    words: str
    at_least: str | None = None
    """The lowest number that does it, or `replicas`: from the number of replicas on, if the topic has several, or above
    it; None: any number does."""
    below: str | None = None
    """The config below whose value a number does it; None: any number does."""
    compacted: bool = False
    """Whether only compacted topics have it."""


Effects: TypeAlias = tuple[Effect, ...]
"""The effects of a direction of a change, at most one for each guard."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The effects of changes of a config, by direction."""

    lowered: Effects = ()
    """A lower number. A negative one is no limit, so the highest."""
    raised: Effects = ()
    unlimited: Effects = ()
    """A negative number, or at least `NO_LIMIT`, if there was a limit."""
    emptied: Effects = ()
    """A list without elements."""
    gains: Mapping[str, Effects] = field(default_factory=dict)
    """A value, or an element of a list, that wasn't there."""
    drops: Mapping[str, Effects] = field(default_factory=dict)
    """An element of a list that was there."""

    @property
    def by_direction(self) -> Mapping[str, Effects]:
        """The effects of the directions that have any, by words for the direction."""
        found = {name: getattr(self, name) for name in ("lowered", "raised", "unlimited", "emptied")}
        found |= {f"gets {value}": effects for value, effects in self.gains.items()}
        found |= {f"loses {value}": effects for value, effects in self.drops.items()}
        return {direction: effects for direction, effects in found.items() if effects}

    @property
    def every(self) -> Effects:
        """The effects of all directions."""
        return tuple(each for effects in self.by_direction.values() for each in effects)


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The values that brokers accept."""

    values: tuple[str, ...]
    """The only values, or elements; empty: any."""
    pattern: str | None
    """A regular expression for the whole value."""
    form: str | None
    """What `pattern` says, for people."""
    least: int | None
    most: int | None
    also: tuple[str, ...]
    """Values beside `least` and `most`."""
    leasts_since: Mapping[str, int]
    """Kafka's version -> `least` from then on."""
    at_most: str | None
    """The config that it may not exceed."""
    at_most_with: Mapping[str, str]
    """Config -> the value with which brokers check `at_most`; empty: they always do."""
    same_with: Mapping[str, str]
    """Config -> the value with which, beside those of `at_most_with`, it must be the same as `at_most`."""
    never_with: Mapping[str, str]
    """Config -> the value, or element, that brokers refuse if this config is `true`."""

    def least_in(self, version: Version) -> int | None:
        """Return the lowest number that brokers of this version accept; None: any."""
        return _latest(self.leasts_since, version, self.least)


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """A topic config."""

    name: str
    type: ConfigType
    unit: Unit | None
    accepted: Accepted
    default: str
    since: str
    """The first version of Kafka that has it."""
    until: str | None
    """The last version of Kafka that has it; None: every later one."""
    defaults_since: Mapping[str, str]
    """Kafka's version -> the default from then on."""
    changes: Changes
    editable_on: tuple[str, ...]
    """Managed services on which users may set it, of those that document which configs these are."""
    ignored_since: str | None = None
    """The version from which on brokers accept it without using it."""
    caution: str | None = None
    """The effect of every change of it, with advice."""

    @property
    def words(self) -> str:
        """The type, with the unit if it has one."""
        return self.type if self.unit is None else f"{self.type}, {self.unit}"

    def known_in(self, version: Version) -> bool:
        """Whether brokers of this version of Kafka have it."""
        return version_of(self.since) <= version and (self.until is None or version[:2] <= version_of(self.until))

    def default_in(self, version: Version) -> str:
        """Return the default of brokers of this version."""
        return _latest(self.defaults_since, version, self.default)


Version: TypeAlias = tuple[int, ...]
"""A version of Kafka, such as (4, 0)."""
_Value = TypeVar("_Value")


def version_of(text: str) -> Version:
    """Return the version of a text such as `4.0`; raises ValueError for another text."""
    return tuple(map(int, text.split(".")))


def _latest(since: Mapping[str, _Value], version: Version, earliest: _Value) -> _Value:
    """Return the value of the latest version up to `version`; `earliest` if all are later."""
    found = [(version_of(each), value) for each, value in since.items() if version_of(each) <= version]
    return max(found, key=lambda each: each[0])[1] if found else earliest


@functools.cache
def topic_configs() -> Mapping[str, TopicConfig]:
    """Return the configs by name, in alphabetical order."""
    text = resources.files(__package__).joinpath("topic_configs.toml").read_text(encoding="utf-8")
    return {name: _config(name, table) for name, table in sorted(tomllib.loads(text).items())}


def misspelt(name: str) -> str:
    """Return "did you mean `x`?" for an unknown name that is like that of a config; "" for any other name.

    An unknown name that is like none may be of a newer Kafka, or of a fork.
    """
    return "" if name in topic_configs() else similar(name, topic_configs())


def _config(name: str, table: dict[str, Any]) -> TopicConfig:
    of_type, unit = table.pop("type"), table.pop("unit", None)
    if of_type not in get_args(ConfigType) or unit not in (None, *get_args(Unit)):
        raise ValueError(f"topic_configs.toml: {name}: type {of_type}, unit {unit}: one of these is unknown")
    found = TopicConfig(
        name=name,
        type=of_type,
        unit=unit,
        accepted=Accepted(
            values=tuple(table.pop("values", ())),
            pattern=table.pop("pattern", None),
            form=table.pop("form", None),
            least=table.pop("least", None),
            most=table.pop("most", None),
            also=tuple(table.pop("also", ())),
            leasts_since=table.pop("leasts_since", {}),
            at_most=table.pop("at_most", None),
            at_most_with=table.pop("at_most_with", {}),
            same_with=table.pop("same_with", {}),
            never_with=table.pop("never_with", {}),
        ),
        default=table.pop("default"),
        since=table.pop("since"),
        until=table.pop("until", None),
        defaults_since=table.pop("defaults_since", {}),
        changes=_changes(name, table.pop("changes")),
        editable_on=tuple(table.pop("editable_on", ())),
        ignored_since=table.pop("ignored_since", None),
        caution=table.pop("caution", None),
    )
    if table:
        raise ValueError(f"topic_configs.toml: {name}: unknown keys: {', '.join(table)}")
    return found


def _changes(name: str, table: dict[str, Any]) -> Changes:
    if table == {"any": HARMLESS}:
        return Changes()
    gains, drops = (
        {value: _effects(each) for value, each in table.pop(direction, {}).items()} for direction in ("gains", "drops")
    )
    found = Changes(gains=gains, drops=drops, **{direction: _effects(each) for direction, each in table.items()})
    if not found.every:
        raise ValueError(
            f'topic_configs.toml: {name}: no direction has a class; write changes = {{ any = "harmless" }}'
        )
    return found


def _effects(given: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]) -> Effects:
    return tuple(_effect(each) for each in ([given] if isinstance(given, str | Mapping) else given))


def _effect(given: str | Mapping[str, Any]) -> Effect:
    table = {"class": given} if isinstance(given, str) else {**given}
    of_class, at_least = ChangeClass(table.pop("class")), table.pop("from", None)
    return Effect(
        of_class=of_class,
        words=table.pop("effect", EFFECTS[of_class]),
        at_least=None if at_least is None else str(at_least),
        **table,
    )
