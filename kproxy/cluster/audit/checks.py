"""What is wrong with a node whatever its rules say: its sysctls, routes and connections, the ways to other nodes, and
what kube-proxies tell. Only what the snapshot tells is judged."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kproxy.api import Node
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.report import Observation
from kproxy.cluster.facts.kubeproxy import metric
from kproxy.cluster.facts.links import GENEVE, VXLAN, Link
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.node import is_address
from kproxy.cluster.pods import Pod
from kproxy.cluster.probe import OUTSIDE
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.cluster.snapshot.info import seconds_of
from kproxy.cluster.stale_flows import PROTOCOLS, desired_addresses, stale_flows
from kproxy.dataplane.model.host import Route
from kproxy.dataplane.model.packet import parse_ip
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.render.nftables.names import TABLE
from kproxy.services.claims import claim_in_words
from kproxy.services.names import family_of
from kproxy.words import listed

_FULL: Final = 0.9
_FORWARDING: Final = {Family.IPV4: "net.ipv4.ip_forward", Family.IPV6: "net.ipv6.conf.all.forwarding"}
_BRIDGED: Final = {family: f"net.bridge.bridge-nf-call-ip{'6' * family.is_ipv6}tables" for family in Family}
_STRICT: Final = 1
_NO_WAY: Final = ("blackhole", "unreachable", "prohibit")
_HEADERS: Final = {VXLAN: 50, GENEVE: 50, "ipip": 20, "sit": 20, "gre": 24, "ip6tnl": 40, "ip6gre": 44}
"""Octets that a tunnel adds over IPv4, or over IPv6 for those that go over nothing else."""
_LONGER: Final = 20
"""Octets by which IPv6's header is longer."""
_BEHIND: Final = 30.0
"""Seconds that rules may be older than the last change: kube-proxy joins changes of a second or more."""
_SYNC: Final = "kubeproxy_sync_proxy_rules"
_FAILURES: Final = ("iptables_restore_failures_total", "nftables_sync_failures_total")
_SHOWN: Final = 3


def observe_node(node: AuditedNode) -> Iterator[Observation]:
    """What is wrong with a node. Raises InputError: a file of it cannot be read."""
    for check in _CHECKS:
        yield from check(node)


def _local_pods(node: AuditedNode) -> list[Pod]:
    """The Pods of the node that have an address of their own, and an object that says so."""
    pods = node.cluster.pods.values()
    return [pod for pod in pods if pod.node == node.name and pod.phase == "Running" and not pod.host_network]


def _sysctls(node: AuditedNode) -> Iterator[Observation]:
    sysctls = node.host.sysctls
    if sysctls is None:
        return
    for family in node.families:
        name = _FORWARDING[family]
        if sysctls.get(name) == 0:
            yield Observation("ip-forward", node.name, name, f"{name} = 0", mend=f"sysctl -w {name}=1")
        name = _BRIDGED[family]
        if sysctls.get(name) == 0 and _has_bridged_pods(node, family):
            detail = f"{name} = 0, and the node's pods are on a bridge"
            yield Observation("bridge-nf", node.name, name, detail, mend=f"sysctl -w {name}=1")
        facts = node.facts[family]
        needed = node.mode == MODE_IPTABLES and node.config_known and facts.iptables.localhost_node_ports
        name = "net.ipv4.conf.all.route_localnet"
        if needed and facts.node_ports and sysctls.get(name) == 0:
            yield Observation("route-localnet", node.name, name, f"{name} = 0")


def _has_bridged_pods(node: AuditedNode, family: Family) -> bool:
    """Whether two Pods of the node may be on one bridge."""
    links = node.host.links or {}
    addresses = (address for pod in _local_pods(node) for address in pod.addresses if family_of(address) is family)
    return any(name in links and links[name].is_bridge for name in map(node.device_to, addresses) if name)


def _reverse_path(node: AuditedNode) -> Iterator[Observation]:
    """Whether clients outside, which come to the Node's address, would be answered by another interface."""
    sysctls, interfaces = node.host.sysctls, node.host.interfaces
    if sysctls is None or interfaces is None or node.host.routes is None:
        return
    if node.host.routing_rules:
        return  # marks and policies may mend it
    addresses = set(node.facts[Family.IPV4].own_addresses)
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
    names = [dump.name for dump in node.dumps_with_rules]
    details: list[str] = []
    if node.mode == MODE_NFTABLES:
        details = [f"{name}: rules of iptables mode, and the mode is nftables" for name in names]
    elif node.has_table:
        details = [f"nft: table {TABLE}, and the mode is {node.mode}"]
    if node.mode != MODE_IPVS and node.host.ipvs is not None and node.host.ipvs.servers:
        details.append(f"ipvs: {len(node.host.ipvs.servers)} virtual servers, and the mode is {node.mode}")
    for v6 in (False, True) if node.mode != MODE_NFTABLES else ():
        mine = [name for name in names if name.startswith("ip6") is v6]
        details += [f"{other}: rules of kube-proxy, as in {mine[0]}" for other in mine[1:2]]
    for detail in details:
        yield Observation("leftover-rules", node.name, detail, detail)


