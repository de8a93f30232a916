"""The map: nodes as rooms with their devices, pods, networks and tunnels between them; Services and where they lead
(`edges`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kproxy.api.types.core import Node, Service
from kproxy.cluster.facts.links import Link
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.pods import Pod
from kproxy.cluster.services_in_rules import services_told
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane.model.host import Interface
from kproxy.dataplane.model.packet import parse_ip
from kproxy.errors import KproxyError
from kproxy.explorer.answers.edges import edges_of, told_of
from kproxy.explorer.errors import not_found
from kproxy.explorer.model import map_data as views
from kproxy.explorer.model.clients import NODE, Client
from kproxy.explorer.model.clients import OUTSIDE as OUTSIDE_CLIENT
from kproxy.explorer.model.model import CLIENT, CLIENT6, HOST, HOST_ID, Model, Work
from kproxy.explorer.model.owners import Owners
from kproxy.explorer.page import encode
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.services.serviceport import why_skipped

_SHOWN_DEVICES: Final = 64


def map_answer(model: Model, node: str, work: Work, than: str = "", revision: int = 0) -> bytes:
    """The map as it is sent; kept once all chances on it are known. As `draw_map`.

    Args:
        than: a node; who asks has the map of its clients, in this revision, and is told what is another, if both maps
            have the same edges and all their chances are known.
    """
    drawn = _drawn(model, node, work)
    if not than or revision != model.revision or drawn.pending or model.known.cluster is None:
        return drawn.data
    before = _drawn(model, than, work)
    if before.pending or len(before.edges) != len(drawn.edges):
        return drawn.data
    pairs = enumerate(zip(before.edges, drawn.edges, strict=True))
    edges = tuple((place, new) for place, (old, new) in pairs if old is not new and old != new)
    return encode(views.MapChange(model.revision, _view(model, node), _view(model, than), edges))


def _view(model: Model, node: str) -> str:
    return model.node(node).name if model.nodes else node


def _drawn(model: Model, node: str, work: Work) -> views.DrawnMap:
    name = _view(model, node)

    def draw() -> views.DrawnMap:
        drawn = draw_map(model, name, work)
        return views.DrawnMap(encode(drawn), drawn.edges, drawn.pending)

    return model.maps.get(name, draw, lambda drawn: not drawn.pending)


def draw_map(model: Model, node: str, work: Work) -> views.MapView:
    """All of it, with chances as a client on `node` has them ("": the first).

    Raises:
        Refusal: there is no such node, or it takes too long.
    """
    if model.known.cluster is None:
        return _one_host(model, node, work)
    owners = model.owners
    objects = {each.metadata.name: each for each in model.manifests.nodes}
    nodes = tuple(_node(model, host, objects.get(name), owners) for name, host in model.cluster.hosts.items())
    networks = tuple(_networks(nodes))
    view = model.node(node) if model.nodes else None
    edges: list[views.EdgeView] = []
    pending = 0
    if view is not None:
        for family in model.families:
            found, left = edges_of(model, view, family, work)
            edges += found
            pending += left
    pods = tuple(_pod(model, pod) for _, pod in sorted(model.cluster.pods.items()))
    services = tuple(map(_service, sorted(model.manifests.services, key=lambda each: each.metadata.key)))
    return views.MapView(
        model.revision,
        view.name if view is not None else "",
        nodes,
        networks,
        pods,
        services,
        tuple(edges),
        tuple(_outside(model, networks)),
        pending,
    )


def _one_host(model: Model, client: str, work: Work) -> views.MapView:
    clients = {each.id: each for family in reversed(model.families) for each in model.clients(family)}
    if client not in ("", HOST, *clients):
        raise not_found(f"node: there is no client {client!r}; there are {', '.join(clients)}", "node")
    client = client if client in clients else ""
    asking = tuple(
        views.ClientView(name, each.label, HOST_ID if name == NODE else each.address) for name, each in clients.items()
    )
    host = views.NodeView(
        "node/host", "host", (), (), "", None, False, True, " and ".join(model.modes_told), True, "", (), ()
    )
    edges, unreached, pending, worst = told_of(model, client, work)
    services = tuple(_told(each, worst.get(each.metadata.key)) for each in services_told(model.told))
    outside = []
    for family in model.families:
        by_id = {each.id: each for each in model.clients(family)}
        asker = by_id.get(client) or worst.get(family) or by_id[OUTSIDE_CLIENT]
        if asker.id != NODE:  # the host is drawn anyway
            outside.append(views.OutsideView(f"{OUTSIDE}{asker.address}", asker.address, asker.label, ()))
    return views.MapView(
        model.revision, client or HOST, (host,), (), (), services, edges, tuple(outside), pending,
        clients=asking, unreached=unreached,
    )  # fmt: skip


@dataclass(frozen=True)
class _Links:
    """A host's links as far as they can be read; `reason` says why not."""

    interfaces: tuple[Interface, ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)
    fdb: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reason: str = ""

    @classmethod
    def of(cls, host: HostFacts) -> _Links:
        try:
            return cls(host.interfaces or (), host.links or {}, host.fdb or {})
        except KproxyError as error:
            return cls(reason=" ".join(str(error).splitlines()))


