"""ACLs right before they are sent, and after a restart, against a cluster that changed since the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest

from topicledger.apply.executor import Executor
from topicledger.errors import ClusterError
from topicledger.kafka import ClusterAdmin, RequestLost, Response
from topicledger.kafka.connection import NotListed
from topicledger.kafka.sending import ClusterLimits, StaysOpen
from topicledger.ledger.leases import LeaseLost
from topicledger.model import Outcome, PhaseResult, Target, TopicResult, Violation
from topicledger.naming import Sections
from topicledger.resources.acls import requests as acl_requests
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.actions import ADD, DELETE
from topicledger.resources.acls.names import AclAction, AclSettings
from topicledger.resources.acls.requests import ALLOW_EVERYONE, SUPER_USERS, authorizer_settings
from topicledger.resources.quotas import requests as quota_requests
from topicledger.resources.quotas.names import QuotaAction

FOREIGN = Acl("User:app", "ALLOW", "IDEMPOTENT_WRITE", "CLUSTER", "LITERAL", "kafka-cluster", "*")
OTHER = FOREIGN._replace(operation="ALTER")
OWN = FOREIGN._replace(principal="User:run", operation="ALL")
OF_TOPIC = Acl("User:app", "ALLOW", "READ", "TOPIC", "LITERAL", "orders", "*")


LAST, FIRST = ((Violation(policy=each, message="it would"),) for each in ("last_acl", "first_acl"))
"""The plan's warnings."""


def target(acl: Acl, action: AclAction, **given: Any) -> Target:
    side = "after" if action is AclAction.ACL_ADD else "before"
    return Target(resource=" ".join(acl), action=action, **{side: acl._asdict(), **given})


def add(acl: Acl, **given: Any) -> Target:
    return target(acl, AclAction.ACL_ADD, **given)


def delete(acl: Acl, **given: Any) -> Target:
    return target(acl, AclAction.ACL_DELETE, **given)


_REQUESTS = {
    acl_requests: ("describe_acls", "create_acls", "delete_acls", "may_alter_acls", "authorizer_settings"),
    quota_requests: ("describe_quotas",),
}


