"""Proposed owners of topics without a manifest: by [owners], by prefix, by consumer group, or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicledger.config.settings import OwnerLine, Owners, OwnerSettings
from topicledger.files.proposals import Proposal, proposals

DECLARED = [
    ("main", "payments.in.a", "payments"),
    ("main", "payments.in.b", " payments "),
    ("eu", "payments.out", "ledger"),
    ("main", "orders-eu-a", "orders"),
    ("main", "nobodys.a", None),
    ("main", "blank.a", " "),
    ("main", "whole", "whole-team"),
]


def owner_of(topic: str, *groups: str, owners: Owners | None = None) -> tuple[str, str | None] | None:
    key = ("main", topic)
    found: Proposal | None = proposals([key], DECLARED, owners or Owners(), lambda _: {key: groups}).get(key)
    return None if found is None else (found.owner, found.why)


def test_the_longest_prefix_that_declared_topics_share_tells_the_owner() -> None:
    assert owner_of("payments.in.c") == ("payments", "owns the 2 declared topics with prefix payments.in.")
    assert owner_of("payments.in-c") is None, "payments. has two owners"
    assert owner_of("payments.in.c.d") == ("payments", "owns the 2 declared topics with prefix payments.in.")
    assert owner_of("orders-us-a") == ("orders", "owns the 1 declared topic with prefix orders-")
    assert owner_of("orders") is None
    assert owner_of("nobodys.b") is None
    assert owner_of("blank.b") is None
    assert owner_of("wholesale") is None


def test_consumer_groups_give_the_owner_if_the_prefix_does_not() -> None:
    assert owner_of("x", "Payments-reader") == ("payments", "consumer group Payments-reader uses it")
    assert owner_of("x", "orders", "orders.batch") == ("orders", "consumer group orders uses it")
    assert owner_of("x", "whole-team-1") == ("whole-team", "consumer group whole-team-1 uses it")
    assert owner_of("x", "payments-reader", "orders-reader") is None
    assert owner_of("x", "payments-reader", "somebody") == ("payments", "consumer group payments-reader uses it")
    assert owner_of("x", "paymentsreader") is None
    assert owner_of("orders-us-a", "payments-reader") == ("orders", "owns the 1 declared topic with prefix orders-")


def test_manifests_and_settings_come_first() -> None:
    names = Owners(names={"b": OwnerSettings(topics=("^orders",)), "c": OwnerSettings(topics=("^payments[.]both",))})
    assert owner_of("orders-us-a", owners=names) == ("b", None)
    assert owner_of("payments.in.b") == ("payments", None)
    lines = Owners(lines=(OwnerLine(pattern="^main/x$", owners=("d",), place="CODEOWNERS:1"),))
    assert owner_of("x", owners=lines) == ("d", None)


def test_no_owner_is_proposed_that_may_not_declare_the_topic() -> None:
    """[owners] refuses a row of an owner that it names elsewhere, and of any other owner of an owned topic."""
    named = Owners(names={"payments": OwnerSettings(topics=("^payments[.]in[.]",))})
    assert owner_of("payments.in.c", owners=named) == ("payments", None)
    assert owner_of("x", "payments-reader", owners=named) is None
    both = Owners(names={name: OwnerSettings(topics=("^payments",)) for name in ("b", "ledger")})
    assert owner_of("payments.in.c", owners=both) is None
    assert owner_of("payments.in.b", owners=both) is None, "its manifest's owner isn't one of them"
    assert owner_of("payments.in.c", "ledger-batch", "orders", owners=both) == (
        "ledger",
        "consumer group ledger-batch uses it",
    )
    assert owner_of("payments.d", owners=both) == ("ledger", "owns the 1 declared topic with prefix payments.")


def test_groups_are_asked_only_about_topics_without_another_owner() -> None:
    keys = [("main", name) for name in ("payments.in.b", "payments.in.c", "x", "y")]
    asked: list[object] = []

    def groups(left: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Sequence[str]]:
        asked.extend(left)
        return {("main", "y"): ["orders"]}

    assert set(proposals(keys, DECLARED, Owners(), groups)) == {*keys} - {("main", "x")}
    assert asked == keys[2:]
    assert list(proposals(keys, DECLARED, Owners(), None)) == [("main", "payments.in.b")]
