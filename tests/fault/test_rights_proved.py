"""ACLs changed by whole runs, checked with another client: many, with clients at work, and with killed drivers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.acls import acl, declare, estate_of, outcomes, right
from tests.broker.direct import admin_of, make, remove
from tests.fault import told
from tests.fault.another_client import AnotherClient, options_of
from tests.fault.effort import KILLS, THOROUGH
from tests.fault.killing import chain, every
from tests.fault.proxy import FaultProxy
from tests.fault.told import FAULTS, Fault
from tests.waiting import until
from topicledger.ledger import leases
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough


def add(kafka: EmbeddedKafka, *acls: Acl) -> None:
    """Change ACLs as another administrator does."""
    with admin_of(kafka) as admin:
        targets = [Target(resource=str(n), action=AclAction.ACL_ADD, after=a._asdict()) for n, a in enumerate(acls)]
        assert {each.error_code for each in acl_requests.create_acls(admin, targets).results.values()} == {0}


def take(kafka: EmbeddedKafka, *acls: Acl) -> None:
    """Change ACLs as another administrator does."""
    with admin_of(kafka) as admin:
        targets = [Target(resource=str(n), action=AclAction.ACL_DELETE, before=a._asdict()) for n, a in enumerate(acls)]
        assert {each.error_code for each in acl_requests.delete_acls(admin, targets).results.values()} == {0}


@pytest.fixture
def bare(kafka_sasl: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """Provide the broker; remove all ACLs afterwards."""
    before = AnotherClient(kafka_sasl).acls()
    yield kafka_sasl
    left = AnotherClient(kafka_sasl).acls() - before
    if left:
        take(kafka_sasl, *left)
    until(lambda: AnotherClient(kafka_sasl).acls() == before, seconds=60)


def test_run_adds_five_thousand_acls_and_another_removes_five_hundred(
    spark: SparkSession, bare: EmbeddedKafka, tmp_path: Path
) -> None:
    """A2, A5: compared entry by entry; each has its rows in `audit`."""
    estate = estate_of(spark, bare, tmp_path, manage=("^User:proved-many$",), max_acl_deletes=500)
    rows = [right("User:proved-many", "READ", f"proved.{number}") for number in range(5_000)]
    declare(estate, *rows)
    done = estate.run()
    assert (done.exit_code, done.outcomes()["ok"]) == (0, 5_000)
    client = AnotherClient(bare)
    client.await_acls("User:proved-many", set(map(acl, rows)))
    declare(estate, *rows[500:])
    done = estate.run()
    assert (done.exit_code, done.outcomes()["ok"]) == (0, 500)
    client.await_acls("User:proved-many", set(map(acl, rows[500:])))
    assert {action for action, _ in outcomes(estate, done.run_id)} == {"acl_delete"}
    assert estate.run().outcomes() == {}


class Clients:
    """A producer and a consumer that work until they are stopped, and all errors that they report."""

    def __init__(self, kafka: EmbeddedKafka, user: str, topic: str, group: str) -> None:
        self.errors: list[KafkaError] = []
        self.received = 0
        self._topic = topic
        self._stop = threading.Event()
        options = options_of(kafka, user)
        self._producer = Producer({**options, "error_cb": self._error, "acks": "all", "linger.ms": 0})
        # Commits with each message, so that the ACLs on the group are used, too.
        of_group = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**options, **of_group, "error_cb": self._error})
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]

    def _error(self, error: KafkaError) -> None:
        self.errors.append(error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)

    def _produce(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce(self._topic, b"x", on_delivery=self._delivered)
            except KafkaException as failed:
                self.errors.append(failed.args[0])
            self._producer.poll(0.005)
        self._producer.flush(10)

    def _consume(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.errors.append(error)
                continue
            self.received += 1
            try:
                self._consumer.commit(message, asynchronous=False)
            except KafkaException as failed:
                self.errors.append(failed.args[0])
        self._consumer.close()

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        until(lambda: self.received > 0, seconds=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    def work_on(self, messages: int = 100) -> None:
        """Wait until this many more messages have been consumed."""
        goal = self.received + messages
        until(lambda: self.received >= goal, seconds=60)

    @property
    def refused(self) -> set[str]:
        return {each.name() for each in self.errors if "AUTHORIZATION" in each.name()}


def test_clients_see_no_errors_while_their_acls_change(
    spark: SparkSession, bare: EmbeddedKafka, tmp_path: Path
) -> None:
    """A1: literal -> prefixed -> literal from one host -> literal, with a producer and a consumer at work.

    They would see errors if an ACL were removed before its replacement is added.
    """
    topic, group, user = "proved.gap.one", "proved-gap-group", "User:nobody"
    ids = make(bare, topic)

    def rows(suffix: str = "", **values: str) -> list[dict[str, object]]:
        on_topic = topic.removesuffix("one") if suffix else topic
        on_group = group.removesuffix("group") if suffix else group
        on_topics = [right(user, each, on_topic, **values) for each in ("READ", "WRITE", "DESCRIBE")]
        return [*on_topics, right(user, "READ", on_group, resource_type="GROUP", **values)]

    literal, prefixed, hosted = rows(), rows("prefix", pattern_type="PREFIXED"), rows(host="127.0.0.1")
    estate = estate_of(spark, bare, tmp_path, manage=(f"^{user}$",), max_acl_deletes=10)
    declare(estate, *literal)
    assert estate.run().exit_code == 0
    client = AnotherClient(bare)
    client.await_acls(user, set(map(acl, literal)))
    with Clients(bare, "nobody", topic, group) as working:
        for wanted in (prefixed, literal, hosted, literal):
            declare(estate, *wanted)
            done = estate.run()
            assert (done.exit_code, done.outcomes()) == (0, {"ok": 8})
            client.await_acls(user, set(map(acl, wanted)))
            working.work_on()
        assert working.errors == []
        assert working.received > 400
        take(bare, *map(acl, literal))
        until(lambda: bool(working.refused), seconds=30, every=0.01)
        add(bare, *map(acl, literal))
    remove(bare, ids)


def test_principal_that_lost_its_acl_loses_no_changes(spark: SparkSession, bare: EmbeddedKafka, tmp_path: Path) -> None:
    """Planned with Alter on the cluster, applied without it: adds name the ACL to grant; later they succeed."""
    own = [acl(right("User:creator", each, "kafka-cluster", resource_type="CLUSTER")) for each in ("ALTER", "DESCRIBE")]
    add(bare, *own)
    client = AnotherClient(bare)
    client.await_acls("User:creator", set(own))
    estate = estate_of(spark, bare, tmp_path, "creator", manage=("^User:proved-few$",), max_acl_deletes=5)
    old = [right("User:proved-few", "READ", f"proved.{number}") for number in range(2)]
    new = [right("User:proved-few", "WRITE", f"proved.{number}") for number in range(2)]
    declare(estate, *old)
    assert estate.run().outcomes() == {"ok": 2}
    declare(estate, *new)
    planned = estate.run("plan")
    take(bare, own[0])
    client.await_acls("User:creator", set(own[1:]))
    failed = estate.run("apply", planned.run_id)
    assert failed.exit_code == 4
    audit = [row for row in told.rows(tmp_path / "ledger", "audit", planned.run_id) if row["phase"] == "apply"]
    # The ACLs that the new ones would replace stay.
    assert sorted((row["action"], row["error"]) for row in audit) == [
        *[("acl_add", "CLUSTER_AUTHORIZATION_FAILED")] * 2,
        *[("acl_delete", "REPLACEMENT_MISSING")] * 2,
    ]
    added = [row["error_message"] for row in audit if row["action"] == "acl_add"]
    assert all("grant it Alter on the cluster" in message for message in added)
    assert client.acls("User:proved-few") == set(map(acl, old))
    add(bare, own[0])
    client.await_acls("User:creator", set(own))
    assert estate.run().outcomes() == {"ok": 4}
    client.await_acls("User:proved-few", set(map(acl, new)))


@pytest.mark.timeout(240 + 120 * KILLS)
def test_driver_killed_at_each_event_of_a_run_about_acls_loses_none(
    spark: SparkSession, bare: EmbeddedKafka, proxy_sasl: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2: 24 adds and 12 deletes in several batches; 4 of them replace others."""
    fault = Fault(name="driver killed at each event of a run about rights")
    FAULTS.append(fault)
    user = "User:proved-killed"
    old = [right(user, "READ", f"proved.{number}") for number in range(12)]
    hosted = [{**row, "host": "10.0.0.1"} for row in old[:4]]
    new = [right(user, "WRITE", f"proved.{number}") for number in range(20)]
    estate = estate_of(spark, bare, tmp_path)
    declare(estate, *old)
    assert estate.run().outcomes() == {"ok": 12}
    AnotherClient(bare).await_acls(user, set(map(acl, old)))
    declare(estate, *hosted, *new)
    more = f'[kafka]\nmax_batch_records = 8\n[guards]\nmax_acl_deletes = 12\n[acls]\nmanage = ["^{user}$"]\n'
    config = commands.admins_settings(tmp_path, bare, proxy_sasl.bootstrap_servers, monkeypatch, more)
    root = tmp_path / "ledger"
    killed = chain(proxy_sasl, config, root, "rights", fault, every(2 if THOROUGH else 9, 1 if THOROUGH else 8, KILLS))
    told.check_acls(fault, root, "rights", bare, user, set(map(acl, [*hosted, *new])))
    assert fault.tried == len(killed) >= min(KILLS, 2), killed


