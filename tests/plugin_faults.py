"""Brokers behind a proxy that loses what passes, and the table of faults at the end of the test run; where several
processes test, those of each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.fault.proxy import FaultProxy
from tests.fault.told import FAULTS, Fault, table
from topicledger_testing.embedded_kafka import EmbeddedKafka

_REPORT = "TOPICLEDGER_FAULT_TABLE"
"""A file to write the table to as well."""
_HANDED_OVER = "faults"


@pytest.fixture
def proxy(kafka: EmbeddedKafka) -> Iterator[FaultProxy]:
    with FaultProxy(kafka) as made:
        yield made


@pytest.fixture
def proxy_sasl(kafka_sasl: EmbeddedKafka) -> Iterator[FaultProxy]:
    with FaultProxy(kafka_sasl) as made:
        yield made


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process that tests for another: hand over what was tried here."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_HANDED_OVER] = [asdict(fault) for fault in FAULTS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what a process that has ended tried; one that died has handed nothing over."""
    FAULTS.extend(Fault(**each) for each in getattr(node, "workeroutput", {}).get(_HANDED_OVER, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not FAULTS:
        return
    lines = list(table(FAULTS))
    terminalreporter.section("faults")
    terminalreporter.write_line("\n".join(lines))
    if os.environ.get(_REPORT):
        Path(os.environ[_REPORT]).write_text("\n".join(lines) + "\n", encoding="utf-8")
