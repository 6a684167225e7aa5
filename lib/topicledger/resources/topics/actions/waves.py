"""Moves in waves: a limited number of partitions and bytes is under way per broker, and new moves follow finished ones.

Each request is compared with the cluster right before it is sent, also when it is repeated, since Kafka silently lets a
second target win (R2). From then on, its partitions may be under way, even if its answer gets lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from topicledger import kafka
from topicledger.actions.checking import CheckedRequest, undescribed
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.errors import ClusterError
from topicledger.kafka import RequestLost, Response
from topicledger.kafka.moving import Unanswered
from topicledger.kafka.reassignments import Partition, PartitionState, Replicas, TopicState
from topicledger.kafka.sending import Answer, NoOutcome, may_be_done
from topicledger.model import Phase, PhaseResult, Refusal, ReplicaAction, Target, TopicResult
from topicledger.model.moves import Move, UnderWay
from topicledger.resources.topics.actions.min_insync import below_min_insync
from topicledger.resources.topics.actions.moved import (
    answer_of,
    is_between,
    is_cancelled,
    is_in_place,
    measured,
    moves_of,
    ours,
    where_cancelled,
)
from topicledger.resources.topics.actions.obstacles import Obstacles
from topicledger.resources.topics.actions.throttling import Throttling
from topicledger.resources.topics.actions.watching import Watching

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
_LONGEST_LOOK = 5.0
_UNLISTED_FOR = 15.0
"""Seconds that a topic isn't listed before it counts as deleted."""
_MOST_AT_ONCE = 4_000
"""Partitions in a request: about 10,000 are the limit (R5)."""


