"""`policies audit`: the existing topics that the current policies would refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from topicledger import policies
from topicledger.cli.options import Options, print_result
from topicledger.config.patterns import any_matches
from topicledger.config.settings import ClusterSettings, Owners, Settings
from topicledger.errors import ExitCode, UsageError, exit_code
from topicledger.frames import materialised
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.manifests.rows import Transform
from topicledger.model import Action
from topicledger.model.config_texts import with_units
from topicledger.model.scope import Scope
from topicledger.observe.clusters import observe
from topicledger.plan.reevaluate import facts
from topicledger.policies import Policy
from topicledger.resources import building
from topicledger.resources.scoped import INSIDE, topics_of, with_inside
from topicledger.resources.topics.plan.changes import describe
from topicledger.resources.topics.plan.decide import decide
from topicledger.resources.topics.plan.living import as_creates
from topicledger.schemas import MANIFESTS, USAGES
from topicledger.text import cell, counted, document, grid_of, nearest, print_first, show


@dataclass(frozen=True, kw_only=True)
class PolicyCounts:
    """Result of one policy for the existing topics."""

    policy: str
    mode: str
    settings: str
    """As JSON."""
    asked: int
    """Number of topics that it evaluates."""
    broken: int
    unjudgeable: int


@dataclass(frozen=True, kw_only=True)
class PolicyFinding:
    """A topic that breaks a policy, or can't be evaluated by it."""

    cluster: str
    topic: str
    owner: str | None
    policy: str
    mode: str
    verdict: str
    """broken or unjudgeable."""
    message: str


@dataclass(frozen=True, kw_only=True)
class LivePolicies:
    """Result of the policies of creates for the existing topics."""

    topics: int
    """Number of evaluated topics; internal ones are not evaluated."""
    ignored: int
    """Number of topics that the settings leave to others; 0 for a narrower audit."""
    policies: Sequence[PolicyCounts]
    """In the order of the settings."""
    findings: Sequence[PolicyFinding]
    """By cluster, topic and policy."""
    problems: Sequence[str]
    """Reasons why topics of clusters were not evaluated."""
    exit_code: ExitCode


def audit_policies(
    ledger: Ledger,
    settings: Settings,
    clusters: Sequence[ClusterSettings],
    named: Sequence[str],
    limits: Scope,
    options: Options,
    *,
    detailed: bool,
) -> ExitCode:
    """Evaluate the topics of clusters as if each were created now as it is, and print the results of the policies.

    Nothing is changed or recorded. `named`: only these policies. `limits`: only topics inside this scope; policies
    about topics together still see all. `detailed`: exit 3 if a topic breaks one. Raises
    UsageError for a policy that isn't in the settings.
    """
    rules = [each for each in building.from_settings(settings) if each.action is Action.CREATE]
    for name in named:
        if name not in {each.name for each in rules}:
            near = nearest(name, [each.name for each in rules])
            raise UsageError(f"{settings.path}: no [[policies.create]] uses `{show(name)}`; {near}")
    rules = [each for each in rules if not named or each.name in named]
    ledger.ensure(MANIFESTS, USAGES)
    declared = ledger.read(MANIFESTS).transform(
        manifests.validated_by(settings, [cluster.name for cluster in clusters])
    )
    seen = observe(ledger, settings, clusters, declared.where(F.col("phase").isNull()))
    reached = [cluster for cluster in clusters if cluster.name in seen.known]
    of_reached = F.col("cluster").isin(*(each.name for each in reached))
    topics = seen.topics.where(~F.col("internal") & of_reached)
    seen, configs = describe(ledger.spark, settings.kafka, reached, topics, seen)
    # A cluster may be lost after its topics were listed.
    problems = [why for status in seen.statuses.values() if (why := status.problem) is not None]
    of_reached = F.col("cluster").isin(*seen.known)
    known = facts(ledger, settings, reached, seen.brokers)
    rows = declared.transform(decide(seen.topics, seen.statuses)).where(of_reached)
    evaluated = rows.transform(as_creates(configs, settings.ignored_configs)).transform(policies.verdicts(rules, known))
    ignored = any_matches("topic", settings.scope.ignore_topics)
    mine = evaluated.where(~ignored).transform(only_inside(limits, settings.owners, declared))
    left = ignored_topics(settings, limits, topics)
    found = _found(mine, rules, problems, detailed, left)
    print_result(document(found.exit_code, asdict(found)), lambda console: render(found, console), options)
    return found.exit_code


