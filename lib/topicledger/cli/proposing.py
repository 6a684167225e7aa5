"""`prune --declared`: a file for review in which unused declared topics are absent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import click
from pyspark.sql import functions as F

from topicledger import atomic
from topicledger.apply.display import display_only
from topicledger.cli.options import Options, interruptible, open_ledger, open_settings, print_result
from topicledger.cli.scope import check_owners
from topicledger.config.patterns import matches
from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.files.writing import as_yaml
from topicledger.ledger.sql import iso_times
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files.results import FIELDS
from topicledger.manifests.owners import is_one_of
from topicledger.manifests.row_rules import ABSENT
from topicledger.resources.topics.plan.unused import declared_without_use
from topicledger.schemas import MANIFESTS, OBSERVED, USAGE, USAGES
from topicledger.text import counted, document, first_of, iso_time, listed, plain, show

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Proposing:
    """A request to propose unused declared topics."""

    patterns: Sequence[str]
    """RE2 patterns; at least one must match within the topic's name; empty for all topics."""
    days: int
    owners: tuple[str, ...]
    to: Path | None
    """The file to write; None: stdout."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A declared topic, and why it stays; unused if `used` is None."""

    cluster: str
    topic: str
    owner: str | None
    labels: Mapping[str, str] | None
    used: str | None
    audits: int
    seen_since: str | None
    """When the first audit could tell."""
    seen_until: str | None
    """When the last audit could tell."""
    bytes: int | None


def propose(options: Options, request: Proposing) -> int:
    """Write the unused declared topics as a manifest file, and list on stderr why others stay."""
    if request.to is not None and request.to.exists():
        raise UsageError(f"{show(str(request.to))} exists: name a new file for --to")
    with interruptible():
        settings = open_settings(options)
        ledger = open_ledger(options, settings, "prune")
        check_owners(ledger, settings, request.owners)
        every = tuple(settings.clusters)
        found = _find(ledger, request, options.cluster or every, every)
    unused = [each for each in found if each.used is None]
    text = _as_file(unused, request.days) if unused else ""
    if request.to is not None and unused:
        try:
            atomic.write(request.to, [text])
        except OSError as error:
            raise TopicLedgerError(f"can't write {show(str(request.to))}: {error.strerror}") from error
    result = document(ExitCode.DONE, {"unused": [asdict(each) for each in unused],
                       "kept": [asdict(each) for each in found if each.used is not None]})  # fmt: skip
    with display_only("the result", instead="the tables are unchanged"):
        _say(found, unused, request)
        print_result(result, lambda _: click.echo(text if request.to is None else "", nl=False), options)
    return ExitCode.DONE


def _find(ledger: Ledger, request: Proposing, clusters: Sequence[str], every: Sequence[str]) -> list[Looked]:
    if (usage := ledger.read_if_exists(USAGE)).isEmpty():
        raise UsageError(
            "no audit with usage has run: `drift --usage`, or [audit] usage = true, makes the memory that prune "
            "--declared reads"
        )
    usages = ledger.read_if_exists(USAGES)
    chosen = F.col("cluster").isin(*clusters)
    if request.owners:
        chosen &= F.coalesce(is_one_of(F.col("owner"), request.owners), F.lit(False))
    if request.patterns:
        chosen &= reduce(or_, (matches("topic", each) for each in request.patterns))
    rows = (
        declared_without_use(
            ledger.read(MANIFESTS),
            usage,
            usages,
            ledger.read_if_exists(OBSERVED),
            request.days,
            datetime.now(UTC),
            every,
        )
        .where(chosen)
        .withColumns({name: iso_times(F.col(name)) for name in ("seen_since", "seen_until")})
        .select(*Looked.__dataclass_fields__)
        .orderBy("cluster", "topic")
    )
    return [Looked(**{**row.asDict(recursive=True), "audits": row["audits"] or 0}) for row in rows.collect()]


def _as_file(unused: Sequence[Looked], days: int) -> str:
    rows = [
        {
            **dict.fromkeys(FIELDS),
            "cluster": each.cluster,
            "topic": each.topic,
            "state": ABSENT,
            "owner": each.owner,
            "labels": each.labels or None,
            "note": _note(each),
        }
        for each in unused
    ]
    notes = [
        f"Proposed at {iso_time(datetime.now(UTC))}: these topics had no live group and no new record in the audits",
        f"with usage of {days} days. Review each one, and change its state in the file that declares it now.",
        "Consumers without a group can't be seen.",
    ]
    return "".join(as_yaml({MANIFESTS.name: rows}, notes))


def _note(each: Looked) -> str:
    """Return the evidence: the first and the last audit that count."""
    audits = f"unused in {counted(each.audits, 'audit')} until {each.seen_until}"
    return audits if each.bytes is None else f"{audits}, {each.bytes:,} bytes"


def _say(found: Sequence[Looked], unused: Sequence[Looked], request: Proposing) -> None:
    """Print the counts, and the first reasons why topics stay, on stderr."""
    where = f" in {request.to}" if request.to is not None and unused else ""
    click.echo(f"{len(unused)} of {len(found)} declared topics are unused{plain(where)}; the others stay:", err=True)
    reasons: Counter[str] = Counter()
    first: dict[str, Any] = {}
    for each in found:
        if each.used is not None:
            reasons[each.used] += 1
            first.setdefault(each.used, each)
    for why, count in reasons.most_common(_SHOWN):
        one = f"{first[why].topic} on {first[why].cluster}"
        click.echo(plain(f"  {listed([one], count)}: {why}"), err=True)
    if len(reasons) > _SHOWN:
        click.echo(f"  {first_of(_SHOWN, len(reasons))} reasons; --format json has all of them", err=True)
