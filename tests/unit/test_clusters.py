"""Whether what answers behind the names of the settings is what these names have always been."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from tests.unit.frames import by_topic, observed_rows, validated_rows
from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.model import Refusal
from topicledger.observe.clusters import Recorded, refusals
from topicledger.observe.topics import ClusterStatus, Refused
from topicledger.resources.topics.plan.decide import decide

LONG_AGO = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def settings(**clusters: str | None) -> Settings:
    """Settings with clusters: name -> the id that they state."""
    return Settings(
        path=Path("conf/our file.toml"),
        tables=TablesSettings(root="ledger"),
        clusters={
            name: ClusterSettings(name=name, bootstrap_servers=("broker:9092",), cluster_id=cluster_id)
            for name, cluster_id in clusters.items()
        },
    )


def known(**ids: str) -> dict[str, Recorded]:
    """Recorded ids by name."""
    return {
        name: Recorded(
            name=name,
            cluster_id=cluster_id,
            first_seen=LONG_AGO,
            accepted_at=LONG_AGO,
            accepted_how="command",
            accepted_by="ann",
            run_id="run-1",
            changes=1,
        )
        for name, cluster_id in ids.items()
    }


def errors(found: dict[str, Refused]) -> dict[str, str]:
    return {name: each.error.value for name, each in found.items()}


def test_an_unknown_name_may_be_any_cluster() -> None:
    assert refusals(settings(orders=None, payments=None), {}, {"orders": "A", "payments": "B"}) == {}


def test_a_name_stays_the_cluster_that_is_recorded() -> None:
    both = settings(orders=None, payments=None)
    assert refusals(both, known(orders="A"), {"orders": "A", "payments": "B"}) == {}
    found = refusals(both, known(orders="A"), {"orders": "C", "payments": "B"})
    assert errors(found) == {"orders": "CLUSTER_ID_MISMATCH"}
    assert found["orders"].message == (
        "cluster orders has had id A since 2026-03-04T05:06:07Z (accepted by ann), and now a cluster with id C "
        "answers; correct clusters.orders.bootstrap_servers, or, if that cluster is meant, accept it: "
        "`topicledger clusters accept orders --config 'conf/our file.toml'`"
    )


def test_an_id_that_the_settings_state_decides_whatever_is_recorded() -> None:
    stated = settings(orders="B")
    assert refusals(stated, known(orders="A"), {"orders": "B"}) == {}
    found = refusals(stated, known(orders="A"), {"orders": "A"})
    assert errors(found) == {"orders": "CLUSTER_ID_MISMATCH"}
    assert found["orders"].message == (
        "the settings expect id B for cluster orders, and a cluster with id A answers; "
        "correct clusters.orders.cluster_id or its bootstrap_servers"
    )


def test_two_names_of_one_cluster_are_refused_and_others_are_not() -> None:
    found = refusals(settings(a=None, b=None, c=None), {}, {"a": "X", "b": "X", "c": "Y"})
    assert errors(found) == {"a": "SAME_CLUSTER", "b": "SAME_CLUSTER"}
    assert "clusters a and b of the settings are one Kafka cluster, id X" in found["a"].message


def test_a_name_that_is_not_asked_has_the_id_that_is_recorded_or_stated() -> None:
    assert errors(refusals(settings(a=None, b=None), known(b="X"), {"a": "X"})) == {"a": "SAME_CLUSTER"}
    assert errors(refusals(settings(a=None, b="X"), {}, {"a": "X"})) == {"a": "SAME_CLUSTER"}
    assert refusals(settings(a=None), known(b="X"), {"a": "X"}) == {}, "b isn't in the settings any more"


def test_a_name_of_another_names_cluster_is_refused_alone() -> None:
    found = refusals(settings(a=None, b=None), known(a="A", b="B"), {"a": "B", "b": "B"})
    assert errors(found) == {"a": "CLUSTER_ID_MISMATCH"}
    assert "a cluster with id B answers, which is cluster b of the settings" in found["a"].message
    assert "accept it" not in found["a"].message


def test_names_that_lead_to_each_others_clusters_are_both_refused() -> None:
    found = refusals(settings(a=None, b=None), known(a="A", b="B"), {"a": "B", "b": "A"})
    assert errors(found) == {"a": "CLUSTER_ID_MISMATCH", "b": "CLUSTER_ID_MISMATCH"}


def test_clusters_without_an_id_never_count_as_the_same() -> None:
    live = {"a": None, "b": None}
    assert refusals(settings(a=None, b=None), {}, live) == {}
    assert errors(refusals(settings(a=None, b=None), known(a="A"), live)) == {"a": "CLUSTER_ID_MISMATCH"}


def test_every_declared_topic_of_a_refused_cluster_ends_in_phase_guard_before_it_has_an_action(
    spark: SparkSession,
) -> None:
    """Its manifests' own errors stay as they are."""
    bad = {"phase": "manifest", "outcome": "refused", "error": "INVALID_STATE", "error_message": "state is gone"}
    declared = validated_rows(
        spark,
        {"topic": "new"},
        {"topic": "old", "state": "absent"},
        {"topic": "bad", **bad},
        {"topic": "new", "cluster": "other"},
        {"topic": "new", "cluster": "third"},
    )
    refused = Refused(error=Refusal.CLUSTER_ID_MISMATCH, message="main isn't main")
    same = Refused(error=Refusal.SAME_CLUSTER, message="other is third")
    statuses = {
        "main": ClusterStatus(cluster_id="X", refused=refused),
        "other": ClusterStatus(cluster_id="Y", refused=same),
        "third": ClusterStatus(cluster_id="Z"),
    }
    rows = by_topic(declared.transform(decide(observed_rows(spark), statuses)))
    ended = ("phase", "outcome", "error", "error_message", "decision", "cluster_id")
    assert {key: tuple(row[name] for name in ended) for key, row in rows.items()} == {
        ("main", "new"): ("guard", "refused", "CLUSTER_ID_MISMATCH", "main isn't main", None, "X"),
        ("main", "old"): ("guard", "refused", "CLUSTER_ID_MISMATCH", "main isn't main", None, "X"),
        ("main", "bad"): ("manifest", "refused", "INVALID_STATE", "state is gone", None, "X"),
        ("other", "new"): ("guard", "refused", "SAME_CLUSTER", "other is third", None, "Y"),
        ("third", "new"): (None, None, None, None, "create", "Z"),
    }
