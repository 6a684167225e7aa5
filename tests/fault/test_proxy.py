"""The proxy passes everything on, and injects exactly the requested faults."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from tests.broker.direct import live
from tests.fault.proxy import CREATE_TOPICS, CUT, DELETE_TOPICS, DROP, METADATA, FaultProxy, Frame, delay, hold, refuse
from tests.waiting import until
from topicledger_testing.embedded_kafka import HOST, EmbeddedKafka

API_VERSIONS = ApiVersionsRequest.API_KEY
SHORT = 1.0
"""Seconds that the client waits for an answer."""


def admin_of(proxy: FaultProxy) -> closing[Any]:
    options = {"client_id": "tests", "request_timeout_ms": round(SHORT * 1000), "bootstrap_timeout_ms": 10_000}
    return closing(KafkaAdminClient(**proxy.client_options(), **options))


def create(admin: Any, name: str, *, validate_only: bool = False) -> int:
    """Send a create and return the error code of its answer."""
    spec = {"num_partitions": 1, "replication_factor": 1}
    answer = admin.create_topics({name: spec}, validate_only=validate_only, raise_errors=False)
    return int(answer["topics"][0]["error_code"])


def connection_to(address: str) -> socket.socket:
    return socket.create_connection((HOST, int(address.rpartition(":")[2])), timeout=10)


def metadata_request() -> Any:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def seconds_of(action: Callable[[], object]) -> float:
    start = time.monotonic()
    action()
    return time.monotonic() - start


def test_proxy_passes_everything_and_keeps_the_client(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """Also with `describe_cluster`, whose own response contains addresses."""
    with admin_of(proxy) as admin:
        described = admin.describe_cluster()
        assert create(admin, "proxied.one") == 0
        found = admin.describe_topics(["proxied.one"])
    assert described["cluster_id"] == kafka.cluster_id
    assert [f"{each['host']}:{each['port']}" for each in described["brokers"]] == proxy.bootstrap_servers
    assert found[0]["error_code"] == 0
    until(lambda: "proxied.one" in live(kafka, "proxied."), seconds=20)


def test_coordinators_are_at_the_address_of_the_proxy(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """FindCoordinator returns addresses, too; a missing coordinator stays missing."""
    with admin_of(proxy) as admin:

        def coordinator() -> Any:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["proxied.group"], min_version=4)
            return admin._manager.run(admin._manager.send, request).coordinators[0]

        until(lambda: coordinator().error_code == 0, seconds=30)
        assert f"{coordinator().host}:{coordinator().port}" in proxy.bootstrap_servers


def test_proxy_stands_for_each_of_three_brokers(kafka_three: EmbeddedKafka) -> None:
    with FaultProxy(kafka_three) as proxy, admin_of(proxy) as admin:
        brokers = admin.describe_cluster()["brokers"]
        for broker in brokers:
            admin._manager.run(admin._manager.send, metadata_request(), broker["broker_id"])
        assert sorted(f"{each['host']}:{each['port']}" for each in brokers) == sorted(proxy.bootstrap_servers)
        assert {frame.broker for frame in proxy.seen if frame.api_key == METADATA} == {1, 2, 3}


def test_users_with_passwords_can_connect(kafka_sasl: EmbeddedKafka) -> None:
    with FaultProxy(kafka_sasl) as proxy, admin_of(proxy) as admin:
        assert create(admin, "proxied.secret") == 0


def test_long_frame_passes_unchanged(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """The test covers both directions."""
    specs = {f"proxied.many.{n:05}": {"num_partitions": 1, "replication_factor": 1} for n in range(4_000)}
    with closing(KafkaAdminClient(**proxy.client_options())) as admin:
        answer = admin.create_topics(specs, validate_only=True, raise_errors=False)
    assert {topic["error_code"] for topic in answer["topics"]} == {0}
    assert {topic["name"] for topic in answer["topics"]} == set(specs)


def test_frames_are_counted_by_kind_and_direction(proxy: FaultProxy) -> None:
    """A response counts by its request; validateOnly can be counted separately."""
    with admin_of(proxy) as admin:
        create(admin, "counted.a", validate_only=True)
        create(admin, "counted.a")
        create(admin, "counted.b", validate_only=True)
    creates = [frame for frame in proxy.seen if frame.api_key == CREATE_TOPICS]
    assert [(frame.direction, frame.n, frame.validate_only, frame.client_id) for frame in creates] == [
        ("request", 1, True, "tests"),
        ("response", 1, True, "tests"),
        ("request", 2, False, "tests"),
        ("response", 2, False, "tests"),
        ("request", 3, True, "tests"),
        ("response", 3, True, "tests"),
    ]
    assert proxy.count(CREATE_TOPICS, "request") == 3
    assert proxy.count(CREATE_TOPICS, "request", validate_only=False) == 1
    assert proxy.count(DELETE_TOPICS, "request") == 0


def test_dropped_request_never_arrives_but_dropped_response_has_effect(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """The client waits for its usual time; a new connection works."""
    proxy.on(CREATE_TOPICS, "request", nth=1, do=DROP)
    proxy.on(CREATE_TOPICS, "response", nth=1, do=DROP)
    with admin_of(proxy) as admin:
        for name in ("dropped.request", "dropped.response"):
            with pytest.raises(KafkaError, match="timed out"):
                create(admin, name)
        assert create(admin, "dropped.neither") == 0
        until(lambda: "dropped.neither" in live(kafka, "dropped."), seconds=20)
        assert sorted(live(kafka, "dropped.")) == ["dropped.neither", "dropped.response"]


def test_cut_is_noticed_at_once(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    proxy.on(CREATE_TOPICS, "request", nth=1, do=CUT)
    proxy.on(CREATE_TOPICS, "response", nth=1, do=CUT)
    with admin_of(proxy) as admin:
        for name in ("cut.request", "cut.response"):

            def fails(name: str = name) -> None:
                with pytest.raises((KafkaError, OSError)):
                    create(admin, name)

            assert seconds_of(fails) < SHORT / 2
        assert create(admin, "cut.neither") == 0
        until(lambda: "cut.neither" in live(kafka, "cut."), seconds=20)
        assert sorted(live(kafka, "cut.")) == ["cut.neither", "cut.response"]


def test_delayed_request_arrives_even_if_the_client_has_given_up(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    proxy.on(CREATE_TOPICS, "request", nth=1, do=delay(SHORT / 2))
    proxy.on(CREATE_TOPICS, "request", nth=2, do=delay(SHORT * 2))
    with admin_of(proxy) as admin:
        assert seconds_of(lambda: create(admin, "delayed.little")) >= SHORT / 2
        with pytest.raises(KafkaError, match="timed out"):
            create(admin, "delayed.long")
        until(lambda: proxy.count(CREATE_TOPICS, "response") == 2, seconds=20)
        assert create(admin, "delayed.long") == 36


def test_delayed_response_arrives_late(proxy: FaultProxy) -> None:
    proxy.on(CREATE_TOPICS, "response", do=delay(SHORT / 2))
    with admin_of(proxy) as admin:
        assert seconds_of(lambda: create(admin, "delayed.response")) >= SHORT / 2


def test_held_request_waits_until_released(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    released = threading.Event()
    proxy.on(CREATE_TOPICS, "request", do=hold(released))
    with admin_of(proxy) as admin:
        with pytest.raises(KafkaError, match="timed out"):
            create(admin, "held.one")
        assert proxy.count(CREATE_TOPICS, "response") == 0
        released.set()
        until(lambda: proxy.count(CREATE_TOPICS, "response") == 1, seconds=20)
        assert create(admin, "held.one") == 36


def test_connections_are_refused_for_some_time(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """Existing connections are cut; afterwards the same port answers again."""
    proxy.on(CREATE_TOPICS, "request", do=refuse(SHORT))
    with admin_of(proxy) as admin:
        with pytest.raises((KafkaError, OSError)):
            create(admin, "refused.one")
        with pytest.raises(ConnectionRefusedError):
            connection_to(proxy.bootstrap_servers[0])

        def answers() -> bool:
            try:
                return create(admin, "refused.one") == 0
            except (KafkaError, OSError):
                return False

        until(answers, seconds=20)
    assert proxy.count(CREATE_TOPICS, "request") == 2


def test_rule_applies_to_the_given_number_and_kind_of_frames(proxy: FaultProxy) -> None:
    """Requests with validateOnly don't count for a rule about requests without it."""
    rule = proxy.on(CREATE_TOPICS, "request", nth=2, times=2, validate_only=False, do=CUT)
    fates = []
    with admin_of(proxy) as admin:
        for name, validate_only in [("a", True), ("b", False), ("c", True), ("d", False), ("e", False), ("f", False)]:
            try:
                create(admin, f"ruled.{name}", validate_only=validate_only)
                fates.append("passed")
            except (KafkaError, OSError):
                fates.append("cut")
                # An answer shows that the client is connected again.
                until(lambda: connects(admin), seconds=20)
    assert fates == ["passed", "passed", "passed", "cut", "cut", "passed"]
    assert rule.fired == 2


