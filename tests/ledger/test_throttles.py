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


def plain(throttle: Throttle) -> Throttle:
    """Without what names its row."""
    return replace(throttle, run_id=None, set_at=None)


@pytest.mark.thorough
def test_only_rows_that_were_read_are_removed(ledger: Ledger) -> None:
    """A driver that was suspended in between doesn't end what another run, or its own next start, recorded since."""
    first, second = records(ledger, "first", "main"), records(ledger, "second", "main")
    first.intend([on_topic(0, LEADER_REPLICAS), on_topic(1, LEADER_REPLICAS)])
    seen = first.left()
    second.intend([on_topic(0, LEADER_REPLICAS)])
    first.intend([on_topic(1, LEADER_REPLICAS)])
    first.removed(seen)
    assert [(each.resource, each.run_id) for each in first.left()] == [("t.'0", "second"), ("t.'1", "first")]
    assert not {each.set_at for each in seen} & {each.set_at for each in first.left()}


@pytest.mark.thorough
def test_throttles_of_8_000_topics_are_removed_in_one_join(ledger: Ledger) -> None:
    """A condition with a term for each topic caused a heap error. Throttles of other topics and clusters stay."""
    assert clusters_left(ledger) == {}
    written = records(ledger, "first", "main")
    throttles = [on_topic(n, config) for n in range(TOPICS) for config in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    written.intend(throttles)
    records(ledger, "second", "away").intend(throttles[:2])
    stays = on_topic(0, LEADER_REPLICAS)
    written.removed([each for each in written.left() if plain(each) != stays])
    assert list(map(plain, written.left())) == [stays]
    later = on_topic(0, LEADER_REPLICAS, "0:1,1:1")
    records(ledger, "second", "main").intend([later])
    assert list(map(plain, written.left())) == [stays, later], "the latest last"
    away = Leftover(names=frozenset({"away"}), run_ids=frozenset({"second"}))
    assert clusters_left(ledger) == {
        "kafka-main": Leftover(names=frozenset({"main"}), run_ids=frozenset({"first", "second"})),
        "kafka-away": away,
    }
    # The cluster is renamed, and another cluster gets its name.
    replace(written, run_id="third", cluster="away").intend([later])
    assert clusters_left(ledger)["kafka-main"].names == {"main", "away"}
    assert clusters_left(ledger)["kafka-away"] == away
    written.removed(written.left())
    assert list(written.left()) == []
    assert set(clusters_left(ledger)) == {"kafka-away"}
