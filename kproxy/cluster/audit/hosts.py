"""What is wrong with a node whatever its rules say: sysctls, routes, connections. Only what the snapshot tells."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.observation import Observation
from kproxy.cluster.pods import Pod
from kproxy.cluster.probe import OUTSIDE
from kproxy.cluster.stale_flows import PROTOCOLS, desired_addresses, stale_flows
from kproxy.dataplane.model.host import Route
from kproxy.dataplane.model.packet import parse_ip
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.render.nftables.names import TABLE
from kproxy.services.claims import claim_in_words
from kproxy.services.names import family_of

_FULL: Final = 0.9
_FORWARDING: Final = {Family.IPV4: "net.ipv4.ip_forward", Family.IPV6: "net.ipv6.conf.all.forwarding"}
_BRIDGED: Final = {
    Family.IPV4: "net.bridge.bridge-nf-call-iptables",
    Family.IPV6: "net.bridge.bridge-nf-call-ip6tables",
}
_STRICT: Final = 1
_NO_WAY: Final = ("blackhole", "unreachable", "prohibit")


def observe_host(node: AuditedNode) -> Iterator[Observation]:
    """What is wrong with a node itself. Raises InputError: a file of it cannot be read."""
    yield from _sysctls(node)
    yield from _reverse_path(node)
    yield from _conntrack(node)
    yield from _leftovers(node)
    yield from _routes(node)
    yield from _stale_flows(node)
    yield from _services(node)


def families(node: AuditedNode) -> list[Family]:
    """The families that the node's Services have."""
    return [family for family in Family if node.facts(family).service_ports]


def local_pods(node: AuditedNode) -> list[Pod]:
    """The Pods of the node that have an address of their own, and an object that says so."""
    pods = node.cluster.pods.values()
    return [pod for pod in pods if pod.node == node.name and pod.phase == "Running" and not pod.host_network]


def _sysctls(node: AuditedNode) -> Iterator[Observation]:
    sysctls = node.host.sysctls
    if sysctls is None:
        return
    for family in families(node):
        name = _FORWARDING[family]
        if sysctls.get(name) == 0:
            yield Observation("ip-forward", node.name, name, f"{name} = 0", mend=f"sysctl -w {name}=1")
        name = _BRIDGED[family]
        if sysctls.get(name) == 0 and _has_bridged_pods(node, family):
            detail = f"{name} = 0, and the node's pods are on a bridge"
            yield Observation("bridge-nf", node.name, name, detail, mend=f"sysctl -w {name}=1")
        facts = node.facts(family)
        needed = node.mode == MODE_IPTABLES and node.config_known and facts.iptables.localhost_node_ports
        name = "net.ipv4.conf.all.route_localnet"
        if needed and facts.node_ports and sysctls.get(name) == 0:
            yield Observation("route-localnet", node.name, name, f"{name} = 0")


def _has_bridged_pods(node: AuditedNode, family: Family) -> bool:
    """Whether two Pods of the node may be on one bridge."""
    links = node.host.links or {}
    devices = [
        node.device_to(address) for pod in local_pods(node) for address in pod.addresses if family_of(address) is family
    ]
    return any(name in links and links[name].is_bridge for name in devices if name)


def _reverse_path(node: AuditedNode) -> Iterator[Observation]:
    """Whether clients outside, which come to the Node's address, would be answered by another interface."""
    sysctls, interfaces = node.host.sysctls, node.host.interfaces
    if sysctls is None or interfaces is None or node.host.routes is None:
        return
    if node.host.routing_rules:
        return  # marks and policies may mend it
    addresses = set(node.facts(Family.IPV4).own_addresses)
    back = node.device_to(OUTSIDE[Family.IPV4][0])
    for item in interfaces:
        if back is None or item.name == back or not addresses & {str(own).partition("/")[0] for own in item.addresses}:
            continue
        values = [sysctls.get(f"net.ipv4.conf.{name}.rp_filter", 0) for name in ("all", item.name)]
        if max(values) == _STRICT:
            detail = f"rp_filter of {item.name} is 1, and the way back is by {back}"
            mend = f"sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{item.name}.rp_filter=2"
            yield Observation("rp-filter", node.name, detail, detail, mend=mend)


def _conntrack(node: AuditedNode) -> Iterator[Observation]:
    sysctls = node.host.sysctls or {}
    count, most = (sysctls.get(f"net.netfilter.nf_conntrack_{name}") for name in ("count", "max"))
    if count is not None and most and count >= _FULL * most:
        yield Observation("conntrack-full", node.name, "full", f"{node.name}: {count:,} of {most:,} entries")


