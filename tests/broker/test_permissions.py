"""docs/permissions.md: each feature works with exactly the ACLs of its row, and fails without any one of them.

The features are tried as the product asks brokers, by a user who has no other ACL.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ACLOperation, ResourceType
from kafka.structs import OffsetAndMetadata
from pyspark.sql import SparkSession

from tests.broker.direct import admin_of, creates, deletes, executor_of, make, settings_for
from tests.broker.granted import ANY_GROUP, ANY_TOPIC, CLUSTER, USER, Rights
from tests.permissions_page import rows_of_page
from tests.waiting import until
from topicledger.config.settings import KafkaSettings
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, Response
from topicledger.model import Action, Outcome, Target
from topicledger.resources.acls import requests as acls
from topicledger.resources.acls.names import AclAction
from topicledger.resources.group_configs import requests as group_configs
from topicledger.resources.group_configs.kind import KIND
from topicledger.resources.group_configs.names import GroupConfigAction
from topicledger.resources.quotas import requests as quotas
from topicledger.resources.quotas.names import QuotaAction
from topicledger.resources.topics.actions.throttling import LEADER_RATE, LEADER_REPLICAS
from topicledger_testing.embedded_kafka import EmbeddedKafka

WHERE = {"on the cluster": CLUSTER, "on topics": ANY_TOPIC, "on groups": ANY_GROUP}
TOPIC = "permissions.one"
_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A row of the page: operations by column, and the requests that the feature sends."""

    needs: Mapping[str, Sequence[str]]
    works: Callable[[ClusterAdmin], bool]


def seen(admin: ClusterAdmin) -> bool:
    return any(each.topic == TOPIC and each.permitted for each in admin.list_topics())


def described(admin: ClusterAdmin) -> bool:
    return seen(admin) and all(each.error_code == 0 for each in admin.topic_configs([TOPIC]))


def ok(response: Response) -> bool:
    return {each.error_code for each in response.results.values()} == {0}


def created(admin: ClusterAdmin) -> bool:
    """A created topic is looked at: a run verifies what it did."""
    name = f"permissions.created-{next(_numbers)}"
    done = ok(admin.create_topics(creates([name], num_partitions=1, replication_factor=1), validate_only=False))
    return done and seen(admin)


def altered(admin: ClusterAdmin) -> bool:
    target = Target(resource=TOPIC, action=Action.ALTER_CONFIGS, after={"retention.ms": "1000"})
    return described(admin) and ok(admin.alter_configs([target], validate_only=True))


def grown(admin: ClusterAdmin) -> bool:
    counts = {"num_partitions": 2, "before": {"num_partitions": "1"}, "after": {"num_partitions": "2"}}
    target = Target(resource=TOPIC, action=Action.ADD_PARTITIONS, **counts)
    return seen(admin) and ok(admin.add_partitions([target], validate_only=True))


def moved(admin: ClusterAdmin) -> bool:
    """Replicas stay where they are, and the leader is the preferred one: brokers still ask for the permissions."""
    partition = (TOPIC, 0)
    codes = [answers[partition].error_code for answers, _ in (admin.reassign({partition: (1,)}),)]
    elections, _ = admin.elect_leaders([partition])
    # ELECTION_NOT_NEEDED
    return (
        seen(admin)
        and admin.list_reassignments() is not None
        and codes == [0]
        and elections[partition].error_code in (0, 84)
    )


def throttled(admin: ClusterAdmin) -> bool:
    admin.broker_configs(1, [LEADER_RATE])
    rates = admin.alter_broker_configs(1, {LEADER_RATE: None})
    lists = Target(resource=TOPIC, action=Action.ALTER_CONFIGS, after={LEADER_REPLICAS: "0:1"})
    return described(admin) and rates.error_code == 0 and ok(admin.alter_configs([lists], validate_only=True))


def hides_nothing(admin: ClusterAdmin) -> bool:
    return admin.unseen_topics() == 0


def acls_listed(admin: ClusterAdmin) -> bool:
    return isinstance(acls.describe_acls(admin), list)


def acl_added(admin: ClusterAdmin) -> bool:
    acl = acls.Acl(
        principal="User:permissions",
        permission="ALLOW",
        operation="READ",
        resource_type="TOPIC",
        pattern_type="LITERAL",
        resource_name="permissions.none",
        host="*",
    )
    return acls_listed(admin) and ok(
        acls.create_acls(admin, [Target(resource="1", action=AclAction.ACL_ADD, after=acl._asdict())])
    )


