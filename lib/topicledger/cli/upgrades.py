"""`policies audit --for-kafka VERSION`: the configs that an upgrade of Kafka breaks, or gives another meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from topicledger.cli.live_policies import ignored_topics, only_inside, print_left
from topicledger.cli.options import Options, print_result
from topicledger.config.patterns import any_matches
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ExitCode, exit_code
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.manifests.row_rules import PRESENT
from topicledger.model import SET_ON_TOPIC
from topicledger.model.scope import Scope
from topicledger.model.topic_configs import Version
from topicledger.model.upgrades import as_text, concerned, of_default, of_limit, of_value, replaced_defaults
from topicledger.observe.clusters import observe
from topicledger.resources.topics.plan.changes import describe
from topicledger.schemas import MANIFESTS
from topicledger.text import document, print_first

_DECLARED, _LIVE, _BROKER, _DEFAULT = "declared", "live", "broker", "default"
_EVALUATED = {_DECLARED: of_value, _LIVE: of_value, _BROKER: of_limit, _DEFAULT: of_default}
_BUILT_IN = "DEFAULT_CONFIG"
"""Kafka's name for the source of a value that neither the topic nor the broker's settings have."""
_OF_BROKERS = ("STATIC_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG")
"""Kafka's names for the sources of values that brokers' settings have."""


@dataclass(frozen=True, kw_only=True)
class UpgradeFinding:
    """A config that the version breaks or changes."""

    cluster: str
    topic: str | None
    """None: all topics that leave the config to the broker's settings, or to Kafka's default."""
    owner: str | None
    source: str
    """declared: by a manifest; live: set on the topic; broker: by the broker's settings; default: Kafka's."""
    effect: str
    """breaks: brokers refuse it; changes: it gets another meaning."""
    message: str
    topics: int


@dataclass(frozen=True, kw_only=True)
class UpgradeAudit:
    """Effects of a version on declared and live topics."""

    kafka: str
    findings: Sequence[UpgradeFinding]
    """By cluster, topic and message."""
    ignored: int
    """Number of live topics that the settings leave to others; 0 for a narrower audit."""
    problems: Sequence[str]
    """Reasons why the live topics of clusters were not evaluated."""
    exit_code: ExitCode


def audit_upgrade(
    ledger: Ledger,
    settings: Settings,
    clusters: Sequence[ClusterSettings],
    version: Version,
    limits: Scope,
    options: Options,
    *,
    detailed: bool,
) -> ExitCode:
    """Print the effects of an upgrade to `version` on declared and live topics of clusters.

    Nothing is changed or recorded. `limits`: only topics inside this scope. `detailed`: exit 3 if there is any.
    """
    ledger.ensure(MANIFESTS)
    declared = ledger.read(MANIFESTS).transform(
        manifests.validated_by(settings, [cluster.name for cluster in clusters])
    )
    accepted = declared.where(F.col("phase").isNull() & (F.col("state") == PRESENT))
    seen = observe(ledger, settings, clusters, accepted)
    reached = [cluster for cluster in clusters if cluster.name in seen.known]
    topics = seen.topics.where(~F.col("internal") & F.col("cluster").isin(*(each.name for each in reached)))
    ignored = any_matches("topic", settings.scope.ignore_topics)
    seen, configs = describe(ledger.spark, settings.kafka, reached, topics.where(~ignored), seen)
    # A cluster may be lost after its topics were listed.
    problems = [why for status in seen.statuses.values() if (why := status.problem) is not None]
    owners = accepted.select("cluster", "topic", "owner")
    mine = only_inside(limits, settings.owners, declared)
    live = configs.join(owners, on=["cluster", "topic"], how="left").transform(mine)
    found = findings(accepted.transform(mine), live, version)
    code = exit_code({ExitCode.ERROR: bool(problems), ExitCode.CHANGES_PENDING: detailed and bool(found)})
    left = ignored_topics(settings, limits, topics)
    audit = UpgradeAudit(kafka=as_text(version), findings=found, ignored=left, problems=problems, exit_code=code)
    print_result(document(audit.exit_code, asdict(audit)), lambda console: render(audit, console), options)
    return code


def findings(declared: DataFrame, live: DataFrame, version: Version) -> list[UpgradeFinding]:
    """Return the effects of a version.

    In: `declared` (cluster, topic, owner, configs map<string,string>); `live` (cluster, topic, owner, configs as in
    `observed_configs`).
    """
    of_manifests = declared.select("cluster", "topic", "owner", F.lit(_DECLARED).alias("source"), F.explode("configs"))
    of_manifests = of_manifests.withColumnsRenamed({"key": "name"})
    found = F.col("each.config_source")
    source = (
        F.when(found == SET_ON_TOPIC, _LIVE).when(found == _BUILT_IN, _DEFAULT).when(found.isin(*_OF_BROKERS), _BROKER)
    )
    of_topics = live.select("cluster", "topic", "owner", F.explode("configs").alias("each")).select(
        "cluster", "topic", "owner", source.alias("source"), "each.name", "each.value"
    )
    # Brokers older than a config describe none, and behave as its earliest default says.
    for name, default in replaced_defaults(version).items():
        lacking = (F.size("configs") > 0) & ~F.array_contains("configs.name", name)
        texts = {"source": _DEFAULT, "name": name, "value": default}
        columns = [F.lit(text).alias(column) for column, text in texts.items()]
        of_older = live.where(lacking).select("cluster", "topic", "owner", *columns)
        of_topics = of_topics.unionByName(of_older)
    values = of_manifests.unionByName(of_topics).where(
        F.col("name").isin(*concerned(version)) & F.col("source").isNotNull() & F.col("value").isNotNull()
    )
    # Values of these few configs are evaluated once each; topics are only joined to the result.
    key = ["source", "name", "value"]
    effects = []
    for row in values.select(*key).distinct().collect():
        reason = _EVALUATED[row["source"]](row["name"], row["value"], version)
        if reason is not None:
            effects.append((*row, reason.effect.value, reason.message))
    if not effects:
        return []
    schema = "source string, name string, value string, effect string, message string"
    made = F.broadcast(declared.sparkSession.createDataFrame(effects, schema))
    of_topic = F.col("source").isin(_DECLARED, _LIVE)
    of_each = [F.when(of_topic, F.col(name)).alias(name) for name in ("topic", "owner")]
    rows = (
        values.join(made, on=key, how="inner")
        .groupBy("cluster", *of_each, "source", "effect", "message")
        .agg(F.count("*").alias("topics"))
        .orderBy("cluster", F.col("topic").asc_nulls_last(), "message", "source")
    )
    return [UpgradeFinding(**row.asDict()) for row in rows.collect()]


def _topics(finding: UpgradeFinding) -> str:
    of = "the broker's value" if finding.source == _BROKER else "the default"
    return f"{finding.topics:,} with {of}"


def render(audit: UpgradeAudit, console: Console) -> None:
    """Print the first findings."""
    names = ("cluster", "topic", "owner", "source", "effect", "message")
    if audit.findings:
        shown = [replace(each, topic=each.topic or _topics(each)) for each in audit.findings]
        print_first(console, names, [[getattr(each, name) for name in names] for each in shown])
    elif not audit.problems:
        console.print(f"Kafka {audit.kafka} breaks and changes no config of these topics")
    print_left(audit.ignored, audit.problems, console)
