"""Clusters as fixtures: each is started when first asked for and shared by the whole run, so name topics uniquely."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import certificates, clusters
from tests.certificates import Certificates
from topicledger.testing.embedded_kafka import EmbeddedKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One plain broker."""
    with clusters.plain() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_three() -> Iterator[EmbeddedKafka]:
    """Three brokers in racks a, b, c."""
    with clusters.three_brokers() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_sasl() -> Iterator[EmbeddedKafka]:
    """One broker with SASL/PLAIN and ACLs, for `clusters.SASL_USERS`."""
    with clusters.with_sasl() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_policy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker that refuses topics named `forbidden.*`, and flush.ms above 1000."""
    with clusters.with_policy(tmp_path_factory.mktemp("policy")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_no_delete() -> Iterator[EmbeddedKafka]:
    """One broker that deletes no topics."""
    with clusters.without_deletes() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority, and what it issued."""
    return certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def kafka_secured(authority: Certificates) -> Iterator[EmbeddedKafka]:
    """One broker with listeners for TLS and for SASL over TLS."""
    with clusters.secured(authority) as cluster:
        yield cluster
