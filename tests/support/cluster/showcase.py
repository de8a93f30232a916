"""A shop's cluster as the files of a snapshot, for pages and their pictures: nodes that meet by VXLAN, Pods on bridges,
Services of each type, rules that kube-proxy writes. The same arguments give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.cluster.snapshots import Machine, listed, node_files, node_object, pod_object, rules, slice_object

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


def _machine(number: int) -> Machine:
    address = f"192.168.{number // 200}.{number % 200 + 10}"
    mac = f"0a:00:00:00:{number // 256:02x}:{number % 256:02x}"
    return Machine(f"worker-{number + 1}", address, f"10.244.{number}", mac)


class _Placed(NamedTuple):
    app: App
    number: int
    node: int
    address: str

    @property
    def place(self) -> tuple[str, str, str]:
        return f"{self.app.name}-{self.number}", _machine(self.node).name, self.address


def _placed(nodes: int, apps: Sequence[App]) -> Iterator[_Placed]:
    taken = [4] * nodes
    turn = 0
    for app in apps:
        for number in range(app.replicas):
            node = turn % nodes
            taken[node] += 1
            yield _Placed(app, number, node, f"10.244.{node}.{taken[node]}")
            turn += 1


def _node(number: int) -> dict[str, Any]:
    found = node_object(
        _machine(number),
        conditions=[{"type": "Ready", "status": "True"}],
        nodeInfo={"kernelVersion": "6.12.41-amd64"},
    )
    found["metadata"]["labels"] = {"topology.kubernetes.io/zone": ZONES[number % len(ZONES)]}
    return found


def _pod(pod: _Placed) -> dict[str, Any]:
    ports = [{"name": name, "containerPort": target, "protocol": proto} for name, proto, _, target in pod.app.ports]
    return pod_object(pod.app.namespace, *pod.place, *ports)


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
    ports = [{"name": name, "protocol": protocol, "port": target} for name, protocol, _, target in app.ports]
    found = slice_object(app.namespace, app.name, [pod.place for pod in pods], *ports, suffix="x1")
    for each in found["endpoints"]:
        leaving = f"{app.namespace}/{each['targetRef']['name']}" == TERMINATING
        each["conditions"] = {"ready": not leaving, "serving": True, "terminating": leaving}
    return found


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
    written, machines = dict(files), [_machine(number) for number in range(nodes)]
    for number in range(nodes):
        here = sum(pod.node == number for pod in pods)
        files |= node_files(machines, machines[number], here, network="192.168.0.0/16", vxlan="flannel.1")
        name = machines[number].name
        files |= {f"nodes/{name}/ip6tables-save": b"", f"nodes/{name}/iptables-save": rules(written, name)}
    return files
