"""Quotas together with topics and ACLs in whole runs: many at once, and with drivers killed at every event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClientQuotasRequest
from pyspark.sql import SparkSession

from tests import commands
from tests.broker.acls import acl, right
from tests.broker.acls import declare as declare_acls
from tests.broker.direct import admin_of, remove
from tests.broker.quotas import declare as declare_quotas
from tests.broker.quotas import described, estate_of
from tests.fault import told
from tests.fault.another_client import AnotherClient
from tests.fault.effort import KILLS, THOROUGH
from tests.fault.killing import Doomed, chain, committed, every
from tests.fault.proxy import FaultProxy
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate, topics
from tests.waiting import until
from topicledger.config.reading import load_settings
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.names import AclAction
from topicledger.schemas import AUDIT, PLANS
from topicledger_testing.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.thorough

Quotas = Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]
STRANGER: Quotas = {(("user", "stranger"),): {"producer_byte_rate": 77.0}}


def raw(kafka: EmbeddedKafka) -> Quotas:
    """Return a broker's raw answer to DescribeClientQuotas."""
    with admin_of(kafka) as admin:
        response = admin.ask(DescribeClientQuotasRequest(components=[], strict=False))
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in each.entity)): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


def users(first: int, last: int, **limits: float) -> list[dict[str, Any]]:
    """Return rows of `quotas` for the users of a range."""
    return [{"user": f"proved-{number}", **limits} for number in range(first, last)]


def as_raw(rows: Sequence[Mapping[str, Any]]) -> Quotas:
    return {(("user", row["user"]),): {name: row[name] for name in row if name != "user"} for row in rows}


