"""Trace: reading and indexing a dump, and one packet through it, at 1000x5, 5000x10 and 7000x10 services and endpoints.

The dump is what iptables-save prints on a node with that many ClusterIP Services: 5000x10 makes 160,000 rules, 7000x10
makes 224,000.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.generate import cluster_lines, endpoint_ip, service
from bench.report import KPROXY, answer, in_own_process, mib, ms, peak, s, show, timed

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
        peak=peak(),
    )


def main() -> None:
    """Prints the table."""
    rows = []
    packet = ("--local-ip", NODE_IP, "--src", "10.0.0.9:40000", "--dst", "172.16.0.7:80", "-o", "json")
    with tempfile.TemporaryDirectory() as name:
        for services, endpoints in SIZES:
            path = Path(name) / f"{services}x{endpoints}.save"
            write_dump(services, endpoints, path)
            got = in_own_process(Measured, "trace", path, services)
            rows.append({
                "size": path.stem, "rules": f"{got.rules}", "dump": f"{got.size / 1e6:.1f} MB",
                "read and index": s(got.read), "check": s(got.check), "first trace": ms(got.first),
                "trace": ms(got.trace), "worst": ms(got.worst), "outcomes": f"{got.outcomes}",
                "peak memory": mib(got.peak),
                "kproxy trace as a process": s(timed(KPROXY, "trace", "--rules", path, *packet), 1),
            })  # fmt: skip
    show("trace: a pod's packet to a ClusterIP, through the dump of a node", rows, 180)


if __name__ == "__main__":
    answer(measure(sys.argv[1], int(sys.argv[2])))
