"""Clusters as fixtures: each is started when first asked for and shared by a process's tests, so name topics uniquely.

Those that few files use end with their file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests import certificates, clusters
from tests.broker import acls, quotas
from tests.broker.direct import admin_of
from tests.certificates import Certificates
from tests.waiting import until
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.names import AclAction
from topicledger.resources.quotas import requests as quota_requests
from topicledger.resources.quotas.entity import Entity
from topicledger.resources.quotas.names import QuotaAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

_UNIT = Path(__file__).with_name("unit")
_running: list[EmbeddedKafka] = []


class _ByFile(LoadFileScheduling):
    """One process runs all files that use `kafka_three`: three brokers for each process took 5 % of a run's CPU."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "kafka_three" if _uses_three(self.config.rootpath / file) else file


@cache
def _uses_three(file: Path) -> bool:
    return "kafka_three" in file.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile | None:
    return _ByFile(config, log) if config.option.dist == "loadfile" else None


@contextmanager
def _started(cluster: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    with cluster:
        _running.append(cluster)
        yield cluster


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop all clusters before unit tests, which need none and come last: 15 idle brokers took a fifth of a core."""
    if item.path.is_relative_to(_UNIT):
        while _running:
            _running.pop().stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One plain broker."""
    with _started(clusters.plain()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_three() -> Iterator[EmbeddedKafka]:
    """Three brokers in racks a, b, c."""
    with _started(clusters.three_brokers()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_sasl() -> Iterator[EmbeddedKafka]:
    """One broker with SASL/PLAIN and ACLs, for `clusters.SASL_USERS`."""
    with _started(clusters.with_sasl()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker that refuses topics named `forbidden.*`, and flush.ms above 1000."""
    with _started(clusters.with_policy(tmp_path_factory.mktemp("policy"))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_no_delete() -> Iterator[EmbeddedKafka]:
    """One broker that deletes no topics."""
    with _started(clusters.without_deletes()) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority, and what it issued."""
    return certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka_secured(authority: Certificates) -> Iterator[EmbeddedKafka]:
    """One broker with listeners for TLS and for SASL over TLS."""
    with _started(clusters.secured(authority)) as cluster:
        yield cluster


@pytest.fixture
def kafka_acls(kafka_sasl: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The SASL broker; no principal `User:rights...` has an ACL."""
    yield kafka_sasl
    with admin_of(kafka_sasl) as admin:
        left = [each for each in acl_requests.describe_acls(admin) if each.principal.startswith("User:rights")]
        if left:
            gone = enumerate(left)
            acl_requests.delete_acls(
                admin, [Target(resource=str(n), action=AclAction.ACL_DELETE, before=a._asdict()) for n, a in gone]
            )
    until(lambda: not acls.live(kafka_sasl, "User:rights"), seconds=30)


@pytest.fixture
def kafka_quotas(kafka_sasl: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The broker, without quotas but for those of one user that no test declares."""
    quotas.alter(kafka_sasl, Entity(user="stranger"), producer_byte_rate=77.0)
    yield kafka_sasl
    left = {entity: limits for entity, limits in quotas.live(kafka_sasl).items() if limits}
    with admin_of(kafka_sasl) as admin:
        for start in range(0, len(left), 2_000):
            part = list(left.items())[start : start + 2_000]
            gone = [
                Target(resource=quotas.text(entity), action=QuotaAction.ALTER_QUOTA, before=dict.fromkeys(limits, "1"))
                for entity, limits in part
            ]
            assert {
                each.error_code
                for each in quota_requests.alter_quotas(admin, gone, validate_only=False).results.values()
            } == {0}
    until(lambda: not quotas.live(kafka_sasl), seconds=30)