class Waves:
    """Moves topics of one cluster; Kafka completes moves that are still under way at the end."""

    def __init__(self, context: ClusterContext, targets: Sequence[Target]) -> None:
        self._context = context
        self._targets = {target.topic: target for target in targets}
        self._moves = {target.topic: moves_of(target) for target in targets}
        self._measured: frozenset[str] = frozenset()
        """Topics for whose partitions brokers reported sizes."""
        self._done: set[Partition] = set()
        self._under_way: dict[Partition, Move] = {}
        self._failed: dict[str, tuple[Refusal | None, TopicResult]] = {}
        """Topic whose remaining moves are held back -> our refusal, or the broker's answer."""
        for (action, topic), why in context.limits.moving.withdrawn.items():
            if action == ReplicaAction.REASSIGN:
                self._failed[topic] = (why.error, ours(f"the rest was not begun: {why.message}"))
        self._maybe_sent = {target.topic for target in targets if target.maybe_sent}
        """Topics of which a move may have been sent."""
        self._left_open: set[str] = set()
        """Topics whose outcome this start can't know; they are observed while others move, since they use room."""
        self._unanswered = context.limits.moving.unanswered
        self._sent: set[Partition] = set()
        """Partitions whose move was acknowledged or listed, or whose replicas show that an earlier start sent it."""
        self._not_listed_since: dict[Partition, float] = {}
        """Move in `_sent` -> when it was first neither listed nor done, by the context's clock. Metadata lags behind
        the listing (R4). Count the lag from the second observation: a move may end between two of them."""
        self._unlisted_since: dict[str, float] = {}
        self._looked = False
        self._began = datetime.now(UTC)
        self._obstacles = Obstacles(context)
        self._watching = Watching(context)

    def run(self) -> Iterator[PhaseResult]:
        """Move all topics; yield a row of phase apply for each once all its partitions are done, or one can't be moved.

        Topics without a row are open. Raises OutcomeUnknown if asked to stop. Throttles of moves that are or may be
        under way stay set and recorded; the others are removed.
        """
        context, throttles = self._context, self._context.limits.moving.throttles
        throttling = Throttling(context, throttles) if throttles is not None else None
        pause = _LOOK_EVERY
        try:
            if self._targets:
                self._moves, self._measured = measured(context, self._targets)
                self.look()
            while True:
                yield from self._ended()
                if self._targets.keys() <= self._left_open:
                    break
                wave = self._next_wave()
                if throttling is not None:
                    wave = self._throttled(throttling, wave)
                if wave:
                    self._start(wave)
                pause = _LOOK_EVERY if wave else min(pause * 1.5, _LONGEST_LOOK)
                self._watching.say(*self._progress())
                context.wait(pause)
                self.look()
        except ClusterError:
            moving = len(self._under_way.keys() | context.may_move().keys())
            if throttling is not None and moving:
                words = "cluster %s: %d partitions are or may be still moving; their throttles stay until that is over"
                log.warning(words, context.cluster, moving)
            elif throttling is not None and self._looked:
                throttling.end_if_possible()
            # Without a look at the cluster, any move may be under way, and all throttles stay.
            raise
        if throttling is not None:
            throttling.end_if_possible()

    def _throttled(self, throttling: Throttling, wave: Sequence[Move]) -> Sequence[Move]:
        """Set the throttles that moves need and lack; return the moves of the wave that may begin."""
        rate = self._context.limits.moving.settings.throttle
        if throttling.begun:
            without = throttling.complete(wave, self._under_way.values(), rate)
        elif self._may_be_deleted():
            # An unlisted topic can't be throttled: its configs can't be read. Wait until it is listed, or deleted.
            return []
        else:
            without = throttling.begin(self._unfinished(), rate)
        for topic, why in without.refused.items():
            self._failed.setdefault(topic, (None, ours(f"{why}: the rest was not begun")))
        for topic, why in without.silent.items():
            self._leave_open(topic, why)
        return [move for move in wave if move.topic not in without.topics]

    def _may_be_deleted(self) -> Collection[str]:
        """Return the topics that no broker lists and that don't count as deleted yet."""
        moving = self._targets.keys() & {topic for topic, _ in self._under_way}
        return moving & self._unlisted_since.keys() - self._left_open

    def _unfinished(self) -> Sequence[Move]:
        return [
            move
            for topic in self._targets
            for move in self._moves[topic]
            if not self._is_done(move) and (topic not in self._failed or (topic, move.partition) in self._under_way)
        ]

    def look(self, topics: Sequence[str] | None = None) -> None:
        """Find moves, of all or the given topics, that are done (R4: in sync, no longer listed) or under way."""
        seen = list(self._targets) if topics is None else topics
        listed = self._context.require_reassignments()
        states = self._context.topic_states(seen)
        self._obstacles.see(states)
        for topic in seen:
            for move in self._moves[topic]:
                self._under_way.pop((topic, move.partition), None)
                self._see(move, states.get(topic), listed)
        self._looked = True
        if topics is None:
            for topic, why in self._obstacles.gone(self._unfinished(), self._under_way).items():
                if topic not in self._left_open:
                    self._leave_open(topic, why)

    def _see(self, move: Move, state: TopicState | None, listed: Mapping[Partition, Replicas]) -> None:
        key, target = (move.topic, move.partition), self._targets[move.topic]
        if key in self._done:
            # If other clients move it afterwards, verify reports that.
            return
        under_way = listed.get(key)
        if under_way is not None and under_way != move.after:
            why = f"partition {move.partition} is being moved to {list(under_way)} by another client"
            self._fail(move.topic, Refusal.REASSIGNMENT_IN_PROGRESS, why)
            return
        if state is None:
            self._see_unlisted(move, moved_now=under_way is not None)
            return
        self._unlisted_since.pop(move.topic, None)
        if not state.permitted:
            if under_way is not None:
                self._under_way[key] = move
            self._fail(move.topic, *undescribed(state))
            return
        if state.topic_id != target.topic_id:
            self._fail(move.topic, Refusal.RECREATED, f"recreated since the plan, with id {state.topic_id}")
            return
        live = state.partitions.get(move.partition)
        if under_way is not None:
            # Another request for it may still be on its way: that matters if another client interferes.
            self._under_way[key] = move
            self._is_sent(key)
        elif is_in_place(move, live, listed):
            self._unanswered.pop(key, None)
            self._done.add(key)
        elif self._is_on_its_way(move, live):
            self._under_way[key] = move
        elif live is not None and target.maybe_sent and is_cancelled(move, live):
            why = f"an earlier start, or another client, cancelled it: {where_cancelled(move, live.replicas)}"
            self._fail(move.topic, Refusal.CANCELLED, why)
        elif live is None or live.replicas != move.before:
            where = "gone" if live is None else f"on brokers {list(live.replicas)}"
            why = f"partition {move.partition} is {where}, neither as planned nor as it was"
            self._fail(move.topic, Refusal.CHANGED_SINCE_PLAN, why)
        elif key in self._sent:
            # Acknowledged, but neither listed nor done. Its throttles may be gone, too: tools that cancel remove them.
            why = f"another client cancelled the move of partition {move.partition}"
            self._fail(move.topic, Refusal.CANCELLED, why)

    def _is_sent(self, key: Partition) -> None:
        self._sent.add(key)
        self._not_listed_since.pop(key, None)

    def _fail(self, topic: str, refusal: Refusal, why: str) -> None:
        """Begin no more moves of a topic; moves under way are waited for."""
        self._failed.setdefault(topic, (refusal, ours(why)))

    def _see_unlisted(self, move: Move, *, moved_now: bool) -> None:
        """Take a topic for deleted if no broker lists it for a while; one broker may lag behind the others."""
        now = self._context.clock()
        if not moved_now and now - self._unlisted_since.setdefault(move.topic, now) >= _UNLISTED_FOR:
            self._fail(move.topic, Refusal.CHANGED_SINCE_PLAN, "the topic was deleted while it was moved")
        else:
            self._under_way[move.topic, move.partition] = move

    def _is_on_its_way(self, move: Move, live: PartitionState | None) -> bool:
        """Return whether an unlisted partition may have been moved while brokers don't show it yet (R4)."""
        key, now, policy = (move.topic, move.partition), self._context.clock(), self._context.retry_policy
        if live is None:
            return False
        if live.replicas == move.after:
            return True
        between = live.replicas != move.before and is_between(move, live)
        if not between and live.replicas != move.before:
            # Our move never looks like this: another client has moved it since.
            return False
        if between and (self._targets[move.topic].maybe_sent or key in self._unanswered):
            self._sent.add(key)
        return key in self._sent and now - self._not_listed_since.setdefault(key, now) < policy.visibility

    def _progress(self) -> tuple[Sequence[Move], Sequence[Move], Mapping[Partition, Move]]:
        moves = [move for each in self._moves.values() for move in each]
        return moves, list(filter(self._is_done, moves)), self._under_way

    def _is_done(self, move: Move) -> bool:
        return (move.topic, move.partition) in self._done

    def is_done(self, target: Target) -> bool:
        """Return whether all of a topic's partitions are done."""
        return all(map(self._is_done, self._moves[target.topic]))

    def is_begun(self, target: Target) -> bool:
        """Return whether any partition of a topic is or may be under way, is done, or is at a place not in the plan.

        If false, the cluster shows that no move was carried out: each partition is where it was, and none is listed.
        """
        keys = {(target.topic, move.partition) for move in self._moves[target.topic]}
        return target.topic in self._failed or not keys.isdisjoint({*self._under_way, *self._unanswered, *self._done})

    def _ended(self) -> Iterator[PhaseResult]:
        moving = {topic for topic, _ in self._under_way.keys() | self._context.may_move().keys()}
        for topic, target in list(self._targets.items()):
            if topic in self._left_open:
                continue
            if self.is_done(target):
                del self._targets[topic]
                answer = self.answer(target, self._began)
                yield self._context.result(target, Phase.APPLY, outcome_of(kafka.NONE), answer)
            elif topic in self._failed and topic not in moving:
                del self._targets[topic]
                yield self._ended_early(target, *self._failed[topic])

    def _ended_early(self, target: Target, note: Refusal | None, result: TopicResult) -> PhaseResult:
        """Make the result of a topic that is not or only partly moved: refused only if nothing was sent."""
        context, words = self._context, result.error_message or ""
        if note is not None and target.topic not in self._maybe_sent:
            return context.refused(target, Phase.APPLY, note, f"{words}: nothing of it was sent; plan again")
        done, moves = sum(map(self._is_done, self._moves[target.topic])), self._moves[target.topic]
        many = "it is unknown how many" if target.topic in self._obstacles.undescribed else done
        words = f"{many} of {len(moves)} partitions moved; {words}".removesuffix("; ")
        answer = Answer(replace(result, before=target.before), 1, self._began, datetime.now(UTC))
        outcome = outcome_of(kafka.UNKNOWN_SERVER_ERROR)
        return context.result(target, Phase.APPLY, outcome, answer, note=note, message=words)

    def answer(self, target: Target, began: datetime) -> Answer:
        """Make the answer for a topic that is done: the moved partitions and bytes, and the times."""
        return answer_of(target, self._moves[target.topic], began, measured=target.topic in self._measured)

    def _next_wave(self) -> Sequence[Move]:
        most = self._context.limits.moving.settings
        room = UnderWay(max_partitions=most.max_partitions_per_broker, max_bytes=most.max_bytes_per_broker)
        copied, wave = list(self._obstacles.copied(self._under_way.values())), list[Move]()
        if self._context.limits.moving.is_expired():
            for topic in self._targets:
                self._fail(topic, Refusal.PLAN_EXPIRED, "the rest was not begun: guards.max_plan_age is over")
        for move in copied:
            room.add(move)
        for topic in self._targets:
            if topic in self._failed or topic in self._left_open:
                continue
            for move in self._moves[topic]:
                if len(wave) < _MOST_AT_ONCE and self._may_begin(move) and room.take(move):
                    wave.append(move)
        if not wave and not copied:
            # Nothing else moves: waiting for these brokers or leaders would only hold the cluster's lease.
            for topic, why in self._obstacles.unbegun.items():
                self._fail(topic, Refusal.BROKERS_UNAVAILABLE, why)
        return wave

    def _may_begin(self, move: Move) -> bool:
        idle = (move.topic, move.partition) not in self._under_way and not self._is_done(move)
        return idle and self._obstacles.may_begin(move)

    def _start(self, wave: Sequence[Move]) -> None:
        by_topic: dict[str, list[Move]] = {}
        for move in wave:
            by_topic.setdefault(move.topic, []).append(move)

        def request(targets: Sequence[Target]) -> Response:
            asked = {
                (move.topic, move.partition): move.after
                for each in targets
                for move in by_topic[each.topic]
                # A second request for others would overwrite a target that another client has set since.
                if self._may_begin(move)
            }
            results = {target.topic: TopicResult() for target in targets}
            if not asked:
                return Response(results=results, throttle_time_ms=0)
            self._maybe_sent |= {topic for topic, _ in asked}
            try:
                answers, throttled = self._context.admin.reassign(asked)
            except RequestLost:
                self._note(asked, {})
                raise
            self._note(asked, answers)
            for key, each in answers.items():
                if results[key[0]].error_code == kafka.NONE:
                    results[key[0]] = each
            # If the answer lacks a requested partition, it doesn't count as an answer for the topic.
            for topic, _ in asked.keys() - answers.keys():
                results.pop(topic, None)
            return Response(results=results, throttle_time_ms=throttled)

        targets = [
            replace(self._targets[topic], assignments=None, num_partitions=len(by_topic[topic])) for topic in by_topic
        ]
        checked, silent = CheckedRequest(self._context, self._compare, request), dict[str, NoOutcome]()
        for target, answer in self._context.send_each(targets, checked, changes=True, silent=silent):
            for move in by_topic[target.topic]:
                if (target.topic, move.partition) in self._sent:
                    self._under_way[target.topic, move.partition] = move
            if target.topic not in checked.refused and answer.result.error_code != kafka.NONE:
                self._failed.setdefault(target.topic, (None, answer.result))
        if silent:
            # Without an outcome in an answer, the cluster shows whether the partitions move.
            self.look(list(silent))
        for topic, why in silent.items():
            keys = {(topic, move.partition) for move in by_topic[topic]}
            if not keys <= self._under_way.keys() | self._done:
                self._give_up(self._targets[topic], why)

    def _note(self, asked: Mapping[Partition, Replicas], answers: Mapping[Partition, TopicResult]) -> None:
        """Note the outcomes of a request; a refusal doesn't tell the outcome of an earlier request that got lost."""
        now = self._context.clock()
        for key, brokers in asked.items():
            answer = answers.get(key)
            if answer is None or may_be_done(answer):
                self._unanswered[key] = Unanswered(after=brokers, at=now)
            elif answer.error_code == kafka.NONE:
                self._is_sent(key)
                self._unanswered.pop(key, None)

    def _give_up(self, target: Target, silent: NoOutcome) -> None:
        """Stop moving a topic if its request has no outcome and it isn't moving as requested."""
        if silent.by_itself:
            words = f"{silent.why}: the rest was not begun"
            note = None if silent.told else Refusal.NO_ANSWER
            self._failed.setdefault(target.topic, (note, replace(silent.last.result, error_message=words)))
        else:
            self._leave_open(target.topic, silent.why)

    def leave_open(self, why: str) -> None:
        """Leave open all topics without a row."""
        for topic in self._targets:
            self._leave_open(topic, why)

    def _leave_open(self, topic: str, why: str) -> None:
        self._left_open.add(topic)
        self._context.leave_open(self._targets[topic], why)

    def _compare(self, targets: Sequence[Target], phase: Phase) -> Iterator[tuple[Target, PhaseResult | None]]:
        """Yield each target, with a refusal if its topic is no longer as planned, or can't be compared now."""
        self.look([target.topic for target in targets])
        left = [target for target in targets if target.topic not in self._failed]
        for topic, why in below_min_insync(self._context, left).items():
            self._fail(topic, *why)
        for target in targets:
            unknown = target.topic in self._failed or target.topic in self._unlisted_since
            why = Refusal.CHANGED_SINCE_PLAN, "not sent"
            yield target, self._context.refused(target, phase, *why) if unknown else None
