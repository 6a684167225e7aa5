"""A kind of action is one module and a row in `registry.ACTIONS`: two that only exist here go the whole way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.broker.direct import live, make, remove
from tests.harness import Estate
from topicledger.actions.context import ClusterContext, outcome_of
from topicledger.actions.costs import ONE_RECORD
from topicledger.actions.kind import ActionKind, Steps
from topicledger.actions.safeguards import Safeguards
from topicledger.actions.showing import changes
from topicledger.kafka import Response
from topicledger.kafka.sending import Answer
from topicledger.model import TOPIC, Outcome, Phase, PhaseResult, Refusal, Target, TopicInfo, TopicResult
from topicledger.resources import registry
from topicledger.resources.topics.actions.verifying import Verdict, verify_topics
from topicledger.schemas import AUDIT, PLANS, SENT_BATCHES
from topicledger_testing.embedded_kafka import EmbeddedKafka


def sets_config(kafka: EmbeddedKafka, config: str, order: int) -> ActionKind:
    """A kind of action that sets one config of existing topics if their manifests declare it."""

    def validate(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        now = datetime.now(UTC)
        there = context.describe([target.topic for target in targets])
        for target in targets:
            if target.topic in there:
                yield context.result(target, Phase.VALIDATE, Outcome.OK, Answer(TopicResult(), 1, now, now))
            else:
                yield context.refused(target, Phase.VALIDATE, Refusal.CHANGED_SINCE_PLAN, "the topic is gone")

    def changed_since_plan(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        there = context.describe([target.topic for target in targets])
        for target in targets:
            if there.get(target.topic) is None or there[target.topic].topic_id != target.topic_id:
                yield context.refused(target, Phase.APPLY, Refusal.CHANGED_SINCE_PLAN, "not the planned topic")

    def send(targets: Sequence[Target]) -> Response:
        admin = KafkaAdminClient(**kafka.client_options())
        try:
            wanted = [
                ConfigResource(ConfigResourceType.TOPIC, target.topic, configs={config: target.configs[config]})
                for target in targets
            ]
            admin.alter_configs(wanted, raise_on_unknown=False)
        finally:
            admin.close()
        return Response(results={target.topic: TopicResult() for target in targets}, throttle_time_ms=0)

    def apply(context: ClusterContext, targets: Sequence[Target]) -> Iterator[PhaseResult]:
        for target, answer in context.send_each(targets, send, changes=True):
            yield context.result(target, Phase.APPLY, outcome_of(answer.result.error_code), answer)

    def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
        return (Outcome.OK if info is not None else Outcome.PENDING), 0, None, None

    return ActionKind(
        name=f"set_{config}",
        resource_type=TOPIC,
        option=config,
        order=order,
        wanted=lambda: (F.col("decision") == "unchanged") & F.col("configs")[config].isNotNull(),
        not_declared=lambda: F.when(
            ~F.col("configs")[config].eqNullSafe(F.col("now_configs")[config]), F.lit(f"declare another {config}")
        ),
        shown=changes(f"given {config}"),
        cost=ONE_RECORD,
        safeguards=Safeguards(switch=None, guard=None, approved_as=()),
        steps=Steps(
            validate=validate,
            changed_since_plan=changed_since_plan,
            recover=lambda context, targets: iter(()),
            partly_done=None,
            apply=apply,
            cancel=None,
            verify=lambda context, applied: verify_topics(context, applied, verdict),
        ),
    )


RETENTION, CLEANUP = "set_retention.ms", "set_cleanup.policy"


@pytest.fixture
def kinds(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (sets_config(kafka, "retention.ms", 40), sets_config(kafka, "cleanup.policy", 30)):
        monkeypatch.setitem(registry.ACTIONS, kind.name, kind)


def configs(estate: Estate, kafka: EmbeddedKafka, topic: str) -> dict[str, str | None]:
    admin = KafkaAdminClient(**kafka.client_options())
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    finally:
        admin.close()
    return {name: each["value"] for name, each in found["topic"][topic].items()}


@pytest.mark.usefixtures("kinds")
@pytest.mark.thorough
def test_kinds_go_from_manifest_to_verify_and_a_topic_may_need_several(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Each action has rows of its own in `plans` and `audit`, and is sent in its kind's place."""
    ids = make(kafka, "kinds.one", "kinds.both")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    estate.declare(
        {"topic": "kinds.one", "configs": {"retention.ms": "61000"}},
        {"topic": "kinds.both", "configs": {"retention.ms": "62000", "cleanup.policy": "compact"}},
        {"topic": "kinds.new", "configs": {"retention.ms": "63000"}},
    )
    summary = estate.run(run_id="kinds", wait_visible=60.0)
    assert (summary.exit_code, summary.outcomes(), summary.failures) == (0, {"ok": 4}, [])
    planned = {(row["resource"], row["action"]): row for row in estate.rows(PLANS, "kinds")}
    assert set(planned) == {
        ("kinds.one", RETENTION),
        ("kinds.both", RETENTION),
        ("kinds.both", CLEANUP),
        ("kinds.new", "create"),
    }
    assert {row["resource_type"] for row in planned.values()} == {"topic"}
    assert planned["kinds.both", CLEANUP]["topic_id"] == ids["kinds.both"]
    audited = estate.rows(AUDIT, "kinds")
    assert sorted((row["resource"], row["action"], row["phase"], row["outcome"]) for row in audited) == sorted(
        (resource, action, phase, "ok") for resource, action in planned for phase in ("validate", "apply", "verify")
    )
    applied = sorted((row["completed_at"], row["action"]) for row in audited if row["phase"] == "apply")
    assert [action for _, action in applied] == ["create", CLEANUP, RETENTION, RETENTION]
    assert {row["action"] for row in estate.rows(SENT_BATCHES, "kinds")} == {"create", CLEANUP, RETENTION}
    assert configs(estate, kafka, "kinds.one")["retention.ms"] == "61000"
    both = configs(estate, kafka, "kinds.both")
    assert (both["retention.ms"], both["cleanup.policy"]) == ("62000", "compact")