def test_run_that_waited_skips_acls_that_already_exist(
    spark: SparkSession, bare: EmbeddedKafka, tmp_path: Path
) -> None:
    """Two runs at once: the other run added one of two ACLs, and removed one of two."""
    user = "User:proved-waits"
    estate = estate_of(spark, bare, tmp_path, manage=(f"^{user}$",), max_acl_deletes=2)
    old = [right(user, "READ", f"proved.{number}") for number in range(2)]
    new = [right(user, "WRITE", f"proved.{number}") for number in range(2)]
    add(bare, *map(acl, old))
    client = AnotherClient(bare)
    client.await_acls(user, set(map(acl, old)))
    declare(estate, *new)
    held = leases.take(
        estate.ledger,
        "another",
        {bare.cluster_id: "main"},
        observed_since=datetime.now(UTC),
        request_timeout=1.0,
        wait=False,
        stop=threading.Event(),
    )
    with held:

        def other_run() -> None:
            until(lambda: len(told.rows(tmp_path / "ledger", "audit", "waits")) == 4, seconds=120)
            add(bare, acl(new[0]))
            take(bare, acl(old[0]))
            client.await_acls(user, {acl(new[0]), acl(old[1])})
            held.release()

        other = threading.Thread(target=other_run)
        other.start()
        estate.run(run_id="waits", wait=True)
        other.join()
    found = {(action, resource.split()[-2]): rows for (action, resource), rows in outcomes(estate, "waits").items()}
    assert {key: rows[1][0] for key, rows in found.items()} == {
        ("acl_add", "proved.0"): "apply skipped",
        ("acl_add", "proved.1"): "apply ok",
        ("acl_delete", "proved.0"): "apply skipped",
        ("acl_delete", "proved.1"): "apply ok",
    }
    client.await_acls(user, set(map(acl, new)))
