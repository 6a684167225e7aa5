"""Rows of `throttles`: throttles that may be set; committed before they are set and after they are removed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import functions as F

from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model.moves import Throttle
from topicledger.schemas import THROTTLES

_CONFIG = ("resource_type", "resource", "config")
_ROW = {**dict.fromkeys((*_CONFIG, "run_id"), "string"), "set_at": "bigint"}
"""Column that names a row -> its type, as `Throttle` has it."""


@dataclass(frozen=True, kw_only=True)
class RecordedThrottles:
    """Throttles of one cluster; only the holder of its lease writes these rows."""

    ledger: Ledger
    run_id: str
    cluster: str
    cluster_id: str

    def intend(self, throttles: Sequence[Throttle]) -> None:
        """Commit that these throttles will be set."""
        self.ledger.ensure(THROTTLES)
        common = {"run_id": self.run_id, "cluster": self.cluster, "cluster_id": self.cluster_id}
        now = datetime.now(UTC)
        rows = [
            {
                **common,
                "resource_type": each.resource_type,
                "resource": each.resource,
                "config": each.config,
                "before": each.before,
                "value": each.value,
                "set_at": now,
            }
            for each in throttles
        ]
        self.ledger.append(THROTTLES, self.ledger.rows(THROTTLES, rows), app_id=secrets.token_hex(16), version=1)

    def left(self) -> Sequence[Throttle]:
        """Return the throttles that any run may have left set; for the same config, the latest is last."""
        if not self.ledger.exists(THROTTLES):
            return []
        rows = self.ledger.read(THROTTLES).where(self._open()).orderBy(*_CONFIG, "set_at")
        return [
            Throttle(
                resource_type=row["resource_type"],
                resource=row["resource"],
                config=row["config"],
                before=row["before"],
                value=row["value"],
                run_id=row["run_id"],
                set_at=row["at"],
            )
            for row in rows.withColumn("at", F.unix_micros("set_at")).collect()
        ]

    def removed(self, throttles: Sequence[Throttle]) -> None:
        """Commit that throttles of `left` are no longer set.

        A driver that was suspended for long may call this: throttles recorded since `left` may be set.
        """
        if not throttles:
            return
        keys = {tuple(getattr(each, name) for name in _ROW) for each in throttles}
        of_rows = self.ledger.spark.createDataFrame(
            sorted(keys), ", ".join(f"{name} {of}" for name, of in _ROW.items())
        )
        named = of_rows.withColumn("set_at", F.timestamp_micros("set_at"))
        self.ledger.update_named(THROTTLES, named, self._open(), {"removed_at": sql_value(datetime.now(UTC))})

    def _open(self) -> str:
        return f"cluster_id = {sql_value(self.cluster_id)} AND removed_at IS NULL"


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Throttles that may be set on one cluster."""

    names: frozenset[str]
    """The names that the cluster had when they were set."""
    run_ids: frozenset[str]
    """The runs that set them."""


def clusters_left(ledger: Ledger) -> Mapping[str, Leftover]:
    """Return cluster id -> the throttles that any run may have left set there."""
    if not ledger.exists(THROTTLES):
        return {}
    rows = ledger.read(THROTTLES).where("removed_at IS NULL").select("cluster", "cluster_id", "run_id")
    found: dict[str, Leftover] = {}
    for row in rows.collect():
        known = found.get(row["cluster_id"], Leftover(names=frozenset(), run_ids=frozenset()))
        found[row["cluster_id"]] = Leftover(
            names=known.names | {row["cluster"]}, run_ids=known.run_ids | {row["run_id"]}
        )
    return found
