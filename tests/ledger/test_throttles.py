"""Recorded throttles, of any number and of any run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topicledger.ledger.tables import Ledger
from topicledger.ledger.throttles import Leftover, RecordedThrottles, clusters_left
from topicledger.model.moves import FOLLOWER_REPLICAS, LEADER_REPLICAS, TOPIC, Throttle

TOPICS = 8_000


def records(ledger: Ledger, run_id: str, cluster: str) -> RecordedThrottles:
    return RecordedThrottles(ledger=ledger, run_id=run_id, cluster=cluster, cluster_id=f"kafka-{cluster}")


def on_topic(number: int, config: str, value: str = "0:1") -> Throttle:
    return Throttle(resource_type=TOPIC, resource=f"t.'{number}", config=config, before=None, value=value)


@pytest.mark.thorough
def test_throttles_of_8_000_topics_are_removed_in_one_join(ledger: Ledger) -> None:
    """A condition with a term for each topic caused a heap error. Throttles of other topics and clusters stay."""
    assert clusters_left(ledger) == {}
    written = records(ledger, "first", "main")
    throttles = [on_topic(n, config) for n in range(TOPICS) for config in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    written.intend(throttles)
    records(ledger, "second", "away").intend(throttles[:2])
    stays = on_topic(0, LEADER_REPLICAS)
    written.removed([each for each in throttles if each != stays])
    assert list(written.left()) == [stays]
    later = on_topic(0, LEADER_REPLICAS, "0:1,1:1")
    records(ledger, "second", "main").intend([later])
    assert list(written.left()) == [stays, later], "the latest last"
    away = Leftover(names=frozenset({"away"}), run_ids=frozenset({"second"}))
    assert clusters_left(ledger) == {
        "kafka-main": Leftover(names=frozenset({"main"}), run_ids=frozenset({"first", "second"})),
        "kafka-away": away,
    }
    # The cluster is renamed, and another cluster gets its name.
    replace(written, run_id="third", cluster="away").intend([later])
    assert clusters_left(ledger)["kafka-main"].names == {"main", "away"}
    assert clusters_left(ledger)["kafka-away"] == away
    written.removed([later])
    assert list(written.left()) == []
    assert set(clusters_left(ledger)) == {"kafka-away"}
