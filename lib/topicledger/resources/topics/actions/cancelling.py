"""Cancels moves of a run: AlterPartitionReassignments without replicas (KIP-455; R2, R3).

Kafka drops the replicas that it was adding, and keeps those that it would have removed. If no other client interfered,
these are the brokers that the partition was on before, but not always in the same order: a different replica may be the
preferred leader (R3). So only moves of the planned topic to the planned brokers are cancelled, compared right before
each request. The row says where the replicas are now. A topic that still moves to the planned brokers afterwards gets
no row: it stays open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from topicledger import kafka
from topicledger.actions.checking import CheckedRequest
from topicledger.actions.context import ClusterContext
from topicledger.kafka import Response, error_name
from topicledger.kafka.reassignments import Partition, Replicas, TopicState
from topicledger.kafka.sending import Answer, NoOutcome, OutcomeUnknown, StaysOpen
from topicledger.model import OURS, Note, Outcome, Phase, PhaseResult, Refusal, Target, TopicResult
from topicledger.model.moves import Move, assignments_text
from topicledger.resources.topics.actions.moved import (
    is_cancelled,
    is_in_place,
    moves_of,
    outwaited,
    requested,
    where_cancelled,
)

NO_REASSIGNMENT_IN_PROGRESS = 85
_SETTLED_WITHIN = 15.0
"""Seconds until brokers show the result of a cancelled move."""


class StillMoved(StaysOpen):
    """Moves of some topics of a batch continue, although a request to cancel them was sent or due."""

    words, advice = "still moved, not cancelled", "cancel again"


def cancel(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
    """Cancel moves to the planned brokers, of targets that this run may have sent.

    Yields a row of phase apply for each topic with moves that were done or cancelled: ok if all were done before, else
    failed CANCELLED with the places of its replicas. Topics whose moves were not begun get no row. Raises
    OutcomeUnknown if reassignments may not be listed, and, after the rows, StillMoved if moves continue or may begin.
    """
    began = datetime.now(UTC)
    outwaited(context, "moves are cancelled in %.0f s: until then, a request of a killed driver may begin one")
    cancelling = _Cancelling(context, targets)
    cancelling.look(targets)
    sent = [
        replace(target, assignments=None, num_partitions=len(cancelling.ours[target.topic]))
        for target in targets
        if target.topic in cancelling.ours
    ]
    checked = CheckedRequest(context, cancelling.compare, cancelling.request)
    silent: dict[str, NoOutcome] = {}
    refused: dict[str, str] = {}
    unknown: OutcomeUnknown | None = None
    try:
        for target, answer in context.send_each(sent, checked, changes=True, silent=silent):
            if answer.result.error_code != kafka.NONE and target.topic not in checked.refused:
                words = f"{error_name(answer.result.error_code)} {answer.result.error_message or ''}"
                refused[target.topic] = words.strip()
    except OutcomeUnknown as error:
        # Others are cancelled by then, and their rows say so: see below.
        unknown = error
    accepted = {topic: cancelling.moves[topic] for topic in cancelling.asked if topic not in refused}
    states, listed = _settled(context, targets, accepted)
    context.require_planned_cluster()
    moving: dict[tuple[str, str], str] = {}
    may_begin = {topic for topic, _ in context.may_move()}
    for target in targets:
        state = states.get(target.topic)
        if state is not None and state.permitted and state.topic_id != target.topic_id:
            yield _recreated(context, target, state, began)
            continue
        left = _Left(cancelling.moves[target.topic], state, listed)
        if left.moving:
            why = "not settled yet" if target.topic in accepted else "its topic id can't be compared now"
            why = cancelling.unsafe.get(target.topic, why)
            why = silent[target.topic].why if target.topic in silent else why
            moving[target.topic, target.action] = refused.get(target.topic, why)
        elif target.topic in may_begin and not left.all_moved:
            moving[target.topic, target.action] = "a request without an answer may still begin a move"
        elif left.is_known and (target.topic in cancelling.asked or left.moved or left.cancelled_before):
            yield _row(context, target, left, began)
    if unknown is not None:
        raise unknown
    if moving:
        raise StillMoved(context.cluster, moving)


class _Cancelling:
    """Moves of targets to the planned brokers, and the requests that cancel them."""

    def __init__(self, context: ClusterContext, targets: Sequence[Target]) -> None:
        self._context = context
        self.moves = {target.topic: moves_of(target) for target in targets}
        self.ours: dict[str, Sequence[Move]] = {}
        """Topic -> moves that can be cancelled now."""
        self.unsafe: dict[str, str] = {}
        """Topic -> why a move of it is left under way: Kafka would drop the only replicas that are in sync."""
        self.asked: set[str] = set()
        """Topics of which any request named a move."""

    def look(self, targets: Sequence[Target]) -> None:
        """Find the moves of targets that can be cancelled now: of the planned topic, to the planned brokers."""
        listed = self._context.require_reassignments()
        states = self._context.topic_states([target.topic for target in targets])
        for target in targets:
            state = states.get(target.topic)
            self.ours.pop(target.topic, None)
            if state is None or not state.permitted or state.topic_id != target.topic_id:
                continue
            ours = [move for move in self.moves[target.topic] if _is_ours(move, listed)]
            unsafe = [move for move in ours if _loses_records(move, state)]
            if unsafe:
                why = "is in sync only on brokers that it is moved to: cancelling its move could lose records"
                self.unsafe[target.topic] = f"partition {unsafe[-1].partition} {why}; let it end"
            if safe := [move for move in ours if move not in unsafe]:
                self.ours[target.topic] = safe

    def compare(self, targets: Sequence[Target], phase: Phase) -> Iterator[tuple[Target, PhaseResult | None]]:
        """Yield each target, with a refusal if none of its moves can be cancelled any more."""
        self.look(targets)
        for target in targets:
            nothing = self._context.skipped(target, phase, "nothing is under way to the planned brokers")
            yield target, None if target.topic in self.ours else nothing

    def request(self, targets: Sequence[Target]) -> Response:
        """Cancel the moves of targets that are under way."""
        wanted = {_key(move): None for target in targets for move in self.ours[target.topic]}
        for target in targets:
            self.asked.add(target.topic)
        answers, throttled = self._context.admin.reassign(wanted)
        results = {target.topic: TopicResult() for target in targets}
        for (topic, _), each in answers.items():
            # Moves that were done in the meantime can't be cancelled any more.
            if each.error_code not in (kafka.NONE, NO_REASSIGNMENT_IN_PROGRESS):
                results[topic] = each
        return Response(results=results, throttle_time_ms=throttled)


def _is_ours(move: Move, listed: Mapping[Partition, Replicas]) -> bool:
    return listed.get(_key(move)) == move.after


def _loses_records(move: Move, state: TopicState) -> bool:
    """Return whether maybe no replica that would stay is in sync: with unclean elections, one of them leads anyway."""
    live = state.partitions.get(move.partition)
    return live is None or live.isr.isdisjoint(move.before)


def _settled(
    context: ClusterContext, targets: Sequence[Target], ours: Mapping[str, Sequence[Move]]
) -> tuple[Mapping[str, TopicState], Mapping[Partition, Replicas]]:
    """Wait until brokers show the result for `ours`, and return topics and listed reassignments (R4)."""
    deadline = context.clock() + _SETTLED_WITHIN
    while True:
        listed = context.require_reassignments()
        states = context.topic_states([target.topic for target in targets])
        if context.clock() >= deadline or not any(
            _is_between(move, states.get(topic), listed) for topic, moves in ours.items() for move in moves
        ):
            return states, listed
        context.wait(0.5)


def _is_between(move: Move, state: TopicState | None, listed: Mapping[Partition, Replicas]) -> bool:
    live = state.partitions.get(move.partition) if state is not None else None
    both = {*move.before, *move.after}
    if _key(move) in listed:
        return _is_ours(move, listed)
    return live is not None and set(live.replicas) == both and both not in (set(move.before), set(move.after))


class _Left:
    """The places of a topic's partitions after a cancel."""

    def __init__(self, moves: Sequence[Move], state: TopicState | None, listed: Mapping[Partition, Replicas]) -> None:
        live = state.partitions if state is not None else {}
        self.is_known = state is not None and state.permitted
        self.moving = [move for move in moves if _is_between(move, state, listed)]
        """Moves that are still under way to the planned brokers, or that ended and are not shown as ended (R4)."""
        self.assignments = {move.partition: live[move.partition].replicas for move in moves if move.partition in live}
        self.moved = [move for move in moves if is_in_place(move, live.get(move.partition), listed)]
        self.cancelled_before = [
            each for each in moves if each.partition in live and is_cancelled(each, live[each.partition])
        ]
        """Moves that look cancelled, by this start or by an earlier one whose row got lost."""
        self.all_moved = len(self.moved) == len(moves)
        words = [f"{len(self.moved)} of {len(moves)} partitions moved"]
        for move in moves:
            where, key = self.assignments.get(move.partition), _key(move)
            if key in listed:
                words.append(f"partition {move.partition} is still being moved to {list(listed[key])}")
            elif where is not None and where not in (move.before, move.after):
                words.append(where_cancelled(move, where))
        self.message = "; ".join(("cancelled", *words))


def _recreated(context: ClusterContext, target: Target, state: TopicState, began: datetime) -> PhaseResult:
    answer = Answer(TopicResult(error_code=OURS, before=target.before), 1, began, datetime.now(UTC))
    message = f"recreated since the plan, with id {state.topic_id}: nothing of the new topic was cancelled"
    return context.result(target, Phase.APPLY, Outcome.FAILED, answer, note=Refusal.RECREATED, message=message)


def _row(context: ClusterContext, target: Target, left: _Left, began: datetime) -> PhaseResult:
    after = {**requested(target), "assignments": assignments_text(left.assignments), "partitions": str(len(left.moved))}
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
