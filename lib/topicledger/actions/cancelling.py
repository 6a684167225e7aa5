"""Cancels moves of a run: AlterPartitionReassignments without replicas (KIP-455; R2, R3).

Kafka takes away what it was adding, and keeps what it was to remove. Where nobody interfered that is the set of brokers
that a partition was on, but not always in the order it was: another replica may be the preferred leader (R3). So only
moves to the planned brokers are cancelled, and the row says where replicas were left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from topicledger import kafka
from topicledger.actions.context import ClusterContext
from topicledger.actions.waves import is_in_place, moves_of
from topicledger.kafka import Response, error_name
from topicledger.kafka.reassignments import Partition, Replicas, TopicState
from topicledger.kafka.sending import Answer, OutcomeUnknown
from topicledger.model import OURS, Note, Outcome, Phase, PhaseResult, Refusal, Target, TopicResult
from topicledger.model.moves import Move, assignments_text

NO_REASSIGNMENT_IN_PROGRESS = 85
_SETTLED_WITHIN = 15.0
"""Seconds until brokers show what became of a cancelled move."""


def cancel(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Cancel what is under way to the planned brokers, of targets that this run may have sent.

    Yields a row of phase apply for each topic of which anything was moved or cancelled: ok where all of it was moved
    before, else failed CANCELLED with where its replicas are. Topics of which nothing was begun stay open. Raises
    OutcomeUnknown where reassignments may not be listed.
    """
    began = datetime.now(UTC)
    moves = {target.topic: moves_of(target) for target in targets}
    listed = _listed(context)
    ours = {
        topic: under_way
        for topic, each in moves.items()
        if (under_way := [move for move in each if set(listed.get(_key(move), ())) == set(move.after)])
    }
    errors: dict[str, TopicResult] = {}

    def request(asked: Sequence[Target]) -> Response:
        wanted = {_key(move): None for target in asked for move in ours[target.topic]}
        answers, throttled = context.admin.reassign(wanted)
        results = {target.topic: TopicResult() for target in asked}
        for (topic, _), each in answers.items():
            # What was moved in the meantime can't be cancelled any more.
            if each.error_code not in (kafka.NONE, NO_REASSIGNMENT_IN_PROGRESS):
                results[topic] = each
        return Response(results=results, throttle_time_ms=throttled)

    sent = [
        replace(target, assignments=None, num_partitions=len(ours[target.topic]))
        for target in targets
        if target.topic in ours
    ]
    for target, answer in context.send(sent, request, changes=True):
        if answer.result.error_code != kafka.NONE:
            errors[target.topic] = answer.result
    states, listed = _settled(context, targets, ours)
    context.require_planned_cluster()
    for target in targets:
        left = _Left(moves[target.topic], states.get(target.topic), listed, errors.get(target.topic))
        if left.is_known and (target.topic in ours or left.moved):
            yield _row(context, target, left, began)


def _listed(context: ClusterContext) -> Mapping[Partition, Replicas]:
    listed = context.reassignments()
    if listed is None:
        raise OutcomeUnknown(
            f"cluster {context.cluster}: this principal may not list reassignments, so none can be cancelled: grant it "
            "Describe on the cluster"
        )
    return listed


def _settled(
    context: ClusterContext, targets: Sequence[Target], ours: Mapping[str, Sequence[Move]]
) -> tuple[Mapping[str, TopicState], Mapping[Partition, Replicas]]:
    """Where replicas are, and what is listed still, once brokers show what became of `ours` (R4)."""
    deadline = context.clock() + _SETTLED_WITHIN
    while True:
        listed = _listed(context)
        states = context.topic_states([target.topic for target in targets])
        if context.clock() >= deadline or not any(
            _is_between(move, states.get(topic), listed) for topic, moves in ours.items() for move in moves
        ):
            return states, listed
        context.wait(0.5)


def _is_between(move: Move, state: TopicState | None, listed: Mapping[Partition, Replicas]) -> bool:
    live = state.partitions.get(move.partition) if state is not None else None
    both = {*move.before, *move.after}
    return _key(move) in listed or (
        live is not None and set(live.replicas) == both and both not in (set(move.before), set(move.after))
    )


class _Left:
    """Where a topic's partitions were left."""

    def __init__(
        self,
        moves: Sequence[Move],
        state: TopicState | None,
        listed: Mapping[Partition, Replicas],
        error: TopicResult | None,
    ) -> None:
        self._error = error
        live = state.partitions if state is not None else {}
        self.is_known = state is not None and state.permitted
        self.assignments = {move.partition: live[move.partition].replicas for move in moves if move.partition in live}
        self.moved = [move for move in moves if is_in_place(move, live.get(move.partition), listed)]
        self.all_moved = len(self.moved) == len(moves)
        self._words = [f"{len(self.moved)} of {len(moves)} partitions moved"]
        for move in moves:
            where, key = self.assignments.get(move.partition), _key(move)
            if key in listed:
                self._words.append(f"partition {move.partition} is still being moved to {list(listed[key])}")
            elif where is not None and where not in (move.before, move.after):
                was = f"and was on {list(move.before)}"
                if set(where) == set(move.before):
                    was += ": Kafka restores brokers, not their order, so that another one is the preferred leader"
                self._words.append(f"partition {move.partition} is on {list(where)}, {was}")

    @property
    def message(self) -> str:
        words = "; ".join(("cancelled", *self._words))
        if self._error is None:
            return words
        return f"{words}; {error_name(self._error.error_code)}: {self._error.error_message or 'not cancelled'}"


def _row(context: ClusterContext, target: Target, left: _Left, began: datetime) -> PhaseResult:
    after = {**target.after, "assignments": assignments_text(left.assignments), "partitions": str(len(left.moved))}
    if left.all_moved:
        factor = len(next(iter(left.assignments.values())))
        result = TopicResult(replication_factor=factor, before=target.before, after=after)
        answer = Answer(result, 1, began, datetime.now(UTC))
        message = "moved before it could be cancelled"
        return context.result(target, Phase.APPLY, Outcome.OK, answer, note=Note.RECOVERED, message=message)
    result = TopicResult(error_code=OURS, before=target.before, after=after)
    answer = Answer(result, 1, began, datetime.now(UTC))
    return context.result(target, Phase.APPLY, Outcome.FAILED, answer, note=Refusal.CANCELLED, message=left.message)


def _key(move: Move) -> Partition:
    return move.topic, move.partition
