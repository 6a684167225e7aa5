"""Every built-in policy beside a plain statement of the same rule, over random estates: the two must always agree.

An estate is a cluster with its topics. Many are evaluated in one Spark job, with settings that hypothesis draws.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tests.fault.effort import THOROUGH
from tests.unit.frames import NOW, decision_rows, dicts, estate_facts
from topicledger import policies
from topicledger.config.settings import PolicySettings, PolicySpec, Settings, TablesSettings
from topicledger.kafka.config_values import same_value
from topicledger.model import Action
from topicledger.policies import Facts, Policy
from topicledger.resources import building

ESTATES = 75
"""Of one example: one cluster each."""

few = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
"""A Spark job takes seconds: few examples, each of many estates, and none sought that is smaller."""


NAMES = (
    "a.b",
    "a_b",
    "a-b",
    "a.b.c",
    "a_b.c",
    "b",
    "ops.x",
    "pay.1",
    "pay_1",
    "shop.a",
    "shop.b",
    "shop_a",
    "z",
    "z.z",
)
OWNERS = (None, "", " \t", "ops", "pay", "shop", "Shop", " SHOP\n")
CONFIGS = ("cleanup.policy", "max.message.bytes", "min.insync.replicas", "retention.ms")
VALUES = ("-1", "-2", "0", "1", "2", " 2 ", "3", "2.5", "1e1", "10", "compact", "delete, compact", "compact,delete", "")
BROKER_IDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A row of `phases.DECIDED`."""

    topic_id: str
    """Tells the rows apart: a copy has the name of the row it copies."""
    topic: str | None
    decision: str | None
    num_partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] | None = None
    owner: str | None = None
    labels: Mapping[str, str | None] | None = None
    live: bool = False
    internal: bool = False
    live_num_partitions: int | None = None
    live_replication_factor: int | None = None
    resolved_num_partitions: int | None = None
    resolved_replication_factor: int | None = None
    resolved_configs: Mapping[str, str | None] | None = None
    validated: bool = False
    phase: str | None = None
    outcome: str | None = None

    @property
    def acts(self) -> bool:
        return self.decision in ("create", "delete") and self.phase is None


@dataclass(frozen=True, kw_only=True)
class Estate:
    """A cluster, and what is known of it."""

    cluster: str
    topics: Sequence[Topic]
    racks: Mapping[int, str | None]
    usages: Sequence[Mapping[str, Any]] = ()
    groups: Sequence[Mapping[str, Any]] = ()
    last_records: Sequence[Mapping[str, Any]] = ()


def any_estate(rng: random.Random, cluster: str) -> Estate:
    names = rng.sample(NAMES, rng.randint(0, 12))
    topics = [any_topic(rng, f"{cluster} {number}", name) for number, name in enumerate(names)]
    copies = [any_copy(rng, f"{cluster} copy {topic.topic}", topic) for topic in topics if rng.random() < 0.1]
    if rng.random() < 0.2:
        copies.append(Topic(topic_id=f"{cluster} null", topic=None, decision=None, phase="manifest", outcome="refused"))
    racks = {broker: rng.choice((None, "r1", "r2", "r3", "r4")) for broker in BROKER_IDS if rng.random() < 0.8}
    moments = (None, NOW - timedelta(days=4), NOW - timedelta(days=3), NOW - timedelta(seconds=1), NOW)
    return Estate(
        cluster=cluster,
        topics=[*topics, *copies],
        racks=racks if rng.random() < 0.9 else {},
        usages=[
            {
                "topic": rng.choice((*NAMES, None)),
                "consumer": rng.choice((None, "billing", "audit")),
                "valid_until": rng.choice((*moments, NOW + timedelta(seconds=1))),
            }
            for _ in range(rng.randint(0, 4))
        ],
        groups=[
            {"topic": rng.choice(NAMES), "error": "the coordinator is not there"}
            if rng.random() < 0.3
            else {"topic": rng.choice(NAMES), "group": rng.choice("gh"), "members": 0, "committed": True}
            for _ in range(rng.randint(0, 4))
        ],
        last_records=[
            {"topic": name, "error": "the leader is not there"}
            if rng.random() < 0.2
            else {"topic": name, "end_offset": 3, "last_record_at": rng.choice(moments)}
            for name in rng.sample(NAMES, 6)
        ],
    )


