"""Decode, render, plan, in both modes: at 1000x5, 2000x5, 5000x10 and 10000x10 services and endpoints.

Each size runs in a process of its own, so that its peak memory is its own. kube-proxy's figures are its work with
iptables replaced by nothing, recorded on a 2-core Debian 12 machine; only ratios and shapes carry over.
"""

from __future__ import annotations

import gc
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.generate import cluster_lines
from kproxy.api import Manifests

SIZES = ((1000, 5), (2000, 5), (5000, 10), (10000, 10))
KUBE_PROXY = {
    (1000, 5): ("31 ms", "5 ms", "165 kB"),
    (2000, 5): ("59 ms", "17 ms", "329 kB"),
    (5000, 10): ("338 ms", "81 ms", "824 kB"),
    (10000, 10): ("861 ms", "138 ms", "1.6 MB"),
}
PARTIALS = 50


class Measured(msgspec.Struct):
    """One size. Times in seconds, sizes in bytes, memory in KiB."""

    decode: float
    render: float
    partial: float
    partial_worst: float
    partial_bytes: int
    full_bytes: int
    rules: int
    peak: int
    table: float
    table_partial: float
    table_bytes: int


def measure(path: str) -> Measured:
    """Measures one cluster file in this process."""
    from kproxy.api import KubeProxyConfiguration, load_manifests
    from kproxy.render import Renderer, render_options
    from kproxy.services import IPFamily, ServiceState

    gc.disable()
    start = time.perf_counter()
    manifests = load_manifests([path])
    decoded = time.perf_counter()
    config = KubeProxyConfiguration(cluster_cidr="10.0.0.0/8")
    state = ServiceState.of(IPFamily.IPV4, "node-0", manifests.services, manifests.endpoint_slices)
    renderer = Renderer(render_options(config, IPFamily.IPV4, "node-0", manifests.nodes[0]))
    text = renderer.plan_full(state).restore_text
    rendered = time.perf_counter()

    partials, written = [], 0
    for number in range(PARTIALS):
        original = manifests.endpoint_slices[number * 7 % len(manifests.endpoint_slices)]
        changed = msgspec.structs.replace(original, endpoints=original.endpoints[:-1])
        begin = time.perf_counter()
        state.update_endpoint_slice(changed)
        partial = renderer.plan_partial(state, state.apply().touched)
        written = max(written, len(partial.restore_text))
        partials.append(time.perf_counter() - begin)
        assert len(partial.service_ports) == 1, "a partial plan names only what changed"
    peak, full_bytes, rules = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(text), text.count("\n-A ")
    table, updates, table_bytes = measure_table(manifests)
    return Measured(
        decode=decoded - start,
        render=rendered - decoded,
        partial=statistics.median(partials),
        partial_worst=max(partials),
        partial_bytes=written,
        full_bytes=full_bytes,
        rules=rules,
        peak=peak,
        table=table,
        table_partial=statistics.median(updates),
        table_bytes=table_bytes,
    )


def measure_table(manifests: Manifests) -> tuple[float, list[float], int]:
    """Seconds of a full render in nftables mode, those of changes of one slice each, and the bytes of the whole."""
    from kproxy.api import KubeProxyConfiguration
    from kproxy.render import render_options
    from kproxy.render.nftables.renderer import Renderer
    from kproxy.render.nftables.table import RenderedTable
    from kproxy.services import IPFamily, ServiceState

    config = KubeProxyConfiguration(mode="nftables", cluster_cidr="10.0.0.0/8")
    start = time.perf_counter()
    state = ServiceState.of(IPFamily.IPV4, "node-0", manifests.services, manifests.endpoint_slices)
    renderer = Renderer(render_options(config, IPFamily.IPV4, "node-0", manifests.nodes[0]))
    renderer.render(state)
    size = len(RenderedTable(state, renderer).restore_text)
    rendered = time.perf_counter() - start
    updates = []
    for number in range(PARTIALS):
        original = manifests.endpoint_slices[number * 7 % len(manifests.endpoint_slices)]
        begin = time.perf_counter()
        state.update_endpoint_slice(msgspec.structs.replace(original, endpoints=original.endpoints[:-1]))
        change = renderer.update(state, state.apply().touched)
        updates.append(time.perf_counter() - begin)
        assert change.chains, "an endpoint is gone"
        assert len(change.chains) <= 2, "an update names only what changed"
    return rendered, updates, size


