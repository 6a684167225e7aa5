"""The Kafka part of a run, B1 and B7: validate and apply with decoded results, compared with librdkafka alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from kafka.protocol.admin import CreateTopicsRequest

from benchmarks import brokers
from benchmarks.floor import Floor
from benchmarks.measure import Work, fastest, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.apply.executor import Executor
from topicledger.kafka.created import CreateTopics
from topicledger.model import Action, Outcome, PhaseResult, Target
from topicledger_testing.embedded_kafka import EmbeddedKafka

DRIVER_MEMORY = "512m"
REACH = 3.0

_CREATES = {Size.FULL: 10_000, Size.SMALL: 200}
_DELETES = {Size.FULL: 20_000, Size.SMALL: 200}
_ALTERS = {Size.FULL: (10_000, 5_000), Size.SMALL: (200, 100)}
_SAMPLES = {Size.FULL: 5, Size.SMALL: 1}
_FLOOR_SIZES = {Size.FULL: (500, 1_000, 2_000, 3_300), Size.SMALL: (200,)}
"""Topics in one request of the floor; brokers accept at most 3,300 topics of one partition and one config."""


def creates(size: Size, folder: Path) -> Result:
    """B1: validate and create new topics, each time on a fresh broker."""
    count = _CREATES[size]

    @contextmanager
    def empty() -> Iterator[EmbeddedKafka]:
        with brokers.fresh() as (kafka,):
            yield kafka

    def floor(kafka: EmbeddedKafka, each: int) -> Mapping[str, int]:
        client = Floor(kafka.bootstrap_servers, each)
        names = brokers.names(count)
        return {
            "validated": client.create(names, brokers.CONFIGS, validate_only=True),
            "created": client.create(names, brokers.CONFIGS, validate_only=False),
        }

    def ours(kafka: EmbeddedKafka, request: type = CreateTopics) -> Mapping[str, int]:
        targets = brokers.creates(count)
        with brokers.executor(kafka) as sending:
            sending.admin.create_request = request
            return {
                "validated": done(sending, targets, sending.validate),
                "created": done(sending, targets, sending.apply),
            }

    return _compared(
        size,
        f"Validate, then create {count:,} topics of one partition and one config on a fresh broker.",
        f"validate and apply: {count:,} topics, every result with its configs decoded",
        empty,
        ours,
        floor,
        per_sample=2 * count,
        also=[
            Work(
                name="kafka-python",
                what="the same, every response decoded by kafka-python",
                do=lambda kafka: ours(kafka, CreateTopicsRequest),
                around=empty,
            )
        ],
    )


def deletes(size: Size, folder: Path) -> Result:
    """B7: delete topics, each time on a fresh broker."""
    count = _DELETES[size]

    @contextmanager
    def full() -> Iterator[tuple[EmbeddedKafka, Sequence[Target]]]:
        with brokers.fresh() as (kafka,):
            yield kafka, brokers.with_topics(kafka, count)

    def floor(given: tuple[EmbeddedKafka, Sequence[Target]], each: int) -> Mapping[str, int]:
        kafka, targets = given
        return {"deleted": Floor(kafka.bootstrap_servers, each).delete([target.topic for target in targets])}

    def ours(given: tuple[EmbeddedKafka, Sequence[Target]]) -> Mapping[str, int]:
        kafka, targets = given
        with brokers.executor(kafka) as sending:
            return {
                "checked": done(sending, targets, sending.validate),
                "deleted": done(sending, targets, sending.apply),
            }

    return _compared(
        size,
        f"Delete {count:,} topics of one partition on a fresh broker.",
        f"validate (observes each topic again, D6) and apply: {count:,} deletes by topic id",
        full,
        ours,
        floor,
        per_sample=count,
    )


def alters(size: Size, folder: Path) -> Result:
    """Alter one config of every second topic of a broker, each time to another value."""
    topics, count = _ALTERS[size]
    with brokers.fresh() as (kafka,):
        changed = brokers.with_topics(kafka, topics)[:count]
        names, values = [target.topic for target in changed], [1]

        @contextmanager
        def settled() -> Iterator[int]:
            """Wait until the last value is visible everywhere (K6), and yield the next one."""
            with brokers.executor(kafka) as sending:
                while True:
                    found = sending.admin.topic_configs(names, dict.fromkeys(names, ("flush.ms",)))
                    if {each.value for topic in found for each in topic.configs or ()} <= {str(values[-1])}:
                        break
                    time.sleep(1.0)
            values.append(values[-1] + 1)
            yield values[-1]

        def floor(value: int, each: int) -> Mapping[str, int]:
            client = Floor(kafka.bootstrap_servers, each)
            configs = {"flush.ms": str(value)}
            return {
                "validated": client.alter(names, configs, validate_only=True),
                "altered": client.alter(names, configs, validate_only=False),
            }

        def ours(value: int) -> Mapping[str, int]:
            targets = [
                replace(
                    target,
                    action=Action.ALTER_CONFIGS,
                    before={"flush.ms": str(value - 1)},
                    after={"flush.ms": str(value)},
                )
                for target in changed
            ]
            with brokers.executor(kafka) as sending:
                return {
                    "validated": done(sending, targets, sending.validate),
                    "altered": done(sending, targets, sending.apply),
                }

        # Set the first value, since changes of an existing value are measured.
        with brokers.executor(kafka) as sending:
            first = [replace(each, action=Action.ALTER_CONFIGS, after={"flush.ms": "1"}) for each in changed]
            done(sending, first, sending.apply)
        return _compared(
            size,
            f"Validate, then alter one config of {count:,} of {topics:,} topics.",
            f"validate and apply: {count:,} topics, whose ids and set configs are compared immediately before",
            settled,
            ours,
            floor,
            per_sample=2 * count,
        )


def _compared(
    size: Size,
    work: str,
    what: str,
    around: Callable[[], AbstractContextManager[object]],
    ours: Callable[..., Mapping[str, int]],
    floor: Callable[..., Mapping[str, int]],
    *,
    per_sample: int,
    also: Sequence[Work] = (),
) -> Result:
    """Run ours, the floor and `also` in turns, the floor with its best batch size."""
    best, took = fastest(_FLOOR_SIZES[size], around, floor)
    tried = ", ".join(f"{each:,} topics {seconds:.1f} s" for each, seconds in took.items())
    works = [
        Work(name="floor", what=f"librdkafka, {best:,} topics per request", do=lambda g: floor(g, best), around=around),
        Work(name="ours", what=what, do=ours, around=around),
        *also,
    ]
    lowest, measured, *others = in_turns(works, warm_ups=0, samples=_SAMPLES[size])
    microseconds = measured.median / per_sample * 1e6
    return Result(
        work=work,
        series=[lowest, measured, *others],
        ratios=[
            Ratio(of="ours", to="floor", value=measured.median / lowest.median, reach=REACH),
            *(Ratio(of=each.name, to="ours", value=each.median / measured.median) for each in others),
        ],
        notes=[
            f"The floor's batch size is the best of those tried first: {tried}.",
            f"Ours: {microseconds:.0f} microseconds per topic and request. No Spark, no tables.",
            "Measured until the acknowledgement: the broker creates and removes logs afterwards (C21).",
        ],
    )


def done(
    sending: Executor, targets: Sequence[Target], step: Callable[[Sequence[Target]], Iterator[PhaseResult]]
) -> int:
    """Run a step for all targets in batches; return their number if all succeeded, else raise AssertionError."""
    ended = [each for batch in brokers.batches(targets, sending.limits.max_batch_records) for each in step(batch)]
    done = sum(each.outcome is Outcome.OK for each in ended)
    if done != len(targets):
        raise AssertionError(f"only {done} of {len(targets)} topics succeeded")
    return done