def any_copy(rng: random.Random, topic_id: str, topic: Topic) -> Topic:
    """Return a skipped row about the same topic, which is live or not like the first one."""
    found = {name: getattr(topic, name) for name in Topic.__dataclass_fields__ if "live" in name or name == "internal"}
    declared = any_topic(rng, topic_id, topic.topic or "")
    return replace(declared, **found, decision=None, phase="manifest", outcome="skipped")


def any_topic(rng: random.Random, topic_id: str, name: str) -> Topic:
    kind = rng.choice(("create",) * 6 + ("delete",) * 3 + ("unchanged", "drifted", "unmanaged", "internal", "refused"))
    declared = kind not in ("unmanaged", "internal")
    live = rng.random() < {"create": 0.1, "delete": 0.9, "refused": 0.3}.get(kind, 1)

    def some(*values: Any) -> Any:
        return rng.choice((None, *values))

    shape: dict[str, Any] = {"num_partitions": some(1, 2, 5), "replication_factor": some(1, 2, 3)}
    if rng.random() < 0.25:
        each = rng.randint(1, 3)
        shape = {"assignments": {partition: rng.sample(BROKER_IDS, each) for partition in range(rng.randint(1, 3))}}
    topic = Topic(
        topic_id=topic_id,
        topic=name,
        decision=None if kind in ("internal", "refused") else kind,
        owner=rng.choice(OWNERS) if declared else None,
        labels=rng.choice((None, {}, {"tier": rng.choice((None, "", "1", "2", "shop"))}, {"Tier": "1", "stage": "x"})),
        configs=some({}, {name: rng.choice(VALUES) for name in rng.sample(CONFIGS, 2)}),
        live=live,
        internal=kind == "internal" or (live and rng.random() < 0.1),
        live_num_partitions=rng.choice((1, 2, 5, None)) if live else None,
        live_replication_factor=rng.choice((1, 2, 3)) if live else None,
        **(shape if declared else {}),
    )
    if kind == "create" and rng.random() < 0.6:
        topic = replace(
            topic,
            validated=rng.random() < 0.7,
            resolved_num_partitions=some(1, 3),
            resolved_replication_factor=some(1, 3),
            resolved_configs=some({name: rng.choice((*VALUES, None)) for name in CONFIGS}),
        )
    if kind == "refused" or rng.random() < 0.05:
        topic = replace(topic, phase=rng.choice(("manifest", "observe", "guard", "apply")), outcome="refused")
    return topic


def decisions(spark: SparkSession, estates: Iterable[Estate]) -> DataFrame:
    rows = ({"cluster": estate.cluster, **asdict(topic)} for estate in estates for topic in estate.topics)
    return decision_rows(spark, *rows)


@dataclass(frozen=True)
class Answer:
    """A rule's answer about one topic."""

    broken: bool = False
    unknown: bool = False
    waits: bool = False


def partitions(topic: Topic) -> int | None:
    if topic.assignments:
        return len(topic.assignments)
    return topic.resolved_num_partitions if topic.num_partitions is None else topic.num_partitions


def replicas(topic: Topic) -> int | None:
    if topic.assignments:
        return len(topic.assignments[0])
    return topic.resolved_replication_factor if topic.replication_factor is None else topic.replication_factor


def config_of(topic: Topic, name: str) -> str | None:
    declared = (topic.configs or {}).get(name)
    return (topic.resolved_configs or {}).get(name) if declared is None else declared


def number(text: str) -> Decimal | None:
    plain = text.strip()
    return Decimal(plain) if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?(e[0-9]+)?", plain) else None


def blank(text: str | None) -> bool:
    return text is None or not text.strip()


def owner_of(topic: Topic) -> str:
    return (topic.owner or "").strip().casefold()


