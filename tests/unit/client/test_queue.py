"""The work queue with real threads."""

from __future__ import annotations

import threading
import time

from kproxy.client import BlockingWorkQueue
from tests.support.waiting import PATIENCE


def test_workers_share_a_queue_and_never_an_item() -> None:
    queue: BlockingWorkQueue[int] = BlockingWorkQueue()
    busy: set[int] = set()
    done: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        while (taken := queue.get()) is not None:
            with lock:
                assert taken.item not in busy
                busy.add(taken.item)
            time.sleep(0.001)
            with lock:
                busy.discard(taken.item)
                done.append(taken.item)
            queue.forget(taken.item)
            queue.done(taken.item)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(20):
        for item in range(10):
            queue.add(item)
        time.sleep(0.001)
    queue.shut_down()
    for worker in workers:
        worker.join(PATIENCE)
        assert not worker.is_alive()
    assert set(done) == set(range(10))


def test_get_waits_for_what_comes_due() -> None:
    queue: BlockingWorkQueue[str] = BlockingWorkQueue()
    begun = time.monotonic()
    queue.add_after("later", 0.05)
    queue.add_rate_limited("sooner")
    first, second = queue.get(), queue.get()
    assert first is not None
    assert second is not None
    assert (first.item, second.item) == ("sooner", "later")
    assert time.monotonic() - begun >= 0.05
    queue.done("sooner")
    queue.done("later")
    queue.shut_down()
    assert queue.get() is None