def _sent_by(name: str, admin: MagicMock, *arguments: Any) -> Any:
    return getattr(admin, name)(*arguments)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A cluster with one ACL on itself that allows everyone what no ACL is about."""
    stand_in: MagicMock = create_autospec(ClusterAdmin, instance=True)
    stand_in.connect_to_controller.return_value = "kafka-main"
    stand_in.principal = "User:run"
    for module, names in _REQUESTS.items():
        for name in names:
            setattr(stand_in, name, MagicMock())
            monkeypatch.setattr(module, name, partial(_sent_by, name))
    stand_in.authorizer_settings.return_value = {ALLOW_EVERYONE: True}
    stand_in.describe_acls.return_value = [OTHER]
    done = TopicResult(before={"principal": "User:app"})
    for request in (stand_in.create_acls, stand_in.delete_acls):
        request.side_effect = lambda targets: Response(
            results={each.resource: done for each in targets}, throttle_time_ms=0
        )
    return stand_in


def executor(admin: MagicMock, *super_users: str, most: int = 100, **given: Any) -> Executor:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    limits = ClusterLimits(max_batch_records=most, of_kinds=Sections([AclSettings(super_users=super_users)]))
    return Executor(
        cluster="main", cluster_id="kafka-main", admin=admin, limits=limits, sleep=sleep, clock=lambda: now[0], **given
    )


def errors(rows: list[PhaseResult]) -> dict[str, str | None]:
    return {each.resource: each.error for each in rows}


def applied(admin: MagicMock, *targets: Target, super_users: tuple[str, ...] = ()) -> dict[str, str | None]:
    return errors(list(executor(admin, *super_users).apply(targets)))


def test_acl_that_became_the_first_on_the_cluster_is_not_added(admin: MagicMock) -> None:
    assert applied(admin, add(FOREIGN)) == {" ".join(FOREIGN): None}
    admin.describe_acls.return_value = []
    assert applied(admin, add(FOREIGN), add(OF_TOPIC, violations=FIRST)) == {
        " ".join(FOREIGN): "OWN_RIGHTS",
        " ".join(OF_TOPIC): None,
    }
    assert applied(admin, add(FOREIGN), super_users=("User:run",)) == {" ".join(FOREIGN): None}
    assert applied(admin, add(OWN)) == {" ".join(OWN): None}
    admin.principal = None
    assert applied(admin, add(FOREIGN)) == {" ".join(FOREIGN): "PRINCIPAL_UNKNOWN"}


def test_no_message_has_the_name_of_the_runs_own_principal(admin: MagicMock) -> None:
    """It may be the value of a reference, and rows of `audit` have none."""
    admin.describe_acls.return_value = []
    rows = list(executor(admin).apply([add(FOREIGN)]))
    assert "the run's own principal (clusters.main.client)" in str(rows[0].error_message)
    assert "User:run" not in str(rows)


@pytest.mark.parametrize(("allowed", "error"), [(True, "OWN_RIGHTS"), (None, "OWN_RIGHTS"), (False, None)])
def test_setting_of_brokers_that_is_unknown_counts_as_set(
    admin: MagicMock, allowed: bool | None, error: str | None
) -> None:
    admin.describe_acls.return_value = []
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: allowed}
    assert applied(admin, add(FOREIGN)) == {" ".join(FOREIGN): error}


def test_first_acls_must_leave_the_run_all_that_it_needs(admin: MagicMock) -> None:
    admin.describe_acls.return_value = []
    parts = [OWN._replace(operation=each) for each in ("ALTER", "CREATE", "ALTER_CONFIGS")]
    assert set(applied(admin, *map(add, parts)).values()) == {None}
    assert set(applied(admin, *map(add, parts[:2])).values()) == {"OWN_RIGHTS"}
    from_one_host = OWN._replace(host="10.0.0.1")
    assert applied(admin, add(from_one_host)) == {" ".join(from_one_host): "OWN_RIGHTS"}


def test_added_acl_that_brokers_do_not_show_yet_counts(admin: MagicMock) -> None:
    """A6"""
    admin.describe_acls.return_value = []
    run = executor(admin)
    assert errors(list(run.apply([add(OWN)]))) == {" ".join(OWN): None}
    assert errors(list(run.apply([add(FOREIGN)]))) == {" ".join(FOREIGN): None}


def test_first_acl_is_not_added_to_an_unknown_or_another_cluster(admin: MagicMock) -> None:
    admin.describe_acls.side_effect = NotListed("not permitted")
    assert applied(admin, add(FOREIGN), add(OF_TOPIC)) == {
        " ".join(FOREIGN): "NOT_PERMITTED",
        " ".join(OF_TOPIC): "NOT_PERMITTED",
    }

    def another(_: object) -> list[Acl]:
        admin.connect_to_controller.return_value = "kafka-other"
        return [OTHER]

    admin.describe_acls.side_effect = another
    with pytest.raises(ClusterError, match="kafka-other"):
        applied(admin, add(FOREIGN))
    admin.create_acls.assert_not_called()


ALL = OF_TOPIC._replace(operation="ALL")
BY_EVERYONE = OF_TOPIC._replace(principal="User:*")


def replaced(old: Acl, *new: Acl) -> Target:
    return delete(old, after={"replaced_by": json.dumps([each._asdict() for each in new])}, violations=LAST)


def test_removal_is_sent_only_if_all_acls_that_replace_it_exist(admin: MagicMock) -> None:
    """An add was refused, or failed; a restart compares, too. Principals of the new ACLs are listed, too."""
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: False}
    cases: list[tuple[list[Acl], str | None]] = [
        ([], "REPLACEMENT_MISSING"),
        ([OF_TOPIC], "REPLACEMENT_MISSING"),
        ([OF_TOPIC, BY_EVERYONE], None),
    ]
    for there, error in cases:
        admin.describe_acls.return_value = [ALL, *there]
        assert applied(admin, replaced(ALL, OF_TOPIC, BY_EVERYONE)) == {" ".join(ALL): error}
        assert admin.delete_acls.called == (error is None)
        admin.describe_acls.assert_called_with({"User:app", "User:*"})
    admin.describe_acls.side_effect = NotListed("not permitted")
    (row,) = executor(admin).apply([replaced(ALL, OF_TOPIC)])
    assert (row.error, row.error_message) == ("REPLACEMENT_MISSING", "not permitted")


def test_removal_waits_until_brokers_show_the_acl_that_was_just_added(admin: MagicMock) -> None:
    """A6"""
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: False}
    run = executor(admin)
    assert errors(list(run.apply([add(OF_TOPIC)]))) == {" ".join(OF_TOPIC): None}
    admin.describe_acls.side_effect = [[ALL], [ALL], [ALL, OF_TOPIC]]
    assert errors(list(run.apply([replaced(ALL, OF_TOPIC)]))) == {" ".join(ALL): None}


PAY = Acl("User:b", "ALLOW", "READ", "TOPIC", "PREFIXED", "pay", "*")
SECRET = PAY._replace(permission="DENY", pattern_type="LITERAL", resource_name="pay.secret")


def restricting(deny: Acl, *allows: Acl) -> Target:
    return delete(deny, after={"restricts": json.dumps([each._asdict() for each in allows])}, violations=LAST)


def test_deny_is_removed_only_after_the_allows_that_it_restricts(admin: MagicMock) -> None:
    """In one call or in two, though brokers may still show the ALLOW (A6)."""
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: False}
    admin.describe_acls.return_value = [PAY, SECRET]
    allow, deny = delete(PAY, violations=LAST), restricting(SECRET, PAY)
    names = {" ".join(PAY): None, " ".join(SECRET): None}
    assert applied(admin, deny, allow) == names
    assert [[each.resource for each in call.args[0]] for call in admin.delete_acls.call_args_list] == [
        *map(list, zip(names))
    ]
    run = executor(admin)
    assert {**errors(list(run.apply([allow]))), **errors(list(run.apply([deny])))} == names
    admin.describe_acls.return_value = [SECRET]
    assert applied(admin, deny) == {" ".join(SECRET): None}, "a restart after the ALLOW was removed"


def test_deny_is_not_removed_while_an_allow_that_it_restricts_is_there(admin: MagicMock) -> None:
    """Its replacement is missing, its removal fails, or was refused by then: it would grant what nobody declared."""
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: False}
    admin.describe_acls.return_value = [PAY, SECRET]
    assert applied(admin, replaced(PAY, OF_TOPIC), restricting(SECRET, PAY)) == {
        " ".join(PAY): "REPLACEMENT_MISSING",
        " ".join(SECRET): "CHANGED_SINCE_PLAN",
    }
    admin.delete_acls.assert_not_called()
    (row,) = executor(admin).apply([restricting(SECRET, PAY)])
    assert (row.outcome, row.error) == ("refused", "CHANGED_SINCE_PLAN")
    assert " ".join(PAY) in str(row.error_message)
    admin.describe_acls.assert_called_with({"User:b"})
    admin.describe_acls.side_effect = NotListed("not permitted")
    assert applied(admin, restricting(SECRET, PAY)) == {" ".join(SECRET): "NOT_PERMITTED"}
    admin.describe_acls.side_effect = None
    failed = TopicResult(error_code=31, before={})
    admin.delete_acls.side_effect = lambda targets: Response(
        results={each.resource: failed for each in targets}, throttle_time_ms=0
    )
    found = applied(admin, delete(PAY, violations=LAST), restricting(SECRET, PAY))
    assert found[" ".join(SECRET)] == "CHANGED_SINCE_PLAN"
    assert {each.resource for call in admin.delete_acls.call_args_list for each in call.args[0]} == {" ".join(PAY)}


def restricted_by(allow: Acl, *denies: Acl) -> Target:
    return add(allow, before={"restricted_by": json.dumps([each._asdict() for each in denies])})


def test_allow_is_added_only_after_the_denies_that_restrict_it(admin: MagicMock) -> None:
    """In one call, with the DENY last, or in two; brokers may show the DENY late (A6)."""
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: False}
    admin.describe_acls.side_effect = [[], [SECRET]]
    assert applied(admin, restricted_by(PAY, SECRET), add(SECRET)) == {" ".join(PAY): None, " ".join(SECRET): None}
    sent = [[each.resource for each in call.args[0]] for call in admin.create_acls.call_args_list]
    assert sent == [[" ".join(SECRET)], [" ".join(PAY)]]


@pytest.mark.parametrize("unlisted", [False, True])
def test_allow_is_not_added_without_the_denies_that_restrict_it(admin: MagicMock, unlisted: bool) -> None:
    """One was refused or failed, or somebody removed it since the plan; a restart compares, too."""
    admin.authorizer_settings.return_value = {ALLOW_EVERYONE: False}
    everyone = SECRET._replace(principal="User:*")
    admin.describe_acls.return_value = [SECRET]
    if unlisted:
        admin.describe_acls.side_effect = NotListed("not permitted")
    (row,) = executor(admin).apply([restricted_by(PAY, SECRET, everyone)])
    missing = f"it is not added, since DENYs that may restrict it don't exist: {' '.join(everyone)}"
    why = "not permitted" if unlisted else missing
    assert (row.error, row.error_message) == ("DENY_MISSING", why)
    admin.create_acls.assert_not_called()
    admin.describe_acls.assert_called_with({"User:b", "User:*"})
    (row,) = executor(admin).apply([replace(restricted_by(PAY, everyone), maybe_sent=True)])
    assert row.outcome == "failed", "an earlier start may have sent it"


def test_first_acls_of_the_run_do_not_count_one_that_lacks_its_deny(admin: MagicMock) -> None:
    """Else the others would be sent, and take from the run what the missing one should have granted."""
    admin.describe_acls.return_value = []
    parts = [OWN._replace(operation=each, principal="User:*") for each in ("ALTER", "CREATE", "ALTER_CONFIGS")]
    targets = [*map(add, parts[:2]), restricted_by(parts[2], OTHER._replace(permission="DENY"))]
    assert set(applied(admin, *targets).values()) == {"OWN_RIGHTS", "DENY_MISSING"}
    admin.create_acls.assert_not_called()


def test_last_acl_counts_those_as_gone_that_this_run_removed(admin: MagicMock) -> None:
    """Brokers may still show them (A6), but the ACL on the cluster is the last one."""
    admin.describe_acls.return_value = [FOREIGN, OTHER]
    run = executor(admin)
    assert errors(list(run.apply([delete(FOREIGN)]))) == {" ".join(FOREIGN): None}
    assert errors(list(run.apply([delete(OTHER)]))) == {" ".join(OTHER): "LAST_CLUSTER_ACL"}


ALTER_BY_EVERYONE = OTHER._replace(principal="User:*")
OWN_ALTER = OTHER._replace(principal="User:run")
OWN_GRANTS = {
    "the same": ([OWN_ALTER], None),
    "all": ([OWN], None),
    "nothing": ([], "OWN_RIGHTS"),
    "another operation": ([OWN_ALTER._replace(operation="DESCRIBE")], "OWN_RIGHTS"),
    "from one host": ([OWN_ALTER._replace(host="10.0.0.1")], "OWN_RIGHTS"),
    "a DENY": ([OWN_ALTER._replace(permission="DENY")], "OWN_RIGHTS"),
    "on topics": ([OWN_ALTER._replace(resource_type="TOPIC", resource_name="*")], "OWN_RIGHTS"),
}
"""What the run's own principal has by the time of the request."""


