"""The agent against a failing API server, a failing kernel and people who flush tables, in simulated time."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from tests.support.agent.kernel import DRIFTS, FaultyTables
from tests.support.agent.simulation import SYNC_PERIOD, World
from tests.support.examples import spread
from tests.support.kernel.table_edits import TABLE_KINDS

QUICK = 40
RUNS = 480
TABLE_RUNS = 80
CHUNKS = 8
STORES = 500.0
"""Simulated seconds in which the informers know the server's state: a hang that began just before the last fault costs
three minutes of silence, then a minute of back-off and a list."""

RETRY = 7.0
"""Seconds in which the kernel follows: the longest back-off between syncs, and a sync."""

SYNCS_PER_MINUTE = 90
"""One a second, and the quick first retries after failures."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of failures are logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def settle(seed: int, mode: str = MODE_IPTABLES) -> World:
    """One run from its first fault to its last, and on until the kernel is right; fails if it is not in time."""
    world = World(seed, mode)
    world.run(world.faults_until)
    until = world.now + STORES
    while not (world.in_step() and world.now > world.writes_until):
        assert world.now < until, f"seed {seed}: the informers do not know the server's state"
        world.run(world.now + 0.5)
    until = max(world.now + RETRY, world.last_drift + SYNC_PERIOD + RETRY)
    while difference := world.difference():
        assert world.now < until, f"seed {seed}: the kernel is not right: {difference}"
        world.run(world.now + 0.5)
    world.run(world.now + 2 * SYNC_PERIOD)
    assert not world.difference(), f"seed {seed}: it did not stay right"
    assert not world.proxier.failing
    assert max(world.observer.syncs.values()) <= SYNCS_PER_MINUTE, f"seed {seed}: hot loop {world.observer.syncs}"
    assert all(len(listener) == 0 for listener in world.listeners)
    return world


def assert_clean(world: World) -> None:
    """In nftables mode: no chain waits for its deletion any more."""
    desired = world.desired_table()
    assert isinstance(world.kernel, FaultyTables)
    held = world.kernel.held(desired).table
    assert held is not None
    assert held.chains.keys() == desired.chains.keys()


@pytest.mark.parametrize("chunk", spread(range(4), 1, 1))
def test_the_kernel_ends_with_the_servers_state(chunk: int) -> None:
    for seed in range(chunk * QUICK // 4, (chunk + 1) * QUICK // 4):
        settle(seed)


def test_the_table_ends_with_the_servers_state() -> None:
    """In nftables mode, where what is stale is deleted too in the end."""
    for seed in range(QUICK // 4):
        assert_clean(settle(seed, MODE_NFTABLES))


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("mode", [MODE_IPTABLES, MODE_NFTABLES])
def test_the_kernel_ends_with_the_servers_state_in_hundreds_of_runs(mode: str, chunk: int) -> None:
    runs = RUNS if mode == MODE_IPTABLES else TABLE_RUNS
    for seed in range(1000 + chunk * runs // CHUNKS, 1000 + (chunk + 1) * runs // CHUNKS):
        world = settle(seed, mode)
        if mode == MODE_NFTABLES:
            assert_clean(world)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [MODE_IPTABLES, MODE_NFTABLES])
def test_every_fault_occurs_and_drift_is_noticed_as_such(mode: str) -> None:
    wanted = {
        "refused", "dropped", "hang", "half", "garbage", "duplicate", "old", "stale", "410", "429", "500", "503", "403",
        "compact", "restart", "observer", "fails once", "fails for a while",
    }  # fmt: skip
    wanted |= {"jump", "locked", "fails half way", *DRIFTS} if mode == MODE_IPTABLES else {"killed", *TABLE_KINDS}
    faults: Counter[str] = Counter()
    drifts = failures = 0
    for seed in range(40):
        world = World(seed, mode)
        world.run(world.faults_until)
        faults += world.faults
        drifts += world.observer.drifts
        failures += world.observer.failures
        if wanted <= faults.keys() and drifts > 10 and failures > 100:
            return
    raise AssertionError(f"never {wanted - faults.keys()}; {drifts} drifts, {failures} failures")


@pytest.mark.parametrize("silent", ["services", "slices", "nodes"])
def test_nothing_is_programmed_before_every_cache_has_synced(silent: str) -> None:
    world = World(5, faults_until=0.0)
    getattr(world, silent).wake = 300.0
    world.run(299.0)
    assert world.kernel.restores == 0
    assert not world.observer.syncs
    world.run(310.0)
    assert not world.difference()


def test_a_kernel_that_only_fails_is_left_alone_between_tries() -> None:
    world = World(11, faults_until=0.0, writes_until=600.0)
    world.run(30.0)
    assert world.proxier.has_synced
    assert not world.proxier.failing
    world.kernel.break_until(1000.0)
    world.observer.syncs.clear()
    world.run(600.0)
    assert world.proxier.failing
    assert sum(world.observer.syncs.values()) < 570 / 4, "on average a try every five seconds, with quick first ones"
    world.run(1010.0)
    assert not world.difference()


@pytest.mark.parametrize(
    ("mode", "kind"),
    [*((MODE_IPTABLES, kind) for kind in DRIFTS), *((MODE_NFTABLES, kind) for kind in TABLE_KINDS)],
)
def test_drift_is_repaired_within_a_sync_period(mode: str, kind: str) -> None:
    """In nftables mode some kinds need a Service with endpoints, which not every seed has by then."""
    mended = 0
    for seed in range(12):
        world = World(seed, mode, faults_until=0.0, writes_until=20.0)
        world.run(200.0)
        assert not world.difference()
        if not world.kernel.drift(kind):
            assert mode == MODE_NFTABLES, "there is always something to change"
            continue
        assert world.difference(), "that was a change"
        world.run(world.now + SYNC_PERIOD + 1.5)
        assert not world.difference()
        assert world.observer.drifts == 1
        mended += 1
        if mended == 3 and mode == MODE_NFTABLES:
            break
    assert mended >= 3


@pytest.mark.soak
def test_memory_is_level_through_hours_of_faults() -> None:
    world = World(7, faults_until=1e9, writes_until=1e9, rate=0.05, pace=3.0)
    sizes = []
    tracemalloc.start()
    try:
        for quarter in range(1, 6):
            world.run(quarter * 900.0)
            world.storage.compact()
            world.faults.clear()
            world.observer.syncs.clear()
            for watcher in world.watchers:
                watcher.requests.clear()
            gc.collect()  # what only waits for the collector is no leak
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[-1] < sizes[1] + 300_000, sizes
