"""The pace of a quota, against a bucket of tokens as KIP-599 describes it, on a clock of its own (C17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from topicledger.kafka.pace import INTERVAL, Pace

MARGIN = 0.05


@dataclass
class Bucket:
    """A principal's tokens on a controller."""

    rate: float
    burst_seconds: float = 11.0
    level: float = 0.0
    at: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.rate * self.burst_seconds

    def spend(self, now: float, costs: Sequence[int]) -> tuple[int, float | None]:
        """How many topics are accepted, and where that isn't all, in how many seconds the bucket is at 0."""
        self.level = min(self.level + (now - self.at) * self.rate, self.rate * self.burst_seconds)
        self.at = now
        for accepted, cost in enumerate(costs):
            if self.level < 0:
                return accepted, round(-self.level / self.rate, 3)
            self.level -= cost
        return len(costs), None


@dataclass
class Sent:
    """The time and the requests that it took to send everything."""

    seconds: float
    requests: int
    throttled: int


def drive(
    bucket: Bucket,
    costs: Sequence[int],
    *,
    pace: Pace | None = None,
    start: float = 0.0,
    latency: float = 0.02,
    believed: Sequence[int] | None = None,
    meanwhile: Callable[[float], None] = lambda now: None,
) -> Sent:
    """Send topics at a pace until all are accepted; `meanwhile` happens before each request."""
    pace = pace or Pace()
    now, requests, throttled = start, 0, 0
    left, guesses = list(costs), list(believed or costs)
    quiet = 0.0
    while left:
        wait, count = pace.plan(now, guesses)
        assert wait >= 0
        assert 1 <= count <= len(left)
        now += max(wait, quiet)
        meanwhile(now)
        accepted, over = bucket.spend(now + latency / 2, left[:count])
        pace.answered(now, now + latency, sum(left[:accepted]), over)
        now += latency
        quiet = 0.0 if not over else over + MARGIN
        del left[:accepted], guesses[:accepted]
        requests += 1
        throttled += over is not None
        assert requests < 20_000, "this never ends"
    return Sent(now - start, requests, throttled)


def least(bucket: Bucket, costs: Sequence[int]) -> float:
    """Seconds that nobody can do without: the last topic needs only a bucket that isn't below 0."""
    return max(0.0, (sum(costs[:-1]) - bucket.rate * bucket.burst_seconds) / bucket.rate)


def test_without_a_quota_everything_is_sent_at_once_however_often() -> None:
    pace = Pace()
    for now in (0.0, 0.1, 100.0):
        assert pace.plan(now, [1] * 5_000) == (0.0, 5_000)
        pace.answered(now, now, 5_000, None)
    assert pace.rate is None
    assert pace.seconds_for(1) is None


def test_two_answers_over_the_quota_tell_its_rate() -> None:
    pace = Pace()
    pace.answered(0.0, 0.0, 220, 0.5)
    assert pace.rate is None
    assert pace.plan(0.0, [1] * 100) == (0.5 + INTERVAL, 100)
    pace.answered(2.5, 2.5, 41, 0.05)
    assert pace.rate == pytest.approx(20.0)
    assert pace.seconds_for(100) == pytest.approx(5.0)


def test_eight_hundred_topics_take_little_more_than_the_shortest_time() -> None:
    bucket, costs = Bucket(20.0), [1] * 800
    sent = drive(bucket, costs)
    assert sent.seconds <= 1.1 * least(bucket, costs)
    assert sent.requests <= 25
    assert sent.throttled <= 12


def test_a_topic_that_exceeds_the_bucket_is_sent_and_waited_for() -> None:
    bucket, costs = Bucket(20.0), [1] * 300 + [2_000] + [1] * 100
    sent = drive(bucket, costs)
    assert sent.seconds <= 1.1 * least(bucket, costs)
    assert sent.requests <= 40


def test_a_quota_that_is_raised_is_noticed() -> None:
    bucket = Bucket(20.0)

    def raised(now: float) -> None:
        bucket.rate = 20.0 if now < 20 else 2_000.0

    sent = drive(bucket, [1] * 40_000, meanwhile=raised)
    assert sent.seconds <= 20 + 2 * 20 + 30
    assert sent.requests <= 60


def test_a_quota_that_is_lowered_is_noticed() -> None:
    bucket = Bucket(200.0)

    def lowered(now: float) -> None:
        bucket.rate = 200.0 if now < 10 else 5.0

    # Tokens that aren't spent when the quota falls are lost, since the bucket shrinks: up to two requests' worth.
    before = 200 * int(11 + 10 - 2 * INTERVAL)
    sent = drive(bucket, [1] * (before + 5 * 100), meanwhile=lowered)
    assert sent.seconds <= 10 + 1.25 * 100
    assert sent.throttled <= 40