@pytest.mark.parametrize(("mine", "error"), OWN_GRANTS.values(), ids=OWN_GRANTS)
def test_removal_from_everyone_needs_the_runs_own_right_in_every_step(
    admin: MagicMock, mine: list[Acl], error: str | None
) -> None:
    """While the plan waited for approval, somebody removed the run's own ALTER: the removal would lock the run out."""
    admin.describe_acls.return_value = [ALTER_BY_EVERYONE, OTHER, *mine]
    asked, name = [delete(ALTER_BY_EVERYONE)], " ".join(ALTER_BY_EVERYONE)
    assert errors(list(executor(admin).validate(asked))) == {name: error}
    admin.describe_acls.assert_called_with({"User:*", "User:run"})
    assert errors(list(executor(admin).changed_since_plan(asked))) == ({name: error} if error else {})
    assert applied(admin, *asked) == {name: error}
    assert admin.delete_acls.called == (error is None)
    run = executor(admin, "User:run")
    assert errors([*run.validate(asked), *run.changed_since_plan(asked), *run.apply(asked)]) == {name: None}


def test_denial_for_everyone_is_sent_only_by_a_super_user(admin: MagicMock) -> None:
    """The settings may have been corrected since the plan."""
    denial = add(ALTER_BY_EVERYONE._replace(permission="DENY"))
    admin.describe_acls.return_value = [OWN]
    assert set(errors(list(executor(admin).validate([denial]))).values()) == {"OWN_RIGHTS"}
    assert set(errors(list(executor(admin, "User:run").validate([denial]))).values()) == {None}


