"""Compare a run's tables after faults with its cluster: the invariant of DESIGN.md, row by row.

Tables are read with delta-rs and clusters with librdkafka, both independent of the job's libraries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import stored
from tests.fault.another_client import AnotherClient, Live
from tests.waiting import until
from topicledger.resources.acls.acl import Acl
from topicledger_testing.embedded_kafka import EmbeddedKafka


@dataclass(kw_only=True)
class Fault:
    """One line of the table that `make test-faults` prints."""

    name: str
    tried: int = 0
    """Number of runs with this fault."""
    resumed: int = 0
    """Number of times that the same run id then continued."""
    lost: int = 0
    """Planned actions that no row of `audit` ends."""
    doubled: int = 0
    """Extra rows beyond one per action and phase, and beyond one that ends each action."""
    wrong: int = 0
    """Topics that aren't as declared, or whose `ok` row isn't true."""


FAULTS: list[Fault] = []
"""The faults of this test run."""


def table(faults: Sequence[Fault]) -> Iterator[str]:
    """Yield the lines of the table."""
    width = max(len(fault.name) for fault in faults)
    titles = ("tried", "resumed", "rows lost", "rows doubled", "topics wrong")
    yield f"{'fault':<{width}}  {'  '.join(titles)}"
    for fault in faults:
        numbers = (fault.tried, fault.resumed, fault.lost, fault.doubled, fault.wrong)
        yield f"{fault.name:<{width}}  {'  '.join(f'{n:>{len(t)}}' for n, t in zip(numbers, titles, strict=True))}"


def rows(root: Path, table: str, run_id: str) -> list[dict[str, Any]]:
    """Return a run's rows in a table."""
    return stored.rows(root / table, run_id)


def doubled(root: Path, run_id: str) -> int:
    """Count extra rows of `audit` so far: beyond one per action and phase, and beyond one that ends each action."""
    audit = rows(root, "audit", run_id)
    each = Counter((*_action(row), row["phase"]) for row in audit)
    ends = Counter(_action(row) for row in audit if _ends(row))
    plans = Counter(_action(row) for row in rows(root, "plans", run_id) if row["action"] is not None)
    return sum(count - 1 for counts in (each, ends, plans) for count in counts.values())


def lost(root: Path, run_id: str) -> int:
    """Count planned actions of a finished run that no row of `audit` ends."""
    (run,) = rows(root, "runs", run_id)
    assert run["state"] == "finished", run
    ended = {_action(row) for row in rows(root, "audit", run_id) if _ends(row)}
    return len({_action(row) for row in rows(root, "plans", run_id) if row["action"] is not None} - ended)


def wrong(root: Path, run_id: str, kafka: EmbeddedKafka, prefix: str, declared: Mapping[str, bool]) -> set[str]:
    """Count topics with a prefix that aren't as declared (name -> present), or whose `ok` row isn't true."""
    client = AnotherClient(kafka)
    present = {name for name, state in declared.items() if state}

    def as_declared() -> bool:
        return client.names(prefix) == present

    try:
        # Acknowledged topics may not be listed yet (C21).
        until(as_declared, seconds=60)
    except AssertionError:
        return client.names(prefix) ^ present
    live = client.topics(prefix)
    applied = [row for row in rows(root, "audit", run_id) if (row["phase"], row["outcome"]) == ("apply", "ok")]
    return {row["topic"] for row in applied if not _true(row, live.get(row["topic"]))}


def check(
    line: Fault, root: Path, run_id: str, kafka: EmbeddedKafka, prefix: str, declared: Mapping[str, bool]
) -> None:
    """Add a finished run's lost, doubled and wrong counts to a line of the table; all three must be 0."""
    line.lost += lost(root, run_id)
    line.doubled += doubled(root, run_id)
    topics = wrong(root, run_id, kafka, prefix, declared)
    line.wrong += len(topics)
    assert (line.lost, line.doubled, topics) == (0, 0, set())


def check_acls(line: Fault, root: Path, run_id: str, kafka: EmbeddedKafka, principal: str, declared: set[Acl]) -> None:
    """Do the same for ACLs: a principal must have exactly the `declared` ones."""
    line.lost += lost(root, run_id)
    line.doubled += doubled(root, run_id)
    client = AnotherClient(kafka)
    client.await_acls(principal, declared)
    live = client.acls(principal)
    applied = [row for row in rows(root, "audit", run_id) if (row["phase"], row["outcome"]) == ("apply", "ok")]
    wrong = {row["resource"] for row in applied if not _true_of_acl(row, live)}
    line.wrong += len(wrong)
    assert (line.lost, line.doubled, wrong) == (0, 0, set())


def _true_of_acl(row: Mapping[str, Any], live: set[Acl]) -> bool:
    adds = row["action"] == "acl_add"
    return (Acl.of(dict(row["after"] if adds else row["before"])) in live) == adds


def _true(row: Mapping[str, Any], live: Live | None) -> bool:
    if row["action"] == "delete":
        return live is None or live.topic_id != row["topic_id"]
    if row["action"] == "reassign":
        factor = None if live is None else live.replication_factor
        return live is not None and (factor, live.topic_id) == (row["replication_factor"], row["topic_id"])
    if row["action"] in ("alter_configs", "elect_leaders"):
        return live is not None and live.topic_id == row["topic_id"]
    if row["action"] == "add_partitions":
        return live is not None and (live.num_partitions, live.topic_id) == (row["num_partitions"], row["topic_id"])
    return live is not None and (live.num_partitions, live.replication_factor, live.topic_id) == (
        row["num_partitions"],
        row["replication_factor"],
        row["topic_id"],
    )


def _action(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["cluster"], row["resource_type"], row["resource"], row["action"]


def _ends(row: Mapping[str, Any]) -> bool:
    """Whether a row ends an action: its apply, an earlier refusal, or a policy that spares it, as in a prune."""
    # A skipped copy of a manifest is only a note, and an action that can't be validated yet is still applied.
    goes_on = row["outcome"] == "skipped" and row["phase"] in ("manifest", "validate")
    return row["action"] is not None and (
        row["phase"] == "apply" or (row["phase"] != "verify" and row["outcome"] != "ok" and not goes_on)
    )
