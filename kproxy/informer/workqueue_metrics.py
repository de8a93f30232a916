"""What a work queue counts, in client-go's terms (util/workqueue/metrics.go); the exporter gives them their names."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 2))
"""Upper bounds in seconds: client-go's ExponentialBuckets(10e-9, 10, 10)."""


@dataclass(slots=True)
class Histogram:
    """Observations by bucket: `counts[i]` are those up to `BUCKETS[i]` and above the bound before; the last, more."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum: float = 0.0
    count: int = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.sum += value
        self.count += 1


@dataclass(slots=True)
class WorkQueueMetrics:
    """Counters since the start; times in seconds.

    workqueue_adds_total, workqueue_retries_total, workqueue_queue_duration_seconds, workqueue_work_duration_seconds.
    Depth, unfinished work and the longest running processor are questions to the queue.
    """

    adds: int = 0
    retries: int = 0
    queue_duration: Histogram = field(default_factory=Histogram)
    work_duration: Histogram = field(default_factory=Histogram)