def test_adds_are_sent_before_removals() -> None:
    orders = {each.name: each.order for each in (ADD, DELETE)}
    assert orders["acl_add"] < orders["acl_delete"]


def test_acl_that_became_the_last_on_the_cluster_is_not_removed(admin: MagicMock) -> None:
    admin.describe_acls.return_value = [FOREIGN, OTHER]
    assert applied(admin, delete(FOREIGN)) == {" ".join(FOREIGN): None}
    both = {" ".join(each): "LAST_CLUSTER_ACL" for each in (FOREIGN, OTHER)}
    assert applied(admin, delete(FOREIGN), delete(OTHER)) == both
    admin.describe_acls.return_value = [FOREIGN, OF_TOPIC]
    assert applied(admin, delete(FOREIGN)) == {" ".join(FOREIGN): "LAST_CLUSTER_ACL"}
    assert applied(admin, delete(OF_TOPIC, violations=LAST)) == {" ".join(OF_TOPIC): None}


COVERING = {
    "none": ([], True),
    "the same name": ([OF_TOPIC._replace(principal="User:else")], False),
    "every topic": ([OF_TOPIC._replace(principal="User:else", resource_name="*")], False),
    "a prefix": ([OF_TOPIC._replace(pattern_type="PREFIXED", resource_name="ord")], False),
    "another topic": ([OF_TOPIC._replace(resource_name="payments")], True),
    "a group of that name": ([OF_TOPIC._replace(resource_type="GROUP")], True),
}


