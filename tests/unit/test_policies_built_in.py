"""Each built-in policy: what is fine, what is broken and how it says so, the limit, and null.

Those of an action are evaluated in one Spark job, each estate on a separate cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from tests.unit.frames import NOW, decision_rows, dicts, estate_facts, frame, policy_facts
from topicledger import policies
from topicledger.config.settings import ChangeSettings, PolicySettings, PolicySpec, Settings, TablesSettings
from topicledger.model import Action, Refusal, ReplicaAction
from topicledger.naming import ActionName
from topicledger.policies import Policy, built_in
from topicledger.policies.contract import Evaluated
from topicledger.resources import building
from topicledger.resources.acls.names import AclAction
from topicledger.resources.building import check_built_in
from topicledger.resources.quotas.names import QuotaAction

EXPECTED = StructType(
    [
        *(StructField(name, StringType()) for name in ("topic", "reason", "error")),
        StructField("waits", BooleanType(), False),
    ]
)
NULLS = {
    ("a.create", "create", False): [
        "configs_required",
        "labels_required",
        "owner_required",
        "topic_name_prefix",
    ],
    ("a.create.validated", "create", True): [
        "config_range",
        "config_values",
        "configs_required",
        "labels_required",
        "min_insync_replicas",
        "num_partitions",
        "owner_required",
        "partition_budget",
        "replicas_per_broker",
        "replication_factor",
        "topic_name_pattern",
        "topic_name_prefix",
    ],
    ("a.create.somehow", "create", None): [
        "configs_required",
        "labels_required",
        "owner_required",
        "topic_name_pattern",
        "topic_name_prefix",
    ],
    ("a.delete", "delete", None): ["deletes_fraction", "owner_required"],
    ("a.topic", "unchanged", None): [],
    ("a.stranger", None, None): [],
}
"""Topics of which nothing else is known (topic, decision, validated), and the policies that they break."""

ENDED = {"phase": "guard", "outcome": "refused", "error": "MAX_DELETES_EXCEEDED"}
REFUSED = {"labels": {"refused": "elsewhere"}}
"""Of topics that another policy refuses."""
UNKNOWN = " is left to the broker, which does not return it: declare it, or grant DescribeConfigs"

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Estate:
    """Topics of a cluster, and what one policy says of them."""

    policy: str
    action: Evaluated
    settings: Mapping[str, Any] = field(default_factory=dict)
    cluster: str
    title: str
    topics: Sequence[Row]
    """Columns of `phases.DECIDED`, and `says`: the policy's reason, null where it has none."""
    racks: Mapping[int, str | None] = field(default_factory=dict)
    usages: Sequence[Row] = ()
    groups: Sequence[Row] = ()
    last_records: Sequence[Row] = ()


def create(topic: str, says: str | None = None, **columns: Any) -> Row:
    return {"topic": topic, "says": says, "decision": "create", **columns}


def delete(topic: str, says: str | None = None, **columns: Any) -> Row:
    return {"topic": topic, "says": says, "decision": "delete", **columns}


def live(topic: str, decision: str | None = "unmanaged", **columns: Any) -> Row:
    return {"topic": topic, "says": None, "decision": decision, "live": True, **columns}


def grows(topic: str, old: int, new: int, says: str | None = None, **columns: Any) -> Row:
    counts = {"before": {"num_partitions": str(old)}, "after": {"num_partitions": str(new)}}
    numbers = {"live_num_partitions": old, "num_partitions": new}
    return {"topic": topic, "says": says, "decision": "add_partitions", "live": True, **numbers, **counts, **columns}


def alters(
    topic: str, before: Mapping[str, str], after: Mapping[str, str], says: str | None = None, **columns: Any
) -> Row:
    changed = {"before": before, "after": after}
    return {"topic": topic, "says": says, "decision": "alter_configs", "live": True, **changed, **columns}


def moves(topic: str, size: int | None, says: str | None = None) -> Row:
    after = {"assignments": "0:1,2"} | ({} if size is None else {"bytes": str(size)})
    return alters(topic, {"assignments": "0:1"}, after, says, decision="reassign")


def replicas(topic: str, before: str, after: str, **columns: Any) -> Row:
    return alters(topic, {"assignments": before}, {"assignments": after}, decision="reassign", **columns)


def of_one(policy: str, title: str, *topics: Row, action: Action = Action.CREATE, **options: Any) -> Estate:
    """An estate for a rule about one topic at a time; its cluster is called as it is."""
    return Estate(policy=policy, action=action, settings=options, cluster=title, title=title, topics=topics)


