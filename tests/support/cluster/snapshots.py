"""A small cluster as the files of a snapshot: two nodes that meet by VXLAN, with the rules that kube-proxy writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.load.manifests import parse_manifests
from kproxy.netfilter import print_save
from kproxy.render import render_target, select_target
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.nftables.save import save_text
from kproxy.services import IPFamily
from tests.support.recorded import SUFFIX, load, load_nftables

CONFIG = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16")
_TO_WEB_1 = re.compile(rb"^-A KUBE-SEP-\S+ .*--to-destination 10\.244\.2\.5:8080$", re.MULTILINE)
PLAIN_RULES = [
    {"priority": number, "src": "all", "table": table}
    for number, table in ((0, "local"), (32766, "main"), (32767, "default"))
]
"""What `ip -json rule` prints on each host."""


class Machine(NamedTuple):
    """A node: its name, its address, the network of its Pods without the last number, and the MAC of its VXLAN."""

    name: str
    address: str
    subnet: str
    mac: str


MACHINES = [
    Machine(f"n{number}", f"172.30.0.1{number}", f"10.244.{number}", f"0a:00:00:00:00:0{number}") for number in (1, 2)
]


def listed(kind: str, items: Iterable[Mapping[str, Any]]) -> bytes:
    """Objects as `kubectl get -o json` prints them."""
    version = "discovery.k8s.io/v1" if kind == "EndpointSlice" else "v1"
    full = [{"apiVersion": version, "kind": kind, **item} for item in items]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": full}, indent=1).encode()


def node_object(machine: Machine, **status: Any) -> dict[str, Any]:
    """A Node."""
    return {
        "metadata": {"name": machine.name},
        "spec": {"podCIDRs": [f"{machine.subnet}.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": machine.address}], **status},
    }


def pod_object(namespace: str, name: str, node: str, address: str, *ports: Mapping[str, Any]) -> dict[str, Any]:
    """A Pod that runs and is ready."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": ports}]},
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def slice_object(
    namespace: str, service: str, pods: Iterable[tuple[str, str, str]], *ports: Mapping[str, Any], suffix: str = "1"
) -> dict[str, Any]:
    """The slice of a Service: of each Pod, its name, its node and its address."""
    labels = {"kubernetes.io/service-name": service}
    endpoints = [
        {
            "addresses": [address], "nodeName": node, "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": name, "namespace": namespace},
        }
        for name, node, address in pods
    ]  # fmt: skip
    return {
        "metadata": {"name": f"{service}-{suffix}", "namespace": namespace, "labels": labels},
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    }  # fmt: skip


def objects() -> dict[str, bytes]:
    """Nodes n1 and n2, Pods cart-0 (on n1), web-0 (n1) and web-1 (n2), and Service shop/web with the two."""
    service = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "type": "NodePort", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080}],
        },
    }  # fmt: skip
    web = [("web-0", "n1", "10.244.1.5"), ("web-1", "n2", "10.244.2.5")]
    port = {"name": "http", "containerPort": 8080}
    pods = [pod_object("shop", *each, port) for each in (("cart-0", "n1", "10.244.1.9"), *web)]
    return {
        "objects/Node.json": listed("Node", map(node_object, MACHINES)),
        "objects/Pod.json": listed("Pod", pods),
        "objects/Service.json": listed("Service", [service]),
        "objects/EndpointSlice.json": listed(
            "EndpointSlice", [slice_object("shop", "web", web, {"name": "http", "port": 8080})]
        ),
    }


