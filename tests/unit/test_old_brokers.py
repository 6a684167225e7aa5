"""Brokers that lack a request: that is an answer, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from topicledger.apply.executor import Executor
from topicledger.kafka import ClusterAdmin, groups, offsets
from topicledger.kafka.connection import ApiMissing
from topicledger.kafka.sending import ClusterLimits
from topicledger.model import Action, Outcome, PhaseResult, Refusal, ReplicaAction, Target, TopicInfo
from topicledger.resources.acls import requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclAction


class Manager:
    """kafka-python's manager, of a broker of a version; it sends what that broker knows to nobody."""

    def __init__(self, *version: int) -> None:
        self.broker_version = version
        self.broker_version_data = BrokerVersionData(version)
        self.broker_version_data.api_versions = {**self.broker_version_data.api_versions}
        self.cluster = SimpleNamespace(broker_metadata=lambda _: object())
        self.asked: list[str] = []

    def lacks(self, request: Any) -> None:
        """Don't know a request, as some services that speak Kafka's protocol don't."""
        del self.broker_version_data.api_versions[request.API_KEY]

    def send(self, request: Any, _: int | None = None) -> None:
        self.asked.append(type(request).__name__)
        self.broker_version_data.api_version(request)
        raise AssertionError(f"{request} was sent")

    def run(self, send: Callable[..., object], *arguments: object) -> object:
        return send(*arguments)


class OldAdmin(ClusterAdmin):
    """A connection to such a broker."""

    def __init__(self, *version: int) -> None:
        self.name = "main"
        self._secrets: Any = ()
        self._bootstrap_servers = "h:1"
        self.operation_timeout, self._operation_timeout_ms = 1.0, 1_000
        self._admin: Any = SimpleNamespace(_controller_id=1, config={"security_protocol": "PLAINTEXT"})
        self._principal = "User:me"
        self._manager: Any = Manager(*version)

    def connect_to_controller(self) -> str:
        return "kafka-main"