def creates_one_by_one() -> Iterator[Estate]:
    pattern = r"^[a-z]+\.[a-z]+$"
    yield of_one(
        "topic_name_pattern",
        "names match a pattern from end to end where it is anchored",
        create("shop.orders"),
        create("a.b"),
        create("orders", f"the name does not match {pattern}"),
        create("shop.orders.v1", f"the name does not match {pattern}"),
        pattern=pattern,
    )
    yield of_one(
        "topic_name_pattern",
        "names match a pattern anywhere where it is not anchored",
        create("a.tmp.b"),
        create("a.TMP.b", "the name does not match tmp"),
        pattern="tmp",
    )
    yield of_one(
        "topic_name_prefix",
        "names begin with their owner",
        create("shop.orders", owner="shop"),
        create("shop.", owner="shop"),
        create("shop", "the name must begin with shop., its owner", owner="shop"),
        create("shopping.a", "the name must begin with shop., its owner", owner="shop"),
        create("shop.a", "the name must begin with pay., its owner", owner="pay"),
        create("shop.b", "the name must begin with the owner and '.', and there is no owner"),
        create(".a", "the name must begin with the owner and '.', and there is no owner", owner=""),
    )
    yield of_one(
        "topic_name_prefix",
        "names begin with a label",
        create("web_a", labels={"team": "web"}),
        create("web.a", "the name must begin with web_, its label team", labels={"team": "web"}),
        create("a", "the name must begin with the label team and '_', and there is no label team"),
        create(
            "b", "the name must begin with the label team and '_', and there is no label team", labels={"team": None}
        ),
        of="team",
        separator="_",
    )
    yield of_one(
        "num_partitions",
        "the number of partitions has limits, declared or not",
        create("least", num_partitions=2),
        create("most", num_partitions=4),
        create("few", "num_partitions is 1; allowed is 2 to 4", num_partitions=1),
        create("many", "num_partitions is 5; allowed is 2 to 4", num_partitions=5),
        create("assigned", assignments={0: [1], 1: [2]}),
        create("assigned one", "num_partitions is 1; allowed is 2 to 4", assignments={0: [1]}),
        create("unknown yet"),
        create("resolved", resolved_num_partitions=4, validated=True),
        create("default", "num_partitions is 6, the broker's default; allowed is 2 to 4", resolved_num_partitions=6),
        create("declared", num_partitions=4, resolved_num_partitions=6),
        create("not told", f"num_partitions{UNKNOWN}", validated=True, error="UNJUDGEABLE"),
        live("other", live_num_partitions=9),
        min=2,
        max=4,
    )
    yield of_one(
        "num_partitions",
        "without a maximum any number is allowed that is large enough",
        create("two", "num_partitions is 2; allowed is 3 and more", num_partitions=2),
        create("three", num_partitions=3),
        create("most", num_partitions=2**31 - 1),
        min=3,
    )
    yield of_one(
        "replication_factor",
        "the replication factor has limits, declared or not",
        create("three", replication_factor=3),
        create("two", "replication_factor is 2; allowed is 3 to 3", replication_factor=2),
        create("four", "replication_factor is 4; allowed is 3 to 3", replication_factor=4),
        create("assigned", assignments={0: [1, 2, 3]}),
        create("assigned one", "replication_factor is 1; allowed is 3 to 3", assignments={0: [1], 1: [2]}),
        create("unknown yet"),
        create(
            "default", "replication_factor is 1, the broker's default; allowed is 3 to 3", resolved_replication_factor=1
        ),
        create("not told", f"replication_factor{UNKNOWN}", validated=True, error="UNJUDGEABLE"),
        min=3,
        max=3,
    )
    yield of_one(
        "configs_allowed",
        "other configs than those allowed are not set",
        create("none", configs={}),
        create("null"),
        create("both", configs={"a": "1", "b": "2"}),
        create("others", "sets c, x; allowed are only a, b", configs={"x": "1", "a": "1", "c": "1"}),
        create("defaults", resolved_configs={"x": "1"}),
        create(
            "many",
            "sets " + ", ".join(f"c{number}" for number in range(10, 30)) + " and 2 more; allowed are only a, b",
            configs={f"c{number}": "1" for number in range(10, 32)},
        ),
        names=["b", "a"],
    )
    yield of_one(
        "configs_required",
        "configs that are required are declared, not left to the broker",
        create("both", configs={"a": "1", "b": "2", "c": "3"}),
        create("one", "does not set b; declare it in configs", configs={"a": "1"}),
        create("none", "does not set a, b; declare it in configs", configs={}),
        create("null", "does not set a, b; declare it in configs", resolved_configs={"a": "1", "b": "2"}),
        names=["b", "a"],
    )
    yield of_one(
        "configs_forbidden",
        "configs that are the broker's to set are not set",
        create("fine", configs={"c": "1"}),
        create("null", resolved_configs={"a": "1"}),
        create("one", "sets a, which is the broker's to set; leave it out", configs={"a": "1", "c": "1"}),
        create("both", "sets a, b, which is the broker's to set; leave it out", configs={"b": "1", "a": "1"}),
        names=["b", "a"],
    )
    allowed = "allowed is 'compact', 'compact,delete'"
    yield of_one(
        "config_values",
        "a config has one of the allowed values, declared or not, and a list has them in any order",
        create("one", configs={"cleanup.policy": "compact"}),
        create("list", configs={"cleanup.policy": "delete, compact"}),
        create("other", f"cleanup.policy is delete; {allowed}", configs={"cleanup.policy": "delete"}),
        create("empty", f"cleanup.policy is ; {allowed}", configs={"cleanup.policy": ""}),
        create(
            "default",
            f"cleanup.policy is delete, the broker's default; {allowed}",
            resolved_configs={"cleanup.policy": "delete"},
        ),
        create("declared", configs={"cleanup.policy": "compact"}, resolved_configs={"cleanup.policy": "delete"}),
        create("unknown yet"),
        create("not told", f"cleanup.policy{UNKNOWN}", validated=True, error="UNJUDGEABLE", configs={"a": "1"}),
        create(
            "sensitive",
            f"cleanup.policy{UNKNOWN}",
            validated=True,
            error="UNJUDGEABLE",
            resolved_configs={"cleanup.policy": None},
        ),
        config="cleanup.policy",
        values=["compact", "compact,delete"],
    )
    allowed = "allowed is 'a,b', 'TRUE', '1000'"
    yield of_one(
        "config_values",
        "a value may be written as Kafka reads it, and a comma makes a list of a list only",
        create("same", configs={"new.in.kafka": " a,b "}),
        create("boolean", configs={"new.in.kafka": "true"}),
        create("number", configs={"new.in.kafka": "+01000"}),
        create("reordered", f"new.in.kafka is b,a; {allowed}", configs={"new.in.kafka": "b,a"}),
        config="new.in.kafka",
        values=["a,b", "TRUE", "1000"],
    )
    allowed = "allowed is 1000 to 86400000"
    yield of_one(
        "config_range",
        "a time has limits, and without limit is above any maximum",
        create("least", configs={"retention.ms": "1000"}),
        create("most", configs={"retention.ms": " 86400000 "}),
        create("short", f"retention.ms is 999; {allowed}", configs={"retention.ms": "999"}),
        create("long", f"retention.ms is 86400001; {allowed}", configs={"retention.ms": "86400001"}),
        create("endless", f"retention.ms is -1, without limit; {allowed}", configs={"retention.ms": "-1"}),
        create("word", f"retention.ms is a week, not a number; {allowed}", configs={"retention.ms": "a week"}),
        create("empty", f"retention.ms is , not a number; {allowed}", configs={"retention.ms": ""}),
        create(
            "default",
            f"retention.ms is 604800000, the broker's default; {allowed}",
            resolved_configs={"retention.ms": "604800000"},
        ),
        create(
            "endless by default",
            f"retention.ms is -1, without limit, the broker's default; {allowed}",
            resolved_configs={"retention.ms": "-1"},
        ),
        create("unknown yet", configs={"other": "1"}),
        create("not told", f"retention.ms{UNKNOWN}", validated=True, error="UNJUDGEABLE"),
        config="retention.ms",
        min="1s",
        max=86_400_000,
    )
    yield of_one(
        "config_values",
        "values may have units",
        create("a week", configs={"retention.ms": "604800000"}),
        create("a day", "retention.ms is 86400000; allowed is '604800000'", configs={"retention.ms": "86400000"}),
        config="retention.ms",
        values=["7d"],
    )
    yield of_one(
        "config_range",
        "without a maximum, without limit is allowed",
        create("endless", configs={"retention.bytes": "-1"}),
        create("small", "retention.bytes is 9; allowed is 10 to any", configs={"retention.bytes": "9"}),
        create("largest", configs={"retention.bytes": str(2**63 - 1)}),
        create("endless, too", configs={"retention.bytes": "-2"}),
        config="retention.bytes",
        min=10,
    )
    most = "without limit; allowed is any to 100"
    yield of_one(
        "config_range",
        "every negative size is without limit",
        create("endless", f"retention.bytes is -2, {most}", configs={"retention.bytes": "-2"}),
        config="retention.bytes",
        max=100,
    )
    level = "compression.zstd.level"
    yield of_one(
        "config_range",
        "a negative level of compression is a number like others",
        create("fast", f"{level} is -5; allowed is 1 to any", configs={level: "-5"}),
        create("good", configs={level: "3"}),
        config=level,
        min=1,
    )
    yield of_one(
        "config_range",
        "Kafka's default of a level of compression is below any maximum",
        create("by default", resolved_configs={"compression.gzip.level": "-1"}),
        create("slow", "compression.gzip.level is 9; allowed is any to 6", configs={"compression.gzip.level": "9"}),
        config="compression.gzip.level",
        max=6,
    )
    yield of_one(
        "config_range",
        "fractions are compared exactly, and -1 is a number like others where it has no other meaning",
        create("most", configs={"ratio": "0.5"}),
        create("more", "ratio is 0.501; allowed is 0.1 to 0.5", configs={"ratio": "0.501"}),
        create("least", configs={"ratio": "1e-1"}),
        create("as a double of Java", configs={"ratio": "\x010.5d "}),
        create("minus one", "ratio is -1; allowed is 0.1 to 0.5", configs={"ratio": "-1"}),
        create("huge", f"ratio is {'9' * 40}, not a number; allowed is 0.1 to 0.5", configs={"ratio": "9" * 40}),
        config="ratio",
        min=0.1,
        max=0.5,
    )
    isr = "min.insync.replicas"
    yield of_one(
        "min_insync_replicas",
        "a replica may be lost without the topic refusing writes",
        create("most", configs={isr: "2"}, replication_factor=3),
        create("assigned", configs={isr: "1"}, assignments={0: [1, 2]}),
        create(
            "all of them",
            f"{isr} is 3 with replication factor 3; 1 below the factor is allowed: 2",
            configs={isr: "3"},
            replication_factor=3,
        ),
        create(
            "defaults",
            f"{isr} is 2, the broker's default with replication factor 2; 1 below the factor is allowed: 1",
            resolved_configs={isr: "2"},
            resolved_replication_factor=2,
        ),
        create(
            "one replica",
            f"{isr} is 1 with replication factor 1; give it a replication factor of 2 or more",
            configs={isr: "1"},
            replication_factor=1,
        ),
        create("word", f"{isr} is many, not a number", configs={isr: "many"}, replication_factor=3),
        create("fraction", f"{isr} is 1.5, not a number", configs={isr: "1.5"}),
        create("unknown yet", configs={isr: "2"}),
        create("null", replication_factor=3),
        create("not told", f"{isr}{UNKNOWN}", replication_factor=3, validated=True, error="UNJUDGEABLE"),
        create(
            "factor not told", f"replication_factor{UNKNOWN}", configs={isr: "2"}, validated=True, error="UNJUDGEABLE"
        ),
    )
    yield of_one(
        "owner_required",
        "topics have an owner",
        create("fine", owner="shop"),
        create("null", "has no owner; declare the team or service it belongs to"),
        create("empty", "has no owner; declare the team or service it belongs to", owner=""),
        create("blank", "has no owner; declare the team or service it belongs to", owner="  "),
    )
    yield of_one(
        "owner_required",
        "topics have a known owner",
        create("fine", owner="shop"),
        create("in another form", owner=" SHOP\n"),
        create("stranger", "owner is Shops; one of Pay, shop", owner="Shops"),
        create("null", "has no owner; one of Pay, shop"),
        values=["shop", "Pay"],
    )
    yield of_one(
        "labels_required",
        "topics have labels",
        create("both", labels={"tier": "1", "stage": "x", "more": ""}),
        create("one", "label stage is missing", labels={"tier": "1"}),
        create("blank", "label tier is missing, stage is missing", labels={"tier": " \t", "stage": None}),
        create("null", "label tier is missing, stage is missing"),
        names=["tier", "stage"],
    )
    yield of_one(
        "labels_required",
        "labels have an allowed value",
        create("fine", labels={"tier": "2"}),
        create("other", "label tier is 3; allowed is 1, 2", labels={"tier": "3"}),
        create("null", "label tier is missing; allowed is 1, 2", labels={}),
        names=["tier"],
        values=["2", "1"],
    )