def table_process(path: Path, directory: Path) -> float:
    """Seconds for `kproxy render --mode nftables --format restore` as a whole process."""
    kproxy = Path(sys.executable).parent / "kproxy"
    output = directory / "out.nft"
    start = time.perf_counter()
    subprocess.run(
        [kproxy, "render", "-f", path, "--mode", "nftables", "--format", "restore", "-o", output], check=True
    )
    return time.perf_counter() - start


def whole_process(path: Path, directory: Path) -> tuple[float, float | None]:
    """Seconds for `kproxy render --format restore` as a whole process, and for iptables-legacy-restore to load that."""
    output = directory / "out.restore"
    kproxy = Path(sys.executable).parent / "kproxy"
    start = time.perf_counter()
    subprocess.run([kproxy, "render", "-f", path, "--format", "restore", "-o", output], check=True)
    ours = time.perf_counter() - start
    if (
        shutil.which("iptables-legacy-restore") is None
        or subprocess.run(["id", "-u"], capture_output=True).stdout != b"0\n"
    ):
        return ours, None
    name = f"kp-bench-{path.stem}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with output.open("rb") as text:
            start = time.perf_counter()
            subprocess.run(
                ["ip", "netns", "exec", name, "iptables-legacy-restore", "--noflush"], stdin=text, check=True
            )
            return ours, time.perf_counter() - start
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def main() -> None:
    """Prints the tables."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="render: kproxy, kube-proxy v1.36.2 beside it (its own work, iptables replaced by nothing)")
    for heading in ("size", "decode", "full render", "kube-proxy", "one slice", "worst", "kube-proxy", "bytes"):
        table.add_column(heading, justify="right")
    for heading in ("kube-proxy", "rules", "full text", "peak memory"):
        table.add_column(heading, justify="right")
    tables = Table(
        title="the same in nftables mode: in one process after decoding, and kproxy render as a whole process"
    )
    for heading in ("size", "full render", "one slice", "full text", "whole process", "of iptables mode's"):
        tables.add_column(heading, justify="right")
    whole = Table(title="kproxy render --format restore as a whole process, from JSON lines")
    for heading in ("size", "kproxy render", "iptables-legacy-restore of its output", "ratio"):
        whole.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for size in SIZES:
            path = directory / f"{size[0]}x{size[1]}.jsonl"
            path.write_text("".join(f"{line}\n" for line in cluster_lines(*size)))
            done = subprocess.run(
                [sys.executable, "-m", "bench.render", str(path)], check=True, capture_output=True, text=True
            )
            got = Measured(**json.loads(done.stdout))
            full, partial, written = KUBE_PROXY[size]
            table.add_row(
                f"{size[0]}x{size[1]}",
                f"{got.decode * 1000:.0f} ms",
                f"{got.render * 1000:.0f} ms",
                full,
                f"{got.partial * 1000:.2f} ms",
                f"{got.partial_worst * 1000:.2f} ms",
                partial,
                f"{got.partial_bytes}",
                written,
                f"{got.rules}",
                f"{got.full_bytes / 1e6:.1f} MB",
                f"{got.peak / 1024:.0f} MiB",
            )
            ours, legacy = whole_process(path, directory)
            in_mode = table_process(path, directory)
            tables.add_row(
                f"{size[0]}x{size[1]}",
                f"{got.table * 1000:.0f} ms",
                f"{got.table_partial * 1000:.2f} ms",
                f"{got.table_bytes / 1e6:.1f} MB",
                f"{in_mode:.2f} s",
                f"{in_mode / ours:.2f}",
            )
            whole.add_row(
                f"{size[0]}x{size[1]}",
                f"{ours:.2f} s",
                f"{legacy:.2f} s" if legacy is not None else "needs root",
                f"{ours / legacy:.2f}" if legacy is not None else "",
            )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(whole)
    console.print(tables)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(sys.argv[1])).decode())
