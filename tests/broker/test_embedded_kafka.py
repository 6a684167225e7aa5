"""The embedded Kafka is a real one, in every variant, and never outlives whoever started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError

from tests import clusters
from topicledger_testing import embedded_kafka
from topicledger_testing.embedded_kafka import EmbeddedKafka, EmbeddedKafkaError, KafkaOptions

pytestmark = pytest.mark.thorough

POLICY_VIOLATION = 44
TOPIC_AUTHORIZATION_FAILED = 29
TOPIC_DELETION_DISABLED = 73


def admin_of(kafka: EmbeddedKafka, user: str | None = None) -> closing[Any]:
    return closing(KafkaAdminClient(**kafka.client_options(user)))


def create(admin: Any, name: str, **spec: Any) -> dict[str, Any]:
    answer = admin.create_topics({name: spec}, raise_errors=False)
    topic: dict[str, Any] = answer["topics"][0]
    return topic


def eventually(condition: Callable[[], bool], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def runs(pid: int) -> bool:
    """Whether a process still runs; one that is dead and not yet collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
def script() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python that prints what it started, and make sure that it is gone afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


HOLD_A_BROKER = f"""
import os, sys, threading, time
from pathlib import Path
from topicledger_testing.embedded_kafka import EmbeddedKafka
kafka = EmbeddedKafka(Path({str(clusters.JARS)!r}))
# A thread that ends at once: a death signal bound to it would take the broker down too early.
starter = threading.Thread(target=kafka.start)
starter.start()
starter.join()
child = os.fork() if "fork" in sys.argv else None
if child == 0:
    time.sleep(60)  # holds copies of every pipe that its parent has
    os._exit(0)
print(kafka.brokers[0].pid, kafka.folder, child, flush=True)
{{}}
"""


def test_a_plain_broker_answers_with_its_cluster_id(kafka: EmbeddedKafka) -> None:
    with admin_of(kafka) as admin:
        described = admin.describe_cluster()
    assert described["cluster_id"] == kafka.cluster_id
    assert [broker["port"] for broker in described["brokers"]] == [broker.port for broker in kafka.brokers]


def test_brokers_listen_on_loopback_only(kafka: EmbeddedKafka) -> None:
    assert all(server.startswith("127.0.0.1:") for server in kafka.bootstrap_servers)
    listeners = (kafka.folder / "broker-1" / "server.properties").read_text()
    assert "0.0.0.0" not in listeners
    assert "://:" not in listeners


def test_two_clusters_live_side_by_side(kafka: EmbeddedKafka, kafka_no_delete: EmbeddedKafka) -> None:
    assert kafka.cluster_id != kafka_no_delete.cluster_id
    assert not set(kafka.bootstrap_servers) & set(kafka_no_delete.bootstrap_servers)


def test_three_brokers_report_their_racks(kafka_three: EmbeddedKafka) -> None:
    with admin_of(kafka_three) as admin:
        brokers = admin.describe_cluster()["brokers"]
    assert {broker["broker_id"]: broker["rack"] for broker in brokers} == {1: "a", 2: "b", 3: "c"}


def test_an_assignments_first_replica_leads(kafka_three: EmbeddedKafka) -> None:
    """C3, as far as the cluster is concerned."""
    with admin_of(kafka_three) as admin:
        assert create(admin, "led", assignments={0: [3, 1, 2], 1: [2, 3, 1]})["error_code"] == 0

        def leaders() -> dict[int, int]:
            partitions = admin.describe_topics(["led"])[0]["partitions"]
            return {partition["partition_index"]: partition["leader_id"] for partition in partitions}

        assert eventually(lambda: leaders() == {0: 3, 1: 2}), leaders()


@pytest.mark.thorough
def test_a_killed_broker_comes_back_on_its_port_with_its_data(kafka_three: EmbeddedKafka) -> None:
    before = kafka_three.brokers[1]
    with admin_of(kafka_three) as admin:
        assert create(admin, "kept", num_partitions=1, replication_factor=3)["error_code"] == 0
    kafka_three.kill_broker(2)
    assert before.pid is not None
    assert not runs(before.pid)
    assert kafka_three.brokers[1].pid is None
    kafka_three.start_broker(2)
    after = kafka_three.brokers[1]
    assert after.port == before.port
    assert after.pid not in (None, before.pid)
    with admin_of(kafka_three) as admin:
        assert eventually(lambda: len(admin.describe_topics(["kept"])[0]["partitions"][0]["isr_nodes"]) == 3)


