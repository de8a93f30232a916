"""Decode, render, plan, in all modes: at 1000x5, 2000x5, 5000x10 and 10000x10 services and endpoints.

kube-proxy's figures are its work with iptables replaced by nothing, recorded on a 2-core Debian 12 machine; only ratios
and shapes carry over. The last table has the switch from IPVS mode beside rendering that mode.
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.generate import write_cluster
from bench.report import KPROXY, answer, fresh_namespace, in_own_process, mib, ms, peak, ratio, s, show, timed
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
    most, full_bytes, rules = peak(), len(text), text.count("\n-A ")
    table, updates, table_bytes = measure_table(manifests)
    return Measured(
        decode=decoded - start,
        render=rendered - decoded,
        partial=statistics.median(partials),
        partial_worst=max(partials),
        partial_bytes=written,
        full_bytes=full_bytes,
        rules=rules,
        peak=most,
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


def legacy_restore(path: Path) -> float | None:
    """Seconds for iptables-legacy-restore to load a file into a namespace; None if that cannot be tried."""
    if shutil.which("iptables-legacy-restore") is None or os.geteuid() != 0:
        return None
    with fresh_namespace() as name, path.open("rb") as text:
        return timed("ip", "netns", "exec", name, "iptables-legacy-restore", "--noflush", stdin=text)


def main() -> None:
    """Prints the tables."""
    rows, whole, tables, servers = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "out.restore"
        for size in SIZES:
            path = write_cluster(*size, Path(name))
            got = in_own_process(Measured, "render", path)
            full, partial, written = KUBE_PROXY[size]
            rows.append({
                "size": path.stem, "decode": ms(got.decode, 0), "full render": ms(got.render, 0), "kube-proxy": full,
                "one slice": ms(got.partial, 2), "worst": ms(got.partial_worst, 2), "kube-proxy's": partial,
                "bytes": f"{got.partial_bytes}", "kube-proxy's bytes": written, "rules": f"{got.rules}",
                "full text": f"{got.full_bytes / 1e6:.1f} MB", "peak memory": mib(got.peak),
            })  # fmt: skip
            render = (KPROXY, "render", "-f", path, "--format", "restore", "-o", output)
            ours = timed(*render)
            legacy = legacy_restore(output)
            whole.append({
                "size": path.stem, "kproxy render": s(ours), "ratio": ratio(ours, legacy),
                "iptables-legacy-restore of its output": s(legacy) if legacy is not None else "needs root",
            })  # fmt: skip
            in_mode = timed(*render, "--mode", "nftables")
            tables.append({
                "size": path.stem, "full render": ms(got.table, 0), "one slice": ms(got.table_partial, 2),
                "full text": f"{got.table_bytes / 1e6:.1f} MB", "whole process": s(in_mode),
                "of iptables mode's": ratio(in_mode, ours),
            })  # fmt: skip
            finds = ("sh", "-c", '"$@"; [ $? -eq 1 ]', "sh")  # migrate's exit code says that modes differ
            switch = (*finds, KPROXY, "migrate", path, "--from", "ipvs", "-4")
            servers.append({
                "size": path.stem, "kproxy render --mode ipvs": s(timed(*render, "--mode", "ipvs")),
                "kproxy migrate --from ipvs -4": s(timed(*switch, stderr=subprocess.DEVNULL)),
            })  # fmt: skip
    show("render: kproxy, kube-proxy v1.36.2 beside it (its own work, iptables replaced by nothing)", rows)
    show("kproxy render --format restore as a whole process, from JSON lines", whole)
    show("the same in nftables mode: in one process after decoding, and kproxy render as a whole process", tables)
    show("IPVS mode, as whole processes", servers)


if __name__ == "__main__":
    answer(measure(sys.argv[1]))
