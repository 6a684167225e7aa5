"""Safety of whole runs, on clusters and tables in memory: see `tests.properties.walks`."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.properties.walks.driver import functions_in_memory, installed
from tests.properties.walks.estate import Estate
from tests.properties.walks.history import Approve, Item, Start, Walk
from tests.properties.walks.ledger import MemoryLedger
from tests.properties.walks.world import CURSE, Event, To, World
from topicledger.config.settings import ClusterSettings, KafkaSettings, Settings, TablesSettings
from topicledger.errors import GuardStopped
from topicledger.ledger.throttles import Leftover
from topicledger.model import TOPIC
from topicledger.plan import reverted
from topicledger.resources.topics.apply.throttles import take_away_left
from topicledger.resources.topics.plan import wanted
from topicledger.schemas import AUDIT, PLANS, SENT_BATCHES

BEGAN = datetime(2026, 11, 25, 12, tzinfo=UTC)
EXPIRES = Event("a week passes")


@pytest.fixture
def in_memory() -> Iterator[None]:
    with installed():
        yield


def walked(*items: Item, **estate: Any) -> list[dict[str, Any]]:
    """Walk through a history until its runs are finished; return the rows of `audit` of phase apply."""
    walk = Walk(Estate(**estate), Counter())
    walk.walk(items)
    return [row for row in walk.ledger.audit() if row["phase"] == "apply"]


def of_topic(rows: Sequence[dict[str, Any]], topic: str) -> tuple[str, str | None, str]:
    (row,) = (each for each in rows if each["resource"] == topic)
    return row["outcome"], row["error"], str(row["error_message"])


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize(
    ("since", "error"),
    [(EXPIRES, "PLAN_EXPIRED"), (Event("declares otherwise", "m1"), "CHANGED_SINCE_PLAN")],
    ids=["expired", "not declared any more"],
)
def test_a_move_under_way_is_never_refused_as_unsent(since: Event, error: str) -> None:
    """A stopped run is resumed with a plan that may not be sent any more: m1 is being moved, m3 on west is not."""
    rows = walked(Start("moves"), Event("stop", moving=True), since, Start("moves"))
    outcome, found, message = of_topic(rows, "m1")
    assert (outcome, found) == ("failed", error)
    assert "not sent" not in message
    if since is EXPIRES:
        assert "nothing more of it is sent" in message


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize(
    "since", [EXPIRES, Event("declares otherwise", "c1")], ids=["expired", "not declared any more"]
)
@pytest.mark.parametrize("fault", ["crash, done", "crash, not done"])
def test_a_create_that_was_done_is_recovered_and_only_an_unsent_one_refused(since: Event, fault: str) -> None:
    """The driver dies while it sends the create of c1."""
    rows = walked(Start("topics"), Event(fault, to=To.OTHERS, after=1), since, Start("topics"))
    assert of_topic(rows, "c1")[0] == {"crash, done": "ok", "crash, not done": "refused"}[fault]


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("topic", ["c1", "d1", "g1", "k1"])
def test_a_topic_that_always_answers_minus_one_fails_alone_and_its_run_ends(topic: str) -> None:
    """Created, deleted, given partitions or configs: from the approval on, its cluster answers only -1 about it."""
    rows = walked(Start("topics"), Approve("topics"), Event(CURSE, topic), Start("topics"), approvals=1)
    outcomes = {row["resource"]: row["outcome"] for row in rows}
    assert outcomes.pop(topic) == "failed"
    assert len(outcomes) == 6
    assert set(outcomes.values()) == {"ok"}


@pytest.mark.usefixtures("in_memory")
def test_a_throttle_of_a_topic_that_always_answers_minus_one_keeps_no_run_open() -> None:
    """m3 is moved, then its throttle can't be removed: the run ends, and a later one removes it if brokers answer."""
    rows = walked(Start("moves"), Event(CURSE, "m3", after=20, moving=True))
    assert {of_topic(rows, topic)[0] for topic in ("m1", "m2", "m3")} == {"ok"}
    assert of_topic(rows, "c1")[0] == "ok", "no later run removed it"


class Unseen:
    """What `read_unseen_topics` returns."""

    def __init__(self, **rows: Any) -> None:
        self._row = {"cluster": "main", "unseen": None, "error": None, **rows}

    def collect(self) -> list[dict[str, Any]]:
        return [self._row]


