"""The planner of replicas, for any cluster: what holds of every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.other_planners import generate, rebuild
from topicledger.model import Refusal
from topicledger.model.placement import Placement, PlacementKind, parse_placement
from topicledger.resources.topics.plan.replicas import (
    Change,
    LiveCluster,
    TopicReplicas,
    Wish,
    bytes_moved,
    create,
    fill,
    flows,
    plan,
)

Case = tuple[LiveCluster, list[TopicReplicas], dict[str, Wish]]


@st.composite
def clusters(draw: st.DrawFn) -> LiveCluster:
    racks = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=9))
    leaving = draw(st.sets(st.integers(1, len(racks)), max_size=1))
    rooms = draw(st.dictionaries(st.integers(1, len(racks)), st.integers(0, 3_000), max_size=2))
    return LiveCluster(racks=dict(enumerate(racks, 1)), leaving=frozenset(leaving), rooms=rooms)


@st.composite
def topics(draw: st.DrawFn, cluster: LiveCluster, name: str) -> TopicReplicas:
    # A broker that is down may have replicas, too.
    brokers = st.sampled_from([*cluster.racks, *draw(st.sampled_from([[], [], [99]]))])
    replicas = draw(st.lists(st.lists(brokers, min_size=1, max_size=4, unique=True), min_size=1, max_size=8))
    sizes = draw(st.lists(st.integers(0, 1_000), min_size=len(replicas), max_size=len(replicas)))
    known = draw(st.booleans())
    return TopicReplicas(
        topic=name,
        replicas={n: tuple(each) for n, each in enumerate(replicas)},
        sizes=dict(enumerate(sizes)) if known else {},
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    cluster = draw(clusters())
    found = [draw(topics(cluster, f"t{number}")) for number in range(draw(st.integers(1, 4)))]
    placements = ["any", "racks", "spread", "rack:a", f"brokers:{','.join(map(str, cluster.racks))}", "brokers:1,2"]
    wishes = {
        each.topic: Wish(
            placement=parse_placement(draw(st.sampled_from(placements))),
            replication_factor=draw(st.sampled_from([None, 1, 2, 3])),
        )
        for each in draw(st.lists(st.sampled_from(found), unique_by=lambda each: each.topic))
    }
    return cluster, found, wishes


def carried_out(found: list[TopicReplicas], changes: Mapping[str, Change]) -> list[TopicReplicas]:
    return [
        TopicReplicas(
            topic=each.topic,
            replicas={**each.replicas, **(changes[each.topic].target if each.topic in changes else {})},
            sizes=each.sizes,
        )
        for each in found
    ]


def taken(cluster: LiveCluster, found: list[TopicReplicas], changes: Mapping[str, Change]) -> LiveCluster:
    """The cluster with the room that is left once what is added has arrived; what goes is not counted as gone yet."""
    rooms = dict(cluster.rooms)
    for each in found:
        for broker, (comes, _) in flows(each, changes.get(each.topic, Change())).items():
            if broker in rooms:
                rooms[broker] -= comes
    return replace(cluster, rooms=rooms)


@given(cases())
@settings(max_examples=500, deadline=None)
def test_every_target_is_what_was_wished_for(case: Case) -> None:
    cluster, found, wishes = case
    for name, change in plan(cluster, found, wishes).items():
        topic, wish = next(each for each in found if each.topic == name), wishes[name]
        assert (change.refused is None) == bool(change.target)
        for partition, target in change.target.items():
            now = topic.replicas[partition]
            assert len(set(target)) == len(target) == (wish.replication_factor or len(now))
            assert set(target) <= set(cluster.racks) - cluster.leaving
            racks = [cluster.racks[broker] for broker in target]
            if wish.placement.kind is PlacementKind.RACKS:
                assert len(set(racks)) == len(racks)
                assert None not in racks
            if wish.placement.kind is PlacementKind.RACK:
                assert set(racks) == {wish.placement.rack}
            if wish.placement.kind is PlacementKind.BROKERS:
                assert set(target) <= wish.placement.brokers


@pytest.mark.thorough
@given(cases())
@settings(max_examples=300, deadline=None)
def test_a_second_plan_after_the_first_has_nothing_to_do(case: Case) -> None:
    cluster, found, wishes = case
    first = plan(cluster, found, wishes)
    again = plan(taken(cluster, found, first), carried_out(found, first), wishes)
    refused = {name for name, change in first.items() if change.refused is not None}
    assert {name for name, change in again.items() if change.refused is None} <= refused
    # The same input gives the same plan, whatever order it comes in.
    assert plan(cluster, found[::-1], dict(reversed(wishes.items()))) == first


@pytest.mark.thorough
@given(cases())
@settings(max_examples=300, deadline=None)
def test_spread_topics_have_no_rack_twice_if_there_are_racks_enough(case: Case) -> None:
    """This holds for any earlier replicas; replicas that can't move for lack of room stay."""
    cluster, found, wishes = case
    cluster = replace(cluster, rooms={})
    changes = plan(cluster, found, wishes)
    up = [broker for broker in cluster.racks if broker not in cluster.leaving]
    racks = {cluster.racks[broker] or f"broker {broker}" for broker in up}
    for topic in carried_out(found, changes):
        wish, change = wishes.get(topic.topic), changes.get(topic.topic)
        if wish is None or wish.placement.kind is not PlacementKind.SPREAD or (change and change.refused):
            continue
        for replicas in topic.replicas.values():
            used = [cluster.racks.get(broker) or f"broker {broker}" for broker in replicas]
            if len(racks) >= len(replicas) and set(replicas) <= set(up):
                assert len(set(used)) == len(used), (replicas, used)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_no_plan_lowers_the_number_of_replicas_unless_that_is_declared(case: Case) -> None:
    """Placements, drains and fills keep it, and don't move what has no leader."""
    cluster, found, wishes = case
    found = [replace(each, leaderless=frozenset(each.replicas.keys() & {1})) for each in found]
    kept = {name: replace(wish, replication_factor=None) for name, wish in wishes.items()}
    filled = fill(cluster, found, [min(cluster.racks)])
    for changes in (plan(cluster, found, kept), filled):
        for topic in found:
            for partition, target in changes.get(topic.topic, Change()).target.items():
                assert len(target) == len(topic.replicas[partition])
                assert partition not in topic.leaderless