@pytest.mark.parametrize(("others", "is_alone"), COVERING.values(), ids=COVERING)
def test_acl_that_became_the_last_or_first_since_the_plan_is_refused(
    admin: MagicMock, others: list[Acl], is_alone: bool
) -> None:
    """Nobody was warned that everybody could use the topic, or that everybody else would lose it."""
    name, error = " ".join(OF_TOPIC), "CHANGED_SINCE_PLAN" if is_alone else None
    admin.describe_acls.return_value = [OF_TOPIC, *others]
    assert applied(admin, delete(OF_TOPIC)) == {name: error}
    assert applied(admin, delete(OF_TOPIC, violations=LAST)) == {name: None}
    admin.describe_acls.return_value = others
    assert applied(admin, add(OF_TOPIC)) == {name: error}
    assert applied(admin, add(OF_TOPIC, violations=FIRST)) == {name: None}
    for allowed in (False, None):
        admin.authorizer_settings.return_value = {ALLOW_EVERYONE: allowed}
        assert applied(admin, add(OF_TOPIC)) == {name: None}


def test_marked_acl_that_is_not_there_is_checked_again(admin: MagicMock) -> None:
    """A driver died between the mark and the request, or after it: no plan warned of what the ACL does by now."""
    admin.describe_acls.return_value = []
    (row,) = executor(admin).apply([add(OF_TOPIC, maybe_sent=True)])
    assert (row.outcome, row.error) == ("failed", "CHANGED_SINCE_PLAN")
    assert str(row.error_message).endswith("an earlier request for it was lost, which may have changed it")
    assert "became the first ACL on TOPIC orders since the plan" in str(row.error_message)
    admin.describe_acls.return_value = [OF_TOPIC]
    assert applied(admin, add(OF_TOPIC, maybe_sent=True)) == {" ".join(OF_TOPIC): None}
    (row,) = executor(admin).apply([delete(OF_TOPIC, maybe_sent=True)])
    assert (row.outcome, row.error) == ("failed", "CHANGED_SINCE_PLAN")
    admin.describe_acls.return_value = []
    assert applied(admin, delete(OF_TOPIC, maybe_sent=True)) == {" ".join(OF_TOPIC): None}


def test_all_checks_of_a_request_use_one_list_of_acls(admin: MagicMock) -> None:
    """Another client may change ACLs between two lists, and the first check would be stale."""
    admin.describe_acls.side_effect = [[], [OTHER]]
    assert applied(admin, add(FOREIGN), add(OF_TOPIC)) == {
        " ".join(FOREIGN): "OWN_RIGHTS",
        " ".join(OF_TOPIC): "CHANGED_SINCE_PLAN",
    }
    admin.describe_acls.side_effect = [[OTHER, OF_TOPIC], []]
    assert applied(admin, delete(OTHER), delete(OF_TOPIC)) == {
        " ".join(OTHER): "LAST_CLUSTER_ACL",
        " ".join(OF_TOPIC): "CHANGED_SINCE_PLAN",
    }


@pytest.mark.parametrize("action", [add, delete])
def test_restart_waits_until_brokers_show_what_it_sent(admin: MagicMock, action: Any) -> None:
    """Only then is it known that nothing was done, and refused may mean that nothing was sent (A6)."""
    before, after = ([], [OF_TOPIC]) if action is add else ([OF_TOPIC], [])
    admin.describe_acls.side_effect = [before, before, after]
    (row,) = executor(admin).recover([action(OF_TOPIC, maybe_sent=True)])
    assert (row.outcome, row.error) == ("ok", "RECOVERED")
    admin.describe_acls.side_effect = lambda _: before
    assert list(executor(admin).recover([action(OF_TOPIC, maybe_sent=True)])) == []