def _leftovers(node: AuditedNode) -> Iterator[Observation]:
    """Rules of the mode or variant that kube-proxy does not use."""
    saves = node.variants_with_rules
    if node.mode == MODE_NFTABLES:
        for name in saves:
            file = name.rpartition("/")[2]
            yield Observation(
                "leftover-rules", node.name, file, f"{file}: rules of iptables mode, and the mode is nftables"
            )
        return
    if node.mode == MODE_IPTABLES and node.has_table:
        detail = f"nft: table {TABLE}, and the mode is iptables"
        yield Observation("leftover-rules", node.name, detail, detail)
    for v6 in (False, True):
        mine = [name.rpartition("/")[2] for name in saves if name.rpartition("/")[2].startswith("ip6") is v6]
        if len(mine) > 1:
            detail = f"{mine[1]}: rules of kube-proxy, as in {mine[0]}"
            yield Observation("leftover-rules", node.name, detail, detail)


def _routes(node: AuditedNode) -> Iterator[Observation]:
    """Endpoints that no route leads to, and those of other nodes whose podCIDR has no route of its own here although
    podCIDRs have such routes elsewhere in the cluster."""
    routes = node.host.routes
    if routes is None or node.host.interfaces is None or node.host.lost_routing:
        return
    ways: dict[str, str] = {}
    for family in families(node):
        facts = node.facts(family)
        for port in facts.service_ports:
            for endpoint in facts.selected[port.name].reachable:
                network = node.shared.networks.of(endpoint.ip)
                if network != endpoint.ip and network not in ways and _has_parts(routes, network):
                    network = endpoint.ip
                if network not in ways:
                    ways[network] = _no_way(node, endpoint.ip)
                if ways[network]:
                    what = f"{ways[network]} to {network}"
                    yield Observation("no-route", node.name, what, what, str(port.name))


def _has_parts(routes: Sequence[Route], cidr: str) -> bool:
    """Whether there are routes to parts of a podCIDR."""
    network = ipaddress.ip_network(cidr, strict=False)
    return any(
        route.network.mask.bit_count() > network.prefixlen
        and route.family.version == network.version
        and int(network[0]) <= route.network.address <= int(network[-1])
        for route in routes
    )


def _no_way(node: AuditedNode, address: str) -> str:
    """Why an endpoint cannot be reached; "" if it can."""
    route = node.route_to(address)
    if route is None:
        return "no route"
    if route.kind in _NO_WAY:
        return f"route of kind {route.kind}"
    return "only the default route" if node.shared.routes_to_pods and _leaves_for_pods(node, address) else ""


def _leaves_for_pods(node: AuditedNode, address: str) -> bool:
    """Whether an address of another node's podCIDR has only the default route here."""
    family, value = parse_ip(address)
    if node.shared.networks.of(address) == address or node.model.is_local(family, value):
        return False
    own = node.node.pod_cidrs if node.node is not None else ()
    if node.shared.networks.of(address) in own:
        return False
    return not any(
        route.network.mask and route.family is family and route.network.contains(value)
        for route in node.host.routes or ()
    )


def _stale_flows(node: AuditedNode) -> Iterator[Observation]:
    """UDP and SCTP connections that lead where no Service does, as the proxy itself would judge them."""
    flows = [flow for flow in node.host.flows or () if flow.protocol in PROTOCOLS]
    if not flows:
        return
    for family in families(node):
        facts = node.facts(family)
        own = {*facts.own_addresses, *node.host.addresses(family)}
        desired = desired_addresses(facts.state)  # of no earlier rules anything is known: they had the same addresses
        for each in stale_flows(flows, desired, desired, own):
            to = join_host_port(each.flow.destination, each.flow.destination_port)
            where = f"{to} to {each.flow.endpoint}" if each.flow.is_translated else f"{to}, not translated"
            service = each.service.rpartition("/")[0]
            six = " -f ipv6" if family is Family.IPV6 else ""
            mend = f"conntrack -D{six} -p {each.flow.protocol} --orig-dst {each.flow.destination}"
            mend += f" --orig-port-dst {each.flow.destination_port}"
            yield Observation("stale-flow", node.name, where, f"{where}: {each.reason}", service, mend=mend)


def _services(node: AuditedNode) -> Iterator[Observation]:
    """Services without endpoints that are ready, or without local ones, and those that claim the same address."""
    for family in families(node):
        facts = node.facts(family)
        for port in facts.service_ports:
            if not facts.decided[port.name].has_any:
                yield Observation("no-endpoints", node.name, "", service=str(port.name))
            elif not facts.selected[port.name].local:
                outside = port.external_policy_local and port.externally_accessible
                for flag, what in ((port.internal_policy_local, "internal"), (outside, "external")):
                    if flag:
                        detail = f"{what}TrafficPolicy Local"
                        yield Observation("no-local-endpoints", node.name, what, detail, str(port.name))
        for door, ports in facts.shared_doors.items():
            words = claim_in_words(door, ports)
            for port in ports:
                yield Observation("claimed-twice", node.name, str(door), words, str(port.name))
