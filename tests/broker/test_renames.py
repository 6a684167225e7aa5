"""`replaces`: a new topic takes what the old one has, and the old one goes once nobody uses it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.broker.direct import live, make
from tests.broker.records import commit, write
from tests.harness import Estate
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ChangeSettings
from topicledger.plan.lines import planned_action
from topicledger.schemas import PLANS, USAGE
from topicledger_testing.embedded_kafka import EmbeddedKafka

OLD = {"retention.ms": "-1", "cleanup.policy": "delete", "segment.ms": "86400000"}
LONG_AGO = datetime.now(UTC) - timedelta(days=40)


def lines(estate: Estate, run_id: str) -> dict[str, str]:
    rows = estate.ledger.read(PLANS).where(f"run_id = '{run_id}'").collect()
    return {row["topic"]: str(planned_action(row)) for row in rows}


def audited(kafka: EmbeddedKafka, topic: str, days_ago: float, *groups: str) -> dict[str, Any]:
    """Return a row of `usage` of an audit that saw members of groups on an empty topic."""
    return {
        "run_id": f"audit-{days_ago}",
        "cluster": "main",
        "topic": topic,
        "topic_id": str(live(kafka, topic)[topic].topic_id),
        "observed_at": datetime.now(UTC) - timedelta(days=days_ago),
        "end_offset": 0,
        "groups": [{"group": each, "state": "Stable", "members": 1, "lag": 0} for each in groups],
    }


@pytest.mark.thorough
def test_a_replaced_topic_goes_once_nobody_uses_it(estate: Estate, kafka: EmbeddedKafka) -> None:
    """Created with the old partitions and configs; an old topic that is used or was written to stays.

    Audits with usage are the memory: one that saw live groups spares a topic, one that saw none tells since when an
    empty topic is unused.
    """
    make(
        kafka,
        "ren.old",
        "ren.read",
        "ren.empty",
        "ren.watched",
        "ren.quiet",
        "ren.meant",
        num_partitions=3,
        configs=OLD,
    )
    write(kafka, "ren.old", at=LONG_AGO)
    write(kafka, "ren.read", at=LONG_AGO)
    usage = [
        audited(kafka, "ren.watched", 40),
        audited(kafka, "ren.watched", 3, "weekly"),
        audited(kafka, "ren.quiet", 40),
        audited(kafka, "ren.meant", 40),
    ]
    estate.ledger.ensure(USAGE)
    estate.ledger.append(USAGE, estate.ledger.rows(USAGE, usage), app_id="usage", version=1)
    commit(kafka, "ren-readers", "ren.read")
    changes = {"main": ChangeSettings(configs="exact", undeclared="delete", replaced_idle_days=30)}
    estate.settings = replace(estate.settings, changes=changes, guards=GuardSettings(max_deletes=0))
    estate.declare(
        {"topic": "ren.new", "replaces": "ren.old", "configs": {"retention.ms": "86400000"}, "owner": "team"},
        {"topic": "ren.newer", "replaces": "ren.read", "num_partitions": 2},
        {"topic": "ren.filled", "replaces": "ren.empty"},
        {"topic": "ren.seen", "replaces": "ren.watched"},
        {"topic": "ren.loud", "replaces": "ren.quiet"},
        {"topic": "ren.first", "replaces": "ren.missing"},
        {"topic": "ren.one", "replaces": "ren.shared"},
        {"topic": "ren.two", "replaces": "ren.shared"},
        {"topic": "ren.late", "replaces": "ren.new"},
        {"topic": "ren.more", "replaces": "ren.meant"},
    )
    warned = {each.topic: each.message.partition("replaces: ")[2] for each in estate.run("plan", "first").warnings}
    assert warned == {
        "ren.new": "retention.ms -1 -> 86400000",
        "ren.newer": "partitions 3 -> 2 (keys go to other partitions)",
        "ren.first": "",
    }
    found = lines(estate, "first")
    assert found["ren.new"] == (
        "+ create ren.new: 3 partitions, replication factor 1, cleanup.policy=delete, retention.ms=86400000, "
        "segment.ms=86400000, replaces ren.old"
    )
    assert "ren.old" not in found, "the new topic doesn't exist yet"
    assert estate.run("apply", "first").exit_code == 4
    created = ("verify", "ok", None)
    wrong = ("manifest", "refused", "INVALID_REPLACES")
    assert {name: each for name, each in estate.last("first").items() if name} == {
        **dict.fromkeys(
            (f"ren.{each}" for each in ("new", "newer", "filled", "seen", "loud", "first", "more")), created
        ),
        **dict.fromkeys(("ren.one", "ren.two", "ren.late"), wrong),
    }
    assert {"ren.old", "ren.read", "ren.new", "ren.newer", "ren.first"} <= set(live(kafka, "ren."))
    estate.declare({"topic": "ren.meant"}, cluster="mian")
    second = estate.run("provision", "second")
    assert second.exit_code == 5
    meant = estate.ledger.read(PLANS).where("run_id = 'second' AND cluster = 'main' AND topic = 'ren.meant'")
    assert meant.isEmpty(), "a row of an unknown cluster may mean it"
    stays, goes = ("policy", "skipped", None), ("guard", "refused", "MAX_DELETES_EXCEEDED")
    decided = {"old": goes, "quiet": goes, "read": stays, "empty": stays, "watched": stays}
    assert {name: estate.last("second")[f"ren.{name}"] for name in decided} == decided
    assert lines(estate, "second")["ren.old"] == "- delete ren.old: 3 partitions, replaced by ren.new"
    estate.settings = replace(estate.settings, guards=GuardSettings(max_deletes=2))
    third = estate.run("provision", "third")
    assert {estate.last("third")[each] for each in ("ren.old", "ren.quiet")} == {created}
    assert third.outcomes()["skipped"] == 3
    stay = {"ren.read", "ren.empty", "ren.watched", "ren.meant"}
    assert stay == set(live(kafka, "ren.")) & {*(f"ren.{name}" for name in decided), "ren.meant"}
