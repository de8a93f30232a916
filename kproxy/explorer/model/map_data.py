"""The map as data: what `api/map` answers (docs/explore.md)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Value(msgspec.Struct, frozen=True, rename="camel"):
    """What is sent as JSON, with Kubernetes' spelling."""


class DeviceView(Value, frozen=True):
    name: str
    kind: str
    addresses: tuple[str, ...]
    bridge: str
    up: bool
    mtu: int


class TunnelView(Value, frozen=True):
    """A tunnel's device, and the nodes that its forwarding entries or its remote address lead to."""

    device: str
    kind: str
    vni: int
    peers: tuple[str, ...]


class NodeView(Value, frozen=True):
    """A host. `ready` None: not known; `is_node`: whether it is one, or a host beside the nodes; `reason`: what cannot
    be read of it."""

    id: str
    name: str
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...] = msgspec.field(name="podCIDRs")
    zone: str
    ready: bool | None
    is_node: bool
    rules_known: bool
    mode: str
    link_up: bool
    reason: str
    devices: tuple[DeviceView, ...]
    tunnels: tuple[TunnelView, ...]


class MemberView(Value, frozen=True):
    host: str
    device: str
    address: str
    up: bool


class NetworkView(Value, frozen=True):
    """What several hosts are on. `known`: whether it follows from their links, or only from the Nodes."""

    id: str
    cidr: str
    known: bool
    members: tuple[MemberView, ...]


class PodView(Value, frozen=True):
    id: str
    namespace: str
    name: str
    node: str
    addresses: tuple[str, ...]
    phase: str
    ready: bool | None
    terminating: bool
    host_network: bool
    failed: bool
    bridge: str


class PortView(Value, frozen=True):
    name: str
    protocol: str
    port: int
    target: str
    node_port: int


class ServiceView(Value, frozen=True):
    """A Service; `asker`: of one host's rules the one of `clients` for whom it is worst, "" where all fare alike."""

    id: str
    namespace: str
    name: str
    type: str
    cluster_ips: tuple[str, ...] = msgspec.field(name="clusterIPs")
    external_ips: tuple[str, ...] = msgspec.field(name="externalIPs")
    load_balancer_ips: tuple[str, ...] = msgspec.field(name="loadBalancerIPs")
    internal_policy: str
    external_policy: str
    affinity: str
    skipped: str
    ports: tuple[PortView, ...]
    asker: str = ""


class EdgeView(Value, frozen=True):
    """From a port of a Service to an endpoint: what a client on the node of the view has.

    Attributes:
        varies: elsewhere it may be another chance.
        by: what the chance is of: `rules` that were read, and asked, or `objects`, as kube-proxy writes rules for them.
        objects: the chance that the objects ask for, where the rules give another one; else "".
        fault: what is wrong with it where rules that were read and objects differ: `missing`, `refused`, `lost`,
            `unused`, `wrong` (`faults`); `why` says it in words. "" if nothing is.
        lost: the chance of packets that the rules send there and that are lost; "" if none are.
    """

    service: str
    port: str
    protocol: str
    family: str
    endpoint: str
    target: str
    node: str
    state: str
    used: bool
    why: str
    chance: str
    percent: float
    varies: bool
    by: str = "objects"
    objects: str = ""
    fault: str = ""
    lost: str = ""


class OutsideView(Value, frozen=True):
    id: str
    address: str
    label: str
    links: tuple[str, ...]


class UnreachedView(Value, frozen=True):
    """A port of a Service for which one host's rules choose no endpoint, though it may have some: `open`, why that is
    not decided, or `stopped`, what becomes of its packets."""

    service: str
    port: str
    protocol: str
    family: str
    open: str
    stopped: str


class ClientView(Value, frozen=True):
    """Who asks one host's rules; `sender` is what a question calls it."""

    id: str
    label: str
    sender: str


class MapView(Value, frozen=True):
    """`pending`: ports of Services whose rules have not been asked yet; their chances are what the objects ask for.
    `clients`: of one host's rules those who may ask; the map of each is another one, and `view` is its id. The map of
    none is that of the client for whom each port is worst."""

    revision: int
    view: str
    nodes: tuple[NodeView, ...]
    networks: tuple[NetworkView, ...]
    pods: tuple[PodView, ...]
    services: tuple[ServiceView, ...]
    edges: tuple[EdgeView, ...]
    outside: tuple[OutsideView, ...]
    pending: int = 0
    exact: bool = True
    clients: tuple[ClientView, ...] = ()
    unreached: tuple[UnreachedView, ...] = ()


class MapChange(Value, frozen=True):
    """What of a map is another than in that of clients on another node, `than`: the edges at these places."""

    revision: int
    view: str
    than: str
    edges: tuple[tuple[int, EdgeView], ...]


class DrawnMap(NamedTuple):
    """A map as it is sent, and what of it depends on the node."""

    data: bytes
    edges: tuple[EdgeView, ...]
    pending: int
