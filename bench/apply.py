"""Programming the kernel: `kproxy apply`'s engine beside one plain iptables-restore of the same text, in the same run.

nftables mode stands beside one `nft -f` of the same table (`bench.apply_tables`).

Everything happens in namespaces made here. A first apply is timed from a fresh namespace with rendered rules at hand
to rules in the kernel, and again to rules read back and compared; the plain restore only writes. A changed slice is
timed from the changed object to the rule in the kernel; its peer is one bare restore of only the changed chains.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.generate import write_cluster
from bench.report import answer, fresh_namespace, in_own_process, ms, ratio, s, show, timed

if TYPE_CHECKING:
    from kproxy.api import Manifests
    from kproxy.render import Renderer
    from kproxy.services import ServiceState

FIRST_SIZES = ((2000, 5), (5000, 10))
CHANGE_SIZES = ((2000, 5), (5000, 10))
CHANGES = 20
NFTABLES = "nftables"
VARIANTS = ("nft", "legacy", NFTABLES)
PLAIN_NFT_LIMIT = 3000
"""Services above which the plain restore of iptables-nft takes minutes and is not run."""


class FirstApply(msgspec.Struct):
    """Seconds. `plain` is None where it was not waited for.

    `cpu` is the processor time of the programs that wrote, and `plain_cpu` of the plain one, where these were measured:
    on a busy machine their ratio says more than that of the times.
    """

    plain: float | None
    written: float
    verified: float
    again: float
    parts: dict[str, float]
    cpu: float | None = None
    plain_cpu: float | None = None


class OneSlice(msgspec.Struct):
    """Seconds: medians and the worst of several changes."""

    ours: float
    worst: float
    bare: float
    bare_worst: float


def load(size: tuple[int, int], directory: Path) -> tuple[Manifests, ServiceState, Renderer]:
    """A cluster of that size: its manifests, state and renderer."""
    from kproxy.api import KubeProxyConfiguration, load_manifests
    from kproxy.render import Renderer, render_options
    from kproxy.services import IPFamily, ServiceState

    manifests = load_manifests([str(write_cluster(*size, directory))])
    config = KubeProxyConfiguration(cluster_cidr="10.0.0.0/8")
    state = ServiceState.of(IPFamily.IPV4, "node-0", manifests.services, manifests.endpoint_slices)
    renderer = Renderer(render_options(config, IPFamily.IPV4, "node-0", manifests.nodes[0]))
    return manifests, state, renderer


def restore(command: str, namespace: str, text: str) -> float:
    """Seconds that one plain restore takes."""
    return timed("ip", "netns", "exec", namespace, f"{command}-restore", "--noflush", input=text.encode())


def first_apply(size: tuple[int, int], variant_name: str, directory: Path) -> FirstApply:
    """Measures a first apply, and the plain restore of the same text."""
    if variant_name == NFTABLES:
        from bench import apply_tables

        return apply_tables.first_apply(size, directory)
    from kproxy.linux.iptables.executor import IptablesExecutor, find_iptables
    from kproxy.linux.namespace import Namespace
    from kproxy.linux.sync.iptables.desired import desired_rules
    from kproxy.linux.sync.iptables.reconcile import reconcile_rules
    from kproxy.netfilter.hooks import Variant
    from kproxy.render import RenderedTarget
    from kproxy.render.iptables.save import jump_text
    from kproxy.services import IPFamily

    _, state, renderer = load(size, directory)
    variant = Variant(variant_name)
    rendered = RenderedTarget(state, renderer, renderer.plan_full(state))
    text = rendered.restore_text
    command = f"iptables-{variant_name}"
    plain = None
    if variant is Variant.LEGACY or size[0] <= PLAIN_NFT_LIMIT:
        with fresh_namespace() as name:
            restore(command, name, jump_text())
            plain = restore(command, name, text)
    gc.collect()
    gc.disable()
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(IPFamily.IPV4, variant))
        start = time.perf_counter()
        outcome = reconcile_rules(executor, desired_rules(rendered))
        verified = time.perf_counter() - start
        parts = {step.step: step.seconds for step in outcome.steps}
        start = time.perf_counter()
        again = reconcile_rules(executor, desired_rules(rendered))
        seconds = time.perf_counter() - start
        assert not again.difference, "a second apply has nothing to write"
    written = parts["read"] + parts["compare"] + parts["write"]
    return FirstApply(plain, written, verified, seconds, parts)


def one_slice(size: tuple[int, int], variant_name: str, directory: Path) -> OneSlice:
    """Measures one changed EndpointSlice at a time, and a bare restore of only the chains it changes."""
    if variant_name == NFTABLES:
        from bench import apply_tables

        return apply_tables.one_slice(size, directory)
    from kproxy.linux.iptables.executor import IptablesExecutor, find_iptables
    from kproxy.linux.namespace import Namespace
    from kproxy.linux.sync.iptables.backend import Syncer
    from kproxy.linux.sync.iptables.reconcile import plan_runs, run_text
    from kproxy.netfilter.hooks import Variant
    from kproxy.services import IPFamily

    manifests, state, renderer = load(size, directory)
    variant = Variant(variant_name)
    ours, bare = [], []
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        executor = IptablesExecutor(namespace, find_iptables(IPFamily.IPV4, variant))
        syncer = Syncer(executor, state, renderer)
        syncer.resync()
        gc.collect()
        gc.freeze()
        command = f"iptables-{variant_name}"
        slices = manifests.endpoint_slices
        for number in range(CHANGES):
            original = slices[number * 7 % len(slices)]
            changed = msgspec.structs.replace(original, endpoints=original.endpoints[:-1])
            start = time.perf_counter()
            state.update_endpoint_slice(changed)
            syncer.sync()
            ours.append(time.perf_counter() - start)
            # Its peer: the text of a change of the same size, back to what was there, with nothing else around it.
            state.update_endpoint_slice(original)
            plan = renderer.plan_partial(state, state.apply().touched)
            text = "".join(map(run_text, plan_runs(plan.change, variant)))
            bare.append(restore(command, name, text))
    return OneSlice(statistics.median(ours), max(ours), statistics.median(bare), max(bare))


def first_rows() -> Iterator[dict[str, str]]:
    """The rows of first applies."""
    for variant in VARIANTS:
        for size in FIRST_SIZES:
            first = in_own_process(FirstApply, "apply", "first", *size, variant)
            yield {
                "size": f"{size[0]}x{size[1]}", "variant": variant,
                "plain restore": s(first.plain) if first.plain is not None else "not waited for",
                "in the kernel": s(first.written), "ratio": ratio(first.written, first.plain),
                "of CPU": ratio(first.cpu, first.plain_cpu), "read back too": s(first.verified),
                "its ratio": ratio(first.verified, first.plain), "apply again": s(first.again),
            }  # fmt: skip


def change_rows() -> Iterator[dict[str, str]]:
    """The rows of one changed slice."""
    for variant in VARIANTS:
        for size in CHANGE_SIZES:
            found = in_own_process(OneSlice, "apply", "slice", *size, variant)
            yield {
                "size": f"{size[0]}x{size[1]}", "variant": variant, "kproxy": ms(found.ours), "worst": ms(found.worst),
                "bare restore of the changed chains": ms(found.bare), "its worst": ms(found.bare_worst),
                "ratio": ratio(found.ours, found.bare),
            }  # fmt: skip


def main() -> None:
    """Prints the tables."""
    if os.geteuid() != 0:
        print("apply: needs root, for network namespaces")
        return
    show("apply: a first apply beside one plain iptables-restore of the same text", first_rows())
    show("apply: one changed slice, from the object to the rule in the kernel", change_rows())


if __name__ == "__main__":
    measure = {"first": first_apply, "slice": one_slice}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as made:
        answer(measure((int(sys.argv[2]), int(sys.argv[3])), sys.argv[4], Path(made)))