def racks() -> Iterator[Estate]:
    def estate(title: str, given: Mapping[int, str | None], *topics: Row) -> Estate:
        return Estate(
            policy="distinct_racks", action=Action.CREATE, cluster=title, title=title, topics=topics, racks=given
        )

    share = "; give each replica its own rack"
    homeless = "; give them one"
    yield estate(
        "replicas of a partition are in racks of their own",
        {1: "r1", 2: "r2", 3: "r1", 4: None},
        create("apart", assignments={0: [1, 2], 1: [2, 3]}),
        create("together", f"replicas share a rack in partitions 0{share}", assignments={0: [1, 3], 1: [1, 2]}),
        create("both", f"replicas share a rack in partitions 0, 1{share}", assignments={0: [1, 3], 1: [3, 1]}),
        create("alone", assignments={0: [1], 1: [1]}),
        create("three", f"replicas share a rack in partitions 0{share}", assignments={0: [1, 2, 3]}),
        create("homeless", f"no rack is known of brokers 4{homeless}", assignments={0: [1, 4]}),
        create("alone and homeless", f"no rack is known of brokers 4{homeless}", assignments={0: [4]}),
        create(
            "strangers", f"no rack is known of brokers 4, 5{homeless}", assignments={0: [1, 5], 1: [4, 2], 2: [5, 1]}
        ),
        create("left to the broker", num_partitions=3, replication_factor=3),
    )
    yield estate(
        "of a cluster without brokers no rack is known",
        {},
        create("assigned", f"no rack is known of brokers 1, 2{homeless}", assignments={0: [1, 2]}),
        create("null"),
    )


def collisions() -> Iterator[Estate]:
    def says(others: str) -> str:
        return (
            f"in metric names '.' and '_' are the same, so it collides with {others}; "
            "choose a name that differs otherwise"
        )

    yield Estate(
        policy="name_collision",
        action=Action.CREATE,
        cluster="alike",
        title="creates collide with each other and with what lives",
        topics=[
            create("a.b", says("a_b"), error="NAME_COLLISION"),
            create("a_b", says("a.b"), error="NAME_COLLISION"),
            create("c.d", says("c_d"), error="NAME_COLLISION"),
            delete("c_d"),
            create("e.f", says("e_f"), error="NAME_COLLISION", **REFUSED),
            create("e_f"),
            create("alone"),
            create("lives.already", live=True),
            live("g.h"),
            live("g_h"),
            create("may.be", says("may_be"), error="NAME_COLLISION"),
            {"topic": "may_be", "says": None, "live": None},
        ],
    )