def _node(model: Model, host: HostFacts, node: Node | None, owners: Owners) -> views.NodeView:
    known = _Links.of(host)
    own = node_addresses(node) if node is not None else ()
    devices = tuple(_devices(known))
    there = [text.partition("/")[0] for device in devices for text in device.addresses]
    uplinks = {device.name for device in devices for text in device.addresses if text.partition("/")[0] in own}
    return views.NodeView(
        id=f"node/{host.name}",
        name=host.name,
        addresses=tuple(own or there),
        pod_cidrs=node.pod_cidrs if node is not None else (),
        zone=node.metadata.labels.get("topology.kubernetes.io/zone", "") if node is not None else "",
        ready=model.ready.get(host.name),
        is_node=host.has_node,
        rules_known=not any(each.what.endswith("tables-save") for each in host.missing),
        mode=_mode(model, host),
        link_up=all(device.up for device in devices if device.name in uplinks),
        reason=known.reason,
        devices=devices,
        tunnels=tuple(_tunnels(host, known, owners)),
    )


def _mode(model: Model, host: HostFacts) -> str:
    try:
        return model.rendering.mode_of(host) if host.has_node else ""
    except KproxyError:
        return ""


def _devices(known: _Links) -> Iterator[views.DeviceView]:
    addresses = {item.name: item.addresses for item in known.interfaces}
    for link in list(known.links.values())[:_SHOWN_DEVICES]:
        if link.name != "lo":
            own = (f"{format_address(each.value, each.family)}/{each.prefix}" for each in addresses.get(link.name, ()))
            yield views.DeviceView(link.name, link.kind, tuple(own), link.bridge, link.up and link.carrier, link.mtu)


def _tunnels(host: HostFacts, known: _Links, owners: Owners) -> Iterator[views.TunnelView]:
    for link in known.links.values():
        if link.tunnel is not None:
            ends = {*known.fdb.get(link.name, {}).values(), link.tunnel.remote}
            peers = {f"node/{owners.nodes[end]}" for end in ends if end in owners.nodes} - {f"node/{host.name}"}
            yield views.TunnelView(link.name, link.tunnel.kind, link.tunnel.vni, tuple(sorted(peers)))