def connects(admin: Any) -> bool:
    try:
        return bool(admin.describe_cluster()["brokers"])
    except (KafkaError, OSError):
        return False


def test_after_clear_everything_passes(proxy: FaultProxy) -> None:
    proxy.on(CREATE_TOPICS, "request", times=None, do=DROP)
    proxy.clear()
    with admin_of(proxy) as admin:
        assert create(admin, "cleared") == 0


def test_hook_is_called_before_the_frame_is_passed_on(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """A request has had no effect yet; the hook may ask the proxy for the frames seen."""
    told: list[tuple[Frame, bool, int]] = []

    def hook(frame: Frame) -> None:
        told.append((frame, bool(live(kafka, "hooked.before")), proxy.count(CREATE_TOPICS, "response")))

    proxy.on(CREATE_TOPICS, "request", validate_only=False, do=hook)
    with closing(KafkaAdminClient(**proxy.client_options())) as admin:
        assert create(admin, "hooked.before", validate_only=True) == 0
        assert create(admin, "hooked.before") == 0
    [(frame, existed, answered)] = told
    assert (frame.direction, frame.n, frame.validate_only, frame.broker) == ("request", 2, False, 1)
    assert not existed
    assert answered == 1


def test_hook_decides_what_happens_to_the_frame(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    proxy.on(CREATE_TOPICS, "request", times=None, do=lambda frame: CUT if frame.n == 1 else None)
    with admin_of(proxy) as admin:
        with pytest.raises((KafkaError, OSError)):
            create(admin, "decided.one")
        until(lambda: connects(admin), seconds=20)
        assert create(admin, "decided.two") == 0


def test_requests_of_a_disconnected_client_are_done_and_counted(kafka: EmbeddedKafka, proxy: FaultProxy) -> None:
    """A hook kills the client and the frame passes, as if the kill happened slightly later."""
    with closing(KafkaAdminClient(**proxy.client_options())) as admin:

        def leave(frame: Frame) -> None:
            # The client runs in its own thread, and may open or close connections in the meantime.
            for connection in list(admin._manager._conns.values()):
                with suppress(OSError):
                    connection.transport._sock.shutdown(socket.SHUT_RDWR)

        proxy.on(CREATE_TOPICS, "request", do=leave)
        with pytest.raises((KafkaError, OSError)):
            create(admin, "gone.client")
    until(lambda: proxy.count(CREATE_TOPICS, "response") == 1, seconds=20)
    until(lambda: "gone.client" in live(kafka, "gone."), seconds=20)


def test_failing_hook_fails_the_test(kafka: EmbeddedKafka) -> None:
    def hook(frame: Frame) -> None:
        raise ZeroDivisionError

    def through_a_proxy() -> None:
        with FaultProxy(kafka) as proxy:
            proxy.on(CREATE_TOPICS, "request", do=hook)
            with admin_of(proxy) as admin, pytest.raises((KafkaError, OSError)):
                create(admin, "hooked.fails")

    with pytest.raises(ZeroDivisionError):
        through_a_proxy()


def open_sockets() -> int:
    return sum(
        str(each.readlink()).startswith("socket:") for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
    )


def test_closed_proxy_leaves_nothing_behind(kafka: EmbeddedKafka) -> None:
    """No thread, socket or listener is left, although one client is connected and one waits for a late answer."""
    api_versions = struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1)
    threads, sockets = set(threading.enumerate()), open_sockets()
    with FaultProxy(kafka) as proxy:
        proxy.on(API_VERSIONS, "response", do=delay(600))
        (address,) = proxy.bootstrap_servers
        with connection_to(address) as idle, connection_to(address) as waiting:
            waiting.sendall(api_versions)
            until(lambda: proxy.count(API_VERSIONS, "response") == 1, seconds=20)
            proxy.__exit__(None, None, None)
            assert idle.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connection_to(address)
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= sockets


def test_stopped_broker_disconnects_clients_and_is_found_again(kafka_three: EmbeddedKafka) -> None:
    """The behaviour is as without a proxy; the proxy's port stays the same."""
    with FaultProxy(kafka_three) as proxy, admin_of(proxy) as admin:
        before = proxy.bootstrap_servers
        kafka_three.kill_broker(3)
        try:
            with connection_to(before[2]) as client:
                assert client.recv(1) == b""
        finally:
            kafka_three.start_broker(3)
        admin._manager.run(admin._manager.send, metadata_request(), 3)
    assert proxy.seen
