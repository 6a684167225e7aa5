"""Cost of policies: planning a whole estate with ten policies, and with only the built-in ones that always apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from string import Template

from pyspark.sql import DataFrame, Window
from pyspark.sql import Observation as Metrics
from pyspark.sql import functions as F

from benchmarks import data
from benchmarks.measure import Work, in_turns
from benchmarks.report import Ratio, Result, Size
from topicledger.config.reading import load_settings
from topicledger.config.settings import Settings
from topicledger.ledger.session import FEW_ROWS, get_session
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.model import Action, Decision
from topicledger.observe.topics import ClusterStatus, Observation
from topicledger.plan.batches import of_topics, planned
from topicledger.policies import Facts, Policy
from topicledger.policies.contract import text
from topicledger.resources import registry
from topicledger.resources.building import from_settings
from topicledger.resources.topics.plan.topics import decided
from topicledger.resources.topics.plan.wanted import Wanted
from topicledger.schemas import BROKERS, MANIFESTS, PLANS, USAGES

DRIVER_MEMORY = "4g"
REACH = 3.0

_ESTATES = {
    Size.FULL: data.Estate(manifests=1_000_000, live=200_000),
    Size.SMALL: data.Estate(manifests=2_000, live=400),
}
_SAMPLES = {Size.FULL: 5, Size.SMALL: 1}
_WARM_UPS = {Size.FULL: 1, Size.SMALL: 0}
SESSION: Mapping[Size, Mapping[str, str]] = {
    Size.FULL: {},
    Size.SMALL: {name: few for name, (_, few) in FEW_ROWS.items()},
}

_TEN = r"""
[[policies.create]]
use = "topic_name_pattern"
pattern = '^[a-z]+(\.[a-z0-9-]+){2,3}$$'
[[policies.create]]
use = "config_range"
config = "retention.ms"
min = 3600000
max = 2592000000
mode = "warn"
[[policies.create]]
use = "labels_required"
names = ["tier", "domain"]
values = ["gold", "silver", "bronze", "payments", "orders", "shipping", "catalogue", "identity", "pricing", "search",
    "billing"]
[[policies.create]]
use = "min_insync_replicas"
spare = 1
[[policies.create]]
use = "partition_budget"
max = $partitions
[[policies.create]]
use = "replicas_per_broker"
max = $partitions
[[policies.create]]
use = "topics_per_owner"
max = $topics
[[policies.delete]]
use = "protected_topics"
patterns = ['^identity\.(team-00[0-9])\.']
[[policies.delete]]
use = "in_use"
[[policies.delete]]
use = "deletes_fraction"
max = 0.2
"""
_USERS_OWN = """
[[policies.create]]
use = "benchmarks.policies:creates_per_domain"
max = $creates
"""


def creates_per_domain(*, max: int) -> Callable[[DataFrame, Facts], DataFrame]:
    """An example of a user's own policy: a run creates at most `max` topics of a domain on a cluster."""
    create = (F.col("decision") == Action.CREATE.value) & F.col("open")
    domain = F.coalesce(F.col("labels")["domain"], F.lit("none"))
    before = Window.partitionBy("cluster", domain).orderBy("topic").rowsBetween(Window.unboundedPreceding, -1)
    count = F.coalesce(F.count_if(create).over(before), F.lit(0))

    def rule(topics: DataFrame, facts: Facts) -> DataFrame:
        message = text("one run may create ", max, " topics of domain ", domain, "; ", count, " come before it by name")
        return topics.withColumn("reason", F.when(count >= max, message))

    return rule