@pytest.mark.thorough
def test_a_stopped_broker_can_be_started_again() -> None:
    with clusters.plain() as kafka:
        kafka.stop_broker(1)
        with pytest.raises(EmbeddedKafkaError, match="Broker 1 is not running"):
            kafka.stop_broker(1)
        kafka.start_broker(1)
        with pytest.raises(EmbeddedKafkaError, match="Broker 1 is already running"):
            kafka.start_broker(1)
        with admin_of(kafka) as admin:
            assert admin.describe_cluster()["cluster_id"] == kafka.cluster_id


def test_with_sasl_the_super_user_may_and_the_others_need_acls(kafka_sasl: EmbeddedKafka) -> None:
    with admin_of(kafka_sasl, "creator") as creator:
        refused = create(creator, "mine.first", num_partitions=1, replication_factor=1)
    assert refused["error_code"] == TOPIC_AUTHORIZATION_FAILED
    with admin_of(kafka_sasl) as admin:
        acl = ACL(
            principal="User:creator",
            host="*",
            operation=ACLOperation.CREATE,
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(ResourceType.TOPIC, "mine.first"),
        )
        admin.create_acls([acl])

    def created() -> bool:
        with admin_of(kafka_sasl, "creator") as creator:
            return bool(create(creator, "mine.first", num_partitions=1, replication_factor=1)["error_code"] == 0)

    assert eventually(created)


def test_with_sasl_nobody_gets_in_without_a_password(kafka_sasl: EmbeddedKafka) -> None:
    wrong = kafka_sasl.client_options() | {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 3000}
    with pytest.raises(KafkaError):
        KafkaAdminClient(**wrong)


def test_the_brokers_policy_refuses_in_its_own_words(kafka_policy: EmbeddedKafka) -> None:
    with admin_of(kafka_policy) as admin:
        refused = create(admin, "forbidden.x", num_partitions=1, replication_factor=1)
        allowed = create(admin, "permitted.x", num_partitions=1, replication_factor=1)
    assert refused["error_code"] == POLICY_VIOLATION
    assert refused["error_message"] == "Topic forbidden.x is not allowed by the broker's policy"
    assert allowed["error_code"] == 0


@pytest.mark.skipif(clusters.KAFKA != clusters.JARS, reason="only the Kafka of `make setup` has an archive of classes")
def test_brokers_start_from_the_archive_of_classes(kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka) -> None:
    """Also one with classes of its own: Java maps nothing of an archive for another class path."""
    for cluster in (kafka, kafka_policy):
        archive = str(clusters.JARS / embedded_kafka.ARCHIVE)
        assert archive in Path(f"/proc/{cluster.brokers[0].pid}/maps").read_text()


def test_with_deletes_disabled_a_delete_is_refused(kafka_no_delete: EmbeddedKafka) -> None:
    with admin_of(kafka_no_delete) as admin:
        assert create(admin, "stays", num_partitions=1, replication_factor=1)["error_code"] == 0
        answer = admin.delete_topics(["stays"], raise_errors=False)
    assert answer["topics"][0]["error_code"] == TOPIC_DELETION_DISABLED


@pytest.mark.thorough
def test_properties_given_win_over_the_defaults(tmp_path: Path) -> None:
    """And a folder that was given is kept."""
    with EmbeddedKafka(clusters.JARS, KafkaOptions(properties={"num.partitions": "7"}), tmp_path) as kafka:
        with admin_of(kafka) as admin:
            assert create(admin, "wide")["num_partitions"] == 7
        pid = kafka.brokers[0].pid
    assert pid is not None
    assert not runs(pid)
    assert (tmp_path / "broker-1" / "server.properties").exists()


@pytest.mark.thorough
def test_an_exception_leaves_no_process_and_no_folder() -> None:
    kafka = clusters.plain()
    left: list[tuple[int | None, Path]] = []

    def fail_with_a_broker_up() -> None:
        with kafka:
            left.append((kafka.brokers[0].pid, kafka.folder))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_with_a_broker_up()
    [(pid, folder)] = left
    assert pid is not None
    assert not runs(pid)
    assert not folder.exists()
    kafka.stop()


