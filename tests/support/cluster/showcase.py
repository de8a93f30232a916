"""A shop's cluster as the files of a snapshot, for pages and their pictures: nodes that meet by VXLAN, Pods on bridges,
Services of each type, rules that kube-proxy writes. The same arguments give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.cluster.snapshots import host_files, listed, rules

ZONES = ("zone-a", "zone-b", "zone-c")


class App(NamedTuple):
    """Pods of one kind, and the Service in front of them."""

    namespace: str
    name: str
    replicas: int
    ports: tuple[tuple[str, str, int, int], ...]
    """Name, protocol, port, target port."""
    kind: str = "ClusterIP"
    policy: str = "Cluster"


APPS = (
    App("shop", "web", 3, (("http", "TCP", 80, 8080),), "NodePort"),
    App("shop", "cart", 2, (("http", "TCP", 80, 8080),)),
    App("shop", "checkout", 2, (("https", "TCP", 443, 8443),), "LoadBalancer", "Local"),
    App("shop", "orders", 0, (("grpc", "TCP", 9000, 9000),)),
    App("kube-system", "kube-dns", 2, (("dns", "UDP", 53, 53), ("dns-tcp", "TCP", 53, 53))),
)
MANY_APPS = (
    *APPS,
    *(
        App("shop", name, replicas, (("http", "TCP", 80, 8080),))
        for name, replicas in (("catalog", 24), ("search", 90), ("sessions", 35), ("pricing", 50), ("mail", 12))
    ),
    App("data", "cache", 130, (("redis", "TCP", 6379, 6379),)),
    App("data", "queue", 25, (("amqp", "TCP", 5672, 5672),)),
)
"""For a cluster of many nodes: hundreds of Pods."""
TERMINATING = "shop/web-2"


def _address(number: int) -> str:
    return f"192.168.{number // 200}.{number % 200 + 10}"


def _name(number: int) -> str:
    return f"worker-{number + 1}"


def _subnet(number: int) -> str:
    return f"10.244.{number}"


def _mac(number: int) -> str:
    return f"0a:00:00:00:{number // 256:02x}:{number % 256:02x}"


class _Placed(NamedTuple):
    app: App
    number: int
    node: int
    address: str

    @property
    def name(self) -> str:
        return f"{self.app.name}-{self.number}"


def _placed(nodes: int, apps: Sequence[App]) -> Iterator[_Placed]:
    taken = [4] * nodes
    turn = 0
    for app in apps:
        for number in range(app.replicas):
            node = turn % nodes
            taken[node] += 1
            yield _Placed(app, number, node, f"{_subnet(node)}.{taken[node]}")
            turn += 1


def _node(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": _name(number), "labels": {"topology.kubernetes.io/zone": ZONES[number % len(ZONES)]}},
        "spec": {"podCIDRs": [f"{_subnet(number)}.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": _address(number)}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kernelVersion": "6.12.41-amd64"},
        },
    }


def _pod(pod: _Placed) -> dict[str, Any]:
    ports = [{"name": name, "containerPort": target, "protocol": proto} for name, proto, _, target in pod.app.ports]
    return {
        "metadata": {"name": pod.name, "namespace": pod.app.namespace},
        "spec": {"nodeName": _name(pod.node), "containers": [{"name": "app", "ports": ports}]},
        "status": {
            "phase": "Running", "podIP": pod.address, "podIPs": [{"ip": pod.address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def _service(app: App, place: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "type": app.kind, "clusterIP": f"10.96.{place // 250}.{place % 250 + 10}", "selector": {"app": app.name},
        "ports": [
            {"name": name, "protocol": protocol, "port": port, "targetPort": target}
            for name, protocol, port, target in app.ports
        ],
    }  # fmt: skip
    spec["clusterIPs"] = [spec["clusterIP"]]
    if app.kind != "ClusterIP":
        spec["externalTrafficPolicy"] = app.policy
        for item in spec["ports"]:
            item["nodePort"] = 30080 + place
    status: dict[str, Any] = {}
    if app.kind == "LoadBalancer":
        status = {"loadBalancer": {"ingress": [{"ip": f"198.51.100.{place + 10}"}]}}
        if app.policy == "Local":
            spec["healthCheckNodePort"] = 32000 + place
    return {"metadata": {"name": app.name, "namespace": app.namespace}, "spec": spec, "status": status}


def _slice(app: App, pods: Sequence[_Placed]) -> dict[str, Any]:
    endpoints = []
    for pod in pods:
        leaving = f"{app.namespace}/{pod.name}" == TERMINATING
        endpoints.append(
            {
                "addresses": [pod.address], "nodeName": _name(pod.node),
                "conditions": {"ready": not leaving, "serving": True, "terminating": leaving},
                "targetRef": {"kind": "Pod", "name": pod.name, "namespace": app.namespace},
            }
        )  # fmt: skip
    labels = {"kubernetes.io/service-name": app.name}
    return {
        "metadata": {"name": f"{app.name}-x1", "namespace": app.namespace, "labels": labels}, "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": name, "protocol": protocol, "port": target} for name, protocol, _, target in app.ports],
    }  # fmt: skip


def _info(text: str) -> dict[str, Any]:
    address, _, length = text.partition("/")
    return {"family": "inet", "local": address, "prefixlen": int(length), "scope": "global"}


def _node_files(number: int, nodes: int, pods: Sequence[_Placed]) -> dict[str, bytes]:
    up: dict[str, Any] = {"flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 1500}
    own = _address(number)
    vxlan = {"info_kind": "vxlan", "info_data": {"id": 1, "local": own, "port": 8472}}
    slave = {"info_kind": "veth", "info_slave_kind": "bridge", "info_slave_data": {"hairpin": True}}
    links = [
        {"ifindex": 1, "ifname": "lo", "flags": ["LOOPBACK", "UP"], "addr_info": [_info("127.0.0.1/8")]},
        {"ifindex": 2, "ifname": "eth0", "addr_info": [_info(f"{own}/16")], **up},
        {
            "ifindex": 3, "ifname": "flannel.1", "address": _mac(number), "linkinfo": vxlan,
            "addr_info": [_info(f"{_subnet(number)}.0/32")], **up,
        },
        {
            "ifindex": 4, "ifname": "cni0", "linkinfo": {"info_kind": "bridge"},
            "addr_info": [_info(f"{_subnet(number)}.1/24")], **up,
        },
        *(
            {"ifindex": 10 + place, "link_index": 2, "ifname": f"veth{place}", "master": "cni0", "addr_info": [],
             "linkinfo": slave, **up}
            for place, _ in enumerate(pods)
        ),
    ]  # fmt: skip
    routes = [
        {"dst": "default", "gateway": "192.168.0.1", "dev": "eth0"},
        {"dst": "192.168.0.0/16", "dev": "eth0", "prefsrc": own, "scope": "link"},
        {"dst": f"{_subnet(number)}.0/24", "dev": "cni0", "prefsrc": f"{_subnet(number)}.1", "scope": "link"},
    ]
    neighbours, fdb = [], []
    for other in range(nodes):
        if other != number:
            via = f"{_subnet(other)}.0"
            routes.append({"dst": f"{via}/24", "gateway": via, "dev": "flannel.1", "flags": ["onlink"]})  # type: ignore[dict-item]
            neighbours.append({"dst": via, "dev": "flannel.1", "lladdr": _mac(other), "state": ["PERMANENT"]})
            fdb.append({"mac": _mac(other), "ifname": "flannel.1", "dst": _address(other), "state": "permanent"})
    name = _name(number)
    return {**host_files(name, links, routes, neighbours, fdb), f"nodes/{name}/ip6tables-save": b""}


def showcase(nodes: int = 3, apps: Sequence[App] = APPS) -> dict[str, bytes]:
    """All of it, by path in the snapshot. One endpoint of shop/web is terminating, shop/orders has none."""
    pods = list(_placed(nodes, apps))
    slices = [_slice(app, [pod for pod in pods if pod.app is app]) for app in apps]
    files = {
        "objects/Node.json": listed("Node", [_node(number) for number in range(nodes)]),
        "objects/Pod.json": listed("Pod", [_pod(pod) for pod in pods]),
        "objects/Service.json": listed("Service", [_service(app, place) for place, app in enumerate(apps)]),
        "objects/EndpointSlice.json": listed("EndpointSlice", slices),
    }
    written = dict(files)
    for number in range(nodes):
        files |= _node_files(number, nodes, [pod for pod in pods if pod.node == number])
        files[f"nodes/{_name(number)}/iptables-save"] = rules(written, _name(number))
    return files
