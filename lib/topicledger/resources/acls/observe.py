"""The ACLs of live clusters, and this client's principal there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from topicledger.config.settings import ClusterSettings, KafkaSettings
from topicledger.kafka import ClusterAdmin
from topicledger.observe.listed import Columns, Listed, list_each
from topicledger.resources.acls import requests
from topicledger.resources.acls.requests import ALLOW_EVERYONE
from topicledger.schemas import ACL_KEY, OBSERVED_ACLS


def observe_acls(
    spark: SparkSession, clusters: Sequence[ClusterSettings], kafka: KafkaSettings, ids: Mapping[str, str]
) -> Listed:
    """List the ACLs of `clusters`. `ids`: Kafka's cluster ids by name."""
    return list_each(spark, clusters, kafka, ids, OBSERVED_ACLS, _describe, allows_everyone)


def allows_everyone(admin: ClusterAdmin) -> bool | None:
    """Whether any broker has set `allow.everyone.if.no.acl.found`, whose value it hides; None if unknown."""
    return requests.authorizer_settings(admin)[ALLOW_EVERYONE]


def _describe(admin: ClusterAdmin) -> tuple[Columns, int]:
    acls = sorted(set(requests.describe_acls(admin)))
    return {name: [getattr(each, name) for each in acls] for name in ACL_KEY}, len(acls)
