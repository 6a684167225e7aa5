"""What a start remembers of its planned actions."""

from datetime import UTC, datetime

from topicledger.ledger.memory import Memory
from topicledger.model import Action, ConfigEntry, Outcome, Phase, PhaseResult, Target, TopicResult

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLANNED = {
    "main": ("id-1", [[Target(topic="a", action=Action.DELETE)], [Target(topic="b", action=Action.CREATE)]]),
    "spare": ("id-2", [[Target(topic="b", action=Action.CREATE, batch=1)]]),
}


def ended(
    topic: str, phase: Phase, outcome: Outcome, *, cluster: str = "main", action: Action = Action.CREATE
) -> PhaseResult:
    return PhaseResult(
        cluster=cluster,
        cluster_id="id",
        topic=topic,
        action=action,
        phase=phase,
        outcome=outcome,
        topic_id=f"id of {topic}",
        num_partitions=3,
        configs=(ConfigEntry("retention.ms", "1", False, "DEFAULT_CONFIG", False),),
        requested_at=NOON,
        completed_at=NOON,
    )


def test_what_was_ok_in_a_phase_keeps_its_clusters_and_batches() -> None:
    memory = Memory(PLANNED)
    assert memory.ok(Phase.VALIDATE) == {}
    memory.keep([ended("a", Phase.VALIDATE, Outcome.OK, action=Action.DELETE)])
    memory.keep([ended("b", Phase.VALIDATE, Outcome.FAILED), ended("b", Phase.VALIDATE, Outcome.OK, cluster="spare")])
    assert memory.ok(Phase.VALIDATE) == {
        "main": ("id-1", [[Target(topic="a", action=Action.DELETE)]]),
        "spare": ("id-2", [[Target(topic="b", action=Action.CREATE, batch=1)]]),
    }


def test_a_later_outcome_takes_the_place_of_an_earlier_one() -> None:
    memory = Memory(PLANNED)
    for phase in (Phase.VALIDATE, Phase.APPLY):
        memory.keep([ended("b", phase, Outcome.OK)])
    assert memory.ok(Phase.VALIDATE) == {}
    assert list(memory.ok(Phase.APPLY)) == ["main"]
    assert memory.results() == {
        ("main", "b", Action.CREATE): TopicResult(topic_id="id of b", num_partitions=3),
    }


def test_every_planned_action_is_told_of_without_its_configs() -> None:
    memory = Memory(PLANNED)
    memory.keep([ended("b", Phase.APPLY, Outcome.OK, cluster="spare")])
    told = list(memory.all())
    assert [name for name, _ in told] == ["main", "main", "spare"]
    assert [each and (each.phase, each.configs) for _, each in told] == [None, None, (Phase.APPLY, None)]
