"""Effective rights, as Kafka's own authorizer answers them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clusters import JARS
from tests.java import compile_java
from topicledger.resources.acls.acl import OPERATIONS, Acl
from topicledger.resources.acls.effective import AccessVerdict, Brokers, Why, about, covers_pattern, decide

Question = tuple[str, str, str, str, str]
"""principal, host, operation, resource type, name"""
SUPER = "User:super"
TYPES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
NAMES = ("a", "ab", "ab.c", "ab.cd", "b", "c")
"""None begins with a `*`, as no topic's name does: for these StandardAuthorizer 4.3.1 doesn't count the ACLs of `*`."""
OTHER_HOST = "10.9.9.9"
HOSTS = ("10.0.0.1", "10.0.0.2")
ACLS = st.builds(
    Acl,
    principal=st.sampled_from(["User:p", "User:q", "User:*", SUPER]),
    permission=st.sampled_from(["ALLOW", "ALLOW", "ALLOW", "DENY"]),
    operation=st.sampled_from(["ALL", *sorted({each for named in OPERATIONS.values() for each in named})]),
    resource_type=st.sampled_from(TYPES),
    pattern_type=st.sampled_from(["LITERAL", "PREFIXED"]),
    resource_name=st.sampled_from([*NAMES, "*"]),
    host=st.sampled_from(["*", "*", *HOSTS]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:p", "User:q", "User:r", SUPER]),
    st.sampled_from([*HOSTS, OTHER_HOST]),
    st.sampled_from(sorted({each for named in OPERATIONS.values() for each in named})),
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
)


def answer(acls: Sequence[Acl], question: Question, brokers: Brokers) -> AccessVerdict:
    principal, host, operation, resource_type, name = question
    return decide(about(acls, resource_type, name), principal, host, operation, brokers)


Ask = Callable[[Sequence[Acl], Sequence[Question], bool], list[bool]]


@pytest.fixture(scope="module")
def standard_authorizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Kafka's StandardAuthorizer, of the version that the tests' brokers have, in a JVM of its own."""
    classes = tmp_path_factory.mktemp("authorizer")
    jars = sorted(JARS.glob("*.jar"))
    needed = [each for each in jars if each.name.startswith(("kafka-clients", "kafka-metadata", "kafka-server-common"))]
    compile_java(Path(__file__).parents[1] / "kafka_authorizer" / "AskAuthorizer.java", needed, classes)
    java = shutil.which("java")
    assert java is not None
    command = [java, "-cp", os.pathsep.join(map(str, [classes, *jars])), "AskAuthorizer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def ask(acls: Sequence[Acl], questions: Sequence[Question], allow_everyone: bool) -> list[bool]:
            lines = [("NEW", SUPER, str(allow_everyone).lower()), *(("ACL", *each) for each in dict.fromkeys(acls))]
            to.writelines("\t".join(line) + "\n" for line in (*lines, *(("ASK", *each) for each in questions)))
            to.flush()
            told = [back.readline().strip() for _ in questions]
            assert {*told} <= {"ALLOWED", "DENIED"}, told
            return [each == "ALLOWED" for each in told]

        yield ask
        to.close()


def _equals(ask: Ask, acls: Sequence[Acl], questions: Sequence[Question], allow_everyone: bool) -> None:
    brokers = Brokers(super_users=frozenset({SUPER}), allow_everyone=allow_everyone)
    ours = [answer(acls, each, brokers).allowed for each in questions]
    told = ask(acls, questions, allow_everyone)
    differ = [(each, one, other) for each, one, other in zip(questions, ours, told, strict=True) if one != other]
    assert not differ, (acls, differ)


SETS = {"acls": st.lists(ACLS, max_size=25), "allow_everyone": st.booleans()}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(questions=st.lists(QUESTIONS, min_size=25, max_size=25), **SETS)
def test_effective_rights_are_what_kafkas_authorizer_answers(
    standard_authorizer: Ask, acls: Sequence[Acl], questions: Sequence[Question], allow_everyone: bool
) -> None:
    """200 questions over 8 sets of ACLs."""
    _equals(standard_authorizer, acls, questions, allow_everyone)


@pytest.mark.thorough
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(questions=st.lists(QUESTIONS, min_size=20, max_size=20), **SETS)
def test_2000_questions_get_the_answers_of_kafkas_authorizer(
    standard_authorizer: Ask, acls: Sequence[Acl], questions: Sequence[Question], allow_everyone: bool
) -> None:
    _equals(standard_authorizer, acls, questions, allow_everyone)


RIGHT = Acl("User:p", "ALLOW", "READ", "TOPIC", "LITERAL", "a", "*")


def test_a_verdict_says_from_which_acl_it_comes() -> None:
    wide = RIGHT._replace(pattern_type="PREFIXED", operation="ALL")
    deny = RIGHT._replace(permission="DENY", host=HOSTS[0])
    known = Brokers()
    assert answer([wide, RIGHT], ("User:p", OTHER_HOST, "READ", "TOPIC", "a"), known).acls == sorted([wide, RIGHT])
    denied = answer([wide, deny], ("User:p", HOSTS[0], "READ", "TOPIC", "a"), known)
    assert (denied.allowed, denied.why, denied.acls) == (False, Why.DENY, [deny])
    assert answer([wide, deny], ("User:p", HOSTS[0], "DESCRIBE", "TOPIC", "a"), known).allowed
    assert answer([], ("User:p", "*", "READ", "TOPIC", "a"), Brokers(allow_everyone=None)).allowed is None


def test_a_literal_wildcard_is_not_about_names_that_begin_with_it(standard_authorizer: Ask) -> None:
    everything = RIGHT._replace(resource_type="GROUP", resource_name="*")
    questions: list[Question] = [("User:p", HOSTS[0], "READ", "GROUP", name) for name in ("*", "*x", "x")]
    assert standard_authorizer([everything], questions, False) == [True, False, True]
    assert [answer([everything], each, Brokers()).allowed for each in questions] == [True, False, True]
    assert not covers_pattern(everything, "LITERAL", "*x")


def test_a_pattern_is_covered_where_each_of_its_names_is() -> None:
    prefix, everything = RIGHT._replace(pattern_type="PREFIXED"), RIGHT._replace(resource_name="*")
    assert [covers_pattern(prefix, *each) for each in (("PREFIXED", "ab"), ("LITERAL", "ab"), ("LITERAL", "a"))] == [
        True
    ] * 3
    assert not any(covers_pattern(prefix, *each) for each in (("PREFIXED", "b"), ("LITERAL", "*"), ("PREFIXED", "")))
    assert covers_pattern(everything, "PREFIXED", "x")
    assert not covers_pattern(RIGHT, "PREFIXED", "a")
