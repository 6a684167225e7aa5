"""The session's settings stand in two places: for spark-submit, and for sessions that it didn't start."""

from __future__ import annotations

from pathlib import Path

from topicledger.session import DEFAULTS

CONF = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"


def test_spark_defaults_conf_says_what_the_package_says() -> None:
    lines = [line.split(maxsplit=1) for line in CONF.read_text().splitlines() if line and not line.startswith("#")]
    said = {key: value.strip() for key, value in lines}
    assert {key: said.get(key) for key in DEFAULTS} == dict(DEFAULTS)