def ignored_topics(settings: Settings, limits: Scope, topics: DataFrame) -> int:
    """Return the number of topics that the settings leave to others; 0 for a narrower scope, as in audits."""
    patterns = settings.scope.ignore_topics
    return topics.where(any_matches("topic", patterns)).count() if patterns and not limits.narrows else 0


def only_inside(limits: Scope, owners: Owners, declared: DataFrame) -> Transform:
    """Return a transform that keeps topics inside a scope. In: cluster, topic, owner, and more.

    `declared`: rows of `manifests`. A topic without a row belongs to its owners by [owners] of the settings.
    """
    if not limits.narrows:
        return lambda topics: topics
    named = declared.select("cluster", "topic").distinct().withColumn("_declared", F.lit(True))
    inside = with_inside(limits, topics_of(owners, F.col("_declared").isNull()), None)

    def transform(topics: DataFrame) -> DataFrame:
        rows = topics.join(named, on=["cluster", "topic"], how="left").transform(inside)
        return rows.where(INSIDE).select(*topics.columns)

    return transform


def _found(
    evaluated: DataFrame, rules: Sequence[Policy], problems: Sequence[str], detailed: bool, ignored: int
) -> LivePolicies:
    """Count and list the violations. In: creates with `verdicts` (see `policies.verdicts`)."""
    rows = evaluated.select("cluster", "topic", "owner", "verdicts").transform(materialised)
    each = rows.select("cluster", "topic", "owner", F.posexplode("verdicts").alias("place", "verdict")).where(
        "verdict.asked"
    )
    broken = F.col("verdict.reason").isNotNull()
    unjudgeable = ~broken & F.col("verdict.unjudgeable").isNotNull()
    nothing = dict.fromkeys(("asked", "broken", "unjudgeable"), 0)
    counted = {
        row["place"]: {name: row[name] for name in nothing}
        for row in each.groupBy("place")
        .agg(
            F.count("*").alias("asked"),
            F.count_if(broken).alias("broken"),
            F.count_if(unjudgeable).alias("unjudgeable"),
        )
        .collect()
    }
    findings = (
        each.where(broken | unjudgeable)
        .select(
            "cluster",
            "topic",
            "owner",
            "verdict.policy",
            "verdict.mode",
            F.when(broken, "broken").otherwise("unjudgeable").alias("verdict"),
            F.coalesce("verdict.reason", "verdict.unjudgeable").alias("message"),
        )
        .orderBy("cluster", "topic", "policy", "message")
    )
    some = [PolicyFinding(**row.asDict()) for row in findings.collect()]
    of_rules = [
        PolicyCounts(
            policy=rule.name,
            mode=rule.mode,
            settings=json.dumps(dict(rule.options), default=str),
            **counted.get(place, nothing),
        )
        for place, rule in enumerate(rules)
    ]
    code = exit_code({ExitCode.ERROR: bool(problems), ExitCode.CHANGES_PENDING: detailed and bool(some)})
    return LivePolicies(
        topics=rows.count(),
        ignored=ignored,
        policies=of_rules,
        findings=some,
        problems=list(problems),
        exit_code=code,
    )


def render(found: LivePolicies, console: Console) -> None:
    """Print the number of topics that break each policy, and the first of them."""
    console.print(f"{found.topics} topics, each evaluated as if it were created now as it is")
    numbers = ("evaluated", "broken", "unjudgeable")
    grid = grid_of("policy", "mode", "settings", *numbers, numbers=numbers)
    for each in found.policies:
        counts = (each.asked, each.broken or "", each.unjudgeable or "")
        grid.add_row(*map(cell, (each.policy, each.mode, each.settings)), *map(str, counts))
    console.print(grid)
    if found.findings:
        names = ("cluster", "topic", "owner", "policy", "mode", "verdict", "message")
        shown = [replace(each, message=with_units(each.message)) for each in found.findings]
        print_first(console, names, [[getattr(each, name) for name in names] for each in shown])
    elif not found.problems:
        console.print("no topic breaks any of them")
    print_left(found.ignored, found.problems, console)


def print_left(ignored: int, problems: Sequence[str], console: Console) -> None:
    """Print what was not evaluated."""
    if ignored:
        console.print(f"ignored by [scope] of the settings: {counted(ignored, 'topic')}", markup=False)
    for problem in problems:
        console.print(f"not evaluated: {cell(problem)}", soft_wrap=True)