def budget(policy: str, cluster: str, title: str, *topics: Row, most: int = 10, brokers: int = 0) -> Estate:
    return Estate(
        policy=policy,
        action=Action.CREATE,
        settings={"max": most},
        cluster=cluster,
        title=title,
        topics=topics,
        racks=dict.fromkeys(range(brokers)),
    )


def says_of(of: str, what: str, limit: int) -> Any:
    """How a budget says that it is used up."""

    def says(exist: int, freed: int, before: int, asks: int, left: int) -> str:
        return (
            f"{of} may have {limit} {what}: {exist} exist, {freed} are freed by deletes, "
            f"{before} are taken by creates before it by name, it needs {asks}; left are {left}"
        )

    return says


def partition_budgets() -> Iterator[Estate]:
    def estate(cluster: str, title: str, *topics: Row) -> Estate:
        return budget("partition_budget", cluster, title, *topics)

    def says(cluster: str, *numbers: int) -> str:
        return str(says_of(f"cluster {cluster}", "partitions", 10)(*numbers))

    yield estate(
        "pb1",
        "all that lives counts, and creates get what is left up to the last one",
        live("drifted", "drifted", live_num_partitions=2, num_partitions=7),
        live("unmanaged", live_num_partitions=1),
        live("internal", None, internal=True, live_num_partitions=1),
        live("ended", "unchanged", live_num_partitions=1, phase="observe", outcome="failed"),
        live("unknown", live_num_partitions=None),
        create("a", num_partitions=3),
        create("b", assignments={0: [1], 1: [2]}),
        create("c", says("pb1", 5, 0, 5, 1, 0), num_partitions=1),
    )
    yield estate(
        "pb2",
        "of two that compete the first by name gets the room, and none after it is let past",
        live("exists", live_num_partitions=6),
        create("b", says("pb2", 6, 0, 3, 3, 1), num_partitions=3),
        create("a", num_partitions=3),
        create("c", says("pb2", 6, 0, 6, 1, 0), num_partitions=1),
    )
    yield estate(
        "pb3",
        "creates that fit only through deletes wait, and only deletes that will be sent free anything",
        live("exists", live_num_partitions=3),
        delete("x1", live_num_partitions=4),
        delete("x2", live_num_partitions=1, phase="guard", outcome="refused", error="MAX_DELETES_EXCEEDED"),
        create("a", num_partitions=2),
        create("b", num_partitions=3, waits=True),
        create("c", num_partitions=1, waits=True),
        create("d", says("pb3", 8, 4, 6, 1, 0), num_partitions=1),
    )
    yield estate(
        "pb4",
        "topics refused elsewhere use nothing and are told all the same, and deletes refused elsewhere free nothing",
        delete("x1", live_num_partitions=4, **REFUSED),
        create("a", num_partitions=5, **REFUSED),
        create("b", num_partitions=5),
        create("c", says("pb4", 4, 0, 5, 6, 1), num_partitions=6, **REFUSED),
        create("d", num_partitions=1),
        create("e", says("pb4", 4, 0, 6, 1, 0), num_partitions=1),
        create("gone", num_partitions=5, phase="validate", outcome="failed", error="INVALID_CONFIG"),
    )
    yield estate(
        "pb5",
        "creates that live already count once",
        create("a", num_partitions=8, live=True, live_num_partitions=8),
        create("b", num_partitions=2),
        create("c", says("pb5", 8, 0, 2, 1, 0), num_partitions=1),
    )
    yield estate(
        "pb6",
        "counts left to the broker use nothing until validate tells, and are refused where it does not",
        create("a"),
        create("b", num_partitions=10),
        create("c"),
        create("d", says("pb6", 0, 0, 10, 1, 0), num_partitions=1),
    )
    yield estate(
        "pb7",
        "counts that the broker told are counted, and those it did not tell are not",
        create("a", resolved_num_partitions=4, validated=True),
        create("b", f"num_partitions{UNKNOWN}", validated=True, error="UNJUDGEABLE"),
        create("c", num_partitions=6, resolved_num_partitions=6, validated=True),
        create("d", says("pb7", 0, 0, 10, 1, 0), resolved_num_partitions=1, validated=True),
    )
    yield estate(
        "pb8",
        "a cluster that is above its budget already gets nothing, not even the room that its deletes make",
        live("exists", live_num_partitions=11),
        delete("x1", live_num_partitions=1),
        create("a", says("pb8", 12, 1, 0, 1, 0), num_partitions=1),
    )


def replica_budgets() -> Iterator[Estate]:
    def estate(cluster: str, title: str, *topics: Row, brokers: int) -> Estate:
        return budget("replicas_per_broker", cluster, title, *topics, most=4, brokers=brokers)

    def says(cluster: str, *numbers: int) -> str:
        of = f"cluster {cluster} with 3 brokers, 4 on average,"
        return str(says_of(of, "replicas", 12)(*numbers))

    yield estate(
        "rb1",
        "replicas are shared out as the mean of the brokers that are up",
        live("exists", live_num_partitions=2, live_replication_factor=2),
        create("a", num_partitions=1, replication_factor=3),
        create("b", assignments={0: [1, 2], 1: [2, 3]}),
        create("c", resolved_num_partitions=1, resolved_replication_factor=1, validated=True),
        create("d", says("rb1", 4, 0, 8, 1, 0), num_partitions=1, replication_factor=1),
        create("e", f"num_partitions{UNKNOWN}", replication_factor=3, validated=True, error="UNJUDGEABLE"),
        create("f", f"replication_factor{UNKNOWN}", num_partitions=3, validated=True, error="UNJUDGEABLE"),
        create("g", num_partitions=3),
        brokers=3,
    )
    yield estate(
        "rb2",
        "of two that compete for replicas the first by name gets them, and those that a delete frees are waited for",
        live("exists", live_num_partitions=1, live_replication_factor=3),
        delete("x1", live_num_partitions=2, live_replication_factor=2),
        create("a", num_partitions=2, replication_factor=2),
        create("b", num_partitions=2, replication_factor=2, waits=True),
        create("c", says("rb2", 7, 4, 8, 4, 1), num_partitions=2, replication_factor=2),
        create("d", says("rb2", 7, 4, 12, 1, 0), num_partitions=1, replication_factor=1),
        brokers=3,
    )
    yield estate(
        "rb3",
        "without a known broker nothing is refused before validate, and everything after it",
        create("planned", num_partitions=100, replication_factor=3),
        create(
            "validated",
            "no broker of the cluster is known",
            num_partitions=1,
            replication_factor=1,
            validated=True,
            error="UNJUDGEABLE",
        ),
        brokers=0,
    )


OWNERLESS = "has no owner, and {} are limited by owner; declare the team or service"