def run(size: Size, folder: Path) -> Result:
    """Plan an estate in turns: without configured policies, with ten, and with a user's own policy."""
    estate = _ESTATES[size]
    spark = get_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    for name, value in SESSION[size].items():
        spark.conf.set(name, value)
    ledger = Ledger(spark, str(folder / "ledger"))
    data.write(spark, ledger, estate)
    ledger.ensure(PLANS)
    # Materialised in Spark's own storage, as observe does, so that clusters are asked once.
    seen = Observation(
        topics=data.observed(ledger).localCheckpoint(),
        brokers=ledger.read(BROKERS).localCheckpoint(),
        statuses={name: ClusterStatus(cluster_id=f"id of {name}") for name in data.CLUSTERS},
    )
    numbers = count()

    def work(name: str, what: str, rules: str) -> Work:
        settings = settings_with(folder, name, ledger, estate, rules)
        made = from_settings(settings)
        return Work(name=name, what=what, do=lambda _: plan(ledger, settings, made, seen, f"{name} {next(numbers)}"))

    works = [
        work("without", "only policies that always apply: internal topics, name collisions", ""),
        work("ten", "plus ten configured policies, seven for creates, three for deletes", ten_rules(estate)),
        work("own", "plus one policy of a user that compares topics, with its checks", _fill(_USERS_OWN, estate)),
    ]
    samples, warm_ups = _SAMPLES[size], _WARM_UPS[size]
    without, ten, own = in_turns(works, warm_ups=warm_ups, samples=samples)
    spark.stop()
    return Result(
        work=(
            f"Plan {estate.manifests:,} manifest rows and {estate.live:,} live topics of {len(data.CLUSTERS)} "
            "clusters, from reading `manifests` to the commit of `plans`."
        ),
        series=[without, ten, own],
        ratios=[
            Ratio(of="ten", to="without", value=ten.median / without.median, reach=REACH),
            Ratio(of="own", to="without", value=own.median / without.median),
        ],
        notes=[
            "No Kafka: the observed side is stored as observe stores it, and read before measuring.",
            "No policy here asks a cluster. Validate, and evaluating policies again after it, are not included.",
        ],
    )


def plan(ledger: Ledger, settings: Settings, rules: Sequence[Policy], seen: Observation, run_id: str) -> dict[str, int]:
    """Plan every cluster and commit the plan, as the phase plan does; return its counts."""
    version = ledger.latest_version(MANIFESTS)
    known = Facts(
        brokers=seen.brokers,
        usages=ledger.read(USAGES),
        now=data.NOW,
        consumer_groups=_nobody,
        last_records=_nobody,
        unseen_topics=lambda named: named.select("cluster", F.lit(0).alias("unseen"), F.lit(None).alias("error")),
        manifests=lambda: ledger.read(MANIFESTS, version),
        clusters=tuple(settings.clusters),
    )
    validated = ledger.read(MANIFESTS, version).transform(
        manifests.validate(list(settings.clusters), list(settings.clusters))
    )
    wanted = Wanted(validated=validated, kinds=list(registry.ACTIONS), to_describe=lambda _: None)
    metrics = Metrics("decisions")
    ended = F.col("phase").isNotNull()
    counted = [
        *(F.count_if((F.col("decision") == each.value) & ~ended).alias(each.value) for each in Decision),
        F.count_if(ended).alias("ended"),
    ]
    rows = (
        validated.transform(decided(seen, wanted, None, rules, known, settings))
        .observe(metrics, *counted)
        .transform(of_topics)
        .transform(planned(run_id, version, datetime.now(UTC), settings.kafka.max_batch_records))
    )
    ledger.append(PLANS, rows, app_id=run_id, version=0)
    return dict(metrics.get)


def _nobody(_: DataFrame) -> DataFrame:
    raise AssertionError("no policy of this benchmark asks a cluster")


def ten_rules(estate: data.Estate) -> str:
    """Return the settings of ten policies that refuse something in an estate."""
    return _fill(_TEN, estate)


def _fill(rules: str, estate: data.Estate) -> str:
    # Only the largest cluster reaches the limits.
    per_cluster = estate.manifests // len(data.CLUSTERS)
    limits = {
        "partitions": 32 * per_cluster,
        "topics": max(1, 5 * per_cluster // data.OWNERS),
        "creates": max(1, per_cluster // 3),
    }
    return Template(rules).substitute(limits)


def settings_with(folder: Path, name: str, ledger: Ledger, estate: data.Estate, rules: str) -> Settings:
    """Load settings as a user would write them, for clusters that are never contacted."""
    clusters = (
        f'[clusters.{cluster}]\nbootstrap_servers = ["broker.example.org:9092"]\ncluster_id = "id of {cluster}"\n'
        for cluster in data.CLUSTERS
    )
    guard = f"[guards]\nmax_deletes = {estate.manifests}\n"
    path = folder / f"{name}.toml"
    path.write_text(f'[tables]\nroot = "{ledger.root}"\n{"".join(clusters)}{guard}{rules}', encoding="utf-8")
    return load_settings(path)
