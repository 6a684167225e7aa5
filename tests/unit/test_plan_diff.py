"""A plan's diff as text and as Markdown, of plain values: golden files, and what must hold of any."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import frame
from tests.unit.frames import plain as nullable
from topicledger.cli.show import in_colours
from topicledger.plan.allowing import StoppedActions
from topicledger.plan.lines import ROW, planned_action
from topicledger.resources.registry import ACTIONS
from topicledger.resources.topics.apply.moves import PlannedMoves
from topicledger.review.diff import Ended, Line, PlanDiff, Reason, _grouped, _lines, read
from topicledger.review.rendering import COMMENT_CHARACTERS, SHORTEST_LINE, markdown, text
from topicledger.schemas import AUDIT, SENT_BATCHES, Table
from topicledger.schemas import PLANS as PLANS_TABLE

GOLDEN = Path(__file__).with_name("golden_diff")
HOSTILE = "a`b```\n</code></details><script>alert(1)</script>@everyone [x](http://e.vil) **b** \x1b[31m\u202etxt"


def test_actions_whose_rows_were_removed_by_age_are_not_open(spark: SparkSession) -> None:
    planned = {"run_id": "r", "cluster": "main", "resource_type": "topic", "resource": "t", "topic": "t"}
    rows = {PLANS_TABLE.name: [{**planned, "action": "create"}], AUDIT.name: []}
    sent = {"run_id": "r", "cluster": "main", "action": "create", "batch": 0}

    def tables(table: Table) -> DataFrame:
        return frame(spark, table.schema, rows[table.name])

    ledger: Any = SimpleNamespace(read=tables, read_if_exists=tables)
    usual = {"run_id": "r", "requested_by": "ann", "manifest_version": 1, "arguments": {}, "scope": None}
    ways = [("planned", "planned"), ("applying", "open"), ("finished", "unknown"), ("abandoned", "planned")]
    for state, outcome in (*ways, ("abandoned", "open")):
        # An action that may have been sent before its run was abandoned isn't merely planned.
        rows[SENT_BATCHES.name] = [sent] if outcome == "open" else []
        run: Any = {**usual, "state": state, "observed_at": None}
        found = read(ledger, run, 0, most=10)
        assert found.counts == [("create", outcome, 1)]
        told = [(label, words) for label, words in found.about if "removed" in label]
        removed = [("removed by age (`maintain`): ", "what became of 1 action")]
        assert told == (removed if state == "finished" else [])


def line(
    action: str,
    resource: str,
    *,
    outcome: str = "planned",
    warnings: Sequence[str] = (),
    destroys: bool = False,
    **row: Any,
) -> Line:
    nothing: Mapping[str, Any] = dict.fromkeys(
        ("owner", "topic", "num_partitions", "replication_factor", "assignments", "configs", "before", "after")
    )
    given = {**nothing, "cluster": "orders", "topic": resource, **row, "action": action, "resource": resource}
    return Line(action=planned_action(given), outcome=outcome, warnings=warnings, destroys=destroys)


def create(topic: str, **row: Any) -> Line:
    return line("create", topic, **{"num_partitions": 3, "replication_factor": 3, **row})


def ended(error: str, *reasons: Reason, outcome: str = "refused", **more: Any) -> Ended:
    given: dict[str, Any] = {"cluster": "orders", "action": "create", "phase": "policy", **more}
    count = given.pop("count", sum(each.count for each in reasons))
    return Ended(
        outcome=outcome,
        error=error,
        reasons=reasons,
        count=count,
        reason_count=given.pop("reason_count", len(reasons)),
        **given,
    )


def plan(lines: Iterable[Line] = (), ended: Sequence[Ended] = (), **more: Any) -> PlanDiff:
    known = list(lines)
    counts: dict[tuple[str, str], int] = {}
    for each in known:
        key = (each.action.action, each.outcome)
        counts[key] = counts.get(key, 0) + 1
    given: dict[str, Any] = {"run_id": "r1", "state": "planned", "requested_by": "alice", **more}
    counted = [(*key, count) for key, count in sorted(counts.items())]
    return PlanDiff(manifest_version=12, counts=counted, ended=ended, lines=known, **given)


def configs(topic: str, before: Mapping[str, str], after: Mapping[str, str], **row: Any) -> Line:
    return line("alter_configs", topic, before=before, after=after, **row)


ACL = {
    "principal": "User:app", "permission": "ALLOW", "operation": "READ", "resource_type": "TOPIC",
    "pattern_type": "PREFIXED", "resource_name": "orders.", "host": "*",
}  # fmt: skip
REPLACED = ended(
    "POLICY_VIOLATION",
    Reason(count=1_200, message="topic_name_pattern: bad-0 doesn't match", resources=[f"bad-{n}" for n in range(20)]),
    Reason(count=1, message="cap: 1,300 partitions, and at most 1,000 are allowed", resources=["big"]),
)
PLANS = {
    "empty": plan(state="finished"),
    "creates": plan(
        [
            create("orders.a", owner="payments", configs={"retention.ms": "60000", "cleanup.policy": "compact"}),
            create("orders.b", owner="payments", assignments={0: [1, 2], 1: [2, 3]}, num_partitions=None),
            line("create", "orders.c", owner="payments"),
        ]
    ),
    "deletes": plan(
        [
            line("delete", "old.a", before={"num_partitions": "4"}, destroys=True),
            *(line("delete", f"old.b{number:02}", destroys=True) for number in range(51)),
            *(create(f"new.{number:02}") for number in range(51)),
        ]
    ),
    "configs": plan(
        [
            configs("orders.a", {"retention.ms": "604800000"}, {"retention.ms": "1209600000", "flush.ms": "5"}),
            configs("orders.b", {"retention.ms": "1"}, {}, warnings=["changed_back"]),
        ]
    ),
    "growth": plan(
        [
            line("add_partitions", "orders.a", before={"num_partitions": "3"}, after={"num_partitions": "12"}),
            line(
                "reassign",
                "orders.b",
                before={"assignments": "0:1,2;1:2,3"},
                after={"assignments": "0:2,3;1:3,1", "bytes": "4000"},
            ),
            line("elect_leaders", "orders.b", after={"partitions": "0,1"}),
            line("elect_leaders", "orders.c", after={"partitions": "4"}),
        ],
        moves=[
            PlannedMoves(
                cluster="orders",
                topics=1,
                partitions=2,
                bytes=4_000,
                unknown=0,
                brokers={3: (4_000, 0), 2: (0, 4_000)},
                seconds=90.0,
            )
        ],
    ),
    "rights": plan(
        [
            line("acl_add", "User:app ALLOW READ TOPIC PREFIXED orders. *", topic=None, after=ACL, owner="apps"),
            line("acl_delete", "User:app ALLOW READ TOPIC LITERAL o *", topic=None, before=ACL, owner="apps"),
            line(
                "acl_delete",
                "User:app ALLOW READ TOPIC LITERAL p *",
                topic=None,
                before=ACL,
                owner="apps",
                after={"replaced_by": f"[{str(ACL).replace(chr(39), chr(34))}]"},
            ),
        ]
    ),
    "quotas": plan(
        [
            line(
                "alter_quota",
                "user=app",
                topic=None,
                before={"producer_byte_rate": "1000"},
                after={"producer_byte_rate": "2000", "request_percentage": "50"},
            ),
            line("alter_quota", "client-id=<default>", topic=None, before={"producer_byte_rate": "1000"}, after={}),
        ]
    ),
    "several": plan(
        [
            create("orders.a", owner="payments"),
            create("orders.z", owner="payments"),
            create("logs.a", cluster="telemetry", owner="payments"),
            create("stock.a", owner="warehouse"),
            create("nobodys"),
        ],
        [
            ended(
                "INVALID_REPLICATION_FACTOR",
                Reason(count=1, message="3 > 1 brokers", resources=["logs.z"]),
                phase="validate",
                cluster="telemetry",
                outcome="failed",
            ),
            ended(
                "DUPLICATE_MANIFEST",
                Reason(count=1, message=None, resources=["orders.twice"]),
                phase="manifest",
                action=None,
            ),
        ],
        waits_for="it needs the approval of 1 person other than alice, who requested it: runs approve r1 --by WHO",
    ),
    "refusals": plan(
        [],
        [
            REPLACED,
            ended(
                "NAME_COLLISION",
                Reason(count=2, message="collides", resources=["o_a", "o.a"]),
                count=40,
                reason_count=39,
            ),
        ],
        state="finished",
    ),
    "hostile": plan(
        [
            create(HOSTILE, owner=HOSTILE, cluster=HOSTILE),
            configs("orders.a", {"x": HOSTILE}, {"x": "``` \n```\r\n# h"}, owner="`", warnings=[HOSTILE]),
            line(HOSTILE, "of another version"),
        ],
        [ended("POLICY_VIOLATION", Reason(count=1, message=HOSTILE, resources=[HOSTILE]), cluster=HOSTILE)],
        requested_by=HOSTILE,
        run_id="r`1",
        waits_for=HOSTILE,
    ),
    "stopped": plan(
        [
            line("delete", "old.a", owner="payments", before={"num_partitions": "4"}, outcome="stopped", destroys=True),
            line("delete", "old.b", owner="payments", before={"num_partitions": "1"}, outcome="stopped", destroys=True),
            line(
                "alter_quota",
                "user=app",
                topic=None,
                before={"producer_byte_rate": "1000"},
                after={"producer_byte_rate": "2000"},
                outcome="stopped",
            ),
            create("orders.a", owner="payments"),
        ],
        stopped=[StoppedActions(cluster="orders", needs={"deletes": 2, "quota_changes": 1}, actions=3)],
    ),
    "large": plan([create(f"topics.{n:05}", owner=f"team-{n // 4_000}") for n in range(10_000)]),
    "cut": plan(
        [create(f"topics.{n:03}", owner=f"team-{n // 20}") for n in range(100)],
        [ended("POLICY_VIOLATION", Reason(count=7, message="no", resources=[f"n{n}" for n in range(7)]))],
    ),
    "revert": plan(
        [configs("orders.a", {"retention.ms": "2"}, {"retention.ms": "1"}, owner="payments")],
        [
            ended(
                "NOT_REVERTIBLE",
                Reason(count=1, message="run r0 added partitions, 1 -> 3", resources=["orders.b"]),
                action="add_partitions",
                phase="policy",
            ),
            ended(
                None,
                Reason(count=1, message="run r0 created it: it stays", resources=["orders.c"]),
                outcome="skipped",
                action="delete",
                phase="observe",
            ),
        ],
        about=[("undoes run ", "r0"), ("scope: ", "owner payments")],
    ),
    "applied": plan(
        [create("a", outcome="ok"), create("b", outcome="pending"), create("c", outcome="open")],
        [
            ended(
                "TOPIC_ALREADY_EXISTS",
                Reason(count=1, message="it exists", resources=["d"]),
                outcome="failed",
                phase="apply",
            )
        ],
        state="applying",
    ),
}
LIMITS = {"cut": 4_000}


@pytest.mark.parametrize("name", PLANS)
def test_each_plan_reads_as_its_golden_files(name: str) -> None:
    most = LIMITS.get(name)
    told = {
        "md": "".join(markdown(PLANS[name], most=most or COMMENT_CHARACTERS)),
        "txt": "".join(text(PLANS[name], most=most or (5_000 if name == "large" else None))),
    }
    for kind, found in told.items():
        file = GOLDEN / f"{name}.{kind}"
        if os.environ.get("TOPICLEDGER_GOLDEN") == "write":
            file.write_text(found, encoding="utf-8")
        assert found == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_text_and_markdown_have_the_same_lines(name: str) -> None:
    plain = [each.strip() for each in "".join(text(PLANS[name])).splitlines() if each.startswith("  ")]
    fenced = re.findall(r"^[-+~!=] .*$", "".join(markdown(PLANS[name], most=10_000_000)), re.MULTILINE)
    assert plain == fenced
    assert all(len(each) + 1 >= SHORTEST_LINE for each in plain)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("most", [4_000, 4_111, 10_000, 65_536])
def test_no_more_characters_than_allowed_and_what_is_cut_is_counted(name: str, most: int) -> None:
    diff = PLANS[name]
    for found in ("".join(markdown(diff, most=most)), "".join(text(diff, most=most))):
        assert len(found) <= most
        cut = re.search(r"not shown: ([\d,]+) of ([\d,]+)", found)
        shown = len(re.findall(r"^ *[-+~] ", found, re.MULTILINE))
        if not diff.ended:
            assert shown + (int(cut[1].replace(",", "")) if cut else 0) == diff.line_count
        parts = [len(re.findall(rf"^{each}", found, re.MULTILINE)) for each in ("<details", "</details>$", "```diff$")]
        assert len(set(parts)) == 1


def test_nothing_from_outside_acts_in_markdown() -> None:
    found = "".join(markdown(PLANS["hostile"]))
    outside = re.sub(r"^```diff\n.*?^```$", "", found, flags=re.MULTILINE | re.DOTALL)
    fences = re.findall(r"^```.*$", found, re.MULTILINE)
    assert fences == ["```diff", "```"] * (len(fences) // 2)
    assert len(fences) == 8
    assert "\x1b" not in found
    assert "\u202e" not in found
    # Outside of fences only HTML that this made, and code.
    assert set(re.findall(r"<[^>]*>", outside)) <= {
        "<p>", "</p>", "<br>", "<code>", "</code>", "<details open>", "</details>", "<summary>", "</summary>"
    }  # fmt: skip
    bare = re.sub(r"<code>[^<]*</code>", "", outside)
    assert "@" not in bare
    # No empty line within a block of HTML: after one Markdown would be read again.
    assert not re.search(r"<p>[^<]*\n", outside)


def test_colours_are_for_terminals() -> None:
    plain = "".join(text(PLANS["deletes"]))
    assert "\x1b" not in plain
    coloured = "".join(text(PLANS["deletes"], colours=True))
    assert "\x1b[31m- delete old.a: 4 partitions" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain


def test_removals_and_possible_losses_come_first_and_are_never_folded(spark: SparkSession) -> None:
    """Else a comment that is cut could lack the deletes of an owner late in the alphabet."""
    shorter = {"before": {"retention.ms": "9"}, "after": {"retention.ms": "8"}}
    longer = {"before": {"retention.ms": "8"}, "after": {"retention.ms": "9"}}
    grown = {"before": {"num_partitions": "1"}, "after": {"num_partitions": "2"}}
    fewer = {"before": {"assignments": "0:1,2"}, "after": {"assignments": "0:1"}}
    actions = (
        ("a", "create", "new", {}),
        ("a", "alter_configs", "longer", longer),
        ("a", "add_partitions", "grown", grown),
        ("b", "acl_add", "User:x", {}),
        ("b", "acl_delete", "User:y", {}),
        ("b", "alter_configs", "shorter", shorter),
        ("b", "reassign", "fewer", fewer),
        ("c", "delete", "gone", {}),
    )
    given = [
        {"owner": owner, "cluster": "orders", "topic": topic, "resource": topic, "action": action, **values}
        for owner, action, topic, values in actions
    ]
    plans = frame(spark, nullable(PLANS_TABLE.schema), given).select(*ROW)
    rows = plans.withColumns(
        {"is_line": F.lit(True), "outcome": F.lit("planned"), "warned": F.array().cast("array<string>")}
    )
    found = [(each.destroys, each.action.resource) for each in _lines(rows, None)]
    assert found == [
        *((True, name) for name in ("User:y", "fewer", "shorter", "gone")),
        *((False, name) for name in ("grown", "longer", "new", "User:x")),
    ]
    told = "".join(markdown(PLANS["deletes"]))
    assert re.findall("<details.*summary>", told) == [
        "<details open><summary>no owner on <code>orders</code>: removals and possible losses</summary>",
        "<details><summary>no owner on <code>orders</code></summary>",
    ]


def test_only_what_fits_is_read() -> None:
    read = 0

    def lines() -> Iterable[Line]:
        nonlocal read
        for each in PLANS["large"].lines:
            read += 1
            yield each

    found = "".join(markdown(replace(PLANS["large"], lines=lines()), most=4_000))
    assert len(found) <= 4_000
    assert read < 4_000 // SHORTEST_LINE


def test_each_kind_of_action_says_how_it_reads() -> None:
    assert {name: kind.shown.sign for name, kind in ACTIONS.items()} == {
        "delete": "-", "create": "+", "add_partitions": "~", "alter_configs": "~", "reassign": "~",
        "elect_leaders": "~", "acl_add": "+", "acl_delete": "-", "alter_quota": "~", "alter_group_configs": "~",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"),
    [(True, None, True), (True, "", True), (True, "1", False), (False, None, False)],
)
def test_nobody_who_set_no_color_gets_colours(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str | None, coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert in_colours() is coloured


def test_reasons_that_differ_only_in_the_resource_are_one(spark: SparkSession) -> None:
    """Only its whole name counts: a short name is part of other words."""
    said = {
        "CLUSTER_UNREACHABLE": ["cluster dark can't be reached"] * 3,
        "INVALID": ["a has 1, see a.b", r"User:x\Ey\Q has 20, see a.b", "b.c has 3, see a.b."],
    }
    rows = [
        (False, "dark", "create", "failed", "observe", error, message, name)
        for error, messages in said.items()
        for name, message in zip(("a", r"User:x\Ey\Q", "b.c"), messages, strict=True)
    ]
    columns = "is_line boolean, cluster string, action string, outcome string, phase string, error string"
    found = spark.createDataFrame(rows, f"{columns}, error_message string, resource string").transform(_grouped)
    counts = {row["error"]: [-each["count"] for each in row["reasons"]] for row in found.collect()}
    assert counts == {"CLUSTER_UNREACHABLE": [3], "INVALID": [2, 1]}