@pytest.mark.thorough
@given(cases())
@settings(max_examples=300, deadline=None)
def test_kept_replicas_stay_and_a_kept_leader_leads(case: Case) -> None:
    cluster, found, wishes = case
    for name, change in plan(cluster, found, wishes).items():
        topic, wish = next(each for each in found if each.topic == name), wishes[name]
        kind = wish.placement.kind
        if kind not in (PlacementKind.ANY, PlacementKind.BROKERS):
            continue
        for partition, target in change.target.items():
            now = topic.replicas[partition]
            may_stay = [
                b
                for b in now
                if b not in cluster.leaving and (kind is not PlacementKind.BROKERS or b in wish.placement.brokers)
            ]
            kept = [broker for broker in now if broker in target]
            assert len(kept) == min(len(may_stay), len(target))
            # Adding before removing: with the kept ones in sync, as many are as now, or as many as are wanted.
            assert len({*now, *target}) >= max(len(now), len(target))
            if now[0] in target:
                assert target[0] == now[0]
            elif kept:
                assert target[0] in kept


@pytest.mark.thorough
@given(cases())
@settings(max_examples=300, deadline=None)
def test_no_added_replica_has_a_place_that_levels_more(case: Case) -> None:
    cluster, found, wishes = case
    changes = plan(LiveCluster(racks=cluster.racks, leaving=cluster.leaving), found, wishes)
    for topic in carried_out(found, changes):
        change = changes.get(topic.topic)
        if change is None or change.refused is not None:
            continue
        before = next(each for each in found if each.topic == topic.topic)
        wish = wishes[topic.topic]
        counts = Counter(broker for each in topic.replicas.values() for broker in each)
        allowed = [b for b in cluster.racks if b not in cluster.leaving]
        if wish.placement.kind is PlacementKind.BROKERS:
            allowed = sorted(wish.placement.brokers)
        if wish.placement.kind is PlacementKind.RACK:
            allowed = [b for b in allowed if cluster.racks[b] == wish.placement.rack]
        if wish.placement.kind is PlacementKind.RACKS:
            allowed = [b for b in allowed if cluster.racks[b] is not None]
        for partition, target in change.target.items():
            for source in set(target) - set(before.replicas[partition]):
                others = {cluster.racks[b] or f"broker {b}" for b in target if b != source}
                for broker in set(allowed) - set(target):
                    rack = cluster.racks[broker] or f"broker {broker}"
                    own = cluster.racks[source] or f"broker {source}"
                    if rack not in others or own in others:
                        assert counts[source] - counts[broker] < 2, (partition, source, broker, counts)


@pytest.mark.thorough
@given(cases(), st.integers(0, 8), st.integers(0, 8))
@settings(max_examples=300, deadline=None)
def test_it_moves_no_more_bytes_than_kafkas_generate(case: Case, start: int, shift: int) -> None:
    cluster, found, _ = case
    brokers = {b: rack for b, rack in cluster.racks.items() if b not in cluster.leaving}
    if len(brokers) < 2:
        return
    for topic in found:
        up = TopicReplicas(
            topic=topic.topic,
            replicas={p: tuple(b for b in each if b in cluster.racks) or (1,) for p, each in topic.replicas.items()},
            sizes=topic.sizes or dict.fromkeys(topic.replicas, 100),
        )
        factor = min(2, len(brokers))
        ours = plan(
            LiveCluster(racks=cluster.racks, leaving=cluster.leaving), [up], {up.topic: Wish(replication_factor=factor)}
        ).get(up.topic, Change())
        theirs = Change(target=generate(brokers, len(up.replicas), factor, start, shift))
        assert ours.refused is None
        mapped = Change(target=rebuild(cluster.racks, up.replicas, factor, list(brokers)))
        assert (bytes_moved(up, ours) or 0) <= (bytes_moved(up, theirs) or 0)
        assert (bytes_moved(up, ours) or 0) <= (bytes_moved(up, mapped) or 0)