def quotas_listed(admin: ClusterAdmin) -> bool:
    return isinstance(quotas.describe_quotas(admin), dict)


def quota_altered(admin: ClusterAdmin) -> bool:
    target = Target(resource="user=permissions", action=QuotaAction.ALTER_QUOTA, after={"producer_byte_rate": "1000"})
    return quotas_listed(admin) and ok(quotas.alter_quotas(admin, [target], validate_only=True))


def groups_described(admin: ClusterAdmin) -> bool:
    found = group_configs.describe_groups(admin, ["permissions"])
    return isinstance(group_configs.list_groups(admin), list) and isinstance(found["permissions"], dict)


def group_altered(admin: ClusterAdmin) -> bool:
    target = Target(
        resource="permissions",
        action=GroupConfigAction.ALTER_GROUP_CONFIGS,
        after={"consumer.session.timeout.ms": "50000"},
    )
    return groups_described(admin) and ok(group_configs.alter_groups(admin, [target], validate_only=True))


def used(*names: str) -> Callable[[ClusterAdmin], bool]:
    """Whether these values of `usage` are known."""

    def works(admin: ClusterAdmin) -> bool:
        (found,) = admin.topic_usage([TOPIC])
        return set(names) <= set(found.values)

    return works


FEATURES: Mapping[str, Feature] = {
    "list topics": Feature(needs={"on topics": ["Describe"]}, works=seen),
    "describe configs: `drift`, `export`": Feature(
        needs={"on topics": ["Describe", "DescribeConfigs"]}, works=described
    ),
    "create": Feature(needs={"on the cluster": ["Create"], "on topics": ["Describe"]}, works=created),
    "create, without Create on the cluster": Feature(needs={"on topics": ["Create", "Describe"]}, works=created),
    "alter configs": Feature(needs={"on topics": ["AlterConfigs", "Describe"]}, works=altered),
    "add partitions": Feature(needs={"on topics": ["Alter"]}, works=grown),
    "move replicas, elect leaders": Feature(
        needs={"on the cluster": ["Alter"], "on topics": ["Describe"]}, works=moved
    ),
    "throttle moves": Feature(
        needs={"on the cluster": ["AlterConfigs"], "on topics": ["AlterConfigs", "Describe"]}, works=throttled
    ),
    'count hidden topics: policies with `needs = "full"`, `rebalance --drain`': Feature(
        needs={"on the cluster": ["Describe"], "on topics": ["Describe"]}, works=hides_nothing
    ),
    "list ACLs": Feature(needs={"on the cluster": ["Describe"]}, works=acls_listed),
    "change ACLs": Feature(needs={"on the cluster": ["Alter"]}, works=acl_added),
    "list client quotas": Feature(needs={"on the cluster": ["DescribeConfigs"]}, works=quotas_listed),
    "change client quotas": Feature(needs={"on the cluster": ["AlterConfigs"]}, works=quota_altered),
    "list group configs": Feature(
        needs={"on the cluster": ["DescribeConfigs"], "on groups": ["DescribeConfigs"]}, works=groups_described
    ),
    "change group configs": Feature(
        needs={"on the cluster": ["DescribeConfigs"], "on groups": ["AlterConfigs"]}, works=group_altered
    ),
    "`drift --usage`: offsets": Feature(needs={"on topics": ["Describe"]}, works=used("start_offset", "end_offset")),
    "`drift --usage`: sizes": Feature(
        needs={"on the cluster": ["Describe"], "on topics": ["Describe"]}, works=used("bytes")
    ),
    "`drift --usage`: groups; `prune`": Feature(
        needs={"on the cluster": ["Describe"], "on topics": ["Describe"], "on groups": ["Describe"]},
        works=used("groups"),
    ),
    "`drift --usage`: producers": Feature(needs={"on topics": ["Read"]}, works=used("producers")),
}


def operation(name: str) -> ACLOperation:
    return ACLOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()]


@pytest.fixture(scope="module")
def topic(kafka_sasl: EmbeddedKafka) -> Iterator[None]:
    """One topic, and a group that has committed an offset on it."""
    make(kafka_sasl, TOPIC)
    with closing(KafkaConsumer(**kafka_sasl.client_options(), group_id="permissions")) as consumer:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.commit({partition: OffsetAndMetadata(0, "", -1)})
    yield
    with admin_of(kafka_sasl) as admin:
        ids = {each.topic: str(each.topic_id) for each in admin.list_topics() if each.topic.startswith("permissions.")}
        admin.delete_topics(deletes(ids))


