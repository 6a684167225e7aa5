"""Runs whose knowledge becomes stale while they work: manifests, clusters or topics are changed by others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.direct import live, make
from tests.fault import told
from tests.fault.proxy import CREATE_TOPICS, CUT, DELETE_TOPICS, FaultProxy, Frame
from tests.fault.proxy import Fault as Answer
from tests.fault.told import FAULTS, Fault
from tests.harness import Estate, topics
from topicledger.config.settings import KafkaSettings
from topicledger_testing.embedded_kafka import EmbeddedKafka

PATIENT = KafkaSettings(connect_timeout=20.0, operation_timeout=2.0, max_batch_records=16)
NEW, OLD = range(8), range(4)


def estate_with(
    spark: SparkSession, folder: Path, kafka: EmbeddedKafka, address: str, prefix: str
) -> tuple[Estate, list[str], list[str]]:
    """Prepare a ledger that declares new topics, and existing ones as absent, by name."""
    new, old = [f"{prefix}new-{number}" for number in NEW], [f"{prefix}old-{number}" for number in OLD]
    make(kafka, *old)
    estate = Estate(spark, folder / "ledger", {"main": address}, max_deletes=50, kafka=PATIENT)
    estate.declare(*topics(new, num_partitions=2, configs={"retention.ms": "1000"}), *topics(old, state="absent"))
    return estate, new, old


@pytest.mark.thorough
def test_manifests_changed_between_plan_and_apply_are_followed(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """D6: every second action is withdrawn."""
    line = Fault(name="manifest flipped between plan and apply", tried=1)
    FAULTS.append(line)
    estate, new, old = estate_with(spark, tmp_path, kafka, kafka.bootstrap_servers[0], "flipped.")
    assert estate.run("plan", run_id="flipped").exit_code == 0
    estate.declare_anew(
        *topics(new[::2], num_partitions=2, configs={"retention.ms": "1000"}),
        *topics(new[1::2], state="absent"),
        *topics(old[::2], state="absent"),
        *topics(old[1::2]),
    )
    assert estate.run("apply", run_id="flipped").exit_code == 4
    due = dict.fromkeys([*new[::2], *old[1::2]], True) | dict.fromkeys([*new[1::2], *old[::2]], False)
    told.check(line, tmp_path / "ledger", "flipped", kafka, "flipped.", due)


@pytest.mark.thorough
@pytest.mark.parametrize("api_key", [DELETE_TOPICS, CREATE_TOPICS])
def test_cluster_swapped_behind_its_address_is_not_changed(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    kafka_policy: EmbeddedKafka,
    proxy: FaultProxy,
    tmp_path: Path,
    api_key: int,
) -> None:
    """D7: swapped during a run; the same id continues when the address means the right cluster again."""
    line = Fault(
        name=f"cluster swapped behind its address, amid {'deletes' if api_key == DELETE_TOPICS else 'creates'}"
    )
    FAULTS.append(line)
    prefix = f"swapped-{api_key}."
    estate, new, old = estate_with(spark, tmp_path, kafka, proxy.bootstrap_servers[0], prefix)
    make(kafka_policy, *old)
    before = live(kafka_policy, prefix)

    def swap(_: Frame) -> Answer:
        line.tried += 1
        proxy.stand_for(kafka_policy)
        return CUT

    proxy.on(api_key, "request", validate_only=False, do=swap)
    first = estate.run(run_id="swapped")
    assert first.exit_code == 1
    assert any(kafka_policy.cluster_id in problem for problem in first.problems), first.problems
    assert estate.run(run_id="swapped").exit_code == 1
    assert live(kafka_policy, prefix) == before
    proxy.stand_for(kafka)
    assert estate.run(run_id="swapped").exit_code == 0
    line.resumed = 2
    due = dict.fromkeys(new, True) | dict.fromkeys(old, False)
    told.check(line, tmp_path / "ledger", "swapped", kafka, prefix, due)
    assert live(kafka_policy, prefix) == before


@pytest.mark.thorough
def test_name_that_means_another_cluster_since_the_plan_is_refused(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_policy: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """D7: exit code 5, and neither cluster is changed."""
    line = Fault(name="name resolved to another cluster between plan and apply", tried=1)
    FAULTS.append(line)
    estate, new, old = estate_with(spark, tmp_path, kafka, proxy.bootstrap_servers[0], "renamed.")
    make(kafka_policy, *old)
    before = live(kafka_policy, "renamed.")
    assert estate.run("plan", run_id="renamed").exit_code == 0
    proxy.stand_for(kafka_policy)
    assert estate.run("apply", run_id="renamed").exit_code == 5
    due = dict.fromkeys(new, False) | dict.fromkeys(old, True)
    told.check(line, tmp_path / "ledger", "renamed", kafka, "renamed.", due)
    assert live(kafka_policy, "renamed.") == before


@pytest.mark.thorough
def test_topics_created_by_others_during_apply_are_not_ours(
    spark: SparkSession, kafka: EmbeddedKafka, proxy: FaultProxy, tmp_path: Path
) -> None:
    """C18: created exactly as planned, immediately before our request: they aren't counted as ours."""
    line = Fault(name="a stranger creating during apply")
    FAULTS.append(line)
    estate, new, old = estate_with(spark, tmp_path, kafka, proxy.bootstrap_servers[0], "intruder.")
    theirs = new[1::3]

    def stranger(_: Frame) -> None:
        line.tried += 1
        make(kafka, *theirs, num_partitions=2, configs={"retention.ms": "1000"})

    proxy.on(CREATE_TOPICS, "request", validate_only=False, do=stranger)
    assert estate.run(run_id="stranger").exit_code == 0
    last = estate.last("stranger")
    assert {name for name in new if last[name] == ("apply", "skipped", None)} == set(theirs)
    due = dict.fromkeys(new, True) | dict.fromkeys(old, False)
    told.check(line, tmp_path / "ledger", "stranger", kafka, "intruder.", due)


@pytest.mark.thorough
def test_two_names_for_one_cluster_change_nothing(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Otherwise guards and budgets would count twice: exit code 5, and every declared topic is refused."""
    line = Fault(name="two names for one cluster", tried=1)
    FAULTS.append(line)
    new, old = ["two-names.new-0", "two-names.new-1"], ["two-names.old-0", "two-names.old-1"]
    make(kafka, *old)
    both = {"main": kafka, "copy": kafka}
    estate = Estate(spark, tmp_path / "ledger", both, max_deletes=1, kafka=PATIENT)
    for cluster, number in (("main", 0), ("copy", 1)):
        estate.declare(
            *topics(new[number : number + 1]), *topics(old[number : number + 1], state="absent"), cluster=cluster
        )
    assert estate.run(run_id="twice").exit_code == 5
    assert set(estate.last("twice").values()) == {("guard", "refused", "SAME_CLUSTER")}
    due = dict.fromkeys(new, False) | dict.fromkeys(old, True)
    told.check(line, tmp_path / "ledger", "twice", kafka, "two-names.", due)
