"""Audit: a snapshot of 200 nodes with 2000 Services of 5 endpoints each, rendered for each node, some nodes damaged.

A tenth of the Services have a node port, a twentieth a load balancer; twenty of these have policy Local, and so give
the nodes of their endpoints rules of their own.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.generate import endpoint_slice, service
from bench.report import answer, in_own_process, mib, s, show

SIZES: Final = ((20, 2000, 5), (200, 2000, 5))
CIDR: Final = "10.0.0.0/8"
_LOCAL: Final = 20
_PLUGIN: Final = (
    "-A POSTROUTING -s 10.0.0.0/8 -d {own} -j RETURN\n"
    "-A POSTROUTING -s {own} ! -d 10.0.0.0/8 -j MASQUERADE --random-fully\n"
)
_ROUTING_RULES: Final = json.dumps([
    {"priority": priority, "src": "all", "table": table}
    for priority, table in ((0, "local"), (32766, "main"), (32767, "default"))
]).encode()  # fmt: skip
"""What every kernel has: a file without rules is taken to be a part."""


class Measured(msgspec.Struct):
    """One size. Times in seconds: `cpu` of all threads; memory in KiB."""

    size: int
    wall: float
    cpu: float
    peak: int
    questions: int
    kinds: dict[str, int]


def pod_cidr(node: int) -> str:
    return f"10.{node >> 8}.{node & 255}.0/24"


def endpoint_place(number: int, index: int, nodes: int) -> tuple[int, str]:
    """The node and the address of a Service's endpoint; those of a Local one are all on one node."""
    node = number % nodes if number < _LOCAL else (number * 7 + index * 31) % nodes
    serial = (number * 5 + index) // nodes % 200 + 2 if number >= _LOCAL else 210 + index
    return node, f"10.{node >> 8}.{node & 255}.{serial}"


def objects(nodes: int, services: int, endpoints: int) -> dict[str, bytes]:
    """The objects as kubectl lists them."""
    listed: dict[str, list[dict[str, Any]]] = {"Node": [], "Service": [], "EndpointSlice": [], "Pod": []}
    for node in range(nodes):
        listed["Node"].append({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{node}"},
            "spec": {"podCIDR": pod_cidr(node), "podCIDRs": [pod_cidr(node)]},
            "status": {"addresses": [{"type": "InternalIP", "address": f"192.168.{node >> 8}.{node & 255}"}]},
        })  # fmt: skip
    for number in range(services):
        protocol, door = "UDP" if number % 9 == 4 else "TCP", number % 10 == 0 or number < _LOCAL
        item: dict[str, Any] = service(number)
        item["spec"]["ports"][0]["protocol"] = protocol
        if door:
            item["spec"]["type"] = "NodePort"
            item["spec"]["ports"][0]["nodePort"] = 30000 + number
        if number % 20 == 0 or number < _LOCAL:
            item["spec"]["type"] = "LoadBalancer"
            item["status"] = {"loadBalancer": {"ingress": [{"ip": f"203.0.{113 + (number >> 8)}.{number & 255}"}]}}
        if number < _LOCAL:
            item["spec"] |= {"externalTrafficPolicy": "Local", "healthCheckNodePort": 33000 + number}
        listed["Service"].append(item)
        places = [endpoint_place(number, index, nodes) for index in range(endpoints)]
        part: dict[str, Any] = endpoint_slice(number, [ip for _, ip in places])
        part["ports"][0]["protocol"] = protocol
        listed["EndpointSlice"].append(part)
        for index, (node, ip) in enumerate(places):
            pod = {"namespace": "bench", "name": f"svc-{number}-{index}"}
            part["endpoints"][index] |= {"nodeName": f"node-{node}", "targetRef": {"kind": "Pod", **pod}}
            listed["Pod"].append({
                "apiVersion": "v1", "kind": "Pod", "metadata": pod, "status": {"phase": "Running", "podIP": ip},
                "spec": {"nodeName": f"node-{node}", "containers": []},
            })  # fmt: skip
    return {
        f"objects/{kind}.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
        for kind, items in listed.items()
    }


def node_files(node: int, nodes: int) -> dict[str, bytes]:
    """What `kproxy collect` reads of a node beside its rules."""
    address = f"192.168.{node >> 8}.{node & 255}"
    up: dict[str, Any] = {"flags": ["UP", "LOWER_UP"], "mtu": 1500}
    own = pod_cidr(node)

    def at(text: str, length: int) -> list[dict[str, Any]]:
        return [{"family": "inet", "local": text, "prefixlen": length, "scope": "global"}]

    links = [
        {"ifindex": 1, "ifname": "lo", "flags": ["LOOPBACK", "UP"], "addr_info": at("127.0.0.1", 8)},
        {"ifindex": 2, "ifname": "eth0", "addr_info": at(address, 16), **up},
        {"ifindex": 3, "ifname": "cni0", "addr_info": at(own.replace(".0/24", ".1"), 24), **up,
         "linkinfo": {"info_kind": "bridge"}},
    ]  # fmt: skip
    routes: list[dict[str, Any]] = [
        {"dst": "default", "gateway": "192.168.255.254", "dev": "eth0"},
        {"dst": "192.168.0.0/16", "dev": "eth0", "prefsrc": address, "scope": "link"},
        {"dst": own, "dev": "cni0", "prefsrc": own.replace(".0/24", ".1"), "scope": "link"},
    ]
    routes += [
        {"dst": pod_cidr(other), "gateway": f"192.168.{other >> 8}.{other & 255}", "dev": "eth0"}
        for other in range(nodes)
        if other != node
    ]
    config = {
        "kind": "KubeProxyConfiguration", "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "mode": "iptables",
        "clusterCIDR": CIDR,
    }  # fmt: skip
    now = "2026-11-22T10:00:00Z"
    health = json.dumps({"lastUpdated": now, "currentTime": now, "nodeEligible": True})
    return {
        "ip6tables-save": b"", "nft": b"", "ipset-save": b"", "ip-rule.json": _ROUTING_RULES,
        "ip-neigh.json": b"[]", "bridge-fdb.json": b"[]", "conntrack": b"",
        "ip-addr.json": json.dumps(links).encode(), "ip-route.json": json.dumps(routes).encode(),
        "sysctl": b"net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n",
        "kube-proxy/configz": json.dumps({"kubeproxy.config.k8s.io": config}).encode(),
        "kube-proxy/healthz": f"{health}\nHTTP 200\n".encode(), "kube-proxy/metrics": b"",
        "kube-proxy/version": b"Kubernetes v1.36.2\n",
    }  # fmt: skip


