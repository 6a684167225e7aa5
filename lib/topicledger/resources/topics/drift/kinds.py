"""The checks for drift, one for each kind: `config.severities` has the names and severities of the kinds.

A check is a Column over the declared and live columns of one topic: an array of `FINDING`, empty or null if nothing is
wrong. A declared or live column is null if the manifest leaves the value to the broker, or if this principal may not
read it: neither is drift.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from topicledger import kafka
from topicledger.config.settings import AuditSettings
from topicledger.config.severities import DriftKind
from topicledger.drift.findings import ARRAY, finding, ids, one
from topicledger.kafka.config_values import is_set_on_topic, same_value_column
from topicledger.manifests.owners import is_one_of, owner_key
from topicledger.manifests.row_rules import ABSENT, PRESENT
from topicledger.model import AUTHORIZATION_FAILED, SET_ON_TOPIC
from topicledger.resources.topics.drift import placement


def checks(settings: AuditSettings) -> Sequence[Column]:
    """Return every check, on the columns of `side_by_side`."""
    refused = F.coalesce("refused", F.lit(False))
    present = (F.col("state") == PRESENT) & ~refused
    absent = (F.col("state") == ABSENT) & ~refused
    listed = F.col("permitted").isNotNull()
    lives = F.coalesce("permitted", F.lit(False))
    of_topic = [
        F.when(present & ~listed, one(DriftKind.MISSING, "the cluster has no such topic", declared=F.lit(PRESENT))),
        F.when(
            absent & lives, one(DriftKind.SHOULD_BE_ABSENT, "declared absent, but it exists", declared=F.lit(ABSENT))
        ),
        F.when(
            F.col("state").isNull() & ~refused & lives & ~F.col("internal"),
            F.array(finding(DriftKind.UNMANAGED, _unnamed())),
        ),
        F.when(
            (present | absent) & listed & ~lives,
            F.array(finding(DriftKind.NOT_PERMITTED, _undescribed())),
        ),
        F.when(present, _owner(settings)),
    ]
    of_live = [_partitions(), _replication_factor(), _assignment(), _preferred_leader(), _recreated()]
    configs = [_configs_not_permitted(), _config_differs(), _config_undeclared(), _broker_default_changed()]
    places = placement.checks(settings)
    return [*of_topic, *(F.when(present & lives, check) for check in (*of_live, *configs, *places))]


def _unnamed() -> Column:
    ours = F.col("known_id") == F.col("topic_id")
    removed = F.concat(F.lit("no manifest names it any more; run "), F.col("known_run"), F.lit(" created it"))
    return F.when(ours, removed).otherwise(F.lit("no manifest names it"))


def _undescribed() -> Column:
    error = F.concat(F.lit("brokers answer "), F.col("unknown"), F.lit(" about the topic, "))
    may_not = F.lit("this principal may not describe the topic, ")
    advice = F.when(F.col("unknown").isNull(), F.lit("grant it Describe")).otherwise(F.lit("look for it in their logs"))
    return F.concat(F.coalesce(error, may_not), F.lit("so whether it exists is unknown; "), advice)


def _partitions() -> Column:
    declared = F.coalesce(F.col("num_partitions"), F.size("assignments"))
    live = F.col("live_num_partitions")
    fewer = one(DriftKind.PARTITIONS_FEWER, "it has fewer partitions than declared", declared=declared, live=live)
    more = one(
        DriftKind.PARTITIONS_MORE,
        "it has more partitions than declared, and Kafka can't remove partitions",
        declared=declared,
        live=live,
    )
    # The size of a missing map is null or -1, by the session's settings.
    return F.when((declared > 0) & (live < declared), fewer).when((declared > 0) & (live > declared), more)


def _replication_factor() -> Column:
    """Partitions may differ in their number of replicas while they are moved, or if a move was never finished."""
    sizes = F.array_sort(F.array_distinct(F.transform(F.map_values("live_assignments"), F.size)))
    live = F.array_join(sizes.cast("array<string>"), ", ")
    declared = F.col("replication_factor")
    differs = declared.isNotNull() & (sizes != F.array(declared))
    return F.when(
        differs,
        one(
            DriftKind.REPLICATION_FACTOR,
            "its partitions have a different number of replicas than declared",
            declared,
            live,
        ),
    )


def _assignment() -> Column:
    """Find partitions whose replicas or their order differ; partitions that one side lacks are not compared."""
    both = F.filter(
        F.map_keys("assignments"),
        lambda partition: F.coalesce(
            F.col("assignments")[partition] != F.col("live_assignments")[partition], F.lit(False)
        ),
    )
    return F.transform(
        both,
        lambda partition: finding(
            DriftKind.ASSIGNMENT,
            F.lit("its replicas, the preferred leader first, differ from the declared ones"),
            what=partition,
            declared=ids(F.col("assignments")[partition]),
            live=ids(F.col("live_assignments")[partition]),
        ),
    )


def _preferred_leader() -> Column:
    return F.transform(
        F.map_keys("other_leaders"),
        lambda partition: finding(
            DriftKind.PREFERRED_LEADER,
            F.when(F.col("other_leaders")[partition] < 0, F.lit("the partition has no leader")).otherwise(
                F.lit("the partition's leader is not its preferred replica")
            ),
            what=partition,
            declared=F.element_at(F.col("live_assignments")[partition], 1),
            live=F.when(F.col("other_leaders")[partition] >= 0, F.col("other_leaders")[partition]),
        ),
    )


def _recreated() -> Column:
    known, live = F.col("known_id"), F.col("topic_id")
    message = "another client deleted and recreated the topic that we created"
    return F.when(
        known.isNotNull() & live.isNotNull() & (known != live), one(DriftKind.RECREATED, message, known, live)
    )


def _owner(settings: AuditSettings) -> Column:
    owner = F.col("owner")
    found: Column = F.lit(None)
    if settings.owners:
        message = "audit.owners in the settings has no such owner"
        found = F.when(~is_one_of(owner, settings.owners), one(DriftKind.OWNER_MISSING, message, declared=owner))
    if settings.require_owner:
        found = F.when(owner_key(owner).isNull(), one(DriftKind.OWNER_MISSING, "it has no owner")).otherwise(found)
    return found.cast(ARRAY)


def _configs_not_permitted() -> Column:
    code = F.col("config_error_code")
    answered = F.concat(
        F.lit("brokers only answer "),
        F.col("config_error"),
        F.lit(" about the topic's configs: they were not compared"),
    )
    return F.when(
        code.isin(*AUTHORIZATION_FAILED),
        one(DriftKind.NOT_PERMITTED, "this principal may not describe the topic's configs; grant it DescribeConfigs"),
    ).when(
        # A topic that was deleted meanwhile is the next audit's.
        ~code.isin(kafka.NONE, kafka.UNKNOWN_TOPIC_OR_PARTITION),
        F.array(finding(DriftKind.NOT_PERMITTED, answered)),
    )


def _config_differs() -> Column:
    """Find configs whose declared and effective values differ, whatever the source of the effective one.

    Also those that must be pinned to the topic and aren't. A sensitive value is unknown and is not compared.
    """
    live = F.col("live_by_name")

    def as_live(name: Column, value: Column) -> Column:
        return F.coalesce(same_value_column(name, value, live[name]["value"]), F.lit(False))

    def differs(name: Column, value: Column) -> Column:
        config = live[name]
        set_here = F.coalesce(config["config_source"] == SET_ON_TOPIC, F.lit(False)) | ~F.col("pinned")
        return ~F.coalesce(config["is_sensitive"], F.lit(False)) & ~(as_live(name, value) & set_here)

    return F.when(
        F.col("live_configs").isNotNull(),
        F.transform(
            F.map_entries(F.map_filter("configs", differs)),
            lambda entry: finding(
                DriftKind.CONFIG_DIFFERS,
                F.when(live[entry["key"]].isNull(), F.lit("the broker doesn't know this config"))
                .when(
                    F.coalesce(live[entry["key"]]["read_only"], F.lit(False)),
                    F.lit("the broker marks it read-only, so that no run alters it: declare its value, or remove it"),
                )
                .when(
                    live[entry["key"]]["config_source"] == SET_ON_TOPIC, F.lit("a different value is set on the topic")
                )
                .when(
                    as_live(entry["key"], entry["value"]),
                    F.lit("the topic has this value only by the broker's default, and changes.pin asks to set it"),
                )
                .otherwise(F.lit("not set on the topic, and the broker's default is different")),
                what=entry["key"],
                declared=entry["value"],
                live=live[entry["key"]]["value"],
            ),
        ),
    )


def _config_undeclared() -> Column:
    """Find configs that are set on the topic but not declared.

    Not sensitive ones, whose values can't be read, and not read-only ones, which no client can reset.
    """
    strangers = F.filter(
        "live_configs",
        lambda each: is_set_on_topic(each) & ~F.coalesce(each["read_only"], F.lit(False)) & ~_declares(each["name"]),
    )
    return F.transform(
        strangers,
        lambda each: finding(
            DriftKind.CONFIG_UNDECLARED,
            F.lit("set on the topic, but not declared"),
            what=each["name"],
            live=each["value"],
        ),
    )


def _broker_default_changed() -> Column:
    """Find undeclared configs whose default differs from the one at the previous audit."""
    earlier = F.col("earlier_defaults")
    changed = F.filter(
        "live_configs",
        lambda each: (
            (each["config_source"] != SET_ON_TOPIC)
            & ~each["is_sensitive"]
            & F.coalesce(F.array_contains(F.map_keys(earlier), each["name"]), F.lit(False))
            & ~earlier[each["name"]].eqNullSafe(each["value"])
            & ~_declares(each["name"])
        ),
    )
    return F.transform(
        changed,
        lambda each: finding(
            DriftKind.BROKER_DEFAULT_CHANGED,
            F.concat(
                F.lit("the broker's default was "),
                F.coalesce(earlier[each["name"]], F.lit("no value")),
                F.lit(" at the previous audit"),
            ),
            what=each["name"],
            live=each["value"],
        ),
    )


def _declares(name: Column) -> Column:
    return F.coalesce(F.array_contains(F.map_keys("configs"), name), F.lit(False))