def _routes(node: AuditedNode) -> Iterator[Observation]:
    """Endpoints that no route leads to, and those of other nodes whose podCIDR has no route of its own here although
    podCIDRs have such routes elsewhere in the cluster."""
    routes = node.host.routes
    if routes is None or node.host.interfaces is None or node.host.lost_routing:
        return
    ways: dict[str, str] = {}
    for family in node.families:
        facts = node.facts[family]
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
    family, value = parse_ip(address)
    own = node.node.pod_cidrs if node.node is not None else ()
    if not node.shared.routes_to_pods or node.shared.networks.of(address) in (address, *own):
        return ""
    routes = (each for each in node.host.routes or () if each.network.mask and each.family is family)
    is_near = node.model.is_local(family, value) or any(each.network.contains(value) for each in routes)
    return "" if is_near else "only the default route"


def _stale_flows(node: AuditedNode) -> Iterator[Observation]:
    """UDP and SCTP connections that lead where no Service does, as the proxy itself would judge them."""
    flows = [flow for flow in node.host.flows or () if flow.protocol in PROTOCOLS]
    if not flows:
        return
    for family in node.families:
        facts = node.facts[family]
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
    for family in node.families:
        facts = node.facts[family]
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


def _ways(node: AuditedNode) -> Iterator[Observation]:
    """Whether packets for the pods of another node arrive there. A route to a podCIDR goes by a gateway that is that
    node, or by a tunnel whose neighbour entry and FDB lead to it; gateways that no Node has are routers."""
    if node.host.links is None:
        return
    if node.host.routes is not None:
        for other in node.cluster.manifests.nodes:
            if other.metadata.name != node.name:
                for cidr in other.pod_cidrs:
                    yield from _to_pods(node, other, cidr)
    for link in node.host.links.values():
        yield from _mtu(node, link)


def _to_pods(node: AuditedNode, other: Node, cidr: str) -> Iterator[Observation]:
    network = ipaddress.ip_network(cidr, strict=False)
    route = node.route_to(str(network[min(1, network.num_addresses - 1)]))
    links, name = node.host.links or {}, other.metadata.name
    link = links.get(route.device or "") if route is not None else None
    if route is None or link is None:
        return
    family = family_of(cidr)
    gateway = "" if route.gateway is None else format_address(route.gateway, family)
    problem = ""
    if link.tunnel is not None and link.tunnel.kind in (VXLAN, GENEVE):
        problem = _through_tunnel(node, other, link, gateway or str(network[1]))
        kind = "tunnel-astray"
    elif gateway:
        owner = node.shared.owners.get(gateway, "")
        problem = f"the gateway {gateway} is node {owner}" if owner not in ("", name) else ""
        kind = "route-astray"
    if problem:
        services = node.services_in.get(cidr, ())
        detail = f"to {cidr} of {name}: {problem}"
        for service in services or ("",):
            yield Observation(kind, node.name, detail, detail, service)


def _through_tunnel(node: AuditedNode, other: Node, link: Link, hop: str) -> str:
    """Why a tunnel does not lead to a node; "" if it does, or if that is not known."""
    neighbours, fdb = node.host.neighbours, node.host.fdb
    if neighbours is None or fdb is None or link.tunnel is None or link.tunnel.by_route or link.tunnel.remote:
        return ""
    mac = neighbours.get((link.name, hop))
    if mac is None:
        return f"no neighbour entry for {hop} on {link.name}"
    remote = fdb.get(link.name, {}).get(mac)
    if remote is None:
        return f"no FDB entry for {mac} on {link.name}"
    addresses = node_addresses(other)
    if remote not in addresses:
        return f"the FDB of {link.name} leads {mac} to {remote}, and the node is {', '.join(addresses)}"
    theirs = node.cluster.hosts[other.metadata.name].links or {}
    macs = [each.mac for each in theirs.values() if each.tunnel is not None and each.tunnel.vni == link.tunnel.vni]
    if any(macs) and mac not in macs:
        return f"the neighbour {hop} on {link.name} has {mac}, and the node's tunnel {', '.join(macs)}"
    return ""


def _mtu(node: AuditedNode, link: Link) -> Iterator[Observation]:
    """A tunnel whose packets, once wrapped, do not fit the device under it."""
    if link.tunnel is None or not link.up or not link.mtu or link.tunnel.kind not in _HEADERS:
        return
    found = _under(node, link)
    if found is None:
        return
    device, family = found
    header = _HEADERS[link.tunnel.kind] + (_LONGER if family is Family.IPV6 and "6" not in link.tunnel.kind else 0)
    if device.mtu and link.mtu + header > device.mtu:
        detail = f"{link.name} {link.mtu}, and {device.name} of {device.mtu} leaves {device.mtu - header}"
        yield Observation("mtu", node.name, detail, detail)


