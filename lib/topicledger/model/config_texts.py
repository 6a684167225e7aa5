"""Values of topic configs as people write and read them: `7d` for 604800000, `1GiB` for 1073741824.

Files may have units; tables and Kafka have plain numbers. Which config has which unit, and what it accepts, is in the
catalogue (`topic_configs`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping

from topicledger.model.topic_configs import TopicConfig, Unit, topic_configs
from topicledger.text import show

BLANKS = "".join(map(chr, range(0x21)))
"""Characters that Java's `String.trim` removes."""
_DURATIONS: Mapping[str, int] = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_BINARY: Mapping[str, int] = {"TiB": 1024**4, "GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}
_DECIMAL: Mapping[str, int] = {"TB": 1000**4, "GB": 1000**3, "MB": 1000**2, "kB": 1000, "B": 1}
UNITS: Mapping[Unit, Mapping[str, int]] = {"ms": _DURATIONS, "bytes": {**_BINARY, **_DECIMAL}}
"""Units that files may write after a number, by the config's unit, the largest first."""
_EXAMPLES: Mapping[Unit, str] = {"ms": "a duration such as 7d or 12h", "bytes": "a size such as 1GiB or 500MB"}
COMMA = r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*"
"""Separates the elements of a list: Kafka removes fewer characters around a comma than around the whole value."""
_COMMA = re.compile(COMMA)
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_OTHER_DIGITS = re.compile(r"[^\x00-\x7f]|[+-]?0[xX]")
"""Matches numbers that Java reads, in digits of other scripts or of base 16."""
_UNSIGNED = re.compile(r"\+?0*([0-9]+)")
_EXACT = re.compile(r"[1-9][0-9]{0,17}")
"""Matches numbers that come back as they were if they are written with a unit."""
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_PAIRED = {
    name for name, each in topic_configs().items() if each.accepted.at_most is not None or each.accepted.never_with
}
_MOST_DIGITS = 39
"""Longest number that is read, with sign and point."""
MAXIMA = {"int": 2**31 - 1, "long": 2**63 - 1}
"""The highest number of each type."""


class ConfigTextError(ValueError):
    """A text isn't a value of its config; str() says why and what to write."""


@functools.lru_cache(maxsize=4096)
def stored(name: str, text: str) -> str:
    """Return the value that tables have for a config's text in a file: units become Kafka's plain number.

    Texts without a unit stay as they are written. Raises ConfigTextError if no version of Kafka that the catalogue
    knows accepts the value. Configs that the catalogue lacks aren't checked.
    """
    config = topic_configs().get(name)
    if config is None:
        return text
    trimmed = text.strip(BLANKS)
    if config.type in ("int", "long"):
        return _whole(config, text, trimmed)
    if config.type == "double":
        found = _DOUBLE.fullmatch(trimmed)
        if found is None or not math.isfinite(float(found[1])):
            raise ConfigTextError(f"is {_quoted(text)}; write a number{_in_digits(trimmed)}")
        _require_in_limits(config, text, float(found[1]))
    elif config.type == "boolean":
        if trimmed.lower() not in ("true", "false") or not trimmed.isascii():
            raise ConfigTextError(f"is {_quoted(text)}; write true or false")
    elif config.accepted.values:
        parts = [trimmed] if config.type == "string" else _COMMA.split(trimmed) if trimmed else []
        if not all(part in config.accepted.values for part in parts):
            raise ConfigTextError(f"is {_quoted(text)}; Kafka accepts {', '.join(config.accepted.values)}")
    elif config.accepted.pattern and not re.fullmatch(config.accepted.pattern, trimmed):
        raise ConfigTextError(f"is {_quoted(text)}; write {config.accepted.form}")
    return text


def without_unit(name: str, text: str) -> str:
    """Return the value of another resource's config, whose unit only its name tells; ConfigTextError if it has one."""
    found = _WITH_UNIT.fullmatch(text.strip(BLANKS))
    for unit, units in UNITS.items():
        if found is not None and found[2] in units and name.endswith(f".{unit}"):
            raise ConfigTextError(f"is {_quoted(text)}; write a plain number of {unit}, without a unit")
    return text


def refused_together(configs: Mapping[str, str]) -> str | None:
    """Return why no version of Kafka accepts these values of configs together; None if the catalogue knows no reason.

    In: values that `stored` accepted.
    """
    for name in configs.keys() & _PAIRED:
        accepted, value = topic_configs()[name].accepted, configs[name].strip(BLANKS)
        most = configs.get(accepted.at_most or "", "").strip(BLANKS)
        if _have(configs, accepted.at_most_with) and _WHOLE.fullmatch(value) and _WHOLE.fullmatch(most):
            number, limit, both = int(value), int(most), f"{accepted.at_most}, {shown(name, most)}"
            # A negative `least` stands for the limit.
            if number < 0 and number == accepted.least:
                continue
            if limit >= 0 and not 0 <= number <= limit:
                return f"configs: {name} is {shown(name, value)}, more than {both}"
            if accepted.same_with and number != limit and _have(configs, accepted.same_with):
                why = " and ".join(f"{other}={text}" for other, text in accepted.same_with.items())
                return f"configs: {name} is {shown(name, value)}; with {why}, it must be the same as {both}"
        for other, refused in accepted.never_with.items() if value.lower() == "true" else ():
            if refused in _COMMA.split(configs.get(other, "").strip(BLANKS)):
                return f"configs: {name} is {value}, with which brokers refuse {refused} in {other}"
    return None


def _have(configs: Mapping[str, str], values: Mapping[str, str]) -> bool:
    return all(configs.get(name, "").strip(BLANKS).lower() == text for name, text in values.items())


def _whole(config: TopicConfig, text: str, trimmed: str) -> str:
    if _WHOLE.fullmatch(trimmed):
        _require_in_limits(config, text, int(trimmed) if len(trimmed) <= _MOST_DIGITS else None)
        return text
    number = _counted(config, text, trimmed)
    _require_in_limits(config, text, number)
    return str(number)


def _counted(config: TopicConfig, text: str, trimmed: str) -> int | None:
    """Return the number that a text with a unit stands for; None if it is too long to be one."""
    found = None if config.unit is None else _WITH_UNIT.fullmatch(trimmed)
    units = {} if config.unit is None else UNITS[config.unit]
    if found is None or found[2] not in units:
        or_unit = "" if config.unit is None else f" or {_EXAMPLES[config.unit]}"
        known = "" if found is None else f" (units: {', '.join(units)})"
        raise ConfigTextError(f"is {_quoted(text)}; write a whole number{_in_digits(trimmed)}{or_unit}{known}")
    if len(found[1]) > _MOST_DIGITS:
        return None
    whole, _, part = found[1].partition(".")
    number, rest = divmod(int(whole + part) * units[found[2]], int(10 ** len(part)))
    if rest:
        raise ConfigTextError(f"is {_quoted(text)}, which is no whole number of {config.unit}")
    return number


def _require_in_limits(config: TopicConfig, text: str, number: float | None) -> None:
    """`number` is None if it is too long to be one."""
    accepted = config.accepted
    least = -MAXIMA[config.type] - 1 if accepted.least is None else accepted.least
    most = MAXIMA[config.type] if accepted.most is None else accepted.most
    if number is None or not (least <= number <= most or text.strip(BLANKS) in accepted.also):
        also = "".join(f" or {each}" for each in accepted.also)
        raise ConfigTextError(f"is {_quoted(text)}; Kafka accepts {least} to {most}{also}")


def _in_digits(text: str) -> str:
    return " in the digits 0 to 9" if _OTHER_DIGITS.match(text) else ""


def _quoted(text: str) -> str:
    return f'"{show(text)}"'


@functools.lru_cache(maxsize=4096)
def shown(name: str | None, value: str) -> str:
    """Return a config's value for people, with its unit if it has one: `7d (604800000)`."""
    plain = _UNSIGNED.fullmatch(value.strip(BLANKS))
    found = with_unit(name, value if plain is None else plain[1])
    return value if found is None else f"{found} ({value})"


def with_unit(name: str | None, value: str) -> str | None:
    """Return a config's value as the smallest whole number of a unit above the first; None if there is none."""
    config = topic_configs().get(name or "")
    if config is None or config.unit is None or not _EXACT.fullmatch(value):
        return None
    number = int(value)
    exact = [(number // size, unit) for unit, size in UNITS[config.unit].items() if size > 1 and number % size == 0]
    # Binary units come first: the first of equal ones is kept.
    return "{}{}".format(*min(exact, key=lambda each: each[0])) if exact else None


_VALUES = re.compile(
    r"(?P<name>[a-z][a-z.]*[.](?:ms|bytes))"
    r"(?P<values>(?:[ =]|[:,] (?:declared|live) )(?:[+-]?\d+|default|unknown)(?:(?: -> |, live )(?:[+-]?\d+|default))?"
    r"| is [+-]?\d+(?:, [a-z' ]+)?(?:; allowed is (?:any|-?\d+) to (?:any|-?\d+))?)(?![\w.])"
)


def with_units(text: str) -> str:
    """Return a text for people, with units at the values of configs.

    They are found in `NAME=VALUE`, `NAME VALUE -> VALUE`, `NAME: declared VALUE, live VALUE` and, as policies write
    them, `NAME is VALUE; allowed is VALUE to VALUE`.
    """

    def replaced(found: re.Match[str]) -> str:
        return found["name"] + re.sub("[+-]?[0-9]+", lambda each: shown(found["name"], each[0]), found["values"])

    return _VALUES.sub(replaced, text)