def with_owners() -> Iterator[Estate]:
    for policy, what in (("topics_per_owner", "topics"), ("partitions_per_owner", "partitions")):
        one = {"num_partitions": 1}
        yield Estate(
            policy=policy,
            action=Action.CREATE,
            settings={"max": 2, "require_owner": True},
            cluster=f"{policy} alike",
            title="an owner in another case or with blanks around it is the same owner, and nobody may be asked for",
            topics=[
                live("lives", "unchanged", owner="Shop", live_num_partitions=1),
                create("a", owner=" shop", **one),
                create(
                    "b",
                    f"owner SHOP\t on {policy} alike may have 2 {what}: 1 exist, 0 are freed by deletes, "
                    "1 are taken by creates before it by name, it needs 1; left are 0",
                    owner="SHOP\t",
                    **one,
                ),
                create("c", OWNERLESS.format(what), owner=" \t", **one),
                create("d", OWNERLESS.format(what), **one),
                live("nobody's", "unchanged"),
            ],
        )
    yield Estate(
        policy="deletes_per_owner",
        action=Action.DELETE,
        settings={"max": 1, "require_owner": True},
        cluster="deletes alike",
        title="an owner in another case or with blanks around it is the same owner, and nobody may be asked for",
        topics=[
            delete("a", owner="Shop"),
            delete(
                "b",
                "one run may delete 1 topics of owner shop  on deletes alike and 1 come before it by name",
                owner="shop ",
            ),
            delete("c", OWNERLESS.format("deletes")),
            live("nobody's", "unchanged"),
        ],
    )


def owner_budgets() -> Iterator[Estate]:
    def topics_say(owner: str, *numbers: int) -> str:
        return str(says_of(f"owner {owner} on to1", "topics", 2)(*numbers))

    shop, pay = {"owner": "shop"}, {"owner": "pay"}
    yield budget(
        "topics_per_owner",
        "to1",
        "owners have so many topics each, the first by name, and what lives counts",
        live("lives", "drifted", **shop),
        create("a", **shop),
        create("b", topics_say("shop", 1, 0, 1, 1, 0), **shop),
        create("c", topics_say("shop", 1, 0, 2, 1, 0), **shop),
        create("d", **pay),
        create("e", **pay),
        create("f", topics_say("pay", 0, 0, 2, 1, 0), **pay),
        *(create(f"nobody's {number}") for number in range(4)),
        most=2,
    )
    yield budget(
        "topics_per_owner",
        "to2",
        "an owner's topics on other clusters are none of this one's, and a delete lets a create take its place",
        delete("x1", **shop),
        delete("x2", **shop),
        create("a", waits=True, **shop),
        create("b", waits=True, **shop),
        live("other", **pay),
        create("c", **pay),
        most=2,
    )

    def partitions_say(owner: str, *numbers: int) -> str:
        return str(says_of(f"owner {owner} on po1", "partitions", 5)(*numbers))

    yield budget(
        "partitions_per_owner",
        "po1",
        "owners have so many partitions each",
        live("lives", "unchanged", live_num_partitions=2, **shop),
        create("a", num_partitions=2, **shop),
        create("b", partitions_say("shop", 2, 0, 2, 2, 1), num_partitions=2, **shop),
        create("c", partitions_say("shop", 2, 0, 4, 1, 0), num_partitions=1, **shop),
        create("d", num_partitions=5, **pay),
        create("e", f"num_partitions{UNKNOWN}", validated=True, error="UNJUDGEABLE", **pay),
        create("f", **pay),
        create("g", num_partitions=100),
        create("h", validated=True),
        most=5,
    )
    yield budget(
        "partitions_per_owner",
        "po2",
        "an owner's deletes make room for its own creates only",
        live("lives", "unchanged", live_num_partitions=4, **pay),
        delete("x1", live_num_partitions=5, **shop),
        create("a", num_partitions=5, waits=True, **shop),
        create("b", num_partitions=1, **pay),
        create(
            "c",
            "owner pay on po2 may have 5 partitions: 4 exist, 0 are freed by deletes, "
            "1 are taken by creates before it by name, it needs 1; left are 0",
            num_partitions=1,
            **pay,
        ),
        most=5,
    )