def _networks(nodes: Sequence[views.NodeView]) -> Iterator[views.NetworkView]:
    """Networks that more than one host has an address of, tunnels' aside; one more of the nodes that are on none."""
    found: dict[str, list[views.MemberView]] = {}
    for node in nodes:
        tunnels = {tunnel.device for tunnel in node.tunnels}
        for device in node.devices:
            for text in device.addresses if device.name not in tunnels else ():
                own = ipaddress.ip_interface(text)
                if not own.is_link_local and own.network.prefixlen < own.max_prefixlen:
                    found.setdefault(str(own.network), []).append(
                        views.MemberView(node.id, device.name, str(own.ip), device.up)
                    )
    shared = {cidr: members for cidr, members in found.items() if len({each.host for each in members}) > 1}
    for cidr, members in sorted(shared.items()):
        yield views.NetworkView(f"net/{cidr}", cidr, True, tuple(members))
    joined = {member.host for members in shared.values() for member in members}
    rest = [
        views.MemberView(each.id, "", next(iter(each.addresses), ""), True) for each in nodes if each.id not in joined
    ]
    if rest:
        yield views.NetworkView("net/nodes", "", False, tuple(rest))


def _pod(model: Model, pod: Pod) -> views.PodView:
    namespace, _, name = pod.name.partition("/")
    host = None if pod.host_network else model.cluster.hosts.get(pod.node)
    return views.PodView(
        id=f"pod/{pod.name}",
        namespace=namespace,
        name=name,
        node=f"node/{pod.node}" if pod.node else "",
        addresses=pod.addresses,
        phase=pod.phase,
        ready=pod.ready,
        terminating=pod.terminating,
        host_network=pod.host_network,
        failed=pod.name in model.failed,
        bridge="" if host is None else _bridge_to(host, pod),
    )


def _bridge_to(host: HostFacts, pod: Pod) -> str:
    """The bridge of its node whose network a pod's address is in; "" if there is none."""
    known = _Links.of(host)
    for item in known.interfaces:
        link = known.links.get(item.name)
        if link is not None and link.is_bridge:
            for address in pod.addresses:
                family, value = parse_ip(address)
                if any(own.family is family and own.network.contains(value) for own in item.addresses):
                    return item.name
    return ""


def _service(service: Service) -> views.ServiceView:
    meta, spec = service.metadata, service.spec
    ports = (
        views.PortView(port.name, port.protocol, port.port, str(port.target_port or port.port), port.node_port)
        for port in spec.ports
    )
    return views.ServiceView(
        id=f"svc/{meta.key}",
        namespace=meta.namespace,
        name=meta.name,
        type=spec.type,
        cluster_ips=tuple(ip for ip in spec.cluster_ips if ip != "None"),
        external_ips=spec.external_ips,
        load_balancer_ips=tuple(item.ip for item in service.ingress if item.ip),
        internal_policy=spec.internal_traffic_policy or "Cluster",
        external_policy=spec.external_traffic_policy or "Cluster",
        affinity=spec.session_affinity,
        skipped=why_skipped(service),
        ports=tuple(ports),
    )


def _told(service: Service, asker: Client | None) -> views.ServiceView:
    """A Service as far as one host's rules tell it."""
    found = _service(service)
    ports = tuple(msgspec.structs.replace(each, target="") for each in found.ports)
    kind = "NodePort" if any(each.node_port for each in ports) else "ClusterIP"
    return msgspec.structs.replace(
        found, type="LoadBalancer" if found.load_balancer_ips else kind, internal_policy="", external_policy="",
        affinity="", skipped="", ports=ports, asker="" if asker is None else asker.id,
    )  # fmt: skip


def _outside(model: Model, networks: Sequence[views.NetworkView]) -> Iterator[views.OutsideView]:
    if known_client(model):
        return
    for family, address in ((Family.IPV4, CLIENT), (Family.IPV6, CLIENT6)):
        if family in model.families:
            links = tuple(
                each.id for each in networks if not each.cidr or (":" in each.cidr) == (family is Family.IPV6)
            )
            yield views.OutsideView(f"{OUTSIDE}{address}", address, "a client outside", links)


def known_client(model: Model) -> str:
    """The id of the host that is a client outside, as a lab has one; "" if there is none."""
    host = model.cluster.hosts.get("client")
    return "node/client" if host is not None and not host.has_node else ""
