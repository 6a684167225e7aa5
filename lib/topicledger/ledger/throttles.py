"""Which throttles may be set on clusters: rows of `throttles`, committed before one is set, and after it is gone."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import functions as F

from topicledger.ledger.sql import sql_value
from topicledger.ledger.tables import Ledger
from topicledger.model.moves import Throttle
from topicledger.schemas import THROTTLES


@dataclass(frozen=True, kw_only=True)
class RecordedThrottles:
    """Throttles of one cluster; only who holds its lease writes about it."""

    ledger: Ledger
    run_id: str
    cluster: str
    cluster_id: str

    def intend(self, throttles: Sequence[Throttle]) -> None:
        """Returns when it is committed that these are going to be set."""
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
        """Those that may be set, by whichever run."""
        if not self.ledger.exists(THROTTLES):
            return []
        rows = self.ledger.read(THROTTLES).where(F.expr(self._open())).orderBy("resource_type", "resource", "config")
        return [
            Throttle(
                resource_type=row["resource_type"],
                resource=row["resource"],
                config=row["config"],
                before=row["before"],
                value=row["value"],
            )
            for row in rows.collect()
        ]

    def removed(self, throttles: Sequence[Throttle]) -> None:
        """Returns when it is committed that these aren't set any more."""
        if not throttles:
            return
        named = " OR ".join(
            f"(resource_type = {sql_value(kind)} AND resource = {sql_value(name)})"
            for kind, name in sorted({(each.resource_type, each.resource) for each in throttles})
        )
        now = {"removed_at": sql_value(datetime.now(UTC))}
        self.ledger.update(THROTTLES, f"{self._open()} AND ({named})", now)

    def _open(self) -> str:
        return f"cluster_id = {sql_value(self.cluster_id)} AND removed_at IS NULL"


def clusters_left(ledger: Ledger) -> dict[str, str]:
    """Name -> id of clusters on which throttles may be set, by whichever run."""
    if not ledger.exists(THROTTLES):
        return {}
    rows = ledger.read(THROTTLES).where("removed_at IS NULL").select("cluster", "cluster_id").distinct()
    return {row["cluster"]: row["cluster_id"] for row in rows.collect()}