def topic_name_pattern(topic: Topic, pattern: str) -> Answer:
    return Answer(re.search(pattern, topic.topic or "") is None)


def topic_name_prefix(topic: Topic, of: str = "owner", separator: str = ".") -> Answer:
    value = (topic.owner if of == "owner" else (topic.labels or {}).get(of)) or ""
    return Answer(blank(value) or not (topic.topic or "").startswith(f"{value.strip()}{separator}"))


def in_range(value: int | None, least: int, most: int | None) -> Answer:
    if value is None:
        return Answer(unknown=True)
    return Answer(value < least or (most is not None and value > most))


def num_partitions(topic: Topic, min: int = 1, max: int | None = None) -> Answer:
    return in_range(partitions(topic), min, max)


def replication_factor(topic: Topic, min: int = 1, max: int | None = None) -> Answer:
    return in_range(replicas(topic), min, max)


def configs_allowed(topic: Topic, names: Sequence[str]) -> Answer:
    return Answer(any(name not in names for name in topic.configs or {}))


def configs_required(topic: Topic, names: Sequence[str]) -> Answer:
    return Answer(any(name not in (topic.configs or {}) for name in names))


def configs_forbidden(topic: Topic, names: Sequence[str]) -> Answer:
    return Answer(any(name in names for name in topic.configs or {}))


def config_values(topic: Topic, config: str, values: Sequence[str]) -> Answer:
    value = config_of(topic, config)
    if value is None:
        return Answer(unknown=True)
    return Answer(not any(same_value(config, value, each) for each in values))


def config_range(topic: Topic, config: str, min: float | None = None, max: float | None = None) -> Answer:
    value = config_of(topic, config)
    if value is None:
        return Answer(unknown=True)
    found = number(value)
    if found is None:
        return Answer(True)
    if found < 0 and config.startswith("retention."):
        return Answer(max is not None)
    return Answer((min is not None and found < min) or (max is not None and found > max))


def min_insync_replicas(topic: Topic, spare: int = 1) -> Answer:
    value, factor = config_of(topic, "min.insync.replicas"), replicas(topic)
    if value is not None and not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        return Answer(True)
    if value is None or factor is None:
        return Answer(unknown=True)
    return Answer(int(value) > factor - spare)


def owner_required(topic: Topic, values: Sequence[str] = ()) -> Answer:
    return Answer(blank(topic.owner) or (bool(values) and owner_of(topic) not in values))


def labels_required(topic: Topic, names: Sequence[str], values: Sequence[str] = ()) -> Answer:
    found = [(topic.labels or {}).get(name) for name in names]
    return Answer(any(blank(label) or (bool(values) and label not in values) for label in found))


def internal_topic(topic: Topic) -> Answer:
    return Answer(topic.internal)


def protected_topics(topic: Topic, patterns: Sequence[str]) -> Answer:
    return Answer(any(re.search(pattern, topic.topic or "") for pattern in patterns))


OF_ONE: Mapping[str, Callable[..., Answer]] = {
    each.__name__: each
    for each in (
        topic_name_pattern,
        topic_name_prefix,
        num_partitions,
        replication_factor,
        configs_allowed,
        configs_required,
        configs_forbidden,
        config_values,
        config_range,
        min_insync_replicas,
        owner_required,
        labels_required,
        internal_topic,
        protected_topics,
    )
}


Answers = dict[str, Answer]
"""By topic id; none is an answer of no objection."""


def by_name(topics: Iterable[Topic]) -> list[Topic]:
    return sorted((topic for topic in topics if topic.topic is not None), key=lambda topic: topic.topic or "")


def name_collision(estate: Estate, is_open: Collection[str]) -> Answers:
    taken = [t for t in estate.topics if t.live or (t.decision == "create" and t.topic_id in is_open)]
    found = {}
    for topic in by_name(estate.topics):
        others = {t.topic for t in taken if t.topic is not None} - {topic.topic}
        found[topic.topic_id] = Answer((topic.topic or "").replace(".", "_") in {t.replace(".", "_") for t in others})
    return found