@pytest.mark.parametrize(
    ("unseen", "stops"),
    [
        (Unseen(unseen=0), None),
        (Unseen(unseen=1), "1 topic is hidden from this principal and may have replicas there"),
        (Unseen(unseen=7), "7 topics are hidden from this principal and may have replicas there"),
        (Unseen(error="grant Describe on the cluster"), "it is unknown whether topics are hidden .*: grant Describe"),
    ],
    ids=["all seen", "one hidden", "several hidden", "unknown"],
)
def test_a_broker_is_drained_only_if_no_topic_is_hidden(
    monkeypatch: pytest.MonkeyPatch, unseen: Unseen, stops: str | None
) -> None:
    asked: list[int | None] = []

    def read(*_: Any, on: int | None) -> Unseen:
        asked.append(on)
        return unseen

    monkeypatch.setattr(wanted, "read_unseen_topics", read)
    run: Any = SimpleNamespace(
        spark=SimpleNamespace(createDataFrame=lambda *_: None), clusters=[], settings=SimpleNamespace(kafka=None)
    )
    if stops is None:
        wanted._require_all_seen(run, 3)
    else:
        with pytest.raises(GuardStopped, match=f"cluster main: broker 3 can't be drained: {stops}"):
            wanted._require_all_seen(run, 3)
    assert asked == [3]


def altered(run_id: str, topic: str, minute: int, before: str, after: str, **audit: Any) -> tuple[dict[str, Any], ...]:
    """Return an alter of flush.ms as a row of `plans` and of `audit`."""
    at = BEGAN + timedelta(minutes=minute)
    key = {"run_id": run_id, "cluster": "main", "resource_type": "topic", "resource": topic, "topic": topic}
    changed = {"before": {"flush.ms": before}, "after": {"flush.ms": after}}
    plan = {**key, "owner": "a", "action": "alter_configs", **changed, "batch": 0, "planned_at": at}
    done = {"phase": "apply", "outcome": "ok", "error_code": 0, "completed_at": at}
    return plan, {**key, "action": "alter_configs", **changed, **done, **audit}


def test_later_runs_that_changed_a_value_back_are_found() -> None:
    """A -> B by the run, then B -> C -> B by later ones: its current value doesn't show them."""
    made = [
        altered("x", "back", 1, "a", "b"),
        altered("y", "back", 2, "b", "c"),
        altered("z", "back", 3, "c", "b"),
        altered("earlier", "back", 0, "0", "a"),
        altered("x", "refused", 1, "a", "b"),
        altered("y", "refused", 2, "b", "c", outcome="refused"),
    ]
    with functions_in_memory():
        ledger = MemoryLedger(World())
        ledger.ensure(SENT_BATCHES)
        ledger.put(PLANS, [plan for plan, _ in made])
        ledger.put(AUDIT, [audit for _, audit in made])
        of_run = reverted.changed_by(ledger, "x", TOPIC)  # type: ignore[arg-type]
        later = reverted.changed_later(ledger, "x", of_run, TOPIC).collect()  # type: ignore[arg-type]
    assert sorted((row["resource"], row["run_id"], *row["touched"]) for row in later) == [
        ("back", "y", "flush.ms"),
        ("back", "z", "flush.ms"),
    ]


def test_throttles_left_on_an_unreachable_cluster_stop_no_other_run(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing listens at its address. Only the run that set them has a problem."""
    settings = Settings(
        path=Path("run.toml"),
        tables=TablesSettings(root="ledger"),
        clusters={"gone": ClusterSettings(name="gone", bootstrap_servers=("127.0.0.1:1",))},
        kafka=KafkaSettings(connect_timeout=0.5),
    )
    left = {"gone": ("an-id", Leftover(names=frozenset({"gone"}), run_ids=frozenset({"theirs"})))}
    with caplog.at_level(logging.WARNING):
        ledger: Any = None
        problems = [take_away_left(ledger, settings, each, left, threading.Event()) for each in ("ours", "theirs")]
    assert problems[0] == {}
    assert problems[1].keys() == {"gone"}
    assert caplog.text.count("throttles of cluster gone stay for now") == 2