def tried(kafka: EmbeddedKafka, works: Callable[[ClusterAdmin], bool]) -> bool:
    with admin_of(kafka, USER) as admin:
        try:
            return works(admin)
        except ClusterError:
            return False


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_needs_exactly_the_permissions_of_the_page(kafka_sasl: EmbeddedKafka, topic: None, name: str) -> None:
    feature = FEATURES[name]
    needed = [(WHERE[where], operation(each)) for where, names in feature.needs.items() for each in names]
    rights = Rights(kafka_sasl)
    try:
        for resource, each in needed:
            rights.allow(each, resource)
        until(lambda: tried(kafka_sasl, feature.works), seconds=30)
        for left_out in needed:
            rights.take_all()
            for resource, each in needed:
                if (resource, each) != left_out:
                    rights.allow(each, resource)
            until(lambda: not tried(kafka_sasl, feature.works), seconds=30)
    finally:
        rights.take_all()


def test_deletes_need_delete_alone(kafka_sasl: EmbeddedKafka) -> None:
    """A topic can be deleted only once, so each try has its own."""
    rights = Rights(kafka_sasl)

    def deleted() -> bool:
        ids = make(kafka_sasl, f"permissions.deleted-{next(_numbers)}")

        def works(admin: ClusterAdmin) -> bool:
            return set(ids) <= {each.topic for each in admin.list_topics()} and ok(admin.delete_topics(deletes(ids)))

        return tried(kafka_sasl, works)

    try:
        assert not deleted()
        rights.allow(ACLOperation.DELETE, ANY_TOPIC)
        until(deleted, seconds=30)
    finally:
        rights.take_all()


def test_a_group_that_may_not_be_described_ends_no_other_group(spark: SparkSession, kafka_sasl: EmbeddedKafka) -> None:
    """It is refused right before the request; the other group of its batch gets its configs."""
    rights, shown, hidden = Rights(kafka_sasl), "permissions.shown", "permissions.hidden"
    configs = {"consumer.session.timeout.ms": "46000"}

    def alter(group: str, **values: Mapping[str, str]) -> Target:
        return Target(resource=group, action=GroupConfigAction.ALTER_GROUP_CONFIGS, **values)

    targets = [alter(shown, after=configs), alter(hidden, after=configs)]
    try:
        rights.allow(ACLOperation.DESCRIBE_CONFIGS, CLUSTER)
        for each in (ACLOperation.DESCRIBE_CONFIGS, ACLOperation.ALTER_CONFIGS):
            rights.allow(each, (ResourceType.GROUP, shown))
        with admin_of(kafka_sasl) as admin, executor_of(kafka_sasl, user=USER) as executor:
            until(lambda: [row.outcome for row in executor.validate(targets[:1])] == [Outcome.OK], seconds=30)
            found = {row.resource: (row.outcome, row.error) for row in executor.apply(targets)}
            assert found == {shown: (Outcome.OK, None), hidden: (Outcome.REFUSED, "NOT_PERMITTED")}
            assert ok(group_configs.alter_groups(admin, targets[1:], validate_only=False))
            until(lambda: {shown, hidden} <= set(group_configs.list_groups(admin)), seconds=30)
            cluster, ids = settings_for("main", kafka_sasl, USER), {"main": kafka_sasl.cluster_id}
            listed = KIND.observed.observe(spark, [cluster], KafkaSettings(), ids)
            removed = [alter(shown, before=configs), alter(hidden, before=configs)]
            assert ok(group_configs.alter_groups(admin, removed, validate_only=False))
        known = {row["group"]: dict(row["configs"]) for row in listed.rows.collect() if row["group"] in (shown, hidden)}
        assert (list(listed.known), known) == (["main"], {shown: configs})
        assert listed.undescribed is not None
        unknown = {row["group"]: (row["configs"], row["error"]) for row in listed.undescribed.collect()}
        assert unknown[hidden] == (None, "NOT_PERMITTED")
        assert listed.observed.count() == listed.rows.count() + len(unknown)
    finally:
        rights.take_all()


def test_the_page_has_these_features_and_no_others() -> None:
    expected = {name: {where: list(names) for where, names in each.needs.items()} for name, each in FEATURES.items()}
    assert rows_of_page() == {**expected, "delete": {"on topics": ["Delete"]}}