def _sub(pattern: str, text: str, count: int = 1) -> Callable[[str], str]:
    return lambda save: re.sub(pattern, text, save, count=count, flags=re.MULTILINE)


DAMAGE: Final[tuple[Callable[[str], str], ...]] = (
    _sub(r"--to-destination 10\.(\d+)\.(\d+)\.\d+:8080", r"--to-destination 10.\1.\2.253:8080"),
    _sub(r"^-A KUBE-SERVICES -d 172\.16\.3\.7/32 .*\n", ""),
    _sub(r"^-A FORWARD ", "-A FORWARD -p udp -m udp --dport 8080 -j DROP\n-A FORWARD "),
    _sub(r"^-A FORWARD ", "-A FORWARD -d 10.0.1.0/24 -j DROP\n-A FORWARD "),
    _sub(r"^-A PREROUTING ", "-A PREROUTING -p tcp -m tcp --dport 30100 -j REDIRECT --to-ports 22\n-A PREROUTING "),
    _sub(r"^-A KUBE-MARK-MASQ .*\n", ""),
    _sub(r"(?s)\*nat.*", ""),
    _sub(r"^-A POSTROUTING ", "-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE\n-A POSTROUTING "),
)
"""Kinds of damage; each is done to two nodes of a hundred."""


def make_snapshot(nodes: int, services: int, endpoints: int, path: Path) -> None:
    """Writes the snapshot."""
    from kproxy.api import KubeProxyConfiguration
    from kproxy.api.load.manifests import load_contents
    from kproxy.cluster.snapshot.files import MemoryFiles
    from kproxy.collect.write import write_snapshot
    from kproxy.netfilter import Family
    from kproxy.render import render_target, select_target

    listed = objects(nodes, services, endpoints)
    manifests = load_contents(listed)
    config = KubeProxyConfiguration(cluster_cidr=CIDR)
    files = MemoryFiles("bench", listed)
    local = {endpoint_place(number, 0, nodes)[0] for number in range(_LOCAL)}
    saves: dict[int, str] = {}
    for node in range(nodes):
        key = node if node in local else -1
        if key not in saves:
            target = select_target(manifests.nodes, config, f"node-{node}")
            rendered = render_target(target, Family.IPV4, manifests.services, manifests.endpoint_slices, config)
            saves[key] = rendered.save_text
        before, _, nat = saves[key].partition("*nat\n")
        save = f"{before}*nat\n" + nat.replace("COMMIT\n", _PLUGIN.format(own=pod_cidr(node)) + "COMMIT\n", 1)
        if node % 100 < 2 * len(DAMAGE):
            save = DAMAGE[node % 100 // 2](save)
        head = f"# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 22 10:{node % 60:02}:00 2026\n"
        contents: Mapping[str, bytes] = {**node_files(node, nodes), "iptables-save": (head + save).encode()}
        for name, data in contents.items():
            files.put(f"nodes/node-{node}/{name}", data)
    write_snapshot(files, str(path), 0)


def measure(path: str) -> Measured:
    """Audits a snapshot as the command does: in as many processes as there are processors, if it is large."""
    from kproxy.cli.processes import in_processes
    from kproxy.cluster.audit.audit import audit
    from kproxy.cluster.snapshot.cluster import read_snapshot

    start, cpu = time.perf_counter(), time.process_time()
    report = audit(read_snapshot(path), parts=in_processes)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    kinds: dict[str, int] = {}
    for finding in report.findings:
        kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
    return Measured(
        Path(path).stat().st_size,
        time.perf_counter() - start,
        time.process_time() - cpu + children.ru_utime + children.ru_stime,
        max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, children.ru_maxrss),
        report.questions,
        kinds,
    )


def main() -> None:
    """Prints the table."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for nodes, services, endpoints in SIZES:
            path = Path(name) / f"{nodes}.tar.gz"
            make_snapshot(nodes, services, endpoints, path)
            got = in_own_process(Measured, "audit", path)
            rows.append({
                "nodes": f"{nodes}", "Services": f"{services}x{endpoints}", "archive": f"{got.size / 1e6:.1f} MB",
                "wall": s(got.wall, 1), "CPU": s(got.cpu, 1), "largest process": mib(got.peak),
                "packets": f"{got.questions:,}", "findings": f"{sum(got.kinds.values())}",
            })  # fmt: skip
    show("audit: a snapshot whose nodes are rendered, some of them damaged (aim: 60 s, 2 GB)", rows, 120)


if __name__ == "__main__":
    answer(measure(sys.argv[1]))
