"""Rate limiters: client-go's numbers."""

from __future__ import annotations

import pytest

from kproxy.informer import (
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
