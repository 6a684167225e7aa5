"""The table `clusters`: ids are recorded once for each name, with the requester."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from topicledger.cli.clusters import list_names
from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.errors import TableError
from topicledger.ledger.commits import Commits
from topicledger.ledger.tables import Ledger
from topicledger.observe.clusters import disowned, identify, recorded
from topicledger.observe.topics import Refused
from topicledger.schemas import CLUSTERS


def settings(ledger: Ledger, **clusters: str | None) -> Settings:
    """Return settings with clusters: name -> stated id."""
    return Settings(
        path=Path("tests.toml"),
        tables=TablesSettings(root=ledger.root),
        clusters={
            name: ClusterSettings(name=name, bootstrap_servers=("broker:9092",), cluster_id=cluster_id)
            for name, cluster_id in clusters.items()
        },
    )


def begun(run_id: str, requested_by: str = "ann") -> Any:
    """Return a run with the parts that `identify` uses."""
    return SimpleNamespace(run_id=run_id, row={"requested_by": requested_by}, keep_row=lambda: None, commits=Commits())


def rows(ledger: Ledger) -> dict[str, tuple[Any, ...]]:
    return {
        name: (each.cluster_id, each.accepted_how, each.accepted_by, each.run_id, each.changes)
        for name, each in recorded(ledger).items()
    }


def at_once(*calls: tuple[Ledger, Settings, Mapping[str, str], Any]) -> list[dict[str, Refused]]:
    """Call `identify` at the same time for several runs, each with its own ledger; return the results."""
    together = Barrier(len(calls))

    def one(call: tuple[Ledger, Settings, Mapping[str, str], Any]) -> dict[str, Refused]:
        ledger, of_run, live, run = call
        together.wait()
        return identify(Ledger(ledger.spark, ledger.root), of_run, live, run)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


@pytest.mark.thorough
def test_first_use_is_recorded_once_with_the_requester(ledger: Ledger) -> None:
    both = settings(ledger, orders=None, payments="P")
    run = begun("run-1", "ann")
    assert identify(ledger, both, {"orders": "O", "payments": "P"}, run) == {}
    expected = {
        "orders": ("O", "first use", "ann", "run-1", 1),
        "payments": ("P", "settings", "ann", "run-1", 1),
    }
    assert rows(ledger) == expected
    version = ledger.latest_version(CLUSTERS)
    again = begun("run-2", "bob")
    assert identify(ledger, both, {"orders": "O", "payments": "P"}, again) == {}
    assert (rows(ledger), ledger.latest_version(CLUSTERS)) == (expected, version), "nothing changed, nothing written"


@pytest.mark.thorough
def test_only_ids_stated_in_the_settings_replace_recorded_ids(ledger: Ledger) -> None:
    identify(ledger, settings(ledger, orders=None), {"orders": "O"}, begun("run-1", "ann"))
    refused = identify(ledger, settings(ledger, orders=None), {"orders": "X"}, begun("run-2", "bob"))
    assert (list(refused), rows(ledger)["orders"][0]) == (["orders"], "O")
    refused = identify(ledger, settings(ledger, orders="X"), {"orders": "O"}, begun("run-3", "bob"))
    assert (list(refused), rows(ledger)["orders"][0]) == (["orders"], "O")
    before = recorded(ledger)["orders"]
    assert identify(ledger, settings(ledger, orders="X"), {"orders": "X"}, begun("run-4", "bob")) == {}
    assert rows(ledger) == {"orders": ("X", "settings", "bob", "run-4", 2)}
    now = recorded(ledger)["orders"]
    assert (now.first_seen, now.accepted_at > before.accepted_at) == (before.first_seen, True)
    assert identify(ledger, settings(ledger, orders=None), {"orders": "X"}, begun("run-5")) == {}, (
        "and it stays without"
    )


@pytest.mark.thorough
def test_two_names_for_one_cluster_are_not_recorded(ledger: Ledger) -> None:
    refused = identify(ledger, settings(ledger, a=None, b=None, c=None), {"a": "X", "b": "X", "c": "Y"}, begun("run-1"))
    assert (sorted(refused), sorted(rows(ledger))) == (["a", "b"], ["c"])


@pytest.mark.thorough
def test_one_of_two_runs_is_refused_if_they_see_different_clusters(ledger: Ledger) -> None:
    of_both = settings(ledger, orders=None)
    one, other = at_once(
        (ledger, of_both, {"orders": "A"}, begun("run-a")), (ledger, of_both, {"orders": "B"}, begun("run-b"))
    )
    ((cluster_id, *_, run_id, changes),) = rows(ledger).values()
    assert (cluster_id, changes) == (("A" if run_id == "run-a" else "B"), 1)
    assert (list(one), list(other)) == (([], ["orders"]) if run_id == "run-a" else (["orders"], []))


@pytest.mark.thorough
def test_later_of_two_runs_is_refused_if_two_names_mean_one_cluster(ledger: Ledger) -> None:
    both = settings(ledger, a=None, b=None)
    one, other = at_once((ledger, both, {"a": "X"}, begun("run-a")), (ledger, both, {"b": "X"}, begun("run-b")))
    assert {each.error.value for each in [*one.values(), *other.values()]} == {"SAME_CLUSTER"}
    if len(rows(ledger)) == 2:
        # Both were recorded before either could see the other, so no run may continue with either.
        assert sorted(identify(ledger, both, {"a": "X", "b": "X"})) == ["a", "b"]


def test_without_a_run_nothing_is_recorded_and_no_table_created(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    one = settings(ledger, a=None, b="B")
    assert list(identify(ledger, one, {"a": "A", "b": "X"})) == ["b"]
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_plan_is_disowned_if_its_cluster_name_has_a_new_id(ledger: Ledger) -> None:
    identify(ledger, settings(ledger, a=None, b=None), {"a": "A", "b": "B"}, begun("run-1", "ann"))
    found = disowned(ledger, settings(ledger, a=None, b="N", c=None), {"a": "A", "b": "B", "c": "C"})
    assert found == {"b": "planned for cluster id B, and the id of b is N; plan again with a new run id"}
    (message,) = disowned(ledger, settings(ledger, a=None), {"a": "X"}).values()
    assert "the id of a is A since 20" in message


@pytest.mark.thorough
def test_list_contains_names_in_settings_and_former_names(ledger: Ledger) -> None:
    identify(ledger, settings(ledger, a=None, gone=None), {"a": "A", "gone": "G"}, begun("run-1", "ann"))
    names = list_names(ledger, settings(ledger, a="A", new=None))
    told = [(each.name, each.in_settings, each.settings_cluster_id, each.cluster_id) for each in names.clusters]
    assert told == [("a", True, "A", "A"), ("new", True, None, None), ("gone", False, None, "G")]
    assert [each.accepted_by for each in names.clusters] == ["ann", None, "ann"]
    assert [each.name for each in list_names(ledger, settings(ledger, a=None, new=None), ["new"]).clusters] == ["new"]


@pytest.mark.thorough
def test_a_row_that_lacks_values_is_an_unknown_past_and_no_failure(ledger: Ledger) -> None:
    """As a row that a person inserted; two writers need `changes` to see each other."""
    given: list[dict[str, object]] = [
        {"name": "orders", "cluster_id": "O", "changes": 1},
        {"name": "payments", "cluster_id": "P"},
        {"name": "new"},
    ]
    ledger.append(CLUSTERS, ledger.rows(CLUSTERS, given), app_id="by hand", version=1)
    three = settings(ledger, orders=None, payments=None, new=None)
    named = {each.name: each for each in list_names(ledger, three).clusters}
    assert (named["orders"].cluster_id, named["orders"].first_seen, named["orders"].accepted_at) == ("O", None, None)
    live = {"orders": "X", "payments": "P", "new": "N"}
    refused = identify(ledger, three, live)
    assert list(refused) == ["orders"]
    assert "cluster orders has had id O since an unknown time (unknown by whom)" in refused["orders"].message
    stated = settings(ledger, orders="X")
    assert identify(ledger, stated, {"orders": "X"}, begun("run-1")) == {}
    assert rows(ledger)["orders"] == ("X", "settings", "ann", "run-1", 2)
    assert recorded(ledger)["orders"].first_seen is None
    with pytest.raises(TableError, match="the row of new has no value in `changes`"):
        identify(ledger, three, {"new": "N"}, begun("run-2"))
