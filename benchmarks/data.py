"""An estate to measure on: manifests, live topics, brokers and usages, always the same for the same size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from topicledger import phases
from topicledger.ledger.tables import Ledger
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.schemas import BROKERS, MANIFESTS, OBSERVED, USAGES, Table

CLUSTERS = tuple(f"cluster-{number:02}" for number in range(20))
BROKERS_EACH = 3
OWNERS = 400
NOW = datetime(2026, 1, 1, tzinfo=UTC)

_DOMAINS = ("payments", "orders", "shipping", "catalogue", "identity", "pricing", "search", "billing")


@dataclass(frozen=True, kw_only=True)
class Estate:
    """The size of an estate."""

    manifests: int
    """Rows of `manifests`; 2 in 1,000 are copies, half of them with other counts."""
    live: int
    """Live topics; 19 of 20 are declared."""

    @property
    def distinct(self) -> int:
        """Topics that manifests name."""
        return self.manifests - 2 * (self.manifests // 1_000)

    @property
    def declared(self) -> int:
        """Live topics that manifests name: those with the lowest numbers."""
        return self.live - self.live // 20


def write(spark: SparkSession, ledger: Ledger, estate: Estate) -> None:
    """Fill the ledger's tables `manifests`, `observed`, `brokers` and `usages`."""
    topics = spark.range(estate.distinct)
    same = topics.where(F.col("id") % 1_000 == 7).limit(estate.manifests // 1_000)
    other = topics.where(F.col("id") % 1_000 == 8).limit(estate.manifests // 1_000)
    append(
        ledger,
        MANIFESTS,
        _manifests(topics, estate)
        .unionByName(_manifests(same, estate))
        .unionByName(_manifests(other, estate).withColumn("owner", F.lit("somebody else"))),
    )
    unmanaged = spark.range(estate.distinct, estate.distinct + estate.live - estate.declared)
    append(ledger, OBSERVED, _observed(spark.range(estate.declared).union(unmanaged)))
    append(ledger, USAGES, _usages(spark.range(estate.declared)))
    append(ledger, BROKERS, _brokers(spark))


def append(ledger: Ledger, table: Table, rows: DataFrame, part: str = "") -> None:
    """Append rows to a table; columns that they lack are null. Each further append to a table needs another part."""
    ledger.ensure(table)
    given = ((F.col(each.name) if each.name in rows.columns else F.lit(None), each) for each in table.schema)
    columns = (value.cast(each.dataType).alias(each.name) for value, each in given)
    ledger.append(table, rows.select(*columns), app_id=f"bench{part}", version=0)


def _share(salt: int) -> Column:
    """Return a number from 0 to 1 for each topic, the same each time."""
    return F.pmod(F.xxhash64("id", F.lit(salt)), F.lit(1_000_003)) / 1_000_003


def _one_of(salt: int, *values: Column | str | int) -> Column:
    each = F.array(*(value if isinstance(value, Column) else F.lit(value) for value in values))
    return each[F.floor(_share(salt) * len(values)).cast("int")]


def _named(topics: DataFrame) -> DataFrame:
    """Add cluster and topic; the first cluster has about a fifth of all topics, the last one a fortieth."""
    number = F.floor(F.pow(_share(1), 2) * len(CLUSTERS)).cast("int")
    owner = F.floor(_share(2) * OWNERS).cast("int")
    return topics.withColumns(
        {
            "cluster": F.array(*map(F.lit, CLUSTERS))[number],
            "team": F.concat(F.lit("team-"), F.lpad(owner.cast("string"), 3, "0")),
            "domain": _one_of(3, *_DOMAINS),
        }
    ).withColumn(
        "topic",
        F.concat(
            F.col("domain"),
            F.lit("."),
            F.col("team"),
            F.when(_share(4) < 0.01, F.lit(".UPPER_case-")).otherwise(F.lit(".entity-updated.v1-")),
            F.lpad(F.col("id").cast("string"), 8, "0"),
        ),
    )


def _manifests(topics: DataFrame, estate: Estate) -> DataFrame:
    assigned = _share(5) < 0.02
    # A twentieth of the live topics must be deleted, and a few rows declare missing topics as absent.
    absent = _share(6) < F.when(F.col("id") < estate.declared, 0.05).otherwise(0.01)
    return _named(topics).select(
        "cluster",
        "topic",
        F.when(absent, ABSENT).otherwise(PRESENT).alias("state"),
        F.when(~assigned & (_share(7) > 0.1), _declared_partitions()).alias("num_partitions"),
        F.when(~assigned & (_share(8) > 0.1), F.when(_share(9) < 0.002, 0).otherwise(3)).alias("replication_factor"),
        F.when(assigned, _assignments(F.lit(4))).alias("assignments"),
        _entries(
            (10, 0.9, "retention.ms", _one_of(11, "3600000", "86400000", "604800000", "2592000000", "-1")),
            (12, 0.5, "cleanup.policy", _one_of(13, "delete", "compact", "compact,delete")),
            (14, 0.9, "min.insync.replicas", F.when(_share(15) < 0.02, "3").otherwise("2")),
            (16, 0.4, "max.message.bytes", F.lit("1048588")),
            (17, 0.3, "compression.type", _one_of(18, "zstd", "lz4", "producer")),
            (19, 0.2, "segment.bytes", F.lit("268435456")),
        ).alias("configs"),
        F.when(_share(20) > 0.02, F.col("team")).alias("owner"),
        _entries(
            (21, 0.98, "tier", F.when(_share(22) < 0.02, "tin").otherwise(_one_of(27, "gold", "silver", "bronze"))),
            (23, 1, "domain", F.col("domain")),
            (24, 0.8, "data-class", _one_of(25, "public", "internal", "personal")),
            (26, 0.5, "contact", F.concat(F.col("team"), F.lit("@example.org"))),
        ).alias("labels"),
    )


def _declared_partitions() -> Column:
    return _one_of(30, 1, 3, 6, 6, 12, 24)


def _entries(*entries: tuple[int, float, str, Column]) -> Column:
    """Return a map with some of the entries (salt, share of the topics that have it, key, value)."""
    given = (
        F.when(_share(salt) < share, F.struct(F.lit(key).alias("key"), value.alias("value")))
        for salt, share, key, value in entries
    )
    return F.map_from_entries(F.array_compact(F.array(*given)))


def _assignments(partitions: Column) -> Column:
    """Assign each partition to all three brokers, with leaders in rotation."""
    numbers = F.sequence(F.lit(0), partitions - 1)
    return F.map_from_arrays(
        numbers,
        F.transform(
            numbers,
            lambda number: F.array(*(((number + at) % BROKERS_EACH + 1).cast("int") for at in range(BROKERS_EACH))),
        ),
    )


def _observed(topics: DataFrame) -> DataFrame:
    # A few topics differ from what is declared.
    partitions = F.when(_share(31) < 0.02, 48).otherwise(_declared_partitions())
    return _named(topics).select(
        "cluster",
        F.concat(F.lit("id of "), "cluster").alias("cluster_id"),
        "topic",
        F.substring(F.base64(F.unhex(F.md5(F.col("id").cast("string")))), 1, 22).alias("topic_id"),
        F.lit(False).alias("internal"),
        F.lit(True).alias("permitted"),
        partitions.alias("num_partitions"),
        F.lit(3).alias("replication_factor"),
        _assignments(partitions).alias("assignments"),
        F.array(*map(F.lit, ("ALTER", "DELETE", "DESCRIBE", "READ", "WRITE"))).alias("authorized_operations"),
        F.lit("bench").alias("run_id"),
        F.lit(NOW).alias("observed_at"),
    )


def observed(ledger: Ledger) -> DataFrame:
    """Return the stored topics as the phase observe does (`phases.OBSERVED`): each described, led as Kafka prefers."""
    stored = ledger.read(OBSERVED)
    added = (each for each in phases.OBSERVED if each.name not in stored.columns)
    known = stored.withColumns({each.name: F.lit(None).cast(each.dataType) for each in added})
    return known.select(*phases.OBSERVED.names)


def _usages(topics: DataFrame) -> DataFrame:
    """Return a usage for every second live topic; a tenth of them have expired."""
    return (
        _named(topics)
        .where(_share(40) < 0.5)
        .select(
            "cluster",
            "topic",
            _one_of(41, "reporting", "warehouse", "fraud-detection", "search-index").alias("consumer"),
            F.when(_share(42) < 0.1, F.lit(datetime(2025, 1, 1, tzinfo=UTC))).alias("valid_until"),
            F.lit(None).alias("note"),
        )
    )


def _brokers(spark: SparkSession) -> DataFrame:
    broker = (F.col("id") % BROKERS_EACH + 1).cast("int")
    cluster = F.array(*map(F.lit, CLUSTERS))[F.floor(F.col("id") / BROKERS_EACH).cast("int")]
    return spark.range(len(CLUSTERS) * BROKERS_EACH).select(
        cluster.alias("cluster"),
        F.concat(F.lit("id of "), cluster).alias("cluster_id"),
        broker.alias("broker_id"),
        F.concat(F.lit("rack-"), broker.cast("string")).alias("rack"),
        F.lit("broker.example.org").alias("host"),
        F.lit(9092).alias("port"),
        (broker == 1).alias("controller"),
        F.lit("bench").alias("run_id"),
        F.lit(NOW).alias("observed_at"),
    )