@pytest.mark.thorough
@pytest.mark.usefixtures("kinds")
def test_a_saved_plans_action_is_evaluated_again_by_its_kind(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """One topic has another action left, one isn't declared as planned any more, one was recreated."""
    make(kafka, "again.same", "again.declared", "again.anew")
    estate = Estate(spark, tmp_path / "ledger", {"main": kafka})
    rows = {name: {"topic": f"again.{name}", "configs": {"retention.ms": "61000"}} for name in ("same", "anew")}
    both = {"retention.ms": "61000", "cleanup.policy": "compact"}
    estate.declare(*rows.values(), {"topic": "again.declared", "configs": both})
    assert estate.run("plan", run_id="again").pending_changes == 4
    remove(kafka, {"again.anew": live(kafka, "again.")["again.anew"].topic_id or ""})
    make(kafka, "again.anew")
    estate.declare_anew(*rows.values(), {"topic": "again.declared", "configs": {**both, "retention.ms": "1"}})
    summary = estate.run("apply", run_id="again", wait_visible=60.0)
    assert (summary.exit_code, summary.outcomes()) == (4, {"ok": 2, "refused": 2})
    ended = {
        (row["resource"], row["action"]): (row["outcome"], row["error"])
        for row in estate.rows(AUDIT, "again")
        if row["phase"] == "apply"
    }
    assert ended == {
        ("again.same", RETENTION): ("ok", None),
        ("again.declared", CLEANUP): ("ok", None),
        ("again.declared", RETENTION): ("refused", "CHANGED_SINCE_PLAN"),
        ("again.anew", RETENTION): ("refused", "CHANGED_SINCE_PLAN"),
    }
    assert configs(estate, kafka, "again.declared")["cleanup.policy"] == "compact"
