"""TLS and SASL against a real broker, with an authority of the test's own: who comes in, and what others are told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pyspark.sql import SparkSession

from tests import clusters, tokens
from tests.broker.direct import creates
from tests.certificates import Certificates
from tests.clusters import SASL_USERS
from tests.harness import Estate, cluster_settings, topics
from tests.waiting import until
from topicledger.config.oauth import OAuthSettings
from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin
from topicledger.kafka.connection import Connection
from topicledger_testing.embedded_kafka import EmbeddedKafka

USER = "creator"
PASSWORD = SASL_USERS[USER]
IN_TIME = 4.0
"""Seconds that are given to a connection that must fail."""

Options = Mapping[str, str]


def tls(trusted: Path) -> Options:
    return {"security_protocol": "SSL", "ssl_cafile": str(trusted)}


def mutual(certificates: Certificates) -> Options:
    return {**tls(certificates.authority), "ssl_certfile": str(certificates.client)}


def password(certificates: Certificates, mechanism: str, given: str = PASSWORD) -> Options:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificates.authority),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": given,
    }


def token(certificates: Certificates, provider: str = "valid") -> Options:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificates.authority),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": f"{tokens.__name__}:{provider}",
    }


@pytest.fixture(scope="module")
def secured(kafka_secured: EmbeddedKafka) -> EmbeddedKafka:
    """The broker, once it knows a user's SCRAM password (KIP-554)."""
    client = AdminClient({"bootstrap.servers": ",".join(kafka_secured.bootstrap_servers)})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for done in client.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())]
    ).values():
        done.result(30)
    return kafka_secured


def cluster(kafka: EmbeddedKafka, listener: str, options: Options) -> ClusterSettings:
    (address,) = kafka.addresses(listener)
    return cluster_settings("main", address, **options)


WAYS_IN: Mapping[str, Callable[[Certificates], Options]] = {
    "TLS": lambda certificates: tls(certificates.authority),
    "MUTUAL": mutual,
    "PASSWORD": lambda certificates: password(certificates, "PLAIN"),
    "SCRAM": lambda certificates: password(certificates, "SCRAM-SHA-512"),
    "TOKEN": token,
}


@pytest.mark.parametrize("listener", WAYS_IN)
def test_a_topic_is_created_and_seen_through_each_way_in(
    secured: EmbeddedKafka, authority: Certificates, listener: str
) -> None:
    """Without Spark: what a run's driver does."""
    name = f"security.seen.{listener.lower()}"
    settings = cluster(secured, listener, WAYS_IN[listener](authority))
    with ClusterAdmin(settings, KafkaSettings(connect_timeout=30.0)) as admin:
        created = admin.create_topics(creates([name], num_partitions=1, replication_factor=1), validate_only=False)
        assert created.results[name].error_code == 0
        until(lambda: name in {info.topic for info in admin.list_topics()}, seconds=30)


@pytest.mark.thorough
@pytest.mark.parametrize(("listener", "options"), WAYS_IN.items(), ids=WAYS_IN)
def test_topics_are_provisioned_through_each_way_in(
    spark: SparkSession,
    secured: EmbeddedKafka,
    authority: Certificates,
    tmp_path: Path,
    listener: str,
    options: Callable[[Certificates], Options],
) -> None:
    estate = Estate(spark, tmp_path / "ledger", {"main": cluster(secured, listener, options(authority))})
    name = f"security.{listener.lower()}"
    estate.declare(*topics([name]))
    assert estate.run(run_id="secure").exit_code == 0
    assert estate.audit("secure")[name, "apply"]["outcome"] == "ok"


@pytest.mark.skipif(clusters.VERSION < (4, 0), reason="brokers name the classes that validate tokens otherwise")
def test_brokers_validate_the_token_that_client_credentials_get(
    secured: EmbeddedKafka, authority: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTS_SECRET", tokens.CLIENT_SECRET)
    quick = KafkaSettings(connect_timeout=IN_TIME)
    tls_only = {"ssl_cafile": str(authority.authority)}
    with tokens.token_endpoint(authority.token_key, authority.server) as endpoint:
        oauth = OAuthSettings(
            token_endpoint=endpoint.address,
            client_id=tokens.CLIENT_ID,
            client_secret="env:EVENTS_SECRET",
            scope="kafka other",
            ca_file=str(authority.authority),
        )
        settings = replace(cluster(secured, "VALIDATED", tls_only), oauth=oauth)
        sent = ClusterSettings.from_json(settings.to_json())
        for each in (settings, sent):
            with ClusterAdmin(each, quick) as admin:
                assert admin.describe_cluster().cluster_id == secured.cluster_id
        assert endpoint.forms == ["grant_type=client_credentials&scope=kafka+other"]

        endpoint.audience = "another-service"
        strange = replace(settings, name="strange")
        for attempt in (1, 2):
            with pytest.raises(ClusterError, match=f"invalid_token|{UNHEARD}") as error:
                Connection(strange, quick)
            # A token that the brokers refused is not used again.
            assert len(endpoint.forms) == 1 + attempt
            assert tokens.CLIENT_SECRET not in f"{error.value!r} {settings!r} {settings.to_json()}"


UNHEARD = "a wrong user or password looks like this"
"""The broker's words and its closing the connection come together, and kafka-python may hear of the latter only."""

REFUSED: list[Any] = [
    pytest.param("TLS", lambda made: tls(made.stranger), "unable to get local issuer certificate", id="unknown CA"),
    pytest.param("TLS", lambda made: {}, "socket disconnected|Invalid frame length", id="no TLS"),
    pytest.param("EXPIRED", lambda made: tls(made.authority), "certificate has expired", id="expired"),
    pytest.param(
        "OTHERNAME",
        lambda made: tls(made.authority),
        "certificate is not valid for '127\\.0\\.0\\.1'",
        id="wrong host name",
    ),
    pytest.param("MUTUAL", lambda made: tls(made.authority), "alert bad certificate", id="no client certificate"),
    pytest.param(
        "PASSWORD",
        lambda made: password(made, "PLAIN", "not-the-password"),
        f"Invalid username or password|{UNHEARD}",
        id="wrong password",
    ),
    pytest.param(
        "SCRAM",
        lambda made: password(made, "SCRAM-SHA-512", "not-the-password"),
        f"invalid credentials|{UNHEARD}",
        id="wrong SCRAM password",
        marks=pytest.mark.thorough,
    ),
    pytest.param(
        "PASSWORD",
        lambda made: password(made, "SCRAM-SHA-512"),
        f"UnsupportedSaslMechanismError|{UNHEARD}",
        id="wrong mechanism",
        marks=pytest.mark.thorough,
    ),
    pytest.param("TOKEN", lambda made: token(made, "expired"), f"invalid_token|{UNHEARD}", id="expired token"),
]


@pytest.mark.parametrize(("listener", "options", "told"), REFUSED)
def test_a_rejected_client_learns_the_reason_in_time(
    secured: EmbeddedKafka,
    authority: Certificates,
    listener: str,
    options: Callable[[Certificates], Options],
    told: str,
) -> None:
    settings = cluster(secured, listener, options(authority))
    began = time.monotonic()
    with pytest.raises(ClusterError) as error:
        Connection(settings, KafkaSettings(connect_timeout=IN_TIME))
    assert time.monotonic() - began < IN_TIME + 5
    (address,) = settings.bootstrap_servers
    assert f"cluster main can't be reached at {address} within {IN_TIME:g} s" in str(error.value)
    assert re.search(told, str(error.value))
    assert "not-the-password" not in str(error.value)
