"""Rate limiters and back-off: client-go's numbers, for any clock and any dice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.informer.ratelimit import (
    BackoffManager,
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    TokenBucket,
    default_controller_rate_limiter,
)


def test_exponential_per_item_from_5_ms_to_1000_s() -> None:
    limiter: ItemExponentialFailureRateLimiter[str] = ItemExponentialFailureRateLimiter()
    assert [limiter.when("a", 0.0) for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert limiter.when("b", 0.0) == 0.005
    assert limiter.num_requeues("a") == 4
    for _ in range(100):
        last = limiter.when("a", 0.0)
    assert last == 1000.0
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0
    assert limiter.when("a", 0.0) == 0.005


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(10.0, 3)
    assert [round(bucket.reserve(0.0), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    assert bucket.reserve(0.25) == pytest.approx(0.05)
    assert [bucket.reserve(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve(99.0) > 0, "a clock that went back gives nothing"
    with pytest.raises(ValueError, match="positive rate"):
        TokenBucket(0.0, 1)


def test_the_longest_of_several() -> None:
    slow: BucketRateLimiter[str] = BucketRateLimiter(1.0, 1)
    limiter: MaxOfRateLimiter[str] = MaxOfRateLimiter((ItemExponentialFailureRateLimiter(), slow))
    assert limiter.when("a", 0.0) == 0.005
    assert limiter.when("a", 0.0) == 1.0
    assert limiter.num_requeues("a") == 2
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0
    default: MaxOfRateLimiter[str] = default_controller_rate_limiter()
    waits = [default.when(f"item {number}", 0.0) for number in range(101)]
    assert waits[99] == 0.005
    assert waits[100] == pytest.approx(0.1)


def test_delays_double_up_to_the_cap_and_start_again_after_two_quiet_minutes() -> None:
    manager = BackoffManager(lambda: 0.0)
    now, delays = 0.0, []
    for _ in range(8):
        delays.append(manager.next(now))
        now += delays[-1]
    assert delays == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert manager.next(now + 121) == 0.8
    assert manager.next(now + 122) == 1.6
    assert manager.next(0.0) == 0.8, "a clock that went back starts again"


def test_jitter_at_most_doubles() -> None:
    assert BackoffManager(lambda: 0.5).next(0.0) == 0.8 * 1.5


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1, exclude_max=True)), max_size=50))
def test_every_delay_is_within_bounds(steps: list[tuple[float, float]]) -> None:
    dice = iter([chance for _, chance in steps])
    manager = BackoffManager(lambda: next(dice))
    now = 0.0
    for move, _ in steps:
        now += move
        assert 0.8 <= manager.next(now) <= 60.0