def distinct_racks(estate: Estate, is_open: Collection[str]) -> Answers:
    found = {}
    for topic in estate.topics:
        broken = False
        for brokers in (topic.assignments or {}).values():
            racks = [estate.racks.get(broker) for broker in brokers]
            broken |= None in racks or len(set(racks)) < len(racks)
        found[topic.topic_id] = Answer(broken)
    return found


def shared_out(
    topics: Sequence[Topic],
    is_open: Collection[str],
    limit: int,
    need: Callable[[Topic], int | None],
    used: Callable[[Topic], int | None],
) -> Answers:
    """Room for `limit` in all, handed out to creates by name until one doesn't fit."""
    lives = {topic.topic: topic for topic in sorted(topics, key=lambda each: each.decision is not None) if topic.live}
    left = limit - sum(used(topic) or 0 for topic in lives.values())
    freed = 0
    for topic in lives.values():
        if topic.live and topic.decision == "delete" and topic.topic_id in is_open:
            freed += used(topic) or 0
    found = {}
    full = False
    for topic in by_name(topics):
        if topic.decision != "create" or topic.phase is not None or topic.live:
            continue
        needed = need(topic)
        if needed is None:
            found[topic.topic_id] = Answer(unknown=True)
            continue
        counts = topic.topic_id in is_open
        if full or needed > left + freed:
            found[topic.topic_id] = Answer(True)
            full |= counts
            continue
        found[topic.topic_id] = Answer(waits=needed > left)
        if counts:
            left -= needed
    return found


def partition_budget(estate: Estate, is_open: Collection[str], max: int) -> Answers:
    return shared_out(estate.topics, is_open, max, partitions, lambda topic: topic.live_num_partitions)


def replicas_per_broker(estate: Estate, is_open: Collection[str], max: int) -> Answers:
    def need(topic: Topic) -> int | None:
        each = (partitions(topic), replicas(topic))
        return None if None in each else each[0] * each[1]  # type: ignore[operator]

    def used(topic: Topic) -> int:
        return (topic.live_num_partitions or 0) * (topic.live_replication_factor or 0)

    if not estate.racks:
        return {topic.topic_id: Answer(unknown=True) for topic in estate.topics if not topic.live}
    return shared_out(estate.topics, is_open, max * len(estate.racks), need, used)


def of_each_owner(
    topics: Sequence[Topic], validate: Callable[[Sequence[Topic]], Answers], required: bool, *, new: bool = True
) -> Answers:
    """`new`: a topic that lives already needs nothing more."""
    found: Answers = {}
    for owner in {owner_of(topic) for topic in topics if not blank(topic.owner)}:
        found |= validate([topic for topic in topics if owner_of(topic) == owner])
    ownerless = [topic for topic in topics if blank(topic.owner) and required]
    return found | {topic.topic_id: Answer(broken=True) for topic in ownerless if not (topic.live and new)}


def topics_per_owner(estate: Estate, is_open: Collection[str], max: int, require_owner: bool = False) -> Answers:
    return of_each_owner(
        estate.topics, lambda topics: shared_out(topics, is_open, max, lambda topic: 1, lambda topic: 1), require_owner
    )


def partitions_per_owner(estate: Estate, is_open: Collection[str], max: int, require_owner: bool = False) -> Answers:
    return of_each_owner(
        estate.topics,
        lambda topics: shared_out(topics, is_open, max, partitions, lambda topic: topic.live_num_partitions),
        require_owner,
    )


def in_use(estate: Estate, is_open: Collection[str]) -> Answers:
    used = {each["topic"] for each in estate.usages if each["valid_until"] is None or each["valid_until"] > NOW}
    return {topic.topic_id: Answer(None in used or topic.topic in used) for topic in by_name(estate.topics)}


def no_consumer_groups(estate: Estate, is_open: Collection[str]) -> Answers:
    found = {}
    for topic in (each for each in estate.topics if each.decision == "delete"):
        told = [each for each in estate.groups if each["topic"] == topic.topic]
        groups = [each for each in told if each.get("group")]
        found[topic.topic_id] = Answer(bool(groups), any(each.get("error") for each in told))
    return found


