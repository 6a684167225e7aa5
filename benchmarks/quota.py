"""Cost of pacing to a quota: validate and create under controller_mutation_rate, compared with the lower bound."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafka.protocol.admin import AlterClientQuotasRequest

from benchmarks import brokers
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Sample, Series, Size
from topicledger.apply.executor import Executor
from topicledger.model import Action, Outcome, Target

DRIVER_MEMORY = "512m"
REACH = 1.25
RATE = 20.0
BURST = 11 * RATE
"""Tokens available after an idle time; controller.quota.window.num is 11 by default."""

_TOPICS = {Size.FULL: 400, Size.SMALL: 125}
_SAMPLES = {Size.FULL: 3, Size.SMALL: 1}


def run(size: Size, folder: Path) -> Result:
    """Validate and create topics, each time on a fresh broker, at 20 partitions per second."""
    topics = _TOPICS[size]

    def paced(sending: Executor) -> Mapping[str, int]:
        return _validate_and_create(sending, topics)

    work = Work(name="paced", what=f"validate, then create {topics} topics of one partition", do=paced, around=_limited)
    (series,) = in_turns([work], warm_ups=0, samples=_SAMPLES[size])
    least = Series(
        name="least",
        what=f"(2 x {topics} tokens - a burst of {BURST:g}) / {RATE:g} per second; calculated, not measured",
        samples=[Sample(seconds=(2 * topics - BURST) / RATE, others=0.0)],
    )
    return Result(
        work=f"{topics} topics under a quota of {RATE:g} mutations per second (KIP-599), fresh broker.",
        series=[series, least],
        ratios=[Ratio(of="paced", to="least", value=series.median / least.median, reach=REACH)],
        notes=["Only the Kafka part: no Spark, no tables. One broker, and no other client under the same quota."],
    )


@contextmanager
def _limited() -> Iterator[Executor]:
    """Provide an executor for a fresh broker with an active quota."""
    with brokers.fresh() as (kafka,), brokers.executor(kafka) as sending:
        entry = AlterClientQuotasRequest.EntryData
        user = [entry.EntityData(entity_type="user", entity_name=None)]
        limit = [entry.OpData(key="controller_mutation_rate", value=RATE, remove=False)]
        sending.admin.ask(AlterClientQuotasRequest(entries=[entry(entity=user, ops=limit)], validate_only=False))
        # The quota takes effect on the controller shortly after it was acknowledged.
        time.sleep(1.0)
        yield sending


def _validate_and_create(sending: Executor, topics: int) -> Mapping[str, int]:
    targets = [
        Target(resource=name, action=Action.CREATE, num_partitions=1, replication_factor=1)
        for name in brokers.names(topics)
    ]
    counts = {}
    for name in ("validated", "created"):
        ended = sending.validate(targets) if name == "validated" else sending.apply(targets)
        counts[name] = sum(each.outcome is Outcome.OK for each in ended)
    if set(counts.values()) != {topics}:
        raise AssertionError(f"expected {topics} topics, not {counts}")
    return counts
