"""The Kafka part of a run with ACLs: validate and apply, compared with librdkafka alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import brokers
from benchmarks.floor import Floor
from benchmarks.kafka_part import DRIVER_MEMORY as DRIVER_MEMORY
from benchmarks.kafka_part import REACH, done
from benchmarks.measure import Work, fastest, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

_COUNT = {Size.FULL: 10_000, Size.SMALL: 200}
_SAMPLES = {Size.FULL: 5, Size.SMALL: 1}
_FLOOR_SIZES = {Size.FULL: (1_000, 2_500, 5_000, 10_000), Size.SMALL: (200,)}
"""ACLs in one request of the floor; brokers accept at most 10,000 (A5)."""


def run(size: Size, folder: Path) -> Result:
    """Add new ACLs to a broker, and remove them again."""
    count = _COUNT[size]
    acls = [Acl(f"User:bench-{n % 100}", "ALLOW", "READ", "TOPIC", "LITERAL", f"bench.{n}", "*") for n in range(count)]
    adds = [Target(resource=" ".join(each), action=AclAction.ACL_ADD, after=each._asdict()) for each in acls]
    deletes = [Target(resource=" ".join(each), action=AclAction.ACL_DELETE, before=each._asdict()) for each in acls]
    with brokers.with_authorizer() as kafka:

        @contextmanager
        def where(*, there: bool) -> Iterator[EmbeddedKafka]:
            """Provide the broker once it lists all of the ACLs, or none."""
            _settled(kafka, adds if there else deletes, count if there else 0)
            yield kafka

        def floor(add: bool, each: int, _: EmbeddedKafka) -> Mapping[str, int]:
            client = Floor(kafka.bootstrap_servers, each)
            return {"added": client.add_acls(acls)} if add else {"removed": client.remove_acls(acls)}

        def ours(targets: Sequence[Target], _: EmbeddedKafka) -> Mapping[str, int]:
            with brokers.executor(kafka) as sending:
                return {
                    "validated": done(sending, targets, sending.validate),
                    "applied": done(sending, targets, sending.apply),
                }

        # The first round compiles the broker's own code.
        _best(size, partial(where, there=False), partial(floor, True))
        _best(size, partial(where, there=True), partial(floor, False))
        best = {add: _best(size, partial(where, there=not add), partial(floor, add)) for add in (True, False)}
        works = [
            Work(
                name=f"{name}{' of deletes' if not add else ''}",
                what=what,
                do=partial(floor, add, best[add][0]) if name == "floor" else partial(ours, adds if add else deletes),
                around=partial(where, there=not add),
            )
            for add in (True, False)
            for name, what in (
                ("floor", f"librdkafka, {best[add][0]:,} ACLs per request, nothing listed"),
                ("ours", f"validate (existing ACLs, and the principal's own ACLs) and apply: {count:,} ACLs"),
            )
        ]
        series = in_turns(works, warm_ups=0, samples=_SAMPLES[size])
    by_name = {each.name: each for each in series}
    return Result(
        work=f"Add {count:,} ACLs of 100 principals to a broker with StandardAuthorizer, then remove them.",
        series=series,
        ratios=[
            Ratio(of=f"ours{of}", to=f"floor{of}", value=by_name[f"ours{of}"].median / by_name[f"floor{of}"].median,
                  reach=REACH)
            for of in ("", " of deletes")
        ],
        notes=[
            f"The floor's batch size is the best of those tried first: adds {best[True][1]}; deletes {best[False][1]}.",
            "No Spark, no tables. Measured until the acknowledgement; changes become visible later (A6).",
        ],
    )  # fmt: skip


def _best(
    size: Size,
    around: Callable[[], AbstractContextManager[EmbeddedKafka]],
    floor: Callable[[int, EmbeddedKafka], Mapping[str, int]],
) -> tuple[int, str]:
    """Return the floor's best batch size, and a description of the sizes tried."""
    best, took = fastest(_FLOOR_SIZES[size], around, lambda kafka, each: floor(each, kafka))
    return best, ", ".join(f"{each:,} per request {seconds:.2f} s" for each, seconds in took.items())


def _settled(kafka: EmbeddedKafka, changes: Sequence[Target], count: int) -> None:
    """Apply changes of ACLs, and wait until the broker lists `count` ACLs."""
    with brokers.executor(kafka) as sending:
        for batch in brokers.batches(changes, sending.limits.max_batch_records):
            for _ in sending.apply(batch):
                pass
        until = time.monotonic() + 600
        while len(acl_requests.describe_acls(sending.admin)) != count:
            if time.monotonic() > until:
                raise AssertionError(f"the broker doesn't list {count:,} ACLs")
            time.sleep(0.2)