def deletes() -> Iterator[Estate]:
    kept = "; remove it from the manifests, or the pattern"
    yield of_one(
        "internal_topic",
        "topics that Kafka flags as internal are kept",
        delete("fine"),
        delete("__mine"),
        delete("kept", "kept is internal to Kafka and is never deleted; remove it from the manifests", internal=True),
        live("unchanged", "unchanged", internal=True),
        delete("null", internal=None),
        action=Action.DELETE,
    )
    yield of_one(
        "protected_topics",
        "topics of a protected name are kept",
        delete("fine"),
        delete("keep.a", f"is protected by ^keep{kept}"),
        delete("not.keep"),
        delete("keep_schemas", f"is protected by ^keep, _schemas${kept}"),
        delete("_schemas", f"is protected by _schemas${kept}"),
        live("keep.b"),
        action=Action.DELETE,
        patterns=["^keep", "_schemas$"],
    )
    yield of_one(
        "owner_required",
        "topics are deleted by somebody",
        delete("fine", owner="shop"),
        delete("null", "has no owner; declare the team or service it belongs to"),
        live("other"),
        action=Action.DELETE,
    )
    stray = "(by a row for cluster ordres, which the settings don't have)"
    unread = 'may be in use: a row of usages can\'t be read and may mean it: cluster unread, topic " a", consumer '
    yield Estate(
        policy="in_use",
        action=Action.DELETE,
        cluster="uses",
        title="topics that somebody uses are kept until the last usage has expired",
        topics=[
            delete("fine"),
            delete("for.good", "is in use by billing; delete it when their usages have ended"),
            delete("soon.over", "is in use by billing; delete it when their usages have ended"),
            delete("over"),
            delete("just.over"),
            delete("one.is.over", "is in use by audit; delete it when their usages have ended"),
            delete("two", "is in use by audit, billing; delete it when their usages have ended"),
            delete("unnamed", "is in use by somebody unnamed; delete it when their usages have ended"),
            delete("elsewhere"),
            delete("gone", f"is in use by billing {stray}; delete it when their usages have ended"),
            live("used"),
        ],
        usages=[
            {"topic": "for.good", "consumer": "billing"},
            {"topic": "soon.over", "consumer": "billing", "valid_until": NOW + timedelta(microseconds=1)},
            {"topic": "over", "consumer": "billing", "valid_until": NOW - timedelta(days=400)},
            {"topic": "just.over", "consumer": "billing", "valid_until": NOW},
            {"topic": "one.is.over", "consumer": "billing", "valid_until": NOW},
            {"topic": "one.is.over", "consumer": "audit"},
            {"topic": "two", "consumer": "billing"},
            {"topic": "two", "consumer": "audit", "note": "until spring"},
            {"topic": "two", "consumer": "audit"},
            {"topic": "unnamed", "consumer": None},
            {"topic": "elsewhere", "consumer": "billing", "cluster": "another"},
            {"topic": "gone", "consumer": "billing", "cluster": "ordres"},
            {"topic": None, "consumer": "billing", "valid_until": NOW},
            {"topic": "__consumer_offsets", "consumer": "billing"},
            {"topic": "used", "consumer": "billing"},
        ],
    )
    yield Estate(
        policy="in_use",
        action=Action.DELETE,
        cluster="unread",
        title="a usage that can't be read may mean each topic of its cluster",
        topics=[
            delete("named", "is in use by billing; delete it when their usages have ended"),
            delete("gone", f"is in use by billing {stray}; delete it when their usages have ended"),
            delete("other", f"{unread}somebody unnamed; correct that row"),
            live("unmanaged"),
        ],
        usages=[
            {"topic": " a", "consumer": None},
            {"topic": "not legal", "consumer": "billing"},
            {"topic": "named", "consumer": "billing"},
        ],
    )
    gone = "; delete it when they are gone"
    yield Estate(
        policy="no_consumer_groups",
        action=Action.DELETE,
        cluster="groups",
        title="topics that consumer groups live on are kept",
        topics=[
            delete("fine"),
            delete("read", f"is used by consumer groups: a (no members, but committed offsets), b (2 members){gone}"),
            delete("unknown", "no answer from the coordinator", error="UNJUDGEABLE"),
            delete("partly", f"is used by consumer groups: a (1 member){gone}"),
            delete("refused", **REFUSED),
            live("used"),
        ],
        groups=[
            {"topic": "read", "group": "b", "members": 2, "committed": False},
            {"topic": "read", "group": "a", "members": 0, "committed": True},
            {"topic": "unknown", "error": "no answer from the coordinator"},
            {"topic": "partly", "group": "a", "members": 1, "committed": True},
            {"topic": "partly", "error": "no answer from the coordinator"},
            {"topic": "used", "group": "a", "members": 1, "committed": True},
        ],
    )
    quiet = "; delete it after 3 quiet days"
    yield Estate(
        policy="no_recent_records",
        action=Action.DELETE,
        settings={"days": 3},
        cluster="records",
        title="topics with recent records are kept",
        topics=[
            delete("fine"),
            delete("recent", f"its last record is from 2026-11-21T11:00:00Z{quiet}"),
            delete("at.the.limit"),
            delete("just.within", f"its last record is from 2026-11-18T12:00:01Z{quiet}"),
            delete("to.come", f"its last record is from 2027-01-01T12:00:00Z{quiet}"),
            delete("empty"),
            delete("unknown", "no answer from the leader", error="UNJUDGEABLE"),
            live("used"),
        ],
        last_records=[
            {"topic": "recent", "end_offset": 7, "last_record_at": NOW - timedelta(hours=1)},
            {"topic": "at.the.limit", "end_offset": 7, "last_record_at": NOW - timedelta(days=3)},
            {"topic": "just.within", "end_offset": 7, "last_record_at": NOW - timedelta(days=3, seconds=-1)},
            {"topic": "to.come", "end_offset": 7, "last_record_at": NOW + timedelta(days=41)},
            {"topic": "empty", "end_offset": 0},
            {"topic": "unknown", "error": "no answer from the leader"},
            {"topic": "used", "end_offset": 7, "last_record_at": NOW},
        ],
    )

    def over(limit: int, of: str, before: int) -> str:
        return f"one run may delete {limit} topics of {of} and {before} come before it by name"

    shop, pay = {"owner": "shop"}, {"owner": "pay"}
    yield Estate(
        policy="deletes_per_owner",
        action=Action.DELETE,
        settings={"max": 1},
        cluster="do1",
        title="an owner loses so many topics at once, the first by name, and those refused elsewhere don't count",
        topics=[
            delete("c", over(1, "owner shop on do1", 1), **shop),
            delete("b", **shop),
            delete("a", **shop, **REFUSED),
            delete("d", over(1, "owner shop on do1", 2), **shop),
            delete("e", over(1, "owner shop on do1", 3), **shop, **REFUSED),
            delete("f", **pay),
            delete("f.ended", **pay, **ENDED),
            delete("g"),
            delete("h"),
            create("a.new", **shop),
        ],
    )
    yield Estate(
        policy="deletes_per_owner",
        action=Action.DELETE,
        settings={"max": 1},
        cluster="do2",
        title="what an owner loses on another cluster does not count",
        topics=[delete("b", **shop)],
    )
    yield Estate(
        policy="deletes_fraction",
        action=Action.DELETE,
        settings={"max": 0.29},
        cluster="df1",
        title="a cluster loses a part of its topics at once, the first by name",
        # 0.29 of 7 is 2.03; internal topics are none of the 7, and a create is none yet.
        topics=[
            delete("a"),
            delete("b", **REFUSED),
            delete("c"),
            delete("d", over(2, "cluster df1, 0.29 of its topics,", 2)),
            delete("e", over(2, "cluster df1, 0.29 of its topics,", 3)),
            live("f"),
            live("g", "unchanged", phase="apply", outcome="ok"),
            *(live(f"internal {number}", None, internal=True) for number in range(5)),
            create("h"),
        ],
    )
    yield Estate(
        policy="deletes_fraction",
        action=Action.DELETE,
        settings={"max": 0.29},
        cluster="df2",
        title="a fraction of a topic is none",
        topics=[delete("a", over(0, "cluster df2, 0.29 of its topics,", 0)), live("b"), live("c")],
    )


def of_changes() -> Iterator[Estate]:
    growth, altered = Action.ADD_PARTITIONS, Action.ALTER_CONFIGS
    yield of_one(
        "fewer_partitions",
        "partitions can not be removed",
        grows("more", 3, 4),
        grows(
            "fewer",
            3,
            2,
            "it has 3 partitions, 2 are declared, and Kafka can't remove partitions: declare 3 or more",
            error="FEWER_PARTITIONS",
        ),
        action=growth,
    )
    yield of_one(
        "partitions_growth",
        "a topic grows by a factor at most",
        grows("twice", 3, 6),
        grows("fraction", 3, 7),
        grows("more", 3, 8, "would have 8 partitions, and has 3; 2.5 times as many are allowed: 7"),
        create("new", num_partitions=100),
        action=growth,
        max_factor=2.5,
    )
    yield of_one(
        "partitions_growth",
        "fractions are exact: in binary, 45 * 1.4 is 62.999",
        grows("most", 45, 63),
        grows("more", 45, 64, "would have 64 partitions, and has 45; 1.4 times as many are allowed: 63"),
        action=growth,
        max_factor=1.4,
    )
    yield of_one(
        "keyed_topics_keep_partitions",
        "topics with keys keep their partitions",
        grows("unlabelled", 1, 2),
        grows("other", 1, 2, labels={"keys": "none"}),
        grows(
            "keyed",
            1,
            2,
            "label keys is hashed: with other partitions the order of a key's records is lost; create a new topic "
            "instead",
            labels={"keys": "hashed"},
        ),
        alters("configs", {}, {"flush.ms": "1"}, labels={"keys": "hashed"}),
        action=growth,
        label="keys",
        values=["hashed", "murmur2"],
    )
    must_stay = ", which must stay as it is on topics that exist"
    yield of_one(
        "config_change_forbidden",
        "some configs stay as they are",
        alters("other", {"c": "1"}, {"d": "1"}),
        alters("set", {}, {"a": "1", "d": "1"}, "changes a" + must_stay),
        alters("reset", {"b": "1"}, {}, "changes b" + must_stay),
        create("new", configs={"a": "1"}),
        action=altered,
        names=["a", "b"],
    )


