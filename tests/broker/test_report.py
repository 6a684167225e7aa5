"""A report about runs that really happened."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.harness import Estate, policy, topics
from topicledger.config.settings import PolicySettings
from topicledger.report import gather, of_run, render
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
def test_a_run_on_a_broker_is_told_with_its_reasons_batches_and_changes(estate: Estate, kafka: EmbeddedKafka) -> None:
    rules = PolicySettings(create=(policy("num_partitions", max=4),))
    validated = Estate(estate.spark, Path(estate.ledger.root), {"main": kafka}, policies=rules)
    validated.declare(*topics(["report.one", "report.copies"], replication_factor=3))
    validated.run("provision", "first")
    validated.declare_anew(
        *topics(["report.one", "report.two"], replication_factor=1),
        *topics(["report.copies"], replication_factor=3),
        *topics(["report.wide"], num_partitions=9),
    )
    validated.run("provision", "second", wait_visible=30.0)
    found = gather(validated.ledger, of_run(validated.ledger, "second", ()), datetime.now(UTC))
    assert found.outcomes() == {"failed": 1, "refused": 1, "ok": 2}
    assert [(each.policy, each.topics) for each in found.policies] == [("num_partitions", 1)]
    assert {each.phase for each in found.requests.batches} == {"validate", "apply"}
    assert all(each.seconds > 0 and each.topics for each in found.requests.batches)
    assert found.compared is not None
    assert found.compared.counts == {"new": 1, "still there": 1, "gone": 1}
    page = render(found)
    assert "2 of 4 topics failed or were refused" in page
    assert "Declare a replication factor of at most the number of live brokers." in page
