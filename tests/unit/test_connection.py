"""Messages about failed connections, and the time until they come."""

import logging
import socket
import threading
import time
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness import UNREACHABLE, cluster_settings
from topicledger.config.oauth import OAuthSettings
from topicledger.config.settings import KafkaSettings
from topicledger.errors import ClusterError
from topicledger.kafka import connection
from topicledger.kafka.connection import Connection, _last_words, known_principal
from topicledger.observe.cluster_queries import ClusterAccess
from topicledger.observe.topics import observe_cluster

TELLING = "SaslHandshake failed: UnsupportedSaslMechanismError"
LITTLE = ("Connection lost: KafkaTimeoutError", "Connection lost: KafkaConnectionError: socket disconnected")


def told(words: tuple[str, ...]) -> str:
    """Return the message that is kept of these, which come in this order."""
    kept = []

    def hear() -> None:
        log = logging.getLogger("kafka.net.connection")
        for each in words:
            log.error("<KafkaConnection node_id=bootstrap-0 host=[127.0.0.1:1<-2] (initializing)>: %s", each)
        kept.append(_last_words.by_thread[threading.current_thread()])

    hearing = threading.Thread(target=hear)
    hearing.start()
    hearing.join()
    return kept[0]


@pytest.mark.parametrize("words", list(permutations((TELLING, *LITTLE))))
def test_the_brokers_own_words_outlive_closed_connections_and_time_outs(words: tuple[str, ...]) -> None:
    assert told(words) == TELLING


@pytest.mark.parametrize("words", list(permutations(LITTLE)))
def test_a_closed_connection_tells_more_than_a_time_out(words: tuple[str, ...]) -> None:
    assert told(words) == LITTLE[1]


def test_the_last_of_equally_telling_messages_is_kept() -> None:
    assert told((TELLING, "alert bad certificate")) == "alert bad certificate"


def test_a_cluster_whose_every_address_refuses_connections_fails_at_once() -> None:
    """Not after `connect_timeout`, which is for brokers that are slow to answer."""
    began = time.monotonic()
    with pytest.raises(ClusterError) as failed:
        Connection(cluster_settings("away", UNREACHABLE), KafkaSettings(connect_timeout=120.0))
    assert time.monotonic() - began < 60
    assert str(failed.value) == (
        f"cluster away can't be reached at {UNREACHABLE}: each of these addresses refused the connection: "
        "check clusters.away in the settings, and that the brokers are up"
    )


def test_a_silent_address_ends_with_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError, match=r"within 1 s \("):
            Connection(cluster_settings("silent", address), KafkaSettings(connect_timeout=1.0))


OAUTH = OAuthSettings(
    token_endpoint="https://localhost:9/token", client_id="me", client_secret="env:PART", ca_file="\0"
)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"bootstrap_servers": ("a..b:9092",)}, "UnicodeError: "),
        ({"client": {"request_timeout_ms": 10**400}}, "OverflowError: "),
        ({"oauth": OAUTH}, "ValueError: embedded null byte"),
    ],
    ids=lambda each: "" if isinstance(each, str) else "".join(each),
)
def test_any_error_of_a_new_connection_is_an_error_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any], why: str
) -> None:
    """Any other error ends the run of all clusters. The settings refuse the first of these values."""
    monkeypatch.setenv("PART", "s3cr3t")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        cluster = replace(cluster_settings("odd", address), **odd)
        with pytest.raises(ClusterError) as failed:
            Connection(cluster, KafkaSettings(connect_timeout=1.0))
        (seen,) = observe_cluster(ClusterAccess(cluster=cluster, kafka=KafkaSettings(connect_timeout=1.0)))
    message = f"cluster odd can't be reached at {cluster.bootstrap_servers[0]}: {why}"
    assert str(failed.value).startswith(message)
    (row,) = seen.to_pylist()
    assert (row["cluster"], row["error"]) == ("odd", "CLUSTER_UNREACHABLE")
    assert row["error_message"].startswith(message)


def test_errors_of_a_new_connection_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PART", "s3cr3t")
    # Python's own code may quote it: int() does.
    monkeypatch.setattr(connection, "provider_of", lambda _: "s3cr3t")
    monkeypatch.setattr(connection, "options_with", int)
    cluster = replace(cluster_settings("odd", "localhost:9092"), oauth=OAUTH)
    with pytest.raises(ClusterError, match=r"at localhost:9092: ValueError: .* '\*\*\*'") as failed:
        Connection(cluster, KafkaSettings())
    assert "s3cr3t" not in f"{failed.value!r}"


SASL = {"security_protocol": "SASL_SSL", "sasl_plain_username": "KEY"}
CLOUD = "pkc-4nym6.us-east-1.aws.confluent.cloud"


@pytest.mark.parametrize(
    ("options", "hosts", "principal"),
    [
        ({"security_protocol": "PLAINTEXT", "sasl_mechanism": None}, ["kafka"], "User:ANONYMOUS"),
        ({"security_protocol": "SSL", "sasl_mechanism": None}, ["kafka"], None),
        ({**SASL, "sasl_mechanism": "OAUTHBEARER"}, ["kafka"], None),
        ({**SASL, "sasl_mechanism": "SCRAM-SHA-512"}, ["kafka"], "User:KEY"),
        ({**SASL, "sasl_mechanism": "PLAIN"}, ["kafka"], "User:KEY"),
        ({**SASL, "sasl_mechanism": "PLAIN"}, ["confluent.cloud.example.com"], "User:KEY"),
        ({**SASL, "sasl_mechanism": "PLAIN"}, [CLOUD], None),
        ({**SASL, "sasl_mechanism": "PLAIN"}, [f"{CLOUD.upper()}."], None),
        ({**SASL, "sasl_mechanism": "PLAIN"}, ["alias.example.com", f"b0-{CLOUD}"], None),
    ],
)
def test_principal_is_known_only_if_brokers_take_it_from_the_user_name(
    options: dict[str, str | None], hosts: list[str], principal: str | None
) -> None:
    assert known_principal(options, hosts) == principal


@pytest.mark.parametrize(("given", "principal"), [(None, None), ("User:sa-123abc", "User:sa-123abc")])
def test_api_key_is_not_the_principal_of_a_connection(given: str | None, principal: str | None) -> None:
    connection = Connection.__new__(Connection)
    connection._principal, connection._bootstrap_servers = given, f"{CLOUD}:9092"
    connection._admin = SimpleNamespace(config={**SASL, "sasl_mechanism": "PLAIN"})
    connection._manager = SimpleNamespace(cluster=SimpleNamespace(brokers=lambda: [SimpleNamespace(host="10.0.0.1")]))
    assert connection.principal == principal