def of_moves() -> Iterator[Estate]:
    def says(size: int, so_far: int) -> str:
        most = "; at most 100 are allowed in a run"
        return f"copies {size} bytes, and with it the moves on the cluster copy {so_far}{most}"

    grant = "it isn't known how large its replicas are: grant this principal Describe on the cluster"
    yield of_one(
        "max_bytes_moved",
        "moves copy so many bytes, and none is let past the first over it",
        moves("a", 60),
        {**moves("ended", 60), **ENDED},
        moves("b", 50, says(50, 110)),
        moves("c", 0, says(0, 110)),
        {**moves("unknown", None, grant), "error": "UNJUDGEABLE"},
        live("d", live_num_partitions=9),
        # A config of a topic that is altered may have any name.
        alters("a config", {}, {"bytes": "lots"}),
        alters("a large config", {}, {"bytes": "9000000000000"}),
        action=ReplicaAction.REASSIGN,
        max_bytes=100,
    )

    needed = {"min.insync.replicas": "2"}
    lower = "declare a factor of min.insync.replicas or more, or lower min.insync.replicas in an earlier run"
    unknown = (
        "the replication factor is lowered, and min.insync.replicas of the topic is unknown: declare "
        "min.insync.replicas, or grant this principal DescribeConfigs"
    )
    yield of_one(
        "enough_replicas",
        "no move goes below min.insync.replicas",
        replicas("as many", "0:1,2,3", "0:3,2,1", resolved_configs={"min.insync.replicas": "5"}),
        replicas("more", "0:1", "0:1,2", resolved_configs={"min.insync.replicas": "3"}),
        replicas("enough", "0:1,2,3", "0:1,2", resolved_configs=needed),
        {
            **replicas("too few", "0:1,2,3;1:1,2,3", "0:1,2;1:1", resolved_configs=needed),
            "says": f"replication factor 1 is below the topic's min.insync.replicas, 2: {lower}",
            "error": "BELOW_MIN_INSYNC",
        },
        # A declared value may never reach the cluster: it was refused, or configs aren't altered.
        {
            **replicas("declared only", "0:1,2,3", "0:1,2", configs=needed),
            "says": unknown,
            "error": "UNJUDGEABLE",
        },
        {**replicas("unknown", "0:1,2", "0:1"), "says": unknown, "error": "UNJUDGEABLE"},
        action=ReplicaAction.REASSIGN,
    )


ESTATES = [
    *of_changes(),
    *of_moves(),
    *creates_one_by_one(),
    *racks(),
    *collisions(),
    *partition_budgets(),
    *replica_budgets(),
    *owner_budgets(),
    *deletes(),
    *with_owners(),
]


def rules() -> list[Policy]:
    """Return a policy of each name and settings, which evaluates the clusters of its estates; row rules come last.

    The first of each name also evaluates the cluster `nulls`.
    """
    made: dict[tuple[Evaluated, str, str], Policy] = {}
    for estate in ESTATES:
        key = estate.action, estate.policy, str(estate.settings)
        factory, error = built_in.ALWAYS.get(estate.action, {}).get(estate.policy, (None, Refusal.POLICY_VIOLATION))
        before = made.get(key)
        first = not any(known[:2] == key[:2] for known in made)
        made[key] = Policy(
            name=estate.policy,
            action=estate.action,
            rule=(factory or built_in.BUILT_IN[estate.action][estate.policy])(**estate.settings),
            error=error,
            clusters=(*(before.clusters if before else ("nulls",) if first else ()), estate.cluster),
        )
    elsewhere = [
        Policy(name="elsewhere", action=action, rule=F.lit("refused elsewhere"), labels=REFUSED["labels"])
        for action in Action
    ]
    return [*reversed(made.values()), *elsewhere]


@pytest.fixture(scope="module")
def evaluated(spark: SparkSession) -> DataFrame:
    """cluster, topic, and what the estate's policy came to: reason, error and waits; policies: all that it breaks."""
    names = {*decision_rows(spark).columns} - {"error", "waits"}
    nothing = dict.fromkeys(names - {"cluster", "topic", "decision", "validated"})
    told = F.get(F.filter("violations", lambda each: each["policy"] != "elsewhere"), 0)["message"]
    own = F.when((F.col("phase") == "policy") & told.isNotNull(), F.col("error"))
    every, found = rules(), []
    # One query for all would take Spark several times as long to plan.
    for action in {each.action for each in every}:
        rows = [
            {name: value for name, value in {"cluster": estate.cluster, **topic}.items() if name in names}
            for estate in ESTATES
            if estate.action is action
            for topic in estate.topics
        ]
        for topic, decision, validated in NULLS:
            if decision == action.value or decision not in {each.action.value for each in every}:
                rows.append(
                    {**nothing, "cluster": "nulls", "topic": topic, "decision": decision, "validated": validated}
                )
        judged = decision_rows(spark, *rows).transform(
            policies.evaluate(
                [each for each in every if each.action is action or each.name == "elsewhere"],
                estate_facts(spark, ESTATES),
            )
        )
        found.append(
            judged.select(
                "cluster",
                "topic",
                told.alias("reason"),
                own.alias("error"),
                F.coalesce("waits", F.lit(False)).alias("waits"),
                F.array_sort("violations.policy").alias("policies"),
            ).localCheckpoint()
        )
    return reduce(DataFrame.unionByName, found)


