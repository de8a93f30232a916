"""How long to wait before something is tried again: rate limiters of work queues, and the back-off of reflectors.

client-go's util/workqueue/default_rate_limiters.go, and apimachinery's util/wait (backoff.go). Times are seconds; `now`
is the caller's clock, which does not go back by itself, `random` a function that gives a float in [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

ItemT = TypeVar("ItemT", bound=Hashable)
AnyItemT = TypeVar("AnyItemT", bound=Hashable, contravariant=True)


class RateLimiter(Protocol[AnyItemT]):
    """Says how long to wait, and counts how often it was asked."""

    def when(self, item: AnyItemT, now: float) -> float:
        """Seconds from `now` until the item may be tried again; each call counts as a failure of it."""
        ...

    def forget(self, item: AnyItemT) -> None:
        """The item succeeded, or was given up."""
        ...

    def num_requeues(self, item: AnyItemT) -> int:
        """How often `when` was asked for the item since it was last forgotten."""
        ...


class ItemExponentialFailureRateLimiter(Generic[ItemT]):
    """`base * 2 ** failures` seconds per item, at most `longest`. client-go's default: 5 ms to 1000 s."""

    def __init__(self, base: float = 0.005, longest: float = 1000.0) -> None:
        self._base = base
        self._longest = longest
        self._failures: dict[ItemT, int] = {}

    def when(self, item: ItemT, now: float) -> float:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        # 2 ** 64 of anything is past every limit; the guard keeps the power from overflowing.
        return min(self._base * 2.0 ** min(failures, 64), self._longest)

    def forget(self, item: ItemT) -> None:
        self._failures.pop(item, None)

    def num_requeues(self, item: ItemT) -> int:
        return self._failures.get(item, 0)


class TokenBucket:
    """`qps` tokens a second, `burst` at most; taken ahead of time, as golang.org/x/time/rate's Reserve does.

    Invariant: `_tokens` was true at `_at`; below 0 it counts reservations that have yet to come due.
    """

    def __init__(self, qps: float, burst: int) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError("a bucket needs a positive rate and room for a token")
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Takes a token; the seconds until it is there."""
        if self._at is not None and now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)


class BucketRateLimiter(Generic[ItemT]):
    """One bucket for all items. client-go's default: 10 a second, 100 at once."""

    def __init__(self, qps: float = 10.0, burst: int = 100) -> None:
        self._bucket = TokenBucket(qps, burst)

    def when(self, item: ItemT, now: float) -> float:
        return self._bucket.reserve(now)

    def forget(self, item: ItemT) -> None: ...

    def num_requeues(self, item: ItemT) -> int:
        return 0


class MaxOfRateLimiter(Generic[ItemT]):
    """The longest wait that any of several limiters asks for."""

    def __init__(self, limiters: Sequence[RateLimiter[ItemT]]) -> None:
        self._limiters = tuple(limiters)

    def when(self, item: ItemT, now: float) -> float:
        return max((limiter.when(item, now) for limiter in self._limiters), default=0.0)

    def forget(self, item: ItemT) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: ItemT) -> int:
        return max((limiter.num_requeues(item) for limiter in self._limiters), default=0)


def default_controller_rate_limiter() -> MaxOfRateLimiter[ItemT]:
    """Per item 5 ms to 1000 s, over all items 10 a second: client-go's DefaultTypedControllerRateLimiter."""
    return MaxOfRateLimiter((ItemExponentialFailureRateLimiter(), BucketRateLimiter()))


Random = Callable[[], float]


class BackoffManager:
    """Delays of 800 ms, then twice as long each, up to 30 s, each times 1 to 2 by chance: client-go's for reflectors.

    Starts again when it was not asked for 2 minutes, or when the clock went back.
    """

    INITIAL: Final = 0.8
    CAP: Final = 30.0
    RESET_AFTER: Final = 120.0

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = self.INITIAL
        self._last: float | None = None

    def next(self, now: float) -> float:
        """The seconds to wait from `now`; each call makes the following delay longer."""
        if self._last is None or not 0 <= now - self._last <= self.RESET_AFTER:
            self._next = self.INITIAL
        self._last = now
        delay = self._next
        self._next = min(self._next * 2, self.CAP)
        return delay * (1 + self._random())