QUOTA = Target(
    resource="user=app", action=QuotaAction.ALTER_QUOTA, before={}, after={"producer_byte_rate": "1"}, maybe_sent=True
)


def test_unlistable_actions_that_may_be_sent_stay_open(admin: MagicMock) -> None:
    admin.describe_acls.side_effect = admin.describe_quotas.side_effect = NotListed("not permitted")
    for each in (add(OF_TOPIC, maybe_sent=True), delete(OF_TOPIC, maybe_sent=True), QUOTA):
        with pytest.raises(StaysOpen, match="not permitted"):
            list(executor(admin).recover([each]))


SET, UNSET, HIDDEN, LOST = ({ALLOW_EVERYONE}, 0), (set(), 0), (set(), 31), RequestLost("no answer")


@pytest.mark.parametrize(
    ("brokers", "is_set"),
    [
        ([UNSET, UNSET], False),
        ([UNSET, SET], True),
        ([HIDDEN, SET], True),
        ([UNSET, HIDDEN], None),
        ([UNSET, LOST], None),
        ([SET, LOST], True),
    ],
)
def test_every_broker_is_asked_for_the_authorizers_settings(brokers: list[Any], is_set: bool | None) -> None:
    answers: Mapping[int, Any] = dict(enumerate(brokers))

    def ask(_: object, broker_id: int) -> Any:
        if isinstance(answers[broker_id], RequestLost):
            raise answers[broker_id]
        names, code = answers[broker_id]
        return SimpleNamespace(
            results=[SimpleNamespace(error_code=code, configs=[SimpleNamespace(name=each) for each in names])]
        )

    cluster = SimpleNamespace(brokers=[SimpleNamespace(broker_id=each) for each in answers])
    admin: Any = SimpleNamespace(name="main", ask=ask, describe_cluster=lambda: cluster)
    found = authorizer_settings(admin)
    assert found[ALLOW_EVERYONE] is is_set
    assert found[SUPER_USERS] is (None if HIDDEN in brokers or LOST in brokers else False)


def test_the_controller_is_not_asked_to_remove_too_many_acls_at_once(admin: MagicMock) -> None:
    """It compares each of a request's filters with all ACLs, while brokers' heartbeats wait."""
    acls = [OF_TOPIC._replace(resource_name=f"orders.{number:04}") for number in range(1_001)]
    rows = list(executor(admin, most=4_000).apply([*map(delete, acls)]))
    assert set(errors(rows).values()) == {None}
    asked = [[each.resource for each in call.args[0]] for call in admin.delete_acls.call_args_list]
    assert [len(each) for each in asked] == [100] * 10 + [1]
    assert sorted(name for each in asked for name in each) == [" ".join(acl) for acl in acls]


def test_a_message_names_only_some_of_many_acls_that_are_missing(admin: MagicMock) -> None:
    by = [OF_TOPIC._replace(resource_name=f"orders.{number:04}")._asdict() for number in range(1_000)]
    every = OF_TOPIC._replace(resource_name="*")
    (row,) = executor(admin).apply([delete(every, after={"replaced_by": json.dumps(by)})])
    assert row.error == "REPLACEMENT_MISSING"
    assert str(row.error_message).endswith(" and 990 more")


def test_a_lease_lost_between_two_requests_of_removals_keeps_the_outcomes_of_the_first(
    admin: MagicMock,
) -> None:
    """The other ACLs have no row, so that a later start sends them."""
    acls = [OF_TOPIC._replace(resource_name=f"orders.{number:04}") for number in range(250)]

    def may_send() -> None:
        if admin.delete_acls.called:
            raise LeaseLost("the lease of cluster main expired")

    rows: list[PhaseResult] = []
    with pytest.raises(LeaseLost):
        rows.extend(executor(admin, most=4_000, may_send=may_send).apply([*map(delete, acls)]))
    assert admin.delete_acls.call_count == 1
    assert {each.resource for each in rows} == {each.resource for each in admin.delete_acls.call_args.args[0]}
    assert {each.outcome for each in rows} == {Outcome.OK}
    assert len(rows) == 100