def no_recent_records(estate: Estate, is_open: Collection[str], days: int) -> Answers:
    found = {}
    for topic in (each for each in estate.topics if each.decision == "delete"):
        for told in estate.last_records:
            if told["topic"] == topic.topic:
                at: datetime | None = told.get("last_record_at")
                recent = at is not None and NOW - at < timedelta(days=days)
                found[topic.topic_id] = Answer(recent, "error" in told)
    return found


def capped(topics: Iterable[Topic], is_open: Collection[str], most: int) -> Answers:
    found = {}
    sent = 0
    for topic in by_name(topics):
        if topic.decision == "delete":
            found[topic.topic_id] = Answer(sent >= most)
            sent += topic.topic_id in is_open
    return found


def deletes_per_owner(estate: Estate, is_open: Collection[str], max: int, require_owner: bool = False) -> Answers:
    return of_each_owner(estate.topics, lambda topics: capped(topics, is_open, max), require_owner, new=False)


def deletes_fraction(estate: Estate, is_open: Collection[str], max: float) -> Answers:
    alive = len({topic.topic for topic in estate.topics if topic.live and not topic.internal})
    return capped(estate.topics, is_open, int(Fraction(str(max)) * alive))


TOGETHER: Mapping[str, Callable[..., Answers]] = {
    each.__name__: each
    for each in (
        name_collision,
        distinct_racks,
        partition_budget,
        replicas_per_broker,
        topics_per_owner,
        partitions_per_owner,
        in_use,
        no_consumer_groups,
        no_recent_records,
        deletes_per_owner,
        deletes_fraction,
    )
}


def test_every_built_in_policy_of_creates_and_deletes_has_a_plain_statement() -> None:
    """Those of changes are about one row each: their estates are in tests/unit/test_policies_built_in.py."""
    validated = (Action.CREATE, Action.DELETE)
    known = [name for each in (building.BUILT_IN, building.ALWAYS) for action in validated for name in each[action]]
    assert {*known} == {*OF_ONE, *TOGETHER}


@dataclass(frozen=True)
class Verdict:
    """The result for one row."""

    violations: Sequence[tuple[str, bool]] = ()
    """Policies, and whether they only warn."""
    waits: bool = False
    phase: str | None = None
    outcome: str | None = None
    error: str | None = None


def expected(estate: Estate, rules: Sequence[Policy]) -> dict[str, Verdict]:
    is_open = {topic.topic_id for topic in estate.topics if topic.acts}
    answers: dict[int, Answers] = {}

    def objections(index: int) -> dict[str, str]:
        """Error by topic id, of those that the policy is asked about."""
        rule, found = rules[index], {}
        for topic in estate.topics:
            answer = answers[index].get(topic.topic_id, Answer())
            if not asked(rule, estate, topic):
                continue
            if answer.broken:
                found[topic.topic_id] = str(rule.error)
            elif answer.unknown and (topic.validated or topic.decision == "delete"):
                found[topic.topic_id] = "UNJUDGEABLE"
        return found

    for index, rule in enumerate(rules):
        if rule.name in OF_ONE:
            plain = OF_ONE[rule.name]
            answers[index] = {topic.topic_id: plain(topic, **rule.options) for topic in estate.topics}
    for index in answers:
        if rules[index].mode == "refuse":
            is_open -= objections(index).keys()
    for index, rule in enumerate(rules):
        if rule.name in TOGETHER:
            answers[index] = TOGETHER[rule.name](estate, frozenset(is_open), **rule.options)
            if rule.mode == "refuse":
                is_open -= objections(index).keys()
    of_rules = [objections(index) for index in range(len(rules))]
    verdicts = {}
    for topic in estate.topics:
        found = [
            (rule, of_rule[topic.topic_id])
            for rule, of_rule in zip(rules, of_rules, strict=True)
            if topic.topic_id in of_rule
        ]
        errors = [error for rule, error in found if rule.mode == "refuse"]
        waits = any(
            asked(rule, estate, topic) and answers[index].get(topic.topic_id, Answer()).waits
            for index, rule in enumerate(rules)
            if rule.mode == "refuse"
        )
        verdicts[topic.topic_id] = Verdict(
            violations=[(rule.name, rule.mode == "warn") for rule, _ in found],
            waits=waits and not errors,
            phase="policy" if errors else topic.phase,
            outcome="refused" if errors else topic.outcome,
            error=errors[0] if errors else None,
        )
    return verdicts