def _under(node: AuditedNode, link: Link) -> tuple[Link, Family] | None:
    """The device that a tunnel's packets leave by, and their family."""
    others = (other for other in node.cluster.manifests.nodes if other.metadata.name != node.name)
    addresses = [address for other in others for address in node_addresses(other)[:1]][:1]
    ends = [link.tunnel.remote] if link.tunnel is not None and link.tunnel.remote else []
    for end in filter(is_address, (*ends, *addresses)):
        route = node.route_to(end)
        device = (node.host.links or {}).get(route.device or "") if route is not None else None
        if device is not None and device.name != link.name:
            return device, family_of(end)
    return None


def _proxy(node: AuditedNode) -> Iterator[Observation]:
    """What its kube-proxy tells of itself."""
    health = node.host.health
    behind = 0.0 if health is None else _seconds(health.last_updated, health.current_time)
    if health is not None and health.healthy is False:
        detail = f"healthz: {' '.join(health.text.split())[:100]}"
        yield Observation("proxy-unhealthy", node.name, "unhealthy", detail)
    elif health is not None and behind > _BEHIND:
        detail = f"{node.name}: rules of {health.last_updated}, {behind:.0f} s old, and changes wait"
        yield Observation("proxy-behind", node.name, "behind", detail)
    else:
        yield from _queued(node)


def _queued(node: AuditedNode) -> Iterator[Observation]:
    """Changes that wait by the metrics: they came after the last time that rules were written."""
    metrics = node.host.metrics or {}
    queued, done = (metric(metrics, f"{_SYNC}_last_{name}timestamp_seconds") for name in ("queued_", ""))
    if queued is None or done is None or queued - done <= _BEHIND:
        return
    failures = sum(value for name in _FAILURES for value in metrics.get(f"{_SYNC}_{name}", {}).values())
    detail = f"{node.name}: rules of {node.synced}, and changes of {queued - done:.0f} s later wait"
    detail += f"; {failures:.0f} writes have failed" if failures else ""
    yield Observation("proxy-behind", node.name, "behind", detail)


def _seconds(first: str, second: str) -> float:
    """The time between two: RFC 3339, or ` +0000 UTC m=+1.5` at the end where Go prints a time plainly."""
    begin, end = (seconds_of(each.partition(" m=")[0].replace(" +0000 UTC", "Z")) for each in (first, second))
    return 0.0 if begin is None or end is None else end - begin


def _pods_outside(node: AuditedNode) -> Iterator[Observation]:
    """Pods that kube-proxy takes for clients outside."""
    if not node.config_known:
        return
    for family in node.families:
        local = node.facts[family].iptables.local_traffic
        if not local.source:
            continue
        network = ipaddress.ip_network(local.source)
        outside = [
            f"{pod.name} {address}"
            for pod in _local_pods(node)
            for address in pod.addresses
            if (":" in address) == (family is Family.IPV6) and ipaddress.ip_address(address) not in network
        ]
        if outside:
            shown = listed(outside, _SHOWN)
            yield Observation("cluster-cidr", node.name, local.source, f"not in {local.source}: {shown}")


_CHECKS: Final = (
    _sysctls, _reverse_path, _conntrack, _leftovers, _routes, _stale_flows, _services, _ways, _proxy, _pods_outside,
)  # fmt: skip


# --- between nodes ---


def observe_all(hosts: Sequence[HostFacts]) -> Iterator[Observation]:
    """How the nodes' kube-proxies fit one another."""
    versions = _by_value((host.proxy_version, host.name) for host in hosts)
    if len({".".join(version.split(".")[:2]) for version in versions}) > 1:
        yield from _mixed("versions-mixed", versions)
    configs = ((host.proxy_config, host.name) for host in hosts)
    modes = _by_value((None if config is None else config.mode, name) for config, name in configs)
    if len(modes) > 1:
        yield from _mixed("modes-mixed", modes)


def _by_value(pairs: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value, node in pairs:
        if value:
            found.setdefault(value, []).append(node)
    return found


def _mixed(kind: str, values: dict[str, list[str]]) -> Iterator[Observation]:
    """One observation for each node of the fewer, which are likely those to mend."""
    ordered = sorted(values.items(), key=lambda each: (-len(each[1]), each[0]))
    most, count = ordered[0][0], len(ordered[0][1])
    for value, names in ordered[1:]:
        for name in names:
            yield Observation(kind, name, kind, f"{value}, and {most} on {count} nodes")