@pytest.mark.thorough
def test_a_broker_that_cannot_start_shows_its_log_and_leaves_nothing() -> None:
    kafka = EmbeddedKafka(clusters.JARS, KafkaOptions(properties={"num.network.threads": "many"}))
    with pytest.raises(EmbeddedKafkaError, match=r"(?s)Its log ends:.*num\.network\.threads"):
        kafka.start()
    assert kafka.brokers[0].pid is None
    assert not kafka.brokers[0].log.exists()


@pytest.mark.thorough
def test_a_taken_port_means_other_ports(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that another process binds between our check and the broker's start costs only a retry."""
    taken = kafka.brokers[0].port
    look = embedded_kafka.free_ports
    drawn = [contextlib.nullcontext([31001, 31002, taken])]
    monkeypatch.setattr(embedded_kafka, "free_ports", lambda count: drawn.pop() if drawn else look(count))
    with clusters.plain() as second:
        assert not drawn
        assert second.brokers[0].port != taken


def test_missing_jars_are_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match=f"no Kafka jars in {tmp_path}"):
        EmbeddedKafka(tmp_path).start()


def test_a_rack_for_each_broker_or_none() -> None:
    with pytest.raises(EmbeddedKafkaError, match="2 brokers need 2 racks, not 1"):
        KafkaOptions(brokers=2, racks=("a",))


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["alone", "fork"])
def test_a_killed_parent_leaves_no_broker_and_no_folder(script: Callable[..., Any], how: str) -> None:
    """`fork`: a child of the parent lives on with copies of its pipes."""
    parent = script("-c", HOLD_A_BROKER.format("import signal; signal.pause()"), how)
    pid, folder, child = parent.stdout.readline().split()
    assert runs(int(pid))
    os.kill(parent.pid, signal.SIGKILL)
    assert eventually(lambda: not runs(int(pid)) and not Path(folder).exists())
    if how == "fork":
        os.kill(int(child), signal.SIGKILL)


@pytest.mark.thorough
def test_an_end_without_stop_leaves_no_broker_and_no_folder(script: Callable[..., Any]) -> None:
    parent = script("-c", HOLD_A_BROKER.format("sys.exit(3)"))
    pid, folder, _ = parent.stdout.readline().split()
    assert parent.wait(timeout=30) == 3
    assert eventually(lambda: not runs(int(pid)) and not Path(folder).exists())


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.thorough
def test_a_killed_keeper_takes_the_broker_with_it() -> None:
    with clusters.plain() as kafka:
        pid = kafka.brokers[0].pid
        assert pid is not None
        keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        folder = kafka.folder
        os.kill(keeper, signal.SIGKILL)
        assert eventually(lambda: not runs(pid))
        with pytest.raises(EmbeddedKafkaError, match="keeper has ended"):
            kafka.stop_broker(1)
    # The one case in which nobody is left to remove it.
    subprocess.run(["rm", "-r", str(folder)], check=True)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_foreground_broker_ends_cleanly(script: Callable[..., Any], number: signal.Signals) -> None:
    broker = script("-m", "topicledger_testing.embedded_kafka", "--jars", str(clusters.JARS))
    address = broker.stdout.readline().strip()
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        assert len(admin.describe_cluster()["brokers"]) == 1
    keeper = children(broker.pid)[0]
    java = children(keeper)[0]
    broker.send_signal(number)
    assert broker.wait(timeout=30) == 0
    assert not runs(keeper)
    assert not runs(java)


def test_foreground_broker_with_an_authorizer_enforces_acls(script: Callable[..., Any]) -> None:
    broker = script("-m", "topicledger_testing.embedded_kafka", "--jars", str(clusters.JARS), "--authorizer")
    signed_in = {"bootstrap_servers": broker.stdout.readline().strip(), "security_protocol": "SASL_PLAINTEXT"}
    codes = []
    for name, password in embedded_kafka.USERS.items():
        user = {"sasl_mechanism": "PLAIN", "sasl_plain_username": name, "sasl_plain_password": password}
        with closing(KafkaAdminClient(**signed_in, **user)) as admin:
            codes.append(create(admin, "tried", num_partitions=1, replication_factor=1)["error_code"])
    assert codes == [0, TOPIC_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED]
