"""Trace: reading and indexing a dump, and one packet through it, at 1000x5, 5000x10 and 7000x10 services and endpoints.

The dump is what iptables-save prints on a node with that many ClusterIP Services: 5000x10 makes 160,000 rules, 7000x10
makes 224,000. Each size runs in a
process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.generate import cluster_lines, endpoint_ip, service

SIZES = ((1000, 5), (5000, 10), (7000, 10))
TRACES = 50
NODE_IP = "192.168.0.2"


class Measured(msgspec.Struct):
    """One size. Times in seconds, memory in KiB. `first` is the first trace, which indexes the chains it meets;
    `trace` and `worst` are the later ones, each to another Service, outcomes with their replies; `outcomes` counts
    those of one."""

    rules: int
    size: int
    read: float
    check: float
    first: float
    trace: float
    worst: float
    outcomes: int
    peak: int


def write_dump(services: int, endpoints: int, path: Path, *, mode: str = "") -> None:
    """Renders the dump of node-0 into a file: of iptables, or with mode `nftables` the table as nft lists it."""
    from kproxy.api import KubeProxyConfiguration, parse_manifests
    from kproxy.render import render_table, render_target, select_target
    from kproxy.services import IPFamily

    manifests = parse_manifests("\n".join(cluster_lines(services, endpoints)), "cluster.jsonl")
    config = KubeProxyConfiguration(mode=mode, cluster_cidr="10.0.0.0/8")
    target = select_target(manifests.nodes, config)
    inputs = (target, IPFamily.IPV4, manifests.services, manifests.endpoint_slices, config)
    path.write_text(render_table(*inputs).save_text() if mode == "nftables" else render_target(*inputs).save_text)


def measure(path: str, services: int) -> Measured:
    """Measures one dump in this process."""
    from kproxy.dataplane import Host, index_ruleset
    from kproxy.dataplane.model.check import check_traceable
    from kproxy.dataplane.query.assumptions import Surroundings
    from kproxy.dataplane.query.report import report
    from kproxy.dataplane.query.spec import Question, read_question
    from kproxy.netfilter import parse_save

    gc.disable()
    text = Path(path).read_text()
    start = time.perf_counter()
    index = index_ruleset(parse_save(text, path))
    read = time.perf_counter()
    check_traceable(index.ruleset)
    checked = time.perf_counter()
    around = Surroundings.known(Host.simple([NODE_IP]))

    def question(number: int) -> Question:
        spec = service(number)["spec"]
        assert isinstance(spec, dict)
        return read_question({"src": f"{endpoint_ip(number, 0)}:40000", "dst": f"{spec['clusterIP']}:80", "in": "cni0"})

    times, outcomes = [], 0
    for place in range(TRACES + 1):
        asked = question(place * 97 % services)
        begin = time.perf_counter()
        outcomes = len(report(index, around, asked).outcomes)
        times.append(time.perf_counter() - begin)
    return Measured(
        rules=index.ruleset.rule_count,
        size=len(text),
        read=read - start,
        check=checked - read,
        first=times[0],
        trace=statistics.median(times[1:]),
        worst=max(times[1:]),
        outcomes=outcomes,
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def main() -> None:
    """Prints the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="trace: a pod's packet to a ClusterIP, through the dump of a node")
    headings = ("size", "rules", "dump", "read and index", "check", "first trace", "trace", "worst", "outcomes")
    for heading in (*headings, "peak memory", "kproxy trace as a process"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as name:
        for size in SIZES:
            path = Path(name) / f"{size[0]}x{size[1]}.save"
            write_dump(*size, path)
            command = [sys.executable, "-m", "bench.trace", str(path), str(size[0])]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            got = Measured(**json.loads(done.stdout))
            kproxy = str(Path(sys.executable).parent / "kproxy")
            packet = ["--local-ip", NODE_IP, "--src", "10.0.0.9:40000", "--dst", "172.16.0.7:80", "-o", "json"]
            start = time.perf_counter()
            subprocess.run([kproxy, "trace", "--rules", str(path), *packet], check=True, stdout=subprocess.DEVNULL)
            whole = time.perf_counter() - start
            table.add_row(
                f"{size[0]}x{size[1]}",
                f"{got.rules}",
                f"{got.size / 1e6:.1f} MB",
                f"{got.read:.2f} s",
                f"{got.check:.2f} s",
                f"{got.first * 1000:.1f} ms",
                f"{got.trace * 1000:.1f} ms",
                f"{got.worst * 1000:.1f} ms",
                f"{got.outcomes}",
                f"{got.peak / 1024:.0f} MiB",
                f"{whole:.1f} s",
            )
    Console(width=None if sys.stdout.isatty() else 180).print(table)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(sys.argv[1], int(sys.argv[2]))).decode())