def test_a_quota_that_is_removed_slows_nothing_for_long() -> None:
    bucket = Bucket(5.0)

    def removed(now: float) -> None:
        bucket.rate = 5.0 if now < 10 else 1e9

    assert drive(bucket, [1] * 100_000, meanwhile=removed).seconds <= 60


def test_a_pause_between_phases_is_not_taken_for_a_slow_quota() -> None:
    pace, bucket = Pace(), Bucket(20.0)
    drive(bucket, [1] * 400, pace=pace)
    drive(bucket, [1] * 400, pace=pace, start=600.0)
    assert pace.rate == pytest.approx(20.0, rel=0.2)


def test_other_clients_slow_us_only_while_they_spend() -> None:
    bucket = Bucket(20.0)
    spent = 0.0

    def another_client(now: float) -> None:
        nonlocal spent
        if now < 30:
            bucket.spend(now, [])
            bucket.level -= 10 * now - spent
            spent = 10 * now

    costs = [1] * (220 + 30 * 10 + 30 * 20)
    sent = drive(bucket, costs, meanwhile=another_client)
    assert sent.seconds <= 1.25 * 60


def test_a_large_debt_of_another_client_is_waited_for_once() -> None:
    bucket = Bucket(20.0)
    done = False

    def another_client(now: float) -> None:
        nonlocal done
        if now > 20 and not done:
            done = True
            bucket.level -= 2_000

    costs = [1] * 1_500
    sent = drive(bucket, costs, meanwhile=another_client)
    assert sent.seconds <= 1.25 * (least(bucket, costs) + 100)


def test_a_lost_request_spoils_no_measurement() -> None:
    pace = Pace()
    pace.answered(0.0, 0.0, 220, 0.0)
    pace.answered(2.0, 2.0, 40, 0.0)
    assert pace.rate == pytest.approx(20.0)
    pace.lost()
    pace.answered(6.0, 6.0, 0, 0.0)
    assert pace.rate == pytest.approx(20.0)


def test_tokens_are_retried_once_others_leave_some() -> None:
    pace = Pace()
    pace.answered(0.0, 0.0, 0, 3.0)
    assert pace.plan(0.0, [1] * 10) == (3.0, 10)


def test_an_answer_that_tells_no_time_is_waited_for_all_the_same() -> None:
    pace = Pace()
    pace.answered(0.0, 0.0, 0, 0.0)
    assert pace.plan(0.0, [1])[0] > 0


@settings(deadline=None, max_examples=200)
@given(
    rate=st.floats(0.5, 500.0),
    burst=st.floats(INTERVAL, 60.0),
    latency=st.floats(0.0, 0.3),
    costs=st.lists(st.integers(1, 50), min_size=1, max_size=400),
    known=st.booleans(),
)
@example(
    rate=70.0,
    burst=2.0,
    latency=0.0,
    costs=[1, 1, 1, 38, 50, 50, 40, 50, 50, 14, 13, 15, 11, 10, 19, 9, 7, 6, 6, 4, 3, 2, 1],
    known=False,
)
def test_any_quota_is_used_up_and_asked_seldom(
    rate: float, burst: float, latency: float, costs: list[int], known: bool
) -> None:
    bucket = Bucket(rate, burst)
    sent = drive(bucket, costs, latency=latency, believed=None if known else [1] * len(costs))
    shortest = least(bucket, costs)
    assert sent.seconds <= 1.25 * shortest + 4 * INTERVAL + 10 * latency + max(costs) / rate
    # One topic at a time if each costs more than an interval's tokens; sometimes an answer with 89, too. Learning
    # the rate at the start of a short run takes up to 16.
    assert sent.requests <= 16 + 2 * sent.seconds / INTERVAL + 2 * sum(cost > rate * INTERVAL for cost in costs)


@settings(deadline=None, max_examples=100)
@given(
    rates=st.lists(st.floats(1.0, 200.0), min_size=2, max_size=6),
    costs=st.lists(st.integers(1, 20), min_size=1, max_size=300),
    stolen=st.floats(0.0, 50.0),
)
def test_everything_is_sent_in_the_end_with_any_quota(rates: list[float], costs: list[int], stolen: float) -> None:
    bucket = Bucket(rates[0])

    def meanwhile(now: float) -> None:
        bucket.rate = rates[int(now // 10) % len(rates)]
        if now < 60:
            bucket.level -= stolen

    slowest = sum(costs) + 60 / INTERVAL * stolen + 100 * stolen
    assert drive(bucket, costs, meanwhile=meanwhile).seconds <= 2 * slowest / min(rates) + 60
