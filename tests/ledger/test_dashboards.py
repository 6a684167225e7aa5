"""The example dashboards and alerts: each of their queries runs on a ledger with data, and names what it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from tests.commands import REPOSITORY
from tests.ledger.asked import ask, days, elsewhere, settings_of, write_ledger
from topicledger.cli.metrics import METRICS, Metrics

EXAMPLES = REPOSITORY / "examples" / "dashboards"
DASHBOARD = json.loads((EXAMPLES / "topicledger.lvdash.json").read_text(encoding="utf-8"))
GRAFANA = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
ALERTS = sorted((EXAMPLES / "alerts").glob("*.sql"))
NOW = f"TIMESTAMP '{days(33):%Y-%m-%d %H:%M:%S}Z'"
"""When the rows of the ledger are new."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ledger(tmp_path_factory.mktemp("dashboards") / "ledger")


def rows_now(spark: SparkSession, root: Path, query: str) -> list[dict[str, Any]]:
    return ask(spark, settings_of(root), query.replace("current_timestamp()", NOW))


@pytest.mark.thorough
@pytest.mark.parametrize("dataset", DASHBOARD["datasets"], ids=lambda dataset: str(dataset["name"]))
def test_datasets_have_rows_with_the_fields_of_their_widgets(
    spark: SparkSession, root: Path, dataset: Mapping[str, Any]
) -> None:
    rows = rows_now(spark, root, "".join(dataset["queryLines"]))
    widgets = [each["widget"] for page in DASHBOARD["pages"] for each in page["layout"]]
    queries = [query["query"] for each in widgets for query in each["queries"]]
    shown = [query["fields"] for query in queries if query["datasetName"] == dataset["name"]]
    assert rows
    assert shown
    if dataset["name"] == "growth":
        # Whole audits only, without internal topics.
        sizes = {(row["day"], row["cluster"]): row["gigabytes"] for row in rows}
        assert sizes == {("2026-09-02", "main"): 12e-6, ("2026-09-03", "main"): 6e-6, ("2026-09-25", "third"): 3e-6}
    for fields in shown:
        assert {each["expression"].strip("`") for each in fields} <= set(rows[0])


def test_widgets_encode_only_their_own_fields_and_dont_overlap() -> None:
    for page in DASHBOARD["pages"]:
        taken: set[tuple[int, int]] = set()
        for each in page["layout"]:
            fields = {field["name"] for query in each["widget"]["queries"] for field in query["query"]["fields"]}
            assert set(_values(each["widget"]["spec"]["encodings"], "fieldName")) == fields
            at = each["position"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["width"]) for y in range(at["height"])}
            assert not cells & taken
            assert at["x"] + at["width"] <= 6
            taken |= cells


def _values(tree: Any, key: str) -> Iterator[str]:
    if isinstance(tree, Mapping):
        if key in tree:
            yield tree[key]
        tree = list(tree.values())
    if isinstance(tree, Sequence) and not isinstance(tree, str):
        for each in tree:
            yield from _values(each, key)


FOUND = {"drift_errors": 3, "failed_runs": 4, "late_audits": 2, "pending_approvals": 6}


@pytest.mark.thorough
@pytest.mark.parametrize("path", ALERTS, ids=lambda path: path.stem)
def test_an_alert_counts_what_it_finds(spark: SparkSession, root: Path, path: Path) -> None:
    (row,) = rows_now(spark, root, path.read_text(encoding="utf-8"))
    assert row["found"] == FOUND[path.stem]


EXPRESSIONS = [target["expr"] for panel in GRAFANA["panels"] for target in panel["targets"]]


def test_grafanas_panels_ask_for_metrics_and_labels_that_are_written(tmp_path: Path) -> None:
    metrics = Metrics()
    for name, (_, labels) in METRICS.items():
        if labels and name != "topicledger_info":
            metrics.set(name, 1, **dict.fromkeys(labels, "x"))
    metrics.write(tmp_path / "metrics", "apply", 0)
    families = text_string_to_metric_families((tmp_path / "metrics").read_text(encoding="utf-8"))
    written = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    asked = set()
    for expression in EXPRESSIONS:
        (name,) = re.findall(r"topicledger_\w+", expression)
        asked.add(name)
        by = re.findall(r"by \(([^)]*)\)", expression)
        if name == "topicledger_topics":
            assert all("command" in each.split(", ") for each in by), "plan and provision count the same topics"
        labels = {label for each in by for label in each.split(", ")} | set(re.findall(r"(\w+)=~?\"", expression))
        assert labels <= written[name], expression
    assert asked == set(METRICS) - {"topicledger_last_run_timestamp_seconds"}


def test_grafanas_expressions_are_promql(tmp_path: Path) -> None:
    file = tmp_path / "expressions.json"
    file.write_text(json.dumps(EXPRESSIONS), encoding="utf-8")
    assert elsewhere("promql_reader.py", file) == len(EXPRESSIONS)


def test_grafanas_panels_have_ids_and_places_of_their_own() -> None:
    assert len({panel["id"] for panel in GRAFANA["panels"]}) == len(GRAFANA["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in GRAFANA["panels"]]
    assert len(set(places)) == len(places)
