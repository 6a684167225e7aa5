"""[views]: periods, sizes and prices for the views."""

from __future__ import annotations

from dataclasses import dataclass

from topicledger.config.toml_table import TomlTable


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Periods, sizes and prices for the views: docs/queries.md."""

    unused_days: int = 30
    """Number of consecutive days that audits must find a topic unused before `unused_topics` lists it."""
    partition_bytes: int = 100_000_000
    """Bytes that one partition should hold: `over_partitioned` computes from it the partitions that a topic needs."""
    gigabyte_price: float | None = None
    """Price of 1,000,000,000 bytes on the brokers' disks, for a period of your choice. By default bytes don't count."""
    partition_price: float | None = None
    """Price of a partition for the same period. By default partitions don't count."""
    currency: str | None = None
    """Name of the prices' currency, for people."""


def read_views(table: TomlTable) -> ViewSettings:
    """Read [views]."""
    table.only("unused_days", "partition_bytes", "gigabyte_price", "partition_price", "currency")
    usual = ViewSettings()
    return ViewSettings(
        unused_days=table.integer("unused_days", usual.unused_days, 1, 3_650),
        partition_bytes=table.integer("partition_bytes", usual.partition_bytes, 1, 10**15),
        gigabyte_price=table.amount("gigabyte_price"),
        partition_price=table.amount("partition_price"),
        currency=table.text("currency"),
    )
