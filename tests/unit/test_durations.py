"""Durations in options: numbers in the option's unit as before, or with a unit."""

from __future__ import annotations

import click
import pytest

from topicledger.cli.durations import Duration
from topicledger.cli.maintenance import maintain
from topicledger.cli.plans import prune
from topicledger.cli.provisioning import provision
from topicledger.serving.command import serve

SECONDS = Duration("s", least=1)


@pytest.mark.parametrize(
    ("given", "expected"), [("300", 300), ("1.5", 1.5), ("90s", 90), ("5m", 300), ("2h", 7_200), ("1d", 86_400)]
)
def test_a_duration_is_seconds_or_has_a_unit(given: str, expected: float) -> None:
    assert SECONDS.convert(given, None, None) == expected


@pytest.mark.parametrize("given", ["", "m", "0", "0.9", "-5m", "5x", "5 minutes", "5mm", "nan", "inf", "1e400"])
def test_an_invalid_duration_is_refused_with_examples(given: str) -> None:
    with pytest.raises(click.BadParameter, match="units are s, m, h and d, as in 7"):
        SECONDS.convert(given, None, None)


@pytest.mark.parametrize(
    ("command", "option", "given", "expected"),
    [
        (provision, "--deadline", ("300", "300s", "5m"), 300.0),
        (provision, "--wait-visible", ("60", "1m"), 60.0),
        (maintain, "--vacuum-hours", ("168", "168h", "7d"), 168),
        (maintain, "--audit-retention-days", ("7", "7d", "168h"), 7),
        (prune, "--idle-days", ("30", "30d", "720h"), 30),
    ],
)
def test_each_option_takes_numbers_and_units(
    command: click.Command, option: str, given: tuple[str, ...], expected: float
) -> None:
    for each in given:
        found = command.make_context("x", [option, each, "--config", __file__]).params[
            option.strip("-").replace("-", "_")
        ]
        assert (found, type(found)) == (expected, type(expected)), each


@pytest.mark.parametrize(
    ("command", "option", "longest"),
    [
        (provision, "--deadline", "3153600000"),
        (provision, "--wait-visible", "3153600000"),
        (serve, "--every", "3153600000"),
        (maintain, "--vacuum-hours", "876000"),
        (maintain, "--audit-retention-days", "36500"),
        (maintain, "--plans-retention-days", "36500"),
        (maintain, "--drift-retention-days", "36500"),
        (maintain, "--usage-retention-days", "36500"),
        (prune, "--idle-days", "36500"),
    ],
)
def test_a_century_is_the_longest_duration(command: click.Command, option: str, longest: str) -> None:
    """There is no date before the year 1, and no timer of a thousand years: the command failed amid its work."""
    command.make_context("x", [option, longest, "--config", __file__])
    for given in (str(int(longest) + 1), "36501d", "1000000d"):
        with pytest.raises(click.BadParameter, match=f"{given} is not a duration of .* at most {longest} "):
            command.make_context("x", [option, given, "--config", __file__])


@pytest.mark.parametrize(("option", "given"), [("--vacuum-hours", "30m"), ("--audit-retention-days", "36h")])
def test_parts_of_a_unit_are_refused(option: str, given: str) -> None:
    with pytest.raises(click.BadParameter, match="in whole"):
        maintain.make_context("x", [option, given, "--config", __file__])
