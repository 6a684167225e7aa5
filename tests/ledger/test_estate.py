"""`report --estate` on a ledger with rows for every view."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.ledger.asked import write_ledger
from topicledger.cli import main

SETTINGS = '[tables]\nroot = "{root}"\n[clusters.main]\nbootstrap_servers = ["h:1"]\n[views]\npartition_price = 0.5\n'


@pytest.mark.thorough
def test_the_page_shows_the_rows_of_the_views_and_the_index_lists_it(spark: SparkSession, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS.format(root=write_ledger(tmp_path / "ledger")), encoding="utf-8")
    folder = tmp_path / "reports"

    def report(name: str, *options: str) -> tuple[dict[str, object], str]:
        out = folder / name
        arguments = ["report", "--config", str(settings), "--estate", "--out", str(out), "--format", "json", *options]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout), out.read_text(encoding="utf-8")

    told, page = report("all.html", "--index", str(folder))
    counts = {name: told[name] for name in ("kind", "topics", "unused", "over_partitioned", "risky")}
    assert counts == {"kind": "estate", "topics": 6, "unused": 1, "over_partitioned": 2, "risky": 3}
    # The settings have no other cluster any more.
    headline = "6 topics: 1 unused, 2 over-partitioned, 3 at risk; use of 1 topic unknown; configs of 4 topics unknown"
    assert f"<h1>{headline}</h1>" in page
    assert page.count("<polyline") == 9, "three charts with a line for each owner; there is one cluster"
    index = (folder / "index.html").read_text(encoding="utf-8")
    assert 'href="all.html"' in index

    told, page = report("search.html", "--owner", " SEARCH", "--cluster", "main")
    assert (told["topics"], told["unused"], told["over_partitioned"], told["risky"]) == (2, 0, 1, 1)
    assert "payments" not in page.lower()
    # The command that the page names returns the same rows.
    query = "SELECT * FROM risky_topics WHERE cluster IN ('main') AND lower(trim(owner)) IN ('search') ORDER BY"
    assert query.replace("'", "&#39;") in page
    answer = CliRunner().invoke(main, ["sql", "--config", str(settings), "--format", "json", f"{query} topic"])
    assert [row["topic"] for row in json.loads(answer.stdout)["rows"]] == ["wide"], answer.output