def manifests(files: Mapping[str, bytes]) -> Manifests:
    """What the files of objects say."""
    items = [item for path, data in files.items() if path.startswith("objects/") for item in json.loads(data)["items"]]
    return parse_manifests(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def rules(files: Mapping[str, bytes], node: str) -> bytes:
    """What iptables-save prints on a node."""
    found = manifests(files)
    target = select_target(found.nodes, CONFIG, node)
    rendered = render_target(target, IPFamily.IPV4, found.services, found.endpoint_slices, CONFIG)
    return (
        b"# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 22 10:00:00 2026\n" + rendered.save_text.encode()
    )


def _address(text: str) -> dict[str, Any]:
    address, _, length = text.partition("/")
    return {"family": "inet", "local": address, "prefixlen": int(length), "scope": "global"}


def node_files(
    machines: Sequence[Machine],
    own: Machine,
    pods: int = 0,
    *,
    network: str = "172.30.0.0/24",
    vxlan: str = "vxlan1",
    mtu: int = 1500,
) -> dict[str, bytes]:
    """Links, addresses, routes, neighbours, FDB and sysctls of a node: eth0, cni0 with a veth for each Pod, a VXLAN."""
    up: dict[str, Any] = {"flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 1500}
    data = {"id": 1, "local": own.address, "port": 8472}
    slave = {"info_kind": "veth", "info_slave_kind": "bridge", "info_slave_data": {"hairpin": True}}
    links = [
        {"ifindex": 1, "ifname": "lo", "flags": ["LOOPBACK", "UP"], "addr_info": [_address("127.0.0.1/8")]},
        {
            "ifindex": 2, "ifname": "eth0",
            "addr_info": [_address(f"{own.address}/{network.partition('/')[2]}")], **up,
        },
        {
            "ifindex": 3, "ifname": vxlan, "address": own.mac, "addr_info": [_address(f"{own.subnet}.0/32")],
            "linkinfo": {"info_kind": "vxlan", "info_data": data}, **up, "mtu": mtu,
        },
        {
            "ifindex": 4, "ifname": "cni0", "linkinfo": {"info_kind": "bridge"},
            "addr_info": [_address(f"{own.subnet}.1/24")], **up,
        },
        *(
            {"ifindex": 10 + pod, "link_index": 2, "ifname": f"veth{pod}", "master": "cni0", "addr_info": [],
             "linkinfo": slave, **up}
            for pod in range(pods)
        ),
    ]  # fmt: skip
    others = [each for each in machines if each != own]
    routes: list[dict[str, Any]] = [
        {"dst": "default", "gateway": network.replace(".0/", ".1/").partition("/")[0], "dev": "eth0"},
        {"dst": network, "dev": "eth0", "prefsrc": own.address, "scope": "link"},
        {"dst": f"{own.subnet}.0/24", "dev": "cni0", "prefsrc": f"{own.subnet}.1", "scope": "link"},
        *(
            {"dst": f"{each.subnet}.0/24", "gateway": f"{each.subnet}.0", "dev": vxlan, "flags": ["onlink"]}
            for each in others
        ),
    ]
    neighbours = [
        {"dst": f"{each.subnet}.0", "dev": vxlan, "lladdr": each.mac, "state": ["PERMANENT"]} for each in others
    ]
    fdb = [{"mac": each.mac, "ifname": vxlan, "dst": each.address, "state": "permanent"} for each in others]
    return host_files(own.name, links, routes, neighbours, fdb)


SYSCTLS = (
    "net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\nnet.ipv4.conf.all.rp_filter = 0\n"
    "net.ipv4.conf.all.route_localnet = 1\nnet.ipv4.conf.all.accept_local = 0\n"
    "net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\n"
)


def host_files(name: str, links: object, routes: object, neighbours: object, fdb: object) -> dict[str, bytes]:
    """What a healthy node says of itself, but for its rules."""
    found = {
        "ip-addr.json": links, "ip-route.json": routes, "ip-rule.json": PLAIN_RULES, "ip-neigh.json": neighbours,
        "bridge-fdb.json": fdb,
    }  # fmt: skip
    files = {f"nodes/{name}/{file}": json.dumps(value).encode() for file, value in found.items()}
    return {**files, f"nodes/{name}/sysctl": SYSCTLS.encode()}


def vxlan_cluster() -> dict[str, bytes]:
    """All of it."""
    files = objects()
    for machine, pods in zip(MACHINES, (2, 1), strict=True):
        files[f"nodes/{machine.name}/iptables-save"] = rules(files, machine.name)
        files[f"nodes/{machine.name}/ip6tables-save"] = b""
        files |= node_files(MACHINES, machine, pods)
    return files


def damaged_files() -> dict[str, bytes]:
    """The same with a rule of n1 that sends elsewhere."""
    files = dict(vxlan_cluster())
    path = "nodes/n1/iptables-save"
    line = _TO_WEB_1.search(files[path])
    assert line is not None
    files[path] = files[path].replace(line[0], line[0].replace(b"10.244.2.5:8080", b"10.244.2.77:8080"))
    return files


def write_files(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Writes the files below a directory."""
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory


_SAVES = {IPFamily.IPV4: "iptables-save", IPFamily.IPV6: "ip6tables-save"}


def recorded_snapshot(case: Path, mode: str) -> dict[str, bytes]:
    """A recorded cluster as a snapshot of one node with the rules that kube-proxy itself wrote."""
    manifests, config = load(case) if mode == "iptables" else load_nftables(case)
    node = f"nodes/{select_target(manifests.nodes, config).node_name}"
    settings = (case / ("config.yaml" if mode == "iptables" else "config.nftables.yaml")).read_text()
    files = {f"objects/{name}": (case / name).read_bytes() for name in ("cluster.yaml", "service-cidr.yaml")}
    files[f"{node}/kube-proxy/configz"] = json.dumps({"kubeproxy.config.k8s.io": yaml.safe_load(settings)}).encode()
    if mode == "iptables":
        for family, name in _SAVES.items():
            text = (case / f"kube-proxy.{SUFFIX[family]}.restore").read_text()
            files[f"{node}/{name}"] = print_save(saved_ruleset(text, family)).encode()
    else:
        texts = [save_text((case / f"kube-proxy.{suffix}.nft").read_text()) for suffix in SUFFIX.values()]
        files[f"{node}/nft"] = "".join(texts).encode()
    return files