@pytest.fixture
def bare(kafka_quotas: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """Provide the broker; remove the ACLs and topics of these tests afterwards."""
    yield kafka_quotas
    client = AnotherClient(kafka_quotas)
    made = {name: live.topic_id for name, live in client.topics("mixed-").items()}
    if made:
        remove(kafka_quotas, made)
    left = client.acls("User:mixed")
    with admin_of(kafka_quotas) as admin:
        gone = [Target(resource=str(n), action=AclAction.ACL_DELETE, before=a._asdict()) for n, a in enumerate(left)]
        assert {each.error_code for each in acl_requests.delete_acls(admin, gone).results.values()} <= {0}
    client.await_acls("User:mixed", set())


def declare(estate: Estate, rights: Sequence[Mapping[str, Any]], limits: Sequence[Mapping[str, Any]]) -> None:
    declare_acls(estate, *rights)
    declare_quotas(estate, *limits)


def test_run_alters_a_thousand_quotas_with_topics_and_acls(
    spark: SparkSession, bare: EmbeddedKafka, tmp_path: Path
) -> None:
    """Q1, Q2: several requests of each kind; each entry matches a raw describe and Kafka's own tool."""
    estate = estate_of(spark, bare, tmp_path, most=1_000)
    estate.settings = replace(estate.settings, kafka=replace(estate.settings.kafka, max_batch_records=300))
    names = [f"mixed-{number:03}" for number in range(100)]
    estate.declare(*topics(names, num_partitions=1, replication_factor=1))
    rights = [right("User:mixed", "READ", name) for name in names]
    first = users(0, 1_000, producer_byte_rate=1e6, request_percentage=12.5)
    declare(estate, rights, first)
    done = estate.run()
    assert (done.exit_code, done.outcomes()) == (0, {"ok": 1_200})
    batches = {row["batch"] for row in estate.rows(PLANS, done.run_id) if row["action"] == "alter_quota"}
    assert len(batches) > 3
    client = AnotherClient(bare)
    client.await_names("mixed-", set(names))
    client.await_acls("User:mixed", set(map(acl, rights)))
    assert raw(bare) == as_raw(first) | STRANGER
    printed = set(described(bare, tmp_path, "users").splitlines())
    lines = (f"Quota configs for user-principal 'proved-{n}' are " for n in range(1_000))
    limits = ("producer_byte_rate=1000000.0", "request_percentage=12.5")
    assert all({line + ", ".join(limits), line + ", ".join(reversed(limits))} & printed for line in lines)

    second = [*users(0, 500, producer_byte_rate=1e6), *users(500, 900, producer_byte_rate=2e6, consumer_byte_rate=5.0)]
    gone = [{**row, "state": "absent"} for row in users(900, 1_000)]
    declare(estate, rights, [*second, *gone])
    changed = estate.run()
    assert (changed.exit_code, changed.outcomes()) == (0, {"ok": 1_000})
    assert raw(bare) == as_raw(second) | STRANGER
    ended = [row["resource"] for row in estate.rows(AUDIT, changed.run_id) if row["phase"] == "apply"]
    assert (len(ended), len(set(ended))) == (1_000, 1_000)
    again = estate.run()
    assert (again.outcomes(), again.decisions["quotas_unchanged"]) == ({}, 1_000)


@pytest.mark.timeout(300 + 120 * KILLS)
def test_driver_killed_at_each_event_of_a_run_with_quotas_loses_none(
    spark: SparkSession, bare: EmbeddedKafka, proxy_sasl: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q3: 4 creates, 4 ACLs, and 18 entities in several batches: new, changed and removed."""
    fault = Fault(name="driver killed at each event of a run with quotas")
    FAULTS.append(fault)
    estate = estate_of(spark, bare, tmp_path)
    before = users(0, 12, producer_byte_rate=1e6, request_percentage=12.5)
    declare(estate, [], before)
    assert estate.run().outcomes() == {"ok": 12}
    assert raw(bare) == as_raw(before) | STRANGER
    names = [f"mixed-{number}" for number in range(4)]
    estate.declare(*topics(names, num_partitions=1, replication_factor=1))
    rights = [right("User:mixed", "READ", name) for name in names]
    after = [*users(0, 6, producer_byte_rate=2e6, consumer_byte_rate=3e6), *users(12, 18, request_percentage=0.5)]
    declare(estate, rights, [*after, *({**row, "state": "absent"} for row in users(6, 12))])
    more = "[kafka]\nmax_batch_records = 12\n[guards]\nmax_quota_changes = 18\n"
    config = commands.admins_settings(tmp_path, bare, proxy_sasl.bootstrap_servers, monkeypatch, more)
    root = tmp_path / "ledger"
    killed = chain(proxy_sasl, config, root, "mixed", fault, every(2 if THOROUGH else 9, 1 if THOROUGH else 6, KILLS))
    fault.lost += told.lost(root, "mixed")
    fault.doubled += told.doubled(root, "mixed")
    until(lambda: raw(bare) == as_raw(after) | STRANGER, seconds=60)
    client = AnotherClient(bare)
    client.await_names("mixed-", set(names))
    client.await_acls("User:mixed", set(map(acl, rights)))
    applied = [row for row in told.rows(root, "audit", "mixed") if (row["phase"], row["outcome"]) == ("apply", "ok")]
    wrong = {row["resource"] for row in applied if row["action"] == "alter_quota" and not _true(row, raw(bare))}
    fault.wrong += len(wrong)
    assert (fault.lost, fault.doubled, wrong, len(applied)) == (0, 0, set(), 26)
    assert fault.tried == len(killed) >= min(KILLS, 2), killed


@pytest.mark.timeout(300 + 120 * KILLS)
def test_run_killed_at_any_one_event_is_finished_by_the_next_start(
    spark: SparkSession, bare: EmbeddedKafka, proxy_sasl: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2, Q3: a separate run for each event, since a chain of kills skips events of earlier starts.

    Runs alternate between two states of ACLs and quotas; the test ends with a start that no kill reaches."""
    fault = Fault(name="fresh run of rights and quotas killed at each event")
    FAULTS.append(fault)
    user = "User:mixed"
    rows = [right(user, "READ", f"mixed.{number}") for number in range(4)]
    quotas = users(0, 6, producer_byte_rate=1e6)
    gone = [{**row, "state": "absent"} for row in users(4, 6)]
    states = (
        (rows, quotas, quotas),
        # One ACL is replaced, two are removed, one is new; two entities change their limits, two lose them.
        (
            [{**rows[0], "host": "10.0.0.1"}, rows[1], right(user, "WRITE", "mixed.1")],
            [*users(0, 2, producer_byte_rate=2e6, request_percentage=0.5), *quotas[2:4], *gone],
            [*users(0, 2, producer_byte_rate=2e6, request_percentage=0.5), *quotas[2:4]],
        ),
    )
    more = f'[guards]\nmax_acl_deletes = 10\nmax_quota_changes = 10\n[acls]\nmanage = ["^{user}$"]\n'
    config = commands.admins_settings(tmp_path, bare, proxy_sasl.bootstrap_servers, monkeypatch, more)
    root = tmp_path / "ledger"
    estate = estate_of(spark, bare, tmp_path)
    estate.settings = load_settings(config)
    client = AnotherClient(bare)
    declare(estate, *states[0][:2])
    assert estate.run().outcomes() == {"ok": 10}

    for number in every(1, 1, KILLS) if THOROUGH else every(9, 8, KILLS):
        run_id = f"each-{number}"
        rights, wanted, limits = states[fault.tried % 2 - 1]
        declare(estate, rights, wanted)
        # A run that was killed at its end leaves a lease, which is busy until it expires.
        doomed = Doomed(config, run_id, number, partial(committed, root), options=("--wait",))
        ended = doomed.wait_behind(proxy_sasl)
        if ended is None:
            fault.tried += 1
            if not any(row["state"] == "finished" for row in told.rows(root, "runs", run_id)):
                assert estate.run(run_id=run_id).exit_code == 0
                fault.resumed += 1
        client.await_acls(user, set(map(acl, rights)))
        fault.lost += told.lost(root, run_id)
        fault.doubled += told.doubled(root, run_id)
        live = as_raw(limits) | STRANGER
        until(partial(_has, bare, live), seconds=60)
        applied = [row for row in told.rows(root, "audit", run_id) if (row["phase"], row["outcome"]) == ("apply", "ok")]
        wrong = {row["resource"] for row in applied if row["action"] == "alter_quota" and not _true(row, live)}
        fault.wrong += len(wrong)
        assert (fault.lost, fault.doubled, wrong) == (0, 0, set()), doomed.killed_at
        if ended is not None:
            assert ended == 0
            print(f"a run has {len(doomed.events)} events: {', '.join(doomed.events)}")
            break
    assert fault.tried >= min(KILLS, 2)


def _has(kafka: EmbeddedKafka, quotas: Quotas) -> bool:
    return raw(kafka) == quotas


def _true(row: Mapping[str, Any], live: Quotas) -> bool:
    """Whether the cluster has the values that the row set, and none that it removed."""
    limits = live.get((("user", row["resource"].removeprefix("user=")),), {})
    before, after = dict(row["before"] or ()), {name: float(value) for name, value in dict(row["after"]).items()}
    return all(limits.get(name) == after.get(name) for name in {*before, *after})
