"""Work queue: fair, each item once, delays, drain, metrics; against a model in simulated time."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kproxy.informer import WorkQueue
from kproxy.informer.ratelimit import ItemExponentialFailureRateLimiter
from kproxy.informer.workqueue import Work

ITEMS = st.sampled_from("abcd")


def test_of_several_delays_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10.0, 0.0)
    queue.add_after("b", 3.0, 0.0)
    queue.add_after("a", 5.0, 0.0)
    queue.add_after("a", 20.0, 0.0)
    assert queue.next_ready(0.0) == 3.0
    assert queue.get(2.9) is None
    assert queue.get(3.0) == Work("b")
    assert queue.next_ready(3.0) == 2.0
    assert queue.get(5.0) == Work("a")
    queue.done("a", 5.0)
    assert queue.next_ready(5.0) is None
    assert queue.get(50.0) is None
    queue.add_after("c", 0.0, 50.0)
    assert queue.get(50.0) == Work("c")


def test_rate_limited_items_wait_as_their_limiter_says() -> None:
    queue: WorkQueue[str] = WorkQueue(ItemExponentialFailureRateLimiter(1.0, 60.0))
    now = 0.0
    for wait in (1.0, 2.0, 4.0):
        queue.add_rate_limited("a", now)
        assert queue.next_ready(now) == wait
        now += wait
        assert queue.get(now) == Work("a")
        queue.done("a", now)
    assert queue.num_requeues("a") == 3
    queue.forget("a")
    assert queue.num_requeues("a") == 0


def test_shut_down_gives_what_is_left_and_drain_waits_for_what_is_under_way() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0.0)
    queue.add("b", 0.0)
    queue.add_after("late", 1.0, 0.0)
    assert queue.get(0.0) == Work("a")
    queue.add("a", 0.0)
    queue.shut_down_with_drain()
    queue.add("c", 0.0)
    assert queue.get(9.0) == Work("b")
    queue.done("b", 9.0)
    assert not queue.is_finished, "a is dirty and comes back"
    queue.done("a", 9.0)
    assert queue.get(9.0) == Work("a")
    assert not queue.is_drained
    queue.done("a", 9.0)
    assert queue.is_drained
    assert queue.is_finished
    plain: WorkQueue[str] = WorkQueue()
    plain.shut_down()
    assert plain.is_finished


def test_metrics() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0.0)
    queue.add("b", 0.0)
    queue.get(2.0)
    queue.get(3.0)
    assert queue.unfinished_work(5.0) == 5.0
    assert queue.longest_running(5.0) == 3.0
    queue.done("a", 5.0)
    queue.add_rate_limited("a", 5.0)
    metrics = queue.metrics
    assert (metrics.adds, metrics.retries) == (2, 1)
    assert (metrics.queue_duration.count, metrics.queue_duration.sum) == (2, 5.0)
    assert (metrics.work_duration.count, metrics.work_duration.sum) == (1, 3.0)
    assert sum(metrics.work_duration.counts) == 1
    assert metrics.work_duration.counts[-2] == 1, "up to ten seconds"
    queue.done("nosuch", 5.0)
    assert metrics.work_duration.count == 1


class WorkQueueModel(RuleBasedStateMachine):
    """No item is lost, none is with two workers, and what was added after it was taken comes again."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue()
        self.now = 0.0
        self.needed: set[str] = set()
        self.working: set[str] = set()
        self.delayed: dict[str, float] = {}

    @rule(item=ITEMS)
    def add(self, item: str) -> None:
        self.queue.add(item, self.now)
        self.needed.add(item)

    @rule(item=ITEMS, delay=st.floats(0.5, 5))
    def add_after(self, item: str, delay: float) -> None:
        self.queue.add_after(item, delay, self.now)
        self.delayed[item] = min(self.delayed.get(item, self.now + delay), self.now + delay)

    @rule(seconds=st.floats(0.1, 3))
    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        for item in [item for item, at in self.delayed.items() if at <= self.now]:
            del self.delayed[item]
            self.needed.add(item)
        work = self.queue.get(self.now)
        if work is None:
            assert self.needed <= self.working
        else:
            assert work.item in self.needed - self.working
            self.needed.discard(work.item)
            self.working.add(work.item)

    @rule(item=ITEMS)
    def done(self, item: str) -> None:
        self.queue.done(item, self.now)
        self.working.discard(item)

    @invariant()
    def depth(self) -> None:
        assert len(self.queue) == len(self.needed - self.working)


TestWorkQueue = WorkQueueModel.TestCase
