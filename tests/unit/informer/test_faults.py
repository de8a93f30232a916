"""Reflector and informers against a server that fails in every way it can, hundreds of times, in simulated time."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest

from tests.support.examples import spread
from tests.support.informer.simulation import SERVICE, Simulation

RUNS = 400
CHUNKS = 8
SETTLE = 420.0
"""Simulated seconds in which a run must be right after its last fault: a hang that began just before costs three
minutes of silence, then at most a minute of back-off, a refused streaming list and a list."""

REQUESTS_PER_MINUTE = 120
"""A watch may start once a second; everything else passes a back-off of 0.8 s or more."""


@pytest.mark.parametrize("chunk", spread(range(CHUNKS), 2, 2))
def test_every_run_ends_with_the_servers_state(chunk: int) -> None:
    for seed in range(chunk * RUNS // CHUNKS, (chunk + 1) * RUNS // CHUNKS):
        run = Simulation(seed)
        run.run(run.faults_until)
        until = run.now + SETTLE
        while run.now < until and not (run.in_step() and run.now > run.writes_until):
            run.run(run.now + 1.0)
        assert run.in_step(), f"seed {seed}: not settled"
        run.run(run.now + 1.0)
        assert run.recorder.seen == run.late.seen == run.storage.keys(SERVICE), f"seed {seed}: another picture"
        assert max(run.watcher.requests.values()) <= REQUESTS_PER_MINUTE, (
            f"seed {seed}: hot loop {run.watcher.requests}"
        )
        assert all(len(listener) == 0 for listener in run.informer.listeners)


def test_every_fault_occurs() -> None:
    faults: Counter[str] = Counter()
    servers: Counter[str] = Counter()
    for seed in range(120):
        run = Simulation(seed)
        run.run(run.faults_until)
        faults += run.faults
        servers[run.streaming] += 1
    assert min(faults.values()) >= 20, faults
    assert set(servers) == set(Simulation.STREAMING)


def test_a_server_that_only_fails_is_left_alone_between_tries() -> None:
    for seed in range(30):
        run = Simulation(seed, faults_until=3600.0, rate=1.0)
        run.run(3600.0)
        assert max(run.watcher.requests.values()) <= REQUESTS_PER_MINUTE
        assert sum(run.watcher.requests.values()) / 60 < 30, "on average a request every two seconds at most"


def test_memory_is_level_through_hours_of_faults() -> None:
    run = Simulation(7, faults_until=1e9, writes_until=1e9, rate=0.2)
    tracemalloc.start()
    try:
        sizes = []
        for hour in range(1, 5):
            run.run(hour * 1800.0)
            run.storage.compact()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] < sizes[0] + 300_000, sizes
