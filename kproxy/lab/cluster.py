"""A lab as it is now: nodes, pods, Services and their endpoints, from the API server, the processes and the namespaces.

Values that `status`, `probe`, `trace` and `view` share; `-o json` prints them as they are.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES
from kproxy.client import ApiError, RestClient, TransportError
from kproxy.lab.errors import LabError, LabInputError, NoSuchPodError
from kproxy.lab.kubelet.podspec import pod_ports
from kproxy.lab.kubelet.servers import Port
from kproxy.lab.lifecycle import processes
from kproxy.lab.lifecycle.node_processes import NODE_KINDS
from kproxy.lab.lifecycle.objects import lab_client
from kproxy.lab.links import read_links
from kproxy.lab.resources import (
    DNS_NAMESPACE,
    DNS_SERVICE,
    ENDPOINT_SLICES,
    FAILED,
    NODES,
    PODS,
    SERVICES,
    Object,
    condition_of,
    is_ready,
    is_terminating,
)
from kproxy.lab.spec import LabSpec, family_of
from kproxy.lab.state import LabDirectory, LabRecord
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import NETNS_DIRECTORY


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """What is printed as JSON, with Kubernetes' spelling."""


class NodeView(Value, frozen=True):
    """A node. `reason` says why it is not ready; `processes` which of its processes run; `link` whether its cable is
    plugged in."""

    name: str
    namespace: str
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...] = msgspec.field(name="podCIDRs")
    ready: bool = False
    reason: str = ""
    processes: tuple[str, ...] = ()
    link: bool = True