@pytest.fixture(autouse=True)
def no_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a broker has no ACLs, and lets this principal change them."""
    monkeypatch.setattr(requests, "describe_acls", lambda *_: [])
    monkeypatch.setattr(requests, "may_alter_acls", lambda _: True)
    monkeypatch.setattr(requests, "authorizer_settings", lambda _: {requests.ALLOW_EVERYONE: False})


def executor(admin: OldAdmin, no_sleep: Callable[[float], None]) -> Executor:
    return Executor(
        cluster="main",
        cluster_id="kafka-main",
        admin=admin,
        limits=ClusterLimits(max_batch_records=100),
        sleep=no_sleep,
    )


def acl(pattern_type: str, resource_type: str = "TOPIC") -> dict[str, str]:
    return Acl("User:a", "ALLOW", "READ", resource_type, pattern_type, "app", "*")._asdict()


def brief(ended: PhaseResult) -> tuple[Outcome, str | None, int]:
    return ended.outcome, ended.error, ended.attempt


ELECTION = Target(resource="a", action=ReplicaAction.ELECT_LEADERS, after={"partitions": "0"})
PREFIXED = Target(resource="p", action=AclAction.ACL_ADD, after=acl("PREFIXED"))
LITERAL = Target(resource="l", action=AclAction.ACL_ADD, after=acl("LITERAL"))
ON_USER = Target(resource="u", action=AclAction.ACL_ADD, after=acl("LITERAL", "USER"))
REMOVED = Target(resource="r", action=AclAction.ACL_DELETE, before=acl("PREFIXED"))
TWO_PHASE = Target(
    resource="2pc",
    action=AclAction.ACL_ADD,
    after={**acl("LITERAL", "TRANSACTIONAL_ID"), "operation": "TWO_PHASE_COMMIT"},
)


@pytest.mark.parametrize(
    ("target", "version"),
    [(ELECTION, (1, 1)), (PREFIXED, (1, 1)), (ON_USER, (1, 1)), (REMOVED, (1, 1)), (TWO_PHASE, (4, 0))],
    ids=lambda each: each.resource if isinstance(each, Target) else "",
)
def test_missing_features_are_refused_in_validate(
    target: Target, version: tuple[int, int], no_sleep: Callable[[float], None]
) -> None:
    """A broker before 2.0 would take a prefix for a name; one before 4.1 ends a connection with TWO_PHASE_COMMIT."""
    admin = OldAdmin(*version)
    (ended,) = executor(admin, no_sleep).validate([target])
    assert brief(ended) == (Outcome.REFUSED, "BROKER_TOO_OLD", 1)
    assert admin._manager.asked == []


@pytest.mark.parametrize(("target", "version"), [(LITERAL, (1, 1)), (TWO_PHASE, (4, 1))], ids=["literal", "2pc"])
def test_acls_that_brokers_know_are_valid(
    target: Target, version: tuple[int, int], no_sleep: Callable[[float], None]
) -> None:
    (ended,) = executor(OldAdmin(*version), no_sleep).validate([target])
    assert ended.outcome is Outcome.OK


def test_moves_that_old_brokers_cannot_list_are_no_missing_permission(no_sleep: Callable[[float], None]) -> None:
    """Before 2.4: granting Describe, as a message told users to, would not help."""
    assert executor(OldAdmin(2, 3), no_sleep).unlisted.refusal is Refusal.BROKER_TOO_OLD
    assert executor(OldAdmin(2, 4), no_sleep).unlisted.refusal is Refusal.NOT_PERMITTED


@pytest.mark.parametrize(
    "target",
    [
        ELECTION,
        PREFIXED,
        REMOVED,
        Target(resource="g", action=Action.CREATE, num_partitions=1, replication_factor=1),
    ],
    ids=lambda each: each.action,
)
def test_a_missing_request_is_an_answer_to_every_kind(target: Target, no_sleep: Callable[[float], None]) -> None:
    """It was sent eight times and left open. Brokers of 0.9 know none of these."""
    admin = OldAdmin(0, 9)
    (ended,) = executor(admin, no_sleep).apply([target])
    assert brief(ended) == (Outcome.REFUSED, "BROKER_TOO_OLD", 1)
    assert "the brokers of cluster main are too old" in str(ended.error_message)
    assert len(admin._manager.asked) == 1


def test_a_missing_delete_is_an_answer_although_deletes_depend_on_its_version(
    monkeypatch: pytest.MonkeyPatch, no_sleep: Callable[[float], None]
) -> None:
    """Before it is sent, brokers are asked whether they know it with ids: this question raised an error."""
    admin = OldAdmin(2, 8)
    admin._manager.lacks(DeleteTopicsRequest)
    topic_id = "00000000-0000-0000-0000-000000000001"
    monkeypatch.setattr(admin, "describe_topics", lambda _: [TopicInfo(topic="d", topic_id=topic_id)])
    (ended,) = executor(admin, no_sleep).apply([Target(resource="d", action=Action.DELETE, topic_id=topic_id)])
    assert brief(ended) == (Outcome.REFUSED, "BROKER_TOO_OLD", 1)
    assert "the brokers of cluster main are too old" in str(ended.error_message)


@pytest.mark.parametrize(
    ("request_class", "read"),
    [
        (OffsetFetchRequest, lambda admin: list(groups._fetched(admin, 1, ["g"]))),
        (ListOffsetsRequest, lambda admin: offsets.read_offsets(admin, {("t", 0): 1})),
        (MetadataRequest, lambda admin: admin.describe_cluster()),
    ],
)
def test_a_missing_request_that_reads_is_an_error_of_the_cluster(
    request_class: type, read: Callable[[ClusterAdmin], object]
) -> None:
    admin = OldAdmin(2, 8)
    admin._manager.lacks(request_class)
    with pytest.raises(ApiMissing, match="the brokers of cluster main are too old"):
        read(admin)


def test_no_question_about_a_missing_request_raises() -> None:
    admin = OldAdmin(2, 8)
    for each in (CreateTopicsRequest, DeleteTopicsRequest):
        admin._manager.lacks(each)
    assert (admin.deletes_by_id, admin.returns_configs) == (False, False)
