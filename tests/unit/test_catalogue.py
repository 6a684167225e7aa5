"""Topics that `catalog` marks as removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from tests.unit.frames import frame, plain
from topicledger.config.settings import Settings, TablesSettings
from topicledger.queries import catalogue
from topicledger.schemas import AUDIT, OBSERVED, USAGE

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_only_topics_that_were_deleted_are_marked_as_removed(spark: SparkSession) -> None:
    """A topic that isn't listed any more may only be hidden from this principal."""

    def applied(topic: str, action: str, hour: int = 0, **more: Any) -> dict[str, Any]:
        row = {"cluster": "main", "resource_type": "topic", "resource": topic, "topic": topic, "action": action}
        return {**row, "phase": "apply", "outcome": "ok", "completed_at": NOON + timedelta(hours=hour), **more}

    def seen(topic: str, hour: int = 0) -> dict[str, Any]:
        return {"cluster": "main", "topic": topic, "observed_at": NOON + timedelta(hours=hour)}

    audit = [
        applied("hidden", "create"),
        *(applied(topic, "delete", 2) for topic in ("deleted", "created.again", "live.again", "seen.again")),
        applied("deleted", "create", 1),
        applied("created.again", "create", 3),
        applied("failed", "delete", outcome="failed"),
        applied("elsewhere", "delete", cluster="other"),
    ]
    rows = {
        AUDIT.name: audit,
        OBSERVED.name: [{"cluster": "main", "topic": topic} for topic in ("live", "live.again")],
        USAGE.name: [seen("hidden"), seen("live"), seen("deleted"), seen("failed"), seen("seen.again", 3)],
    }
    ledger: Any = SimpleNamespace(
        spark=spark, read_if_exists=lambda table: frame(spark, plain(table.schema), rows.get(table.name, []))
    )
    settings = Settings(path=Path("s.toml"), tables=TablesSettings(root="x"), clusters={})
    found = catalogue.removed(ledger, settings, ["main"])
    assert [(row["cluster"], row["topic"]) for row in found] == [("main", "deleted")]
