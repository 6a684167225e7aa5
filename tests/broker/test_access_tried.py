"""Effective rights as a real broker answers them: random ACLs, and what each user is then told that it may do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.broker.direct import admin_of, make, remove
from tests.fault.effort import SEED
from tests.waiting import until
from topicledger.kafka import ClusterAdmin
from topicledger.model import Target
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import OPERATIONS, Acl
from topicledger.resources.acls.effective import Brokers, about, decide
from topicledger.resources.acls.names import AclAction
from topicledger_testing.embedded_kafka import EmbeddedKafka

TOPICS = ("tried.a", "tried.ab", "tried.b", "tried.c", "tried.cd")
USERS = ("creator", "describer", "nobody")
HERE = "127.0.0.1"
"""Whence these users come, as brokers see it."""
SUPER = "User:admin"
ACLS = st.builds(
    Acl,
    principal=st.sampled_from(["User:creator", "User:describer", "User:*"]),
    permission=st.sampled_from(["ALLOW", "ALLOW", "ALLOW", "DENY"]),
    operation=st.sampled_from(["ALL", *OPERATIONS["TOPIC"]]),
    resource_type=st.just("TOPIC"),
    pattern_type=st.sampled_from(["LITERAL", "PREFIXED"]),
    resource_name=st.sampled_from([*TOPICS, "tried.", "tri"]),
    host=st.sampled_from(["*", "*", HERE, "10.0.0.1"]),
).map(lambda acl: acl._replace(resource_name="*", pattern_type="LITERAL") if acl.resource_name == "tri" else acl)


def replace_acls(admin: ClusterAdmin, old: Sequence[Acl], new: Sequence[Acl]) -> None:
    """Remove some ACLs, add others, and wait until the broker has exactly the expected ones."""
    expected = ({*acl_requests.describe_acls(admin)} - {*old}) | {*new}
    if old:
        gone = [Target(resource=str(n), action=AclAction.ACL_DELETE, before=a._asdict()) for n, a in enumerate(old)]
        assert {each.error_code for each in acl_requests.delete_acls(admin, gone).results.values()} == {0}
    if new:
        added = [Target(resource=str(n), action=AclAction.ACL_ADD, after=a._asdict()) for n, a in enumerate(new)]
        assert {each.error_code for each in acl_requests.create_acls(admin, added).results.values()} == {0}
    until(lambda: {*acl_requests.describe_acls(admin)} == expected, seconds=30, every=0.01)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_more_than_2000_questions_get_the_answers_of_a_real_broker(kafka_sasl: EmbeddedKafka) -> None:
    """A1: a user that may not describe a topic is told that and nothing else about it."""
    ids = make(kafka_sasl, *TOPICS)
    brokers = Brokers(super_users=frozenset({SUPER}))
    questions: dict[bool, int] = {True: 0, False: 0}
    there: list[Acl] = []
    with ExitStack() as stack:
        admin = stack.enter_context(admin_of(kafka_sasl))
        users = {name: stack.enter_context(admin_of(kafka_sasl, name)) for name in USERS}

        @seed(SEED)
        @settings(
            max_examples=60,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(acls=st.lists(ACLS, max_size=25, unique=True))
        def tried(acls: list[Acl]) -> None:
            replace_acls(admin, there, acls)
            there[:] = acls
            known = acl_requests.describe_acls(admin)
            for name, user in users.items():
                told = {each.topic: {*(each.authorized_operations or ())} for each in user.describe_topics(TOPICS)}
                for topic in TOPICS:
                    own = told.get(topic, set())
                    for operation in OPERATIONS["TOPIC"] if own else ("DESCRIBE",):
                        verdict = decide(about(known, "TOPIC", topic), f"User:{name}", HERE, operation, brokers)
                        assert verdict.allowed == (operation in own), (acls, name, topic, operation)
                        questions[operation in own] += 1

        try:
            tried()
        finally:
            replace_acls(admin, there, [])
            remove(kafka_sasl, ids)
    assert sum(questions.values()) >= 2_000, questions
    assert min(questions.values()) >= 500, questions
    print(f"allowed and denied: {questions}")