def asked(rule: Policy, estate: Estate, topic: Topic) -> bool:
    return (
        topic.acts
        and topic.decision == rule.action
        and (not rule.clusters or estate.cluster in rule.clusters)
        and (not rule.owners or owner_of(topic) in rule.owners)
        and all((topic.labels or {}).get(name) == value for name, value in rule.labels.items())
    )


def validated(rows: DataFrame, rules: Sequence[Policy], known: Facts) -> dict[str, Verdict]:
    found = dicts(rows.transform(policies.evaluate(rules, known)))
    verdicts = {
        row["topic_id"]: Verdict(
            violations=[(each["policy"], each["warns"]) for each in row["violations"] or ()],
            waits=row["waits"],
            phase=row["phase"],
            outcome=row["outcome"],
            error=row["error"],
        )
        for row in found
    }
    assert len(verdicts) == len(found)
    return verdicts


_names = st.lists(st.sampled_from(CONFIGS), min_size=1, max_size=3, unique=True)
_patterns = st.sampled_from(["^[a-s]", r"\.", "^shop", "_", "b$", "^z?", "-"])
_least = st.integers(1, 3)
_numbers = st.one_of(st.none(), st.integers(-2, 10), st.sampled_from([0.5, 2.5]))


def _limits(most: int) -> st.SearchStrategy[dict[str, Any]]:
    # The first of them is in the first example, and should let some topics pass and others not.
    return st.fixed_dictionaries({"max": st.sampled_from([most // 3, *range(most + 1)])})


def _owner_limits(most: int) -> st.SearchStrategy[dict[str, Any]]:
    required = st.fixed_dictionaries({}, optional={"require_owner": st.booleans()})
    return st.tuples(_limits(most), required).map(lambda pair: {**pair[0], **pair[1]})


def _ranges(least: st.SearchStrategy[Any], most: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def ordered(pair: tuple[Any, Any]) -> bool:
        return any(each is not None for each in pair) and (None in pair or pair[0] <= pair[1])

    return st.tuples(least, most).filter(ordered).map(lambda pair: {"min": pair[0], "max": pair[1]})


SETTINGS: Mapping[str, st.SearchStrategy[dict[str, Any]]] = {
    "topic_name_pattern": st.fixed_dictionaries({"pattern": _patterns}),
    "topic_name_prefix": st.fixed_dictionaries(
        {}, optional={"of": st.sampled_from(["owner", "tier"]), "separator": st.sampled_from([".", "_"])}
    ),
    "num_partitions": _ranges(_least, st.one_of(st.none(), st.integers(1, 5))),
    "replication_factor": _ranges(_least, st.one_of(st.none(), st.integers(1, 3))),
    "configs_allowed": st.fixed_dictionaries({"names": _names}),
    "configs_required": st.fixed_dictionaries({"names": _names}),
    "configs_forbidden": st.fixed_dictionaries({"names": _names}),
    "config_values": st.sampled_from(CONFIGS).map(
        lambda name: {"config": name, "values": ["compact", "delete,compact"] if name == "cleanup.policy" else ["2"]}
    ),
    "config_range": st.tuples(st.sampled_from(CONFIGS[1:]), _ranges(_numbers, _numbers)).map(
        lambda pair: {"config": pair[0], **pair[1]}
    ),
    "min_insync_replicas": st.fixed_dictionaries({}, optional={"spare": st.integers(0, 2)}),
    "owner_required": st.fixed_dictionaries({}, optional={"values": st.just(["shop", "ops"])}),
    "labels_required": st.fixed_dictionaries(
        {"names": st.sampled_from([["tier"], ["tier", "stage"]])}, optional={"values": st.just(["1", "x"])}
    ),
    "distinct_racks": st.just({}),
    "partition_budget": _limits(30),
    "replicas_per_broker": _limits(15),
    "topics_per_owner": _owner_limits(4),
    "partitions_per_owner": _owner_limits(10),
    "in_use": st.just({}),
    "protected_topics": st.fixed_dictionaries({"patterns": st.lists(_patterns, min_size=1, max_size=2, unique=True)}),
    "no_consumer_groups": st.just({}),
    "no_recent_records": st.fixed_dictionaries({"days": st.sampled_from([1, 3, 4])}),
    "deletes_per_owner": _owner_limits(2),
    "deletes_fraction": st.fixed_dictionaries({"max": st.sampled_from([0, 0.1, 0.25, 0.29, 0.5, 1])}),
}


@st.composite
def rule_settings(draw: st.DrawFn) -> Settings:
    """Settings that name each built-in policy once, in any order; most only warn, so that others have a say too."""

    def spec(name: str) -> PolicySpec:
        scope = draw(st.sampled_from([{}, {}, {}, {"owners": ("shop", "ops")}, {"labels": {"tier": "1"}}]))
        clusters = draw(st.sampled_from([(), (), (), tuple(f"c{number}" for number in range(0, ESTATES, 2))]))
        mode = draw(st.sampled_from(["warn", "warn", "refuse"]))
        return PolicySpec(use=name, options=draw(SETTINGS[name]), mode=mode, clusters=clusters, where="here", **scope)

    specs = {
        str(action): tuple(spec(name) for name in draw(st.permutations(list(building.BUILT_IN[action]))))
        for action in (Action.CREATE, Action.DELETE)
    }
    return Settings(
        path=Path("drawn.toml"), tables=TablesSettings(root=""), clusters={}, policies=PolicySettings(**specs)
    )


def drawn_estates(seed: int) -> list[Estate]:
    rng = random.Random(seed)
    return [any_estate(rng, f"c{number}") for number in range(ESTATES)]


@pytest.mark.thorough
@settings(few, max_examples=4 if THOROUGH else 2)
@given(drawn=rule_settings(), seed=st.integers(0, 2**32), at_once=st.booleans())
def test_built_in_policies_agree_with_their_plain_statements(
    spark: SparkSession, drawn: Settings, seed: int, at_once: bool
) -> None:
    """P1 to P4: also if deletes are evaluated before creates, as in a run, and with any partitioning of rows."""
    estates = drawn_estates(seed)
    rules = building.from_settings(drawn)
    rows, known = decisions(spark, estates).repartition(1 + seed % 3), estate_facts(spark, estates)
    if not at_once:
        rows = rows.transform(policies.evaluate([rule for rule in rules if rule.action is Action.DELETE], known))
        left = [rule for rule in rules if rule.action is Action.CREATE]
    found = validated(rows, rules if at_once else left, known)
    for estate in estates:
        wanted = expected(estate, rules)
        told = {topic_id: found.pop(topic_id) for topic_id in wanted}
        assert told == wanted, estate
    assert not found


@pytest.mark.thorough
@settings(few, max_examples=1)
@given(drawn=rule_settings(), seed=st.integers(0, 2**32))
def test_a_verdict_does_not_depend_on_where_a_row_stands(spark: SparkSession, drawn: Settings, seed: int) -> None:
    """Nor does a word of the messages, which the plain statements don't have."""
    estates = drawn_estates(seed)
    known = estate_facts(spark, estates)
    rules = [rule for rule in building.from_settings(drawn) if rule.name in TOGETHER]
    shuffled = [replace(each, topics=random.Random(seed).sample(each.topics, len(each.topics))) for each in estates]
    random.Random(seed).shuffle(shuffled)
    answers = []
    for rows in (decisions(spark, estates), decisions(spark, shuffled).repartition(5)):
        found = rows.transform(policies.evaluate(rules, known)).select(
            "topic_id", "error_message", "violations", "waits"
        )
        answers.append(sorted(found.collect()))
    assert answers[0] == answers[1]