class PodView(Value, frozen=True):
    """A pod. `failed`: crashed by `lab fail`; `running`: its servers run; `netns`: its namespace, "" if it has none."""

    namespace: str
    name: str
    uid: str
    node: str
    addresses: tuple[str, ...]
    phase: str
    ready: bool
    terminating: bool
    failed: bool
    running: bool
    host_network: bool
    netns: str
    ports: tuple[Port, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def serves(self, protocol: str, port: int) -> bool:
        """Whether something listens there."""
        return self.running and Port(port, protocol) in self.ports


class EndpointView(Value, frozen=True):
    address: str
    port: int
    pod: str
    node: str
    ready: bool
    serving: bool
    terminating: bool


class ServicePortView(Value, frozen=True):
    name: str
    protocol: str
    port: int
    target: str
    node_port: int
    endpoints: tuple[EndpointView, ...]


class ServiceView(Value, frozen=True):
    namespace: str
    name: str
    type: str
    cluster_ips: tuple[str, ...] = msgspec.field(name="clusterIPs")
    external_ips: tuple[str, ...] = msgspec.field(name="externalIPs")
    load_balancer_ips: tuple[str, ...] = msgspec.field(name="loadBalancerIPs")
    internal_policy: str = "Cluster"
    external_policy: str = "Cluster"
    affinity: str = "None"
    health_check_node_port: int = 0
    source_ranges: tuple[str, ...] = ()
    ports: tuple[ServicePortView, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_external(self) -> bool:
        """Whether there is an address to which its external traffic policy applies."""
        return self.type in ("NodePort", "LoadBalancer") or bool(self.external_ips)


class ClusterView(Value, frozen=True):
    """The whole lab. `api_server` is its URL, `api_running` whether its process runs."""

    name: str
    ip_family: str
    variant: str
    mode: str
    backend: str
    kubeconfig: str
    api_server: str
    api_running: bool
    client: tuple[str, ...]
    nodes: tuple[NodeView, ...]
    pods: tuple[PodView, ...] = ()
    services: tuple[ServiceView, ...] = ()

    @property
    def rules_by(self) -> str:
        """What the proxies' rules are written with: `iptables nft`, `nftables`."""
        return f"iptables {self.variant}" if self.mode == MODE_IPTABLES else self.mode

    @property
    def api_port(self) -> int:
        """The API server's port, on the loopback and on the fabric."""
        return int(self.api_server.rpartition(":")[2])

    @property
    def echoing(self) -> list[ServiceView]:
        """The Services that lead to echo servers, as far as that is known by their names: not cluster DNS."""
        return [item for item in self.services if item.key != f"{DNS_NAMESPACE}/{DNS_SERVICE}"]

    def node(self, name: str) -> NodeView:
        """A node by name. Raises LabInputError."""
        for item in self.nodes:
            if item.name == name:
                return item
        raise LabInputError(f"no node {name!r}: there are {', '.join(item.name for item in self.nodes)}")

    def pod(self, text: str) -> PodView:
        """A pod by `NAME` or `NAMESPACE/NAME`; the beginning of a name will do if only one pod has it. Raises
        LabInputError."""
        namespace, slash, name = text.rpartition("/")
        wanted = namespace if slash else "default"
        here = [item for item in self.pods if item.namespace == wanted]
        found = [item for item in here if item.name == name] or [item for item in here if item.name.startswith(name)]
        if len(found) == 1:
            return found[0]
        if not found:
            self.require_api_server("the pods")
            there = ", ".join(item.key for item in self.pods[:8])
            raise NoSuchPodError(f"no pod {text!r}: there are {there or 'none'}{' ...' if len(self.pods) > 8 else ''}")
        raise LabInputError(f"pod {text!r} may mean {', '.join(item.name for item in found[:6])}")

    def service(self, text: str) -> ServiceView:
        """A Service by `NAME` or `NAMESPACE/NAME`. Raises LabInputError."""
        namespace, slash, name = text.rpartition("/")
        for item in self.services:
            if (item.namespace, item.name) == (namespace if slash else "default", name):
                return item
        self.require_api_server("the Services")
        there = ", ".join(item.key for item in self.services)
        raise LabInputError(f"no Service {text!r}: there are {there or 'none'}")

    def require_api_server(self, what: str) -> None:
        """Raises LabError if the API server, which knows `what`, does not run."""
        if not self.api_running:
            raise LabError(
                f"the API server does not run, so {what} are unknown; start it with `kproxy lab heal apiserver`"
            )


def read_cluster(lab: LabDirectory, record: LabRecord) -> ClusterView:
    """Reads all of it. Without an API server, the nodes are known and nothing else."""
    running = processes.find(lab)
    alive = any(item.kind == "apiserver" for item in running)
    objects: dict[str, Sequence[Object]] = {"nodes": (), "pods": (), "services": (), "slices": ()}
    if alive:
        try:
            objects = _objects(lab_client(lab))
        except (ApiError, TransportError):
            alive = False
    spec = record.spec
    known = {str(item["metadata"]["name"]): item for item in objects["nodes"]}
    roles = {item.role for item in running}
    nodes = tuple(
        NodeView(
            plan.name,
            plan.namespace,
            plan.addresses,
            plan.pod_cidrs,
            plan.name in known and is_ready(known[plan.name]),
            _reason(known.get(plan.name)) if alive else "the API server does not run",
            tuple(kind for kind in NODE_KINDS if f"{kind}/{plan.name}" in roles),
            _link_is_up(spec, plan.name),
        )
        for plan in lab.plans(record)
    )
    return ClusterView(
        spec.name,
        spec.ip_family,
        spec.variant,
        spec.mode,
        spec.backend,
        str(lab.kubeconfig),
        f"https://127.0.0.1:{record.port}",
        alive,
        spec.client_addresses,
        nodes,
        tuple(sorted((_pod(spec, item, roles) for item in objects["pods"]), key=lambda pod: pod.key)),
        tuple(sorted(_services(objects["services"], objects["slices"]), key=lambda service: service.key)),
    )


def _objects(client: RestClient) -> dict[str, Sequence[Object]]:
    resources = {"nodes": NODES, "pods": PODS, "services": SERVICES, "slices": ENDPOINT_SLICES}
    return {name: [item.raw for item in client.list(resource).items] for name, resource in resources.items()}


def _reason(node: Object | None) -> str:
    if node is None:
        return "not registered"
    condition = condition_of(node, "Ready")
    if condition is None:
        return "nothing heard of it"
    return "" if condition["status"] == "True" else str(condition.get("message") or condition.get("reason", ""))


def _link_is_up(spec: LabSpec, node: str) -> bool:
    try:
        return read_links(spec.fabric)[node].up
    except (LinuxError, KeyError):
        return False


def _pod(spec: LabSpec, pod: Object, roles: Collection[str]) -> PodView:
    meta, status = pod["metadata"], pod.get("status") or {}
    host_network = bool(pod["spec"].get("hostNetwork"))
    node = pod["spec"].get("nodeName", "")
    name = spec.namespace(node) if host_network else spec.pod_namespace(meta["uid"])
    phase = status.get("phase", "Pending")
    failed = FAILED in (meta.get("annotations") or {})
    there = bool(node) and os.path.exists(os.path.join(NETNS_DIRECTORY, name))
    return PodView(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        node,
        # Of a pod that has ended they may be another's by now.
        () if phase in ("Succeeded", "Failed") else tuple(item["ip"] for item in status.get("podIPs") or ()),
        phase,
        is_ready(pod),
        is_terminating(pod),
        failed,
        there and not failed and f"kubelet/{node}" in roles,
        host_network,
        name if there else "",
        pod_ports(pod),
    )


def _services(services: Sequence[Object], slices: Sequence[Object]) -> list[ServiceView]:
    by_service: dict[tuple[str, str], list[Object]] = {}
    for item in slices:
        meta = item["metadata"]
        owner = (meta.get("labels") or {}).get("kubernetes.io/service-name", "")
        by_service.setdefault((meta["namespace"], owner), []).append(item)
    found = []
    for service in services:
        meta, spec = service["metadata"], service["spec"]
        mine = by_service.get((meta["namespace"], meta["name"]), [])
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        found.append(
            ServiceView(
                meta["namespace"],
                meta["name"],
                spec.get("type", "ClusterIP"),
                tuple(ip for ip in spec.get("clusterIPs") or () if ip and ip != "None"),
                tuple(spec.get("externalIPs") or ()),
                tuple(item["ip"] for item in ingress if item.get("ip")),
                spec.get("internalTrafficPolicy", "Cluster"),
                spec.get("externalTrafficPolicy", "Cluster"),
                spec.get("sessionAffinity", "None"),
                int(spec.get("healthCheckNodePort") or 0),
                tuple(spec.get("loadBalancerSourceRanges") or ()),
                tuple(_port(port, mine) for port in spec.get("ports") or ()),
            )
        )
    return found


def _port(port: Object, slices: Sequence[Object]) -> ServicePortView:
    endpoints = []
    for item in slices:
        for known in item.get("ports") or ():
            if (known.get("name") or "") == (port.get("name") or "") and known.get("port"):
                endpoints += [_endpoint(entry, int(known["port"])) for entry in item.get("endpoints") or ()]
    endpoints.sort(key=lambda entry: (family_of(entry.address), entry.node, entry.address))
    return ServicePortView(
        port.get("name") or "",
        port.get("protocol", "TCP"),
        int(port["port"]),
        str(port.get("targetPort", port["port"])),
        int(port.get("nodePort") or 0),
        tuple(endpoints),
    )


def _endpoint(entry: Object, port: int) -> EndpointView:
    conditions: dict[str, Any] = entry.get("conditions") or {}
    reference = entry.get("targetRef") or {}
    pod = f"{reference.get('namespace', '')}/{reference['name']}" if reference.get("kind") == "Pod" else ""
    ready = conditions.get("ready") is not False
    serving = conditions.get("serving")
    return EndpointView(
        entry["addresses"][0],
        port,
        pod,
        entry.get("nodeName") or "",
        ready,
        ready if serving is None else bool(serving),
        bool(conditions.get("terminating")),
    )