@pytest.mark.parametrize(
    ("new", "live", "fewest", "declared", "refused"),
    [
        ("2", 3, 3, 3, None),
        ("2", 3, 2, 3, "min.insync.replicas is 2 with replication factor 2; 1 below the factor is allowed: 1"),
        ("3", 6, 6, 3, "min.insync.replicas is 3 with replication factor 3; 1 below the factor is allowed: 2"),
        ("3", 6, 6, None, None),
    ],
    ids=["even", "uneven", "being moved", "being moved, undeclared"],
)
def test_fewest_replicas_of_a_topic_count(
    spark: SparkSession, new: str, live: int, fewest: int, declared: int | None, refused: str | None
) -> None:
    row = alters("t", {"min.insync.replicas": "1"}, {"min.insync.replicas": new}, configs={"min.insync.replicas": new})
    row |= {"live_replication_factor": live, "live_min_replicas": fewest, "replication_factor": declared}
    rule = Policy(
        name="min_insync_replicas",
        action=Action.ALTER_CONFIGS,
        rule=built_in.BUILT_IN[Action.CREATE]["min_insync_replicas"](),
    )
    rows = decision_rows(spark, {name: value for name, value in row.items() if name != "says"})
    (found,) = dicts(rows.transform(policies.evaluate([rule], policy_facts(spark))))
    assert found["error_message"] == refused


def test_every_built_in_policy_has_an_estate() -> None:
    known = {
        (action, name)
        for each in (built_in.BUILT_IN, built_in.ALWAYS)
        for action in (*Action, ReplicaAction.REASSIGN)
        for name in each.get(action, ())
    }
    assert {(estate.action, estate.policy) for estate in ESTATES} == known
    assert len({estate.cluster for estate in ESTATES}) == len(ESTATES)


SELECTABLE = [estate for estate in ESTATES if estate.policy in built_in.BUILT_IN[estate.action]]


@pytest.mark.parametrize("estate", SELECTABLE, ids=lambda estate: f"{estate.policy}: {estate.title}")
def test_right_settings_are_right_before_there_is_a_session(monkeypatch: pytest.MonkeyPatch, estate: Estate) -> None:
    _check_without_session(monkeypatch, estate.action, estate.policy, estate.settings)


@pytest.mark.parametrize(
    ("action", "policy", "settings"),
    [
        (AclAction.ACL_ADD, "acl_forbidden", {"principals": ["^User:a$"], "operations": ["ALL"]}),
        (AclAction.ACL_ADD, "acl_owner", {}),
        (QuotaAction.ALTER_QUOTA, "quota_range", {"limit": "producer_byte_rate", "max": 5, "users": ["^a"]}),
    ],
)
def test_right_settings_of_rights_and_quotas_are_too(
    monkeypatch: pytest.MonkeyPatch, action: ActionName, policy: str, settings: Mapping[str, object]
) -> None:
    _check_without_session(monkeypatch, action, policy, settings)


def _check_without_session(
    monkeypatch: pytest.MonkeyPatch, action: Evaluated, policy: str, options: Mapping[str, object]
) -> None:
    problems = list[str]()
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(AssertionError):
        F.col("a")
    check_built_in(PolicySpec(use=policy, options=options), built_in.BUILT_IN[action][policy], problems)
    assert problems == []


@pytest.mark.parametrize("estate", ESTATES, ids=lambda estate: f"{estate.policy}: {estate.title}")
def test_a_policy_says_what_is_broken_and_what_would_be_allowed(
    spark: SparkSession, evaluated: DataFrame, estate: Estate
) -> None:
    """P1, P2, P3, C10, C11, C16, C20, D9"""
    expected = [
        {
            "topic": topic["topic"],
            "reason": topic["says"],
            "error": topic.get("error", "POLICY_VIOLATION") if topic["says"] else None,
            "waits": topic.get("waits", False),
        }
        for topic in estate.topics
    ]
    assert_df_equality(
        evaluated.where(F.col("cluster") == estate.cluster).drop("cluster", "policies"),
        frame(spark, EXPECTED, expected),
        ignore_row_order=True,
    )


def test_each_policy_evaluates_topics_of_which_nothing_is_known(evaluated: DataFrame) -> None:
    rows = evaluated.where("cluster = 'nulls'").collect()
    found = {(row["topic"], *(row["policies"] or [])) for row in rows}
    assert found == {(topic, *names) for (topic, _, _), names in NULLS.items()}


def test_moves_that_add_replicas_take_what_creates_leave(spark: SparkSession) -> None:
    """They wait for no deletes; a topic that is altered, too, has two rows and is counted once."""
    twice = {"live_num_partitions": 2, "live_replication_factor": 1}
    rows = [
        delete("a", live=True, live_num_partitions=1, live_replication_factor=1),
        replicas("b", "0:1;1:2", "0:1,2;1:2,1", **twice),
        alters("b", {}, {"c": "1"}, **twice),
        replicas("c", "0:1;1:2", "0:2;1:1", **twice),
        replicas("d", "0:1;1:2", "0:1,2;1:2,1", **twice),
        replicas("e", "0:1,2", "0:1", live_num_partitions=1, live_replication_factor=2),
        create("z", num_partitions=2, replication_factor=1),
    ]
    rule = built_in.BUILT_IN[Action.CREATE]["replicas_per_broker"](max=7)
    policy = Policy(name="replicas_per_broker", action=ReplicaAction.REASSIGN, rule=rule)
    known = policy_facts(spark, racks={1: "a", 2: "b"})
    decided = decision_rows(spark, *({name: each[name] for name in each if name != "says"} for each in rows))
    refused = decided.transform(policies.evaluate([policy], known)).where("error is not null")
    assert {row["topic"]: row["error_message"] for row in refused.collect()} == {
        "d": "cluster main with 2 brokers, 7 on average, may have 14 replicas: 9 exist, 0 are freed by deletes, 4 "
        "are taken by creates, and by moves before it by name, it needs 2; left are 1"
    }


def test_policies_about_the_replication_factor_evaluate_moves(spark: SparkSession) -> None:
    """A typo that lowers the factor is refused; a move that keeps a factor from before the policy isn't."""
    spec = PolicySpec(use="replication_factor", options={"min": 2}, where="policies.create[1]")
    settings = Settings(
        path=Path("my.toml"),
        tables=TablesSettings(root=""),
        clusters={},
        changes={"main": ChangeSettings(replicas="on")},
        policies=PolicySettings(create=(spec,)),
    )
    made = [each for each in building.from_settings(settings) if each.name == spec.use]
    assert {each.action for each in made} == {Action.CREATE, ReplicaAction.REASSIGN}
    rows = [
        replicas("lower", "0:1,2,3;1:1,2,3", "0:1,2;1:1"),
        replicas("low before", "0:1", "0:2"),
        replicas("enough", "0:1,2,3", "0:1,2"),
    ]
    decided = decision_rows(spark, *({name: each[name] for name in each if name != "says"} for each in rows))
    refused = decided.transform(policies.evaluate(made, policy_facts(spark))).where("error is not null")
    assert {row["topic"]: (row["error"], row["error_message"]) for row in refused.collect()} == {
        "lower": ("POLICY_VIOLATION", "replication_factor: replication_factor is 1; allowed is 2 and more")
    }
