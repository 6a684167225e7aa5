"""Reports to look at: an ordinary run, one full of hostile words, an audit, a span, and one as large as a page gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from topicledger.model.scope import Scope
from topicledger.report.estate import Estate, Growth, OwnerSize, ViewRows
from topicledger.report.facts import (
    Age,
    Batch,
    Changed,
    ChangedProblem,
    Compared,
    DriftFinding,
    DriftReport,
    DriftTally,
    History,
    PhaseTime,
    PlannedChange,
    PolicyTally,
    Report,
    RequestTimes,
    Result,
    RunFacts,
    RunOfSpan,
    ShownAudit,
    Tally,
    Waiting,
)
from topicledger.report.resources import Owned, OwnedChange, OwnerCounts
from topicledger.report.times import CLOSED, OBSERVED, WAITED
from topicledger.resources.acls import kind as acls
from topicledger.resources.quotas import kind as quotas
from topicledger.review.history import TopicEvent

NOW = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)

SCRIPT = "<script>document.title='taken';window.taken=1</script>"
CLOSING = '</script></style></td></table><img src=x onerror="window.taken=1">'
QUOTES = "\"'><svg onload='window.taken=1'>`${window.taken=1}`{{7*7}}{% raw %}&lt;&amp;"
RIGHT_TO_LEFT = "orders.\u202egpj.exe\u2066\u200b"
ARABIC = "طلبات.الدفع"
CONTROL = "bell\x07 null\x00 escape\x1b[31m line\nnext\u2028separator"
LONG = "very-long." * 60
HOSTILE = (SCRIPT, CLOSING, QUOTES, RIGHT_TO_LEFT, ARABIC, CONTROL, LONG)
DOTTED = (
    "payments.europe.authorised.retries.version2.deadletter.archive",
    "com.example.platform.search.index.documents.changed.compacted",
    "orders.dead_letter_queue.invoices_of_customers.europe_central_1",
)


def run_facts(command: str = "provision", **changed: object) -> RunFacts:
    usual = RunFacts(
        run_id="20261121T141500000000Z-1f2e3d4c",
        state="finished",
        started_at=NOW - timedelta(minutes=15),
        finished_at=NOW - timedelta(minutes=9, seconds=18),
        exit_code=4,
        manifest_version=118,
        requested_by="alice",
        principal="ANONYMOUS",
        arguments={"command": command, "clusters": ""},
        versions={"topicledger": "0.1.0", "spark": "4.2.0", "delta": "4.4.0", "kafka-python": "3.0.12"},
        counts={"unchanged": 11_204, "drifted": 12, "unmanaged": 3},
    )
    return replace(usual, **changed)  # type: ignore[arg-type]


def _tally(cluster: str | None, phase: str, outcome: str, topics: int, **more: str | None) -> Tally:
    told = {"action": "create", "error": None, "example": None, "message": None, **more}
    return Tally(cluster=cluster, resource_type="topic", phase=phase, outcome=outcome, topics=topics, **told)  # type: ignore[arg-type]


TOO_FEW = (
    "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
    "because only 1 broker(s) are registered."
)
PATTERN = "the name has no match of ^[a-z0-9]+(\\.[a-z0-9-]+)*$"


def _result(
    number: int, cluster: str, outcome: str, phase: str, error: str | None = None, why: str | None = None
) -> Result:
    return Result(
        run_id=run_facts().run_id,
        cluster=cluster,
        topic=f"payments.authorised-{number:04}",
        action="create",
        phase=phase,
        outcome=outcome,
        error=error,
        error_message=why,
        completed_at=NOW - timedelta(minutes=10, seconds=number % 60),
        change=PlannedChange(
            what="12 partitions, replication factor 3, retention.ms=604800000",
            description=None if number % 4 else "What customers paid",
        ),
        owner="payments" if number % 3 else None,
    )


def told(words: str = "plan-1") -> list[TopicEvent]:
    """Return the history of a topic."""
    events = (
        ("declared", "load-7", "manifests at version 117: state present, replication_factor 3", "alice"),
        ("planned", words, "+ create payments.authorised-0000: 12 partitions", "alice"),
        ("approved", words, "ticket 17", "bob"),
        ("failed", words, f"create (validate): INVALID_REPLICATION_FACTOR: {TOO_FEW}", "alice"),
    )
    return [
        TopicEvent(at=NOW - timedelta(days=9 - number), what=what, run_id=run_id, details=details, requested_by=by)
        for number, (what, run_id, details, by) in enumerate(events)
    ]


def phases(facts: RunFacts) -> list[PhaseTime]:
    """As of a run that was applied the next day."""
    times, began = [], facts.started_at
    for phase, seconds in (
        (OBSERVED, 6.2), ("validate", 12.9), (WAITED, 61_200.0), ("apply", 166.0), ("verify", 1.4), (CLOSED, 0.8)
    ):  # fmt: skip
        times.append(PhaseTime(phase=phase, began_at=began, seconds=seconds))
        began += timedelta(seconds=seconds)
    return times


def run() -> Report:
    """A provisioning run where some failed."""
    facts = run_facts()
    tallies = [
        _tally("orders", "verify", "ok", 812),
        _tally("orders", "verify", "pending", 14),
        _tally(
            "orders",
            "validate",
            "failed",
            9,
            error="INVALID_REPLICATION_FACTOR",
            example="orders.retry",
            message=TOO_FEW,
        ),
        _tally("orders", "policy", "refused", 31, error="POLICY_VIOLATION", example="Orders.Legacy", message=PATTERN),
        _tally("payments", "verify", "ok", 301),
        _tally("payments", "verify", "ok", 12, action="delete"),
        _tally(
            "payments",
            "guard",
            "refused",
            7,
            action="delete",
            error="MAX_DELETES_EXCEEDED",
            example="payments.old",
            message="7 deletes on cluster payments are more than guards.max_deletes, 5: none is sent",
        ),
        _tally("payments", "validate", "skipped", 5, message="created by an earlier run"),
        _tally(
            None,
            "manifest",
            "refused",
            2,
            action=None,
            error="UNKNOWN_CLUSTER",
            example="stray",
            message="cluster is null",
        ),
    ]
    rows = [_result(n, "orders", "failed", "validate", "INVALID_REPLICATION_FACTOR", TOO_FEW) for n in range(9)]
    rows[0] = replace(rows[0], history=told())
    rows += [_result(n, "orders", "refused", "policy", "POLICY_VIOLATION", PATTERN) for n in range(9, 40)]
    rows += [
        _result(n, "payments", "refused", "guard", "MAX_DELETES_EXCEEDED", "7 deletes are too many")
        for n in range(40, 47)
    ]
    rows += [_result(n, "orders", "ok", "verify") for n in range(47, 230)]
    batches = [
        Batch(
            run_id=facts.run_id,
            cluster="orders",
            action="create",
            phase=phase,
            batch=number,
            topics=400,
            requests=requests,
            attempts=attempts,
            began_at=NOW - timedelta(minutes=13),
            seconds=seconds,
        )
        for phase, number, requests, attempts, seconds in (
            ("apply", 0, 41, 3, 83.4),
            ("apply", 1, 39, 2, 79.1),
            ("validate", 0, 1, 1, 4.21),
            ("validate", 1, 1, 1, 0.0),
        )
    ]
    waiting = [
        Waiting(
            cluster="orders",
            phase="validate",
            topics=866,
            sent_again=0,
            requests=3,
            busy_seconds=5.2,
            between_seconds=0.4,
            longest_seconds=0.3,
        ),
        Waiting(
            cluster="orders",
            phase="apply",
            topics=826,
            sent_again=610,
            requests=80,
            busy_seconds=24.0,
            between_seconds=138.5,
            longest_seconds=4.1,
        ),
        Waiting(
            cluster="payments",
            phase="apply",
            topics=313,
            sent_again=0,
            requests=1,
            busy_seconds=2.8,
            between_seconds=0.0,
            longest_seconds=0.0,
        ),
    ]
    compared = Compared(
        last="run 20261120T141500000000Z-aa000001 (provision, 2026-11-20T14:15:00Z)",
        counts={Changed.NEW.value: 2, Changed.STILL.value: 44, Changed.GONE.value: 1},
        rows=[
            ChangedProblem(
                change="new",
                cluster="orders",
                topic="orders.retry",
                before="verify ok",
                now="validate failed: INVALID_REPLICATION_FACTOR",
            ),
            ChangedProblem(
                change="new",
                cluster="orders",
                topic="Orders.Legacy",
                before=None,
                now="policy refused: POLICY_VIOLATION",
            ),
            ChangedProblem(
                change="gone",
                cluster="payments",
                topic="payments.retried",
                before="apply failed: INVALID_CONFIG",
                now="verify ok",
            ),
        ],
    )
    return Report(
        made_at=NOW,
        run=facts,
        tallies=tallies,
        policies=[
            PolicyTally(
                policy="topic_name_pattern",
                mode="refuse",
                cluster="orders",
                topics=31,
                example="Orders.Legacy",
                message=PATTERN,
            ),
            PolicyTally(
                policy="config_range",
                mode="warn",
                cluster="orders",
                topics=120,
                example="orders.audit",
                message="retention.ms is 31536000000, above 604800000",
            ),
            PolicyTally(
                policy="broker",
                mode="refuse",
                cluster="payments",
                topics=2,
                example="payments.x",
                message="compact topics need min.insync.replicas",
            ),
        ],
        requests=RequestTimes(batches=batches, waiting=waiting, phases=phases(facts)),
        rows=rows,
        query=f"SELECT run_id, cluster, topic\nFROM delta.`/data/ledger/audit`\nWHERE run_id = '{facts.run_id}'",
        compared=compared,
    )


def rights() -> Report:
    """The same run, of a ledger that declares rights and quotas."""
    return replace(run(), history=History(owned=[_rights("by this run"), _quotas("by this run")]))


def _quotas(since: str, *words: str) -> Owned:
    """Return a report with quotas; owners and entities are `words`, if given."""
    names = words or ("payments", "")
    cluster = words[0] if words else "orders"
    return Owned(
        kind=quotas.KIND,
        since=since,
        owners=[
            OwnerCounts(cluster=cluster, owner=name, counts={"entities": 2 - n, "changed": n})
            for n, name in enumerate(names)
        ],
        changes=[
            OwnedChange(
                run_id=run_facts().run_id,
                cluster=cluster,
                resource=f"user={name} client-id=<default>",
                what="producer_byte_rate 1000000 -> 2000000, request_percentage none -> 0.5",
                values={},
                completed_at=NOW - timedelta(minutes=9, seconds=number),
                owner=name or None,
            )
            for number, name in enumerate(names)
        ],
        total=len(names),
        owners_query="SELECT owner, cluster\nFROM delta.`/data/ledger/quotas`",
        query="SELECT run_id, cluster, resource\nFROM delta.`/data/ledger/audit`",
    )


def _rights(since: str, *words: str) -> Owned:
    """Return a report with ACLs; owners, principals and names are `words`, if given."""
    names = words or ("payments", "")
    cluster = words[0] if words else "orders"
    changes = [
        OwnedChange(
            run_id=run_facts().run_id,
            cluster=cluster,
            resource=f"User:{name} ALLOW READ TOPIC PREFIXED orders. *",
            what="added" if number % 2 else "removed",
            values={"principal": f"User:{name}"},
            completed_at=NOW - timedelta(minutes=9, seconds=number),
            owner=name or None,
        )
        for number, name in enumerate(names)
    ]
    owners = [
        OwnerCounts(
            cluster=cluster, owner=name, counts={"rights": 12 - n, "principals": 3, "added": n, "removed": 1 - n}
        )
        for n, name in enumerate(names)
    ]
    return Owned(
        kind=acls.KIND,
        since=since,
        owners=owners,
        changes=changes,
        total=len(changes),
        owners_query="SELECT owner, cluster\nFROM delta.`/data/ledger/acls`",
        query="SELECT run_id, cluster, action, resource\nFROM delta.`/data/ledger/audit`",
    )


def hostile() -> Report:
    """Return the same run with hostile text in every word from outside."""
    usual = run()
    facts = run_facts(
        run_id=CLOSING,
        requested_by=SCRIPT,
        principal=QUOTES,
        arguments={"command": "provision", "clusters": CONTROL},
        versions={SCRIPT: CLOSING},
    )
    worded = _worded(HOSTILE, SCRIPT)
    return replace(
        worded,
        run=facts,
        rows=[*worded.rows, *usual.rows[:20]],
        query=f"SELECT * FROM delta.`/data/{CLOSING}` WHERE run_id = '{SCRIPT}'",
    )


def dotted() -> Report:
    """Return the same run with long names of many parts in every word from outside, and drift of such topics."""
    facts = run_facts(
        requested_by=DOTTED[0],
        principal=f"User:{DOTTED[1]}",
        arguments={"command": "provision", "clusters": ", ".join(DOTTED)},
    )
    drift = drift_found(facts)
    tallies = [replace(each, cluster=DOTTED[2]) for each in drift.tallies]
    rows = [replace(each, cluster=name, topic=name, owner=name) for each in drift.rows[:3] for name in DOTTED]
    compared = replace(drift.compared, rows=_changed(DOTTED)) if drift.compared else None
    worded = _worded(DOTTED, DOTTED[0])
    return replace(
        worded,
        run=facts,
        history=replace(worded.history, approved_by=[*DOTTED]),
        drift=replace(drift, tallies=tallies, rows=rows, compared=compared),
    )


def _worded(words: Sequence[str], since: str) -> Report:
    """Return the usual run with a topic, cluster, error, message, policy and owner of each word."""
    usual = run()
    rows = [
        replace(
            usual.rows[0],
            topic=text,
            cluster=text,
            error_message=text,
            error=text[:60],
            outcome="failed",
            history=told(text),
        )
        for text in words
    ]
    return replace(
        usual,
        tallies=[_tally(text, "apply", "failed", 1, error=text[:60], example=text, message=text) for text in words],
        rows=rows,
        policies=[
            PolicyTally(policy=text, mode="refuse", cluster=text, topics=1, example=text, message=text)
            for text in words
        ],
        requests=RequestTimes(
            batches=[replace(usual.requests.batches[0], cluster=text) for text in words],
            waiting=[replace(usual.requests.waiting[0], cluster=text) for text in words],
        ),
        compared=Compared(last=since, counts={Changed.NEW.value: len(words)}, rows=_changed(words)),
        history=History(owned=[_rights(since, *words), _quotas(since, *words)]),
    )


def _changed(words: Sequence[str]) -> list[ChangedProblem]:
    return [ChangedProblem(change="new", cluster=text, topic=text, before=text, now=text) for text in words]


def drift_found(facts: RunFacts) -> DriftReport:
    kinds = [
        ("missing", "error", (4, 0, 2, 0)),
        ("config_differs", "error", (12, 9, 4, 1)),
        ("recreated", "error", (1, 0, 0, 0)),
        ("partitions_fewer", "error", (0, 3, 0, 0)),
        ("unmanaged", "warning", (40, 120, 300, 900)),
        ("config_undeclared", "warning", (0, 22, 0, 60)),
        ("preferred_leader", "info", (18, 0, 0, 0)),
        ("not_permitted", "warning", (0, 0, 0, 2)),
    ]
    tallies = [
        DriftTally(cluster=cluster, kind=kind, severity=severity, age=age.value, findings=count)
        for kind, severity, counts in kinds
        for age, count in zip(Age, counts, strict=True)
        for cluster in ("orders",)
        if count
    ]
    rows = [
        DriftFinding(
            cluster="orders",
            topic=f"orders.{kind}-{number}",
            kind=kind,
            what="retention.ms" if "config" in kind else None,
            declared="604800000" if "config" in kind else None,
            live="86400000" if "config" in kind else None,
            severity=severity,
            message=f"{kind} of orders.{kind}-{number}",
            since=NOW - timedelta(days=(0, 3, 12, 70)[place], minutes=16),
        )
        for kind, severity, counts in kinds
        for place, count in enumerate(counts)
        for number in range(min(count, 8))
    ]
    return DriftReport(
        audits=[ShownAudit(run=facts)],
        tallies=tallies,
        rows=rows,
        query="SELECT severity, kind FROM delta.`/data/ledger/drift`",
        compared=Compared(
            last="audit 20261120T060000000000Z-0a0a0a0a (2026-11-20T06:00:00Z)",
            counts={"new": 75, "gone": 3, "still there": 1423},
            rows=[
                ChangedProblem(change="new", cluster="orders", topic="orders.retry", before=None, now="missing"),
                ChangedProblem(
                    change="gone",
                    cluster="orders",
                    topic="orders.audit",
                    before="config_differs retention.ms: declared 1, live 2",
                    now=None,
                ),
            ],
        ),
    )


def audit() -> Report:
    """An audit that found drift of every severity."""
    facts = run_facts("audit", exit_code=3, counts={})
    history = History(owned=[_rights("since audit 20261120T060000000000Z-0a0a0a0a")])
    return Report(made_at=NOW, run=facts, drift=drift_found(facts), history=history)


def span() -> Report:
    """Three weeks."""
    usual = run()
    days = [NOW.replace(hour=0, minute=0) - timedelta(days=day) for day in range(21, 0, -1)]
    runs = [
        RunOfSpan(
            run=run_facts(
                run_id=f"202611{30 - number:02}T020000000000Z-00000000",
                started_at=day,
                exit_code=0 if number % 4 else 4,
            ),
            outcomes={"ok": 100 + 13 * number, **({} if number % 4 else {"failed": 4, "refused": 20})},
            owners={} if number % 4 else {"payments": 20, "": 4},
        )
        for number, day in enumerate(reversed(days))
    ]
    return replace(
        usual,
        run=None,
        span=(days[0], NOW),
        history=History(
            runs=[*runs[:-1], replace(runs[-1], unsent=True)],
            run_count=len(runs),
            done={"create": 1_127, "delete": 12},
            periods=[(each.run.started_at, each.outcomes) for each in reversed(runs)],
        ),
        drift=drift_found(run_facts("audit")),
    )


def large() -> Report:
    """As many rows as a report lists, of a run of a million."""
    usual = run()
    rows = [
        _result(
            n,
            f"cluster-{n % 20}",
            "failed" if n < 2500 else "ok",
            "apply",
            "INVALID_CONFIG" if n < 2500 else None,
            TOO_FEW if n < 2500 else None,
        )
        for n in range(5000)
    ]
    tallies = [_tally(f"cluster-{n}", "apply", "ok", 49_875) for n in range(20)]
    tallies += [
        _tally(f"cluster-{n}", "apply", "failed", 125, error="INVALID_CONFIG", message=TOO_FEW) for n in range(20)
    ]
    return replace(usual, rows=rows, tallies=tallies)


def estate() -> Estate:
    """Return an estate of two clusters and three owners, audited on three days."""
    day = date(2026, 11, 1)
    owned = OwnerSize(
        owner="payments",
        clusters=("eu",),
        topics=20,
        topics_of_unknown_size=0,
        partitions=200,
        bytes=3_000_000_000,
        cost=10.0,
        currency="EUR",
    )
    grown = Growth(
        day=day,
        cluster="eu",
        owner="payments",
        topics=20,
        topics_of_unknown_size=0,
        partitions=200,
        bytes=1_000_000_000,
    )
    named = {"cluster": "eu", "topic": "payments.authorised", "owner": "payments"}
    query = "SELECT * FROM risky_topics"
    return Estate(
        made_at=datetime(2026, 11, 4, 6, tzinfo=UTC),
        limits=Scope(),
        unused_days=30,
        usage_at=datetime(2026, 11, 3, 6, tzinfo=UTC),
        unknown_use=0,
        unknown_configs=0,
        owners=[
            owned,
            replace(owned, clusters=("us",), topics=10, partitions=100, bytes=2_000_000_000, cost=2.5),
            replace(
                owned, owner="search", topics=4, topics_of_unknown_size=1, partitions=8, bytes=2_000_000, cost=None
            ),
            replace(owned, owner=None, topics=2, topics_of_unknown_size=2, partitions=2, bytes=None, cost=None),
        ],
        growth=[
            grown,
            replace(grown, owner="search", topics=4, partitions=8, bytes=2_000_000),
            replace(grown, day=day + timedelta(days=1), cluster="us", topics=10, partitions=100, bytes=2_000_000_000),
            replace(grown, day=day + timedelta(days=2), bytes=3_000_000_000),
            replace(grown, day=day + timedelta(days=2), owner="search", topics=4, partitions=8, bytes=2_000_000),
        ],
        unused=ViewRows(
            total=1,
            rows=[
                {
                    **named,
                    "declared": True,
                    "unused_since": datetime(2026, 9, 1, tzinfo=UTC),
                    "unused_until": datetime(2026, 11, 3, tzinfo=UTC),
                    "last_record_at": None,
                    "num_partitions": 12,
                    "bytes": 1_200_000,
                }
            ],
            query=query,
        ),
        over_partitioned=ViewRows(
            total=1,
            rows=[{**named, "num_partitions": 12, "partitions_needed": 1, "most_bytes": 600_000, "most_members": 1}],
            query=query,
        ),
        risks=ViewRows(
            total=2,
            rows=[
                {**named, "risk": "one_replica", "replication_factor": 1, "min_insync_replicas": 1},
                {
                    **named,
                    "topic": "search.index",
                    "risk": "unclean_election",
                    "replication_factor": 3,
                    "min_insync_replicas": None,
                },
            ],
            query=query,
        ),
        risky=2,
    )
