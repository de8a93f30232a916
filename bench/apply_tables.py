"""Programming the kernel in nftables mode: the measurements of `bench.apply`, beside one `nft -f` of the same table."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from pathlib import Path

import msgspec

from bench.apply import CHANGES, FirstApply, OneSlice, load
from bench.report import fresh_namespace, timed

ROUNDS = 3


def load_table(namespace: str, script: str) -> float:
    """Seconds that one `nft -f` takes."""
    return timed("ip", "netns", "exec", namespace, "nft", "-f", "-", input=script.encode())


def children_cpu() -> float:
    """Seconds of processor time that ended child processes have taken, in user space and the kernel."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Loads(msgspec.Struct):
    """What first applies and plain loads took, in turn: seconds of each round."""

    plain: list[float] = []
    plain_cpu: list[float] = []
    written: list[float] = []
    cpu: list[float] = []
    verified: list[float] = []


def first_apply(size: tuple[int, int], directory: Path) -> FirstApply:
    """Measures a first apply, and one `nft -f` of the same table, one object a line, in turn: medians of the rounds."""
    from kproxy.linux.namespace import Namespace
    from kproxy.linux.nftables.executor import NftExecutor, find_nft
    from kproxy.linux.sync.nftables.desired import DesiredTable, table_text
    from kproxy.linux.sync.nftables.reconcile import reconcile_table
    from kproxy.render.nftables.renderer import Renderer
    from kproxy.services import IPFamily

    class Counting(NftExecutor):
        """Counts the processor time of what writes."""

        cpu = 0.0

        def run(self, script: str) -> None:
            before = children_cpu()
            super().run(script)
            self.cpu += children_cpu() - before

    from tests.support.linux.nft_tables import table_script

    _, state, other = load(size, directory)
    renderer = Renderer(other.options)
    renderer.render(state)
    text = table_text(renderer)
    desired = DesiredTable(IPFamily.IPV4, text)
    loads = Loads()
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        with fresh_namespace() as name:
            before = children_cpu()
            loads.plain.append(load_table(name, table_script(text)))
            loads.plain_cpu.append(children_cpu() - before)
        with fresh_namespace() as name, Namespace.named(name) as namespace:
            executor = Counting(namespace, find_nft(), IPFamily.IPV4)
            start = time.perf_counter()
            outcome = reconcile_table(executor, desired)
            loads.verified.append(time.perf_counter() - start)
            loads.cpu.append(executor.cpu)
            parts = {step.step: step.seconds for step in outcome.report.steps}
            loads.written.append(parts["read"] + parts["compare"] + parts["write"])
            start = time.perf_counter()
            again = reconcile_table(executor, desired)
            seconds = time.perf_counter() - start
            assert not again.difference, "a second apply has nothing to write"
    plain, plain_cpu, written, cpu, verified = map(statistics.median, msgspec.structs.astuple(loads))
    return FirstApply(plain, written, verified, seconds, parts, cpu, plain_cpu)


def one_slice(size: tuple[int, int], directory: Path) -> OneSlice:
    """Measures one changed EndpointSlice at a time, and a bare `nft -f` of the transaction of such a change."""
    from kproxy.linux.namespace import Namespace
    from kproxy.linux.nftables.executor import NftExecutor, find_nft
    from kproxy.linux.sync.nftables.backend import TableSyncer
    from kproxy.services import IPFamily

    class Noting(NftExecutor):
        """Keeps the last script."""

        script = ""

        def run(self, script: str) -> None:
            self.script = script
            super().run(script)

    manifests, state, other = load(size, directory)
    ours, bare = [], []
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = Noting(namespace, find_nft(), IPFamily.IPV4)
        syncer = TableSyncer(executor, state, other.options)
        syncer.resync()
        gc.collect()
        gc.freeze()
        slices = manifests.endpoint_slices
        for number in range(CHANGES):
            original = slices[number * 7 % len(slices)]
            changed = msgspec.structs.replace(original, endpoints=original.endpoints[:-1])
            start = time.perf_counter()
            state.update_endpoint_slice(changed)
            syncer.sync()
            ours.append(time.perf_counter() - start)
            if not any(line.startswith(("add element", "delete element")) for line in executor.script.splitlines()):
                bare.append(load_table(name, executor.script))
            state.update_endpoint_slice(original)
            syncer.sync()
    return OneSlice(statistics.median(ours), max(ours), statistics.median(bare or [0.0]), max(bare or [0.0]))