@pytest.mark.thorough
@given(clusters(), st.integers(1, 12), st.integers(1, 3), st.sampled_from(["racks", "spread"]))
@settings(max_examples=300, deadline=None)
def test_created_topics_are_level_where_racks_are_alike(
    cluster: LiveCluster, partitions: int, factor: int, placement: str
) -> None:
    racks = {number: f"rack{number % 3}" for number in range(6)}
    wish = Wish(placement=parse_placement(placement), replication_factor=factor)
    (change,) = create(LiveCluster(racks=racks), [], {"t": (partitions, wish)}).values()
    replicas = Counter(broker for each in change.target.values() for broker in each)
    leaders = Counter(each[0] for each in change.target.values())
    by_rack = Counter(racks[broker] for each in change.target.values() for broker in each)
    for counts, keys in ((replicas, racks), (leaders, racks), (by_rack, set(racks.values()))):
        found = [counts[key] for key in keys]
        assert max(found) - min(found) <= 1, (counts, change.target)
    assert change.crowded == ()


@pytest.mark.thorough
@given(cases())
@settings(max_examples=200, deadline=None)
def test_a_filled_broker_gets_at_most_its_share_and_nobody_else_anything(case: Case) -> None:
    cluster, found, _ = case
    up = [b for b in cluster.racks if b not in cluster.leaving]
    changes = fill(cluster, found, up[:1])
    after = carried_out(found, changes)
    counts = Counter(broker for topic in after for each in topic.replicas.values() for broker in each)
    earlier = Counter(broker for topic in found for each in topic.replicas.values() for broker in each)
    share = sum(counts[broker] for broker in up) // max(1, len(up))
    assert counts[up[0]] <= max(share, earlier[up[0]]) if up else not changes
    for topic, change in ((each, changes[each.topic]) for each in found if each.topic in changes):
        for partition, target in change.target.items():
            assert set(target) - set(topic.replicas[partition]) == {up[0]}
            assert len(target) == len(topic.replicas[partition])


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (Wish(replication_factor=4), Refusal.TOO_FEW_BROKERS),
        (Wish(placement=parse_placement("racks"), replication_factor=3), Refusal.TOO_FEW_RACKS),
        (Wish(placement=parse_placement("rack:z")), Refusal.BROKERS_UNAVAILABLE),
        (Wish(placement=parse_placement("rack:b"), replication_factor=2), Refusal.TOO_FEW_BROKERS),
        (Wish(placement=parse_placement("brokers:1,7")), Refusal.BROKERS_UNAVAILABLE),
        (Wish(assignments={0: (1, 7)}), Refusal.BROKERS_UNAVAILABLE),
        (Wish(assignments={0: (3, 2)}), Refusal.NO_ROOM),
        (Wish(placement=parse_placement("brokers:3")), Refusal.NO_ROOM),
    ],
)
def test_impossible_wishes_are_refused_and_use_no_room(wish: Wish, error: Refusal) -> None:
    cluster = LiveCluster(racks={1: "a", 2: "a", 3: "b"}, rooms={3: 99})
    topic = TopicReplicas(topic="t", replicas={0: (1,), 1: (2,)}, sizes={0: 100, 1: 100})
    other = TopicReplicas(topic="u", replicas={0: (1,)}, sizes={0: 99})
    changes = plan(cluster, [topic, other], {"t": wish, "u": Wish(assignments={0: (3,)})})
    assert changes["t"].refused is not None
    assert changes["t"].refused[0] is error
    assert changes["u"].target == {0: (3,)}


def test_racks_that_are_shared_are_said() -> None:
    cluster = LiveCluster(racks={1: "a", 2: "a", 3: "a"})
    topic = TopicReplicas(topic="t", replicas={0: (1,), 1: (2, 3)})
    assert plan(cluster, [topic], {"t": Wish(replication_factor=2)})["t"].crowded == (0,)


def test_a_drained_broker_is_empty_and_in_sync_replicas_lead() -> None:
    racks: dict[int, str | None] = {number: f"rack{number % 3}" for number in range(6)}
    made = create(
        LiveCluster(racks=racks),
        [],
        {"t": (60, Wish(placement=Placement(kind=PlacementKind.RACKS), replication_factor=3))},
    )
    topic = TopicReplicas(topic="t", replicas=made["t"].target)
    change = plan(LiveCluster(racks=racks, leaving=frozenset([0])), [topic], {"t": Wish()})["t"]
    after = {**topic.replicas, **change.target}
    assert not any(0 in replicas for replicas in after.values())
    leaders = Counter(replicas[0] for replicas in after.values())
    # Broker 3 shares its rack with 0, and so no partition.
    heirs = [leaders[broker] for broker in (1, 2, 4, 5)]
    assert max(heirs) - min(heirs) <= 1
    assert all(target[0] in topic.replicas[partition] for partition, target in change.target.items())
